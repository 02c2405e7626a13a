"""Preference-aware attention of STAR-Rec: query-key scores blended with an item-item similarity.

Notation: B rows, T positions, d width, H heads, N valid tokens, S packed sequences, q queries per row.
"""

from __future__ import annotations

import math
from typing import Optional

import torch
from torch import Tensor, nn
from torch.nn import functional

from recbole_prism.model.layers.attention import visibility_bias
from recbole_prism.model.layers.dropout import Dropout
from recbole_prism.model.layers.packed import Packed

_FLOOR = 0.01  # a negative similarity counts as this constant


class PreferenceAttention(nn.Module):
    """One attention layer with a gated similarity in its logits and a gate on its output.

    G = X sigmoid(X W_g + b_g) scaled by the mean of two learned vectors; Sim = normalised G times itself, the same for
    all heads; logits = (a_0 Q K^T + a_1 Sim) / sqrt(d / H) with a = softmax of two learned scalars.

    Args:
        n_heads: H; must divide `hidden_size`.
        hidden_size: d.
        dropout_prob: Dropout of the attention weights and of the output.
        layer_norm_eps: Epsilon of the LayerNorm.
        sim_norm: `time` normalises each feature over the positions, `feature` each position's vector (cosine).
    """

    def __init__(
        self, n_heads: int, hidden_size: int, dropout_prob: float, layer_norm_eps: float, sim_norm: str
    ) -> None:
        super().__init__()
        if hidden_size % n_heads:
            raise ValueError(f"hidden_size {hidden_size} is not a multiple of n_heads {n_heads}")
        self.n_heads, self.head_size = n_heads, hidden_size // n_heads
        self.norm_dim = {"time": 1, "feature": -1}[sim_norm]
        self.similarity_gate = nn.Linear(hidden_size, hidden_size)
        self.scale_1 = nn.Parameter(torch.ones(1, hidden_size))
        self.scale_2 = nn.Parameter(torch.ones(1, hidden_size))
        self.blend = nn.Parameter(torch.full((2,), 0.5))
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size)
        self.attn_dropout = Dropout(dropout_prob)
        self.gate = nn.Linear(hidden_size, hidden_size)
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.LayerNorm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.out_dropout = Dropout(dropout_prob)

    def forward(self, hidden: Tensor, visible: Tensor, valid: Optional[Tensor] = None) -> tuple[Tensor, Tensor]:
        """Padded batch, all positions.

        Args:
            hidden: [B, T, d].
            visible: [B, 1, T, T] bool, True where a key may be seen.
            valid: [B, T] bool, positions that take part in `sim_norm: time`; None: all of them.

        Returns:
            Output [B, T, d] and the blended logits [B, H, T, T] before any mask.
        """
        block = self._projected(hidden)
        if valid is not None:
            block = block * valid.unsqueeze(-1)
        context, logits = self._attend(self.query(hidden), block, visible)
        return self._output(context, hidden), logits

    def last(self, hidden: Tensor, rows: Tensor, visible: Tensor) -> Tensor:
        """Padded batch [B, T, d] in which every position counts, at one position of each row only.

        Args:
            hidden: [B, T, d].
            rows: [B] place of that position in the flattened batch [B * T].
            visible: [B, 1, 1, T] bool.

        Returns:
            [B, d].
        """
        last = hidden.flatten(0, 1).index_select(0, rows)
        context, _ = self._attend(self.query(last).unsqueeze(1), self._projected(hidden), visible, rows)
        return self._output(context.squeeze(1), last)

    def packed(self, hidden: Tensor, batch: Packed) -> Tensor:
        """Packed tokens [N, d] -> [N, d], all positions."""
        tokens = torch.cat([self._projected(hidden), self.query(hidden)], dim=-1)
        width, contexts = hidden.shape[-1], []
        for group, part in zip(batch.groups, batch.split(tokens)):
            block, query = group.pad(part).split([3 * width, width], dim=-1)
            contexts.append(group.unpad(self._attend(query, block, group.visible)[0]))
        return self._output(torch.cat(contexts), hidden)

    def packed_last(self, hidden: Tensor, batch: Packed) -> Tensor:
        """Packed tokens [N, d] -> [S, d] at each sequence's last position, in sorted order."""
        last = hidden.index_select(0, batch.last_tokens)
        queries, contexts = self.query(last).unsqueeze(1), []
        for group, part in zip(batch.groups, batch.split(self._projected(hidden))):
            context, _ = self._attend(queries[group.rows], group.pad(part), group.visible_to_last, group.last)
            contexts.append(context.squeeze(1))
        return self._output(torch.cat(contexts), last)

    def _projected(self, hidden: Tensor) -> Tensor:
        """Scaled gated input, keys and values side by side: [..., d] -> [..., 3 d]."""
        parts = (self.similarity_gate, self.key, self.value)
        gate, key_value = functional.linear(
            hidden, torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts])
        ).split([hidden.shape[-1], 2 * hidden.shape[-1]], dim=-1)
        gated = hidden * torch.sigmoid(gate) * ((self.scale_1 + self.scale_2) / 2)
        return torch.cat([gated, key_value], dim=-1)

    def _attend(
        self, query: Tensor, block: Tensor, visible: Tensor, rows: Optional[Tensor] = None
    ) -> tuple[Tensor, Tensor]:
        """Attention of some queries over padded rows.

        Args:
            query: [B, q, d].
            block: [B, T, 3 d] as of `_projected`, zero where a position does not count.
            visible: [B, 1, q, T] bool.
            rows: [B] place of the single query of each row in the flattened block; None: every position is a query.

        Returns:
            Context [B, q, d] and blended logits [B, H, q, T].
        """
        gated, key, value = block.chunk(3, dim=-1)
        normed = functional.normalize(gated, dim=self.norm_dim)
        asking = normed if rows is None else normed.flatten(0, 1).index_select(0, rows).unsqueeze(1)
        similarity = torch.matmul(asking, normed.transpose(1, 2))
        similarity = torch.where(similarity < 0, _FLOOR, similarity).unsqueeze(1)
        share = torch.softmax(self.blend, dim=0)
        scores = torch.matmul(self._heads(query), self._heads(key).transpose(-1, -2))
        logits = (share[0] * scores + share[1] * similarity) / math.sqrt(self.head_size)
        weights = self.attn_dropout(torch.softmax(logits + visibility_bias(visible, logits.dtype), dim=-1))
        return torch.matmul(weights, self._heads(value)).transpose(1, 2).flatten(-2), logits

    def _heads(self, block: Tensor) -> Tensor:
        """[B, T, d] -> [B, H, T, d / H]."""
        return block.unflatten(-1, (self.n_heads, self.head_size)).transpose(1, 2)

    def _output(self, context: Tensor, residual: Tensor) -> Tensor:
        gated = context * functional.silu(self.gate(context))
        return self.LayerNorm(self.out_dropout(self.dense(gated)) + residual)
