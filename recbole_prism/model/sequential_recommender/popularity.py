"""Popularity: everybody is recommended what occurs most in the training rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from recbole_prism.model.sequential_recommender.counted import CountedRecommender


class Popularity(CountedRecommender):
    """Score of an item: its number of events in the training part."""

    counts: Tensor

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        self.register_buffer("counts", torch.zeros(self.n_items))

    def count(self, train_rows: Any) -> None:
        """See the base class."""
        self.counts.copy_(torch.from_numpy(train_rows.item_counts_train))

    def item_scores(self, item_seq: Tensor, item_seq_len: Tensor) -> Tensor:
        """The same for every history: [B, V]."""
        return self.counts.expand(item_seq.shape[0], -1)
