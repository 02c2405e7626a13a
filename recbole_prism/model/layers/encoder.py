"""Stack of transformer layers with RecBole's parameter names, over packed tokens or a padded batch."""

from __future__ import annotations

from typing import Union

from torch import Tensor, nn

from recbole_prism.model.layers.attention import MultiHeadAttention
from recbole_prism.model.layers.feed_forward import FeedForward
from recbole_prism.model.layers.packed import Packed


class TransformerLayer(nn.Module):
    """Self-attention and feed-forward, both with residual and LayerNorm behind (post-LN)."""

    def __init__(
        self,
        n_heads: int,
        hidden_size: int,
        inner_size: int,
        hidden_dropout_prob: float,
        attn_dropout_prob: float,
        hidden_act: str,
        layer_norm_eps: float,
    ) -> None:
        super().__init__()
        self.multi_head_attention = MultiHeadAttention(
            n_heads, hidden_size, hidden_dropout_prob, attn_dropout_prob, layer_norm_eps
        )
        self.feed_forward = FeedForward(hidden_size, inner_size, hidden_dropout_prob, hidden_act, layer_norm_eps)

    def forward(self, hidden: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
        """Padded batch [B, T, d], visible [B, 1, T, T] -> output [B, T, d], raw logits [B, H, T, T]."""
        attended, logits = self.multi_head_attention(hidden, visible)
        return self.feed_forward(attended), logits

    def packed(self, hidden: Tensor, batch: Packed) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Packed tokens [N, d] -> output [N, d], and per length group raw logits and values (see attention)."""
        attended, logits, values = self.multi_head_attention.packed(hidden, batch)
        return self.feed_forward(attended), logits, values

    def packed_last(self, hidden: Tensor, batch: Packed) -> Tensor:
        """Packed tokens [N, d] -> output at each sequence's last position [S, d], in sorted order."""
        return self.feed_forward(self.multi_head_attention.packed_last(hidden, batch))

    def packed_at(self, hidden: Tensor, batch: Packed, tokens: Tensor) -> Tensor:
        """Packed tokens [N, d] -> output at the tokens of distinct places [M] only, [M, d]."""
        return self.feed_forward(self.multi_head_attention.packed_at(hidden, batch, tokens))


class TransformerEncoder(nn.Module):
    """`n_layers` transformer layers.

    Args:
        n_layers: L >= 1.
        settings: Arguments of `TransformerLayer`, by name.
    """

    def __init__(self, n_layers: int, **settings: Union[int, float, str]) -> None:
        super().__init__()
        self.layer = nn.ModuleList([TransformerLayer(**settings) for _ in range(n_layers)])  # type: ignore[arg-type]

    @property
    def layers(self) -> list[TransformerLayer]:
        """The layers, from the input upwards."""
        return [layer for layer in self.layer if isinstance(layer, TransformerLayer)]

    def forward(self, hidden: Tensor, visible: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Padded batch: output [B, T, d] and the raw logits of every layer, each [B, H, T, T]."""
        all_logits = []
        for layer in self.layers:
            hidden, logits = layer(hidden, visible)
            all_logits.append(logits)
        return hidden, all_logits

    def packed_last(self, hidden: Tensor, batch: Packed) -> Tensor:
        """Packed tokens [N, d] -> [S, d] at the last position of each sequence, in original order.

        The last layer is computed at that position only; nothing else of it is read.
        """
        for layer in self.layers[:-1]:
            hidden, _, _ = layer.packed(hidden, batch)
        return batch.to_row_order(self.layers[-1].packed_last(hidden, batch))

    def packed_at(self, hidden: Tensor, batch: Packed, tokens: Tensor) -> Tensor:
        """Packed tokens [N, d] -> [M, d] at the tokens of distinct places [M].

        The last layer's feed-forward block is computed at these tokens only.
        """
        for layer in self.layers[:-1]:
            hidden, _, _ = layer.packed(hidden, batch)
        return self.layers[-1].packed_at(hidden, batch, tokens)
