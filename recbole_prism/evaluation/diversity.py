"""What the recommended lists are made of: RecBole's coverage and diversity metrics, and a warning for collapsed lists.

A list place holds an item index, or 0 where no item was left to recommend; such places are left out everywhere.
"""

from __future__ import annotations

import logging

import numpy as np

from recbole_prism.errors import EvaluationError
from recbole_prism.evaluation.ranks import Ranks

COLLAPSE_SHARE = 0.9
COVERAGE_FLOOR = 0.01
_logger = logging.getLogger("recbole_prism")


def lists_for(ranks: Ranks, name: str, k: int, mask_history: bool) -> np.ndarray:
    """The stored lists, checked to answer the question asked, int32 [R, n_top].

    Raises:
        EvaluationError: If they are shorter than `k`, or were made under the other `mask_history`.
    """
    n_top = ranks.top_items.shape[1]
    if k > n_top:
        raise EvaluationError(
            f"{name}@{k} needs the top {k} of each row, but {n_top} are kept",
            f"use cut-offs up to {n_top}, or another metric",
        )
    if ranks.mask_history != mask_history:
        raise EvaluationError(
            f"{name} was asked for with mask_history {mask_history}, but the lists were made with {ranks.mask_history}",
            "rank the rows again with the wanted setting",
        )
    return ranks.top_items


def list_metric(
    name: str, lists: np.ndarray, n_items: int, item_counts_train: np.ndarray | None, tail_ratio: float
) -> float:
    """One of RecBole's list metrics, with RecBole's definitions (its `n_items` includes padding).

    Args:
        name: Lower-case name.
        lists: [R, k].
        n_items: Padding included.
        item_counts_train: int64 [n_items].
        tail_ratio: See `compute_metrics`.
    """
    if name in ("averagepopularity", "tailpercentage"):
        if item_counts_train is None:
            raise EvaluationError(f"{name} needs the item counts of the training rows", "pass item_counts_train")
        value = item_counts_train if name == "averagepopularity" else is_tail(item_counts_train, tail_ratio)
        return _mean_of_lists(value.astype(np.float64), lists)
    times = np.bincount(lists[lists > 0], minlength=1)
    times = np.sort(times[times > 0])  # how often each recommended item is recommended, ascending
    if name == "itemcoverage":
        return len(times) / n_items
    if len(times) == 0:
        return 0.0
    share = times / times.sum()
    if name == "shannonentropy":
        return float(-(share * np.log(share)).sum() / len(times))
    place = np.arange(n_items - len(times) + 1, n_items + 1)  # never recommended items come first and add nothing
    return float(((2 * place - n_items - 1) * share).sum() / n_items)  # giniindex


def is_tail(item_counts_train: np.ndarray, tail_ratio: float) -> np.ndarray:
    """Which items are the long tail, bool [n_items]; an item that never occurs in training is not.

    `tail_ratio` up to 1 takes that share (at least one) of the occurring items, rarest first, equal counts in the order
    of their index; above 1 it takes all items with at most that count.
    """
    occurring = np.flatnonzero(item_counts_train)
    tail = np.zeros(len(item_counts_train), dtype=bool)
    if tail_ratio > 1:
        tail[occurring[item_counts_train[occurring] <= tail_ratio]] = True
    else:
        rarest_first = occurring[np.argsort(item_counts_train[occurring], kind="stable")]
        tail[rarest_first[: max(int(len(occurring) * tail_ratio), 1)]] = True
    return tail


def _mean_of_lists(value: np.ndarray, lists: np.ndarray) -> float:
    """Mean over the rows of the mean value of a row's items; rows with an empty list are left out."""
    filled = lists > 0
    n_filled = filled.sum(axis=1)
    total = np.where(filled, value[lists], 0.0).sum(axis=1)
    return float((total[n_filled > 0] / n_filled[n_filled > 0]).mean()) if n_filled.any() else 0.0


def check_diversity(ranks: Ranks, n_items: int, k: int = 10) -> float:
    """Warn if nearly everybody is recommended the same few items: a collapse to popularity, or a wrong index.

    Measured by the share of all top-k places that the 2k most recommended items fill (2k, because removing seen items
    lets identical lists differ a little). At least `COLLAPSE_SHARE` is a collapse; a healthy model is far below it. So
    is a coverage below `COVERAGE_FLOOR`: different items in the lists, of those that the lists have room for. Not
    judged for fewer than 20 rows or fewer than 4k items, where neither means anything.

    Returns:
        The share; 0.0 where it is not judged.
    """
    lists = ranks.top_items[:, :k]
    if lists.shape[1] == 0 or len(lists) < 20 or n_items - 1 < 4 * k:
        return 0.0
    times = np.sort(np.bincount(lists[lists > 0], minlength=1))[::-1]
    share = float(times[: 2 * k].sum() / max(times.sum(), 1))
    if share >= COLLAPSE_SHARE:
        _logger.warning(
            "Nearly all users get the same recommendations: %d items fill %.1f %% of all top-%d places. "
            "The model may have collapsed to popularity, or an item index is wrong.",
            2 * k,
            100 * share,
            k,
        )
    n_different, n_possible = int((times > 0).sum()), min(n_items - 1, lists.size)
    if share < COLLAPSE_SHARE and n_different < COVERAGE_FLOOR * n_possible:
        _logger.warning(
            "Hardly anything is recommended at all: all top-%d lists together hold %d different items of %d possible. "
            "The model may have collapsed to a few lists.",
            *(k, n_different, n_possible),
        )
    return share
