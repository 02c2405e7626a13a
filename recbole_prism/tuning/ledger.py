"""What a search did: one record per trial, written by the driver alone and read by whoever goes on with the search."""

from __future__ import annotations

import os
import socket
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Mapping, Optional, Sequence

import psutil

from recbole_prism.errors import RunDirectoryError
from recbole_prism.run_directory import is_live
from recbole_prism.run_files import read_json, write_json

# Of a trial: it runs (or did when the search was killed), ended by itself, was stopped early, or raised an error
RUNNING, DONE, STOPPED, FAILED = "running", "done", "stopped", "failed"
TRIALS, OWNER = "trials.json", "owner.json"


@dataclass
class Trial:
    """One trial.

    Attributes:
        number: From 1, in the order in which they were proposed.
        values: The settings that it tries.
        state: "running", "done", "stopped" or "failed".
        epochs: Evaluated epochs, from 0.
        scores: Validation score of each.
        seconds: Wall-clock seconds since it was last started.
        reason: Why it failed.
        run_directory: Where it is; known when it ended by itself.
    """

    number: int
    values: dict[str, Any]
    state: str = RUNNING
    epochs: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    seconds: float = 0.0
    reason: str = ""
    run_directory: Optional[str] = None

    def best(self, bigger: bool) -> Optional[float]:
        """Best validation score, None before the first.

        Args:
            bigger: Whether a higher score is better.
        """
        return (max if bigger else min)(self.scores, default=None)

    def add(self, epoch: int, score: float) -> None:
        """Take note of an evaluation; one that was noted before is passed over."""
        if epoch not in self.epochs:
            self.epochs.append(epoch)
            self.scores.append(score)


class Ledger:
    """The trials of a search, in a folder.

    Args:
        folder: Of the search.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / TRIALS
        self.trials = [Trial(**record) for record in read_json(path)] if path.is_file() else []

    def add(self, values: dict[str, Any]) -> Trial:
        """Begin a trial."""
        trial = Trial(len(self.trials) + 1, values)
        self.trials.append(trial)
        return trial

    def of(self, number: int) -> Trial:
        """The trial of a number."""
        return self.trials[number - 1]

    def write(self) -> None:
        """Store all records, atomically."""
        write_json(self.folder / TRIALS, [asdict(trial) for trial in self.trials])


def ranking(trials: Sequence[Trial], bigger: bool) -> list[Trial]:
    """Trials with a score that did not fail, best validation score first, earlier ones first among equals.

    Args:
        trials: Of a search.
        bigger: Whether a higher score is better.
    """
    sign = -1.0 if bigger else 1.0
    scored = [(sign * score, trial.number, trial) for trial in trials if (score := trial.best(bigger)) is not None]
    return [trial for _, _, trial in sorted(scored, key=lambda entry: entry[:2]) if trial.state != FAILED]


def shown(values: Mapping[str, Any]) -> str:
    """Searched values in a line."""
    return ", ".join(f"{key} {number(value)}" for key, value in values.items())


def number(value: Any) -> str:
    """A searched value for people: numbers to four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def claim(folder: Path) -> None:
    """Make a search's folder this process's.

    Raises:
        RunDirectoryError: Another live process searches there.
    """
    path = folder / OWNER
    owner: Mapping[str, Any] = read_json(path) if path.is_file() else {}
    if owner and owner["host"] == socket.gethostname() and is_live(owner):
        raise RunDirectoryError(
            f"{folder} is used by process {owner['pid']} on {owner['host']}", "wait for it, or stop it first"
        )
    mine = {"pid": os.getpid(), "process_started": psutil.Process().create_time(), "host": socket.gethostname()}
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, mine)
