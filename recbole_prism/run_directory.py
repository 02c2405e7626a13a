"""The run directory (schema version 1): everything a run leaves behind; a half-written run is never read.

    <checkpoint_dir>/<dataset>/<Model>-<identity>-s<seed>

It exists from the start, with status.json. A run is complete when manifest.json, with the hash of each file, is there;
it is written last. status.json is not in the manifest; resume/ is deleted when a run is complete.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from safetensors import SafetensorError
from torch import Tensor

from recbole_prism import run_files
from recbole_prism.errors import RunDirectoryError
from recbole_prism.evaluation.ranks import Ranks
from recbole_prism.run_artifact import (
    MANIFEST,
    REQUIRED,
    SCHEMA_VERSION,
    STATUS,
    RunArtifact,
    Vocabulary,
    rank_arrays,
    read_run,
    read_status,
    verify,
)
from recbole_prism.run_identity import (
    class_source,
    code_version,
    compute_identity,
    describe_device,
    environment_report,
)

__all__ = [
    "RunArtifact",
    "RunDirectory",
    "Vocabulary",
    "class_source",
    "code_version",
    "compute_identity",
    "describe_device",
    "environment_report",
    "read_run",
]

logger = logging.getLogger("recbole_prism")

RESUME = "resume/state.safetensors"
HEARTBEAT_SECONDS = 30.0  # between two writes of status.json
STALE_SECONDS = 900.0  # a run on another host that gave no sign for so long is dead
_MARKS = (STATUS, MANIFEST, RESUME, "origin.json")  # a folder with none of these was not made here


class RunDirectory:
    """One run's directory, for the process that makes the run. Use `open`.

    Attributes:
        path: The directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._last_heartbeat = 0.0

    @classmethod
    def open(
        cls, checkpoint_dir: str | Path, dataset: str, model: str, identity: str, seed: int, overwrite: bool = False
    ) -> RunDirectory:
        """Claim the directory of a run.

        - New: made, state "running".
        - Complete: returned as it is (`is_complete`); nothing can be written. With `overwrite` it is moved aside to
          `<name>.replaced`, and deleted when the new run is complete: a new run that fails costs nothing.
        - Interrupted or failed: taken over, to be resumed, if there is a resume state; emptied without one, or with
          `overwrite`. (Two processes that take over within the same milliseconds are not told apart.)

        Args:
            checkpoint_dir: Root of all runs.
            dataset: Name of the data set.
            model: Class name of the model.
            identity: From `compute_identity`.
            seed: Seed of the run.
            overwrite: Start anew whatever is there.

        Raises:
            RunDirectoryError: If another live process is at it, or if the place is taken by something else.
        """
        path = cls.place(checkpoint_dir, dataset, model, identity, seed)
        directory = cls(path)
        if path.exists():
            directory._refuse_foreign()
            if directory.is_complete and not overwrite:
                return directory
            with run_files.writing(path):
                if directory.is_complete:
                    shutil.rmtree(directory.replaced, ignore_errors=True)
                    os.replace(path, directory.replaced)
                elif overwrite or not directory.is_resumable:
                    shutil.rmtree(path)
                else:
                    directory._remove_temporaries()
                    directory._write_status("running")
                    return directory
        directory._create()
        return directory

    @staticmethod
    def place(checkpoint_dir: str | Path, dataset: str, model: str, identity: str, seed: int) -> Path:
        """Where a run's directory is, or would be; arguments as for `open`."""
        return _folder(checkpoint_dir, dataset) / f"{model}-{identity}-s{seed}"

    @staticmethod
    def check_writable(checkpoint_dir: str | Path, dataset: str) -> None:
        """Make the folder of a data set's runs and try it, before anything costly is done.

        Raises:
            RunDirectoryError: Nothing can be written there.
        """
        folder = _folder(checkpoint_dir, dataset)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise RunDirectoryError(
                f"no run can be written into {folder}: {error.strerror or error}", "choose a writable --checkpoint_dir"
            ) from error

    @property
    def status(self) -> dict[str, Any]:
        """status.json: state (running, failed, complete), reason, pid, process_started, host, heartbeat; or empty."""
        return read_status(self.path)

    @property
    def is_complete(self) -> bool:
        """Whether the manifest is there."""
        return (self.path / MANIFEST).is_file()

    @property
    def is_resumable(self) -> bool:
        """Whether an unfinished run left a state to go on from."""
        return not self.is_complete and (self.path / RESUME).is_file()

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON file; NaN and infinity become null."""
        run_files.write_json(self._place(name), value)

    def write_yaml(self, name: str, value: Mapping[str, Any]) -> None:
        """Write a YAML file."""
        run_files.write_yaml(self._place(name), value)

    def write_tensors(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Write a .safetensors file."""
        run_files.write_tensors(self._place(name), tensors)

    def write_arrays(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Write an .npz file of numbers."""
        run_files.write_arrays(self._place(name), arrays)

    def write_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Write vocabulary.tsv."""
        run_files.write_text(self._place("vocabulary.tsv"), vocabulary.to_text())

    def write_ranks(self, ranks: Mapping[str, Ranks]) -> None:
        """Write ranks.npz.

        Args:
            ranks: By split: "valid", "test".
        """
        self.write_arrays("ranks.npz", rank_arrays(ranks.items()))

    def write_histories(self, items: np.ndarray, offsets: np.ndarray) -> None:
        """Write histories.npz.

        Args:
            items: All events, per user oldest first, int32 [N].
            offsets: The events of user u are items[offsets[u]:offsets[u + 1]], int64 [n_users + 1] (user 0 has none).
        """
        self.write_arrays(
            "histories.npz",
            {"items": items.astype(np.int32, copy=False), "offsets": offsets.astype(np.int64, copy=False)},
        )

    def append_history(self, record: Mapping[str, Any]) -> None:
        """Add the record of an epoch to history.jsonl."""
        self.write_history([*self.read_history(), record])
        self.heartbeat()

    def read_history(self) -> list[dict[str, Any]]:
        """Records of all epochs so far."""
        path = self.path / "history.jsonl"
        return run_files.read_json_lines(path) if path.is_file() else []

    def write_history(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Replace history.jsonl, e.g. by the records of the epochs that a resume state knows of."""
        run_files.write_json_lines(self._place("history.jsonl"), records)

    def write_resume(self, tensors: Mapping[str, Mapping[str, Tensor]], values: Mapping[str, Any]) -> None:
        """Store what a training needs to go on. One file, so that tensors and values never disagree.

        Args:
            tensors: By group and name; group names have no "/".
            values: Plain values; infinity and NaN are kept, tuples come back as lists.
        """
        flat = {f"{group}/{name}": tensor for group, named in tensors.items() for name, tensor in named.items()}
        metadata = {"groups": json.dumps(list(tensors)), "values": json.dumps(values)}
        run_files.write_tensors(self._place(RESUME), flat, metadata)
        self.heartbeat()

    def read_resume(self) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]] | None:
        """What `write_resume` stored last, on the CPU; None if there is nothing.

        Raises:
            RunDirectoryError: If the file is damaged.
        """
        if not (self.path / RESUME).is_file():
            return None
        try:
            flat, metadata = run_files.read_tensors(self.path / RESUME)
            tensors: dict[str, dict[str, Tensor]] = {group: {} for group in json.loads(metadata["groups"])}
            values = json.loads(metadata["values"])
            for key, tensor in flat.items():
                group, _, name = key.partition("/")
                tensors[group][name] = tensor
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise RunDirectoryError(f"{self.path / RESUME} is damaged: {error}", run_files.DAMAGED_CURE) from error
        return tensors, values

    def heartbeat(self) -> None:
        """Tell other hosts that this run lives. Cheap enough for every batch; says nothing of a complete run."""
        if time.monotonic() - self._last_heartbeat >= HEARTBEAT_SECONDS and not self.is_complete:
            self._write_status("running")

    def fail(self, reason: str) -> None:
        """Say why the run stopped. It can be resumed if it stored a resume state.

        Raises nothing: it is called while the reason itself is on its way to the user.
        """
        try:
            self._write_status("failed", reason)
        except Exception as error:
            cause = error.cause if isinstance(error, RunDirectoryError) else error
            logger.warning("the directory does not tell of the failure: %s", cause)

    def complete(self) -> None:
        """Declare the run complete; afterwards nothing can be written.

        Raises:
            RunDirectoryError: If one of the files of the schema is missing.
        """
        missing = [name for name in REQUIRED if not (self.path / name).is_file()]
        if missing:
            raise RunDirectoryError(
                f"{self.path} cannot be completed: {', '.join(missing)} missing", "write them first"
            )
        with run_files.writing(self.path):
            (self.path / "failure.json").unlink(missing_ok=True)  # of an attempt that a later one made good
            shutil.rmtree(self.path / "resume", ignore_errors=True)  # a complete run is never gone on from
            files = {
                file.relative_to(self.path).as_posix(): {
                    "sha256": run_files.file_hash(file),
                    "bytes": file.stat().st_size,
                }
                for file in sorted(self.path.rglob("*"))
                if file.is_file() and file.name != STATUS and not file.name.startswith(".")
            }
        self._write_status("complete")
        run_files.write_json(self.path / MANIFEST, {"schema_version": SCHEMA_VERSION, "files": files})
        shutil.rmtree(self.replaced, ignore_errors=True)

    def verify(self) -> None:
        """Check completeness and every hash; see `read_run`."""
        verify(self.path)

    @property
    def replaced(self) -> Path:
        """Where a complete run waits until the one that replaces it is complete too."""
        return self.path.with_name(self.path.name + ".replaced")

    def _place(self, name: str) -> Path:
        """Path of a file to be written."""
        if self.is_complete:
            raise RunDirectoryError(f"{self.path} is complete; {name} cannot be written", "open it with overwrite=True")
        path = self.path / name
        with run_files.writing(path):
            path.parent.mkdir(exist_ok=True)
        return path

    def _create(self) -> None:
        """Make the directory with its status in it in one step, so that of two processes one gets it."""
        draft = RunDirectory(self.path.with_name(f".{self.path.name}.{os.getpid()}.new"))
        try:
            draft.path.mkdir(parents=True, exist_ok=True)  # left by a killed process of the same number
            draft._write_status("running")
            os.rename(draft.path, self.path)
        except (OSError, RunDirectoryError) as error:
            shutil.rmtree(draft.path, ignore_errors=True)
            if isinstance(error, RunDirectoryError):
                raise
            taken = "is another process starting this run?" if self.path.exists() else ""
            raise RunDirectoryError(
                f"{self.path} cannot be made: {error}", taken or "choose a writable --checkpoint_dir"
            ) from error

    def _write_status(self, state: str, reason: str = "") -> None:
        self._last_heartbeat = time.monotonic()
        now = datetime.now(timezone.utc)
        value = {
            "schema_version": SCHEMA_VERSION,
            "state": state,
            "reason": reason,
            "pid": os.getpid(),
            "process_started": psutil.Process().create_time(),
            "host": socket.gethostname(),
            "heartbeat": now.isoformat(timespec="seconds"),
        }
        run_files.write_json(self.path / STATUS, value)

    def _refuse_foreign(self) -> None:
        """Raise if the place belongs to a live process, or is no run directory at all (it might be emptied)."""
        if not any((self.path / mark).exists() for mark in _MARKS):
            raise RunDirectoryError(f"{self.path} exists, but is no run directory", "move it away")
        status = self.status
        if not self.is_complete and status.get("state") == "running" and is_live(status):
            process, sign = f"process {status['pid']} on {status['host']}", status.get("heartbeat", "unknown")
            raise RunDirectoryError(
                f"{self.path} is used by {process}, last sign {sign}", "wait for it, or stop it first"
            )

    def _remove_temporaries(self) -> None:
        """Remove what a killed process was writing."""
        for file in self.path.rglob(".*.tmp"):
            file.unlink()


def _folder(checkpoint_dir: str | Path, dataset: str) -> Path:
    return Path(os.path.expanduser(checkpoint_dir)) / dataset  # a shell leaves the ~ of --key=~/x as it is


def is_live(status: Mapping[str, Any]) -> bool:
    """Whether the process that wrote a status still runs, and is another one than this.

    On this host the process is looked up (its start tells it from a later one with the same number); on another host
    its last sign must be fresh. A damaged status tells of no process.
    """
    try:
        if status["host"] != socket.gethostname():
            age = datetime.now(timezone.utc) - datetime.fromisoformat(status["heartbeat"])
            return "pid" in status and age.total_seconds() < STALE_SECONDS
        if status["pid"] == os.getpid():
            return False
        return abs(psutil.Process(status["pid"]).create_time() - status["process_started"]) < 2.0
    except (psutil.Error, KeyError, TypeError, ValueError, OverflowError):
        return False
