"""Metrics against hand-made values, brute force over orders of ties, and RecBole's own evaluator."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from recbole.evaluator import Collector, Evaluator
from recbole.evaluator.collector import DataStruct

from recbole_prism.errors import ConfigError, EvaluationError
from recbole_prism.evaluation import Ranks, compute_metrics, rank_rows
from recbole_prism.evaluation.metrics import expected_metric
from recbole_prism.schema import LIST_METRICS, RANK_METRICS, SUPPORTED_METRICS
from tests.evaluation.fakes import FakeLoader, TableModel, random_case

N_ITEMS, N_ROWS, TOPK = 60, 50, [1, 5, 10]


def ranks_of(n_greater: list[int], n_equal: list[int]) -> Ranks:
    zeros = np.zeros(len(n_greater), dtype=np.int32)
    greater, equal = np.array(n_greater, dtype=np.int32), np.array(n_equal, dtype=np.int32)
    none = np.zeros((len(greater), 0), dtype=np.int32)
    return Ranks(zeros, zeros, zeros, zeros, greater, equal, greater + 1, equal, zeros.astype(bool), none, True)


def test_by_hand() -> None:
    ranks = ranks_of([0, 2, 7, 0], [0, 0, 0, 1])  # places 1, 3, 8, and 1 or 2
    result = compute_metrics(ranks, RANK_METRICS, [2, 5], mask_history=True, item_counts_train=None, n_items=100)
    second = 1 / math.log2(3)
    expected = {
        "hit@2": (1 + 0 + 0 + 1) / 4,
        "hit@5": (1 + 1 + 0 + 1) / 4,
        "ndcg@2": (1 + 0 + 0 + (1 + second) / 2) / 4,
        "ndcg@5": (1 + 0.5 + 0 + (1 + second) / 2) / 4,
        "mrr@2": (1 + 0 + 0 + 0.75) / 4,
        "mrr@5": (1 + 1 / 3 + 0 + 0.75) / 4,
        "precision@2": (0.5 + 0 + 0 + 0.5) / 4,
        "precision@5": (0.2 + 0.2 + 0 + 0.2) / 4,
    }
    for k in (2, 5):
        expected[f"recall@{k}"], expected[f"map@{k}"] = expected[f"hit@{k}"], expected[f"mrr@{k}"]
    assert result == pytest.approx(expected, abs=1e-12)
    assert list(result)[:4] == ["hit@2", "hit@5", "recall@2", "recall@5"]  # RecBole's order
    assert all(type(value) is float for value in result.values())
    other = compute_metrics(ranks, ["Hit"], [1], mask_history=False, item_counts_train=None, n_items=100)
    assert other == {"hit@1": 0.0}  # nothing removed: one more item beats each target


def test_expectation_equals_the_mean_over_all_orders_of_ties() -> None:
    gain = {
        "hit": lambda place, k: 1.0,
        "recall": lambda place, k: 1.0,
        "precision": lambda place, k: 1.0 / k,
        "ndcg": lambda place, k: 1.0 / math.log2(place + 1),
        "mrr": lambda place, k: 1.0 / place,
        "map": lambda place, k: 1.0 / place,
    }
    for greater, equal, k in itertools.product(range(4), range(4), (1, 2, 4, 6)):
        orders = list(itertools.permutations(range(equal + 1)))  # 0 is the target
        places = [greater + order.index(0) + 1 for order in orders]
        for name in RANK_METRICS:
            brute = np.mean([gain[name.lower()](place, k) if place <= k else 0.0 for place in places])
            value = expected_metric(name, np.array([greater]), np.array([equal]), k)[0]
            assert value == pytest.approx(brute, abs=1e-12)


def test_a_seen_target_is_a_miss_at_every_k() -> None:
    ranks = ranks_of([N_ITEMS - 1], [0])
    result = compute_metrics(ranks, ["Hit"], [N_ITEMS - 1], mask_history=True, item_counts_train=None, n_items=N_ITEMS)
    assert result == {f"hit@{N_ITEMS - 1}": 0.0}


class StockConfig(dict):
    """What RecBole's evaluator reads of a config."""

    def __init__(self, tail_ratio: Any = None) -> None:
        super().__init__(
            metrics=list(SUPPORTED_METRICS), topk=TOPK, metric_decimal_place=15, tail_ratio=tail_ratio, device="cpu",
            eval_args={"mode": "full"}, LABEL_FIELD="label",
        )  # fmt: skip


def stock_metrics(scores: torch.Tensor, target: list[int], counts: np.ndarray, tail_ratio: Any) -> dict[str, float]:
    """Metrics by RecBole 1.2's own collector and evaluator."""
    config = StockConfig(tail_ratio)
    collector = Collector(config)
    scores = scores.clone()
    scores[:, 0] = -math.inf
    collector.eval_batch_collect(scores, None, torch.arange(len(target)), torch.tensor(target))
    data: DataStruct = collector.data_struct
    data.set("data.num_items", N_ITEMS)
    data.set("data.count_items", Counter({item: int(n) for item, n in enumerate(counts) if n}))
    return Evaluator(config).evaluate(data)


@pytest.mark.parametrize("mask_history", [True, False])
@pytest.mark.parametrize("tail_ratio", [None, 0.3, 4])
def test_equals_recbole_on_scores_without_ties(
    mask_history: bool, tail_ratio: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(np, "float", float, raising=False)  # RecBole's metrics still use the removed name
    draw = np.random.default_rng(3)
    scores = torch.from_numpy(np.stack([draw.permutation(N_ITEMS) for _ in range(N_ROWS)])).float()
    scores[:, :20] += 15  # some items are recommended far more often than others
    scores += torch.rand(scores.shape, generator=torch.Generator().manual_seed(1)) * 0.5
    assert all(len(set(row)) == N_ITEMS for row in scores.tolist())
    _, target, _ = random_case(N_ROWS, N_ITEMS, 2)
    history = [
        [item for item in draw.integers(1, N_ITEMS, 15).tolist() if item != target[row]] for row in range(N_ROWS)
    ]
    counts = draw.integers(0, 9, N_ITEMS)
    counts[0] = 0

    ranks = rank_rows(
        TableModel(scores), FakeLoader(target, history, 16), n_items=N_ITEMS, mask_history=mask_history, memory_gb=4.0,
        device="cpu", n_top=20,
    )  # fmt: skip
    ours = compute_metrics(
        ranks, SUPPORTED_METRICS, TOPK, mask_history=mask_history, item_counts_train=counts, n_items=N_ITEMS,
        tail_ratio=tail_ratio or 0.1,
    )  # fmt: skip
    if mask_history:
        for row, items in enumerate(history):
            scores[row, items] = -math.inf
    stock = stock_metrics(scores, target, counts, tail_ratio)
    assert list(ours) == list(stock)
    assert ours == pytest.approx(stock, abs=1e-12)
    assert 0.0 < ours["hit@5"] < 1.0 and 0.0 < ours["tailpercentage@5"] < 1.0  # the case is not an empty one


def test_what_is_not_offered_is_refused() -> None:
    ranks = ranks_of([0], [0])
    options = {"mask_history": True, "item_counts_train": None, "n_items": 100}
    with pytest.raises(ConfigError, match="GAUC"):
        compute_metrics(ranks, ["Hit", "GAUC"], [5], **options)
    with pytest.raises(EvaluationError, match="no evaluation rows"):
        compute_metrics(ranks_of([], []), ["Hit"], [5], **options)
    for name in LIST_METRICS:
        with pytest.raises(EvaluationError, match="top 5 of each row, but 0 are kept"):
            compute_metrics(ranks, [name], [5], **options)
    with pytest.raises(EvaluationError, match="rank metric"):
        expected_metric("GiniIndex", np.zeros(1, dtype=int), np.zeros(1, dtype=int), 5)
