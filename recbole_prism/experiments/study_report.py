"""Reports of a study from its run directories: a page, a table for other programs, and pictures."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

from recbole_prism.errors import EvaluationError
from recbole_prism.experiments import paper
from recbole_prism.experiments.claims import HOLDS, NO_RUNS, RULE, Verdict, judge
from recbole_prism.experiments.cost_report import complexity_lines, convergence_rows, cost_rows
from recbole_prism.experiments.printed import printed_rows, printed_values
from recbole_prism.experiments.reproduce import StudyPlan
from recbole_prism.experiments.studies import NDCG, Claim
from recbole_prism.experiments.study_figures import save_dots, save_growth, save_sweep
from recbole_prism.experiments.table import Table, build_tables
from recbole_prism.experiments.table_text import to_csv, to_markdown
from recbole_prism.run_artifact import RunArtifact
from recbole_prism.run_files import write_text

Runs = Mapping[str, Mapping[int, RunArtifact]]


def write_report(plan: StudyPlan, folder: Path) -> list[Path]:
    """Write what the complete runs of a study show.

    Args:
        plan: The study; its complete runs are read.
        folder: Where to.

    Returns:
        The files written: <study>.md, .csv and pictures.

    Raises:
        EvaluationError: There is not one complete run.
    """
    runs = {dataset: plan.runs(dataset) for dataset in plan.datasets}
    if not any(found for groups in runs.values() for found in groups.values()):
        raise EvaluationError(
            f"there is no complete run of {plan.study.name}", "leave --report out, or give more --budget"
        )
    folder.mkdir(parents=True, exist_ok=True)
    makers: dict[str, Callable[[StudyPlan, Mapping[str, Runs], Path], tuple[str, str, list[Path]]]] = {
        "accuracy": _accuracy,
        "sweep": _accuracy,
        "cost": _cost,
        "convergence": _cost,
        "complexity": _complexity,
    }
    page, table, pictures = makers[plan.study.kind](plan, runs, folder)
    files = [folder / f"{plan.study.name}.md", folder / f"{plan.study.name}.csv"]
    shown = "".join(f"![{picture.stem}]({picture.name})\n\n" for picture in pictures)
    write_text(files[0], page + "\n" + shown + "\n".join(_trends(plan, runs) + _missing(plan)))
    write_text(files[1], table)
    return files + pictures


def _title(plan: StudyPlan) -> str:
    return f"{plan.study.name}: {plan.study.title}"


def _note(plan: StudyPlan) -> list[str]:
    return [plan.study.note, ""] if plan.study.note else []


def _accuracy(plan: StudyPlan, runs: Mapping[str, Runs], folder: Path) -> tuple[str, str, list[Path]]:
    tables = [table for dataset in plan.datasets for table in _tables(plan, dataset, runs[dataset])]
    page = to_markdown(tables, _title(plan)) + (f"\n{plan.study.note}\n" if plan.study.note else "")
    save = save_sweep if plan.study.kind == "sweep" else save_dots
    pictures = [
        save(plan.study, dataset, runs[dataset], folder)
        for dataset in plan.datasets
        if any(runs[dataset].values())
    ]  # fmt: skip
    return page, to_csv(tables), pictures


def _tables(plan: StudyPlan, dataset: str, runs: Runs) -> list[Table]:
    """Both tables of a data set, PRISM's row first where it is (improvements are the first row's)."""
    variants = sorted(plan.study.variants, key=lambda variant: variant.key != "prism")
    groups = {variant.label: list(runs[variant.key].values()) for variant in variants if runs[variant.key]}
    if not groups:
        return []
    first, *others = build_tables(groups)
    return [replace(first, rows=(*first.rows, *printed_rows(plan.study, dataset, first.metrics))), *others]


def _cost(plan: StudyPlan, runs: Mapping[str, Runs], folder: Path) -> tuple[str, str, list[Path]]:
    rows: list[list[str]] = []
    for dataset in plan.datasets:
        make = convergence_rows if plan.study.kind == "convergence" else cost_rows
        found = make(plan.study, dataset, runs[dataset])
        rows += found if not rows else found[1:]
    devices = sorted(
        {f"{run.environment['device_name']}, {run.environment['threads']} threads" for run in _all(runs)}
    )  # fmt: skip
    lines = [f"# {_title(plan)}", "", *_note(plan), f"Ours: {'; '.join(devices)}.", "", *_markdown(rows)]
    pictures = []
    if plan.study.name == "figure8":
        tables = [table for dataset in plan.datasets for table in _tables(plan, dataset, runs[dataset])]
        lines += [
            "",
            "#" + to_markdown(tables, "Accuracy").replace("\n## ", "\n### "),
        ]
        drawn = [save_growth(plan.study, dataset, runs[dataset], folder) for dataset in plan.datasets]
        pictures = [picture for picture in drawn if picture is not None]
    return "\n".join(lines) + "\n", _csv(rows), pictures


def _complexity(plan: StudyPlan, runs: Mapping[str, Runs], folder: Path) -> tuple[str, str, list[Path]]:
    lines, rows = (
        [f"# {_title(plan)}", "", plan.study.note, ""],
        [["dataset", "setting", "cost", "exponent", "error", "n", "formula"]],
    )
    for dataset in plan.datasets:
        text, found = complexity_lines(dataset, runs[dataset])
        lines += [*text, ""]
        rows += found
    return "\n".join(lines) + "\n", _csv(rows), []


def _all(runs: Mapping[str, Runs]) -> list[RunArtifact]:
    return [run for groups in runs.values() for found in groups.values() for run in found.values()]


def _trends(plan: StudyPlan, runs: Mapping[str, Runs]) -> list[str]:
    """What the paper sees, and whether our runs show it."""
    if not plan.study.claims:
        return []
    head = ["claim (better > worse)", "data set", "ours", "confidence", "seeds", "verdict", "paper"]
    rows, verdicts = [head], []
    for claim in plan.study.claims:
        for dataset in plan.datasets:
            verdict = judge(runs[dataset][claim.better], runs[dataset][claim.worse], NDCG)
            verdicts.append(verdict)
            rows.append(_trend_row(plan, claim, dataset, verdict))
    judged = [verdict for verdict in verdicts if verdict.state != NO_RUNS]
    n_holding = sum(verdict.state == HOLDS for verdict in judged)
    summary = f"{n_holding} of {len(judged)} judged trends hold; {len(verdicts) - len(judged)} have no runs yet."
    return ["## Trends", "", RULE, "", summary, "", *_markdown(rows), ""]


def _trend_row(plan: StudyPlan, claim: Claim, dataset: str, verdict: Verdict) -> list[str]:
    study = plan.study
    names = [study.variant(key).label for key in (claim.better, claim.worse)]
    values = [printed_values(study, study.variant(key), dataset).get(NDCG) for key in (claim.better, claim.worse)]
    printed = f"{100 * (values[0] / values[1] - 1):+.1f} %" if values[0] and values[1] else ""
    if verdict.difference is None or verdict.confidence is None:
        return [" > ".join(names), dataset, "", "", "0", verdict.state, printed]
    percent = "" if verdict.percent is None else f" ({verdict.percent:+.1f} %)"
    ours = f"{verdict.difference:+.4f}{percent}"
    return [" > ".join(names), dataset, ours, f"{verdict.confidence:.1%}", str(verdict.n_seeds), verdict.state, printed]


def _missing(plan: StudyPlan) -> list[str]:
    """What is not in the page, and why."""
    lines = [f"- {dataset}: {text}" for dataset in plan.datasets for text in plan.missing(dataset)]
    lines += [f"- {text}" for text in plan.left_out]
    return ["## Missing", "", *lines, ""] if lines else []


def write_counts(rows: Sequence[Mapping[str, Any]], left_out: Sequence[str], folder: Path) -> list[Path]:
    """Write table 1: counts of the data sets here, the paper's beside them.

    Args:
        rows: From `counts_of`.
        left_out: From `counts_of`.
        folder: Where to.
    """
    printed = {line["dataset"]: line for line in paper.read_table("table1_datasets")}
    names = ("users", "items", "interactions", "avg_length", "sparsity")
    shown = [["data set", *names, *(f"{name} (paper)" for name in names), "equal"]]
    for row in rows:
        beside = printed.get(row["dataset"], {})
        ours = [f"{row['avg_length']:.1f}", f"{row['sparsity']:.4f}"]
        counts = [str(row[name]) for name in names[:3]]
        equal = "yes" if beside and [beside[name] for name in names[:3]] == counts else "no" if beside else ""
        shown.append([row["dataset"], *counts, *ours, *(beside.get(name, "") for name in names), equal])
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        "# table1: data sets",
        "",
        f"Beside our counts those printed in {paper.SOURCE}.",
        "",
        *_markdown(shown),
        "",
    ]
    lines += ["## Missing", "", *(f"- {text}" for text in left_out), ""] if left_out else []
    files = [folder / "table1.md", folder / "table1.csv"]
    write_text(files[0], "\n".join(lines))
    write_text(files[1], _csv(shown))
    return files


def _markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    head, *others = ("| " + " | ".join(row) + " |" for row in rows)
    return [head, "|" + "---|" * len(rows[0]), *others]


def _csv(rows: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
