"""ICLRec: contrast of two views of a history, and of each view with the centre of the history's cluster.

Chen et al., "Intent Contrastive Learning for Sequential Recommendation", WWW 2022, arXiv 2202.02519.
"""

from __future__ import annotations

from typing import Any

from recbole.data.interaction import Interaction

from recbole_prism.model.functional.loss_parts import LossParts
from recbole_prism.model.functional.pooling import pool
from recbole_prism.model.sequential_recommender.clustering import ClusteringRecommender
from recbole_prism.model.sequential_recommender.view_contrast import ViewContrast


class ICLRec(ViewContrast, ClusteringRecommender):
    """L = L_rec + seqcl_weight * L_seq + intentcl_weight * L_int.

    L_seq contrasts the views position by position. L_int is the mean of the contrasts of both views with the centre of
    the cluster that the row itself belongs to; one row per user is clustered at the start of each epoch. Centres and
    the row that chooses one get no gradient.

    Args:
        config: RecBole config with the keys of properties/model/ICLRec.yaml.
        dataset: Anything with RecBole's `num(field)`.
    """

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        self.centre_weight = self.intentcl_weight

    def estep_pooling(self) -> str:
        """Pooling of the representations that are clustered."""
        return self.intent_pooling

    def calculate_loss(self, interaction: Interaction) -> LossParts:
        """Named parts `rec`, `seqcl`, `intentcl`, already weighted; a part of weight 0 is absent."""
        uses_centres, uses_views = self.uses_centres(), self.seqcl_weight > 0
        if not (uses_centres or uses_views):
            return super().calculate_loss(interaction)
        encoded = self.encode_views(interaction, self.n_pairs(uses_centres and uses_views))
        states, n_rows = encoded.spread(encoded.tokens), encoded.n_rows
        rows, lengths = states[:n_rows], encoded.lengths[:n_rows]
        parts = {"rec": self.recommendation_loss(pool(rows, lengths, "last"), interaction[self.POS_ITEM_ID])}
        if uses_views:
            parts["seqcl"] = self.seqcl_weight * self.sequence_contrast(encoded, states)
        if uses_centres:
            intents = self.centres.nearest(pool(rows, lengths, self.intent_pooling))
            first, second = (self.contrast_with_centres(view, intents) for view in self.pooled_views(encoded, states))
            parts["intentcl"] = self.intentcl_weight * (first + second) / 2
        return LossParts(parts)
