"""What is in a data set: counts, lengths, popularity, ties, repeats, cold targets; and every row of one user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

import numpy as np

from recbole_prism.data.dataset import SequentialDataset
from recbole_prism.data.splits import PARTS, Rows
from recbole_prism.errors import DataError

RARE = 5  # targets with fewer training events than this are counted as rare
_BAR_WIDTH = 40


@dataclass(frozen=True)
class PartCounts:
    """One part of the split.

    Attributes:
        rows, users: Rows, and users who have any.
        cut: Rows with a history longer than the model is given.
        repeated: Rows whose target is in the user's own history.
        cold, rare: Rows whose target has no, or fewer than RARE, events in the training part.
    """

    rows: int
    users: int
    cut: int
    repeated: int
    cold: int
    rare: int


@dataclass(frozen=True)
class Description:
    """Statistics of a data set, without the padding row.

    Attributes:
        lengths: Events per user. int64 [users]
        popularity: Events per item that has any. int64 [items]
        unused_items: Items that only the item file knows.
        repeated: Events whose user had the item before.
        repeated_at_once: Of these, directly after the same item.
        tied: Events with the same user and time as the one before; -1 if there are no times.
        users_tied_at_end: Users whose last two events are tied.
        parts: Train, valid, test.
        max_length: Longest history a model is given.
    """

    lengths: np.ndarray
    popularity: np.ndarray
    unused_items: int
    repeated: int
    repeated_at_once: int
    tied: int
    users_tied_at_end: int
    parts: tuple[PartCounts, ...]
    max_length: int


def describe(dataset: SequentialDataset, parts: Sequence[SequentialDataset]) -> Description:
    """Count.

    Args:
        dataset: The data set as read, before `build`.
        parts: What `build` gave: train, valid, test.

    Raises:
        DataError: For pre-split files, which have rows but no sequences.
    """
    if not len(dataset.times):
        raise DataError(
            "pre-split files cannot be described: they hold rows, not sequences", "look at the files themselves"
        )
    user = users_of_events(dataset)
    same_user = user[1:] == user[:-1]
    popularity = np.bincount(dataset.items, minlength=dataset.item_num)[1:]
    tied = np.append(False, same_user & (dataset.times[1:] == dataset.times[:-1]))
    last = np.append(~same_user, True)
    pairs = user * dataset.item_num + dataset.items
    repeated = np.ones(len(pairs), bool)
    repeated[np.unique(pairs, return_index=True)[1]] = False  # the first of each pair is new
    return Description(
        lengths=np.bincount(user)[np.unique(user)],
        popularity=popularity[popularity > 0],
        unused_items=int((popularity == 0).sum()),
        repeated=int(repeated.sum()),
        repeated_at_once=int((same_user & (dataset.items[1:] == dataset.items[:-1])).sum()),
        tied=int(tied.sum()),
        users_tied_at_end=int((tied & last).sum()),
        parts=tuple(_count_part(part, repeated) for part in parts),
        max_length=dataset.max_item_list_len,
    )


def users_of_events(dataset: SequentialDataset) -> np.ndarray:
    """User id of every event of the flat items. int64 [N]

    Args:
        dataset: The data set as read; a part knows its own rows only.
    """
    user: np.ndarray = dataset.inter_feat[dataset.uid_field].numpy()
    return user


def _count_part(part: SequentialDataset, repeated: np.ndarray) -> PartCounts:
    """`repeated`: whether the user had the item before, for every event. bool [N]"""
    rows = part.rows
    trained = part.item_counts_train[rows.target]
    return PartCounts(
        rows=len(rows),
        users=len(np.unique(rows.user)),
        cut=int((rows.start > rows.history_start).sum()),
        repeated=int(repeated[rows.end].sum()),
        cold=int((trained == 0).sum()),
        rare=int((trained < RARE).sum()),
    )


def description_lines(name: str, found: Description) -> list[str]:
    """The description for people, one line each."""
    n_users, n_items, n_events = len(found.lengths), len(found.popularity), int(found.lengths.sum())
    unused = f", and {found.unused_items:,} that nobody has used (from the item file)" if found.unused_items else ""
    top = np.sort(found.popularity)[::-1][: max(1, n_items // 100)].sum() / n_events
    lines = [
        f"{name}: {n_users:,} users, {n_items:,} items{unused}, {n_events:,} interactions",
        f"sparsity           {1 - n_events / (n_users * n_items):.4%}",
        f"events per user    {_spread(found.lengths)}",
        f"events per item    {_spread(found.popularity)}; the most popular 1 % have {top:.1%} of all events",
        f"tied events        {found.tied / n_events:.1%} share user and time with the one before, file order decides"
        f" ({found.users_tied_at_end / n_users:.1%} of users: the last two)",
        f"repeats            {found.repeated / n_events:.1%} of events: an item the user had before"
        f" ({found.repeated_at_once / n_events:.1%}: just before)",
    ]
    lines += ["", *_part_lines(found)]
    lines += ["", "events per user", *histogram_lines(found.lengths, "users")]
    return [*lines, "", "events per item", *histogram_lines(found.popularity, "items")]


def _spread(values: np.ndarray) -> str:
    return f"mean {values.mean():.1f}, median {np.median(values):.0f}, max {values.max():,}"


def _part_lines(found: Description) -> list[str]:
    titles = (f"cut at {found.max_length}", "target seen", "cold target", f"under {RARE} times")
    lines = [f"{'part':<8}{'rows':>12}{'users':>12}" + "".join(f"{title:>15}" for title in titles)]
    for part, counts in zip(PARTS, found.parts):
        shares = [value / max(counts.rows, 1) for value in (counts.cut, counts.repeated, counts.cold, counts.rare)]
        lines.append(f"{part:<8}{counts.rows:>12,}{counts.users:>12,}" + "".join(f"{share:>15.2%}" for share in shares))
    return lines


def histogram_lines(values: np.ndarray, unit: str) -> list[str]:
    """A text histogram of positive counts in the classes 1, 2, 3-4, 5-9, 10-19, 20-49, ..."""
    edges = [1, 2, 3, 5]
    while edges[-1] <= values.max():
        edges.append(edges[-1] * (5 if str(edges[-1])[0] == "2" else 4) // 2)
    counts, _ = np.histogram(values, [*edges[:-1], edges[-1] - 0.5])
    lines = []
    first = int(np.flatnonzero(counts)[0])
    for low, high, count in list(zip(edges, edges[1:], counts))[first:]:
        label = str(low) if high == low + 1 else f"{low}-{high - 1}"
        bar = "#" * round(_BAR_WIDTH * count / counts.max())
        lines.append(f"{label:>14}  {bar:<{_BAR_WIDTH}} {count:>10,} {unit} ({count / len(values):.1%})")
    return lines


def user_lines(parts: Sequence[SequentialDataset], token: str) -> list[str]:
    """Every row of one user, oldest first: part, time of the target, history -> target.

    Args:
        parts: Train, valid, test.
        token: The user's id as in the file.

    Raises:
        DataError: If there is no such user.
    """
    dataset = parts[0]
    try:
        user = dataset.token2id(dataset.uid_field, token)
    except ValueError as error:
        example = dataset.id2token(dataset.uid_field, 1)
        raise DataError(f"there is no user {token!r}", f"ids are written as in the file, e.g. {example!r}") from error
    rows = []
    for name, part in zip(PARTS, parts):
        for index in np.flatnonzero(part.rows.user == user):
            rows.append((int(part.rows.end[index]), name, part.rows, index))
    if not rows:
        return [f"user {token}: one event, so no row"]
    return [
        f"user {token}: {len(rows) + 1} events",
        *(_row_line(dataset, *row) for row in sorted(rows, key=lambda r: r[0])),
    ]


def _row_line(dataset: SequentialDataset, end: int, part: str, rows: Rows, index: int) -> str:
    start, first, target = int(rows.start[index]), int(rows.history_start[index]), int(rows.target[index])
    history = [str(item) for item in dataset.id2token(dataset.iid_field, dataset.items[start:end])]
    dots = [f"({start - first} older)"] if start > first else []
    when = f"{dataset.times[end]:<14.14g}" if len(dataset.times) else ""
    return f"{part:<6} {when} {', '.join([*dots, *history])} -> {dataset.id2token(dataset.iid_field, target)}"
