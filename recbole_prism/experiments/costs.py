"""What training and inference cost, from run directories: parameters, seconds, memory, and how they grow."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np

from recbole_prism.run_artifact import RunArtifact


@dataclass(frozen=True)
class Cost:
    """Of one run.

    Attributes:
        parameters: Trained scalars.
        epoch_seconds: Wall-clock seconds of training in an epoch, median.
        epoch_cpu_seconds: Processor seconds of an epoch with its evaluation, median; other work on the machine hardly
            changes them.
        test_seconds: Wall-clock seconds of ranking all items for the test rows.
        memory_mb: Largest memory: of the GPU where there is one, else of the process, data included.
        best_epochs: Epochs until the best validation.
        all_epochs: Epochs in all.
        seconds_to_best: Wall-clock seconds of training and validation until then.
        seconds: The same of all epochs.
        cpu_seconds: Processor seconds of all epochs.
        cpu_per_row: Processor seconds per training row, median over the epochs.
    """

    parameters: int
    epoch_seconds: float
    epoch_cpu_seconds: float
    test_seconds: float
    memory_mb: float
    best_epochs: int
    all_epochs: int
    seconds_to_best: float
    seconds: float
    cpu_seconds: float
    cpu_per_row: float


def cost_of(run: RunArtifact) -> Cost:
    """Read the cost of a run."""
    history, environment = run.history, run.environment
    wall = [record["train_seconds"] + record["valid_seconds"] for record in history]
    n_best = run.metrics["epoch"] + 1
    return Cost(
        parameters=environment["n_parameters"],
        epoch_seconds=statistics.median(record["train_seconds"] for record in history),
        epoch_cpu_seconds=statistics.median(record["cpu_seconds"] for record in history),
        test_seconds=run.metrics["seconds"]["test"],
        memory_mb=environment.get("gpu_peak_memory_mb") or environment["peak_memory_mb"],
        best_epochs=n_best,
        all_epochs=len(history),
        seconds_to_best=math.fsum(wall[:n_best]),
        seconds=math.fsum(wall),
        cpu_seconds=math.fsum(record["cpu_seconds"] for record in history),
        cpu_per_row=statistics.median(record["cpu_seconds"] / record["rows"] for record in history),
    )


def prism_parameters(config: Mapping[str, Any], n_items: int) -> int:
    """Parameters of PRISM by the formula of docs/prism.md.

    Args:
        config: Settings of a run.
        n_items: Items of the data set, padding included.
    """
    d, m, k = config["hidden_size"], config["inner_size"], config["n_lenses"]
    layer = 4 * (d * d + d) + 2 * d + (d * m + m) + (m * d + d) + 2 * d  # attention, feed-forward, their LayerNorms
    base = n_items * d + config["MAX_ITEM_LIST_LENGTH"] * d + 2 * d + config["n_layers"] * layer
    module = 2 * d * k + 1 + 2 * (d * d + d) + 2 * d + (d * m + m) + (m * d + d) + 2 * d
    return int(base + (config["n_layers"] - 1) * module)


@dataclass(frozen=True)
class Exponent:
    """How a cost grows with a setting: cost ~ setting ** exponent over the values measured.

    Attributes:
        exponent: Least squares in the logarithms.
        error: Its standard error; None for two values.
        n: Number of values.
    """

    exponent: float
    error: Optional[float]
    n: int


def exponent_of(values: Sequence[float], costs: Sequence[float]) -> Exponent:
    """Fit a power law.

    Args:
        values: Of the setting, at least two different ones.
        costs: Positive, one per value.
    """
    x, y = np.log(np.asarray(values, dtype=np.float64)), np.log(np.asarray(costs, dtype=np.float64))
    x = x - x.mean()
    slope = float((x * y).sum() / (x * x).sum())
    if len(values) < 3:
        return Exponent(slope, None, len(values))
    rest = y - y.mean() - slope * x
    error = math.sqrt(float((rest * rest).sum()) / (len(values) - 2) / float((x * x).sum()))
    return Exponent(slope, error, len(values))


def printed_time(t: float, d: float, k: float) -> float:
    """The paper's formula for the time of PRISM: O(T^2 K d + T K d^2)."""
    return t * t * k * d + t * k * d * d


def printed_space(t: float, d: float, k: float) -> float:
    """The paper's formula for the space of PRISM: O(K (T + d)^2)."""
    return k * (t + d) ** 2
