"""STAR-Rec: preference-aware attention beside a selective state-space layer, and a mixture of experts behind both.

"STAR-Rec: Making Peace with Length Variance and Pattern Diversity in Sequential Recommendation", arXiv 2505.03484.
docs/models/STARRec.md says where paper and released code differ and what is done here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from recbole.model.abstract_recommender import SequentialRecommender
from torch import Tensor, nn

from recbole_prism.model.layers.dense_mixture import DenseMixture
from recbole_prism.model.layers.dropout import Dropout
from recbole_prism.model.layers.packed import Packed, pack, take_distinct_rows, visible_keys
from recbole_prism.model.layers.preference_attention import PreferenceAttention
from recbole_prism.model.layers.state_space import StateSpaceBlock, StateSpaceEncoder
from recbole_prism.model.sequential_recommender.item_scores import ItemScores


class Switches(NamedTuple):
    """Where paper, released code and this package differ; `official: True` takes the released code's."""

    attn_mask_mode: str = "none"
    sim_norm: str = "time"
    ssm_stack: str = "parallel_last"
    ssm_dt_init: str = "zero"


def switches_of(config: Any) -> Switches:
    """The switches in force under some settings."""
    return Switches() if config["official"] else Switches(*[config[name] for name in Switches._fields])


class STARRec(ItemScores, SequentialRecommender):
    """Two encoders of one history, blended, a dense mixture of experts, scores against the item table.

    With `attn_mask_mode: none` attention looks at padding, so results depend on the width of the batch; its fast path
    then keeps the padded width in attention. Otherwise padding is left out. In both, only what the last position needs
    is computed; `fast_path: False` computes every position.

    Args:
        config: RecBole config with the keys of properties/model/STARRec.yaml.
        dataset: Anything with RecBole's `num(field)`.
    """

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        switches = switches_of(config)
        width, drop, eps = int(config["hidden_size"]), float(config["dropout_prob"]), float(config["layer_norm_eps"])
        self.fast_path = bool(config["fast_path"])
        self.sees_padding = switches.attn_mask_mode == "none"
        self.causal = switches.attn_mask_mode == "causal"
        self.gate_per_sequence = config["moe_level"] == "sequence"
        self.initializer_range = float(config["initializer_range"])
        self.item_embedding = nn.Embedding(self.n_items, width, padding_idx=0)
        if config["use_position_embedding"]:
            self.position_embedding = nn.Embedding(self.max_seq_length, width)
        self.use_position_embedding = bool(config["use_position_embedding"])
        self.LayerNorm = nn.LayerNorm(width, eps=eps)
        self.dropout = Dropout(drop)
        self.state_space = StateSpaceEncoder(
            n_layers=int(config["num_layers"]),
            stacked=switches.ssm_stack == "stacked",
            hidden_size=width,
            d_state=int(config["d_state"]),
            d_conv=int(config["d_conv"]),
            expand=int(config["expand"]),
            dropout_prob=drop,
            layer_norm_eps=eps,
        )
        self.attention = PreferenceAttention(int(config["n_heads"]), width, drop, eps, switches.sim_norm)
        self.fusion = nn.Parameter(torch.full((2,), 0.5))
        self.experts = DenseMixture(int(config["n_experts"]), width, int(config["expert_mult"]) * width, drop, eps)
        self.apply(self._init_weights)
        for module in self.modules():
            if isinstance(module, StateSpaceBlock) and switches.ssm_dt_init == "mamba":
                module.init_small_steps()

    def _init_weights(self, module: nn.Module) -> None:
        """Normal weights and zero biases of all projections, the step sizes' included, and of the tables."""
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, 0.0, self.initializer_range)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def embed(self, items: Tensor, positions: Tensor) -> Tensor:
        """LayerNorm(Dropout(item vector)): [...] -> [..., d]; id 0 is a zero vector, hence the LayerNorm's bias."""
        vectors = self.item_embedding(items) * (items != 0).unsqueeze(-1)
        if self.use_position_embedding:
            vectors = vectors + self.position_embedding(positions)
        return self.LayerNorm(self.dropout(vectors))

    def positions(self, item_seq: Tensor) -> Tensor:
        """[B, w] position numbers from 0."""
        return torch.arange(item_seq.shape[1], device=item_seq.device).expand_as(item_seq)

    def fuse(self, attended: Tensor, state: Tensor) -> Tensor:
        """Convex combination of both encoders, any shape."""
        share = torch.softmax(self.fusion, dim=0)
        return share[0] * attended + share[1] * state

    def forward(self, item_seq: Tensor, item_seq_len: Tensor) -> Tensor:
        """Sequence representation, as RecBole: item ids [B, w] and lengths [B] -> [B, d]."""
        if not self.fast_path or (self.sees_padding and self.gate_per_sequence):
            return self.gather_indexes(self.encode_padded(item_seq, item_seq_len)[0], item_seq_len - 1)
        batch = pack([(item_seq, item_seq_len)], causal=self.causal)
        if self.sees_padding:
            return self._encode_seeing_padding(item_seq, item_seq_len, batch)
        return batch.to_row_order(self._encode_packed(batch))

    def _encode_packed(self, batch: Packed) -> Tensor:
        """[S, d] in sorted order, from valid tokens only."""
        hidden = self.embed(batch.items, batch.positions)
        if not self.gate_per_sequence:
            attended = self.attention.packed_last(hidden, batch)
            return self.experts(self.fuse(attended, self.state_space.packed_last(hidden, batch)))
        fused = self.fuse(self.attention.packed(hidden, batch), self.state_space.packed(hidden, batch))
        sums = torch.cat([group.pad(part).sum(1) for group, part in zip(batch.groups, batch.split(fused))])
        means = sums / batch.lengths[batch.order].unsqueeze(-1)
        return self.experts(fused.index_select(0, batch.last_tokens), means)

    def _encode_seeing_padding(self, item_seq: Tensor, item_seq_len: Tensor, batch: Packed) -> Tensor:
        """[B, d]: attention of the last query over the padded width, state space over valid tokens."""
        hidden = self.embed(item_seq, self.positions(item_seq))
        n_rows, width = item_seq.shape
        rows = torch.arange(n_rows, device=item_seq.device) * width + item_seq_len - 1
        visible = torch.ones(n_rows, 1, 1, width, dtype=torch.bool, device=item_seq.device)
        tokens = take_distinct_rows(hidden.flatten(0, 1), batch.sequences * width + batch.positions)
        state = batch.to_row_order(self.state_space.packed_last(tokens, batch))
        return self.experts(self.fuse(self.attention.last(hidden, rows, visible), state))

    def encode_padded(self, item_seq: Tensor, item_seq_len: Tensor) -> tuple[Tensor, Tensor]:
        """Plain computation of every position.

        Args:
            item_seq: [B, w] item ids, right-padded with 0.
            item_seq_len: [B] lengths.

        Returns:
            Hidden states [B, w, d] and the blended attention logits [B, H, w, w] before any mask.
        """
        hidden = self.embed(item_seq, self.positions(item_seq))
        valid = self.positions(item_seq) < item_seq_len[:, None]
        if self.sees_padding:
            everything = torch.ones_like(valid)
            attended, logits = self.attention(hidden, visible_keys(everything, causal=False))
        else:
            visible = visible_keys(valid & (item_seq != 0), causal=self.causal)
            attended, logits = self.attention(hidden, visible, valid)
        fused = self.fuse(attended, self.state_space(hidden))
        if not self.gate_per_sequence:
            return self.experts(fused), logits
        means = (fused * valid.unsqueeze(-1)).sum(1) / item_seq_len.unsqueeze(-1)
        return self.experts(fused, means.unsqueeze(1)), logits
