"""Runs without training: run directories made by hand, and a worker process that only writes what a run leaves."""

from __future__ import annotations

import hashlib
import io
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import numpy as np

from recbole_prism.config import Config
from recbole_prism.evaluation.metrics import compute_metrics
from recbole_prism.evaluation.ranks import Ranks
from recbole_prism.run_artifact import REQUIRED, RunArtifact, rank_arrays, read_run

# A worker without imports that take seconds. plan.json says per "name s1" where the run directory is and what to do.
_WORKER = """
import hashlib, json, os, pathlib, signal, sys, threading, time
plan_file, required = pathlib.Path(sys.argv[1]), json.loads(sys.argv[2])
arguments = json.loads(sys.stdin.readline())
entry = json.loads(plan_file.read_text())[arguments["model"] + " s" + str(arguments["config_dict"]["seed"])]
path = pathlib.Path(entry["path"])
with open(plan_file.parent / "calls.txt", "a") as calls:
    calls.write(json.dumps(arguments) + "\\n")
path.mkdir(parents=True, exist_ok=True)
attempt = len(list(path.glob("attempt-*")))
(path / f"attempt-{attempt}").touch()
if entry["do"] == "fail":
    print("a line before")
    print("error: loss is nan")
    print("  -> a cure")
    sys.exit(2)
if entry["do"] == "crash" or (entry["do"] == "crash once" and attempt == 0):
    os.kill(os.getpid(), signal.SIGKILL)
if entry["do"] == "wait" and attempt == 0:
    (path / "history.jsonl").write_text(json.dumps(
        {"epoch": 0, "train_seconds": 2.0, "valid_seconds": 1.0, "valid": {"ndcg@20": 0.25}}) + "\\n")
    sys.stdin.read()
    (path / "status.json").write_text('{"state": "failed", "reason": "KeyboardInterrupt: "}')
    sys.exit(130)
files = {}
for name in required:
    if not (path / name).exists():
        (path / name).write_text("x")
    files[name] = {"sha256": hashlib.sha256((path / name).read_bytes()).hexdigest(), "bytes": 1}
if entry["do"] != "write nothing":
    (path / "manifest.json").write_text(json.dumps({"schema_version": 1, "files": files}))
"""


def worker(plan_file: Path) -> list[str]:
    """The command of a worker that does what a file says: {"MODEL s1": {"path": ..., "do": ...}}.

    `do` is "complete", "fail", "crash", "crash once", "wait" (the first time until it is stopped, after one epoch) or
    "write nothing".
    """
    return [sys.executable, "-S", "-c", _WORKER, str(plan_file), json.dumps(REQUIRED)]


def calls(folder: Path) -> list[dict[str, Any]]:
    """What the workers of a folder's plan were called with, in the order of their starts."""
    file = folder / "calls.txt"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []


def complete_by_hand(path: Path, files: Mapping[str, bytes]) -> Path:
    """A complete run directory whose files hold the given bytes, "x" where none are given."""
    path.mkdir(parents=True)
    listed = {}
    for name in REQUIRED:
        (path / name).write_bytes(files.get(name, b"x"))
        listed[name] = {"sha256": hashlib.sha256((path / name).read_bytes()).hexdigest(), "bytes": 1}
    (path / "manifest.json").write_text(json.dumps({"schema_version": 1, "files": listed}))
    return path


def measured_run(
    folder: Path,
    model: str,
    seed: int,
    ranks: Sequence[int],
    *,
    identity: str = "0123456789ab",
    targets: Optional[Sequence[int]] = None,
    protocol: Optional[Mapping[str, Any]] = None,
    settings: Optional[Mapping[str, Any]] = None,
) -> RunArtifact:
    """A complete run whose test targets stand behind so many better items, seen items removed; one more in all.

    Args:
        folder: Where to.
        model: Its class and display name.
        seed: Its seed.
        ranks: Items that beat the target, per test row.
        identity: In its name.
        targets: Items, per test row.
        protocol: Changes of its protocol.
        settings: Changes of its settings.
    """
    greater = np.array(ranks, dtype=np.int32)
    n, zeros = len(greater), np.zeros(len(greater), dtype=np.int32)
    items = np.arange(1, n + 1, dtype=np.int32) if targets is None else np.array(targets, dtype=np.int32)
    test = Ranks(
        user=np.arange(1, n + 1, dtype=np.int32),
        target=items,
        position=zeros + 3,
        history_length=zeros + 3,
        n_greater=greater,
        n_equal=zeros,
        n_greater_all=greater + 1,
        n_equal_all=zeros,
        target_in_history=zeros.astype(bool),
        top_items=np.zeros((n, 0), dtype=np.int32),
        mask_history=True,
    )
    archive = io.BytesIO()
    np.savez(archive, **rank_arrays([("test", test)]))
    metrics = {
        key: compute_metrics(
            test, ["Hit", "NDCG"], [1, 5], mask_history=key == "masked", item_counts_train=None, n_items=101
        )
        for key in ("masked", "unmasked")
    }
    counts = {"n_users": n + 1, "n_items": 101, "n_interactions": 900, "n_train_rows": 700}
    content: dict[str, Any] = {
        "metrics.json": {
            "epoch": seed,
            "n_epochs": seed + 1,
            "valid_metric": "NDCG@20",
            "protocol": {
                "eval_args": {"split": {"LS": "valid_and_test"}, "order": "TO"},
                "mask_history": True,
                "n_candidates": 100,
                "ties": "expectation over their random order",
                **(protocol or {}),
            },
            "splits": {"test": metrics},
        },
        "dataset.json": {"name": "amazon-toys", **counts, "n_valid_rows": n, "n_test_rows": n},
        "model.json": {"name": model, "display_name": model},
        "environment.json": {"n_parameters": 1234},
        "config.yaml": {"epochs": 3, "MAX_ITEM_LIST_LENGTH": 20, **(settings or {})},
    }
    files = {name: json.dumps(value).encode() for name, value in content.items()}
    path = folder / f"{model}-{identity}-s{seed}"
    return read_run(complete_by_hand(path, {**files, "ranks.npz": archive.getvalue()}))


def config(data: Path, runs: Path, **changes: Any) -> Config:
    """Settings of a small run on a toy data set."""
    settings = {"data_path": str(data), "checkpoint_dir": str(runs), "device": "cpu", "n_threads": 1, **changes}
    return Config("SASRec", "cyclic", config_dict=settings)
