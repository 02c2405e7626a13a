"""Ranks -> metrics: exact expectations over a random order of tied scores, in full precision.

A target that `g` items beat and `e` other items tie with stands at each of the places g+1 .. g+e+1 with the same
probability. With F(r) the sum of a metric's gain over the places 1..r, the expectation at cut-off k is
(F(min(g+e+1, k)) - F(min(g, k))) / (e+1).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recbole_prism.errors import ConfigError, EvaluationError
from recbole_prism.evaluation import diversity
from recbole_prism.evaluation.ranks import Ranks
from recbole_prism.schema import RANK_METRICS, SUPPORTED_METRICS


def compute_metrics(
    ranks: Ranks,
    metrics: Sequence[str],
    topk: Sequence[int],
    *,
    mask_history: bool,
    item_counts_train: np.ndarray | None,
    n_items: int,
    tail_ratio: float = 0.1,
) -> dict[str, float]:
    """Average metrics over all rows, under RecBole's names ("ndcg@10"), in the order of `metrics`, unrounded.

    Args:
        ranks: Of at least one row.
        metrics: Names out of `SUPPORTED_METRICS`, in any case.
        topk: Cut-offs.
        mask_history: Whether seen items are removed.
        item_counts_train: Occurrences of each item in the training rows, int64 [n_items]; AveragePopularity and
            TailPercentage need it.
        n_items: Padding included.
        tail_ratio: RecBole's key: up to 1 the share of items that are the tail, above 1 a tail item's highest count.

    Raises:
        ConfigError: For a metric that is not supported.
        EvaluationError: Without rows, or if the stored lists are too short or were made under the other `mask_history`.
    """
    known = {name.lower() for name in SUPPORTED_METRICS}
    if unknown := [name for name in metrics if name.lower() not in known]:
        raise ConfigError(f"not offered as a metric: {', '.join(unknown)}", f"use {', '.join(SUPPORTED_METRICS)}")
    if len(ranks) == 0:
        raise EvaluationError("there are no evaluation rows to average over", "leave-one-out needs users of 3 events")
    n_greater, n_equal = ranks.counts(mask_history)
    result: dict[str, float] = {}
    for name in (metric.lower() for metric in metrics):
        if name in {metric.lower() for metric in RANK_METRICS}:
            for k in topk:
                result[f"{name}@{k}"] = float(expected_metric(name, n_greater, n_equal, k).mean())
        else:
            lists = diversity.lists_for(ranks, name, max(topk), mask_history)
            for k in topk:
                value = diversity.list_metric(name, lists[:, :k], n_items, item_counts_train, tail_ratio)
                result[f"{name}@{k}"] = value
    return result


def expected_metric(name: str, n_greater: np.ndarray, n_equal: np.ndarray, k: int) -> np.ndarray:
    """Expectation of a rank metric for each row, float64 [R].

    Args:
        name: One of `RANK_METRICS`, in any case.
        n_greater: Items that beat the target, [R].
        n_equal: Other items that tie with it, [R].
        k: Cut-off.
    """
    cumulative = np.concatenate([[0.0], np.cumsum(_gain(name.lower(), k))])  # [k + 1]: F(0) .. F(k)
    first = np.minimum(n_greater, k)
    last = np.minimum(n_greater.astype(np.int64) + n_equal + 1, k)
    return (cumulative[last] - cumulative[first]) / (n_equal + 1.0)


def _gain(name: str, k: int) -> np.ndarray:
    """What a metric gives for the one relevant item at the places 1..k, float64 [k]."""
    place = np.arange(1, k + 1, dtype=np.float64)
    if name in ("hit", "recall"):
        return np.ones(k)
    if name == "precision":
        return np.full(k, 1.0 / k)
    if name == "ndcg":
        return 1.0 / np.log2(place + 1.0)
    if name in ("mrr", "map"):  # equal for one relevant item
        return 1.0 / place
    raise EvaluationError(f"{name} is no rank metric", f"choose from {', '.join(RANK_METRICS)}")
