"""How long runs will take, from what runs have taken: seconds per training row and epochs to the end."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Optional

from recbole_prism.experiments.queue import Job
from recbole_prism.run_artifact import RunArtifact


@dataclass(frozen=True)
class Estimate:
    """What a run will take.

    Attributes:
        seconds: Wall-clock seconds; None if nothing alike was measured.
        basis: In words, what it rests on.
        is_bound: Whether it assumes all of `epochs`, because no finished run tells how many are needed.
    """

    seconds: Optional[float]
    basis: str
    is_bound: bool = False


class Speed:
    """What finished runs measured.

    The most alike runs count: the same model on the same data set, else the same model elsewhere, by its training rows.
    Seconds are those of the machine that made them.

    Args:
        runs: Complete runs.
    """

    def __init__(self, runs: Iterable[RunArtifact]) -> None:
        self._per_row: dict[tuple[str, str], list[float]] = defaultdict(list)
        self._epochs: dict[tuple[str, str], list[int]] = defaultdict(list)
        for run in runs:
            key = str(run.model["name"]), str(run.dataset["name"])
            seconds = [record["train_seconds"] + record["valid_seconds"] for record in run.history]
            rows = [record["rows"] for record in run.history]
            if not rows:
                continue
            self._per_row[key].append(sum(seconds) / sum(rows))
            if len(rows) < run.config["epochs"]:  # it stopped by itself
                self._epochs[key].append(len(rows))

    def of(self, job: Job, rows: int) -> Estimate:
        """Estimate what a job still needs.

        Args:
            job: The run.
            rows: Training rows of its data set.
        """
        if not job.is_open:
            return Estimate(0.0, "there")
        model, dataset = job.config.model_entry.name, str(job.config["dataset"])
        most = int(job.config["epochs"])
        epochs, is_bound = self._n_epochs(model, dataset, most)
        left = max(epochs - job.progress.n_epochs, 0)
        if job.progress.seconds_per_epoch is not None:
            return Estimate(left * job.progress.seconds_per_epoch, "its own epochs so far", is_bound)
        per_row, where = self._seconds_per_row(model, dataset)
        if per_row is None:
            return Estimate(None, "nothing alike was measured")
        return Estimate(left * rows * per_row, f"{model} on {where}, {epochs} epochs", is_bound)

    def _seconds_per_row(self, model: str, dataset: str) -> tuple[Optional[float], str]:
        here = self._per_row.get((model, dataset))
        if here:
            return statistics.median(here), dataset
        elsewhere = {name: found for (other, name), found in self._per_row.items() if other == model}
        if not elsewhere:
            return None, ""
        return statistics.median([value for found in elsewhere.values() for value in found]), ", ".join(elsewhere)

    def _n_epochs(self, model: str, dataset: str, most: int) -> tuple[int, bool]:
        known = self._epochs.get((model, dataset)) or [
            number for (other, _), found in self._epochs.items() if other == model for number in found
        ]
        if not known:
            return most, True
        return min(most, round(statistics.median(known))), False


def total(estimates: Sequence[Estimate], n_jobs: int) -> tuple[float, int]:
    """Seconds of all, run so many at a time, and how many have no estimate."""
    known = [estimate.seconds for estimate in estimates if estimate.seconds is not None]
    return sum(known) / n_jobs, len(estimates) - len(known)
