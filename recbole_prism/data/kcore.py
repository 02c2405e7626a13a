"""Iterated k-core: rounds of dropping rare users and items until nobody falls below k."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Iterable

import numpy as np


@dataclass(frozen=True)
class Counts:
    """Users, items and interactions that are left after a step."""

    users: int
    items: int
    interactions: int


@dataclass(frozen=True)
class Core:
    """Result of the filter.

    Attributes:
        keep_user: [n_users] bool.
        keep_item: [n_items] bool; an interaction stays if both its user and its item do.
        rounds: What was left after each round that dropped something.
    """

    keep_user: "np.ndarray"
    keep_item: "np.ndarray"
    rounds: tuple[Counts, ...]


def iterated_core(events: Callable[[], Iterable["np.ndarray"]], n_users: int, n_items: int, core: int) -> Core:
    """Largest set of interactions in which every user and every item has at least `core` of them.

    Needs memory for one flag and one count per user and item, whatever the number of interactions, which are read once
    per round.

    Args:
        events: Called once per round, gives chunks with int fields "user" in [0, n_users) and "item" in [0, n_items).
        n_users: Number of user codes.
        n_items: Number of item codes.
        core: The k; 0 keeps every user and item that occurs.

    Returns:
        What to keep. The set does not depend on the order of dropping; the number of rounds does (here users and items
        are dropped at once).
    """
    keep_user, keep_item = np.ones(n_users, bool), np.ones(n_items, bool)
    rounds: list[Counts] = []
    while True:
        user_counts, item_counts = np.zeros(n_users, np.int64), np.zeros(n_items, np.int64)
        for chunk in events():
            kept = chunk[keep_user[chunk["user"]] & keep_item[chunk["item"]]]
            user_counts += np.bincount(kept["user"], minlength=n_users)
            item_counts += np.bincount(kept["item"], minlength=n_items)
        if rounds:  # these counts are what the round before left
            rounds[-1] = Counts(int((user_counts > 0).sum()), int((item_counts > 0).sum()), int(user_counts.sum()))
        least = max(core, 1)
        next_user, next_item = user_counts >= least, item_counts >= least
        # a user whose items are all gone has count 0: dropping it changes no count and needs no further round
        done = not ((user_counts > 0) & ~next_user).any() and not ((item_counts > 0) & ~next_item).any()
        keep_user, keep_item = next_user, next_item
        if done:
            return Core(keep_user, keep_item, tuple(rounds))
        rounds.append(Counts(0, 0, 0))
