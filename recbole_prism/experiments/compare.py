"""Is A better than B? Paired over the test rows and over the seeds, from stored ranks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Optional

import numpy as np

from recbole_prism.errors import ConfigError, EvaluationError
from recbole_prism.evaluation.metrics import expected_metric
from recbole_prism.evaluation.significance import PairedTest, holm, paired_test
from recbole_prism.experiments.protocol import by_seed, common_protocol, protocol_line
from recbole_prism.experiments.table_text import shown
from recbole_prism.run_artifact import RunArtifact, read_run
from recbole_prism.run_store import find_runs

_Found = tuple[str, str, str, tuple[int, ...], PairedTest, Optional[PairedTest]]
DEFAULT_METRICS = ("hit@20", "ndcg@20")
LEVEL = 0.05


@dataclass(frozen=True)
class Side:
    """Runs of one configuration.

    Attributes:
        label: How it is called.
        runs: By seed.
    """

    label: str
    runs: Mapping[int, RunArtifact]


@dataclass(frozen=True)
class Comparison:
    """A against B in one metric.

    Attributes:
        a, b: Labels.
        metric: "ndcg@20".
        seeds: Those that both sides have; the tests are over their runs (over all runs if there are none).
        rows: Paired over test rows, each row's value averaged over the seeds.
        over_seeds: Paired over the seeds, each seed's mean over the test rows; None with fewer than two common ones.
        holm: Of each test ("rows t", "rows wilcoxon", "seeds t", "seeds wilcoxon") the p-value, corrected for all
            comparisons that were made together.
    """

    a: str
    b: str
    metric: str
    seeds: tuple[int, ...]
    rows: PairedTest
    over_seeds: Optional[PairedTest]
    holm: Mapping[str, Optional[float]]

    @property
    def verdict(self) -> str:
        """In words. Seeds decide where there are enough to be tested, because rows do not know of the seed's luck."""
        if self.rows.n_equal == self.rows.n:
            return "no difference"
        p = self.holm["rows t"] if self.over_seeds is None else self.holm["seeds t"]
        better, worse = (self.a, self.b) if self.rows.difference > 0 else (self.b, self.a)
        if p is None or p >= LEVEL:
            return "no difference beyond chance"
        return f"{better} above {worse}" + (
            " (these runs; one seed says nothing of others)" if self.over_seeds is None else ""
        )


def read_side(places: str) -> Side:
    """Runs by their places.

    Args:
        places: Run directories, or folders that hold runs of one configuration, separated by commas.

    Raises:
        EvaluationError: There are none, or they are of several configurations.
        RunDirectoryError: A run is not complete, or damaged.
    """
    runs: list[RunArtifact] = []
    for place in filter(None, places.split(",")):
        path = Path(place)
        if (path / "status.json").exists() or (path / "manifest.json").exists():
            runs.append(read_run(path))
        else:
            runs += find_runs(path)
    if not runs:
        raise EvaluationError(f"{places}: there is no complete run", "name run directories, separated by commas")
    return Side(str(runs[0].model["display_name"]), by_seed(runs))


def compare(
    sides: Sequence[Side],
    metrics: Sequence[str] = DEFAULT_METRICS,
    seen_removed: Optional[bool] = None,
) -> list[Comparison]:
    """The first side against each of the others, in every metric.

    Args:
        sides: At least two.
        metrics: Rank metrics with their cut-off.
        seen_removed: Which way of counting seen items; None takes the runs' protocol.

    Raises:
        EvaluationError: They were not measured alike.
        ConfigError: There is nothing to compare, or a metric is none of ranks.
    """
    if len(sides) < 2:
        raise ConfigError("there is only one side", "recbole-prism compare A B")
    runs = [run for side in sides for run in side.runs.values()]
    protocol = common_protocol(runs)
    seen_removed = protocol["seen items removed"] if seen_removed is None else seen_removed
    labels = _labels(sides)
    values = [[_row_values(side, metric, seen_removed) for metric in metrics] for side in sides]
    found: list[_Found] = []
    for label, side, theirs in zip(labels[1:], sides[1:], values[1:]):
        common = tuple(seed for seed in sides[0].runs if seed in side.runs)
        for metric, a, b in zip(metrics, values[0], theirs):
            rows = paired_test(_mean(a, common), _mean(b, common))
            seeds = None
            if len(common) > 1:
                seeds = paired_test(*(np.array([by[seed].mean() for seed in common]) for by in (a, b)))
            found.append((labels[0], label, metric, common, rows, seeds))
    corrected = {
        f"{level} {kind}": holm([_p(test, kind) for test in tests])
        for level, tests in (("rows", [entry[4] for entry in found]), ("seeds", [entry[5] for entry in found]))
        for kind in ("t", "wilcoxon")
    }
    return [
        Comparison(*entry, {name: p_values[number] for name, p_values in corrected.items()})
        for number, entry in enumerate(found)
    ]


def _labels(sides: Sequence[Side]) -> list[str]:
    """Labels, with the identity of the runs where two sides are called the same."""
    names = [side.label for side in sides]
    return [
        f"{side.label} {next(iter(side.runs.values())).path.name.split('-')[-2]}"
        if names.count(side.label) > 1
        else side.label
        for side in sides
    ]


def _row_values(side: Side, metric: str, seen_removed: bool) -> dict[int, np.ndarray]:
    """By seed the metric of every test row, float64 [R]."""
    name, _, k = metric.partition("@")
    if not k.isdigit() or int(k) < 1:
        raise ConfigError(f"{metric!r} is no metric with a cut-off", "--metrics=ndcg@20,hit@10")
    return {
        seed: expected_metric(name, *run.ranks("test").counts(seen_removed), int(k)) for seed, run in side.runs.items()
    }


def _mean(by_seed: Mapping[int, np.ndarray], seeds: Sequence[int]) -> np.ndarray:
    """Mean over the given seeds, over all if none is given. float64 [R]"""
    return np.mean([by_seed[seed] for seed in seeds or by_seed], axis=0)


def _p(test: Optional[PairedTest], kind: str) -> Optional[float]:
    if test is None:
        return None
    return test.p_t if kind == "t" else test.p_wilcoxon


def to_markdown(comparisons: Sequence[Comparison], sides: Sequence[Side]) -> str:
    """A page with one table over the rows, one over the seeds, and a verdict per line."""
    runs = [run for side in sides for run in side.runs.values()]
    first = comparisons[0]
    lines = [f"# {first.a} against {', '.join(dict.fromkeys(c.b for c in comparisons))}", ""]
    lines += [protocol_line(common_protocol(runs), runs), ""]
    lines += [
        "Two-sided paired tests; p-values after Holm's correction for all lines of a table; interval: 95 %, bootstrap.",
        "Over rows, a row counts its mean over the common seeds: this says whether these trained models differ on such "
        "users. Over seeds, a seed counts its mean over the rows: this says whether another seed would do the same.",
    ]
    for title, seeds in (("test rows", False), ("seeds", True)):
        chosen = [(c, c.over_seeds if seeds else c.rows) for c in comparisons]
        if any(test is not None for _, test in chosen):
            lines += ["", f"## Over {title}", "", _pipes("A | B | metric | n | mean A | mean B | difference | "
                      "interval | t-test | Wilcoxon"), _pipes(" | ".join(["---"] * 3 + ["---:"] * 7))]  # fmt: skip
            level = "seeds" if seeds else "rows"
            lines += [_line(c, test, level) for c, test in chosen if test is not None]
    lines += ["", *(f"- {c.a} and {c.b}, {shown(c.metric)}, seeds {_seeds(c)}: {c.verdict}" for c in comparisons)]
    return "\n".join(lines) + "\n"


def _line(comparison: Comparison, test: PairedTest, level: str) -> str:
    percent = "" if test.percent is None else f" ({test.percent:+.1f} %)"
    interval = "" if test.low is None else f"{test.low:+.4f} to {test.high:+.4f}"
    p_values = [comparison.holm[f"{level} {kind}"] for kind in ("t", "wilcoxon")]
    cells = [comparison.a, comparison.b, shown(comparison.metric), str(test.n)]
    cells += [f"{test.mean_a:.4f}", f"{test.mean_b:.4f}", f"{test.difference:+.4f}{percent}", interval]
    return _pipes(" | ".join([*cells, *("" if p is None else f"{p:.2g}" for p in p_values)]))


def _seeds(comparison: Comparison) -> str:
    return " ".join(map(str, comparison.seeds)) if comparison.seeds else "not in common"


def _pipes(text: str) -> str:
    return f"| {text} |"


def to_json(comparisons: Sequence[Comparison]) -> str:
    """Everything, unrounded."""
    content = [{**asdict(comparison), "verdict": comparison.verdict} for comparison in comparisons]
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
