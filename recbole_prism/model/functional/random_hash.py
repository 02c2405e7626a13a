"""Random numbers as a pure function of (seed, epoch, row, stream): no state, hence the same with any workers or resume.

The generator is SplitMix64 used as a counter-based hash: each of the four numbers goes through the full 64-bit mixer
before the next one is added, so neighbouring seeds, epochs, rows and streams give unrelated values.
"""

from __future__ import annotations

from typing import TypeVar, Union

import numpy as np
import torch

Rows = TypeVar("Rows", np.ndarray, torch.Tensor)

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: SplitMix64's step
_MASK = (1 << 64) - 1


def mix64(values: np.ndarray) -> np.ndarray:
    """SplitMix64's output function: a bijection of the 64-bit numbers; each input bit flips half of the output bits.

    Args:
        values: uint64, any shape.
    """
    mixed = values + _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def hash_seed(seed: int, epoch: int, stream: int) -> int:
    """One 64-bit number of (seed, epoch, stream), e.g. to seed another generator."""
    state = np.zeros(1, dtype=np.uint64)
    for part in (seed, epoch, stream):
        state = mix64(state + np.uint64(part & _MASK))
    return int(state[0])


def hash_uniform(seed: int, epoch: int, rows: Rows, stream: int) -> Rows:
    """Independent uniform numbers, one per row.

    Args:
        seed: The run's seed.
        epoch: Number of the epoch, from 0.
        rows: Integer row numbers, any shape; an array or a tensor.
        stream: What the number is for. Draws for different purposes take different streams.

    Returns:
        float64 in [0, 1) with 53 random bits, in the shape (and kind, and device) of `rows`.
    """
    if isinstance(rows, torch.Tensor):
        uniform = _uniform(hash_seed(seed, epoch, stream), rows.detach().cpu().numpy())
        return torch.from_numpy(uniform).to(rows.device)
    return _uniform(hash_seed(seed, epoch, stream), rows)


def _uniform(state: int, rows: Union[np.ndarray, np.integer]) -> np.ndarray:
    mixed = mix64(np.asarray(rows).astype(np.uint64) + np.uint64(state))
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53
