"""What a search leaves for people: a recipe, a table of trials and a picture."""

from __future__ import annotations

import csv
import io
import logging
from datetime import date
from typing import Any, Mapping, Optional, Sequence

import yaml

from recbole_prism import __version__
from recbole_prism.run_artifact import read_run
from recbole_prism.run_files import atomic_file, write_text
from recbole_prism.tuning.ledger import DONE, FAILED, STOPPED, Ledger, Trial, number, ranking
from recbole_prism.tuning.plan import Plan
from recbole_prism.tuning.space import LOGUNIFORM, Listed

logger = logging.getLogger("recbole_prism")

RECIPE = "recipe.yaml"
_COLORS = {DONE: "tab:blue", STOPPED: "tab:orange", FAILED: "tab:red"}
_LINES_SHOWN = 60  # learning curves in the picture, the best ones


def write_recipe(plan: Plan, ledger: Ledger, winner: Trial, result: Optional[Mapping[str, Any]]) -> None:
    """Write the settings of a trial as a file for `run --config_files`.

    Args:
        plan: The search.
        ledger: Its trials.
        winner: Whose settings.
        result: What `quick_start.run` returned for it; None: it was not tested yet.
    """
    score = winner.best(plan.bigger)
    lines = [
        f"# Found by recbole-prism {__version__}, {date.today().isoformat()}: {plan.way.searcher} search,"
        f" {len(ledger.trials)} trials over {', '.join(plan.space.dimensions)}.",
        f"# Chosen on validation: {plan.metric} {score:.6f} (trial {winner.number}, {winner.state}).",
        *_measured(result),
        f"# Repeat: recbole-prism run --config_files={RECIPE}   (add --data_path where the data is elsewhere)",
    ]
    values = {**plan.chosen, **winner.values}
    write_text(plan.folder / RECIPE, "\n".join(lines) + "\n" + yaml.safe_dump(values, sort_keys=False, width=120))


def _measured(result: Optional[Mapping[str, Any]]) -> list[str]:
    if result is None:
        return ["# Not tested: the search is not at its end."]
    run = read_run(result["run_directory"])
    test = ", ".join(f"{name} {value:.6f}" for name, value in result["test_result"].items())
    memory = run.environment["peak_memory_mb"]
    return [
        f"# Test, read once: {test}.",
        f"# Seed {result['seed']}, best epoch {result['epoch']} of {result['n_epochs']},"
        f" {result['seconds']:.0f} s, {memory:.0f} MB, {run.environment['device_name']}.",
    ]


def write_tables(plan: Plan, ledger: Ledger) -> None:
    """Write trials.csv and trials.md, the best trial first, failed ones last."""
    header = ["place", "trial", *plan.space.dimensions, f"best validation {plan.metric}", "in epoch"]
    header += ["evaluations", "state", "seconds"]
    ranked = ranking(ledger.trials, plan.bigger)
    others = [trial for trial in ledger.trials if trial not in ranked]
    rows = [_row(plan, trial, str(place)) for place, trial in enumerate(ranked, start=1)]
    rows += [_row(plan, trial, "") for trial in others]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    write_text(plan.folder / "trials.csv", text.getvalue())
    counts = ", ".join(
        f"{number} {state}" for state in (DONE, STOPPED, FAILED) if (number := _count(ledger.trials, state))
    )
    lines = [
        f"# {plan.settings['model']} on {plan.settings['dataset']}: {len(ledger.trials)} trials, {counts}",
        "",
        f"{plan.way.searcher} search, seed {plan.chosen['seed']}, scheduler {plan.way.scheduler}; scores are of the"
        " validation rows, the test was not read for this table.",
        "",
        "| " + " | ".join(header) + " |",
        "|" + "---|" * len(header),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
    failed = [trial for trial in ledger.trials if trial.reason]
    lines += ["", *(f"Trial {trial.number} failed: {trial.reason}" for trial in failed)] if failed else []
    write_text(plan.folder / "trials.md", "\n".join(lines) + "\n")


def _count(trials: Sequence[Trial], state: str) -> int:
    return sum(trial.state == state for trial in trials)


def _row(plan: Plan, trial: Trial, place: str) -> list[str]:
    score = trial.best(plan.bigger)
    values = [number(value) for value in trial.values.values()]
    found = ["", ""] if score is None else [f"{score:.6f}", str(trial.epochs[trial.scores.index(score)])]
    return [place, str(trial.number), *values, *found, str(len(trial.scores)), trial.state, f"{trial.seconds:.1f}"]


def write_picture(plan: Plan, ledger: Ledger) -> None:
    """Draw trials.png: learning curves, the best score by number of trials, and the score over each searched key.

    Without matplotlib a warning stands in its place: the search itself is worth more than its picture.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        logger.warning("no picture: matplotlib is not installed (in the checkout: pip install '.[plots]')")
        return
    ranked = ranking(ledger.trials, plan.bigger)
    n_panels = 2 + len(plan.space.dimensions)
    n_columns = min(3, n_panels)
    n_rows = -(-n_panels // n_columns)
    figure = Figure(figsize=(4.2 * n_columns, 3.3 * n_rows), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(f"{plan.settings['model']} on {plan.settings['dataset']}: {len(ledger.trials)} trials")
    panels = list(figure.subplots(n_rows, n_columns, squeeze=False).flat)
    _draw_curves(panels[0], plan, ranked)
    _draw_progress(panels[1], plan, ledger.trials)
    for panel, key in zip(panels[2:], plan.space.dimensions):
        _draw_key(panel, plan, ranked, key)
    for panel in panels[n_panels:]:
        panel.set_axis_off()
    with atomic_file(plan.folder / "trials.png") as temporary:
        figure.savefig(temporary, dpi=120, format="png")


def _draw_curves(panel: Any, plan: Plan, ranked: Sequence[Trial]) -> None:
    for trial in reversed(ranked[:_LINES_SHOWN]):
        is_best = trial is ranked[0]
        panel.plot(
            [epoch + 1 for epoch in trial.epochs],
            trial.scores,
            color="black" if is_best else _COLORS.get(trial.state, "grey"),
            linewidth=1.8 if is_best else 0.8,
            marker="." if len(trial.scores) < 10 else None,
        )
    for state in (DONE, STOPPED):
        panel.plot([], [], color=_COLORS[state], label=state)
    panel.plot([], [], color="black", linewidth=1.8, label="best")
    panel.legend(frameon=False, fontsize=8)
    panel.xaxis.get_major_locator().set_params(integer=True)
    panel.set(xlabel="epochs", ylabel=f"validation {plan.metric}")


def _draw_progress(panel: Any, plan: Plan, trials: Sequence[Trial]) -> None:
    numbers, bests, so_far = [], [], []
    for trial in trials:
        score = trial.best(plan.bigger)
        if score is not None and trial.state != FAILED:
            numbers.append(trial.number)
            bests.append(score)
            so_far.append((max if plan.bigger else min)(bests))
    panel.scatter(numbers, bests, s=14, color="grey", label="best of the trial")
    panel.step(numbers, so_far, where="post", color="black", label="best so far")
    panel.legend(frameon=False, fontsize=8)
    panel.xaxis.get_major_locator().set_params(integer=True)
    panel.set(xlabel="trial", ylabel=f"validation {plan.metric}")


def _draw_key(panel: Any, plan: Plan, ranked: Sequence[Trial], key: str) -> None:
    dimension = plan.space.dimensions[key]
    scores = [trial.best(plan.bigger) for trial in ranked]
    if isinstance(dimension, Listed):
        places = [dimension.values.index(trial.values[key]) for trial in ranked]
        panel.set_xticks(range(len(dimension.values)), [str(value) for value in dimension.values])
        panel.set_xlim(-0.5, len(dimension.values) - 0.5)
    else:
        places = [trial.values[key] for trial in ranked]
        panel.set_xscale("log" if dimension.kind == LOGUNIFORM else "linear")
    panel.scatter(places, scores, s=18, color=[_COLORS.get(trial.state, "grey") for trial in ranked])
    panel.scatter(places[:1], scores[:1], s=70, facecolors="none", edgecolors="black")
    panel.set(xlabel=key, ylabel=f"best validation {plan.metric}")
