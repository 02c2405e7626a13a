"""Runs found by their settings, and what is said of a place in every state that a run can leave it in."""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path
from typing import Any

import psutil
import pytest

from recbole_prism import run_store
from recbole_prism.quick_start import run
from recbole_prism.run_store import RunProgress, RunSpec, RunStore, find_runs, inspect, progress_of
from tests import toy
from tests.experiments import fakes


@pytest.fixture(scope="module")
def finished(toy_path: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunSpec, Path]:
    """One real run of the store, and where it says it is."""
    settings = {"data_path": str(toy_path), "checkpoint_dir": str(tmp_path_factory.mktemp("runs")), "device": "cpu"}
    small = {"hidden_size": 8, "inner_size": 8, "n_layers": 1, "epochs": 1, "MAX_ITEM_LIST_LENGTH": 5}
    spec = RunSpec("name", "SASRec", "short", 7, {**settings, **small, "topk": [5], "valid_metric": "NDCG@5"})
    return spec, Path(run(**spec.arguments())["run_directory"])


def test_the_store_knows_where_a_run_goes_before_it_is_made(finished: tuple[RunSpec, Path]) -> None:
    spec, path = finished
    assert RunStore().place(spec.config()) == path
    assert inspect(path) == run_store.RunState(path, "complete")
    assert path.name.endswith("-s7") and path.parent.name == "short"


def test_settings_seed_and_data_make_other_places_and_the_machine_does_not(
    finished: tuple[RunSpec, Path], tmp_path: Path
) -> None:
    spec, path = finished
    store = RunStore()

    def place(seed: int = 7, **changes: Any) -> Path:
        return store.place(RunSpec("another name", "SASRec", "short", seed, {**spec.settings, **changes}).config())

    assert place(n_threads=1, worker=0, show_progress=False) == path
    others = {place(seed=8), place(epochs=2), place(MAX_ITEM_LIST_LENGTH=4), place(hidden_size=4)}
    assert len(others | {path}) == 5
    events = toy.short()
    toy.write_inter(tmp_path, "short", [*events[:-1], (events[-1][0], "a", events[-1][2])])
    assert place(data_path=str(tmp_path)).name != path.name
    shutil.copytree(Path(spec.settings["data_path"]) / "short", tmp_path / "copy/short")
    assert place(data_path=str(tmp_path / "copy")) == path  # the same data elsewhere


def test_data_is_read_once_for_all_models_and_trainings(
    toy_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    original = run_store.SequentialDataset
    monkeypatch.setattr(run_store, "SequentialDataset", lambda config: reads.append(1) or original(config))
    store = RunStore()
    places = [store.place(fakes.config(toy_path, tmp_path, **changes)) for changes in ({}, {"epochs": 3}, {"seed": 1})]
    assert len(set(places)) == 3 and len(reads) == 1
    store.place(fakes.config(toy_path, tmp_path, MAX_ITEM_LIST_LENGTH=3))
    assert len(reads) == 2


def status(path: Path, **values: Any) -> Path:
    path.mkdir()
    (path / "status.json").write_text(json.dumps(values))
    return path


def test_every_state_of_a_place_has_its_name(tmp_path: Path) -> None:
    assert inspect(tmp_path / "nothing").state == "missing"
    host = socket.gethostname()
    parent = psutil.Process(os.getppid())
    live = {"pid": parent.pid, "process_started": parent.create_time(), "host": host, "state": "running"}
    assert inspect(status(tmp_path / "live", **live)).state == "running"
    stale = {**live, "process_started": 1.0, "heartbeat": "2020-01-01T00:00:00+00:00"}
    assert inspect(status(tmp_path / "stale", **stale)).state == "interrupted"
    elsewhere = {**live, "host": "another host", "heartbeat": "2020-01-01T00:00:00+00:00"}
    assert inspect(status(tmp_path / "elsewhere", **elsewhere)).state == "interrupted"  # no sign for years
    failed = inspect(status(tmp_path / "failed", state="failed", reason="NonFiniteError: nan"))
    assert (failed.state, failed.reason) == ("failed", "NonFiniteError: nan")
    stopped = inspect(status(tmp_path / "stopped", state="failed", reason="KeyboardInterrupt: "))
    assert stopped.state == "interrupted"
    (tmp_path / "empty").mkdir()
    assert inspect(tmp_path / "empty").state == "interrupted"
    whole = fakes.complete_by_hand(tmp_path / "whole", {})
    assert inspect(whole).state == "complete"
    (whole / "ranks.npz").write_text("y")
    assert inspect(whole).state == "damaged" and "ranks.npz" in inspect(whole).reason


def test_a_half_written_or_damaged_run_is_never_found(finished: tuple[RunSpec, Path], tmp_path: Path) -> None:
    _, path = finished
    for name in ("good", "damaged", "half", "good.replaced"):
        shutil.copytree(path, tmp_path / "data" / name)
    (tmp_path / "data/damaged/metrics.json").write_text("{}")
    (tmp_path / "data/half/manifest.json").unlink()
    assert [artifact.path.name for artifact in find_runs(tmp_path)] == ["good"]


def record(epoch: int, score: Any, train: float = 2.0) -> str:
    valid = None if score is None else {"ndcg@20": score}
    return json.dumps({"epoch": epoch, "train_seconds": train, "valid_seconds": 1.0, "valid": valid}) + "\n"


def test_progress_is_read_from_the_history(tmp_path: Path) -> None:
    assert progress_of(tmp_path, "NDCG@20") == RunProgress()
    lines = [record(0, 0.1), record(1, None, train=4.0), record(2, 0.3), record(3, 0.2), record(4, 0.3)]
    (tmp_path / "history.jsonl").write_text("".join(lines))
    progress = progress_of(tmp_path, "NDCG@20")
    assert progress == RunProgress(n_epochs=5, seconds=17.0, best=0.3, best_epoch=2, n_waited=2)
    assert progress.seconds_per_epoch == pytest.approx(3.4)
    assert progress_of(tmp_path, "NDCG@20", bigger=False).best_epoch == 0
    (tmp_path / "history.jsonl").write_text(lines[0] + '{"epoch": 1, "train')  # torn
    assert progress_of(tmp_path, "NDCG@20") == RunProgress()
