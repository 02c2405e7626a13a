"""ELCRec: ICLRec with intent centres that are learned together with the rest.

Liu et al., "End-to-end Learnable Clustering for Intent Learning in Recommendation", NeurIPS 2024, arXiv 2401.05975.
"""

from __future__ import annotations

from typing import Any

import torch
from recbole.data.interaction import Interaction
from torch import Tensor
from torch.nn import functional

from recbole_prism.model.functional.intent_clustering import clustering_loss
from recbole_prism.model.functional.loss_parts import LossParts
from recbole_prism.model.functional.pooling import pool
from recbole_prism.model.layers.intents import LearnedCentres
from recbole_prism.model.sequential_recommender.view_contrast import ViewContrast


class ELCRec(ViewContrast):
    """L = L_rec + seqcl_weight * L_seq + intentcl_weight * L_int + cluster_weight * L_cl.

    Each position of a view is joined with its nearest centre before the views are contrasted (L_seq). L_int is the mean
    of the contrasts of both views with the centre nearest to the row itself. L_cl spreads the centres and pulls every
    row to all of them. Centres have unit length in every step; gradients reach them from all three parts. Where paper
    and the authors' code differ, this follows the code.

    Args:
        config: RecBole config with the keys of properties/model/ELCRec.yaml.
        dataset: Anything with RecBole's `num(field)`.
    """

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        self.cluster_weight = float(config["cluster_weight"])
        self.concatenates = config["intent_fusion"] == "concat"
        self.starts_from_kmeans = config["center_init"] == "kmeans"
        self.centres = LearnedCentres(
            config["n_intents"], self.hidden_size, self.seed
        )  # last, and without global draws

    @property
    def uses_centres(self) -> bool:
        """Whether any part of the loss looks at the centres."""
        return self.seqcl_weight > 0 or self.intentcl_weight > 0 or self.cluster_weight > 0

    def on_train_epoch_start(self, train_rows: Any, epoch: int) -> None:
        """Start the centres from a k-means over one row per user, once; see `represent_rows`."""
        if self.uses_centres and self.starts_from_kmeans and not self.centres.started:
            self.centres.start(self.cluster_rows(train_rows, epoch, "user_last", self.intent_pooling))

    def calculate_loss(self, interaction: Interaction) -> LossParts:
        """Named parts `rec`, `seqcl`, `intentcl`, `cluster`, already weighted; a part of weight 0 is absent."""
        if not self.uses_centres:
            return super().calculate_loss(interaction)
        self.centres.to_unit_length()
        uses_views = self.seqcl_weight > 0 or self.intentcl_weight > 0
        n_pairs = self.n_pairs(self.seqcl_weight > 0 and self.intentcl_weight > 0) if uses_views else 0
        encoded = self.encode_views(interaction, n_pairs)
        states, n_rows = encoded.spread(encoded.tokens), encoded.n_rows
        rows, lengths = states[:n_rows], encoded.lengths[:n_rows]
        parts = {"rec": self.recommendation_loss(pool(rows, lengths, "last"), interaction[self.POS_ITEM_ID])}
        if self.seqcl_weight > 0:
            fused = encoded.spread(self._fused(encoded.tokens))
            parts["seqcl"] = self.seqcl_weight * self.sequence_contrast(encoded, fused)
        directions = functional.normalize(pool(rows, lengths, self.intent_pooling), dim=-1)
        if self.intentcl_weight > 0:
            parts["intentcl"] = self.intentcl_weight * self._intent_contrast(
                self.pooled_views(encoded, states), self.centres.nearest(directions)
            )
        if self.cluster_weight > 0:
            parts["cluster"] = self.cluster_weight * clustering_loss(directions, self.centres.weight)
        return LossParts(parts)

    def _fused(self, tokens: Tensor) -> Tensor:
        """States [..., d] with their nearest centres: added [..., d], or behind them [..., 2d]."""
        nearest = self.centres(self.centres.nearest(tokens))
        return torch.cat([tokens, nearest], dim=-1) if self.concatenates else tokens + nearest

    def _intent_contrast(self, views: tuple[Tensor, Tensor], intents: Tensor) -> Tensor:
        """Mean over both views [B, d] of InfoNCE with the centres of `intents` [B]."""
        self.usage.add(intents, self.centres.weight.shape[0])
        labels = intents if self.cl_filter_same else None
        centres = self.centres(intents)
        first, second = (self.info_nce(view, centres, labels=labels) for view in views)
        return (first + second) / 2
