"""Tables from runs made by hand: means, deviations, marks, improvement, protocol, formats."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest

from recbole_prism.errors import ConfigError, EvaluationError
from recbole_prism.experiments import paper
from recbole_prism.experiments.benchmark import benchmark_specs, write_tables
from recbole_prism.experiments.table import Cell, Row, Table, build_tables
from recbole_prism.experiments.table_text import to_csv, to_json, to_latex, to_markdown
from recbole_prism.run_artifact import RunArtifact
from tests.experiments.fakes import measured_run


@pytest.fixture
def groups(tmp_path: Path) -> dict[str, list[RunArtifact]]:
    """Four test rows. Hit@5 of PRISM 0.75 and 0.25, of SASRec 0.25 twice, of NARM 0.25 and 0.5."""
    ranks = {
        "PRISM": [[0, 4, 1, 5], [0, 9, 9, 9]],
        "SASRec": [[9, 9, 9, 0], [3, 9, 9, 9]],
        "NARM": [[9, 9, 9, 4], [9, 9, 0, 0]],
    }
    return {
        name: [measured_run(tmp_path, name, 2020 + n, rows) for n, rows in enumerate(runs)]
        for name, runs in ranks.items()
    }


def test_means_and_deviations_by_hand(groups: dict[str, list[RunArtifact]]) -> None:
    removed, left = build_tables(groups)
    assert (removed.dataset, removed.seen_removed, left.seen_removed) == ("amazon-toys", True, False)
    assert removed.metrics == ("hit@1", "hit@5", "ndcg@1", "ndcg@5")
    prism, sasrec, narm = removed.rows
    assert [row.label for row in removed.rows] == ["PRISM", "SASRec", "NARM"]
    assert prism.cells["hit@5"].mean == pytest.approx(0.5)
    assert prism.cells["hit@5"].deviation == pytest.approx(math.sqrt(0.125))  # 0.75 and 0.25 around 0.5
    assert sasrec.cells["hit@5"].deviation == 0.0 and narm.cells["hit@5"].mean == pytest.approx(0.375)
    ndcg = ((1 + 1 / math.log2(6) + 1 / math.log2(3)) / 4 + 1 / 4) / 2
    assert prism.cells["ndcg@5"].mean == pytest.approx(ndcg)
    assert left.rows[0].cells["hit@5"].mean == pytest.approx(0.375)  # one more item stands before each target
    assert prism.seeds == (2020, 2021) and prism.best_epochs == (2020, 2021) and prism.n_parameters == 1234


def test_best_second_and_improvement(groups: dict[str, list[RunArtifact]]) -> None:
    table = build_tables(groups)[0]
    marks = [table.mark(row, "hit@5") for row in table.rows]
    assert marks == ["best", None, "second"]
    assert table.improvement("hit@5") == pytest.approx(100 * (0.5 / 0.375 - 1))
    assert [table.mark(row, "hit@1") for row in table.rows] == ["best", "second", "best"]  # 0.25, 0.125, 0.25
    assert table.improvement("hit@1") == pytest.approx(0.0)
    alone = build_tables({"PRISM": groups["PRISM"]})[0]
    assert alone.mark(alone.rows[0], "hit@5") is None and alone.improvement("hit@5") is None


def test_equal_means_share_a_mark_whatever_their_rounding(tmp_path: Path) -> None:
    ranks = {"A": [[0, 9, 9], [0, 0, 9]], "B": [[9, 9, 9], [0, 0, 0]], "C": [[9, 9, 9], [9, 9, 9]]}
    runs = {
        name: [measured_run(tmp_path, name, n, rows) for n, rows in enumerate(both)] for name, both in ranks.items()
    }
    table = build_tables(runs)[0]
    # Hit@1 of A (1/3 + 2/3) / 2, of B (0 + 1) / 2
    assert [table.mark(row, "hit@1") for row in table.rows] == ["best", "best", "second"]
    third = {"A": Cell(0.1 + 0.2, None, 1), "B": Cell(0.3, None, 1)}
    rows = tuple(Row(name, {"hit@1": cell}) for name, cell in third.items())
    assert [Table("d", True, ("hit@1",), rows, "").mark(row, "hit@1") for row in rows] == ["best", "best"]


def test_one_seed_has_no_deviation(groups: dict[str, list[RunArtifact]]) -> None:
    row = build_tables({"PRISM": groups["PRISM"][:1]})[0].rows[0]
    assert row.cells["hit@5"].deviation is None and row.cells["hit@5"].n == 1


def test_printed_numbers_stand_apart(groups: dict[str, list[RunArtifact]], tmp_path: Path) -> None:
    groups["PRISM"] = [measured_run(tmp_path / "more", "PRISM", 1, [9, 9, 9, 9])]
    removed, left = build_tables(groups, with_paper=True)
    printed = [row for row in removed.rows if row.is_printed]
    assert [row.label for row in printed] == ["PRISM (paper)", "SASRec (paper)"]  # the paper has no NARM
    assert printed[0].cells["hit@5"].mean == 0.0802 and printed[1].cells["hit@5"].mean == 0.0689
    assert all(removed.mark(row, "hit@5") is None for row in printed)
    assert removed.mark(removed.rows[0], "hit@5") is None  # 0, below both others; the printed 0.0802 changes nothing
    assert not any(row.is_printed for row in left.rows)
    text = to_markdown([removed, left], "title")
    assert "| *PRISM (paper)* |" in text and "*0.0802*" in text and paper.SOURCE in text
    assert "\\textit{PRISM (paper)}" in to_latex([removed]) and "\\textit{0.0802}" in to_latex([removed])
    assert f"PRISM (paper),{paper.SOURCE},hit@5,0.0802," in to_csv([removed])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ranks": [1, 2, 3]}, "users: 5 and 4"),
        ({"targets": [9, 2, 3, 4]}, "test targets"),
        ({"protocol": {"mask_history": False}}, "seen items removed: True and False"),
        ({"protocol": {"n_candidates": 99}}, "candidates: 100 and 99"),
        ({"protocol": {"eval_args": {"split": {"LS": "test_only"}, "order": "TO"}}}, "split"),
    ],
)
def test_rows_of_unequal_protocol_are_refused(
    groups: dict[str, list[RunArtifact]], tmp_path: Path, change: dict, message: str
) -> None:
    other = measured_run(tmp_path / "other", "Other", 1, **{"ranks": [1, 2, 3, 4], **change})
    with pytest.raises(EvaluationError, match=f"not measured alike.*{message}"):
        build_tables({**groups, "Other": [other]})


def test_a_row_is_one_configuration(groups: dict[str, list[RunArtifact]], tmp_path: Path) -> None:
    other = measured_run(tmp_path / "x", "PRISM", 9, [1, 2, 3, 4], identity="ba9876543210")
    with pytest.raises(EvaluationError, match="different settings"):
        build_tables({"PRISM": [*groups["PRISM"], other]})
    with pytest.raises(EvaluationError, match="the same run"):
        build_tables({"PRISM": groups["PRISM"] + groups["PRISM"][:1]})
    with pytest.raises(EvaluationError, match="no complete runs"):
        build_tables({})


def test_the_protocol_says_what_differs(groups: dict[str, list[RunArtifact]], tmp_path: Path) -> None:
    line = build_tables(groups)[0].protocol
    assert "4 users, 100 items, 900 interactions" in line and "seen items removed" in line and "epochs 3" in line
    longer = measured_run(tmp_path / "x", "Long", 1, [1, 2, 3, 4], settings={"epochs": 9})
    assert "epochs differs (3, 9)" in build_tables({**groups, "Long": [longer]})[0].protocol


def test_formats_hold_the_same_numbers(groups: dict[str, list[RunArtifact]], tmp_path: Path) -> None:
    tables = build_tables(groups)
    paths = write_tables(tables, tmp_path / "out", "A title", note="The table lacks x.")
    assert [path.name for path in paths] == ["benchmark.md", "benchmark.tex", "benchmark.csv", "benchmark.json"]
    markdown = paths[0].read_text()
    assert markdown.startswith("# A title\n\nThe table lacks x.\n")
    assert "**0.5000 ± 0.3536**" in markdown and "<ins>0.3750 ± 0.1768</ins>" in markdown and "+33.3 %" in markdown
    widths = {line.count("|") for line in markdown.splitlines() if line.startswith("|")}
    assert widths == {len(tables[0].metrics) + 5}
    latex = paths[1].read_text()
    assert "\\textbf{0.5000 $\\pm$ 0.3536}" in latex and "\\underline{0.3750 $\\pm$ 0.1768}" in latex
    assert latex.count("\\begin{table}") == latex.count("\\end{table}") == 2
    lines = list(csv.DictReader(paths[2].open()))
    assert len(lines) == 2 * 3 * 4
    first = next(line for line in lines if (line["model"], line["metric"]) == ("PRISM", "hit@5"))
    assert float(first["mean"]) == tables[0].rows[0].cells["hit@5"].mean and first["seeds"] == "2020 2021"
    assert (first["mark"], first["seen_items"], first["n_seeds"]) == ("best", "removed", "2")
    content = json.loads(to_json(tables))
    assert content[0]["rows"][0]["cells"]["hit@5"]["mean"] == tables[0].rows[0].cells["hit@5"].mean
    assert content[0]["improvement_percent"]["hit@5"] == tables[0].improvement("hit@5")
    assert content[0]["rows"][0]["runs"] == ["PRISM-0123456789ab-s2020", "PRISM-0123456789ab-s2021"]


def test_no_improvement_over_nothing(tmp_path: Path) -> None:
    runs = {name: [measured_run(tmp_path, name, 1, [9, 9])] for name in ("A", "B")}
    table: Table = build_tables(runs)[0]
    assert table.improvement("hit@5") is None and "%" not in to_markdown([table], "t").split("| A |")[1]


def test_a_benchmark_has_every_model_with_the_first_seed_before_the_second() -> None:
    specs = benchmark_specs(["prism", "recbole:SASRec"], ["a", "b"], 2, {"epochs": 1})
    assert [(spec.model, spec.dataset, spec.seed) for spec in specs] == [
        (model, dataset, seed)
        for dataset in ("a", "b")
        for seed in (2020, 2021)
        for model in ("PRISM", "recbole:SASRec")
    ]
    assert {spec.settings["epochs"] for spec in specs} == {1}
    with pytest.raises(ConfigError, match="PRISM stands twice"):
        benchmark_specs(["PRISM", "prism"], ["a"], 1, {})
    with pytest.raises(ConfigError, match="seeds is 0"):
        benchmark_specs(["PRISM"], ["a"], 0, {})
    with pytest.raises(ConfigError, match="no data set"):
        benchmark_specs(["PRISM"], [], 1, {})


def test_the_papers_tables_are_whole() -> None:
    assert len(paper.read_table("table2_performance")) == 7 * 6 * 14
    label, numbers = paper.performance("amazon-toys", "ACSASRec")
    assert label == "AC-SASRec" and set(numbers) == {f"{name}@{k}" for name in ("hit", "ndcg") for k in (5, 10, 20)}
    assert paper.performance("amazon-toys", "PRISM")[1]["ndcg@20"] == 0.0751
    assert paper.performance("ml-100k", "PRISM")[1] == {}
    for name in ("table1_datasets", "table3_objectives", "table5_conventional_novel"):
        assert paper.read_table(name)
