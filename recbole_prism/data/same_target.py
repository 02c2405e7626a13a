"""Partners of a row: the other rows of the training part that have the same target item."""

from __future__ import annotations

from functools import cached_property
from typing import Optional

import numpy as np

from recbole_prism.model.functional.random_hash import mix64

_BASE = 0x9E3779B97F4A7C15  # odd, hence invertible modulo 2^64


class SameTargetIndex:
    """Rows grouped by target, for uniform draws within a group.

    A row never draws from its own block: itself, or with `prefix_key` every row of the group that has the same key.
    Blocks are contiguous in `order`, so a draw is one multiplication and one shift past the block. Where the block is
    the whole group, the row is its own partner.

    Args:
        targets: Target of each row. [R]
        prefix_key: Key of each row's history, see `window_keys`; None excludes the row alone. [R]
    """

    def __init__(self, targets: np.ndarray, prefix_key: Optional[np.ndarray] = None) -> None:
        n_rows = len(targets)
        keys = (targets,) if prefix_key is None else (prefix_key, targets)  # lexsort: last key first, stable
        self.order = np.lexsort(keys)  # row ids grouped by target, then by history
        new_group = self._is_new(targets[self.order])
        new_block = (
            np.ones(n_rows, dtype=bool) if prefix_key is None else new_group | self._is_new(prefix_key[self.order])
        )
        self.group_start, self.group_size = self._spans(new_group)
        self.block_start, self.block_size = self._spans(new_block)

    @staticmethod
    def _is_new(values: np.ndarray) -> np.ndarray:
        """True where a value differs from the one before it. [R] -> [R]"""
        new = np.ones(len(values), dtype=bool)
        new[1:] = values[1:] != values[:-1]
        return new

    def _spans(self, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Start and size of each row's run of equal values, by row id; `new` is by place in `order`."""
        starts = np.flatnonzero(new)
        sizes = np.diff(np.append(starts, len(new)))
        start_of_row, size_of_row = np.empty(len(new), dtype=np.int64), np.empty(len(new), dtype=np.int64)
        start_of_row[self.order] = np.repeat(starts, sizes)
        size_of_row[self.order] = np.repeat(sizes, sizes)
        return start_of_row, size_of_row

    def draw(self, rows: np.ndarray, uniform01: np.ndarray) -> np.ndarray:
        """A partner for each row, uniform over the allowed rows of its group.

        Args:
            rows: Row ids. [B]
            uniform01: Uniform numbers in [0, 1). [B]

        Returns:
            Row ids; the row itself where it has no partner. [B]
        """
        start, block, n_block = self.group_start[rows], self.block_start[rows], self.block_size[rows]
        n_allowed = self.group_size[rows] - n_block
        place = start + np.minimum((uniform01 * n_allowed).astype(np.int64), np.maximum(n_allowed - 1, 0))
        place = np.where(place >= block, place + n_block, place)
        alone = n_allowed == 0
        return np.where(alone, rows, self.order[np.where(alone, 0, place)])

    @cached_property
    def last(self) -> np.ndarray:
        """Of each row the allowed row of the largest number, itself where there is none: what ICSRec's code takes.

        int64 [R]
        """
        block_starts, block_of_row = np.unique(self.block_start, return_inverse=True)
        group_starts, group_of_row = np.unique(self.group_start, return_inverse=True)
        first_block = np.searchsorted(block_starts, group_starts)  # of each group
        largest = np.maximum.reduceat(self.order, block_starts)  # of each block
        top = np.maximum.reduceat(largest, first_block)  # of each group
        is_top = largest == np.repeat(top, np.diff(np.append(first_block, len(block_starts))))
        second = np.maximum.reduceat(np.where(is_top, -1, largest), first_block)  # of each group, without its top block
        partner = np.where(is_top[block_of_row], second[group_of_row], top[group_of_row])
        return np.where(partner < 0, np.arange(len(partner)), partner)


def window_keys(items: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """A 64-bit key of the content of each window items[start:end]; equal content gives equal keys.

    A polynomial hash of mixed item ids, all windows at once from one running sum (arithmetic modulo 2^64).

    Args:
        items: Item ids. [N]
        start, end: Windows. [R]
    """
    powers = _powers(_BASE, len(items) + 1)
    inverse = _powers(pow(_BASE, -1, 1 << 64), len(items) + 1)
    sums = np.zeros(len(items) + 1, dtype=np.uint64)
    np.cumsum(mix64(items.astype(np.uint64)) * powers[:-1], out=sums[1:])
    return mix64((sums[end] - sums[start]) * inverse[start] + (end - start).astype(np.uint64))


def _powers(base: int, n: int) -> np.ndarray:
    """base^0 ... base^(n-1) modulo 2^64."""
    factors = np.full(n, base, dtype=np.uint64)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint64)
