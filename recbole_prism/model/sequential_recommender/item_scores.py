"""Scores and loss of every model of this package whose output layer is the item table."""

from __future__ import annotations

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

    def recommendation_loss(self, output: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy over all items (padding column included, as in RecBole): [B, d], [B] -> scalar."""
        items = self.item_embedding.weight
        if self.fast_path:
            return linear_cross_entropy(output, items, targets)
        return functional.cross_entropy(torch.matmul(output, items.T), targets)

    def calculate_loss(self, interaction: Interaction) -> LossParts:
        """Loss parts of a batch; here the recommendation loss alone."""
        output = self.forward(interaction[self.ITEM_SEQ], interaction[self.ITEM_SEQ_LEN])
        return LossParts({"rec": self.recommendation_loss(output, interaction[self.POS_ITEM_ID])})

    def predict(self, interaction: Interaction) -> Tensor:
        """Score of one item per row. [B]"""
        output = self.forward(interaction[self.ITEM_SEQ], interaction[self.ITEM_SEQ_LEN])
        return (output * self.item_embedding(interaction[self.ITEM_ID])).sum(dim=1)

    def full_sort_predict(self, interaction: Interaction) -> Tensor:
        """Scores of all items. [B, V]"""
        output = self.forward(interaction[self.ITEM_SEQ], interaction[self.ITEM_SEQ_LEN])
        return torch.matmul(output, self.item_embedding.weight.T)
