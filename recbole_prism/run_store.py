"""Run directories as a store: where the run of given settings is, and how far it came.

The index is the directory's name: model, hash of settings, data and code, seed (`quick_start.identity_of`). Nothing
else is kept, so nothing can disagree with the run directories themselves.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterator, Mapping, Optional, Union

from recbole.utils.argument_list import dataset_arguments

from recbole_prism.config import Config
from recbole_prism.data.dataset import SequentialDataset
from recbole_prism.data.dataset_info import DatasetInfo
from recbole_prism.data.prepare import config_with_data
from recbole_prism.errors import RunDirectoryError
from recbole_prism.quick_start import identity_of
from recbole_prism.run_artifact import MANIFEST, RunArtifact, read_run, read_status, verify
from recbole_prism.run_directory import RunDirectory, is_live
from recbole_prism.run_files import read_json_lines

MISSING, RUNNING, INTERRUPTED, FAILED, DAMAGED, COMPLETE = (
    "missing", "running", "interrupted", "failed", "damaged", "complete",
)  # fmt: skip
# Settings that decide which rows there are; equal ones share a fingerprint
_ROW_SETTINGS = sorted({*dataset_arguments, "dataset", "data_path", "encoding", "numerical_features", "eval_args"})


@dataclass(frozen=True)
class RunSpec:
    """One run to be made: what `quick_start.run` is to be called with.

    Attributes:
        name: What it is called in a queue; says nothing about the numbers.
        model: As in `--model=`.
        dataset: Name of the data set.
        seed: Its seed.
        settings: All other settings.
        files: Settings files, the last one strongest; weaker than `settings`.
    """

    name: str
    model: str
    dataset: str
    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Name and seed: unique in a queue."""
        return f"{self.name} s{self.seed}"

    def arguments(self) -> dict[str, Any]:
        """Arguments of `quick_start.run` as plain values."""
        return {
            "model": self.model,
            "dataset": self.dataset,
            "config_file_list": list(self.files),
            "config_dict": {**self.settings, "seed": self.seed},
        }

    def config(self) -> Config:
        """The checked settings; a known data set without its file is prepared.

        Raises:
            RecBolePrismError: As `Config`.
        """
        return config_with_data(**self.arguments())


@dataclass(frozen=True)
class RunState:
    """What is in the place of a run.

    Attributes:
        path: The run directory.
        state: "missing", "running" (a live process is at it), "interrupted" (killed, stopped or given up: it goes on),
            "failed" (it said why), "damaged" (complete once, but a file is not what was written) or "complete".
        reason: In words, for all but missing and complete.
    """

    path: Path
    state: str
    reason: str = ""


@dataclass(frozen=True)
class RunProgress:
    """How far a run is, from history.jsonl.

    Attributes:
        n_epochs: Finished epochs.
        seconds: Wall-clock seconds of all of them.
        best: Best validation score so far, None before the first.
        best_epoch: Its epoch.
        n_waited: Evaluations since then.
    """

    n_epochs: int = 0
    seconds: float = 0.0
    best: Optional[float] = None
    best_epoch: int = 0
    n_waited: int = 0

    @property
    def seconds_per_epoch(self) -> Optional[float]:
        """Mean over the finished epochs."""
        return self.seconds / self.n_epochs if self.n_epochs else None


class RunStore:
    """Finds runs by their settings. Data is read once per set of settings that decide its rows."""

    def __init__(self) -> None:
        self._infos: dict[str, DatasetInfo] = {}

    def place(self, config: Config) -> Path:
        """Where the run of these settings, on the data as it is now, is or would be.

        Raises:
            DataError: The data cannot be read.
        """
        identity = identity_of(config, self.fingerprint(config))
        place = config["checkpoint_dir"], config["dataset"], config.model_entry.name, identity, config["seed"]
        return RunDirectory.place(*place)

    def fingerprint(self, config: Config) -> str:
        """Of the data set after splitting, as in dataset.json."""
        return self.info(config).fingerprint

    def info(self, config: Config) -> DatasetInfo:
        """Counts of the data set after splitting, as in dataset.json."""
        resolved = config.resolved()
        key = repr([resolved.get(name) for name in _ROW_SETTINGS])
        if key not in self._infos:
            logger = logging.getLogger("recbole_prism")
            level = logger.level
            logger.setLevel(logging.WARNING)  # the run itself tells what it reads
            try:
                self._infos[key] = SequentialDataset(config).build()[0].info
            finally:
                logger.setLevel(level)
        return self._infos[key]


def inspect(path: Path) -> RunState:
    """Look at the place of a run; a complete one is checked file by file."""
    if not path.is_dir():
        return RunState(path, MISSING)
    if (path / MANIFEST).is_file():
        try:
            verify(path)
        except RunDirectoryError as error:
            return RunState(path, DAMAGED, error.cause)
        return RunState(path, COMPLETE)
    status = read_status(path)
    reason = str(status.get("reason") or "")
    if status.get("state") == "running" and is_live(status):
        return RunState(path, RUNNING, f"process {status['pid']} on {status['host']}")
    if status.get("state") == "failed" and not reason.startswith("KeyboardInterrupt"):
        return RunState(path, FAILED, reason)
    return RunState(path, INTERRUPTED, reason or f"its process is gone; last sign {status.get('heartbeat', 'unknown')}")


def progress_of(path: Path, valid_metric: str, bigger: bool = True) -> RunProgress:
    """Read how far a run is, whether it still goes on or not.

    Args:
        path: The run directory; one without a readable history has done nothing.
        valid_metric: "NDCG@20".
        bigger: Whether more of it is better.
    """
    try:
        records = read_json_lines(path / "history.jsonl")
    except RunDirectoryError:
        return RunProgress()
    seconds = sum(record["train_seconds"] + record["valid_seconds"] for record in records)
    scores = [(record["epoch"], record["valid"][valid_metric.lower()]) for record in records if record.get("valid")]
    if not scores:
        return RunProgress(len(records), seconds)
    values = [score if bigger else -score for _, score in scores]
    place = values.index(max(values))
    return RunProgress(len(records), seconds, scores[place][1], scores[place][0], len(scores) - 1 - place)


def find_runs(folder: Union[str, Path]) -> Iterator[RunArtifact]:
    """Every complete, undamaged run below a folder, in the order of their paths; others are passed over."""
    for manifest in sorted(Path(folder).rglob(MANIFEST)):
        path = manifest.parent
        if path.name.startswith(".") or path.name.endswith(".replaced"):
            continue
        try:
            yield read_run(path)
        except RunDirectoryError as error:
            logging.getLogger("recbole_prism").warning("passed over: %s", error.cause)
