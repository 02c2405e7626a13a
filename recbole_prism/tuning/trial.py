"""What happens in a trial's process."""

from __future__ import annotations

import time
from typing import Any, Callable, Mapping, Optional

from recbole_prism.quick_start import train

# Names in what a trial reports: the best score so far, which early stopping of trials compares, and the one of an epoch
BEST, SCORE, EPOCH, N_EPOCHS, SECONDS = "best_score", "score", "epoch", "n_epochs", "seconds"
DIRECTORY = "run_directory"  # only in the last report of a trial that ended by itself


def run_trial(settings: Mapping[str, Any], bigger: bool, report: Callable[[dict[str, Any]], None]) -> None:
    """Train with these settings and report every evaluated epoch; no test row is read.

    Nothing else decides about it: the command line, the environment and the working directory of the process are
    neither read nor written.

    Args:
        settings: All that differs from the package's defaults, model and data set included, paths absolute.
        bigger: Whether a higher validation score is better.
        report: Takes each report.
    """
    begin = time.monotonic()
    last: dict[str, Any] = {}
    best: Optional[float] = None

    def told(epoch: int, score: float) -> None:
        nonlocal best
        best = score if best is None else (max if bigger else min)(best, score)
        last.update({BEST: best, SCORE: score, EPOCH: epoch, N_EPOCHS: epoch + 1, SECONDS: time.monotonic() - begin})
        report(dict(last))

    found = train(settings, told)
    report({**last, SECONDS: time.monotonic() - begin, DIRECTORY: found["run_directory"]})
