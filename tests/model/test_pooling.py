"""Poolings by hand; inner products of sequences against the dense product; states packed against padded."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from recbole_prism.model.functional.info_nce import info_nce
from recbole_prism.model.functional.pooling import looks_at_padding, pool
from recbole_prism.model.functional.sequence_gram import _blocks, sequence_gram, sequence_info_nce
from recbole_prism.model.layers.packed import pack
from recbole_prism.model.layers.states import PackedStates, PaddedStates
from tests.model.helpers import sequences

STATES = torch.tensor([[[1.0], [2.0], [9.0]], [[4.0], [5.0], [6.0]]])
LENGTHS = torch.tensor([2, 3])


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ("last", [[2.0], [6.0]]),
        ("mean_valid", [[1.5], [5.0]]),
        ("mean_all", [[4.0], [5.0]]),
        ("concat_valid", [[1.0, 2.0, 0.0], [4.0, 5.0, 6.0]]),
        ("concat_all", [[1.0, 2.0, 9.0], [4.0, 5.0, 6.0]]),
    ],
)
def test_poolings_by_hand(pooling: str, expected: list[list[float]]) -> None:
    assert pool(STATES, LENGTHS, pooling).tolist() == expected
    other = STATES.clone()
    other[0, 2] = -3.0  # padding
    assert torch.equal(pool(other, LENGTHS, pooling), torch.tensor(expected)) != looks_at_padding(pooling)


def test_an_unknown_pooling_is_refused() -> None:
    with pytest.raises(ValueError, match="pooling must be one of"):
        pool(STATES, LENGTHS, "max")


def ragged(lengths: list[int], width: int, size: int = 3) -> Tensor:
    """Random float64 states [R, width, size], 0 behind the lengths."""
    states = torch.randn(len(lengths), width, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return states * (torch.arange(width) < torch.tensor(lengths)[:, None])[..., None]


@pytest.mark.parametrize("lengths", [[1], [4, 4, 4], [1, 7, 2, 2, 5, 1, 1, 3], [1, 1, 1, 1, 1, 1, 1, 9]])
def test_gram_equals_the_dense_product_with_its_gradient(lengths: list[int]) -> None:
    states = ragged(lengths, max(lengths)).requires_grad_()
    weights = torch.randn(len(lengths), len(lengths), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (gram, gradient), (dense, expected) = (
        (product.detach(), torch.autograd.grad((product * weights).sum(), states)[0] * (states != 0))
        for product in (sequence_gram(states, np.array(lengths)), states.flatten(1) @ states.flatten(1).T)
    )
    assert torch.allclose(gram, dense, atol=1e-12) and torch.allclose(gradient, expected, atol=1e-12)


def test_blocks_cover_every_position_of_every_sequence_once() -> None:
    lengths = np.array([1, 7, 2, 2, 5, 1, 1, 3])
    seen = np.zeros((8, 7), dtype=int)
    ordered = np.sort(lengths)[::-1]
    for start, stop, n in _blocks(lengths):
        seen[:n, start:stop] += 1
    assert (seen[np.arange(7) < ordered[:, None]] == 1).all()
    assert seen.sum() < 8 * 7  # and not everything


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_sequence_contrast_is_info_nce_of_concatenations(similarity: str) -> None:
    lengths = [3, 1, 6, 2, 2, 5, 4, 1]
    states = ragged(lengths, 6)
    expected = info_nce(states[:4].flatten(1), states[4:].flatten(1), 0.7, similarity)
    assert float(sequence_info_nce(states, np.array(lengths), 0.7, similarity)) == pytest.approx(float(expected))


def test_packed_and_padded_states_agree() -> None:
    items, lengths = sequences(6, 8, 30)
    generator = torch.Generator().manual_seed(3)
    table, values = (torch.randn(30, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    queries = torch.randn(8, 4, generator=generator, dtype=torch.float64)
    query = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    batch = pack([(items, lengths)])
    packed = PackedStates(table[batch.items], lengths, 6, batch.items, batch)
    padded = PaddedStates(table[items], lengths, 6, items)
    inside = torch.arange(8) < lengths[:, None]
    width = int(lengths.max())
    assert torch.equal(packed.last(packed.tokens), padded.last(padded.tokens))
    assert torch.equal(packed.spread(packed.tokens), (padded.tokens * inside[..., None])[:, :width])
    assert torch.equal(packed.spread(packed.positions)[inside[:, :width]], padded.positions[inside])
    pairs = [
        (states.spread(states.weights(query, states.tokens)), states.spread(states.attend(queries, states.tokens, v)))
        for states, v in ((packed, values[batch.items]), (padded, values[items]))
    ]
    assert torch.allclose(pairs[0][0], pairs[1][0][:, :width], atol=1e-12)
    assert torch.allclose(pairs[0][1], (pairs[1][1] * inside[..., None])[:, :width], atol=1e-12)
    for row, length in enumerate(lengths.tolist()):  # by hand
        keys = table[items[row, :length]]
        assert torch.allclose(pairs[1][0][row, :length], torch.softmax(keys @ query[row], 0), atol=1e-12)
        for t in range(length):
            expected = torch.softmax(keys @ queries[t], 0) @ values[items[row, :length]]
            assert torch.allclose(pairs[1][1][row, t], expected, atol=1e-12)


def test_unmasked_padded_states_see_padding() -> None:
    items, lengths = sequences(4, 6, 30, lengths=[2, 3, 6, 1])
    table = torch.randn(30, 4, generator=torch.Generator().manual_seed(3))
    open_states = PaddedStates(table[items], lengths, 4, items, masks_padding=False)
    weights = open_states.weights(torch.ones(4, 4), open_states.tokens)
    assert (weights > 0).all() and torch.allclose(weights.sum(1), torch.ones(4))
