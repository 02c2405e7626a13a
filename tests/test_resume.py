"""A run that is killed and started again equals one that never stopped, with real models, data and directories."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import recbole_prism
from recbole_prism.quick_start import run
from recbole_prism.run_directory import RunDirectory, read_run
from recbole_prism.run_files import read_tensors

CLOCKS = ("train_seconds", "valid_seconds", "cpu_seconds", "rows_per_second", "peak_memory_mb")


LAST_STATE = "../last_state.safetensors"  # beside the run directory


@pytest.fixture(autouse=True)
def keep_last_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the state after the last epoch (weights, optimizer, random states), which a complete run deletes."""
    complete = RunDirectory.complete

    def keeping(self: RunDirectory) -> None:
        shutil.copy(self.path / "resume" / "state.safetensors", self.path / LAST_STATE)
        complete(self)
        assert not (self.path / "resume").exists()

    monkeypatch.setattr(RunDirectory, "complete", keeping)


def arguments(data: Path, runs: Path) -> dict[str, Any]:
    return {
        "data_path": str(data),
        "checkpoint_dir": str(runs),
        "device": "cpu",
        "epochs": 4,
        "learning_rate": 0.01,
        "MAX_ITEM_LIST_LENGTH": 12,
    }


def train(data: Path, runs: Path, model: str) -> Path:
    return Path(run(model, "cyclic", config_dict=arguments(data, runs))["run_directory"])


def assert_equal_runs(straight: Path, resumed: Path) -> None:
    """Everything but clocks is the same, to the last bit."""
    one, other = read_run(straight), read_run(resumed)
    histories = [
        [{key: value for key, value in record.items() if key not in CLOCKS} for record in run.history]
        for run in (one, other)
    ]
    assert histories[0] == histories[1] and len(histories[0]) == 4
    for split in ("valid", "test"):
        for protocol in ("masked", "unmasked"):
            assert one.metrics["splits"][split][protocol] == other.metrics["splits"][split][protocol]
    for name in ("model.safetensors", LAST_STATE):
        tensors, again = read_tensors(straight / name)[0], read_tensors(resumed / name)[0]
        assert tensors.keys() == again.keys()
        for key, tensor in tensors.items():
            assert torch.equal(tensor, again[key]), (name, key)


def interrupt_at(monkeypatch: pytest.MonkeyPatch, epoch: int, error: BaseException, before_the_state: bool) -> None:
    """Raise when the state of an epoch is about to be, or has been, written."""
    write = RunDirectory.write_resume

    def interrupted(self: RunDirectory, tensors: Any, values: Any) -> None:
        if values["next_epoch"] == epoch + 1 and before_the_state:
            raise error
        write(self, tensors, values)
        if values["next_epoch"] == epoch + 1:
            raise error

    monkeypatch.setattr(RunDirectory, "write_resume", interrupted)


@pytest.mark.parametrize("model", ["PRISM", "GRU4Rec", "BERT4Rec", "recbole:GRU4Rec", "ICLRec"])
def test_interrupted_run_goes_on_as_if_nothing_had_happened(
    toy_path: Path, tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = train(toy_path, tmp_path / "straight", model)
    with monkeypatch.context() as patch:
        interrupt_at(patch, 1, KeyboardInterrupt(), before_the_state=False)
        with pytest.raises(KeyboardInterrupt):
            train(toy_path, tmp_path / "cut", model)
    status = json.loads(next((tmp_path / "cut").rglob("status.json")).read_text())
    assert status["state"] == "failed" and status["reason"].startswith("KeyboardInterrupt")
    resumed = train(toy_path, tmp_path / "cut", model)
    assert "going on with epoch 2" in (resumed / "run.log").read_text()
    assert_equal_runs(straight, resumed)


def test_epoch_between_history_and_state_is_trained_again(
    toy_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = train(toy_path, tmp_path / "straight", "SASRec")
    with monkeypatch.context() as patch:
        interrupt_at(patch, 2, RuntimeError("no space"), before_the_state=True)
        with pytest.raises(RuntimeError):
            train(toy_path, tmp_path / "cut", "SASRec")
    assert_equal_runs(straight, train(toy_path, tmp_path / "cut", "SASRec"))


def test_process_killed_without_warning_leaves_a_run_that_another_process_finishes(
    toy_path: Path, tmp_path: Path
) -> None:
    straight = train(toy_path, tmp_path / "straight", "GRU4Rec")
    code = f"""
import os, signal
from recbole_prism.quick_start import run
from recbole_prism.run_directory import RunDirectory
write = RunDirectory.write_resume
def killed(self, tensors, values):
    write(self, tensors, values)
    if values["next_epoch"] == 2:
        os.kill(os.getpid(), signal.SIGKILL)
RunDirectory.write_resume = killed
run("GRU4Rec", "cyclic", config_dict={arguments(toy_path, tmp_path / "cut")!r})
"""
    checkout = str(Path(recbole_prism.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": checkout, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    status = json.loads(next((tmp_path / "cut").rglob("status.json")).read_text())
    assert status["state"] == "running"  # nobody was left to say otherwise
    assert_equal_runs(straight, train(toy_path, tmp_path / "cut", "GRU4Rec"))
