"""List metrics where lists are not full, and the warning for collapsed lists."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from recbole_prism.errors import EvaluationError
from recbole_prism.evaluation import Ranks, check_diversity, compute_metrics
from recbole_prism.evaluation.diversity import is_tail


def ranks_with(top_items: np.ndarray, mask_history: bool = True) -> Ranks:
    zeros = np.zeros(len(top_items), dtype=np.int32)
    lists = np.asarray(top_items, dtype=np.int32)
    return Ranks(zeros, zeros, zeros, zeros, zeros, zeros, zeros, zeros, zeros.astype(bool), lists, mask_history)


def test_places_without_an_item_are_left_out() -> None:
    ranks = ranks_with(np.array([[1, 2], [1, 0], [0, 0]]))
    counts = np.array([0, 4, 10, 1, 1])
    result = compute_metrics(
        ranks, ["ItemCoverage", "AveragePopularity", "ShannonEntropy", "TailPercentage"], [2],
        mask_history=True, item_counts_train=counts, n_items=5, tail_ratio=4,
    )  # fmt: skip
    p = np.array([2 / 3, 1 / 3])
    assert result == pytest.approx(
        {
            "itemcoverage@2": 2 / 5,
            "averagepopularity@2": (7 + 4) / 2,
            "shannonentropy@2": -(p * np.log(p)).sum() / 2,
            "tailpercentage@2": (0.5 + 1.0) / 2,
        }
    )


def test_tail_by_hand() -> None:
    counts = np.array([0, 3, 1, 0, 1, 9])
    assert np.flatnonzero(is_tail(counts, 0.5)).tolist() == [2, 4]  # half of the four items that occur
    assert np.flatnonzero(is_tail(counts, 0.25)).tolist() == [2]  # equal counts: the smaller index first
    assert np.flatnonzero(is_tail(counts, 0.01)).tolist() == [2]  # at least one
    assert np.flatnonzero(is_tail(counts, 3)).tolist() == [1, 2, 4]


def test_lists_made_otherwise_are_refused() -> None:
    ranks = ranks_with(np.ones((2, 20)), mask_history=False)
    with pytest.raises(EvaluationError, match="mask_history True, but the lists were made with False"):
        compute_metrics(ranks, ["GiniIndex"], [5], mask_history=True, item_counts_train=None, n_items=9)
    with pytest.raises(EvaluationError, match="GiniIndex@50|giniindex@50"):
        compute_metrics(ranks, ["GiniIndex"], [50], mask_history=False, item_counts_train=None, n_items=99)
    with pytest.raises(EvaluationError, match="pass item_counts_train"):
        compute_metrics(ranks, ["AveragePopularity"], [5], mask_history=False, item_counts_train=None, n_items=9)


def test_collapse_warns(caplog: pytest.LogCaptureFixture) -> None:
    draw = np.random.default_rng(0)
    popular = np.arange(100, 0, -1)
    lists = []
    for _ in range(50):  # popularity with up to 5 seen items removed
        seen = draw.integers(80, 101, 5)
        lists.append([item for item in popular if item not in seen][:20])
    with caplog.at_level(logging.WARNING, logger="recbole_prism"):
        assert check_diversity(ranks_with(np.array(lists)), 101) >= 0.9
    assert "same recommendations" in caplog.text


def test_a_few_lists_for_many_users_warn(caplog: pytest.LogCaptureFixture) -> None:
    """Four different lists: no 20 items fill nearly all places, but 40 of 10,000 are all that is ever recommended."""
    lists = np.array([np.arange(10) + 1 + 10 * (user % 4) for user in range(600)])
    with caplog.at_level(logging.WARNING, logger="recbole_prism"):
        assert check_diversity(ranks_with(lists), 10_001) == pytest.approx(0.5)
    assert "40 different items of 6000 possible" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="recbole_prism"):
        check_diversity(ranks_with(lists), 4_001)  # 1 % of all items
    assert caplog.text == ""


def test_healthy_lists_do_not_warn(caplog: pytest.LogCaptureFixture) -> None:
    cycle = (np.arange(60)[:, None] + np.arange(20)) % 40 + 1  # the next 20 of a cycle of 40 items
    with caplog.at_level(logging.WARNING, logger="recbole_prism"):
        assert check_diversity(ranks_with(cycle), 41) < 0.7
        assert check_diversity(ranks_with(np.ones((5, 20))), 1000) == 0.0  # too few rows to say
        assert check_diversity(ranks_with(np.ones((50, 20))), 30) == 0.0  # too few items to say
        assert check_diversity(ranks_with(np.ones((50, 0))), 1000) == 0.0  # no lists
    assert caplog.text == ""
