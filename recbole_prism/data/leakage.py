"""Does any row see what it should not? Each check says what it looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

import numpy as np

from recbole_prism.data.dataset import SequentialDataset
from recbole_prism.data.describe import users_of_events
from recbole_prism.data.splits import PARTS, Rows


@dataclass(frozen=True)
class Check:
    """One question put to all rows.

    Attributes:
        question: What must hold.
        checked: Number of rows or events looked at.
        broken: Number of them that break it.
    """

    question: str
    checked: int
    broken: int


def leakage_checks(dataset: SequentialDataset, parts: Sequence[SequentialDataset]) -> list[Check]:
    """Checks that must hold for every split of whole sequences.

    Args:
        dataset: The data set as read, before `build`; not pre-split.
        parts: What `build` gave: train, valid, test.
    """
    rows = [part.rows for part in parts]
    user = users_of_events(dataset)
    items, times = dataset.items, dataset.times
    n_rows = sum(len(part) for part in rows)
    same_user = user[1:] == user[:-1]
    outside = sum(
        int(((user[part.start] != part.user) | (user[part.end - 1] != part.user) | (part.start >= part.end)).sum())
        for part in rows
    )
    wrong_target = sum(int(((items[part.end] != part.target) | (user[part.end] != part.user)).sum()) for part in rows)
    ends = np.concatenate([part.end for part in rows])
    checks = [
        Check("each history is made of the row's own user's events before the target", n_rows, outside),
        Check("each target is the event right after its history", n_rows, wrong_target),
        Check("no event is the target of two rows, in whatever parts", n_rows, len(ends) - len(np.unique(ends))),
        Check("times never fall along a user's events", len(items), int((same_user & (np.diff(times) < 0)).sum())),
    ]
    for earlier, later in ((0, 1), (1, 2), (0, 2)):
        question = f"a user's {PARTS[earlier]} targets come before their {PARTS[later]} targets"
        checks.append(Check(question, len(rows[later]), _not_after(rows[earlier], rows[later], dataset.user_num)))
    return checks


def _not_after(earlier: Rows, later: Rows, n_users: int) -> int:
    """Rows of `later` whose target does not lie behind all targets of the same user in `earlier`."""
    newest = np.full(n_users, -1, np.int64)
    np.maximum.at(newest, earlier.user, earlier.end)
    return int((later.end <= newest[later.user]).sum())


def leakage_lines(checks: Sequence[Check], parts: Sequence[SequentialDataset]) -> list[str]:
    """The checks for people, and what they do not cover."""
    lines = []
    for check in checks:
        verdict = "holds" if not check.broken else f"BROKEN by {check.broken:,}"
        lines.append(f"{verdict:<8} {check.question} ({check.checked:,} checked)")
    train, _, test = (part.rows for part in parts)
    times = parts[0].times
    if len(train) and len(test):
        later = (times[train.end] > times[test.end].min()).mean()
        lines.append(f"note     {later:.1%} of training targets are later than the earliest test target of any user:")
        lines.append("         a split per user does not hide the future of others; a split by time (split: TS) does")
    return [*lines, "not checked: item and user features, which may have been computed from all data"]
