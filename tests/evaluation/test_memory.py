"""Full ranking stays within its memory bound."""

from __future__ import annotations

import os
import threading

import psutil
import pytest
import torch
from recbole.data.interaction import Interaction
from torch import nn

from recbole_prism.evaluation import Ranks, rank_rows
from tests.evaluation.fakes import FakeLoader


class BiasedDot(nn.Module):
    """Holds its scores twice for a moment, as models with an output bias do."""

    def __init__(self, n_rows: int, n_items: int) -> None:
        super().__init__()
        self.user, self.item = nn.Parameter(torch.randn(n_rows, 16)), nn.Parameter(torch.randn(n_items, 16))
        self.bias = nn.Parameter(torch.zeros(n_items))

    def full_sort_predict(self, interaction: Interaction) -> torch.Tensor:
        return self.user[interaction["row_id"]] @ self.item.T + self.bias


class PeakMemory:
    """Largest resident memory of this process, in bytes above the start, looked at every half millisecond."""

    def __enter__(self) -> PeakMemory:
        self.process = psutil.Process(os.getpid())
        self.start = self.peak = self.process.memory_info().rss
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def _watch(self) -> None:
        while not self.stop.wait(0.0005):
            self.peak = max(self.peak, self.process.memory_info().rss)

    def __exit__(self, *exception: object) -> None:
        self.stop.set()
        self.thread.join()
        self.used = self.peak - self.start


def rank(n_rows: int, n_items: int, memory_gb: float, n_top: int) -> tuple[Ranks, int]:
    """(ranks, peak memory in bytes)."""
    model = BiasedDot(n_rows, n_items)
    loader = FakeLoader([5] * n_rows, [[1, 2, 3]] * n_rows, batch_size=n_rows)
    options = {"n_items": n_items, "mask_history": True, "memory_gb": memory_gb, "device": "cpu", "n_top": n_top}
    with PeakMemory() as memory:
        ranks = rank_rows(model, loader, **options)
    return ranks, memory.used


@pytest.mark.parametrize(
    ("n_items", "memory_gb", "n_top"), [(30_000, 0.2, 20), pytest.param(300_000, 4.0, 0, marks=pytest.mark.slow)]
)
def test_2000_rows_within_the_bound(n_items: int, memory_gb: float, n_top: int) -> None:
    """Without a bound they would take 2 x 0.24 GB, and 2 x 2.4 GB."""
    rank(200, 1000, memory_gb, n_top)  # libraries take some memory for themselves the first time
    ranks, used = rank(2000, n_items, memory_gb, n_top)
    assert len(ranks) == 2000
    assert 0.4 * memory_gb * 1e9 < used <= memory_gb * 1e9
