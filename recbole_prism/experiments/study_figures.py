"""Pictures of studies, from run directories, with the paper's numbers as hollow marks."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from recbole_prism.errors import RecBolePrismError
from recbole_prism.experiments.claims import row_metric
from recbole_prism.experiments.costs import cost_of
from recbole_prism.experiments.printed import printed_values
from recbole_prism.experiments.studies import NDCG, SWEEPS, Study, sweep_key
from recbole_prism.experiments.table_text import shown
from recbole_prism.run_artifact import RunArtifact
from recbole_prism.run_files import atomic_file

Runs = Mapping[str, Mapping[int, RunArtifact]]
_SYMBOLS = {"lambda": "λ", "tau": "τ", "rho": "ρ"}


def scores(runs: Mapping[int, RunArtifact], metric: str) -> list[float]:
    """A test metric of each seed, under the runs' own way of counting seen items."""
    return [float(row_metric(run, metric).mean()) for run in runs.values()]


def save_dots(study: Study, dataset: str, runs: Runs, folder: Path) -> Path:
    """One line per variant: mean and deviation of NDCG@20 over seeds, each seed, and what the paper prints.

    Args:
        study: With the variants.
        dataset: Which data set.
        runs: By variant's key and seed.
        folder: Where to.

    Raises:
        RecBolePrismError: matplotlib is not installed.
    """
    variants = [variant for variant in study.variants if runs[variant.key]]
    figure = _figure(6.4, 1.2 + 0.36 * len(variants))
    panel = figure.subplots()
    for place, variant in enumerate(variants):
        values = scores(runs[variant.key], NDCG)
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        panel.errorbar(statistics.fmean(values), place, xerr=deviation, fmt="o", color="tab:blue", capsize=3)
        panel.scatter(values, [place] * len(values), s=8, color="tab:blue", alpha=0.5)
        printed = printed_values(study, variant, dataset).get(NDCG)
        if printed is not None:
            panel.scatter(printed, place, marker="D", facecolors="none", edgecolors="tab:orange")
    panel.scatter([], [], marker="o", color="tab:blue", label="ours: mean, deviation, each seed")
    if any(printed_values(study, variant, dataset) for variant in variants):
        panel.scatter([], [], marker="D", facecolors="none", edgecolors="tab:orange", label="printed in the paper")
    panel.set_yticks(range(len(variants)), [variant.label for variant in variants])
    panel.invert_yaxis()
    panel.margins(x=0.08, y=0.12)
    panel.grid(axis="x", linewidth=0.4)
    panel.set_xlabel(f"test {shown(NDCG)}")
    panel.set_title(f"{study.title}, {dataset}", fontsize=10)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return _save(figure, folder / f"{study.name}_{dataset}.png")


def save_sweep(study: Study, dataset: str, runs: Runs, folder: Path) -> Path:
    """A panel per setting: NDCG@20 and Hit@20 over its values.

    Args:
        study: Figure 9.
        dataset: Which data set.
        runs: By variant's key and seed.
        folder: Where to.

    Raises:
        RecBolePrismError: matplotlib is not installed.
    """
    figure = _figure(3.3 * len(SWEEPS), 3.2)
    for panel, (symbol, (_, values)) in zip(figure.subplots(1, len(SWEEPS)), SWEEPS.items()):
        known = [value for value in values if runs.get(sweep_key(symbol, value))]
        beside = panel.twinx()
        for axes, metric, color in ((panel, NDCG, "tab:blue"), (beside, "hit@20", "tab:green")):
            groups = [scores(runs[sweep_key(symbol, value)], metric) for value in known]
            _draw_means(axes, [values.index(value) for value in known], groups, color)
            axes.set_ylabel(f"test {shown(metric)}", color=color)
            axes.tick_params(axis="y", labelcolor=color, labelsize=8)
        panel.set_xticks(range(len(values)), [str(value) for value in values])
        panel.set_xlim(-0.3, len(values) - 0.7)
        panel.set_xlabel(_SYMBOLS.get(symbol, symbol))
    figure.suptitle(f"{study.title}, {dataset}", fontsize=10)
    return _save(figure, folder / f"{study.name}_{dataset}.png")


def save_growth(study: Study, dataset: str, runs: Runs, folder: Path) -> Optional[Path]:
    """Over K: NDCG@20, seconds per epoch, test seconds, memory; None without a run.

    Args:
        study: Figure 8.
        dataset: Which data set.
        runs: By variant's key and seed.
        folder: Where to.

    Raises:
        RecBolePrismError: matplotlib is not installed.
    """
    known = [variant for variant in study.variants if runs[variant.key]]
    if not known:
        return None
    costs = [[cost_of(run) for run in runs[variant.key].values()] for variant in known]
    panels = {
        f"test {shown(NDCG)}": [scores(runs[variant.key], NDCG) for variant in known],
        "CPU s per epoch": [[cost.epoch_cpu_seconds for cost in found] for found in costs],
        "test s": [[cost.test_seconds for cost in found] for found in costs],
        "memory MB": [[cost.memory_mb for cost in found] for found in costs],
    }
    figure = _figure(13.2, 3.2)
    labels = [str(variant.settings["n_lenses"]) for variant in known]
    for panel, (name, groups) in zip(figure.subplots(1, 4), panels.items()):
        _draw_means(panel, list(range(len(known))), groups, "tab:blue")
        panel.set_xticks(range(len(known)), labels)
        panel.set(xlabel="K", ylabel=name)
    printed = [printed_values(study, variant, dataset).get(NDCG) for variant in known]
    points = [(place, value) for place, value in enumerate(printed) if value is not None]
    if points:
        panel = figure.axes[0]
        panel.scatter(
            *zip(*points), marker="D", facecolors="none", edgecolors="tab:orange", label="printed in the paper"
        )
        panel.legend(frameon=False, fontsize=8)
    figure.suptitle(f"{study.title}, {dataset}", fontsize=10)
    return _save(figure, folder / f"{study.name}_{dataset}.png")


def _draw_means(panel: Any, places: Sequence[int], groups: Sequence[Sequence[float]], color: str) -> None:
    """Means joined by a line, deviations as bars."""
    means = [statistics.fmean(values) for values in groups]
    deviations = [statistics.stdev(values) if len(values) > 1 else 0.0 for values in groups]
    panel.errorbar(places, means, yerr=deviations, marker="o", markersize=4, color=color, capsize=3, linewidth=1)


def _figure(width: float, height: float) -> Any:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise RecBolePrismError("a picture needs matplotlib", "in the checkout: pip install '.[plots]'") from error
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)  # no window, no global state
    return figure


def _save(figure: Any, path: Path) -> Path:
    with atomic_file(path) as temporary:
        figure.savefig(temporary, dpi=120, format="png")
    return path
