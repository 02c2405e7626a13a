"""Models whose scores are given, loaders over given rows, and ranks counted one by one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Iterator, Optional, Sequence

import numpy as np
import torch
from recbole.data.interaction import Interaction
from torch import Tensor, nn


class TableModel(nn.Module):
    """Gives row `row_id` of a fixed score table."""

    def __init__(self, scores: Tensor) -> None:
        super().__init__()
        self.scores = scores
        self.largest_batch = 0

    def full_sort_predict(self, interaction: Interaction) -> Tensor:
        self.largest_batch = max(self.largest_batch, len(interaction))
        return self.scores[interaction["row_id"]]


class FakeLoader:
    """Evaluation batches in RecBole's four-part form, without a data set.

    Args:
        target: Target item per row.
        history: Whole history per row, oldest first, repeats included.
        batch_size: Rows per batch.
        order: Row ids in the order they are given; ascending by default.
        width: T, how many events of a history a model would be given.
    """

    def __init__(
        self,
        target: Sequence[int],
        history: Sequence[Sequence[int]],
        batch_size: int,
        order: Optional[Sequence[int]] = None,
        width: int = 3,
    ) -> None:
        self.history, self.batch_size = history, batch_size
        self.order = np.arange(len(target)) if order is None else np.asarray(order)
        length = np.array([len(items) for items in history], dtype=np.int64)
        first = np.cumsum(length) - length
        self.dataset = SimpleNamespace(
            rows=SimpleNamespace(
                user=np.arange(1, len(target) + 1, dtype=np.int32),
                target=np.asarray(target, dtype=np.int32),
                history_start=first,
                start=first + np.maximum(length - width, 0),
                end=first + length,
            )
        )

    def __iter__(self) -> Iterator[tuple]:
        for begin in range(0, len(self.order), self.batch_size):
            row_id = self.order[begin : begin + self.batch_size]
            pairs = [(place, item) for place, row in enumerate(row_id) for item in sorted(set(self.history[row]))]
            row, item = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T
            target = torch.from_numpy(self.dataset.rows.target[row_id]).long()
            interaction = Interaction({"row_id": torch.from_numpy(row_id), "item_id": target})
            yield interaction, (row, item), torch.arange(len(row_id)), target


def random_case(n_rows: int, n_items: int, n_levels: int, seed: int = 0) -> tuple[Tensor, list[int], list[list[int]]]:
    """Integer scores (many ties), targets and histories; the history of every fifth row holds its target."""
    draw = np.random.default_rng(seed)
    scores = torch.from_numpy(draw.integers(0, n_levels, (n_rows, n_items))).float()
    target = draw.integers(1, n_items, n_rows).tolist()
    history = [draw.integers(1, n_items, draw.integers(1, n_items)).tolist() for _ in range(n_rows)]
    for row in range(n_rows):
        history[row] = [item for item in history[row] if item != target[row]] or [target[row] % (n_items - 1) + 1]
        if row % 5 == 0:
            history[row].append(target[row])
    return scores, target, history


def count_slowly(scores: Sequence[float], target: int, removed: set[int]) -> tuple[int, int]:
    """(greater, equal) by looking at one item after the other."""
    greater = equal = 0
    for item in range(1, len(scores)):
        if item != target and item not in removed:
            greater += scores[item] > scores[target]
            equal += scores[item] == scores[target]
    return greater, equal


def top_slowly(scores: Sequence[float], removed: set[int], n_top: int) -> list[int]:
    """Best items by (score, index), filled up with 0."""
    left = sorted(
        (item for item in range(1, len(scores)) if item not in removed), key=lambda item: (-scores[item], item)
    )
    return (left + [0] * n_top)[:n_top]
