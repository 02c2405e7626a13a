"""Popularity and the Markov chain against counts by hand and against a loop."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from recbole_prism.model.sequential_recommender.markov import Markov
from recbole_prism.model.sequential_recommender.popularity import Popularity
from tests.model.helpers import build, sequences


def split(walks: list[list[int]], n_items: int) -> Any:
    """Training rows of some walks: one per item that has another before it."""
    items = np.concatenate([np.array(walk) for walk in walks])
    first = np.cumsum([0] + [len(walk) for walk in walks[:-1]])
    end = np.concatenate([np.arange(start + 1, start + len(walk)) for start, walk in zip(first, walks)])
    rows = SimpleNamespace(end=end, target=items[end])
    return SimpleNamespace(items=items, rows=rows, item_counts_train=np.bincount(items, minlength=n_items))


def test_popularity_counts_events() -> None:
    model = build(Popularity, n_items=6)
    model.count(split([[1, 2, 2], [2, 5]], 6))
    seq, lengths = sequences(3, 4, 6)
    assert model.item_scores(seq, lengths).tolist() == [[0, 1, 3, 0, 0, 1]] * 3


def test_markov_by_hand() -> None:
    model = build(Markov, n_items=6)
    model.count(split([[1, 2, 1, 2, 3], [1, 4]], 6))
    scores = model.item_scores(torch.tensor([[4, 1, 0], [5, 3, 0], [2, 1, 2]]), torch.tensor([2, 2, 3]))
    share = np.array([0, 3, 2, 1, 1, 0]) / 7
    expected = [
        (np.array([0, 0, 2, 0, 1, 0]) + share) / 4,  # 1 is followed by 2 twice and by 4 once
        share,  # nothing follows 3
        (np.array([0, 1, 0, 1, 0, 0]) + share) / 3,
    ]
    assert scores.numpy() == pytest.approx(np.array(expected), abs=1e-7)
    assert scores.sum(dim=1).tolist() == pytest.approx([1.0] * 3)


def test_markov_against_a_loop_and_through_its_state() -> None:
    """60 walks on 40 items; a new model with the stored state, whose sizes it does not know before, scores the same."""
    draw = np.random.default_rng(0)
    walks = [draw.integers(1, 40, draw.integers(2, 12)).tolist() for _ in range(60)]
    model, other = build(Markov, n_items=40), build(Markov, n_items=40)
    model.count(split(walks, 40))
    seq, lengths = sequences(20, 7, 40)
    table = np.zeros((40, 40))
    for walk in walks:
        for one, following in zip(walk, walk[1:]):
            table[one, following] += 1
    share = np.bincount(np.concatenate(walks), minlength=40) / sum(map(len, walks))
    last = seq[torch.arange(20), lengths - 1].numpy()
    expected = (table[last] + share) / (table[last].sum(axis=1, keepdims=True) + 1)
    assert model.item_scores(seq, lengths).numpy() == pytest.approx(expected, abs=1e-6)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.item_scores(seq, lengths), model.item_scores(seq, lengths))
