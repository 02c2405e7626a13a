"""Crop, mask and reorder on random histories, against what each may change; the choice of operators."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from recbole_prism.model.functional.augment import N_ROW_DRAWS, OPERATORS, Augmentation, crop, mask, reorder

WIDTH, MASK = 50, 900
RATIOS = (0.0, 0.1, 0.2, 0.29, 0.6, 0.7, 0.99)  # 0.29 * 100 is below 29 in float64


def histories(n_rows: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Right-padded histories without a repeated item, lengths from 1 to WIDTH, both ends included."""
    draw = np.random.default_rng(seed)
    lengths = np.concatenate([[1, 2, WIDTH], draw.integers(1, WIDTH + 1, n_rows - 3)])
    items = np.stack([draw.permutation(800)[:WIDTH] + 1 for _ in range(n_rows)])
    return items * (np.arange(WIDTH) < lengths[:, None]), lengths, draw


def settings(**changes: Any) -> Augmentation:
    values = {"crop_ratio": 0.6, "mask_ratio": 0.3, "reorder_ratio": 0.6, "mask_id": MASK, "distinct": True}
    return Augmentation(**{"types": OPERATORS, **values, **changes})


@pytest.mark.parametrize("ratio", RATIOS)
def test_crop_keeps_a_contiguous_run(ratio: float) -> None:
    items, lengths, draw = histories()
    view, kept = crop(items, lengths, ratio, draw.random(len(items)))
    for row, length, out, n in zip(items.tolist(), lengths.tolist(), view.tolist(), kept.tolist()):
        assert n == max(1, math.floor(length * ratio))
        start = row.index(out[0])
        assert start + n <= length and out == row[start : start + n] + [0] * (WIDTH - n)


@pytest.mark.parametrize("ratio", RATIOS)
def test_mask_replaces_that_many_items(ratio: float) -> None:
    items, lengths, draw = histories()
    view = mask(items, lengths, ratio, draw.random(items.shape), MASK)
    changed = view != items
    assert (view[changed] == MASK).all()
    assert changed.sum(1).tolist() == [math.floor(length * ratio) for length in lengths.tolist()]
    assert not changed[np.arange(WIDTH) >= lengths[:, None]].any()
    equal_keys = mask(items, lengths, ratio, np.full(items.shape, 0.5), MASK)  # even then: not one more, not one less
    assert ((equal_keys == MASK).sum(1) == changed.sum(1)).all()


@pytest.mark.parametrize("ratio", [*RATIOS, 1.0])
def test_reorder_shuffles_one_window(ratio: float) -> None:
    items, lengths, draw = histories()
    view = reorder(items, lengths, ratio, draw.random(len(items)), draw.random(items.shape))
    assert (np.sort(view, axis=1) == np.sort(items, axis=1)).all()
    for row, out, length in zip(items, view, lengths.tolist()):
        moved = np.flatnonzero(row != out)
        if len(moved):
            assert moved[-1] - moved[0] < math.floor(length * ratio) and moved[-1] < length
    if ratio == 1.0:
        assert (view != items).any(axis=1)[lengths > 5].all()


def test_one_item_is_left_as_it_is() -> None:
    items, lengths, draw = histories()
    for ratio in RATIOS:
        for view in settings(crop_ratio=ratio, mask_ratio=ratio, reorder_ratio=ratio).two_views(
            items[:1], lengths[:1], *draw.random((2, 1, N_ROW_DRAWS + WIDTH))
        ):
            assert (view[0] == items[:1]).all() and view[1].tolist() == [1]


def test_no_argument_is_written_to() -> None:
    items, lengths, draw = histories()
    arguments = [items, lengths, *draw.random((2, len(items), N_ROW_DRAWS + WIDTH))]
    before = [array.copy() for array in arguments]
    views = settings().two_views(*arguments)
    assert all(np.array_equal(array, copy) for array, copy in zip(arguments, before))
    for view in (array for pair in views for array in pair):
        assert not any(np.shares_memory(view, array) for array in arguments)


def test_every_start_and_every_order_is_equally_likely() -> None:
    """Five items, runs of three: starts 0, 1, 2, and each of the 6 orders, over an even grid and random numbers."""
    n = 6000
    items, lengths = np.tile(np.array([[1, 2, 3, 4, 5, 0]]), (n, 1)), np.full(n, 5)
    grid = np.append((np.arange(n - 1) + 0.5) / n, np.nextafter(1.0, 0.0))
    cropped, kept = crop(items, lengths, 0.6, grid)
    assert Counter(cropped[:, 0].tolist()) == {1: 2000, 2: 2000, 3: 2000} and (kept == 3).all()
    draw = np.random.default_rng(1)
    for start in (0, 1, 2):
        shuffled = reorder(items, lengths, 0.6, np.full(n, (start + 0.5) / 3), draw.random(items.shape))
        counts = Counter(map(tuple, shuffled[:, start : start + 3].tolist()))
        assert len(counts) == 6 and all(abs(count - 1000) < 5 * 29 for count in counts.values())  # sigma is 28.9
        outside = np.delete(shuffled, np.arange(start, start + 3), axis=1)
        assert (outside == np.delete(items, np.arange(start, start + 3), axis=1)).all()
    masked = mask(items, lengths, 0.6, draw.random(items.shape), MASK) == MASK
    assert (np.abs(masked[:, :5].sum(0) - 3600) < 5 * 38).all() and not masked[:, 5].any()  # sigma is 37.9


def pairs(augmentation: Augmentation, n: int = 9000) -> Counter:
    """How often each pair of operators is drawn, read off the traces that they leave in n histories of ten items."""
    items, lengths = np.tile(np.arange(1, 11), (n, 1)), np.full(n, 10)
    draws = np.random.default_rng(2).random((2, n, N_ROW_DRAWS + 10))
    kinds = []
    for view, view_lengths in augmentation.two_views(items, lengths, *draws):
        masked = (view == MASK).any(axis=1)
        kinds.append(np.where(view_lengths < 10, "crop", np.where(masked, "mask", "reorder")).tolist())
    return Counter(zip(*kinds))


def test_two_different_operators_uniformly() -> None:
    counts = pairs(settings(reorder_ratio=1.0))
    assert set(counts) == {(a, b) for a in OPERATORS for b in OPERATORS if a != b}
    assert all(abs(count - 1500) < 5 * 36 for count in counts.values())  # sigma is 35.4


def test_operators_with_replacement() -> None:
    counts = pairs(settings(reorder_ratio=1.0, distinct=False))
    assert set(counts) == {(a, b) for a in OPERATORS for b in OPERATORS}
    assert all(abs(count - 1000) < 5 * 30 for count in counts.values())  # sigma is 29.8


def test_fewer_operators() -> None:
    assert set(pairs(settings(types=("mask",)))) == {("mask", "mask")}
    assert set(pairs(settings(types=("mask", "crop")))) == {("mask", "crop"), ("crop", "mask")}
