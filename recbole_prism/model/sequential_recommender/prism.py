"""PRISM: mixture of perspectives for sequential recommendation.

Kim et al., "From Overlooked to Explored: Recovering Item Relations via Mixture of Perspectives for Sequential
Recommendation", CIKM 2026. docs/prism.md gives the equations and the choices that the published text leaves open.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, Optional

import torch
from recbole.data.interaction import Interaction
from torch import Tensor, nn
from torch.nn import functional

from recbole_prism.errors import ConfigError
from recbole_prism.model.functional.cloze import CLOZE
from recbole_prism.model.functional.consistency import lens_consistency
from recbole_prism.model.functional.host_copy import distinct
from recbole_prism.model.functional.info_nce import info_nce
from recbole_prism.model.functional.loss_parts import LossParts
from recbole_prism.model.layers.encoder import TransformerLayer
from recbole_prism.model.layers.lens import BoostSettings
from recbole_prism.model.layers.packed import Packed, pack, restack, take_distinct_rows
from recbole_prism.model.layers.prism import PrismLayer, mix
from recbole_prism.model.layers.router import composition, perspective_mask, primary_anchor
from recbole_prism.model.sequential_recommender.bidirectional import BidirectionalRecommender, Places
from recbole_prism.model.sequential_recommender.transformer import Branch, branch_of


class Perspectives(NamedTuple):
    """What one PRISM module computes for packed tokens.

    Attributes:
        routing: [N, K] routing logits.
        anchors: [N] primary semantic anchors.
        allowed: [N, K] bool, lenses of the view ablation.
        ratio: [N, K] semantic composition ratio g.
        outputs: [N, K, d] lens outputs z.
    """

    routing: Tensor
    anchors: Tensor
    allowed: Tensor
    ratio: Tensor
    outputs: Tensor

    def take(self, places: Tensor) -> "Perspectives":
        """The same at some positions only: an index [n] without repetitions for packed tokens, a mask for a batch."""
        if places.dtype == torch.bool:
            return Perspectives(*[part[places] for part in self])
        return Perspectives(*[take_distinct_rows(part, places) for part in self])


class PRISM(BidirectionalRecommender):
    """SASRec with a PRISM module behind each layer but the last, and two auxiliary losses.

    With `backbone: bert4rec` the encoder below and between the modules is bidirectional and the recommendation loss is
    that of the cloze task: at masked positions, whose distinct items are the consistency loss's. The contrast is of
    histories with a mask behind them, read at the mask; the anchor then always takes a pass of its own.

    Args:
        config: RecBole config with the keys of properties/model/PRISM.yaml.
        dataset: Anything with RecBole's `num(field)`.

    Raises:
        ConfigError: With a single layer: there is no place between layers for a module.
    """

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset, bidirectional=config["backbone"] == "bert4rec")
        if self.n_layers < 2:
            raise ConfigError(
                f"PRISM needs n_layers >= 2, got {self.n_layers}: its modules sit between transformer layers",
                "set n_layers: 2 or more, or use --model=SASRec",
            )
        self.aux_weight = float(config["aux_weight"])
        self.use_spcl = bool(config["spcl"]) and self.aux_weight > 0
        self.use_ccl = bool(config["ccl"]) and self.aux_weight > 0
        self.same_target = bool(config["same_target"])
        self.drop = float(config["perspective_dropout"]) if config["spm"] else 0.0
        self.spm_per_sequence = config["spm_level"] == "sequence"
        self.fresh_anchor = config["spcl_anchor"] == "fresh" or not self.causal
        self.info_nce = partial(
            info_nce,
            temperature=float(config["cl_temperature"]),
            similarity=config["cl_similarity"],
            negatives=config["spcl_negatives"],
        )
        self.cl_filter_same = bool(config["cl_filter_same"])
        self.ccl_mean = config["ccl_reduction"] == "mean"
        self.ccl_unique = config["ccl_targets"] == "unique" or not self.causal
        self.ccl_target_grad = bool(config["ccl_target_grad"])
        self.modules_between = nn.ModuleList([self._new_module(config) for _ in range(self.n_layers - 1)])
        self.modules_between.apply(self._init_weights)
        self._reset_scalars()

    def _new_module(self, config: Any) -> PrismLayer:
        boost = BoostSettings(
            form=config["boost_form"],
            norm=config["boost_norm"],
            center=bool(config["boost_center"]),
            scope=config["lens_scope"],
            max_length=int(config["MAX_ITEM_LIST_LENGTH"]),
        )
        return PrismLayer(
            n_lenses=config["n_lenses"],
            **self.layer_settings(),
            boost=boost,
            lens_value=config["lens_value"],
            lens_residual=bool(config["lens_residual"]),
            views=config["views"],
            router_noise=bool(config["router_noise"]),
        )

    @classmethod
    def needs(cls, config: Any) -> frozenset[str]:
        """Extra rows and fields the loader must put into a training batch."""
        partner = config["spcl"] and config["same_target"] and float(config["aux_weight"]) > 0
        wanted = {"partner": partner, CLOZE: config["backbone"] == "bert4rec"}
        return frozenset(name for name, is_wanted in wanted.items() if is_wanted)

    # ---- encoding

    def _stages(self) -> list[tuple[TransformerLayer, PrismLayer]]:
        """Each layer but the last with the module behind it."""
        modules = [module for module in self.modules_between if isinstance(module, PrismLayer)]
        return list(zip(self.trm_encoder.layers[:-1], modules))

    def encode_packed(self, batch: Packed) -> Tensor:
        """[S, d] at the last position of each packed sequence, in original order (prediction path)."""
        hidden = self.embed(batch.items, batch.positions)
        for layer, module in self._stages():
            hidden = module.packed_output(*layer.packed(hidden, batch), batch)
        return batch.to_row_order(self.trm_encoder.layers[-1].packed_last(hidden, batch))

    def encode_padded(self, item_seq: Tensor, item_seq_len: Tensor) -> tuple[Tensor, Tensor]:
        """Plain computation of every position; see the base class."""
        visible = self.visible(item_seq, item_seq_len)
        hidden = self.embed(item_seq, self.positions(item_seq))
        for layer, module in self._stages():
            seen = self._padded_perspectives(layer, module, hidden, visible)
            hidden = module.synthesise(seen.outputs, seen.ratio)
        return self.trm_encoder.layers[-1](hidden, visible)

    def _perspectives(self, layer: TransformerLayer, module: PrismLayer, hidden: Tensor, batch: Packed) -> Perspectives:
        """One transformer layer and the lenses of the module behind it: [N, d] -> `Perspectives`."""
        hidden, logits, values = layer.packed(hidden, batch)
        routing = module.router(hidden)
        anchors = primary_anchor(routing)
        allowed = module.allowed(anchors)
        outputs = module.packed_lens_outputs(hidden, logits, values, anchors, batch)
        return Perspectives(routing, anchors, allowed, composition(routing, allowed), outputs)

    def _padded_perspectives(
        self, layer: TransformerLayer, module: PrismLayer, hidden: Tensor, visible: Tensor
    ) -> Perspectives:
        """The same for a padded batch: [S, T, d] and visible [S, 1, T, T] -> `Perspectives` of leading shape [S, T]."""
        attention = layer.multi_head_attention
        values = attention.heads(attention.value(hidden)) if module.lens_value == "layer" else None
        hidden, logits = layer(hidden, visible)
        routing = module.router(hidden)
        anchors = primary_anchor(routing)
        allowed = module.allowed(anchors)
        outputs = module.lens_outputs(hidden, logits, anchors, visible, values)
        return Perspectives(routing, anchors, allowed, composition(routing, allowed), outputs)

    # ---- training

    def calculate_loss(self, interaction: Interaction) -> LossParts:
        """Named parts `rec`, `spcl`, `ccl`; the auxiliary ones carry `aux_weight` and are absent at weight 0."""
        history = branch_of(interaction, self.ITEM_SEQ, self.ITEM_SEQ_LEN)
        targets = interaction[self.POS_ITEM_ID]
        rows, places, predicted = (history, None, targets) if self.causal else self.cloze_task(interaction)
        extra = self._contrast_branches(history, interaction) if self.use_spcl else []
        states, consistency = self._training_pass([rows, *extra], predicted, places)
        parts = {"rec": self.prediction_loss(states[0], predicted)}
        if self.use_spcl:
            labels = targets if self.cl_filter_same else None
            parts["spcl"] = self.aux_weight * self.info_nce(*[self.head(view) for view in states[1:]], labels=labels)
        if self.use_ccl:
            parts["ccl"] = self.aux_weight * consistency
        return LossParts(parts)

    def _contrast_branches(self, history: Branch, interaction: Interaction) -> list[Branch]:
        """Branches beside the rows: a second pass of the anchor where it is not shared, and its partner."""
        partner = branch_of(interaction, self.ITEM_SEQ, self.ITEM_SEQ_LEN, "partner") if self.same_target else history
        return [self.query(*branch) for branch in ([history, partner] if self.fresh_anchor else [partner])]

    def _training_pass(
        self, branches: list[Branch], predicted: Tensor, places: Optional[Places]
    ) -> tuple[list[Tensor], Tensor]:
        """Encode the prediction path and the masked paths of SPCL together.

        With `spcl_anchor: shared` the anchor is stacked once; behind the first module it forks into both its paths.

        Args:
            branches: The rows, and those of the contrast.
            predicted: [M] items that the rows predict.
            places: Where in the rows, [M] each; None: one behind the last position of each.

        Returns:
            States of the last layer: of the prediction path [M, d] and, with SPCL, of masked anchor and masked partner
            [B, d]; consistency loss.
        """
        n_rows, fork = branches[0][1].shape[0], self.use_spcl and not self.fresh_anchor
        encode = self._packed_pass if self.fast_path else self._padded_pass
        last, consistency = encode(branches, predicted, fork, places)
        n_read = len(branches) + fork
        paths = list(last.split([last.shape[0] - n_rows * (n_read - 1)] + [n_rows] * (n_read - 1)))
        return (paths[-1:] + paths[:-1] if fork else paths), consistency / (self.n_layers - 1)

    def _packed_pass(
        self, branches: list[Branch], predicted: Tensor, fork: bool, places: Optional[Places]
    ) -> tuple[Tensor, Tensor]:
        """Packed tokens: states where they are read, branch after branch, and the summed consistency loss.

        After the fork the stacked sequences are masked paths, and copies of the anchor behind them predict.
        """
        n_rows = branches[0][1].shape[0]
        batch = pack(branches, causal=self.causal)
        first = 0  # sequences first, first + 1, ... predict
        hidden, consistency = self.embed(batch.items, batch.positions), predicted.new_zeros((), dtype=torch.float32)
        for number, (layer, module) in enumerate(self._stages()):
            seen = self._perspectives(layer, module, hidden, batch)
            on_path = batch.tokens_of(first, n_rows)
            shown = seen if on_path.shape[0] == hidden.shape[0] else seen.take(on_path)
            self._observe(number, shown)
            if self.use_ccl:
                lengths = batch.lengths[batch.sequences[on_path]]
                consistency = consistency + self._consistency(shown, lengths, predicted, n_rows)
            if fork and number == 0:
                masked = mix(seen.outputs, self._masked_ratio(seen, batch.sequences))
                first = batch.lengths.shape[0]
                batch, _, place = restack(batch, n_rows)
                mixed = torch.cat([masked, mix(shown.outputs, shown.ratio)])
                hidden = module.feed_forward(take_distinct_rows(mixed, place))
            else:
                ratio = seen.ratio
                if self.use_spcl:
                    masked = self._masked_ratio(seen, batch.sequences)
                    predicts = (batch.sequences >= first) & (batch.sequences < first + n_rows)
                    ratio = torch.where(predicts[:, None], ratio, masked)
                hidden = module.synthesise(seen.outputs, ratio)
        last_layer = self.trm_encoder.layers[-1]
        if places is None:
            return batch.to_row_order(last_layer.packed_last(hidden, batch)), consistency
        read = [batch.starts[places[0]] + places[1], (batch.starts + batch.lengths)[n_rows:] - 1]
        return last_layer.packed_at(hidden, batch, torch.cat(read)), consistency

    def _padded_pass(
        self, branches: list[Branch], predicted: Tensor, fork: bool, places: Optional[Places]
    ) -> tuple[Tensor, Tensor]:
        """The same on the padded batch, every position computed (`fast_path: False`)."""
        n_rows, width = branches[0][1].shape[0], max(seq.shape[1] for seq, _ in branches)
        item_seq = torch.cat([functional.pad(seq, (0, width - seq.shape[1])) for seq, _ in branches])
        lengths = torch.cat([length for _, length in branches])
        predicts = torch.arange(lengths.shape[0], device=predicted.device) < n_rows
        hidden, consistency = (
            self.embed(item_seq, self.positions(item_seq)),
            predicted.new_zeros((), dtype=torch.float32),
        )
        for number, (layer, module) in enumerate(self._stages()):
            seen = self._padded_perspectives(layer, module, hidden, self.visible(item_seq, lengths))
            on_path = (self.positions(item_seq) < lengths[:, None]) & predicts[:, None]
            shown = seen.take(on_path)
            self._observe(number, shown)
            if self.use_ccl:
                position_lengths = lengths[:, None].expand_as(on_path)[on_path]
                consistency = consistency + self._consistency(shown, position_lengths, predicted, n_rows)
            masked = self._masked_ratio(seen, None) if self.use_spcl else seen.ratio
            ratio = torch.where(predicts[:, None, None], seen.ratio, masked)
            hidden = module.synthesise(seen.outputs, masked if fork and number == 0 else ratio)
            if fork and number == 0:
                anchors = module.synthesise(seen.outputs[:n_rows], seen.ratio[:n_rows])
                hidden = torch.cat([hidden, anchors])
                item_seq = torch.cat([item_seq, item_seq[:n_rows]])
                lengths = torch.cat([lengths, lengths[:n_rows]])
                predicts = torch.arange(lengths.shape[0], device=predicted.device) >= lengths.shape[0] - n_rows
        hidden, _ = self.trm_encoder.layers[-1](hidden, self.visible(item_seq, lengths))
        last = self.gather_indexes(hidden, lengths - 1)
        return (last if places is None else torch.cat([hidden[places], last[n_rows:]])), consistency

    def _masked_ratio(self, seen: Perspectives, sequences: Optional[Tensor]) -> Tensor:
        """Composition ratio g~ under stochastic perspective masking.

        Args:
            seen: Perspectives of N packed tokens, or of a padded batch [S, T].
            sequences: [N] sequence of each packed token; None for a padded batch.
        """
        shape = list(seen.routing.shape)
        if self.spm_per_sequence:
            shape = [int(sequences.max()) + 1, shape[-1]] if sequences is not None else [shape[0], 1, shape[-1]]
        draws = torch.rand(shape, device=seen.routing.device)
        if self.spm_per_sequence and sequences is not None:
            draws = draws[sequences]
        return composition(seen.routing, perspective_mask(seen.routing, seen.allowed, draws, self.drop))

    def _consistency(self, shown: Perspectives, lengths: Tensor, predicted: Tensor, n_rows: int) -> Tensor:
        """L_CCL of one module, mean over rows; `lengths` [N] is the length of the row of each position."""
        if not predicted.shape[0]:
            return lengths.new_zeros((), dtype=shown.outputs.dtype)  # a cloze task in which no mask counts
        items = self.item_embedding(distinct(predicted) if self.ccl_unique else predicted)
        weights = 1.0 / lengths.to(items.dtype) if self.ccl_mean else torch.ones_like(lengths, dtype=items.dtype)
        return lens_consistency(
            shown.outputs,
            items if self.ccl_target_grad else items.detach(),
            shown.ratio,
            weights / n_rows,
        )

    # ---- what the log shows

    def _reset_scalars(self) -> None:
        self._usage: list[Optional[Tensor]] = [None] * (self.n_layers - 1)
        self._entropy: list[Optional[Tensor]] = [None] * (self.n_layers - 1)

    @torch.no_grad()
    def _observe(self, number: int, shown: Perspectives) -> None:
        """Count anchors and sum the entropy of g over the prediction path's positions, on the device."""
        usage = functional.one_hot(shown.anchors, shown.ratio.shape[-1]).sum(dim=0)  # bincount would wait for a GPU
        entropy = torch.special.entr(shown.ratio).sum()
        before, total = self._usage[number], self._entropy[number]
        self._usage[number] = usage if before is None else before + usage
        self._entropy[number] = entropy if total is None else total + entropy

    def epoch_scalars(self) -> dict[str, float]:
        """Per module beta, share of positions per group, mean entropy of g (nats); starts counting anew."""
        scalars = {}
        for number, (_, module) in enumerate(self._stages()):
            scalars[f"beta_{number + 1}"] = float(module.beta.detach())
            usage, entropy = self._usage[number], self._entropy[number]
            if usage is None or entropy is None:
                continue
            n_positions = float(usage.sum())
            scalars[f"router_entropy_{number + 1}"] = float(entropy) / n_positions
            for group, count in enumerate(usage.tolist()):
                scalars[f"router_usage_{number + 1}_{group + 1}"] = count / n_positions
        self._reset_scalars()
        return scalars
