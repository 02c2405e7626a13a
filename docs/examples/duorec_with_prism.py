"""PRISM's module inside DuoRec: perspectives between its layers, trained by its contrast of same-target histories.

From a checkout, like any model:

    PYTHONPATH=docs/examples python run_recbole_prism.py --model=duorec_with_prism:DuoRecWithPRISM --dataset=amazon-toys
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn

from recbole_prism.model.layers.packed import Packed
from recbole_prism.model.layers.prism import PrismLayer
from recbole_prism.model.sequential_recommender.duorec import DuoRec
from recbole_prism.registry import ModelProperties


class DuoRecWithPRISM(DuoRec):
    """DuoRec whose encoder has a `PrismLayer` behind each transformer layer but the last; losses are DuoRec's."""

    config_defaults: ClassVar[dict[str, Any]] = {
        # the backbone
        "n_layers": 2,
        "n_heads": 2,
        "hidden_size": 64,
        "inner_size": 256,
        "hidden_dropout_prob": 0.5,
        "attn_dropout_prob": 0.5,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "initializer_range": 0.02,
        "loss_type": "CE",
        # DuoRec
        "contrast": "us_x",
        "cl_weight": 0.1,
        "dropout_cl_weight": 0.1,
        "cl_temperature": 1.0,
        "cl_similarity": "dot",
        "cl_filter_same": False,
        "partner_exclude": "row",
        # PRISM's module
        "n_lenses": 4,
    }

    @classmethod
    def declared_properties(cls, config: Any) -> ModelProperties:
        """The module looks neither ahead nor at padding, so DuoRec's properties stay."""
        return ModelProperties(
            causal=True, padding_free=True, last_query_only=True, last_query_only_training=True, attention_logits=True
        )

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        self.prism = nn.ModuleList(
            [PrismLayer(config["n_lenses"], **self.layer_settings()) for _ in range(self.n_layers - 1)]
        )
        self.prism.apply(self._init_weights)

    def encode_packed(self, batch: Packed) -> Tensor:
        """The fast path, on valid tokens: [S, d] at the last position of each sequence."""
        *below, last = self.trm_encoder.layers
        hidden = self.embed(batch.items, batch.positions)
        for layer, module in zip(below, self.prism):
            hidden, logits, values = layer.packed(hidden, batch)
            hidden = module.packed_output(hidden, logits, values, batch)
        return batch.to_row_order(last.packed_last(hidden, batch))

    def encode_padded(self, item_seq: Tensor, item_seq_len: Tensor) -> tuple[Tensor, Tensor]:
        """The plain path (`fast_path: False`): hidden states [B, w, d] and the last layer's logits [B, H, w, w]."""
        *below, last = self.trm_encoder.layers
        visible = self.visible(item_seq, item_seq_len)
        hidden = self.embed(item_seq, self.positions(item_seq))
        for layer, module in zip(below, self.prism):
            hidden, logits = layer(hidden, visible)
            hidden = module(hidden, logits, item_seq_len, item_seq != 0)
        return last(hidden, visible)
