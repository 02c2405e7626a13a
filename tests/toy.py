"""Small data sets whose right answers are known, written as RecBole atomic files."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Callable, Iterable, Union

Event = tuple[str, str, Union[int, float, str]]  # user, item, time

CYCLE = 40
CYCLE_USERS = 60
# Ids that break careless readers: leading zeros, spaces, quotes inside, non-ASCII.
TOKENS = ("B000-01", "007", "7", "item 3", 'a"b', "Ünïcödé", "日本語", "1e3", "-5", "[x]")


def write_inter(folder: Path, name: str, events: Iterable[Event], header: str = "") -> Path:
    """Write <folder>/<name>/<name>.inter.

    Args:
        folder: The data_path of a config.
        name: The data set's name.
        events: (user, item, time) in the file's order.
        header: Header line; by default RecBole's names of the three columns.

    Returns:
        Path of the file.
    """
    path = folder / name / f"{name}.inter"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [header or "user_id:token\titem_id:token\ttimestamp:float"]
    lines += ["\t".join(str(value) for value in event) for event in events]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def cyclic() -> list[Event]:
    """60 users walk a cycle of 40 items, so the next item is known; walks of 8 to 25 steps never meet an item twice."""
    draw = random.Random(7)
    events: list[Event] = []
    for user in range(CYCLE_USERS):
        start, length, begin = draw.randrange(CYCLE), draw.randint(8, 25), draw.randrange(10_000)
        # each user has a last digit of its own (base 60), so no two events of the data set share a time
        events += [(f"u{user}", f"i{(start + k) % CYCLE}", (begin + k) * CYCLE_USERS + user) for k in range(length)]
    draw.shuffle(events)
    return events


def short() -> list[Event]:
    """User un has n events on items a, b, c, d, e, one per second; u1 comes last in time, u5 first."""
    return [(f"u{n}", "abcde"[k], 1000 - 100 * n + k) for n in range(1, 6) for k in range(n)]


def ties() -> list[Event]:
    """Unix times. 'second': one event per second, file newest first. 'day': six events at one moment, in file order."""
    moment = 1_700_000_000
    events: list[Event] = [("second", f"s{k}", moment + k) for k in reversed(range(6))]
    return events + [("day", f"d{k}", moment) for k in (3, 1, 4, 0, 5, 2)]


def tok() -> list[Event]:
    """Three users with odd names see ten items with odd names, in turn."""
    users = ("A 1", "001", "Zoë")
    return [
        (user, TOKENS[(k + n) % len(TOKENS)], 10 * k + n) for k in range(len(TOKENS)) for n, user in enumerate(users)
    ]


def repeats() -> list[Event]:
    """20 users with up to 30 events on 6 items, so items and whole prefixes repeat within and across users."""
    draw = random.Random(3)
    clock = iter(range(10_000))
    return [(f"u{draw.randrange(20)}", f"i{draw.randrange(6)}", next(clock)) for _ in range(400)]


ALL: dict[str, Callable[[], list[Event]]] = {
    "cyclic": cyclic,
    "short": short,
    "ties": ties,
    "tok": tok,
    "repeats": repeats,
}


def write_all(folder: Path) -> Path:
    """Write every toy data set under `folder` and return it: a data_path."""
    for name, make in ALL.items():
        write_inter(folder, name, make())
    return folder
