"""Dense mixture of feed-forward experts: every expert is computed, a softmax gate mixes them."""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor, nn
from torch.nn import functional

from recbole_prism.model.layers.dropout import Dropout


class DenseMixture(nn.Module):
    """LayerNorm(dropout(sum_e g_e (W2_e gelu(W1_e x + b1_e) + b2_e)) + x), any leading shape.

    The experts stand side by side in one pair of matrices.

    Args:
        n_experts: E.
        hidden_size: d.
        inner_size: Width inside an expert.
        dropout_prob: Dropout of the mixed output.
        layer_norm_eps: Epsilon of the LayerNorm.
    """

    def __init__(
        self, n_experts: int, hidden_size: int, inner_size: int, dropout_prob: float, layer_norm_eps: float
    ) -> None:
        super().__init__()
        self.n_experts = n_experts
        self.gate = nn.Linear(hidden_size, n_experts)
        self.dense_1 = nn.Linear(hidden_size, n_experts * inner_size)
        self.dense_2 = nn.Linear(n_experts * inner_size, hidden_size, bias=False)
        self.bias_2 = nn.Parameter(torch.zeros(n_experts, hidden_size))
        self.LayerNorm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.dropout = Dropout(dropout_prob)

    def forward(self, hidden: Tensor, gate_input: Optional[Tensor] = None) -> Tensor:
        """[..., d] -> [..., d]; `gate_input` [..., d] decides over the experts, None: the input itself."""
        gates = torch.softmax(self.gate(hidden if gate_input is None else gate_input), dim=-1)
        inner = functional.gelu(self.dense_1(hidden)).unflatten(-1, (self.n_experts, -1))
        mixed = self.dense_2((inner * gates.unsqueeze(-1)).flatten(-2)) + torch.matmul(gates, self.bias_2)
        return self.LayerNorm(self.dropout(mixed) + hidden)
