"""Multi-head self-attention with RecBole's parameters, over packed tokens or over a padded batch.

Notation: B rows, T positions, d width, H heads, N valid tokens, S packed sequences.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from recbole_prism.model.layers.dropout import Dropout
from recbole_prism.model.layers.packed import Packed, take_distinct_rows

MASKED_LOGIT = -10000.0  # RecBole's additive mask value; exp of it is 0 in fp32


def visibility_bias(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """Additive attention mask: 0 where `visible` (bool) is True, -10000 elsewhere."""
    return visible.to(dtype).sub_(1.0).mul_(-MASKED_LOGIT)


class MultiHeadAttention(nn.Module):
    """Post-LayerNorm self-attention block; parameter names are RecBole's (`query`, `key`, `value`, ...).

    Args:
        n_heads: H; must divide `hidden_size`.
        hidden_size: d.
        hidden_dropout_prob: Dropout of the output projection.
        attn_dropout_prob: Dropout of the attention weights.
        layer_norm_eps: Epsilon of the LayerNorm.
    """

    def __init__(
        self,
        n_heads: int,
        hidden_size: int,
        hidden_dropout_prob: float,
        attn_dropout_prob: float,
        layer_norm_eps: float,
    ) -> None:
        super().__init__()
        if hidden_size % n_heads:
            raise ValueError(f"hidden_size {hidden_size} is not a multiple of n_heads {n_heads}")
        self.n_heads = n_heads
        self.head_size = hidden_size // n_heads
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size)
        self.attn_dropout = Dropout(attn_dropout_prob)
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.LayerNorm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.out_dropout = Dropout(hidden_dropout_prob)

    def heads(self, block: Tensor) -> Tensor:
        """[B, T, d] -> [B, H, T, d / H]."""
        return block.unflatten(-1, (self.n_heads, self.head_size)).transpose(1, 2)

    def logits(self, query: Tensor, key: Tensor) -> Tensor:
        """Raw logits Q K^T / sqrt(d / H), before any mask: [B, H, q, d/H] x [B, H, T, d/H] -> [B, H, q, T]."""
        return torch.matmul(query / math.sqrt(self.head_size), key.transpose(-1, -2))

    def context(self, logits: Tensor, value: Tensor, visible: Tensor) -> Tensor:
        """Softmax over visible keys, dropout, weighted values; [B, H, q, T], [B, H, T, d/H] -> [B, q, d]."""
        weights = self.attn_dropout(torch.softmax(logits + visibility_bias(visible, logits.dtype), dim=-1))
        return torch.matmul(weights, value).transpose(1, 2).flatten(-2)

    def output(self, context: Tensor, residual: Tensor) -> Tensor:
        """Output projection, dropout, residual and LayerNorm; any leading shape."""
        return self.LayerNorm(self.out_dropout(self.dense(context)) + residual)

    def projected(self, hidden: Tensor, *parts: nn.Linear) -> Tensor:
        """One product for several projections of the same input: [N, d] -> [N, len(parts) * d]."""
        return functional.linear(
            hidden, torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts])
        )

    def forward(self, hidden: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
        """Padded batch.

        Args:
            hidden: [B, T, d].
            visible: [B, 1, T, T] bool, True where a key may be seen.

        Returns:
            Output [B, T, d] and raw logits [B, H, T, T].
        """
        query, key, value = (self.heads(part(hidden)) for part in (self.query, self.key, self.value))
        logits = self.logits(query, key)
        return self.output(self.context(logits, value, visible), hidden), logits

    def packed(self, hidden: Tensor, batch: Packed) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Packed tokens, all positions.

        Args:
            hidden: [N, d].
            batch: Their layout.

        Returns:
            Output [N, d]; per length group the raw logits [b, H, w, w] and the values [b, H, w, d / H].
        """
        contexts, all_logits, values = self._packed_contexts(hidden, batch)
        return self.output(contexts, hidden), all_logits, values

    def packed_at(self, hidden: Tensor, batch: Packed, tokens: Tensor) -> Tensor:
        """Packed tokens, output at some of them only: [N, d] and distinct places [M] -> [M, d]."""
        contexts, _, _ = self._packed_contexts(hidden, batch)
        return self.output(take_distinct_rows(contexts, tokens), take_distinct_rows(hidden, tokens))

    def _packed_contexts(self, hidden: Tensor, batch: Packed) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Contexts of all tokens [N, d], and per length group the raw logits and the values."""
        projected = self.projected(hidden, self.query, self.key, self.value)
        contexts, all_logits, values = [], [], []
        for group, tokens in zip(batch.groups, batch.split(projected)):
            query, key, value = (self.heads(part) for part in group.pad(tokens).chunk(3, dim=-1))
            logits = self.logits(query, key)
            contexts.append(group.unpad(self.context(logits, value, group.visible)))
            all_logits.append(logits)
            values.append(value)
        return torch.cat(contexts), all_logits, values

    def packed_last(self, hidden: Tensor, batch: Packed) -> Tensor:
        """Packed tokens, output at the last position of each sequence only.

        Returns:
            [S, d] in the sorted order of `batch`.
        """
        last = hidden.index_select(0, batch.last_tokens)
        queries = self.query(last)
        projected = self.projected(hidden, self.key, self.value)
        contexts = []
        for group, tokens in zip(batch.groups, batch.split(projected)):
            key, value = (self.heads(part) for part in group.pad(tokens).chunk(2, dim=-1))
            logits = self.logits(self.heads(queries[group.rows, None]), key)
            contexts.append(self.context(logits, value, group.visible_to_last).squeeze(1))
        return self.output(torch.cat(contexts), last)
