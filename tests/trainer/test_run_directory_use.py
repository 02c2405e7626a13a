"""What the trainer writes, and that going on from it equals never having stopped."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Optional

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from recbole_prism.errors import NonFiniteError, RunDirectoryError
from recbole_prism.run_directory import RunDirectory
from recbole_prism.trainer import Trainer, seed_everything
from tests.trainer.fakes import N_USERS, Bigram, EvalLoader, Scripted, TrainLoader, settings

WALL_CLOCK = ("train_seconds", "valid_seconds", "cpu_seconds", "rows_per_second", "peak_memory_mb")


def open_directory(path: Path, overwrite: bool = False) -> RunDirectory:
    return RunDirectory.open(path, "toy", "Bigram", "0123456789ab", 1, overwrite)


def train(
    path: Path, stop_after: Optional[int] = None, error: type[BaseException] = RuntimeError, **changes: Any
) -> Trainer:
    """Train in a directory, from a fresh process's state, killed after an epoch if `stop_after` names one."""

    def kill(epoch: int, score: float) -> None:
        if epoch == stop_after:
            raise error("killed")

    seed_everything(5)
    trainer = Trainer(settings(**changes), Bigram(5), open_directory(path))
    trainer.fit(TrainLoader(), EvalLoader(), callback_fn=kill)
    return trainer


def numbers(trainer: Trainer) -> list[dict[str, Any]]:
    """History without what a clock says, as JSON writes it."""
    kept = [{key: value for key, value in record.items() if key not in WALL_CLOCK} for record in trainer.history]
    return json.loads(json.dumps(kept))


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


@pytest.mark.parametrize("learner", ["adam", "adagrad"])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_resumed_equals_uninterrupted(tmp_path: Path, learner: str, error: type[BaseException]) -> None:
    straight = train(tmp_path / "straight", learner=learner)
    with pytest.raises(error):
        train(tmp_path / "cut", stop_after=1, error=error, learner=learner)
    torch.rand(3)  # whatever happens in between
    resumed = train(tmp_path / "cut", learner=learner)
    assert_same(dict(straight.model.state_dict()), dict(resumed.model.state_dict()))
    assert straight.best_weights is not None and resumed.best_weights is not None
    assert_same(straight.best_weights, resumed.best_weights)
    assert torch.equal(straight.model.kept, resumed.model.kept)  # type: ignore[arg-type]
    assert straight.stopper == resumed.stopper and straight.best_valid_result == resumed.best_valid_result
    assert numbers(straight) == numbers(resumed) and len(resumed.history) == 4
    stored = [json.loads(line) for line in (resumed.run_directory.path / "history.jsonl").read_text().splitlines()]  # type: ignore[union-attr]
    assert [record["epoch"] for record in stored] == [0, 1, 2, 3]


def test_best_epoch_before_the_interruption_is_still_the_one_tested(tmp_path: Path) -> None:
    def fit(script: list[int], stop_after: int) -> Trainer:
        def kill(epoch: int, score: float) -> None:
            if epoch == stop_after:
                raise RuntimeError("killed")

        trainer = Trainer(settings(epochs=5), Scripted(script), open_directory(tmp_path))
        trainer.fit(TrainLoader(), EvalLoader(), callback_fn=kill)
        return trainer

    with pytest.raises(RuntimeError):
        fit([2, 8, 3, 1, 1], stop_after=2)
    trainer = fit([0, 0, 0, 4, 5], stop_after=-1)
    assert (trainer.stopper.best_epoch, trainer.stopper.best_score, trainer.stopper.n_waited) == (1, 8 / N_USERS, 3)
    assert trainer.evaluate(EvalLoader())["hit@1"] == 8 / N_USERS


def test_finished_training_is_not_trained_again_when_the_test_was_interrupted(tmp_path: Path) -> None:
    straight = train(tmp_path)
    again = train(tmp_path)
    assert again.next_epoch == 4 and numbers(again) == numbers(straight)
    assert_same(dict(straight.model.state_dict()), dict(again.model.state_dict()))


def test_epoch_whose_state_was_not_saved_is_made_again(tmp_path: Path) -> None:
    straight = train(tmp_path / "straight")
    with pytest.raises(RuntimeError):
        train(tmp_path / "cut", stop_after=1)
    directory = open_directory(tmp_path / "cut")
    directory.append_history({"epoch": 2, "loss": {"total": -1.0}})  # killed between the two writes
    resumed = train(tmp_path / "cut")
    assert numbers(resumed) == numbers(straight)
    assert [record["epoch"] for record in directory.read_history()] == [0, 1, 2, 3]


def test_best_weights_are_written(tmp_path: Path) -> None:
    trainer = Trainer(settings(epochs=4), Scripted([1, 6, 2, 2]), open_directory(tmp_path))
    trainer.fit(TrainLoader(), EvalLoader())
    path = open_directory(tmp_path).path / "model.safetensors"
    assert int(load_file(str(path))["n_right"]) == 6
    fresh = Trainer(settings(), Scripted([0]))
    assert fresh.evaluate(EvalLoader(), model_file=path)["hit@1"] == 6 / N_USERS


def test_nothing_is_written_when_saved_is_false(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    Trainer(settings(), Bigram(), directory).fit(TrainLoader(), EvalLoader(), saved=False)
    assert sorted(file.name for file in directory.path.iterdir()) == ["status.json"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_directory_says_why_it_stopped(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error):
        train(tmp_path, stop_after=0, error=error)
    status = json.loads(next(tmp_path.rglob("status.json")).read_text())
    assert status["state"] == "failed" and status["reason"] == f"{error.__name__}: killed"


def test_bad_loss_leaves_its_batch_in_the_directory(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    model = Bigram()
    with torch.no_grad():
        model.table.weight[3] = math.nan
    with pytest.raises(NonFiniteError):
        Trainer(settings(), model, directory).fit(TrainLoader(), EvalLoader())
    assert directory.status["state"] == "failed" and "loss part 'rec' is nan" in directory.status["reason"]
    failure = json.loads((directory.path / "failure.json").read_text())
    loader = TrainLoader()
    loader.set_epoch(failure["epoch"])
    batch = list(loader)[failure["batch"]]
    assert failure["row_ids"] == batch["row_id"].tolist() and 3 in batch["last_item"]
    assert failure["loss"]["rec"] == "nan" and failure["first_bad_tensor"] == "parameter table.weight"


def test_first_save_is_read_back_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    read = RunDirectory.read_resume

    def damaged(self: RunDirectory) -> Any:
        stored = read(self)
        if stored is not None:
            reads.append(stored[1]["next_epoch"])
            stored[0]["model"]["head.bias"][2] += 1e-6
        return stored

    monkeypatch.setattr(RunDirectory, "read_resume", damaged)
    with pytest.raises(RunDirectoryError, match="model head.bias does not come back"):
        train(tmp_path)
    assert reads == [1]  # after the first epoch


def test_only_the_first_save_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    read = RunDirectory.read_resume
    monkeypatch.setattr(RunDirectory, "read_resume", lambda self: reads.append(1) or read(self))
    train(tmp_path)
    assert len(reads) == 2  # at the start, and after the first epoch


def test_evaluation_tells_that_the_run_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = train(tmp_path, epochs=1)
    beats = []
    monkeypatch.setattr(RunDirectory, "heartbeat", lambda self: beats.append(self))
    trainer.evaluate(EvalLoader())
    assert beats == [trainer.run_directory]
