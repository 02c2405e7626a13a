"""`reproduce` as it is typed: what is listed, what is written from which runs, and what is said to be missing."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from recbole_prism import quick_start
from recbole_prism.errors import ConfigError, EvaluationError
from recbole_prism.reproduce_cli import reproduce_main
from tests import toy

SMALL = {"device": "cpu", "MAX_ITEM_LIST_LENGTH": 12, "hidden_size": 16, "inner_size": 16, "n_threads": 1}


@pytest.fixture(scope="module")
def settings(toy_path: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Settings under which SASRec and PRISM are there with seed 2020, one epoch each."""
    runs = tmp_path_factory.mktemp("reproduce")
    found = {"data_path": str(toy_path), "checkpoint_dir": str(runs), "epochs": 1, **SMALL}
    for model in ("SASRec", "PRISM"):
        quick_start.run(model, "cyclic", config_dict=found)
    return found


def call(settings: dict[str, Any], *arguments: str) -> int:
    return reproduce_main([*arguments, *(f"--{key}={value}" for key, value in settings.items())])


def test_dry_run_lists_every_run_with_its_time(settings: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(Path(settings["checkpoint_dir"]).rglob("*"))
    assert call(settings, "figure5", "--datasets=cyclic", "--seeds=2", "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("figure5: 10 runs, 2 there, at most ")
    states = {line.split()[0] + " " + line.split()[1]: line.split()[2] for line in lines[1:]}
    assert len(states) == 10
    assert {name for name, state in states.items() if state == "there"} == {"sasrec-cyclic s2020", "prism-cyclic s2020"}
    assert all("PRISM on cyclic, 1 epochs" in line for line in lines if line.split()[0] == "affinity-cyclic")
    assert sorted(Path(settings["checkpoint_dir"]).rglob("*")) == before


def test_page_table_and_picture_come_from_the_runs_that_are_there(settings: dict[str, Any], tmp_path: Path) -> None:
    assert call(settings, "figure5", "--datasets=cyclic", "--seeds=1", "--report", f"--out={tmp_path}") == 0
    page = (tmp_path / "figure5.md").read_text(encoding="utf-8")
    assert "- cyclic: w/o PGA, seed 2020: waiting" in page
    assert "0 of 0 judged trends hold" in page
    assert (tmp_path / "figure5_cyclic.png").stat().st_size > 5_000
    stored = quick_start.run("PRISM", "cyclic", config_dict=settings)
    assert stored["reused"]
    rows = list(csv.DictReader((tmp_path / "figure5.csv").open(encoding="utf-8")))
    ours = {
        row["metric"]: float(row["mean"]) for row in rows if row["model"] == "PRISM" and row["seen_items"] == "removed"
    }
    assert ours == pytest.approx(stored["test_result"])


def test_costs_are_those_of_the_run_directories(settings: dict[str, Any], tmp_path: Path) -> None:
    arguments = ("table6", "--datasets=cyclic", "--models=SASRec,PRISM K=4", "--report", f"--out={tmp_path}")
    assert call(settings, *arguments) == 0
    rows = {row["model"]: row for row in csv.DictReader((tmp_path / "table6.csv").open(encoding="utf-8"))}
    assert list(rows) == ["SASRec", "PRISM K=4"]
    assert rows["PRISM K=4"]["parameters"] == rows["PRISM K=4"]["by formula"]
    assert rows["SASRec"]["by formula"] == ""
    assert call(settings, "table7", *arguments[1:]) == 0
    (first, second) = csv.DictReader((tmp_path / "table7.csv").open(encoding="utf-8"))
    assert first["ratio of CPU s"] == "1.00" and second["epochs"] == "1"


def test_without_a_run_there_is_no_page(settings: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="no complete run of table3"):
        call({**settings, "learning_rate": 0.5}, "table3", "--datasets=cyclic", "--report", f"--out={tmp_path}")
    assert not list(tmp_path.iterdir())


def test_table1_counts_what_is_there(toy_path: Path, tmp_path: Path) -> None:
    assert reproduce_main(["table1", "--datasets=cyclic,nowhere", f"--data_path={toy_path}", f"--out={tmp_path}"]) == 0
    (row,) = csv.DictReader((tmp_path / "table1.csv").open(encoding="utf-8"))
    events = toy.cyclic()
    assert (row["users"], row["items"], row["interactions"]) == ("60", "40", str(len(events)))
    assert row["avg_length"] == f"{len(events) / 60:.1f}" and row["sparsity"] == f"{1 - len(events) / 2400:.4f}"
    assert "- nowhere: " in (tmp_path / "table1.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table2", "--model=PRISM"], "--model is not for reproduce"),
        (["table2", "--seeds=a"], "--seeds=a"),
        (["tabel2"], "'tabel2'"),
        (["table3", "--datasets=nowhere", "--dry-run"], "nothing of table3 can be run: nowhere"),
    ],
)
def test_what_cannot_be_is_named(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        reproduce_main(arguments)
