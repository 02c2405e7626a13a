"""Draws of same-target partners: exactly uniform over the allowed rows."""

from __future__ import annotations

from collections import Counter

import numpy as np

from recbole_prism.data.same_target import SameTargetIndex, window_keys

TARGETS = np.array([7, 3, 7, 7, 9, 3, 7])


def draws(index: SameTargetIndex, row: int, n: int = 6000) -> Counter:
    """Partners of one row over an even grid of uniform numbers, whose ends are the extremes of [0, 1)."""
    grid = np.append((np.arange(n - 1) + 0.5) / n, np.nextafter(1.0, 0.0))
    return Counter(index.draw(np.full(n, row), grid).tolist())


def test_uniform_over_the_other_rows() -> None:
    index = SameTargetIndex(TARGETS)
    for row in (0, 2, 3, 6):
        assert draws(index, row) == {other: 2000 for other in (0, 2, 3, 6) if other != row}
    assert draws(index, 1) == {5: 6000} and draws(index, 5) == {1: 6000}
    assert draws(index, 4) == {4: 6000}  # alone


def test_rows_with_the_same_history_are_excluded() -> None:
    index = SameTargetIndex(TARGETS, prefix_key=np.array([1, 1, 2, 1, 1, 1, 3]))
    assert draws(index, 0) == draws(index, 3) == {2: 3000, 6: 3000}
    assert draws(index, 2) == {0: 2000, 3: 2000, 6: 2000}
    for row in (1, 4, 5):  # nothing else has another history
        assert draws(index, row) == {row: 6000}


def test_last_is_icsrecs_loop() -> None:
    """The published loop goes on to the end of the group, so the last row with another history stays."""
    draw = np.random.default_rng(1)
    targets, keys = draw.integers(0, 12, 200), draw.integers(0, 4, 200).astype(np.uint64)
    for prefix_key in (keys, None):
        expected = []
        for row in range(200):
            partner = row
            for other in np.flatnonzero(targets == targets[row]):
                if other != row and (prefix_key is None or prefix_key[other] != prefix_key[row]):
                    partner = other
            expected.append(partner)
        assert SameTargetIndex(targets, prefix_key).last.tolist() == expected
    assert SameTargetIndex(TARGETS).last[4] == 4  # alone


def test_keys_are_equal_for_equal_windows_only() -> None:
    draw = np.random.default_rng(0)
    items = draw.integers(1, 4, 500)
    start = draw.integers(0, 489, 4000)
    end = start + draw.integers(1, 11, 4000)
    keys = window_keys(items, start, end)
    by_content: dict[tuple, int] = {}
    for window, key in zip((tuple(items[a:b]) for a, b in zip(start, end)), keys):
        assert by_content.setdefault(window, key) == key
    assert len(set(by_content.values())) == len(by_content) > 1000
