"""Which row belongs to which part: RecBole's leave-one-out, ratio and time splits, as arithmetic on counts per user.

A row is one event with the events of the same user before it. Rows come in (user, time) order; the functions return row
numbers per part in the order of stock RecBole, which sorts rows by time and then takes users by their first row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Sequence

import numpy as np

from recbole_prism.errors import ConfigError

PARTS = ("train", "valid", "test")


@dataclass(frozen=True)
class Rows:
    """The rows of one part, as windows into the data set's flat items.

    Attributes:
        user: User id of each row. int32 [R]
        history_start: Where the user's first known event lies in items. int64 [R]
        start, end: The window items[start:end] a model is given, the most recent T events before the target. int64 [R]
        target: The item to predict. int32 [R]
        row_id: 0..R-1. int64 [R]
    """

    user: np.ndarray
    history_start: np.ndarray
    start: np.ndarray
    end: np.ndarray
    target: np.ndarray
    row_id: np.ndarray

    def __len__(self) -> int:
        return len(self.row_id)

    def take(self, index: np.ndarray) -> Rows:
        """The rows of one part, numbered anew."""
        row_id = np.arange(len(index), dtype=np.int64)
        return Rows(
            self.user[index], self.history_start[index], self.start[index], self.end[index], self.target[index], row_id
        )


def ranges(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Concatenation of arange(start, start + size) over all pairs."""
    before = np.cumsum(sizes) - sizes
    return np.repeat(starts - before, sizes) + np.arange(int(sizes.sum()))


def split_rows(eval_args: Mapping[str, Any], rows_of_user: np.ndarray, row_time: np.ndarray) -> list[np.ndarray]:
    """Row numbers of train, valid and test.

    Args:
        eval_args: RecBole's key: `split` ({"LS": mode}, {"RS": [a, b, c]} or {"TS": [a, b, c]}), `group_by`, `order`.
        rows_of_user: Number of rows per user; rows lie in user order. [n_users]
        row_time: Time of each row's target. [R]

    Raises:
        ConfigError: If the setting is none of RecBole's, or not ordered by time.
    """
    if eval_args.get("order") != "TO":
        raise ConfigError(
            f"eval_args.order is {eval_args.get('order')!r}.", "Sequential models need `order: TO` (by time)."
        )
    split = eval_args.get("split")
    if not isinstance(split, Mapping) or len(split) != 1:
        raise ConfigError(
            f"eval_args.split is {split!r}.",
            "Give one of {LS: valid_and_test}, {RS: [0.8, 0.1, 0.1]}, {TS: [0.8, 0.1, 0.1]}.",
        )
    mode, value = next(iter(split.items()))
    if mode == "LS":
        sizes = _leave_one_out(value, rows_of_user)
    elif mode == "RS" and str(eval_args.get("group_by")).lower() == "none":
        order = np.argsort(row_time, kind="stable")
        total = _ratio_sizes(_ratios(value), np.array([len(order)]))[0]
        return np.split(order, np.cumsum(total)[:-1])
    elif mode == "RS":
        sizes = _ratio_sizes(_ratios(value), rows_of_user)
    elif mode == "TS":
        sizes = _time_sizes(_ratios(value), rows_of_user, row_time)
    else:
        raise ConfigError(f"eval_args.split has the unknown kind {mode!r}.", "Known: LS, RS, TS.")
    return _cut_users(sizes, rows_of_user, row_time)


def _cut_users(sizes: np.ndarray, rows_of_user: np.ndarray, row_time: np.ndarray) -> list[np.ndarray]:
    """Cut each user's rows, oldest first, into parts of the given sizes; users in order of their first row's time.

    Args:
        sizes: Rows per user and part. [n_users, 3]
    """
    first = np.cumsum(rows_of_user) - rows_of_user
    users = np.flatnonzero(rows_of_user)
    users = users[np.argsort(row_time[first[users]], kind="stable")]
    starts = first[:, None] + np.cumsum(sizes, axis=1) - sizes  # [n_users, 3]
    return [ranges(starts[users, part], sizes[users, part]) for part in range(len(PARTS))]


def _leave_one_out(mode: str, rows_of_user: np.ndarray) -> np.ndarray:
    """The last row to test, the one before to valid; the first row trains in any case. [n_users, 3]"""
    if mode not in ("valid_and_test", "valid_only", "test_only"):
        raise ConfigError(f"eval_args.split LS is {mode!r}.", "Known: valid_and_test, valid_only, test_only.")
    spare = np.maximum(rows_of_user - 1, 0)
    test = np.minimum(spare, 1) if mode != "valid_only" else np.zeros_like(spare)
    valid = np.minimum(spare - test, 1) if mode != "test_only" else np.zeros_like(spare)
    return np.stack([rows_of_user - valid - test, valid, test], axis=1)


def _ratios(value: Any) -> list[float]:
    """Three shares that sum to one."""
    if not isinstance(value, Sequence) or len(value) != len(PARTS) or min(value) < 0 or value[0] <= 0:
        raise ConfigError(
            f"The split ratios are {value!r}.", "Give three numbers for train, valid and test, e.g. [0.8, 0.1, 0.1]."
        )
    return [share / sum(value) for share in value]


def _ratio_sizes(ratios: Sequence[float], totals: np.ndarray) -> np.ndarray:
    """Sizes of the parts: valid and test rounded down, but at least one row while train keeps one. [n_users, 3]"""
    sizes = np.floor(np.asarray(ratios)[None, :] * totals[:, None]).astype(np.int64)
    sizes[:, 0] = totals - sizes[:, 1:].sum(axis=1)
    for part in range(len(ratios) - 1, 0, -1):  # test first, as in RecBole
        share = ratios[part] * totals
        lifted = (share > 0) & (share < 1) & (sizes[:, 0] > 1)
        sizes[lifted, part] += 1
        sizes[lifted, 0] -= 1
    return sizes


def _time_sizes(ratios: Sequence[float], rows_of_user: np.ndarray, row_time: np.ndarray) -> np.ndarray:
    """Rows after one moment, the same for all users, to test; those before it to train, then valid. [n_users, 3]"""
    boundary = np.percentile(row_time, 100 * (1 - ratios[-1]))
    user = np.repeat(np.arange(len(rows_of_user)), rows_of_user)
    before = np.bincount(user[row_time <= boundary], minlength=len(rows_of_user))
    train = np.floor(before * (ratios[0] / (1 - ratios[-1]))).astype(np.int64)
    return np.stack([train, before - train, rows_of_user - before], axis=1)
