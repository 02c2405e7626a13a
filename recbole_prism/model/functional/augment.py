"""Random views of histories: crop, mask and reorder, for all rows of a batch at once (CL4SRec, ICLRec, ELCRec, IOCRec).

Xie et al., "Contrastive Learning for Sequential Recommendation", ICDE 2022. Pure functions of arrays and uniform
numbers in [0, 1); no argument is written to. Histories are right-padded with 0; `lengths` are at least 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

import numpy as np

OPERATORS = ("crop", "mask", "reorder")
N_ROW_DRAWS = 2  # uniform numbers of a row before those of its positions: the operator, the start of the window

View = tuple[np.ndarray, np.ndarray]  # item ids [B, w] right-padded with 0, lengths [B]


@dataclass(frozen=True)
class Augmentation:
    """How views are made.

    Attributes:
        types: Operators to draw from, without repetition.
        crop_ratio: Share of a history that crop keeps, at least one item.
        mask_ratio: Share of the items that mask replaces, below 1.
        reorder_ratio: Share of a history that reorder shuffles.
        mask_id: What a masked item becomes: an id above the real ones, or 0, which attention does not look at.
        distinct: The two views of a row come from different operators (if there are two).
    """

    types: tuple[str, ...]
    crop_ratio: float
    mask_ratio: float
    reorder_ratio: float
    mask_id: int
    distinct: bool

    def two_views(self, items: np.ndarray, lengths: np.ndarray, first: np.ndarray, second: np.ndarray) -> list[View]:
        """Two views of each row, each by one operator drawn uniformly.

        Args:
            items: Item ids. int [B, w]
            lengths: int [B]
            first, second: Uniform numbers for the two views. [B, N_ROW_DRAWS + w]

        Returns:
            Two pairs of item ids [B, w] and lengths [B].
        """
        n_types = len(self.types)
        operators = [_below(uniform[:, 0], n_types) for uniform in (first, second)]
        if self.distinct:
            others = _below(second[:, 0], max(n_types - 1, 1))
            operators[1] = (operators[0] + (n_types > 1) + others) % n_types
        return [self._view(items, lengths, *drawn) for drawn in zip(operators, (first, second))]

    def _view(self, items: np.ndarray, lengths: np.ndarray, operators: np.ndarray, uniform: np.ndarray) -> View:
        """Each row by its own operator, given as a place in `types`."""
        view_items, view_lengths = items.copy(), lengths.copy()
        for number, name in enumerate(self.types):
            rows = np.flatnonzero(operators == number)
            starts, keys = uniform[rows, 1], uniform[rows, N_ROW_DRAWS:]
            if name == "crop":
                view_items[rows], view_lengths[rows] = crop(items[rows], lengths[rows], self.crop_ratio, starts)
            elif name == "mask":
                view_items[rows] = mask(items[rows], lengths[rows], self.mask_ratio, keys, self.mask_id)
            else:
                view_items[rows] = reorder(items[rows], lengths[rows], self.reorder_ratio, starts, keys)
        return view_items, view_lengths


def crop(items: np.ndarray, lengths: np.ndarray, ratio: float, starts: np.ndarray) -> View:
    """Keep a run of max(1, floor(ratio * length)) consecutive items, moved to the front.

    Args:
        items: int [B, w]
        lengths: int [B]
        ratio: Share that is kept.
        starts: Uniform numbers that choose the run's start. [B]

    Returns:
        Item ids [B, w] and new lengths [B].
    """
    kept = np.maximum(_share(lengths, ratio), 1)
    first = _below(starts, lengths - kept + 1)
    place = np.arange(items.shape[1])
    inside = place < kept[:, None]
    return np.take_along_axis(items, np.where(inside, first[:, None] + place, 0), axis=1) * inside, kept


def mask(items: np.ndarray, lengths: np.ndarray, ratio: float, keys: np.ndarray, mask_id: int) -> np.ndarray:
    """Replace floor(ratio * length) distinct items, uniformly chosen.

    Args:
        items: int [B, w]
        lengths: int [B]
        ratio: Share that is replaced.
        keys: Uniform numbers whose ranks choose the places. [B, w]
        mask_id: What stands in their place.

    Returns:
        Item ids. [B, w]
    """
    place = np.arange(items.shape[1])
    order = np.argsort(np.where(place < lengths[:, None], keys, 2.0), axis=1, kind="stable")  # padding comes last
    chosen = np.empty(items.shape, dtype=bool)
    np.put_along_axis(chosen, order, place < _share(lengths, ratio)[:, None], axis=1)
    return np.where(chosen, mask_id, items)


def reorder(items: np.ndarray, lengths: np.ndarray, ratio: float, starts: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Shuffle a run of floor(ratio * length) consecutive items.

    Args:
        items: int [B, w]
        lengths: int [B]
        ratio: Share that is shuffled.
        starts: Uniform numbers that choose the run's start. [B]
        keys: Uniform numbers whose order is the new order inside the run. [B, w]

    Returns:
        Item ids. [B, w]
    """
    size = _share(lengths, ratio)
    first = _below(starts, lengths - size + 1)[:, None]
    place = np.arange(items.shape[1])
    inside = (place >= first) & (place < first + size[:, None])
    # inside: numbers from the run's first place up to its last, so that the run stays where it is
    order = np.argsort(np.where(inside, first + size[:, None] * keys, place), axis=1, kind="stable")
    return np.take_along_axis(items, order, axis=1)


def _share(lengths: np.ndarray, ratio: float) -> np.ndarray:
    """floor(ratio * length), in float64. int64 [B]"""
    return np.floor(lengths * float(ratio)).astype(np.int64)


def _below(uniform: np.ndarray, n: Union[np.ndarray, int]) -> np.ndarray:
    """Uniform whole numbers in {0, ..., n - 1}. int64 [B]"""
    return (uniform * n).astype(np.int64)
