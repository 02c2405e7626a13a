"""Tables of costs, and how costs grow with T, d and K."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from recbole_prism.experiments.costs import Cost, cost_of, exponent_of, printed_space, printed_time, prism_parameters
from recbole_prism.experiments.printed import printed_costs
from recbole_prism.experiments.studies import PROBE_BASE, PROBES, Study, Variant, sweep_key
from recbole_prism.run_artifact import RunArtifact

Runs = Mapping[str, Mapping[int, RunArtifact]]
Measured = tuple[Variant, Sequence[Cost]]


def _measured(study: Study, runs: Runs) -> list[Measured]:
    found = ((variant, [cost_of(run) for run in runs[variant.key].values()]) for variant in study.variants)
    return [(variant, costs) for variant, costs in found if costs]


def _median(costs: Sequence[Cost], name: str) -> float:
    return statistics.median(getattr(cost, name) for cost in costs)


def cost_rows(study: Study, dataset: str, runs: Runs) -> list[list[str]]:
    """Parameters, time and memory of each variant; medians over seeds; the paper's in columns of their own.

    Args:
        study: With the variants.
        dataset: Which data set.
        runs: By variant's key and seed.
    """
    head = [
        "model",
        "data set",
        "n",
        "parameters",
        "by formula",
        "s per epoch",
        "CPU s per epoch",
        "memory MB",
        "test s",
    ]
    rows = [[*head, "parameters (paper)", "s per epoch (paper)", "memory MB (paper)", "test s (paper)"]]
    for variant, costs in _measured(study, runs):
        run = next(iter(runs[variant.key].values()))
        formula = f"{prism_parameters(run.config, run.dataset['n_items']):,}" if variant.model == "PRISM" else ""
        printed = printed_costs(variant, dataset)
        beside = [printed.get(name) for name in ("parameters", "epoch seconds", "memory MB", "test seconds")]
        rows.append(
            [
                variant.label,
                dataset,
                str(len(costs)),
                f"{costs[0].parameters:,}",
                formula,
                f"{_median(costs, 'epoch_seconds'):.1f}",
                f"{_median(costs, 'epoch_cpu_seconds'):.1f}",
                f"{_median(costs, 'memory_mb'):,.0f}",
                f"{_median(costs, 'test_seconds'):.2f}",
                *("" if value is None else f"{value:,.10g}" for value in beside),
            ]
        )
    return rows


def convergence_rows(study: Study, dataset: str, runs: Runs) -> list[list[str]]:
    """How long training takes until its best validation, and until it stops; ratios to the first variant measured.

    Args:
        study: With the variants.
        dataset: Which data set.
        runs: By variant's key and seed.
    """
    rows = [
        ["model", "data set", "n", "best epoch", "epochs", "s to best", "s in all", "CPU s in all", "ratio of CPU s"]
    ]
    measured = _measured(study, runs)
    for variant, costs in measured:
        ratio = _median(costs, "cpu_seconds") / _median(measured[0][1], "cpu_seconds")
        rows.append(
            [
                variant.label,
                dataset,
                str(len(costs)),
                f"{_median(costs, 'best_epochs'):g}",
                f"{_median(costs, 'all_epochs'):g}",
                f"{_median(costs, 'seconds_to_best'):,.0f}",
                f"{_median(costs, 'seconds'):,.0f}",
                f"{_median(costs, 'cpu_seconds'):,.0f}",
                f"{ratio:.2f}",
            ]
        )
    return rows


def complexity_lines(dataset: str, runs: Runs) -> tuple[list[str], list[list[str]]]:
    """Exponents of time and memory over T, d and K, measured and by the paper's formulas at the same values.

    Args:
        dataset: Which data set.
        runs: By key of the probes and seed.

    Returns:
        Lines of a page, and rows of a table: data set, setting, cost, exponent, error, n, exponent of the formula.
    """
    lines = [
        f"## {dataset}",
        "",
        "Printed: time O(T^2 K d + T K d^2), space O(K (T + d)^2). An exponent is the slope of the logarithm of the "
        "cost over that of the setting, the others at "
        + ", ".join(f"{key} {value}" for key, value in PROBE_BASE.items())
        + "; the formula's is taken at the same values.",
        "",
        "| setting | values | cost | exponent | by formula |",
        "|---|---|---|---|---|",
    ]
    rows = []
    for symbol, (key, values) in PROBES.items():
        costs = {value: _probe(runs, symbol, value) for value in values}
        known = {value: cost for value, cost in costs.items() if cost is not None}
        if len(known) < 2:
            lines.append(f"| {symbol} | {', '.join(map(str, known))} | too few runs | | |")
            continue
        for name, of, formula in (
            ("CPU seconds per row", lambda cost: cost.cpu_per_row, printed_time),
            ("memory", lambda cost: cost.memory_mb, printed_space),
        ):
            found = exponent_of(list(known), [of(cost) for cost in known.values()])
            by_formula = exponent_of(list(known), [_printed(formula, key, value) for value in known]).exponent
            error = "" if found.error is None else f"{found.error:.2f}"
            rows.append([dataset, symbol, name, f"{found.exponent:.3f}", error, str(found.n), f"{by_formula:.3f}"])
            shown = " ".join(f"{of(cost):,.4g}" for cost in known.values())
            plus_minus = f" ± {error}" if error else ""
            lines.append(
                f"| {symbol} | {', '.join(map(str, known))} | {name}: {shown} | {found.exponent:.2f}{plus_minus} |"
                f" {by_formula:.2f} |"
            )
    return lines, rows


def _probe(runs: Runs, symbol: str, value: int) -> Cost | None:
    found = runs.get(sweep_key(symbol, value), {})
    return cost_of(next(iter(found.values()))) if found else None


def _printed(formula: Callable[[float, float, float], float], key: str, value: int) -> float:
    t, d, k = ({**PROBE_BASE, key: value}[name] for name in PROBE_BASE)
    return formula(t, d, k)
