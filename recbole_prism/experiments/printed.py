"""What the paper prints for the variants of a study, to stand beside our own numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recbole_prism.experiments import paper
from recbole_prism.experiments.studies import Study, Variant
from recbole_prism.experiments.table import Cell, Row


def printed_values(study: Study, variant: Variant, dataset: str) -> dict[str, float]:
    """Accuracy that the paper prints for a variant on a data set, by metric; empty if it prints none.

    Args:
        study: Which table.
        variant: Of it.
        dataset: Which data set.
    """
    if study.name == "table3":
        for line in paper.read_table("table3_objectives"):
            if line["variant"] == variant.printed:
                found = {key: value for key, value in line.items() if key.startswith(f"{dataset} ")}
                return {key.partition(" ")[2]: float(value) for key, value in found.items()}
        return {}
    if variant.printed in ("SASRec", "PRISM") or study.name == "table2":
        return dict(paper.performance(dataset, variant.printed)[1])
    return {name: value for name, value in printed_costs(variant, dataset).items() if "@" in name}


def printed_costs(variant: Variant, dataset: str) -> dict[str, float]:
    """Everything that the paper's paragraph on efficiency prints for a variant: quantity -> value."""
    lines = paper.read_table("efficiency")
    chosen = [line for line in lines if line["model"] == variant.printed and line["dataset"] == dataset]
    return {line["quantity"]: float(line["value"]) for line in chosen}


def printed_rows(study: Study, dataset: str, metrics: Sequence[str]) -> list[Row]:
    """Rows for the foot of a table.

    Args:
        study: Which table.
        dataset: Which data set.
        metrics: Columns of the table.
    """
    rows = []
    for variant in study.variants:
        values: Mapping[str, float] = printed_values(study, variant, dataset)
        cells = {metric: Cell(values[metric], None, paper.N_SEEDS) for metric in metrics if metric in values}
        if cells:
            rows.append(Row(f"{variant.label} (paper)", cells, is_printed=True))
    return rows
