"""Queue files: what they mean, and what is said of a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from recbole_prism.errors import ConfigError
from recbole_prism.experiments.queue import plan_jobs
from recbole_prism.experiments.queue_file import read_queue
from recbole_prism.run_store import RunSpec
from recbole_prism.settings_files import recipe_path

GOOD = """
defaults: {epochs: 9, learning_rate: 0.5}
runs:
  - {model: SASRec, dataset: ml-100k, seeds: [3, 1]}
  - {name: short, model: "recbole:SASRec", dataset: ml-100k, epochs: 2, settings: {learning_rate: 0.1}}
  - {name: tuned, model: PRISM, dataset: ml-100k, recipe: PRISM, config_files: [more.yaml]}
  - {model: "recbole:SASRec", dataset: ml-100k}
"""


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "q.yaml"
    file.write_text(text)
    return file


def test_entries_become_runs_in_the_order_of_the_file(tmp_path: Path) -> None:
    base = {"epochs": 9, "learning_rate": 0.5, "device": "cpu"}
    files = (str(recipe_path("ml-100k", "PRISM")), str(tmp_path / "more.yaml"))
    assert read_queue(written(tmp_path, GOOD), {"device": "cpu"}) == [
        RunSpec("SASRec-ml-100k", "SASRec", "ml-100k", 3, base),
        RunSpec("SASRec-ml-100k", "SASRec", "ml-100k", 1, base),
        RunSpec("short", "recbole:SASRec", "ml-100k", 2020, {**base, "epochs": 2, "learning_rate": 0.1}),
        RunSpec("tuned", "PRISM", "ml-100k", 2020, base, files),
        RunSpec("recbole-SASRec-ml-100k", "recbole:SASRec", "ml-100k", 2020, base),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("runs: []", "lists no runs"),
        ("run: [{model: SASRec, dataset: a}]", "unknown key 'run'.*did you mean runs"),
        ("defaults: 5\nruns: [{model: SASRec, dataset: a}]", "defaults is no mapping"),
        ("runs: [SASRec]", "run 1 is no mapping"),
        ("runs: [{model: SASRec, dataset: a}, {model: SASRec}]", "run 2 names no dataset"),
        ("runs: [{model: SASRec, dataset: a, seed: 3}]", "unknown key 'seed'.*did you mean seeds"),
        ("runs: [{model: SASRec, dataset: a, seeds: 3}]", "seeds is 3, expected a list"),
        ("runs: [{model: SASRec, dataset: a, seeds: [true]}]", "expected a list of whole numbers"),
        ("runs: [{model: SASRec, dataset: a, settings: [epochs]}]", "settings is no mapping"),
        ("runs: [{model: SASRec, dataset: a, settings: {seed: 3}}]", "seed among the settings"),
        ("runs: [{model: SASRec, dataset: a, epochs: 3, settings: {epochs: 3}}]", "epochs stands twice"),
        ("runs: [{model: SASRec, dataset: a}, {model: SASRec, dataset: a}]", "'SASRec-a s2020' stands twice"),
        ("runs: [{model: SASRec, dataset: a, name: ../x}]", "no name of a folder"),
        ("runs: [{model: SASRec, dataset: a, config_files: x.yaml}]", "expected a list of files"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        read_queue(written(tmp_path, text))


def test_settings_are_checked_before_anything_runs(toy_path: Path) -> None:
    settings = {"data_path": str(toy_path)}
    specs = [RunSpec("good", "SASRec", "cyclic", 1, settings), RunSpec("bad", "PRISM", "cyclic", 1, {"lambda": 1})]
    with pytest.raises(ConfigError, match="bad s1: .*lambda"):
        plan_jobs(specs)


def test_a_run_gets_its_share_of_the_machine_unless_it_says_so(
    toy_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    settings = {"data_path": str(toy_path), "checkpoint_dir": str(tmp_path)}
    silent = RunSpec("silent", "SASRec", "cyclic", 1, settings)
    one = RunSpec("one", "SASRec", "cyclic", 1, {**settings, "n_threads": 1})
    jobs = plan_jobs([silent, one], n_jobs=4)
    assert [job.config["n_threads"] for job in jobs] == [2, 1] and jobs[0].spec.settings["n_threads"] == 2
    assert jobs[0].path == jobs[1].path  # the number of threads makes no other run


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no queue file .*nothing.yaml"):
        read_queue(tmp_path / "nothing.yaml")


def test_a_recipe_is_a_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="recipe is 5"):
        read_queue(written(tmp_path, "runs:\n  - {model: SASRec, dataset: ml-100k, recipe: 5}\n"))
