"""The ledger, the desk and the choice of the winner: what a search knows and does, with Ray played by the test."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import psutil
import pytest

from recbole_prism.config import Config
from recbole_prism.errors import ConfigError, RunDirectoryError
from recbole_prism.run_files import write_json
from recbole_prism.tuning.ledger import DONE, FAILED, RUNNING, STOPPED, Ledger, Trial, claim, ranking
from recbole_prism.tuning.plan import Plan, Way, make_plan
from recbole_prism.tuning.proposals import proposals
from recbole_prism.tuning.ray_run import Desk, _scheduler
from recbole_prism.tuning.space import Space
from recbole_prism.tuning.trial import BEST, DIRECTORY, EPOCH, N_EPOCHS, SCORE, SECONDS

SPACE = Space.of({"n_lenses": [2, 4, 6, 8], "aux_weight": [0.1, 0.5]}, "test")


def plan(folder: Path, n_trials: Optional[int] = None, **way: Any) -> Plan:
    chosen = {"model": "PRISM", "dataset": "cyclic", "seed": 7}
    return Plan(chosen, chosen, SPACE, Way(searcher="grid", n_trials=n_trials, **way), 4, "NDCG@20", True, folder)


def desk(made: Plan) -> Desk:
    return Desk(made, Ledger(made.folder), proposals("grid", made.space, True, 7))


def report(found: Desk, trial: Trial, *scores: float, ends: bool = False) -> None:
    for epoch, score in enumerate(scores):
        found.result(trial.number, {EPOCH: epoch, SCORE: score, SECONDS: 1.0})
    if ends:
        last = {EPOCH: len(scores) - 1, SCORE: scores[-1], SECONDS: 2.0, DIRECTORY: "runs/x"}
        found.result(trial.number, last)


def begun(found: Desk) -> Trial:
    trial = found.next()
    assert trial is not None
    return trial


def test_states_follow_from_how_a_trial_ended(tmp_path: Path) -> None:
    found = desk(plan(tmp_path))
    done, last_epoch, stopped, failed = (begun(found) for _ in range(4))
    report(found, done, 0.1, 0.2, ends=True)
    found.end(done.number)
    report(found, last_epoch, 0.1, 0.1, 0.1, 0.1)  # stopped by the scheduler in its very last epoch
    found.end(last_epoch.number)
    report(found, stopped, 0.05)
    found.end(stopped.number)
    report(found, failed, 0.9)
    found.end(failed.number, failed=True)
    assert [trial.state for trial in Ledger(tmp_path).trials] == [DONE, DONE, STOPPED, FAILED]
    assert done.scores == [0.1, 0.2]  # the last report repeats an epoch
    assert [trial.number for trial in ranking(found.ledger.trials, bigger=True)] == [1, 2, 3]


def test_after_a_kill_begun_trials_come_first_and_nothing_twice(tmp_path: Path) -> None:
    whole = SPACE.grid(seed=7)
    found = desk(plan(tmp_path))
    one, two, three = (begun(found) for _ in range(3))
    report(found, one, 0.1, 0.2, ends=True)
    found.end(one.number)
    report(found, three, 0.4)

    again = desk(plan(tmp_path))  # the driver was killed here
    assert again.n_open == 7
    order = [begun(again) for _ in range(7)]
    assert again.next() is None
    assert [trial.number for trial in order] == [2, 3, 4, 5, 6, 7, 8]
    assert [again.ledger.of(number).values for number in range(1, 9)] == whole
    assert again.ledger.of(3).scores == [0.4]
    assert again.ledger.of(1).state == DONE


def test_failed_trials_are_tried_again_by_the_same_command(tmp_path: Path) -> None:
    found = desk(plan(tmp_path, n_trials=2))
    one, two = begun(found), begun(found)
    found.end(one.number, failed=True)
    report(found, two, 0.2, ends=True)
    found.end(two.number)
    again = desk(plan(tmp_path, n_trials=2))
    assert begun(again).number == 1 and again.next() is None


def test_more_trials_can_be_asked_for_later(tmp_path: Path) -> None:
    found = desk(plan(tmp_path, n_trials=1))
    trial = begun(found)
    report(found, trial, 0.1, ends=True)
    found.end(trial.number)
    assert found.next() is None
    more = desk(plan(tmp_path, n_trials=3))
    assert [begun(more).number, begun(more).number] == [2, 3]


def test_trials_stopped_by_the_clock_are_not_at_their_end(tmp_path: Path) -> None:
    found = desk(plan(tmp_path, hours=1e-9))
    trial = begun(found)
    report(found, trial, 0.3)
    found.end(trial.number)
    assert trial.state == RUNNING and found.is_unfinished and found.is_over


@pytest.mark.parametrize(("bigger", "order"), [(True, [2, 1, 3]), (False, [1, 3, 2])])
def test_ranking_is_by_the_best_score_then_by_number(bigger: bool, order: list[int]) -> None:
    scores = {1: [0.3, 0.1], 2: [0.2, 0.9], 3: [0.1, 0.3]}
    trials = [Trial(number, {}, DONE, list(range(len(found))), found) for number, found in scores.items()]
    without, failed = Trial(4, {}), Trial(5, {}, FAILED, [0], [5.0 if bigger else -5.0])
    assert [trial.number for trial in ranking([without, failed, *reversed(trials)], bigger)] == order


def test_asha_counts_trials_of_an_earlier_attempt(tmp_path: Path) -> None:
    class Now:
        trial_id = "now"

    made = plan(tmp_path, grace=1, reduction=2.0)
    past = [Trial(number, {}, DONE, [0, 1], [0.5, 0.1 * number]) for number in (1, 2, 3)]
    ledger = Ledger(tmp_path)
    decisions = {}
    for trials in ((), past):
        ledger.trials = list(trials)
        scheduler = _scheduler(made, ledger)
        scheduler.on_trial_add(None, Now)
        decisions[len(trials)] = scheduler.on_trial_result(None, Now, {N_EPOCHS: 1, BEST: 0.4})
    assert decisions == {0: "CONTINUE", 3: "STOP"}  # alone there is nothing to compare with; then 0.4 is below 0.5


def test_a_live_search_is_not_entered_twice(tmp_path: Path) -> None:
    parent = psutil.Process(os.getppid())
    owner = {"pid": parent.pid, "process_started": parent.create_time()}
    claim(tmp_path)
    mine = json.loads((tmp_path / "owner.json").read_text(encoding="utf-8"))
    assert mine["pid"] == os.getpid()
    write_json(tmp_path / "owner.json", {**mine, **owner})
    with pytest.raises(RunDirectoryError, match=f"process {parent.pid}"):
        claim(tmp_path)
    write_json(tmp_path / "owner.json", {**mine, "pid": 2**22 + 1})  # no such process
    claim(tmp_path)


def made_plan(toy_path: Path, runs: Path, way: Optional[Way] = None, **settings: Any) -> Plan:
    given = {"data_path": str(toy_path), "checkpoint_dir": str(runs), "device": "cpu", "epochs": 4, **settings}
    return make_plan(Config("PRISM", "cyclic", None, given), SPACE, way or Way())


def test_the_folder_stands_for_what_decides_the_result(toy_path: Path, tmp_path: Path) -> None:
    base = made_plan(toy_path, tmp_path)
    same = made_plan(toy_path, tmp_path, replace(Way(), n_trials=3, cpus=2, hours=1.0, parallel=1), n_threads=1)
    assert same.folder == base.folder
    others = [
        made_plan(toy_path, tmp_path, learning_rate=0.01),
        made_plan(toy_path, tmp_path, seed=3),
        made_plan(toy_path, tmp_path, replace(Way(), searcher="grid")),
        made_plan(toy_path, tmp_path, replace(Way(), scheduler="none")),
    ]
    assert len({plan.folder for plan in [base, *others]}) == 5


def test_settings_of_trials_are_absolute_and_hold_what_the_caller_changed(
    toy_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(toy_path.parent)
    file = tmp_path / "own.yaml"
    file.write_text("hidden_size: 32\n", encoding="utf-8")
    config = Config(
        "PRISM",
        "cyclic",
        [str(file)],
        None,
        {"data_path": toy_path.name, "checkpoint_dir": "runs", "device": "cpu", "stopping_step": 3},
    )
    made = make_plan(config, SPACE, Way(cpus=2))
    assert made.settings["data_path"] == str(toy_path)
    assert made.settings["checkpoint_dir"] == str(toy_path.parent / "runs")
    assert made.settings["n_threads"] == 2
    assert made.settings["hidden_size"] == 32 and made.settings["stopping_step"] == 3
    assert made.chosen == {
        "hidden_size": 32,
        "stopping_step": 3,
        "model": "PRISM",
        "dataset": "cyclic",
        "seed": 2020,
        "n_threads": 2,
    }


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ({"n_trials": 0}, "--trials=0"),
        ({"grace": 0}, "--grace=0"),
        ({"reduction": 1.0}, "--reduction=1.0"),
        ({"gpus": -1.0}, "--gpus=-1.0"),
        ({"hours": 0.0}, "--hours=0.0"),
        ({"searcher": "best"}, "--searcher=best"),
        ({"scheduler": "hyperband"}, "--scheduler=hyperband"),
    ],
)
def test_ways_that_cannot_be_are_refused(way: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Way(**way).check()


def test_number_of_trials_is_bounded_by_the_space(tmp_path: Path) -> None:
    assert plan(tmp_path, n_trials=None).n_trials == 8
    assert plan(tmp_path, n_trials=100).n_trials == 8
    endless = Space.of({"a": {"type": "uniform", "low": 0, "high": 1}}, "test")
    assert replace(plan(tmp_path, n_trials=5), space=endless).n_trials == 5
    with pytest.raises(ConfigError, match="no end"):
        _ = replace(plan(tmp_path, n_trials=None), space=endless).n_trials
