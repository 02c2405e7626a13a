"""Memory of losses and steps, by torch's record of allocations: exact, and the same on every machine."""

from __future__ import annotations

from typing import Any, Callable

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from recbole_prism.model.functional.linear_cross_entropy import linear_cross_entropy
from recbole_prism.model.sequential_recommender.prism import PRISM
from tests.model.helpers import batch, build


def peak(call: Callable[[], Any]) -> int:
    """Largest number of bytes held during a call above what was there before it."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        call()
    events = [event for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"]
    level = highest = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        level += event.nbytes()
        highest = max(highest, level)
    return highest


def test_peak_counts_what_lives_at_one_time() -> None:
    def call() -> None:
        torch.zeros(1000)
        first = torch.zeros(2000)
        torch.add(first, torch.zeros(2000), out=first)

    assert peak(call) == pytest.approx(16_000, abs=200)


@pytest.mark.parametrize("n_items", [63_001, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_cross_entropy_over_many_items_is_bounded(n_items: int) -> None:
    """Batch 256. Beside the gradient of the table, before and after scaling, 48 rows of logits are held, never 256."""
    hidden = torch.randn(256, 8, requires_grad=True)
    items = torch.randn(n_items, 8, requires_grad=True)
    targets = torch.randint(0, n_items, (256,))
    used = peak(lambda: linear_cross_entropy(hidden, items, targets).backward())
    table, logits = n_items * 8 * 4, 256 * n_items * 4
    assert used < 2.1 * table + 0.2 * logits < logits


def step_peak(n_lenses: int) -> int:
    """Peak of a PRISM step at the sizes of the paper on Toys, lengths 1..12."""
    sizes = {"n_items": 11_925, "hidden_size": 64, "inner_size": 256, "initializer_range": 0.02}
    model = build(PRISM, n_lenses=n_lenses, hidden_dropout_prob=0.5, attn_dropout_prob=0.5, **sizes)
    data = batch(n_rows=256, n_items=11_925)

    def step() -> None:
        model.zero_grad(set_to_none=False)
        sum(model.calculate_loss(data)).backward()

    step()  # gradients come into being
    return peak(step)


def test_memory_grows_slowly_with_the_lenses() -> None:
    assert step_peak(8) < 1.5 * step_peak(2)
