"""A search from end to end: with the trials run in this process, and by Ray (slow)."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Optional

import pytest
import yaml

from recbole_prism import quick_start
from recbole_prism.config import Config
from recbole_prism.errors import RecBolePrismError
from recbole_prism.run_directory import read_run
from recbole_prism.tuning.ledger import DONE, FAILED, Ledger
from recbole_prism.tuning.plan import Plan, Way, make_plan
from recbole_prism.tuning.proposals import proposals
from recbole_prism.tuning.ray_run import Desk
from recbole_prism.tuning.search import conclude, search
from recbole_prism.tuning.space import Space
from recbole_prism.tuning.trial import run_trial

ROOT = Path(__file__).parents[2]
SMALL = {"device": "cpu", "epochs": 2, "MAX_ITEM_LIST_LENGTH": 12, "hidden_size": 16, "inner_size": 16}
CRASHES = 1e-39  # a temperature that makes the contrast infinite: a trial that fails in its first batch


def plan(data: Path, runs: Path, space: dict[str, Any], **way: Any) -> Plan:
    settings = {"data_path": str(data), "checkpoint_dir": str(runs), **SMALL}
    config = Config("PRISM", "cyclic", None, settings)
    return make_plan(config, Space.of(space, "test"), Way(searcher="grid", n_trials=None, **way))


def run_here(made: Plan) -> Ledger:
    """What Ray does, in this process."""
    made.folder.mkdir(parents=True)
    desk = Desk(made, Ledger(made.folder), proposals("grid", made.space, made.bigger, 0))
    while (trial := desk.next()) is not None:
        try:
            run_trial({**made.settings, **trial.values}, made.bigger, partial(desk.result, trial.number))
            desk.end(trial.number)
        except RecBolePrismError as error:
            trial.reason = error.cause
            desk.end(trial.number, failed=True)
    return desk.ledger


def with_a_test(runs: Path) -> list[Path]:
    """Run directories in which a test row was ranked."""
    return [file.parent for file in runs.rglob("*") if file.name in ("metrics.json", "ranks.npz", "manifest.json")]


def test_the_best_on_validation_is_tested_once_and_its_recipe_repeats_the_score(toy_path: Path, tmp_path: Path) -> None:
    made = plan(toy_path, tmp_path / "runs", {"cl_temperature": [0.1, CRASHES], "learning_rate": [0.001, 0.01]})
    ledger = run_here(made)
    assert not with_a_test(tmp_path / "runs")
    good = [trial for trial in ledger.trials if trial.values["cl_temperature"] != CRASHES]
    failed = [trial for trial in ledger.trials if trial.values["cl_temperature"] == CRASHES]
    assert [trial.state for trial in good] == [DONE, DONE] and [trial.state for trial in failed] == [FAILED, FAILED]
    worse = min(good, key=lambda trial: trial.best(True) or 0.0)
    worse.scores[-1] = 2.0  # validation is said to prefer it; the test would not
    ledger.write()

    outcome = conclude(made)
    assert outcome.winner.number == worse.number and outcome.result is not None
    assert set(with_a_test(tmp_path / "runs")) == {Path(outcome.result["run_directory"])}
    rows = list(csv.reader((outcome.folder / "trials.csv").open(encoding="utf-8")))
    assert rows[1][1] == str(worse.number) and [row[0] for row in rows[1:]] == ["1", "2", "", ""]
    page = (outcome.folder / "trials.md").read_text(encoding="utf-8")
    assert all(f"Trial {trial.number} failed: " in page for trial in failed)
    assert (outcome.folder / "trials.png").stat().st_size > 10_000

    recipe = outcome.folder / "recipe.yaml"
    values = yaml.safe_load(recipe.read_text(encoding="utf-8"))
    assert {key: values[key] for key in worse.values} == worse.values
    places = {"data_path": str(toy_path), "checkpoint_dir": str(tmp_path / "again"), "device": "cpu"}
    again = quick_start.run(config_file_list=[str(recipe)], command_line=places)
    assert again["test_result"] == outcome.result["test_result"] and not again["reused"]
    assert Path(again["run_directory"]).name == Path(outcome.result["run_directory"]).name


def test_a_winner_that_fails_gives_way_to_the_next(
    toy_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = plan(toy_path, tmp_path, {"n_lenses": [2, 4]})
    made.folder.mkdir(parents=True)
    ledger = Ledger(made.folder)
    for n_lenses, score in ((2, 0.9), (4, 0.5)):
        trial = ledger.add({"n_lenses": n_lenses})
        trial.add(0, score)
        trial.state = DONE
    ledger.write()
    real = quick_start.run

    def breaks(config_dict: dict[str, Any]) -> dict[str, Any]:
        if config_dict["n_lenses"] == 2:
            raise RecBolePrismError("the loss is nan")
        return real(config_dict=config_dict)

    monkeypatch.setattr(quick_start, "run", breaks)
    outcome = conclude(made)
    assert outcome.winner.values == {"n_lenses": 4}
    assert [(trial.state, trial.reason) for trial in outcome.trials] == [(FAILED, "the loss is nan"), (DONE, "")]


def test_a_search_without_a_score_says_why(toy_path: Path, tmp_path: Path) -> None:
    made = plan(toy_path, tmp_path, {"n_lenses": [2, 4]})
    made.folder.mkdir(parents=True)
    ledger = Ledger(made.folder)
    trial = ledger.add({"n_lenses": 2})
    trial.state, trial.reason = FAILED, "the loss is nan"
    ledger.write()
    with pytest.raises(RecBolePrismError, match="has a score; the first failed: the loss is nan"):
        conclude(made)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # two minutes on an idle machine, many on a busy one
def test_ray_runs_all_trials_and_a_crashing_one_stops_nobody(toy_path: Path, tmp_path: Path) -> None:
    made = plan(
        toy_path, tmp_path, {"cl_temperature": [0.1, CRASHES], "n_lenses": [2, 4]}, scheduler="none", parallel=2
    )
    outcome = search(made)
    good = [trial for trial in outcome.trials if trial.values["cl_temperature"] != CRASHES]
    failed = [trial for trial in outcome.trials if trial.values["cl_temperature"] == CRASHES]
    assert [trial.state for trial in failed] == [FAILED, FAILED]
    assert all("loss" in trial.reason for trial in failed), failed
    assert [trial.state for trial in good] == [DONE, DONE]
    assert all(len(trial.scores) == 2 for trial in good)
    assert outcome.result is not None and set(with_a_test(tmp_path)) == {Path(outcome.result["run_directory"])}
    for trial in good:  # the driver's settings reached the trial, and nothing else did
        config = Config(config_dict={**made.settings, **trial.values})
        stored = yaml.safe_load((Path(trial.run_directory or "") / "config.yaml").read_text(encoding="utf-8"))
        assert stored == config.resolved()
    again = search(made)  # two failed ones are tried again, the winner's test is read from its directory
    assert again.result is not None and again.result["reused"]
    assert not (made.folder / "ray").exists()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_search_that_is_killed_can_be_concluded_and_gone_on_with(toy_path: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "recbole_prism", "tune", "--model=PRISM", "--dataset=cyclic"]
    command += [f"--{key}={value}" for key, value in SMALL.items()]
    command += [f"--data_path={toy_path}", f"--checkpoint_dir={tmp_path}", "--searcher=grid", "--scheduler=none"]
    command += ["--search={aux_weight: ~, cl_temperature: ~}", "--parallel=1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def call(*options: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [*command, *options], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=500
        )

    process = subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL)
    killed = _wait_for(tmp_path, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert [trial["state"] for trial in killed[:2]] == [DONE, "running"]
    (folder,) = (tmp_path / "searches/cyclic").iterdir()
    assert "# Not tested" in (folder / "recipe.yaml").read_text(encoding="utf-8")

    concluded = call("--conclude")
    assert concluded.returncode == 0, concluded.stderr
    assert "best of 2 trials" in concluded.stdout
    first = killed[0]
    whole = call()
    assert whole.returncode == 0, whole.stderr
    trials = json.loads((folder / "trials.json").read_text(encoding="utf-8"))
    assert [trial["state"] for trial in trials] == [DONE] * 4
    assert {key: trials[0][key] for key in ("values", "scores", "seconds")} == {
        key: first[key] for key in ("values", "scores", "seconds")
    }  # not trained again
    best = max(trials, key=lambda trial: (max(trial["scores"]), -trial["number"]))
    recipe = yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8"))
    assert recipe["n_lenses"] == best["values"]["n_lenses"]
    winner = read_run(best["run_directory"])
    assert winner.metrics["best_valid_score"] == max(best["scores"])


def _wait_for(folder: Path, process: subprocess.Popen, seconds: float = 400.0) -> list[dict[str, Any]]:
    """The ledger, once a trial has ended and another has begun."""
    deadline = time.monotonic() + seconds
    trials: Optional[list[dict[str, Any]]] = None
    while time.monotonic() < deadline:
        assert process.poll() is None, "the search ended before it could be killed"
        for file in folder.glob("searches/*/*/trials.json"):
            trials = json.loads(file.read_text(encoding="utf-8"))
            if len(trials) >= 2 and trials[0]["state"] == DONE and (file.parent / "recipe.yaml").is_file():
                return trials
        time.sleep(0.1)
    raise AssertionError(f"no trial ended in {seconds:.0f} s: {trials}")
