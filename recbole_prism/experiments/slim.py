"""Slim copies of run directories: what tables and comparisons read, without weights, state, raw ids and paths."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from recbole_prism import run_files
from recbole_prism.errors import RunDirectoryError
from recbole_prism.run_artifact import MANIFEST, SCHEMA_VERSION, SLIM, RunArtifact, rank_arrays, read_run

_COPIED = ("model.json", "dataset.json", "metrics.json", "history.jsonl", "environment.json")
_PLACES = {"data_path": "dataset/", "checkpoint_dir": "saved"}  # settings that are paths of one machine
_FILE = "file "  # how an origin begins that names a settings file with its path


def slim_copy(path: Path, folder: Path) -> tuple[Path, bool]:
    """Copy a complete run without its weights, histories, raw ids, recommended lists, validation ranks, log and paths.

    The copy is a run directory of its own, read by `read_run`; its manifest holds under "slim" the SHA-256 of the
    manifest it was made from.

    Args:
        path: The run directory; a slim copy is copied as it is.
        folder: Where to; the copy is <folder>/<data set>/<name of the run>.

    Returns:
        The copy, and whether it was there already.

    Raises:
        RunDirectoryError: The run is not complete, or another one is in the copy's place.
    """
    run = read_run(path)
    origin = _origin(run)
    target = folder / str(run.config["dataset"]) / path.resolve().name
    if target.exists():
        if (target / MANIFEST).is_file() and _origin(read_run(target)) == origin:
            return target, True
        raise RunDirectoryError(f"{target} is there, and not a copy of {path}", "move it away")
    draft = target.with_name(f".{target.name}.{os.getpid()}.new")
    with run_files.writing(draft):
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        try:
            _fill(run, draft, origin)
            os.rename(draft, target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return target, False


def _origin(run: RunArtifact) -> str:
    """SHA-256 (hex) of the manifest of the run that a run is a copy of; of its own one for an original."""
    manifest = run_files.read_json(run.path / MANIFEST)
    return manifest[SLIM]["of"] if SLIM in manifest else run_files.file_hash(run.path / MANIFEST)


def _fill(run: RunArtifact, draft: Path, origin: str) -> None:
    for name in _COPIED:
        shutil.copyfile(run.path / name, draft / name)
    run_files.write_yaml(draft / "config.yaml", {**run.config, **_PLACES})
    run_files.write_json(draft / "origin.json", _without_folders(run_files.read_json(run.path / "origin.json")))
    test = run.ranks("test")
    lists = np.zeros((len(test), 0), dtype=np.int32)
    arrays = rank_arrays([("test", replace(test, top_items=lists))])
    run_files.write_arrays(draft / "ranks.npz", arrays, compressed=True)
    files = {
        file.name: {"sha256": run_files.file_hash(file), "bytes": file.stat().st_size}
        for file in sorted(draft.iterdir())
    }
    manifest = {"schema_version": SCHEMA_VERSION, SLIM: {"of": origin}, "files": files}
    run_files.write_json(draft / MANIFEST, manifest)


def _without_folders(origins: Mapping[str, Any]) -> dict[str, Any]:
    """The contents of origin.json, settings files by their names alone."""
    named = {
        key: _FILE + os.path.basename(text[len(_FILE) :]) if text.startswith(_FILE) else text
        for key, text in origins["origin"].items()
    }
    return {**origins, "origin": named}
