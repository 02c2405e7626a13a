"""A model as a user would write one outside the package: `--model=tests.user_model:LastItem`."""

from __future__ import annotations

from typing import Any

import torch
from recbole.model.abstract_recommender import SequentialRecommender
from torch import Tensor, nn
from torch.nn import functional as F


class LastItem(SequentialRecommender):
    """Next item from the last one; `explode_at` multiplies the loss of that step by infinity."""

    config_defaults = {"width": 16, "explode_at": -1}

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        self.explode_at = config["explode_at"]
        self.n_steps = 0
        self.item_embedding = nn.Embedding(self.n_items, config["width"])
        self.head = nn.Linear(config["width"], self.n_items)

    def forward(self, item_seq: Tensor, item_seq_len: Tensor) -> Tensor:
        return self.item_embedding(item_seq.gather(1, item_seq_len.unsqueeze(1) - 1).squeeze(1))

    def calculate_loss(self, interaction: Any) -> Tensor:
        state = self.forward(interaction[self.ITEM_SEQ], interaction[self.ITEM_SEQ_LEN])
        loss = F.cross_entropy(self.head(state), interaction[self.ITEM_ID])
        self.n_steps += 1
        return loss * torch.inf if self.n_steps == self.explode_at else loss

    def full_sort_predict(self, interaction: Any) -> Tensor:
        return self.head(self.forward(interaction[self.ITEM_SEQ], interaction[self.ITEM_SEQ_LEN]))
