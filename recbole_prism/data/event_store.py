"""Interactions on disk as 16-byte records: filtering and sorting need memory for users and items, not for rows."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator

import numpy as np
import pandas as pd

from recbole_prism.errors import DataError

EVENT = np.dtype([("user", "<i4"), ("item", "<i4"), ("time", "<f8")])
READ_ROWS = 1_000_000
SORT_ROWS = 1_000_000


class Vocabulary:
    """Codes 0, 1, 2, ... of ids in order of first appearance."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._codes)

    def encode(self, ids: "np.ndarray") -> "np.ndarray":
        """Codes of an object array of str, as int32 [n]; new ids get the next codes."""
        local, distinct = pd.factorize(ids)
        codes = self._codes
        table = np.fromiter((codes.setdefault(token, len(codes)) for token in distinct), np.int64, len(distinct))
        if len(codes) > np.iinfo(np.int32).max:
            raise DataError(f"more than {np.iinfo(np.int32).max:,} distinct ids")
        return table.astype(np.int32)[local]

    def tokens(self) -> list[str]:
        """All ids in the order of their codes."""
        return list(self._codes)


class EventStore:
    """Records in file order, in one file of a folder.

    Args:
        folder: Existing folder for its files; the caller removes it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "events.bin"
        self._path.touch()

    def append(self, user: "np.ndarray", item: "np.ndarray", time: "np.ndarray") -> None:
        """Add n interactions: int codes [n], int codes [n], times float64 [n]."""
        records = np.empty(len(user), EVENT)
        records["user"], records["item"], records["time"] = user, item, time
        with open(self._path, "ab") as stream:
            stream.write(records.tobytes())

    def chunks(self) -> Iterator["np.ndarray"]:
        """All records in file order, as arrays of dtype EVENT."""
        yield from _read(self._path)

    def sorted_chunks(self, keep_user: "np.ndarray", keep_item: "np.ndarray") -> Iterator["np.ndarray"]:
        """Kept records by user code, then time, then file order; each chunk holds whole users.

        The records are first dealt into files of neighbouring users, of about SORT_ROWS rows; then each is sorted.

        Args:
            keep_user: [n_users] bool.
            keep_item: [n_items] bool.
        """
        counts = np.zeros(len(keep_user), np.int64)
        for chunk in self.chunks():
            counts += np.bincount(chunk["user"][keep_item[chunk["item"]]], minlength=len(counts))
        counts[~keep_user] = 0
        bucket_of_user = (np.cumsum(counts) - counts) // SORT_ROWS
        buckets = self._deal(keep_user, keep_item, bucket_of_user)
        for path in buckets:
            records = np.fromfile(path, EVENT)
            path.unlink()
            yield records[np.lexsort((records["time"], records["user"]))]  # lexsort is stable: ties keep file order

    def _deal(self, keep_user: "np.ndarray", keep_item: "np.ndarray", bucket_of_user: "np.ndarray") -> list[Path]:
        paths: dict[int, Path] = {}
        for chunk in self.chunks():
            kept = chunk[keep_user[chunk["user"]] & keep_item[chunk["item"]]]
            bucket = bucket_of_user[kept["user"]]
            order = np.argsort(bucket, kind="stable")
            for number, part in _runs(bucket[order], kept[order]):
                path = paths.setdefault(number, self._folder / f"bucket{number}.bin")
                with open(path, "ab") as stream:
                    stream.write(part.tobytes())
        return [paths[number] for number in sorted(paths)]


def _runs(keys: "np.ndarray", values: "np.ndarray") -> Iterator[tuple[int, "np.ndarray"]]:
    """Split `values` where the sorted `keys` change."""
    edges = np.flatnonzero(np.diff(keys)) + 1
    for part_keys, part in zip(np.split(keys, edges), np.split(values, edges)):
        if len(part):
            yield int(part_keys[0]), part


def _read(path: Path) -> Iterator["np.ndarray"]:
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(READ_ROWS * EVENT.itemsize), b""):
            yield np.frombuffer(block, EVENT)
