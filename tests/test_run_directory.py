"""The run directory: what is written comes back, and nothing half-written is ever taken for a run."""

from __future__ import annotations

import errno
import json
import math
import os
import socket
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Iterator, Optional

import numpy as np
import psutil
import pytest
import torch

from recbole_prism import run_files
from recbole_prism.errors import RunDirectoryError
from recbole_prism.evaluation import Ranks
from recbole_prism.run_directory import REQUIRED, RunDirectory, Vocabulary, read_run
from recbole_prism.trainer.resume import failure_marked

VOCABULARY = Vocabulary(
    item_tokens=["[PAD]", "B-01", "007", "item 3", "tab\there", "line\nfeed\r", "back\\", "\\t", "Ä ☂", "\x85\u2028"],
    user_tokens=["[PAD]", "u1", ""],
    item_counts_train=np.arange(10),
    item_counts_all=np.arange(10) * 2,
)  # fmt: skip
HISTORY = [{"epoch": 0, "loss": 1.5, "beta": float("nan")}, {"epoch": 1, "loss": 1.25, "beta": 0.5}]


def open_run(root: Path, overwrite: bool = False, seed: int = 1) -> RunDirectory:
    return RunDirectory.open(root, "toys", "PRISM", "0123456789ab", seed, overwrite)


def some_ranks(n_rows: int) -> Ranks:
    numbers = [np.arange(n_rows, dtype=np.int32) + shift for shift in range(8)]
    lists = np.arange(n_rows * 20, dtype=np.int32).reshape(n_rows, 20)
    return Ranks(*numbers, np.arange(n_rows) % 2 == 0, lists, mask_history=True)


def write_everything(run: RunDirectory, marker: float = 0.25) -> None:
    run.write_yaml("config.yaml", {"settings": {"learning_rate": 1e-5, "topk": [5, 10]}, "origin": {"topk": "default"}})
    run.write_json("origin.json", {"recipe": None, "origin": {"topk": "default"}})
    run.write_json("model.json", {"class": "a.b:C", "properties": {"causal": True}})
    run.write_json("dataset.json", {"n_items": 10})
    run.write_vocabulary(VOCABULARY)
    for record in HISTORY:
        run.append_history(record)
    run.write_tensors("model.safetensors", {"weight": torch.full((2, 3), marker)})
    run.write_ranks({"valid": some_ranks(3), "test": some_ranks(4)})
    run.write_histories(np.array([3, 1, 2]), np.array([0, 0, 2, 3]))
    run.write_json("metrics.json", {"test": {"ndcg@10": np.float64(1 / 3)}})
    run.write_json("environment.json", {"threads": np.int64(1)})


def complete_run(root: Path, marker: float = 0.25) -> Path:
    run = open_run(root)
    write_everything(run, marker)
    run.complete()
    return run.path


def set_status(run: RunDirectory, **values: Any) -> None:
    run_files.write_json(run.path / "status.json", {**run.status, **values})


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    path = complete_run(tmp_path)
    assert path == tmp_path / "toys" / "PRISM-0123456789ab-s1"
    run = read_run(path)
    assert run.config == {"settings": {"learning_rate": 1e-5, "topk": [5, 10]}, "origin": {"topk": "default"}}
    assert run.model["properties"] == {"causal": True} and run.dataset == {"n_items": 10}
    assert run.metrics == {"test": {"ndcg@10": 1 / 3}}  # full precision
    assert run.history == [{"epoch": 0, "loss": 1.5, "beta": None}, HISTORY[1]]
    assert torch.equal(run.weights()["weight"], torch.full((2, 3), 0.25))
    for split, n_rows in (("valid", 3), ("test", 4)):
        for name, array in run.ranks(split).to_arrays().items():
            np.testing.assert_array_equal(array, some_ranks(n_rows).to_arrays()[name])
    items, offsets = run.histories
    assert items[offsets[1] : offsets[2]].tolist() == [3, 1] and items.dtype == np.int32 and offsets.dtype == np.int64
    assert run.vocabulary.item_tokens == VOCABULARY.item_tokens
    assert run.vocabulary.user_tokens == VOCABULARY.user_tokens
    np.testing.assert_array_equal(run.vocabulary.item_counts_train, VOCABULARY.item_counts_train)
    np.testing.assert_array_equal(run.vocabulary.item_counts_all, VOCABULARY.item_counts_all)
    assert RunDirectory(path).status["state"] == "complete"
    assert sorted(file.name for file in path.rglob("*") if file.name.startswith(".")) == []  # no temporary is left


def test_what_was_left_out_is_said(tmp_path: Path) -> None:
    run = open_run(tmp_path)
    write_everything(run)
    (run.path / "histories.npz").unlink()
    run.write_ranks({"test": some_ranks(4)})
    run.complete()
    with pytest.raises(RunDirectoryError, match="save_histories"):
        _ = read_run(run.path).histories
    with pytest.raises(RunDirectoryError, match="no ranks of the split 'valid'"):
        read_run(run.path).ranks("valid")


class Killed(BaseException):
    """Stands for the end of the process."""


def test_killed_at_any_moment_it_is_never_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop before the first rename, the second, ... until the run gets through."""
    real = os.replace
    for n_allowed in range(100):
        done = 0

        def replace(source: Any, target: Any, n_allowed: int = n_allowed) -> None:
            nonlocal done
            if done == n_allowed:
                raise Killed
            done += 1
            real(source, target)

        root = tmp_path / str(n_allowed)
        monkeypatch.setattr(os, "replace", replace)
        try:
            complete_run(root)
        except Killed:
            monkeypatch.setattr(os, "replace", real)
            path = root / "toys" / "PRISM-0123456789ab-s1"
            with pytest.raises(RunDirectoryError):
                read_run(path)
            assert not (path / "manifest.json").exists()
            assert read_run(complete_run(root)).metrics  # the next attempt is not in its own way
        else:
            break
    assert n_allowed == len(REQUIRED) + 6  # and histories, a second history record, three states, the manifest
    read_run(path)


def test_a_missing_file_prevents_completion(tmp_path: Path) -> None:
    run = open_run(tmp_path)
    write_everything(run)
    (run.path / "metrics.json").unlink()
    with pytest.raises(RunDirectoryError, match="metrics.json missing"):
        run.complete()
    assert not run.is_complete


def test_an_incomplete_run_is_not_read(tmp_path: Path) -> None:
    run = open_run(tmp_path)
    with pytest.raises(RunDirectoryError, match="its state is 'running'"):
        read_run(run.path)
    run.fail("no memory left")
    with pytest.raises(RunDirectoryError, match="its state is 'failed'"):
        read_run(run.path)
    assert run.status["reason"] == "no memory left"
    with pytest.raises(RunDirectoryError, match="no directory"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(RunDirectoryError, match="no status.json"):
        read_run(tmp_path)


@pytest.mark.parametrize("name", [*REQUIRED, "histories.npz"])
def test_damage_is_named(name: str, tmp_path: Path) -> None:
    path = complete_run(tmp_path)
    contents = bytearray((path / name).read_bytes())
    contents[len(contents) // 2] ^= 1
    (path / name).write_bytes(contents)
    with pytest.raises(RunDirectoryError, match=f"{name} is damaged"):
        read_run(path)
    (path / name).unlink()
    with pytest.raises(RunDirectoryError, match=f"{name} is missing"):
        read_run(path)


def test_manifest_damaged_or_of_another_schema(tmp_path: Path) -> None:
    path = complete_run(tmp_path)
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, "schema_version": 2}))
    with pytest.raises(RunDirectoryError, match="schema version 2; this package reads 1"):
        read_run(path)
    (path / "manifest.json").write_text("{")
    with pytest.raises(RunDirectoryError, match="manifest.json cannot be read"):
        read_run(path)


@pytest.mark.parametrize(
    "text",
    ["[]", "{}", '{"schema_version": 1}', '{"schema_version": 1, "files": {}}', '{"schema_version": 1, "files": []}',
     '{"schema_version": 1, "files": {"metrics.json": "a hash"}}', '{"schema_version": 1, "files": {"a": {}}}', "7"],
)  # fmt: skip
def test_manifest_of_another_form_is_damaged(tmp_path: Path, text: str) -> None:
    path = complete_run(tmp_path)
    (path / "manifest.json").write_text(text)
    with pytest.raises(RunDirectoryError, match=r"manifest.json is damaged[^$]*--overwrite"):
        read_run(path)


BAD_STATUS = (
    None, "", "[1]", "{}", '{"state": "running"}',
    '{"state": "running", "host": "elsewhere", "pid": 1, "heartbeat": "soon"}',
    '{"state": "running", "host": "elsewhere", "pid": 1, "heartbeat": "2999-01-01"}',
)  # fmt: skip


@pytest.mark.parametrize("text", BAD_STATUS)
def test_a_damaged_status_stops_nothing(tmp_path: Path, text: Optional[str]) -> None:
    def damage(run: RunDirectory) -> None:
        (run.path / "status.json").unlink()
        if text is not None:
            (run.path / "status.json").write_text(text)

    run = open_run(tmp_path)
    run.append_history(HISTORY[0])
    run.write_resume({"model": {"w": torch.ones(1)}}, {"epoch": 1})
    damage(run)
    with pytest.raises(RunDirectoryError, match="no complete run"):
        read_run(run.path)
    run = open_run(tmp_path)
    assert run.is_resumable and run.status["state"] == "running"
    damage(run)
    run = open_run(tmp_path, overwrite=True)
    assert not run.is_resumable
    write_everything(run)
    run.complete()
    damage(run)
    assert open_run(tmp_path).is_complete
    read_run(run.path)
    assert not open_run(tmp_path, overwrite=True).is_complete


def test_a_removed_manifest_is_named(tmp_path: Path) -> None:
    path = complete_run(tmp_path)
    (path / "manifest.json").unlink()
    with pytest.raises(RunDirectoryError, match="no complete run: manifest.json is missing"):
        read_run(path)


def test_a_damaged_history_is_named(tmp_path: Path) -> None:
    run = open_run(tmp_path)
    run.append_history(HISTORY[1])
    for text in ('{"epoch": 0, "lo', "5\n"):
        (run.path / "history.jsonl").write_text(text)
        with pytest.raises(RunDirectoryError, match=r"history.jsonl [^$]*--overwrite"):
            run.read_history()


def test_a_full_disk_is_said_and_a_failure_never_hides_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    run = open_run(tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunDirectoryError, match=r"metrics.json cannot be written: No space left[^$]*-> make room"):
        run.write_json("metrics.json", {})
    with pytest.raises(RunDirectoryError, match="make room"):
        open_run(tmp_path, seed=2)
    with pytest.raises(KeyError, match="the reason"), failure_marked(run):
        raise KeyError("the reason")
    assert "does not tell of the failure" in caplog.text
    assert sorted(file.name for file in tmp_path.rglob("*") if file.is_file()) == ["status.json"]


def test_a_complete_run_keeps_neither_resume_state_nor_an_old_failure(tmp_path: Path) -> None:
    run = open_run(tmp_path)
    run.write_resume({"model": {"w": torch.ones(1)}}, {})
    run.write_json("failure.json", {"part": "rec"})
    write_everything(run)
    run.complete()
    assert not (run.path / "resume").exists() and not (run.path / "failure.json").exists()
    read_run(run.path)


def test_a_complete_run_is_handed_out_and_cannot_be_written(tmp_path: Path) -> None:
    path = complete_run(tmp_path)
    run = open_run(tmp_path)
    assert run.is_complete and not run.is_resumable and run.path == path
    with pytest.raises(RunDirectoryError, match="metrics.json cannot be written"):
        run.write_json("metrics.json", {})
    with pytest.raises(RunDirectoryError, match="cannot be written"):
        run.append_history({})
    read_run(path)


def test_overwriting_keeps_the_old_run_until_the_new_one_is_complete(tmp_path: Path) -> None:
    path = complete_run(tmp_path, marker=1.0)
    old = path.with_name(path.name + ".replaced")
    open_run(tmp_path, overwrite=True).fail("at once")
    assert read_run(old).weights()["weight"][0, 0] == 1.0
    run = open_run(tmp_path, overwrite=True)  # a second attempt replaces the failed one only
    assert read_run(old).weights()["weight"][0, 0] == 1.0
    write_everything(run, marker=2.0)
    run.complete()
    assert not old.exists()
    assert read_run(path).weights()["weight"][0, 0] == 2.0


def test_an_interrupted_run_is_taken_over(tmp_path: Path) -> None:
    run = open_run(tmp_path)
    run.append_history(HISTORY[0])
    run.write_resume({"model": {"w": torch.ones(1)}}, {"epoch": 1})
    (run.path / ".model.safetensors.123.tmp").write_bytes(b"half a file")
    again = open_run(tmp_path)
    assert again.is_resumable and again.status["state"] == "running"
    assert again.read_resume() == ({"model": {"w": torch.ones(1)}}, {"epoch": 1})
    assert len(again.read_history()) == 1
    assert not list(run.path.glob(".*"))
    assert not open_run(tmp_path, overwrite=True).is_resumable


def test_without_resume_state_nothing_of_the_first_attempt_stays(tmp_path: Path) -> None:
    run = open_run(tmp_path)
    run.append_history(HISTORY[0])
    again = open_run(tmp_path)
    assert not again.is_resumable and again.read_history() == [] and again.read_resume() is None


def test_history_is_cut_back(tmp_path: Path) -> None:
    run = open_run(tmp_path)
    for record in HISTORY:
        run.append_history(record)
    run.write_history(run.read_history()[:1])
    assert [record["epoch"] for record in run.read_history()] == [0]


def test_resume_state_comes_back_exactly(tmp_path: Path) -> None:
    table = torch.randn(4, 3)
    tensors = {
        "model": {"a/b.weight": table, "tied.weight": table, "view": table[1:, :2], "scalar": torch.tensor(2.5)},
        "optimizer": {},
        "random": {"torch": torch.get_rng_state(), "state": torch.tensor([2**40, -1]), "none": torch.zeros(0)},
        "kept": {"mask": torch.tensor([True, False]), "half": torch.ones(2, dtype=torch.bfloat16)},
    }
    values = {"best": -math.inf, "big": 2**70, "text": "ä", "nothing": None, "nested": [{"lr": 1e-3}]}
    run = open_run(tmp_path)
    run.write_resume(tensors, values)
    stored, stored_values = run.read_resume()
    assert stored_values == values
    assert {group: list(sorted(named)) for group, named in stored.items()} == {
        group: sorted(named) for group, named in tensors.items()
    }
    for group, named in tensors.items():
        for name, tensor in named.items():
            assert stored[group][name].dtype == tensor.dtype
            assert torch.equal(stored[group][name], tensor)


def test_a_damaged_resume_state_is_named(tmp_path: Path) -> None:
    run = open_run(tmp_path)
    run.write_resume({"model": {"w": torch.ones(100)}}, {})
    file = run.path / "resume" / "state.safetensors"
    file.write_bytes(file.read_bytes()[:-50])
    with pytest.raises(RunDirectoryError, match=r"state.safetensors is damaged[^$]*--overwrite"):
        run.read_resume()


@pytest.fixture
def other_process() -> Iterator[psutil.Process]:
    """A living process that is not this one."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield psutil.Process(process.pid)
    process.kill()
    process.wait()


def test_a_live_process_keeps_its_directory(tmp_path: Path, other_process: psutil.Process) -> None:
    run = open_run(tmp_path)
    set_status(run, pid=other_process.pid, process_started=other_process.create_time())
    for overwrite in (False, True):
        with pytest.raises(RunDirectoryError, match=f"used by process {other_process.pid}"):
            open_run(tmp_path, overwrite)
    set_status(run, process_started=other_process.create_time() - 1000)  # the number was given to a later process
    open_run(tmp_path)


def test_a_dead_process_does_not(tmp_path: Path, other_process: psutil.Process) -> None:
    run = open_run(tmp_path)
    set_status(run, pid=other_process.pid, process_started=other_process.create_time())
    other_process.kill()
    other_process.wait()
    open_run(tmp_path)


def test_on_another_host_the_last_sign_decides(tmp_path: Path) -> None:
    run = open_run(tmp_path)
    set_status(run, host=socket.gethostname() + "-other")
    with pytest.raises(RunDirectoryError, match="-other"):
        open_run(tmp_path)
    set_status(run, heartbeat=(datetime.now(timezone.utc) - timedelta(hours=1)).isoformat())
    open_run(tmp_path)


def test_heartbeat_is_written_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = open_run(tmp_path)
    set_status(run, heartbeat="long ago")
    run.heartbeat()
    assert run.status["heartbeat"] != "long ago"  # the first call of an object writes
    set_status(run, heartbeat="long ago")
    run.heartbeat()
    assert run.status["heartbeat"] == "long ago"
    monkeypatch.setattr("recbole_prism.run_directory.HEARTBEAT_SECONDS", 0.0)
    run.heartbeat()
    assert run.status["heartbeat"] != "long ago"


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    foreign = tmp_path / "toys" / "PRISM-0123456789ab-s1"
    foreign.mkdir(parents=True)
    (foreign / "thesis.tex").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(RunDirectoryError, match="no run directory"):
            open_run(tmp_path, overwrite)
    assert (foreign / "thesis.tex").read_text() == "years of work"


def test_an_unusable_place_is_said(tmp_path: Path) -> None:
    (tmp_path / "toys").write_text("a file where a folder should be")
    with pytest.raises(RunDirectoryError, match="cannot be made"):
        open_run(tmp_path)


def test_values_that_are_not_plain_are_named(tmp_path: Path) -> None:
    run = open_run(tmp_path)
    with pytest.raises(RunDirectoryError, match=r"test\.hit\[1\] is of type Tensor"):
        run.write_json("metrics.json", {"test": {"hit": [1, torch.ones(1)]}})
    with pytest.raises(RunDirectoryError, match="tokens hold Python objects"):
        run.write_arrays("ranks.npz", {"tokens": np.array(["a", None], dtype=object)})
    assert not list(run.path.glob("*.npz")) and not (run.path / "metrics.json").exists()


def test_heartbeat_leaves_a_complete_run_alone(tmp_path: Path) -> None:
    run = RunDirectory(complete_run(tmp_path))
    run.heartbeat()
    assert run.status["state"] == "complete"
