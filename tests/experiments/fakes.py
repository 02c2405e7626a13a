"""Runs without training: run directories made by hand, and a worker process that only writes what a run leaves."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any, Mapping

from recbole_prism.config import Config
from recbole_prism.run_artifact import REQUIRED

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


def complete_by_hand(path: Path, files: Mapping[str, str]) -> Path:
    """A complete run directory whose files hold the given texts, "x" where none is given."""
    path.mkdir(parents=True)
    listed = {}
    for name in REQUIRED:
        (path / name).write_text(files.get(name, "x"))
        listed[name] = {"sha256": hashlib.sha256((path / name).read_bytes()).hexdigest(), "bytes": 1}
    (path / "manifest.json").write_text(json.dumps({"schema_version": 1, "files": listed}))
    return path


def config(data: Path, runs: Path, **changes: Any) -> Config:
    """Settings of a small run on a toy data set."""
    settings = {"data_path": str(data), "checkpoint_dir": str(runs), "device": "cpu", "n_threads": 1, **changes}
    return Config("SASRec", "cyclic", config_dict=settings)
