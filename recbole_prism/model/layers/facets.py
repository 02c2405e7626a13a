"""Facet-aware multi-head mixture of experts: the last attention layer of FAME (equations from secondary sources).

Notation: B rows, T positions, d width, H heads = facets, D = d / H, N experts, S packed sequences.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from recbole_prism.model.layers.attention import visibility_bias
from recbole_prism.model.layers.dropout import Dropout
from recbole_prism.model.layers.feed_forward import FeedForward
from recbole_prism.model.layers.packed import Packed


class FacetLayer(nn.Module):
    """Each head keeps its own output and scores items in its own D-dimensional projection of the item table.

    Within a head, N experts have a query projection each and share keys and values; a router over their outputs mixes
    them. A gate mixes the scores of the heads. Since all of it is linear in the item vectors, the scores of all heads
    together are one product of the item table and a fused vector r in R^d, which is what this layer returns.

    Args:
        n_heads: H; must divide `hidden_size`.
        hidden_size: d.
        n_experts: N.
        hidden_dropout_prob: Dropout of the head outputs and of the feed-forward block.
        attn_dropout_prob: Dropout of the attention weights.
        hidden_act: Activation of the feed-forward block.
        layer_norm_eps: Epsilon of the LayerNorms.
        head_residual: False leaves out the residual connection around the attention.
    """

    def __init__(
        self,
        n_heads: int,
        hidden_size: int,
        n_experts: int,
        hidden_dropout_prob: float,
        attn_dropout_prob: float,
        hidden_act: str,
        layer_norm_eps: float,
        head_residual: bool,
    ) -> None:
        super().__init__()
        if hidden_size % n_heads:
            raise ValueError(f"hidden_size {hidden_size} is not a multiple of n_heads {n_heads}")
        self.n_heads, self.n_experts, self.head_size = n_heads, n_experts, hidden_size // n_heads
        self.head_residual = head_residual
        self.query = nn.Linear(hidden_size, n_experts * hidden_size)  # N blocks of d outputs
        self.key_value = nn.Linear(hidden_size, 2 * hidden_size)
        self.attn_dropout = Dropout(attn_dropout_prob)
        self.router = nn.Linear(n_experts * self.head_size, n_heads * n_experts, bias=False)  # H blocks of N outputs
        self.out_dropout = Dropout(hidden_dropout_prob)
        self.LayerNorm = nn.LayerNorm(self.head_size, eps=layer_norm_eps)
        self.feed_forward = FeedForward(self.head_size, self.head_size, hidden_dropout_prob, hidden_act, layer_norm_eps)
        self.item_facets = nn.Linear(hidden_size, hidden_size, bias=False)  # its H column blocks are C^1 .. C^H
        self.gate = nn.Linear(hidden_size, n_heads)

    def forward(self, hidden: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
        """Padded batch, all positions.

        Args:
            hidden: [B, T, d].
            visible: [B, 1, T, T] bool, True where a key may be seen.

        Returns:
            Fused vectors [B, T, d] and raw attention logits [B, H, N, T, T].
        """
        queries = self._queries(hidden).permute(0, 2, 3, 1, 4)  # [B, H, N, T, D]
        key, value = (self._heads(part)[:, :, None] for part in self.key_value(hidden).chunk(2, dim=-1))
        logits = self._logits(queries, key)
        experts = self._context(logits, value, visible[:, :, None])  # [B, H, N, T, D]
        return self.fuse(experts.permute(0, 3, 1, 2, 4), hidden), logits

    def packed_last(self, hidden: Tensor, batch: Packed) -> Tensor:
        """Packed tokens [N, d] -> fused vector at the last position of each sequence [S, d], in sorted order."""
        last = hidden.index_select(0, batch.last_tokens)
        queries = self._queries(last)  # [S, H, N, D]
        experts = []
        for group, tokens in zip(batch.groups, batch.split(self.key_value(hidden))):
            key, value = (self._heads(part) for part in group.pad(tokens).chunk(2, dim=-1))
            logits = self._logits(queries[group.rows], key)  # [b, H, N, w]: the experts stand where queries do
            experts.append(self._context(logits, value, group.visible_to_last))
        return self.fuse(torch.cat(experts), last)

    def mix_experts(self, experts: Tensor) -> tuple[Tensor, Tensor]:
        """Router: expert outputs [..., H, N, D] -> head outputs [..., H, D] and the experts' shares [..., H, N]."""
        weight = self.router.weight.unflatten(0, (self.n_heads, self.n_experts))  # [H, N, N * D]
        shares = torch.softmax(torch.einsum("...hk,hnk->...hn", experts.flatten(-2), weight), dim=-1)
        return torch.matmul(shares.unsqueeze(-2), experts).squeeze(-2), shares

    def facets(self, mixed: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Per-head block with weights common to all heads, and the gate over heads.

        Args:
            mixed: [..., H, D] head outputs.
            hidden: [..., d] input of the layer at the same positions.

        Returns:
            Facet vectors F [..., H, D] and the gate g [..., H].
        """
        values = self.out_dropout(mixed)
        if self.head_residual:
            values = values + hidden.unflatten(-1, (self.n_heads, self.head_size))
        vectors = self.feed_forward(self.LayerNorm(values))
        return vectors, torch.softmax(self.gate(vectors.flatten(-2)), dim=-1)

    def fuse(self, experts: Tensor, hidden: Tensor) -> Tensor:
        """Expert outputs [..., H, N, D] and layer input [..., d] -> the vector r [..., d] with score_v = r . E_v."""
        vectors, gate = self.facets(self.mix_experts(experts)[0], hidden)
        return self.item_facets((gate[..., None] * vectors).flatten(-2))

    def _queries(self, hidden: Tensor) -> Tensor:
        """[..., d] -> the experts' queries by head, [..., H, N, D]."""
        return self.query(hidden).unflatten(-1, (self.n_experts, self.n_heads, self.head_size)).transpose(-3, -2)

    def _heads(self, block: Tensor) -> Tensor:
        """[B, T, d] -> [B, H, T, D]."""
        return block.unflatten(-1, (self.n_heads, self.head_size)).transpose(1, 2)

    def _logits(self, query: Tensor, key: Tensor) -> Tensor:
        """Q K^T / sqrt(D): [..., q, D] x [..., T, D] -> [..., q, T]."""
        return torch.matmul(query / math.sqrt(self.head_size), key.transpose(-1, -2))

    def _context(self, logits: Tensor, value: Tensor, visible: Tensor) -> Tensor:
        """Softmax over visible keys, dropout, weighted values: [..., q, T] x [..., T, D] -> [..., q, D]."""
        weights = self.attn_dropout(torch.softmax(logits + visibility_bias(visible, logits.dtype), dim=-1))
        return torch.matmul(weights, value)
