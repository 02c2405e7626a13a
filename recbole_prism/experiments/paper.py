"""Numbers printed in the paper, to be shown beside our own and never in place of them.

`properties/paper/*.csv` are copies of the tables of "PRISM" (arXiv 2608.11846): table 1 (data sets), 2 (performance,
means of five seeds), 3 (ablation of the objectives) and 5 (conventional and novel targets).
"""

from __future__ import annotations

import csv
import functools
from pathlib import Path

from recbole_prism.errors import ConfigError
from recbole_prism.settings_files import properties_folder

SOURCE = "arXiv 2608.11846"
N_SEEDS = 5  # of table 2


def table_path(name: str) -> Path:
    """The file of a table.

    Args:
        name: "table1_datasets", "table2_performance", "table3_objectives" or "table5_conventional_novel".

    Raises:
        ConfigError: It is not installed.
    """
    path = properties_folder() / "paper" / f"{name}.csv"
    if not path.is_file():
        raise ConfigError(f"{path} is missing", "install recbole-prism again")
    return path


def read_table(name: str) -> list[dict[str, str]]:
    """The lines of a table by column, as text."""
    with open(table_path(name), encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def performance(dataset: str, model: str) -> tuple[str, dict[str, float]]:
    """What table 2 prints.

    Args:
        dataset: "amazon-toys".
        model: Class name or printed name; case and hyphens do not matter.

    Returns:
        The printed name and the value of each metric ("ndcg@20"); an empty mapping if it prints none.
    """
    return _performance().get((dataset, _key(model)), (model, {}))


@functools.cache
def _performance() -> dict[tuple[str, str], tuple[str, dict[str, float]]]:
    found: dict[tuple[str, str], tuple[str, dict[str, float]]] = {}
    for line in read_table("table2_performance"):
        _, numbers = found.setdefault((line["dataset"], _key(line["model"])), (line["model"], {}))
        numbers[line["metric"]] = float(line["value"])
    return found


def _key(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
