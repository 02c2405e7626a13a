"""Writing RecBole's atomic interaction file (<name>.inter)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Iterable

import numpy as np

from recbole_prism.data.kcore import Counts
from recbole_prism.errors import DataError

HEADER = "user_id:token\titem_id:token\ttimestamp:float\n"
_WRITE_ROWS = 200_000
# Text that RecBole (pandas) reads back as a missing value, and its own padding token
RESERVED = frozenset(
    "[PAD] #N/A #NA -1.#IND -1.#QNAN -NaN -nan 1.#IND 1.#QNAN <NA> N/A NA NULL NaN None n/a nan null".split()
    + ["#N/A N/A"]
)


@dataclass(frozen=True)
class Written:
    """What a written file holds.

    Attributes:
        counts: Users, items, interactions.
        tied_events: Events with the same user and time as the one before; file order decides between them.
        users_tied_at_end: Users whose last two events have the same time.
    """

    counts: Counts
    tied_events: int
    users_tied_at_end: int


def check_tokens(tokens: list[str], column: str) -> None:
    """Refuse ids that would not come back as they are from a tab-separated file.

    Args:
        tokens: Distinct ids.
        column: Name for the message.

    Raises:
        DataError: For an id with a tab, a line break or a double quote at its start, or a word that reads as a missing
            value.
    """
    for token in tokens:
        if "\t" in token or "\n" in token or "\r" in token or token[0] == '"':
            reason = "holds a tab or line break, or starts with a quote, which a tab-separated file cannot hold"
        elif token in RESERVED:
            reason = "would be read back as a missing value"
        else:
            continue
        raise DataError(f"the {column} id {token!r} {reason}", "rename it in the raw file")


def write_interactions(path: Path, chunks: Iterable["np.ndarray"], users: list[str], items: list[str]) -> Written:
    """Write sorted events.

    Args:
        path: File to write.
        chunks: Arrays of dtype EVENT, ordered by user and time, whole users each.
        users: Id of each user code.
        items: Id of each item code.
    """
    n_users = n_events = tied = tied_at_end = 0
    seen_items = np.zeros(len(items), bool)
    with open(path, "w", encoding="utf-8", newline="\n") as stream:
        stream.write(HEADER)
        for chunk in chunks:
            first = np.r_[True, chunk["user"][1:] != chunk["user"][:-1]]
            last = np.r_[first[1:], True]
            tie = ~first & np.r_[False, chunk["time"][1:] == chunk["time"][:-1]]
            n_users, n_events = n_users + int(first.sum()), n_events + len(chunk)
            tied, tied_at_end = tied + int(tie.sum()), tied_at_end + int((tie & last).sum())
            seen_items[chunk["item"]] = True
            for start in range(0, len(chunk), _WRITE_ROWS):
                stream.write(_lines(chunk[start : start + _WRITE_ROWS], users, items))
    return Written(Counts(n_users, int(seen_items.sum()), n_events), tied, tied_at_end)


def _lines(events: "np.ndarray", users: list[str], items: list[str]) -> str:
    times = events["time"]
    whole = bool((times == np.floor(times)).all() and (np.abs(times) < 2**53).all())
    shown = times.astype(np.int64).tolist() if whole else [time_text(time) for time in times.tolist()]
    rows = zip(events["user"].tolist(), events["item"].tolist(), shown)
    return "".join([f"{users[user]}\t{items[item]}\t{time}\n" for user, item, time in rows])


def time_text(time: float) -> str:
    """A time as it stands in the file: whole numbers without a point, others with all digits that are needed."""
    return str(int(time)) if time.is_integer() else repr(time)
