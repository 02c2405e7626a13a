"""Slim copies: small, checked, without places of a machine, and still good for tables and comparisons."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from recbole_prism.errors import RunDirectoryError
from recbole_prism.experiments.slim import slim_copy
from recbole_prism.quick_start import load, run
from recbole_prism.run_files import file_hash
from recbole_prism.run_store import inspect


@pytest.fixture(scope="module")
def original(toy_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("a place of this machine")
    (folder / "file.yaml").write_text("{epochs: 1, hidden_size: 8, inner_size: 8, n_layers: 1}")
    settings = {"data_path": str(toy_path), "checkpoint_dir": str(folder), "device": "cpu", "MAX_ITEM_LIST_LENGTH": 5}
    return Path(run("SASRec", "cyclic", [str(folder / "file.yaml")], settings)["run_directory"])


def test_a_slim_copy_is_a_run_that_tables_can_read(original: Path, tmp_path: Path) -> None:
    copy, was_there = slim_copy(original, tmp_path / "results")
    assert copy == tmp_path / "results/cyclic" / original.name and not was_there
    assert inspect(copy).state == "complete"
    slim, full = load_pair(copy, original)
    for name in ("metrics", "model", "dataset", "history", "environment"):
        assert getattr(slim, name) == getattr(full, name)
    for name, array in slim.ranks("test").to_arrays().items():
        if name != "top_items":
            np.testing.assert_array_equal(array, full.ranks("test").to_arrays()[name])
    assert slim.ranks("test").top_items.shape == (60, 0)
    manifest = json.loads((copy / "manifest.json").read_text())
    assert manifest["slim"] == {"of": file_hash(original / "manifest.json")}


def load_pair(copy: Path, original: Path):  # type: ignore[no-untyped-def]
    from recbole_prism.run_directory import read_run

    return read_run(copy), read_run(original)


def test_a_slim_copy_holds_no_weights_ids_or_places(original: Path, tmp_path: Path) -> None:
    copy, _ = slim_copy(original, tmp_path)
    names = {file.name for file in copy.rglob("*")}
    assert not names & {"model.safetensors", "vocabulary.tsv", "histories.npz", "run.log", "resume", "status.json"}
    for file in copy.glob("*.*"):
        assert str(original.parents[1]).encode() not in file.read_bytes(), file.name
    assert json.loads((copy / "origin.json").read_text())["origin"]["epochs"] == "file file.yaml"
    slim, _ = load_pair(copy, original)
    with pytest.raises(RunDirectoryError, match="slim copy without vocabulary.tsv"):
        slim.vocabulary  # noqa: B018
    with pytest.raises(RunDirectoryError, match=r"slim copy without model\.safetensors"):
        slim.weights()
    with pytest.raises(RunDirectoryError, match="slim copy"):
        load(copy, "cpu")


def test_a_copy_is_made_once_and_never_over_something_else(original: Path, tmp_path: Path) -> None:
    copy, _ = slim_copy(original, tmp_path)
    before = (copy / "manifest.json").read_bytes()
    assert slim_copy(original, tmp_path) == (copy, True)
    again, was_there = slim_copy(copy, tmp_path / "further")  # a copy of a copy is the same
    assert not was_there and json.loads((again / "manifest.json").read_text())["slim"] == json.loads(before)["slim"]
    manifest = json.loads(before)
    manifest["slim"]["of"] = "0" * 64
    (copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(RunDirectoryError, match="not a copy of"):
        slim_copy(original, tmp_path)


def test_a_changed_copy_and_an_unfinished_run_are_refused(original: Path, tmp_path: Path) -> None:
    copy, _ = slim_copy(original, tmp_path)
    (copy / "metrics.json").write_text("{}")
    assert inspect(copy).state == "damaged"
    (tmp_path / "unfinished").mkdir()
    with pytest.raises(RunDirectoryError, match="no complete run"):
        slim_copy(tmp_path / "unfinished", tmp_path)
