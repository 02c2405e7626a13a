"""Side-by-side tables from run directories: mean and deviation over seeds, best and second, improvement."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from recbole_prism.errors import EvaluationError
from recbole_prism.experiments import paper
from recbole_prism.experiments.protocol import by_seed, common_protocol, protocol_line
from recbole_prism.run_artifact import RunArtifact
from recbole_prism.schema import RANK_METRICS

BEST, SECOND = "best", "second"
_BIGGER = frozenset(name.lower() for name in RANK_METRICS)  # of these more is better, and only these are marked

_DIGITS = 12  # equal counts of hits give equal means only up to rounding


@dataclass(frozen=True)
class Cell:
    """One number of a table.

    Attributes:
        mean: Over the seeds.
        deviation: Standard deviation of the seeds (divided by n - 1); None for one seed or a printed number.
        n: Number of seeds.
    """

    mean: float
    deviation: Optional[float]
    n: int


@dataclass(frozen=True)
class Row:
    """One configuration, or one model as printed in the paper.

    Attributes:
        label: How it is called.
        cells: By metric, "ndcg@20".
        seeds: Of its runs; empty for printed numbers.
        runs: Names of its run directories.
        n_parameters: Trained scalars; None for printed numbers.
        best_epochs: Epoch of the chosen weights, one per seed.
        is_printed: Whether the numbers are the paper's.
    """

    label: str
    cells: Mapping[str, Cell]
    seeds: tuple[int, ...] = ()
    runs: tuple[str, ...] = ()
    n_parameters: Optional[int] = None
    best_epochs: tuple[int, ...] = ()
    is_printed: bool = False


@dataclass(frozen=True)
class Table:
    """One data set under one way of counting seen items.

    Attributes:
        dataset: Its name.
        seen_removed: Whether seen items were removed from the candidates.
        metrics: Columns.
        rows: Measured ones in the order asked for, then printed ones. Improvement is of the first.
        protocol: What all measured rows share, in a sentence.
    """

    dataset: str
    seen_removed: bool
    metrics: tuple[str, ...]
    rows: tuple[Row, ...]
    protocol: str

    @property
    def measured(self) -> tuple[Row, ...]:
        """Rows of our own runs."""
        return tuple(row for row in self.rows if not row.is_printed)

    def mark(self, row: Row, metric: str) -> Optional[str]:
        """BEST or SECOND of the measured rows in a column of which more is better, else None; equals share a mark."""
        if row.is_printed or len(self.measured) < 2 or metric.partition("@")[0] not in _BIGGER:
            return None
        values = sorted({round(other.cells[metric].mean, _DIGITS) for other in self.measured}, reverse=True)
        place = values.index(round(row.cells[metric].mean, _DIGITS))
        return (BEST, SECOND)[place] if place < 2 else None

    def improvement(self, metric: str) -> Optional[float]:
        """Percent by which the first row is above the strongest of the other measured ones; None without such."""
        first, *others = self.measured
        if not others or metric.partition("@")[0] not in _BIGGER:
            return None
        strongest = max(other.cells[metric].mean for other in others)
        return 100 * (first.cells[metric].mean / strongest - 1) if strongest > 0 else None


def build_tables(groups: Mapping[str, Sequence[RunArtifact]], with_paper: bool = False) -> list[Table]:
    """The two tables of one data set: under its protocol's way of counting seen items, then under the other.

    Args:
        groups: By label the runs of one configuration, one per seed; all of one data set.
        with_paper: Add the paper's printed numbers of these models to the first table.

    Raises:
        EvaluationError: There are no runs, or they were not measured alike.
    """
    runs = [run for group in groups.values() for run in group]
    if not runs:
        raise EvaluationError("there are no complete runs to make a table of", "make them first")
    protocol = common_protocol(runs)
    line = protocol_line(protocol, runs)
    is_removed: bool = protocol["seen items removed"]
    tables = []
    for seen_removed in (is_removed, not is_removed):
        measured = [_row(label, by_seed(group), seen_removed) for label, group in groups.items() if group]
        metrics = tuple(name for name in measured[0].cells if all(name in row.cells for row in measured))
        names = {label: str(group[0].model["name"]) for label, group in groups.items() if group}
        printed = _printed(protocol["data set"], names, metrics) if with_paper and seen_removed == is_removed else []
        tables.append(Table(protocol["data set"], seen_removed, metrics, (*measured, *printed), line))
    return tables


def _row(label: str, runs: Mapping[int, RunArtifact], seen_removed: bool) -> Row:
    key = "masked" if seen_removed else "unmasked"
    found = [run.metrics["splits"]["test"][key] for run in runs.values()]
    cells = {}
    for metric in found[0]:
        values = [metrics[metric] for metrics in found]
        deviation = statistics.stdev(values) if len(values) > 1 else None
        cells[metric] = Cell(math.fsum(values) / len(values), deviation, len(values))
    first = next(iter(runs.values()))
    return Row(
        label,
        cells,
        seeds=tuple(runs),
        runs=tuple(run.path.name for run in runs.values()),
        n_parameters=first.environment["n_parameters"],
        best_epochs=tuple(run.metrics["epoch"] for run in runs.values()),
    )


def _printed(dataset: str, names: Mapping[str, str], metrics: Sequence[str]) -> list[Row]:
    rows = []
    for name in dict.fromkeys(names.values()):
        label, numbers = paper.performance(dataset, name)
        cells = {metric: Cell(numbers[metric], None, paper.N_SEEDS) for metric in metrics if metric in numbers}
        if cells:
            rows.append(Row(f"{label} (paper)", cells, is_printed=True))
    return rows
