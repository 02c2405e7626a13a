"""Tables as Markdown, LaTeX, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Optional

from recbole_prism.experiments import paper
from recbole_prism.experiments.table import BEST, SECOND, Cell, Row, Table

_SHOWN = {"ndcg": "NDCG", "hit": "Hit", "mrr": "MRR", "map": "MAP"}
_LEGEND = (
    "Mean and standard deviation (n - 1) over n seeds. **Best** and <ins>second</ins> of the measured rows. "
    "Improvement: the first row over the strongest of the others."
)
_PRINTED = (
    f"*Rows marked (paper)* are printed in {paper.SOURCE}, means of {paper.N_SEEDS} seeds: other code, never marked or "
    "compared."
)


def to_markdown(tables: Sequence[Table], title: str, note: Optional[str] = None) -> str:
    """A page with a section per table.

    Args:
        tables: In the order of the page.
        title: Its heading.
        note: Said below it.
    """
    parts = [f"# {title}", "", *([note, ""] if note else []), _LEGEND]
    if any(row.is_printed for table in tables for row in table.rows):
        parts += ["", _PRINTED]
    for table in tables:
        parts += ["", f"## {table.dataset}, {_seen(table)}", "", table.protocol, "", *_markdown_rows(table)]
    return "\n".join(parts) + "\n"


def _markdown_rows(table: Table) -> list[str]:
    head = ["model", *map(shown, table.metrics), "n", "parameters", "best epochs"]
    lines = [_pipes(head), _pipes(["---"] + ["---:"] * (len(head) - 1))]
    for row in table.rows:
        cells = [_markdown_cell(table, row, metric) for metric in table.metrics]
        size = "" if row.n_parameters is None else f"{row.n_parameters:,}"
        tail = [str(max(cell.n for cell in row.cells.values())), size, " ".join(map(str, row.best_epochs))]
        label = f"*{row.label}*" if row.is_printed else row.label
        lines.append(_pipes([label, *cells, *tail]))
    improvements = [table.improvement(metric) for metric in table.metrics]
    if any(value is not None for value in improvements):
        cells = ["" if value is None else f"{value:+.1f} %" for value in improvements]
        lines.append(_pipes([f"improvement of {table.measured[0].label}", *cells, "", "", ""]))
    return lines


def _markdown_cell(table: Table, row: Row, metric: str) -> str:
    if metric not in row.cells:
        return ""
    text = _number(row.cells[metric], " ± ")
    mark = table.mark(row, metric)
    if row.is_printed:
        return f"*{text}*"
    return f"**{text}**" if mark == BEST else f"<ins>{text}</ins>" if mark == SECOND else text


def to_latex(tables: Sequence[Table]) -> str:
    """One `table` environment per table; needs the package booktabs."""
    return "\n".join(line for table in tables for line in _latex_table(table)) + "\n"


def _latex_table(table: Table) -> list[str]:
    caption = f"{_escaped(table.dataset)}, {_seen(table)}. {_escaped(table.protocol)}"
    if any(row.is_printed for row in table.rows):
        caption += f" Rows in italics are printed in {paper.SOURCE}."
    lines = ["\\begin{table}", "\\centering", f"\\caption{{{caption}}}"]
    lines += [f"\\begin{{tabular}}{{l{'c' * (len(table.metrics) + 1)}}}", "\\toprule"]
    lines += [" & ".join(["Model", *map(shown, table.metrics), "$n$"]) + " \\\\", "\\midrule"]
    for row in table.rows:
        cells = [_latex_cell(table, row, metric) for metric in table.metrics]
        label = f"\\textit{{{_escaped(row.label)}}}" if row.is_printed else _escaped(row.label)
        lines.append(" & ".join([label, *cells, "" if row.is_printed else str(len(row.seeds))]) + " \\\\")
    improvements = [table.improvement(metric) for metric in table.metrics]
    if any(value is not None for value in improvements):
        cells = ["" if value is None else f"{value:+.1f}\\%" for value in improvements]
        lines += ["\\midrule", " & ".join(["Improvement", *cells, ""]) + " \\\\"]
    return [*lines, "\\bottomrule", "\\end{tabular}", "\\end{table}", ""]


def _latex_cell(table: Table, row: Row, metric: str) -> str:
    if metric not in row.cells:
        return ""
    text = _number(row.cells[metric], " $\\pm$ ")
    mark = table.mark(row, metric)
    if row.is_printed:
        return f"\\textit{{{text}}}"
    return f"\\textbf{{{text}}}" if mark == BEST else f"\\underline{{{text}}}" if mark == SECOND else text


def to_csv(tables: Sequence[Table]) -> str:
    """One line per number, unrounded."""
    text = io.StringIO()
    names = ("dataset", "seen_items", "model", "source", "metric", "mean", "deviation", "n_seeds", "seeds", "mark")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for table in tables:
        for row in table.rows:
            for metric, cell in row.cells.items():
                source = paper.SOURCE if row.is_printed else "measured"
                seeds = " ".join(map(str, row.seeds))
                head = (table.dataset, _seen_key(table), row.label, source, metric)
                mark = table.mark(row, metric) if metric in table.metrics else None
                writer.writerow((*head, cell.mean, cell.deviation, cell.n, seeds, mark))
    return text.getvalue()


def to_json(tables: Sequence[Table]) -> str:
    """Everything, unrounded."""
    content: list[dict[str, Any]] = [
        {
            "dataset": table.dataset,
            "seen_items": _seen_key(table),
            "protocol": table.protocol,
            "metrics": list(table.metrics),
            "rows": [
                {
                    **asdict(row),
                    "source": paper.SOURCE if row.is_printed else "measured",
                    "marks": {metric: table.mark(row, metric) for metric in table.metrics},
                }
                for row in table.rows
            ],
            "improvement_percent": {metric: table.improvement(metric) for metric in table.metrics},
        }
        for table in tables
    ]
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def shown(metric: str) -> str:
    """A metric as people write it: "NDCG@20"."""
    name, at, k = metric.partition("@")
    return _SHOWN.get(name, name.capitalize()) + at + k


def _number(cell: Cell, plus_minus: str) -> str:
    return f"{cell.mean:.4f}" + ("" if cell.deviation is None else f"{plus_minus}{cell.deviation:.4f}")


def _seen(table: Table) -> str:
    return f"seen items {_seen_key(table)}"


def _seen_key(table: Table) -> str:
    return "removed" if table.seen_removed else "left in"


def _pipes(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    for mark in "&%_#":
        text = text.replace(mark, f"\\{mark}")
    return text
