"""`quick_start.train`: a training that reads no test row, and the `run` that finishes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recbole_prism import quick_start
from recbole_prism.run_directory import read_run


def settings(data: Path, runs: Path, **changes: Any) -> dict[str, Any]:
    return {
        "model": "GRU4Rec",
        "dataset": "cyclic",
        "data_path": str(data),
        "checkpoint_dir": str(runs),
        "device": "cpu",
        "MAX_ITEM_LIST_LENGTH": 12,
        "epochs": 3,
        **changes,
    }


def test_a_training_is_finished_by_run_as_if_there_had_been_one_run(toy_path: Path, tmp_path: Path) -> None:
    calls: list[tuple[int, float]] = []
    found = quick_start.train(settings(toy_path, tmp_path / "a"), lambda *call: calls.append(call))
    directory = Path(found["run_directory"])
    assert not any((directory / name).exists() for name in ("metrics.json", "ranks.npz", "manifest.json"))
    assert [epoch for epoch, _ in calls] == [0, 1, 2]
    assert found["best_valid_score"] == max(score for _, score in calls)

    finished = quick_start.run(config_dict=settings(toy_path, tmp_path / "a"))
    at_once = quick_start.run(config_dict=settings(toy_path, tmp_path / "b"))
    assert Path(finished["run_directory"]) == directory
    assert finished["test_result"] == at_once["test_result"]
    losses = [[record["loss"] for record in read_run(r["run_directory"]).history] for r in (finished, at_once)]
    assert losses[0] == losses[1] and len(losses[0]) == 3


def test_epochs_of_an_earlier_attempt_are_told_once(toy_path: Path, tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    before: list[tuple[int, float]] = []

    def until_the_second(epoch: int, score: float) -> None:
        before.append((epoch, score))
        if epoch == 1:
            raise Killed

    with pytest.raises(Killed):
        quick_start.train(settings(toy_path, tmp_path), until_the_second)
    after: list[tuple[int, float]] = []
    quick_start.train(settings(toy_path, tmp_path), lambda *call: after.append(call))
    assert after[:2] == before
    assert [epoch for epoch, _ in after] == [0, 1, 2]


def test_a_complete_run_is_told_of_and_not_trained_again(toy_path: Path, tmp_path: Path) -> None:
    complete = quick_start.run(config_dict=settings(toy_path, tmp_path))
    calls: list[tuple[int, float]] = []
    found = quick_start.train(settings(toy_path, tmp_path), lambda *call: calls.append(call))
    assert found["run_directory"] == complete["run_directory"]
    assert found["best_valid_score"] == complete["best_valid_score"]
    assert [score for _, score in calls] == [
        record["valid"]["ndcg@20"] for record in read_run(complete["run_directory"]).history
    ]
