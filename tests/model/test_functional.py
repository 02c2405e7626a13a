"""Losses against double loops in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from recbole_prism.model.functional.consistency import lens_consistency
from recbole_prism.model.functional.info_nce import info_nce
from recbole_prism.model.functional.linear_cross_entropy import linear_cross_entropy
from recbole_prism.model.functional.loss_parts import LossParts


def double_loop_info_nce(
    first: Tensor, second: Tensor, tau: float, similarity: str, labels: list, negatives: str
) -> float:
    n_rows = len(first)
    views = [(row, side, (first, second)[side][row]) for side in (0, 1) for row in range(n_rows)]

    def score(a: Tensor, b: Tensor) -> float:
        value = float(a @ b)
        return value / (float(a.norm()) * float(b.norm())) / tau if similarity == "cosine" else value / tau

    total = 0.0
    for row, side, anchor in views:
        positive = score(anchor, (first, second)[1 - side][row])
        terms = [math.exp(positive)]
        for other_row, other_side, other in views:
            if labels[other_row] == labels[row] or (negatives == "cross_view" and other_side == side):
                continue
            terms.append(math.exp(score(anchor, other)))
        total += math.log(sum(terms)) - positive
    return total / (2 * n_rows)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("negatives", ["both_views", "cross_view"])
@pytest.mark.parametrize("labels", [None, [7, 8, 7, 9, 8]])
def test_info_nce_equals_double_loop(similarity: str, negatives: str, labels: list) -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.randn(5, 6, generator=generator, dtype=torch.float64) for _ in range(2))
    tensor = None if labels is None else torch.tensor(labels)
    ours = info_nce(first, second, 0.7, similarity, tensor, negatives)
    oracle = double_loop_info_nce(first, second, 0.7, similarity, labels or list(range(5)), negatives)
    assert float(ours) == pytest.approx(oracle, abs=1e-12)
    assert float(info_nce(second, first, 0.7, similarity, tensor, negatives)) == pytest.approx(oracle, abs=1e-12)


def test_info_nce_limits() -> None:
    same = torch.ones(4, 3, requires_grad=True)
    assert float(info_nce(same, same).detach()) == pytest.approx(math.log(7))  # chance among 2B - 1
    loss = info_nce(same[:1], same[:1], temperature=0.1, similarity="cosine")
    loss.backward()
    assert float(loss.detach()) == 0.0 and float(same.grad.abs().max()) == 0.0
    all_equal = info_nce(torch.randn(3, 2), torch.randn(3, 2), labels=torch.zeros(3))
    assert float(all_equal) == 0.0
    zeros = torch.zeros(3, 2, requires_grad=True)
    info_nce(zeros, zeros, 1e-3, "cosine").backward()
    assert torch.isfinite(zeros.grad).all()
    one = torch.zeros(3, 2).index_fill(0, torch.tensor([1, 2]), 1.0).requires_grad_()  # dropout has zeroed one row
    info_nce(one, torch.eye(3, 2), 0.1, "cosine").backward()
    assert one.grad.abs().max() < 1e5


@pytest.mark.parametrize("arguments", [{"similarity": "cos"}, {"negatives": "none"}])
def test_info_nce_refuses_unknown_names(arguments: dict) -> None:
    with pytest.raises(ValueError, match="must be one of"):
        info_nce(torch.ones(2, 2), torch.ones(2, 2), **arguments)


def double_loop_consistency(outputs: Tensor, items: Tensor, ratio: Tensor, weights: Tensor) -> Tensor:
    total = torch.zeros((), dtype=outputs.dtype)
    n_lenses = outputs.shape[1]
    for i in range(len(outputs)):
        p = [torch.softmax(items @ outputs[i, k], 0) for k in range(n_lenses)]
        for k in range(n_lenses):
            for other in range(k + 1, n_lenses):
                pair = ratio[i, k] * ratio[i, other] / (ratio[i, k] + ratio[i, other] + 1e-8)
                one = (p[k] * (p[k].log() - p[other].log())).sum()
                two = (p[other] * (p[other].log() - p[k].log())).sum()
                total = total + weights[i] * pair * (one + two) / 2
    return total


def consistency_case(n: int = 5, k: int = 3, b: int = 7, d: int = 4) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    outputs, items = (torch.randn(*s, generator=generator, dtype=torch.float64) for s in ((n, k, d), (b, d)))
    ratio = torch.softmax(torch.randn(n, k, generator=generator, dtype=torch.float64), -1)
    return [outputs, items, ratio, torch.rand(n, generator=generator, dtype=torch.float64)]


def test_consistency_and_gradients_equal_double_loop() -> None:
    results = []
    for function in (lens_consistency, double_loop_consistency):
        outputs, items, ratio, weights = consistency_case()
        leaves = [outputs.requires_grad_(), items.requires_grad_(), ratio.requires_grad_()]
        loss = function(outputs, items, ratio, weights)
        results.append([loss.detach(), *torch.autograd.grad(3.0 * loss, leaves)])
    for ours, oracle in zip(*results):
        assert (ours - oracle).abs().max() < 1e-12


def test_consistency_in_chunks_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = lens_consistency(*consistency_case())
    monkeypatch.setattr("recbole_prism.model.functional.consistency._CHUNK_SCORES", 1)
    assert float(lens_consistency(*consistency_case())) == pytest.approx(float(whole), abs=1e-14)


def test_consistency_invariants() -> None:
    outputs, items, ratio, weights = consistency_case()
    agreeing = outputs[:, :1].expand_as(outputs)
    assert abs(float(lens_consistency(agreeing, items, ratio, weights))) < 1e-13
    order = torch.tensor([2, 0, 1])
    permuted = lens_consistency(outputs[:, order], items, ratio[:, order], weights)
    assert float(permuted) == pytest.approx(float(lens_consistency(outputs, items, ratio, weights)), abs=1e-13)


@pytest.mark.parametrize("n_rows,n_items", [(1, 5), (37, 11), (70, 40_000)])
def test_linear_cross_entropy_equals_two_steps(n_rows: int, n_items: int) -> None:
    """The last case is cut into chunks of 48 rows."""
    generator = torch.Generator().manual_seed(2)
    hidden, items = (torch.randn(n, 6, generator=generator, dtype=torch.float64) for n in (n_rows, n_items))
    targets = torch.randint(0, n_items, (n_rows,), generator=generator)
    leaves = [hidden.requires_grad_(), items.requires_grad_()]
    ours = linear_cross_entropy(hidden, items, targets)
    plain = functional.cross_entropy(hidden @ items.T, targets)
    assert float(ours.detach()) == pytest.approx(float(plain.detach()), abs=1e-12)
    for a, b in zip(torch.autograd.grad(2 * ours, leaves), torch.autograd.grad(2 * plain, leaves)):
        assert (a - b).abs().max() < 1e-13


def test_linear_cross_entropy_with_huge_logits_and_partial_gradients() -> None:
    hidden = torch.tensor([[200.0], [-200.0]], requires_grad=True)
    loss = linear_cross_entropy(hidden, torch.tensor([[1.0], [-1.0]]), torch.tensor([1, 1]))
    loss.backward()
    assert float(loss.detach()) == pytest.approx(200.0)  # first row: 400, second: 0
    assert torch.isfinite(hidden.grad).all()


def test_loss_parts_are_a_tuple_with_names() -> None:
    parts = LossParts({"rec": torch.tensor(1.0), "spcl": torch.tensor(2.0)})
    assert isinstance(parts, tuple) and parts.names == ("rec", "spcl") and float(sum(parts)) == 3.0
