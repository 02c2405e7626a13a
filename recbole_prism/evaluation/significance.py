"""Paired tests between two series of numbers: is their difference more than chance? scipy does the statistics."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

import numpy as np
from scipy import stats

from recbole_prism.errors import EvaluationError

N_RESAMPLES = 2000
_BATCH = 100  # resamples at a time: bounds the memory


@dataclass(frozen=True)
class PairedTest:
    """Comparison of paired numbers a and b.

    Attributes:
        n: Pairs.
        mean_a, mean_b: Means.
        difference: mean_a - mean_b.
        low, high: Bootstrap interval of the difference (resampled pairs, percentiles); None for fewer than two pairs.
        p_t: Of the paired t-test, two-sided; 1 where all differences are 0, None for fewer than two pairs.
        p_wilcoxon: Of Wilcoxon's signed-rank test, two-sided, differences of 0 left out; as `p_t`.
        n_equal: Pairs without a difference.
    """

    n: int
    mean_a: float
    mean_b: float
    difference: float
    low: Optional[float]
    high: Optional[float]
    p_t: Optional[float]
    p_wilcoxon: Optional[float]
    n_equal: int

    @property
    def percent(self) -> Optional[float]:
        """The difference in percent of b; None for b = 0."""
        return 100 * self.difference / self.mean_b if self.mean_b else None


def paired_test(
    a: np.ndarray, b: np.ndarray, *, confidence: float = 0.95, n_resamples: int = N_RESAMPLES, seed: int = 0
) -> PairedTest:
    """Compare paired numbers. Swapping a and b mirrors the result.

    Args:
        a: float64 [n].
        b: float64 [n]; b[i] belongs to a[i].
        confidence: Of the interval.
        n_resamples: Of the bootstrap.
        seed: Of the bootstrap.

    Raises:
        EvaluationError: Unequal lengths, no pairs, or a number that is not finite.
    """
    if a.shape != b.shape or a.ndim != 1 or len(a) == 0:
        raise EvaluationError(f"{a.shape} and {b.shape} are no pairs", "compare the same rows or seeds")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise EvaluationError("a number to be compared is not finite", "look at the run it comes from")
    differences = a - b
    n_equal = int((differences == 0).sum())
    means = float(a.mean()), float(b.mean())
    # of the difference of the means, not the mean of the differences: swapped sides give exactly its negative
    measured = {"n": len(a), "mean_a": means[0], "mean_b": means[1], "difference": means[0] - means[1]}
    if n_equal == len(a):
        known = (0.0, 0.0, 1.0, 1.0) if len(a) > 1 else (None,) * 4
        return PairedTest(**measured, low=known[0], high=known[1], p_t=known[2], p_wilcoxon=known[3], n_equal=n_equal)  # type: ignore[arg-type]
    if len(a) == 1:
        return PairedTest(**measured, low=None, high=None, p_t=None, p_wilcoxon=None, n_equal=0)  # type: ignore[arg-type]
    interval = stats.bootstrap(
        (differences,),
        np.mean,
        confidence_level=confidence,
        n_resamples=n_resamples,
        batch=_BATCH,
        method="percentile",
        random_state=np.random.default_rng(seed),
    ).confidence_interval
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # equal differences have no deviation: p = 0, as it should be
        p_t = float(stats.ttest_rel(a, b).pvalue)
    p_wilcoxon = float(stats.wilcoxon(differences[differences != 0]).pvalue)
    return PairedTest(
        **measured,  # type: ignore[arg-type]
        low=float(interval.low),
        high=float(interval.high),
        p_t=p_t,
        p_wilcoxon=p_wilcoxon,
        n_equal=n_equal,
    )


def holm(p_values: Sequence[Optional[float]]) -> list[Optional[float]]:
    """Holm's step-down correction for several tests; None stays None and does not count as a test."""
    known = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    adjusted: list[Optional[float]] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, place) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - rank) * p))
        adjusted[place] = largest
    return adjusted
