"""Packing leaves out padding and nothing else."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from recbole_prism.model.layers import packed as packed_module
from recbole_prism.model.layers.dropout import Dropout
from recbole_prism.model.layers.packed import MAX_GROUPS, group_boundaries, pack, restack
from tests.model.helpers import sequences


def test_pack_by_hand() -> None:
    anchor = (torch.tensor([[5, 6, 7], [8, 0, 0]]), torch.tensor([3, 1]))
    view = (torch.tensor([[9, 0]]), torch.tensor([2]))  # id 0 inside the length: a masked item
    batch = pack([anchor, view])
    assert batch.order.tolist() == [1, 2, 0]
    assert batch.items.tolist() == [8, 9, 0, 5, 6, 7]
    assert batch.positions.tolist() == [0, 0, 1, 0, 1, 2]
    assert batch.sequences.tolist() == [1, 2, 2, 0, 0, 0]
    assert batch.key_mask.tolist() == [True, True, False, True, True, True]
    assert batch.last_tokens.tolist() == [0, 2, 5]
    assert batch.to_row_order(torch.tensor([10, 20, 30])).tolist() == [30, 10, 20]


@pytest.mark.parametrize("causal", [True, False])
def test_groups_cover_all_tokens_and_show_the_right_keys(causal: bool) -> None:
    seq, length = sequences(40, 30, 99)
    seq[3, 0] = 0
    batch = pack([(seq, length)], causal=causal)
    assert sum(batch.group_sizes) == int(length.sum()) and len(batch.groups) <= MAX_GROUPS
    for group, items, owners in zip(batch.groups, batch.split(batch.items), batch.split(batch.sequences)):
        block = group.pad(items)
        assert torch.equal(group.unpad(block), items)
        rows = batch.order[group.rows]
        assert torch.equal(block, seq[rows][:, : group.width]) and torch.equal(owners.unique(), rows.unique())
        for place, row in enumerate(rows):
            for i, j in itertools.product(range(group.width), repeat=2):
                expected = j < length[row] and seq[row, j] != 0 and (j <= i or not causal)
                expected = expected or (row == 3 and causal and i == j == 0)  # sees nothing else, so itself
                assert bool(group.visible[place, 0, i, j]) == bool(expected)
            last = int(length[row]) - 1
            assert torch.equal(group.visible_to_last[place, 0, 0], group.visible[place, 0, last])


def best_by_brute_force(lengths: np.ndarray) -> float:
    """Least work over every way to cut the sorted lengths into at most MAX_GROUPS runs of whole lengths."""
    ends = np.flatnonzero(np.diff(lengths)) + 1
    best = np.inf
    for n_cuts in range(min(MAX_GROUPS, len(ends) + 1)):
        for cuts in itertools.combinations(ends, n_cuts):
            best = min(best, work([0, *cuts, len(lengths)], lengths))
    return best


def work(bounds: list[int], lengths: np.ndarray) -> float:
    pairs = zip(bounds[:-1], bounds[1:])
    return sum((stop - start) * float(lengths[stop - 1]) ** 2 + packed_module._GROUP_COST for start, stop in pairs)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("cost", [0, 10, 1000])
def test_group_boundaries_are_optimal(seed: int, cost: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_module, "_GROUP_COST", cost)
    lengths = np.sort(
        np.random.default_rng(seed).choice(np.arange(1, 50), 10)[np.random.default_rng(seed).integers(0, 10, 40)]
    )
    bounds = group_boundaries(lengths)
    assert bounds[0] == 0 and bounds[-1] == len(lengths) and bounds == sorted(set(bounds))
    assert work(bounds, lengths) == pytest.approx(best_by_brute_force(lengths))


def test_restack_adds_copies() -> None:
    seq, length = sequences(6, 9, 50)
    batch = pack([(seq, length)])
    larger, tokens, place = restack(batch, 4)
    assert torch.equal(batch.items[tokens], batch.items[batch.sequences < 4])
    assert torch.equal(torch.sort(place).values, torch.arange(len(place)))  # a permutation
    direct = pack([(seq, length), (seq[:4], length[:4])])
    assert torch.equal(larger.items, direct.items) and torch.equal(larger.sequences, direct.sequences)
    assert torch.equal(torch.cat([batch.items, batch.items[tokens]])[place], direct.items)


@pytest.mark.parametrize(("first", "n"), [(0, 6), (2, 3), (5, 1), (3, 0)])
def test_tokens_of_some_sequences(first: int, n: int) -> None:
    batch = pack([sequences(6, 9, 50)])
    wanted = (batch.sequences >= first) & (batch.sequences < first + n)
    assert torch.equal(batch.tokens_of(first, n), torch.nonzero(wanted).squeeze(1))


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_dropout_has_the_right_distribution(probability: float) -> None:
    """Rate and scale; neighbouring elements, which share a random word, are uncorrelated (5 sigma)."""
    torch.manual_seed(3)
    n = 400_000
    dropped = Dropout(probability)(torch.ones(n))
    kept = (dropped != 0).float()
    sigma = (probability * (1 - probability) / n) ** 0.5
    assert abs(float(kept.mean()) - (1 - probability)) < 5 * sigma
    assert torch.allclose(dropped[dropped != 0], torch.tensor(1 / (1 - probability)), rtol=1e-3)
    for lag in (1, 2, 3):
        both = float((kept[:-lag] * kept[lag:]).mean())
        assert abs(both - (1 - probability) ** 2) < 5 * ((1 - probability) ** 2 / n) ** 0.5


def test_dropout_edges() -> None:
    values = torch.randn(7)
    assert torch.equal(Dropout(1e-6)(values), values)  # rounds to 0, not to 1
    assert (Dropout(1e-5)(torch.ones(100_000)) != 0).float().mean() > 0.99
    assert Dropout(0.0)(values) is values
    assert Dropout(0.5).eval()(values) is values
    assert float(Dropout(1.0)(values).abs().sum()) == 0.0
    with pytest.raises(ValueError, match="must lie in"):
        Dropout(1.5)
