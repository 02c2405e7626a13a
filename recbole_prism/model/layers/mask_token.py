"""A learned vector for masked items, beside an item table that stays as it is."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class MaskToken(nn.Module):
    """Lookup in an item table extended by one row, the [mask] token, whose id is the number of the table's rows.

    The row is a parameter of its own, so that scoring and initialisation of the table are those of a model without it.

    Args:
        hidden_size: Width d.
        initializer_range: Standard deviation of the normal initialisation.
    """

    def __init__(self, hidden_size: int, initializer_range: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(hidden_size).normal_(std=initializer_range))

    def forward(self, items: Tensor, table: nn.Embedding) -> Tensor:
        """Item ids [...], 0 to the number of the table's rows -> vectors [..., d]."""
        masked = items == table.num_embeddings
        return torch.where(masked[..., None], self.weight, table(items.masked_fill(masked, 0)))
