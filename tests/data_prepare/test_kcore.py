"""Iterated k-core against the definition."""

from __future__ import annotations

import numpy as np
import pytest

from recbole_prism.data.event_store import EVENT
from recbole_prism.data.kcore import Counts, iterated_core


def as_events(pairs: list[tuple[int, int]]) -> np.ndarray:
    events = np.zeros(len(pairs), EVENT)
    events["user"], events["item"] = zip(*pairs)
    return events


def core_by_definition(pairs: list[tuple[int, int]], core: int) -> list[tuple[int, int]]:
    """Drop one offender at a time until there is none."""
    left = list(pairs)
    while True:
        for side in (0, 1):
            keys = [pair[side] for pair in left]
            offender = next((key for key in keys if keys.count(key) < core), None)
            if offender is not None:
                left = [pair for pair in left if pair[side] != offender]
                break
        else:
            return left


def kept(
    pairs: list[tuple[int, int]], core: int, chunk: int = 1000
) -> tuple[list[tuple[int, int]], tuple[Counts, ...]]:
    events = as_events(pairs)
    n_users, n_items = int(events["user"].max()) + 1, int(events["item"].max()) + 1
    result = iterated_core(lambda: np.array_split(events, -(-len(events) // chunk)), n_users, n_items, core)
    return [pair for pair in pairs if result.keep_user[pair[0]] and result.keep_item[pair[1]]], result.rounds


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("core", [1, 2, 3, 4])
def test_equals_the_definition_on_random_logs(seed: int, core: int) -> None:
    draw = np.random.default_rng(seed)
    pairs = [(int(u), int(i)) for u, i in zip(draw.integers(0, 15, 60), draw.integers(0, 12, 60))]
    found, rounds = kept(pairs, core, chunk=7)
    assert found == core_by_definition(pairs, core)
    if rounds:
        assert rounds[-1] == Counts(len({u for u, _ in found}), len({i for _, i in found}), len(found))


def test_one_pass_is_not_enough_here() -> None:
    # user 3 has items 0 and 9; item 9 is rare, without it user 3 is, without user 3 nothing more falls
    pairs = [(u, i) for u in range(2) for i in range(2)] + [(3, 0), (3, 9)]
    found, rounds = kept(pairs, 2)
    assert found == pairs[:4]
    assert rounds == (Counts(3, 2, 5), Counts(2, 2, 4))


def test_repeats_count_as_often_as_they_happen() -> None:
    pairs = [(0, 0), (0, 0), (0, 1)]
    assert kept(pairs, 2)[0] == pairs[:2]


def test_nothing_left() -> None:
    found, rounds = kept([(0, 0), (1, 1)], 2)
    assert found == [] and rounds == (Counts(0, 0, 0),)


def test_core_zero_keeps_everything() -> None:
    pairs = [(0, 5), (3, 2)]
    assert kept(pairs, 0) == (pairs, ())
