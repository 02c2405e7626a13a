"""Position-wise feed-forward block with RecBole's parameters."""

from __future__ import annotations

from typing import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from recbole_prism.model.layers.dropout import Dropout

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,  # the exact (erf) form, as in RecBole
    "relu": functional.relu,
    "swish": functional.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}


class FeedForward(nn.Module):
    """LayerNorm(dropout(W_2 act(W_1 x + b_1) + b_2) + x), any leading shape.

    Args:
        hidden_size: d.
        inner_size: Width between the two projections.
        hidden_dropout_prob: Dropout of the output.
        hidden_act: A name in `ACTIVATIONS`.
        layer_norm_eps: Epsilon of the LayerNorm.
    """

    def __init__(
        self, hidden_size: int, inner_size: int, hidden_dropout_prob: float, hidden_act: str, layer_norm_eps: float
    ) -> None:
        super().__init__()
        self.dense_1 = nn.Linear(hidden_size, inner_size)
        self.activation = ACTIVATIONS[hidden_act]
        self.dense_2 = nn.Linear(inner_size, hidden_size)
        self.LayerNorm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.dropout = Dropout(hidden_dropout_prob)

    def forward(self, hidden: Tensor) -> Tensor:
        """[..., d] -> [..., d]."""
        return self.LayerNorm(self.dropout(self.dense_2(self.activation(self.dense_1(hidden)))) + hidden)
