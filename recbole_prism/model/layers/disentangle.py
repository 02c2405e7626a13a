"""The two parts of IOCRec beside the transformer: a global view of a history, and its split into parallel intents."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from recbole_prism.model.layers.dropout import Dropout
from recbole_prism.model.layers.states import States


def _linear(size: int, initializer_range: float) -> nn.Linear:
    """A square linear layer: normal weights, and the bias of torch's initialisation (as in the public code)."""
    linear = nn.Linear(size, size)
    nn.init.normal_(linear.weight, std=initializer_range)
    return linear


class GlobalAttention(nn.Module):
    """A learned query for each position over the item vectors of the whole history; no scaling, residual or LayerNorm.

    Args:
        max_length: T.
        hidden_size: d.
        dropout: Of the output.
        initializer_range: Standard deviation of the linear weights.
    """

    def __init__(self, max_length: int, hidden_size: int, dropout: float, initializer_range: float) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(max_length, hidden_size))
        self.key = _linear(hidden_size, initializer_range)
        self.value = _linear(hidden_size, initializer_range)
        self.dropout = Dropout(dropout)

    def forward(self, states: States, items: Tensor) -> Tensor:
        """Item vectors of the tokens of `states` -> tokens; both of width d."""
        return self.dropout(states.attend(self.queries, self.key(items), self.value(items)))


class Disentangler(nn.Module):
    """K vectors for each token: its state by the share of each intent and the weight of its position, normalised.

    Args:
        n_intents: K.
        max_length: T.
        hidden_size: d.
        initializer_range: Standard deviation of position table and linear weights.
        eps: Epsilon of the LayerNorms; the last one leaves a difference between the intents only through it.
        sums: Sum over the positions before the last LayerNorm, so that a sequence has K vectors.
    """

    def __init__(
        self, n_intents: int, max_length: int, hidden_size: int, initializer_range: float, eps: float, sums: bool
    ) -> None:
        super().__init__()
        self.prototypes = nn.Parameter(torch.randn(n_intents, hidden_size))
        self.positions = nn.Parameter(torch.randn(max_length, hidden_size) * initializer_range)
        self.query_shift = nn.Parameter(torch.randn(hidden_size))
        self.key = _linear(hidden_size, initializer_range)
        self.state_norm, self.prototype_norm, self.query_norm, self.key_norm, self.intent_norm = (
            nn.LayerNorm(hidden_size, eps=eps) for _ in range(5)
        )
        self.scale = 1.0 / math.sqrt(hidden_size)
        self.sums = sums

    def shares(self, tokens: Tensor) -> Tensor:
        """p: share of each intent in tokens [..., d] -> [..., K]."""
        scores = torch.matmul(self.state_norm(tokens), self.prototype_norm(self.prototypes).T)
        return torch.softmax(scores * self.scale, dim=-1)

    def position_weights(self, states: States, tokens: Tensor) -> Tensor:
        """w: weight of each token in its sequence, softmax over the sequence."""
        last = states.last(tokens) + functional.embedding(states.lengths - 1, self.positions) + self.query_shift
        keys = self.key_norm(tokens + functional.embedding(states.positions, self.positions))
        return states.weights(self.query_norm(last) * self.scale, keys + functional.relu(self.key(keys)))

    def forward(self, states: States, tokens: Tensor, *, last_only: bool) -> Tensor:
        """Intents of tokens [..., d] that lie as those of `states`.

        Args:
            states: Layout.
            tokens: States of one branch.
            last_only: The last position of each sequence is enough.

        Returns:
            [S, K, d] with `sums` or `last_only`, otherwise tokens [..., K, d].
        """
        weights = self.position_weights(states, tokens)[..., None]
        if last_only and not self.sums:
            tokens, weights = states.last(tokens), states.last(weights)
        parts = (self.shares(tokens) * weights)[..., None] * tokens[..., None, :]  # [..., K, d]
        if self.sums:
            parts = states.spread(parts).sum(dim=1)
        return self.intent_norm(parts)
