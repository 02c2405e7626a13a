"""A finished run as later rooms read it: checked first, then each file on demand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recbole_prism.errors import RunDirectoryError
from recbole_prism.evaluation.ranks import Ranks
from recbole_prism.run_files import (
    DAMAGED_CURE,
    file_hash,
    read_arrays,
    read_json,
    read_json_lines,
    read_tensors,
    read_yaml,
)

SCHEMA_VERSION = 1
STATUS = "status.json"
MANIFEST = "manifest.json"
REQUIRED = (
    "config.yaml", "origin.json", "model.safetensors", "model.json", "dataset.json", "vocabulary.tsv", "ranks.npz",
    "metrics.json", "history.jsonl", "environment.json",
)  # fmt: skip
# A copy for tables and comparisons (experiments.slim): its manifest says under "slim" what it is a copy of
SLIM = "slim"
SLIM_REQUIRED = tuple(name for name in REQUIRED if name not in ("model.safetensors", "vocabulary.tsv"))
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_UNESCAPES = {escaped: raw for raw, escaped in _ESCAPES.items()}


@dataclass(frozen=True)
class Vocabulary:
    """Raw tokens of a data set by index, padding ("[PAD]", index 0) included.

    vocabulary.tsv holds one line per token: kind (item or user), index, token, and for items how often they occur in
    the training rows and in all events. Tab, line feed, carriage return and backslash in a token are written with a
    backslash, as in Python.

    Attributes:
        item_tokens: [n_items].
        user_tokens: [n_users].
        item_counts_train: int64 [n_items].
        item_counts_all: int64 [n_items].
    """

    item_tokens: Sequence[str]
    user_tokens: Sequence[str]
    item_counts_train: np.ndarray
    item_counts_all: np.ndarray

    def to_text(self) -> str:
        """The contents of vocabulary.tsv."""
        lines = ["kind\tindex\ttoken\tcount_train\tcount_all"]
        counts = zip(self.item_tokens, self.item_counts_train, self.item_counts_all)
        lines += [
            f"item\t{index}\t{_escape(token)}\t{train}\t{all_}" for index, (token, train, all_) in enumerate(counts)
        ]
        lines += [f"user\t{index}\t{_escape(token)}\t\t" for index, token in enumerate(self.user_tokens)]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_text(cls, text: str) -> Vocabulary:
        """The inverse of `to_text`."""
        rows = [line.split("\t") for line in text.split("\n")[1:-1]]
        items = [row for row in rows if row[0] == "item"]
        return cls(
            item_tokens=[_unescape(row[2]) for row in items],
            user_tokens=[_unescape(row[2]) for row in rows if row[0] == "user"],
            item_counts_train=np.array([int(row[3]) for row in items], dtype=np.int64),
            item_counts_all=np.array([int(row[4]) for row in items], dtype=np.int64),
        )


def _escape(token: str) -> str:
    return re.sub(r"[\\\t\n\r]", lambda match: _ESCAPES[match.group()], str(token))


def _unescape(text: str) -> str:
    return re.sub(r"\\.", lambda match: _UNESCAPES[match.group()], text)


def read_status(path: Path) -> dict[str, Any]:
    """status.json of a run directory; empty where it is missing or damaged, for it only helps to tell a live run."""
    try:
        status = read_json(path / STATUS)
    except RunDirectoryError:
        return {}
    return status if isinstance(status, dict) else {}


def verify(path: Path) -> None:
    """Check that a run is complete, of this schema, and that each of its files is the one that was written.

    Raises:
        RunDirectoryError: Naming what is wrong.
    """
    if not (path / MANIFEST).is_file():
        state = read_status(path).get("state")
        if state == "complete":  # a kill came before the last file, or somebody removed it
            reason = f"{MANIFEST} is missing"
        elif state:
            reason = f"its state is {state!r}"
        else:
            reason = f"{STATUS} is damaged" if (path / STATUS).exists() else f"there is no {STATUS}"
        raise RunDirectoryError(
            f"{path} is no complete run: {reason}", "start the same run again; it goes on by itself"
        )
    for name, expected in _hashes(path).items():
        if not (path / name).is_file():
            raise RunDirectoryError(f"{path / name} is missing", DAMAGED_CURE)
        try:
            found = file_hash(path / name)
        except OSError as error:
            raise RunDirectoryError(f"{path / name} cannot be read: {error.strerror}", DAMAGED_CURE) from error
        if found != expected:
            raise RunDirectoryError(f"{path / name} is damaged: it is not what the run wrote", DAMAGED_CURE)


def _hashes(path: Path) -> dict[str, str]:
    """The SHA-256 (hex) of each file, as the manifest tells it.

    Raises:
        RunDirectoryError: The manifest is damaged, or of another schema version.
    """
    manifest = read_json(path / MANIFEST)
    version = manifest.get("schema_version") if isinstance(manifest, Mapping) else None
    if version is not None and version != SCHEMA_VERSION:
        raise RunDirectoryError(
            f"{path} has schema version {version}; this package reads {SCHEMA_VERSION}",
            "use the package version named in its environment.json, or --overwrite trains it again",
        )
    try:
        hashes = {name: entry["sha256"] for name, entry in manifest["files"].items()}
    except (AttributeError, KeyError, TypeError) as error:
        raise RunDirectoryError(f"{path / MANIFEST} is damaged: it lists no hashes of files", DAMAGED_CURE) from error
    unlisted = [name for name in (SLIM_REQUIRED if SLIM in manifest else REQUIRED) if name not in hashes]
    if version is None or unlisted:
        raise RunDirectoryError(
            f"{path / MANIFEST} is damaged: it lacks {', '.join(unlisted) or 'schema_version'}", DAMAGED_CURE
        )
    return hashes


def read_run(path: str | Path) -> RunArtifact:
    """Open a finished run.

    Raises:
        RunDirectoryError: If it is not complete, damaged, or of another schema version.
    """
    path = Path(path)
    if not path.is_dir():
        raise RunDirectoryError(f"{path} is no directory", "give the run directory that the training printed")
    verify(path)
    return RunArtifact(path)


class RunArtifact:
    """The files of a complete run, read when first asked for. Made by `read_run`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def config(self) -> dict[str, Any]:
        """config.yaml."""
        return read_yaml(self.path / "config.yaml")

    @cached_property
    def model(self) -> dict[str, Any]:
        """model.json: class path and resolved properties."""
        return read_json(self.path / "model.json")

    @cached_property
    def dataset(self) -> dict[str, Any]:
        """dataset.json: what `DatasetInfo.from_dict` takes."""
        return read_json(self.path / "dataset.json")

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """vocabulary.tsv.

        Raises:
            RunDirectoryError: In a slim copy.
        """
        self._refuse_slim("vocabulary.tsv")
        return Vocabulary.from_text((self.path / "vocabulary.tsv").read_bytes().decode("utf-8"))

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """metrics.json."""
        return read_json(self.path / "metrics.json")

    @cached_property
    def environment(self) -> dict[str, Any]:
        """environment.json."""
        return read_json(self.path / "environment.json")

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """history.jsonl: one record per epoch."""
        return read_json_lines(self.path / "history.jsonl")

    def ranks(self, split: str) -> Ranks:
        """Ranks of the rows of a split, "valid" or "test".

        Raises:
            RunDirectoryError: If the split was not evaluated.
        """
        arrays = read_arrays(self.path / "ranks.npz")
        if f"{split}_user" not in arrays:
            raise RunDirectoryError(f"{self.path} has no ranks of the split {split!r}", "use valid or test")
        return Ranks.from_arrays(arrays, f"{split}_")

    @cached_property
    def histories(self) -> tuple[np.ndarray, np.ndarray]:
        """(items, offsets): the events of user u are items[offsets[u]:offsets[u + 1]], oldest first.

        Raises:
            RunDirectoryError: If they were not stored.
        """
        if not (self.path / "histories.npz").is_file():
            raise RunDirectoryError(f"{self.path} holds no histories", "train with save_histories: True")
        arrays = read_arrays(self.path / "histories.npz")
        return arrays["items"], arrays["offsets"]

    def _refuse_slim(self, name: str) -> None:
        if not (self.path / name).is_file():  # the others were checked when the run was opened
            raise RunDirectoryError(
                f"{self.path} is a slim copy without {name}", "use the run directory it was made of"
            )

    def weights(self, device: torch.device | str = "cpu") -> dict[str, Tensor]:
        """The best weights, for `load_state_dict`.

        Raises:
            RunDirectoryError: In a slim copy.
        """
        self._refuse_slim("model.safetensors")
        return read_tensors(self.path / "model.safetensors", device)[0]


def rank_arrays(splits: Iterable[tuple[str, Ranks]]) -> dict[str, np.ndarray]:
    """The contents of ranks.npz: the arrays of each split under its name."""
    return {name: array for split, ranks in splits for name, array in ranks.to_arrays(f"{split}_").items()}
