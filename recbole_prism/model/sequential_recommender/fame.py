"""FAME: facet-aware multi-head mixture of experts (equations from secondary sources).

Liu, Zhang, Long, "Facet-Aware Multi-Head Mixture-of-Experts Model for Sequential Recommendation", WSDM 2025,
arXiv 2411.01457. Neither the paper's full text nor official code was at hand: the equations are those on which two
unofficial ports agree. What the ports leave open or disagree on is decided here (docs/models/FAME.md): residual
connection with the head's slice of the input and LayerNorm behind both blocks, activation `hidden_act`, query, key and
value projections with biases, experts in the last layer only, full-softmax cross-entropy.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from recbole_prism.model.layers.facets import FacetLayer
from recbole_prism.model.layers.packed import Packed
from recbole_prism.model.sequential_recommender.transformer import TransformerRecommender


class FAME(TransformerRecommender):
    """SASRec whose last layer is a `FacetLayer` (equations from secondary sources).

    The sequence representation is the layer's fused vector r, so loss and scores are the base's, at the base's cost.

    Args:
        config: RecBole config with the keys of properties/model/FAME.yaml.
        dataset: Anything with RecBole's `num(field)`.
    """

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        del self.trm_encoder.layer[-1]
        self.facet_layer = FacetLayer(
            n_heads=self.n_heads,
            hidden_size=self.hidden_size,
            n_experts=int(config["n_experts"]),
            hidden_dropout_prob=self.hidden_dropout_prob,
            attn_dropout_prob=self.attn_dropout_prob,
            hidden_act=self.hidden_act,
            layer_norm_eps=self.layer_norm_eps,
            head_residual=bool(config["head_residual"]),
        )
        self.facet_layer.apply(self._init_weights)

    def encode_packed(self, batch: Packed) -> Tensor:
        """[S, d] fused vector at the last position of each packed sequence, in original order."""
        hidden = self.embed(batch.items, batch.positions)
        for layer in self.trm_encoder.layers:
            hidden, _, _ = layer.packed(hidden, batch)
        return batch.to_row_order(self.facet_layer.packed_last(hidden, batch))

    def encode_padded(self, item_seq: Tensor, item_seq_len: Tensor) -> tuple[Tensor, Tensor]:
        """Fused vectors [B, w, d] and the raw logits of every head and expert [B, H, N, w, w]; see the base class."""
        visible = self.visible(item_seq, item_seq_len)
        hidden, _ = self.trm_encoder(self.embed(item_seq, self.positions(item_seq)), visible)
        return self.facet_layer(hidden, visible)
