"""The counter-based hash: uniform, independent over all four arguments, and the same for arrays and tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from recbole_prism.model.functional.random_hash import hash_seed, hash_uniform, mix64

N = 100_000


def test_mixer_is_splitmix64() -> None:
    """First outputs of the published generator started at 0 and at 1234567."""
    assert mix64(np.array([0], dtype=np.uint64))[0] == 0xE220A8397B1DCDAF
    assert mix64(np.array([1234567], dtype=np.uint64))[0] == 6457827717110365317


@pytest.mark.parametrize("arguments", [(0, 0, 1), (2020, 0, 1), (2020, 1, 1), (2020, 0, 2), (-3, 299, 7)])
def test_uniform(arguments: tuple[int, int, int]) -> None:
    seed, epoch, stream = arguments
    values = hash_uniform(seed, epoch, np.arange(N), stream)
    assert values.dtype == np.float64 and 0 <= values.min() and values.max() < 1
    counts = np.histogram(values, bins=100, range=(0, 1))[0]
    chi2 = ((counts - N / 100) ** 2 / (N / 100)).sum()
    assert 50 < chi2 < 165  # 99 degrees of freedom: outside with probability 1e-4
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 4 / np.sqrt(N)


def test_neighbours_are_unrelated() -> None:
    rows = np.arange(N)
    reference = hash_uniform(5, 5, rows, 5)
    for other in ((6, 5, 5), (5, 6, 5), (5, 5, 6), (4, 6, 5)):
        values = hash_uniform(other[0], other[1], rows, other[2])
        assert abs(np.corrcoef(reference, values)[0, 1]) < 4 / np.sqrt(N)
    assert hash_seed(1, 2, 3) != hash_seed(2, 1, 3) != hash_seed(1, 3, 2)


def test_row_by_row_and_tensor() -> None:
    rows = np.array([[5, 0], [3, 10**12]])
    values = hash_uniform(1, 2, rows, 3)
    assert values.shape == rows.shape
    assert values[1, 1] == hash_uniform(1, 2, np.array([10**12]), 3)[0]
    tensor = hash_uniform(1, 2, torch.from_numpy(rows), 3)
    assert tensor.dtype == torch.float64 and tensor.numpy().tolist() == values.tolist()
