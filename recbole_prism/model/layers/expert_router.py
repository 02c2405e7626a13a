"""Mixture weights of a few experts from one description per sequence."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class ExpertRouter(nn.Module):
    """Gates softmax(W layer_norm(s) / temperature), dense or of the largest ones only.

    The LayerNorm has no parameters.

    Args:
        hidden_size: d.
        n_experts: K.
        temperature: Divides the logits.
        n_kept: So many of the largest gates are kept and made to sum to 1; 0 keeps all.
    """

    def __init__(self, hidden_size: int, n_experts: int, temperature: float, n_kept: int) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, n_experts)
        self.temperature, self.n_kept = temperature, n_kept

    def forward(self, description: Tensor) -> tuple[Tensor, Tensor]:
        """[B, d] -> gates [B, K] and, for the balance loss, the gates before any were left out."""
        normed = functional.layer_norm(description, description.shape[-1:])
        dense = torch.softmax(self.dense(normed) / self.temperature, dim=-1)
        if self.n_kept == 0:
            return dense, dense
        kept = torch.zeros_like(dense).scatter(-1, dense.topk(self.n_kept, dim=-1).indices, 1.0)
        gates = dense * kept
        return gates / gates.sum(-1, keepdim=True), dense


def imbalance(gates: Tensor) -> Tensor:
    """K sum_k (mean over rows of g_k)^2 - 1: 0 for a uniform mean, K - 1 where one expert has everything.

    Gates sum to 1, so it is K times the squared distance of their mean from 1 / K, which cancels no digits.
    """
    n_experts = gates.shape[-1]
    return n_experts * (gates.mean(0) - 1.0 / n_experts).square().sum()
