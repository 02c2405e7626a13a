"""Scores and loss of every model of this package whose output layer is the item table."""

from __future__ import annotations

from typing import Optional

import torch
from recbole.data.interaction import Interaction
from torch import Tensor, nn
from torch.nn import functional

from recbole_prism.model.functional.linear_cross_entropy import linear_cross_entropy
from recbole_prism.model.functional.loss_parts import LossParts


class ItemScores:
    """Mixin for RecBole's `SequentialRecommender`: `forward` [B, d] against the item table, full softmax.

    Attributes:
        item_embedding: [V, d] item table.
        fast_path: False computes plainly.
    """

    ITEM_SEQ: str
    ITEM_SEQ_LEN: str
    ITEM_ID: str
    POS_ITEM_ID: str
    item_embedding: nn.Embedding
    fast_path: bool

    def forward(self, item_seq: Tensor, item_seq_len: Tensor) -> Tensor:
        """Sequence representation, as RecBole: item ids [B, w] and lengths [B] -> [B, d]."""
        raise NotImplementedError

    def output_table(self) -> tuple[Tensor, Optional[Tensor]]:
        """What representations are scored against: item vectors [V, d] and the items' bias [V], if there is one."""
        return self.item_embedding.weight, None

    def item_scores(self, output: Tensor) -> Tensor:
        """Scores of all items, padding column included: [B, d] -> [B, V]."""
        items, bias = self.output_table()
        scores = torch.matmul(output, items.T)
        return scores if bias is None else scores + bias

    def recommendation_loss(self, output: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy over all items (padding column included, as in RecBole): [B, d], [B] -> scalar."""
        if self.fast_path:
            items, bias = self.output_table()
            return linear_cross_entropy(output, items, targets, bias)
        return functional.cross_entropy(self.item_scores(output), targets)

    def calculate_loss(self, interaction: Interaction) -> LossParts:
        """Loss parts of a batch; here the recommendation loss alone."""
        output = self.forward(interaction[self.ITEM_SEQ], interaction[self.ITEM_SEQ_LEN])
        return LossParts({"rec": self.recommendation_loss(output, interaction[self.POS_ITEM_ID])})

    def predict(self, interaction: Interaction) -> Tensor:
        """Score of one item per row. [B]"""
        output = self.forward(interaction[self.ITEM_SEQ], interaction[self.ITEM_SEQ_LEN])
        (items, bias), candidates = self.output_table(), interaction[self.ITEM_ID]
        scores = (output * items[candidates]).sum(dim=1)
        return scores if bias is None else scores + bias[candidates]

    def full_sort_predict(self, interaction: Interaction) -> Tensor:
        """Scores of all items. [B, V]"""
        return self.item_scores(self.forward(interaction[self.ITEM_SEQ], interaction[self.ITEM_SEQ_LEN]))
