"""AC-SASRec: SASRec with calibrated attention (AC-TSR).

Zhou et al., "Attention Calibration for Transformer-based Sequential Recommendation", CIKM 2023, arXiv 2308.09419. The
paper's own equations could not be seen; the computation is that of the released code, written from a specification
(docs/models/ACSASRec.md gives the equations). Deviations from the released code:

* The penalty ||1 - M||_F counts every entry of a padded query, of a hidden key and of positions cut off by a shorter
  batch as 1, so that it does not depend on padding. The released code computes the rows of padded queries too.
* Both gradients come from one scalar loss: an attack parameter's gradient is exchanged inside it.
* The noise is drawn for the last position of the last layer only, the one place where it is read.
* `annealing` counts training steps; evaluation does not move it.
* The penalty weight is a plain number: in the released code it is a parameter that never gets a gradient.
* `two_level: False` is left out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from recbole.data.interaction import Interaction
from torch import Tensor, nn

from recbole_prism.errors import ConfigError
from recbole_prism.model.functional.linear_cross_entropy import linear_cross_entropy
from recbole_prism.model.functional.loss_parts import LossParts
from recbole_prism.model.layers.calibrated_layer import LayerCalibrator, perturbed_last
from recbole_prism.model.layers.calibration import mask_gain, mask_norm
from recbole_prism.model.layers.encoder import TransformerLayer
from recbole_prism.model.layers.packed import Packed, pack
from recbole_prism.model.sequential_recommender.transformer import Branch, TransformerRecommender, branch_of


class TrainingPass(NamedTuple):
    """What a batch gives in training.

    Attributes:
        output: [B, d] representations of the calibrated branch.
        perturbed: [B, d] representations of the perturbed branch.
        penalty: Scalar, mean over layers of ||1 - M||_F.
    """

    output: Tensor
    perturbed: Tensor
    penalty: Tensor


class ACSASRec(TransformerRecommender):
    """SASRec with a spatial and an adversarial calibrator in every layer.

    The spatial calibrator adds two learned errors to the attention logits and replaces the position table. The
    adversarial one learns masks M that hurt the prediction of a perturbed branch; the attention of the branch in use is
    raised where they do. The masks' parameters minimise the attack loss, all others the recommendation loss.

    Args:
        config: RecBole config with the keys of properties/model/ACSASRec.yaml.
        dataset: Anything with RecBole's `num(field)`.

    Raises:
        ConfigError: `compile` together with the adversarial calibrator.
    """

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        self.use_adversarial = bool(config["use_adversarial"])
        if self.use_adversarial and config["compile"]:
            raise ConfigError(
                "AC-SASRec's adversarial calibrator takes a gradient inside its loss; whether torch.compile keeps that "
                "right is not known",
                "leave compile out, or set use_adversarial: False",
            )
        self.mask_loss_weight = float(config["mask_loss_weight"])
        self.use_position_embedding = bool(config["use_position_embedding"])
        if not self.use_position_embedding:
            del self.position_embedding
        self.calibrators = nn.ModuleList([self._new_calibrator(config) for _ in range(self.n_layers)])
        self.calibrators.apply(self._init_weights)
        self._share_first_scale()
        self._reset_scalars()

    def _new_calibrator(self, config: Any) -> LayerCalibrator:
        return LayerCalibrator(
            head_size=self.hidden_size // self.n_heads,
            hidden_size=self.hidden_size,
            max_length=self.max_seq_length,
            use_order=bool(config["use_order"]),
            use_distance=bool(config["use_distance"]),
            use_adversarial=self.use_adversarial,
            combine_option=config["combine_option"],
        )

    @torch.no_grad()
    def _share_first_scale(self) -> None:
        """All layers start with the distance scale of the first one, as in the released code."""
        spatial = [calibrator.spatial for _, calibrator in self._stages()]
        scales = [part.distance_scale for part in spatial if part is not None and part.distance_scale is not None]
        for scale in scales[1:]:
            scale.copy_(scales[0])

    def embed(self, items: Tensor, positions: Tensor) -> Tensor:
        """Dropout(LayerNorm(item embedding)), with the position table if there is one: [...] and [...] -> [..., d]."""
        if self.use_position_embedding:
            return super().embed(items, positions)
        return self.dropout(self.LayerNorm(self.item_embedding(items)))

    # ---- encoding

    def _stages(self) -> list[tuple[TransformerLayer, LayerCalibrator]]:
        """Each layer with its calibrators."""
        calibrators = [part for part in self.calibrators if isinstance(part, LayerCalibrator)]
        return list(zip(self.trm_encoder.layers, calibrators))

    def encode_packed(self, batch: Packed) -> Tensor:
        """[S, d] of the calibrated branch at the last position of each packed sequence, in original order."""
        hidden = self.embed(batch.items, batch.positions)
        *lower, (last_layer, last_calibrator) = self._stages()
        for layer, calibrator in lower:
            hidden, _ = calibrator.packed(layer, hidden, batch)
        return batch.to_row_order(last_calibrator.packed_last(last_layer, hidden, batch))

    def encode_padded(self, item_seq: Tensor, item_seq_len: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden states [B, w, d] of the calibrated branch and the last layer's logits [B, H, w, w].

        The logits include the spatial errors; their softmax A is what the adversarial calibrator starts from, not the
        attention in use.
        """
        visible = self.visible(item_seq, item_seq_len)
        hidden = self.embed(item_seq, self.positions(item_seq))
        logits = hidden
        for layer, calibrator in self._stages():
            hidden, block, *_ = calibrator.padded(layer, hidden, visible)
            logits = block.logits
        return hidden, logits

    # ---- training

    def calculate_loss(self, interaction: Interaction) -> LossParts:
        """The part `rec`; with the adversarial calibrator its gradient is that of two losses (see `_route`)."""
        if not (self.use_adversarial and self.training):
            return super().calculate_loss(interaction)
        targets = interaction[self.POS_ITEM_ID]
        seen = self._training_pass(branch_of(interaction, self.ITEM_SEQ, self.ITEM_SEQ_LEN))
        recommendation = self.recommendation_loss(seen.output, targets)
        hurt = linear_cross_entropy(seen.perturbed, self.item_embedding.weight.detach(), targets)
        self._observe(hurt, seen.penalty)
        if torch.is_grad_enabled():
            recommendation = self._route(recommendation, self.mask_loss_weight * seen.penalty - hurt)
        return LossParts({"rec": recommendation})

    def _route(self, recommendation: Tensor, attack: Tensor) -> Tensor:
        """A scalar with the value of `recommendation`, whose gradient for the attack parameters is that of `attack`.

        For all other parameters it is the gradient of `recommendation`.
        """
        parameters = self.attack_parameters()
        exchange = torch.autograd.grad(attack - recommendation, parameters, retain_graph=True)
        change = torch.stack([(p * g).sum() for p, g in zip(parameters, exchange)]).sum()
        return recommendation + (change - change.detach())

    def attack_parameters(self) -> list[nn.Parameter]:
        """The group that minimises the attack loss: projections of the masks in all layers."""
        adversaries = [calibrator.adversarial for _, calibrator in self._stages()]
        return [
            parameter
            for adversary in adversaries
            if adversary is not None
            for projection in (adversary.attack_query, adversary.attack_key)
            for parameter in projection.parameters()
        ]

    def _training_pass(self, branch: Branch) -> TrainingPass:
        """Both branches of a batch and the penalty."""
        for _, calibrator in self._stages():
            if calibrator.adversarial is not None:
                calibrator.adversarial.count_step()
        n_rows, device = branch[1].shape[0], branch[1].device
        noise = torch.randn(n_rows, self.n_heads, self.max_seq_length, device=device)
        output, perturbed, gains = (self._packed_pass if self.fast_path else self._padded_pass)(branch, noise)
        norms = [mask_norm(gain, n_rows, self.n_heads, self.max_seq_length) for gain in gains]
        return TrainingPass(output, perturbed, torch.stack(norms).mean())

    def _packed_pass(self, branch: Branch, noise: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Packed tokens: both representations [B, d], and each layer's summed `mask_gain`; noise [B, H, T]."""
        batch = pack([branch])
        hidden, gains = self.embed(batch.items, batch.positions), []
        *lower, (last_layer, last_calibrator) = self._stages()
        for layer, calibrator in lower:
            hidden, gain = calibrator.packed(layer, hidden, batch)
            gains.append(gain)
        seen = last_calibrator.packed_attacked(last_layer, hidden, batch, noise)
        return batch.to_row_order(seen.output), batch.to_row_order(seen.perturbed), [*gains, seen.gain]

    def _padded_pass(self, branch: Branch, noise: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """The same on the padded batch, every position computed (`fast_path: False`)."""
        item_seq, item_seq_len = branch
        visible = self.visible(item_seq, item_seq_len)
        queries = self.positions(item_seq) < item_seq_len[:, None]
        hidden, gains = self.embed(item_seq, self.positions(item_seq)), []
        for layer, calibrator in self._stages():
            entering, seen = hidden, calibrator.padded(layer, hidden, visible)
            if seen.mask is not None:
                gains.append((mask_gain(seen.mask) * queries).sum())
            hidden = seen.output
        perturbed = perturbed_last(layer, seen, entering, item_seq_len - 1, noise)
        return self.gather_indexes(hidden, item_seq_len - 1), perturbed, gains

    # ---- what the log shows

    def _reset_scalars(self) -> None:
        self._n_observed = 0
        self._observed: Tensor = torch.zeros(2)

    @torch.no_grad()
    def _observe(self, hurt: Tensor, penalty: Tensor) -> None:
        """Sum the perturbed branch's cross-entropy and the penalty, on the device."""
        self._observed = self._observed.to(hurt.device) + torch.stack([hurt, penalty])
        self._n_observed += 1

    def epoch_scalars(self) -> dict[str, float]:
        """Mean cross-entropy of the perturbed branch and mean penalty of the epoch's batches; starts anew."""
        if self._n_observed == 0:
            return {}
        hurt, penalty = (self._observed / self._n_observed).tolist()
        self._reset_scalars()
        return {"perturbed_rec": hurt, "mask_penalty": penalty}
