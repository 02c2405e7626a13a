"""Whether a trend that the paper sees is there in our runs, by a rule, with its confidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

import numpy as np

from recbole_prism.evaluation.metrics import expected_metric
from recbole_prism.run_artifact import RunArtifact

HOLDS, OPPOSITE, OPEN, NO_RUNS = "holds", "the opposite holds", "open", "no runs"
LEVEL = 0.975  # either way: what is said to hold, or not to, is a two-sided test at 5 %
_RESAMPLES = 2000
RULE = (
    "A trend is a difference in the mean test metric. Rows are paired, and averaged over the seeds that both have; "
    f"confidence is the share of {_RESAMPLES:,} bootstrap resamples, of rows and of seeds, in which the difference has "
    f"the claimed sign (ties count half). It holds from {LEVEL:.1%}, the opposite holds up to {1 - LEVEL:.1%}, in "
    "between it is open. One seed says nothing about how much a seed moves."
)


@dataclass(frozen=True)
class Verdict:
    """What became of a claim.

    Attributes:
        state: "holds", "the opposite holds", "open" or "no runs".
        difference: Mean of better minus worse.
        percent: The same, of the worse one's mean.
        confidence: Share of resamples with the claimed sign.
        n_seeds: Common seeds.
    """

    state: str
    difference: Optional[float] = None
    percent: Optional[float] = None
    confidence: Optional[float] = None
    n_seeds: int = 0


def judge(better: Mapping[int, RunArtifact], worse: Mapping[int, RunArtifact], metric: str, seed: int = 0) -> Verdict:
    """Judge "better is above worse".

    Args:
        better: Runs by seed, measured on the same rows as the others (`protocol.common_protocol`).
        worse: Runs by seed.
        metric: A rank metric of which more is better: "ndcg@20".
        seed: Of the bootstrap.
    """
    seeds = sorted(set(better) & set(worse))
    if not seeds:
        return Verdict(NO_RUNS)
    ours = np.stack([row_metric(better[number], metric) for number in seeds])  # [S, R]
    theirs = np.stack([row_metric(worse[number], metric) for number in seeds])
    difference = float((ours - theirs).mean())
    confidence = _share_above(ours - theirs, seed)
    state = HOLDS if confidence >= LEVEL else OPPOSITE if confidence <= 1 - LEVEL else OPEN
    base = float(theirs.mean())
    return Verdict(state, difference, 100 * difference / base if base else None, confidence, len(seeds))


def row_metric(run: RunArtifact, metric: str) -> np.ndarray:
    """A rank metric of each test row, under the run's own way of counting seen items, float64 [R].

    Args:
        run: A complete run, slim or not.
        metric: "ndcg@20".
    """
    name, _, k = metric.partition("@")
    return expected_metric(name, *run.ranks("test").counts(run.metrics["protocol"]["mask_history"]), int(k))


def _share_above(differences: np.ndarray, seed: int) -> float:
    """Share of resamples with a positive mean; those of 0 count half.

    Args:
        differences: Per seed and row, float64 [S, R].
        seed: Of the draws.
    """
    draw = np.random.default_rng(seed)
    n_seeds, n_rows = differences.shape
    total = 0.0
    for _ in range(_RESAMPLES):
        rows = np.bincount(draw.integers(n_rows, size=n_rows), minlength=n_rows)  # how often each row is drawn
        chosen = draw.integers(n_seeds, size=n_seeds)
        mean = float((differences @ rows)[chosen].sum())
        total += 0.5 if abs(mean) < 1e-12 else float(mean > 0)
    return total / _RESAMPLES
