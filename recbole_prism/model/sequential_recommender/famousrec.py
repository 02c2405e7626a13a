"""FamouSRec (reconstruction): a frequency-augmented mixture of three different experts.

Zhang et al., WWW 2025, DOI 10.1145/3696410.3714663. Neither code nor the text of the paper could be had: this is a
reconstruction from its title, what other papers say of it, and its parameter count. docs/models/FamouSRec.md lists
every choice that is ours.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Optional

import torch
from recbole.data.interaction import Interaction
from torch import Tensor, nn

from recbole_prism.model.functional.info_nce import info_nce
from recbole_prism.model.functional.loss_parts import LossParts
from recbole_prism.model.layers.expert_router import ExpertRouter, imbalance
from recbole_prism.model.layers.light_experts import ConvolutionExpert, RecurrentExpert
from recbole_prism.model.layers.packed import Packed, pack, restack, take_distinct_rows
from recbole_prism.model.layers.spectral import (
    FrequencyFilterLayer,
    kept_bins,
    mean_amplitude,
    packed_mean_amplitude,
    packed_without_bins,
    without_bins,
)
from recbole_prism.model.sequential_recommender.transformer import TransformerRecommender

N_EXPERTS = 3


class FamouSRec(TransformerRecommender):
    """Self-attention (SASRec), a learnable frequency filter and a light third expert on one embedded history.

    A router turns the history's amplitude spectrum into the mixture weights of the three representations. Beside the
    recommendation loss, a contrast with a view of the history without some frequencies, and a guard against a router
    that always takes the same expert. Filter and router read the whole history, so the model is not causal.

    Args:
        config: RecBole config with the keys of properties/model/FamouSRec.yaml.
        dataset: Anything with RecBole's `num(field)`.

    Raises:
        ConfigError: As the base class.
    """

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        self.router_input: str = config["router_input"]
        self.cl_weight, self.balance_weight = float(config["cl_weight"]), float(config["balance_weight"])
        self.mask_ratio, self.mask_mode = float(config["freq_mask_ratio"]), config["freq_mask_mode"]
        self.info_nce = partial(
            info_nce, temperature=float(config["cl_temperature"]), similarity=config["cl_similarity"]
        )
        self.third_expert: str = config["third_expert"]
        width, drop, eps = self.hidden_size, self.hidden_dropout_prob, self.layer_norm_eps
        filters = [
            FrequencyFilterLayer(
                self.max_seq_length, width, self.inner_size, drop, self.hidden_act, eps, self.initializer_range
            )
            for _ in range(int(config["n_freq_layers"]))
        ]
        self.filter_layers = nn.ModuleList(filters)
        if self.third_expert == "gru":
            self.light: nn.Module = RecurrentExpert(width, int(config["n_rnn_layers"]), drop, eps)
        else:
            self.light = ConvolutionExpert(width, drop)
        self.router = ExpertRouter(width, N_EXPERTS, float(config["router_temperature"]), int(config["router_topk"]))
        for module in (self.filter_layers, self.router):
            module.apply(self._init_weights)
        self._reset_scalars()

    # ---- encoding

    def encode_packed(self, batch: Packed) -> Tensor:
        """[S, d] at the last position of each packed sequence, in original order."""
        return self._mixed_packed(self.embed(batch.items, batch.positions), batch)[0]

    def encode_padded(self, item_seq: Tensor, item_seq_len: Tensor) -> tuple[Tensor, Tensor]:
        """Plain computation of every position: mixed states [B, w, d], the attention expert's logits [B, H, w, w]."""
        hidden = self.embed(item_seq, self.positions(item_seq))
        states, _, _, logits = self._mixed_padded(hidden, item_seq, item_seq_len)
        return states, logits

    @torch.no_grad()
    def gates(self, item_seq: Tensor, item_seq_len: Tensor) -> Tensor:
        """Mixture weights [B, 3] of the experts (attention, filter, third one), for analysis."""
        hidden = self.embed(item_seq, self.positions(item_seq))
        return self._mixed_padded(hidden, item_seq, item_seq_len)[1]

    def _filters(self) -> list[FrequencyFilterLayer]:
        return [layer for layer in self.filter_layers if isinstance(layer, FrequencyFilterLayer)]

    def _mixed_packed(self, hidden: Tensor, batch: Packed) -> tuple[Tensor, Tensor, Tensor]:
        """Experts, router and mixture for embedded tokens [N, d].

        Returns:
            Representations [S, d], gates [S, 3] and dense gates [S, 3], in original order.
        """
        attended = self.trm_encoder.packed_last(hidden, batch)
        *below, last = self._filters()
        filtered = hidden
        for layer in below:
            filtered = layer.packed(filtered, batch)
        others = [last.packed_last(filtered, batch), self.light.packed_last(hidden, batch)]  # type: ignore[operator]
        gates, dense = self.router(self._described_packed(hidden, batch))
        filtered, light, gates, dense = (batch.to_row_order(part) for part in (*others, gates, dense))
        return _mix([attended, filtered, light], gates), gates, dense

    def _mixed_padded(
        self, hidden: Tensor, item_seq: Tensor, item_seq_len: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The same for an embedded padded batch [B, w, d]: states of all positions, gates, dense gates, logits."""
        valid = self.positions(item_seq) < item_seq_len[:, None]
        attended, logits = self.trm_encoder(hidden, self.visible(item_seq, item_seq_len))
        filtered = hidden
        for layer in self._filters():
            filtered = layer(filtered, valid)
        gates, dense = self.router(self._described_padded(hidden, valid, item_seq_len))
        states = _mix([attended, filtered, self.light(hidden)], gates.unsqueeze(1))
        return states, gates, dense, logits[-1]

    def _described_packed(self, hidden: Tensor, batch: Packed) -> Tensor:
        """What the router sees of each sequence: [N, d] -> [S, d] in sorted order."""
        if self.router_input == "last":
            return hidden.index_select(0, batch.last_tokens)
        if self.router_input == "spectrum":
            return packed_mean_amplitude(hidden, batch, self.max_seq_length)
        sums = torch.cat([group.pad(part).sum(1) for group, part in zip(batch.groups, batch.split(hidden))])
        return sums / batch.lengths[batch.order].unsqueeze(-1)

    def _described_padded(self, hidden: Tensor, valid: Tensor, lengths: Tensor) -> Tensor:
        if self.router_input == "last":
            return self.gather_indexes(hidden, lengths - 1)
        if self.router_input == "spectrum":
            return mean_amplitude(hidden, valid, lengths, self.max_seq_length)
        return (hidden * valid.unsqueeze(-1)).sum(1) / lengths.unsqueeze(-1)

    # ---- training

    def calculate_loss(self, interaction: Interaction) -> LossParts:
        """Named parts `rec`, `cl` and `balance`; at weight 0 a part is absent, and with it the second view."""
        targets = interaction[self.POS_ITEM_ID]
        encode = self._packed_pass if self.fast_path else self._padded_pass
        outputs, gates, dense = encode(interaction[self.ITEM_SEQ], interaction[self.ITEM_SEQ_LEN])
        n_rows = targets.shape[0]
        self._observe(gates[:n_rows])
        parts = {"rec": self.recommendation_loss(outputs[:n_rows], targets)}
        if self.cl_weight > 0:
            parts["cl"] = self.cl_weight * self.info_nce(outputs[:n_rows], outputs[n_rows:], labels=targets)
        if self.balance_weight > 0:
            parts["balance"] = self.balance_weight * imbalance(dense[:n_rows])
        return LossParts(parts)

    def _packed_pass(self, item_seq: Tensor, item_seq_len: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Representations, gates and dense gates of the rows and, where they are contrasted, of their views."""
        batch = pack([(item_seq, item_seq_len)])
        hidden = self.embed(batch.items, batch.positions)
        if self.cl_weight > 0:
            view = packed_without_bins(hidden, batch, self._kept_bins(item_seq), self.max_seq_length)
            batch, _, place = restack(batch, item_seq.shape[0])
            hidden = take_distinct_rows(torch.cat([hidden, view]), place)
        return self._mixed_packed(hidden, batch)

    def _padded_pass(self, item_seq: Tensor, item_seq_len: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same on the padded batch (`fast_path: False`)."""
        hidden = self.embed(item_seq, self.positions(item_seq))
        if self.cl_weight > 0:
            valid = self.positions(item_seq) < item_seq_len[:, None]
            view = without_bins(hidden, valid, self._kept_bins(item_seq), self.max_seq_length)
            hidden, item_seq, item_seq_len = torch.cat([hidden, view]), item_seq.repeat(2, 1), item_seq_len.repeat(2)
        states, gates, dense, _ = self._mixed_padded(hidden, item_seq, item_seq_len)
        return self.gather_indexes(states, item_seq_len - 1), gates, dense

    def _kept_bins(self, item_seq: Tensor) -> Tensor:
        return kept_bins(item_seq.shape[0], self.max_seq_length, self.mask_ratio, self.mask_mode, item_seq.device)

    # ---- what the log shows

    def _reset_scalars(self) -> None:
        self._gate_sums: Optional[Tensor] = None
        self._n_rows = 0

    @torch.no_grad()
    def _observe(self, gates: Tensor) -> None:
        total = gates.sum(0)
        self._gate_sums = total if self._gate_sums is None else self._gate_sums + total
        self._n_rows += gates.shape[0]

    def epoch_scalars(self) -> dict[str, float]:
        """Mean gate of each expert over the epoch's rows; starts counting anew."""
        names = ("attn", "freq", self.third_expert)
        sums = [] if self._gate_sums is None else self._gate_sums.tolist()
        scalars = {f"gate_{name}": total / self._n_rows for name, total in zip(names, sums)}
        self._reset_scalars()
        return scalars


def _mix(experts: list[Tensor], gates: Tensor) -> Tensor:
    """Sum over experts of gate times representation: K times [..., d], [..., K] -> [..., d]."""
    return (torch.stack(experts, dim=-2) * gates.unsqueeze(-1)).sum(-2)
