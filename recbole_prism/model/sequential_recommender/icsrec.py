"""ICSRec: contrast of histories that lead to the same item, and of each with the centre of its cluster.

Qin et al., "Intent Contrastive Learning with Cross Subsequences for Sequential Recommendation", WSDM 2024,
arXiv 2310.14318.
"""

from __future__ import annotations

from typing import Any

from recbole.data.interaction import Interaction

from recbole_prism.model.functional.loss_parts import LossParts
from recbole_prism.model.sequential_recommender.clustering import ClusteringRecommender
from recbole_prism.model.sequential_recommender.transformer import branch_of


class ICSRec(ClusteringRecommender):
    """L = L_rec + cicl_weight * L_cicl + ficl_weight * L_ficl.

    L_cicl contrasts encodings a, b of a row and of its same-target partner (the coarse intent). L_ficl is the sum of
    the contrasts of a and of b with the centres of their clusters (the fine intent); all training rows are clustered at
    the start of each epoch. The published subsequences are RecBole's training rows, so there is no other data.

    Args:
        config: RecBole config with the keys of properties/model/ICSRec.yaml.
        dataset: Anything with RecBole's `num(field)`.
    """

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        self.cicl_weight = float(config["cicl_weight"])
        self.centre_weight = float(config["ficl_weight"])
        self.reuse_anchor = bool(config["reuse_anchor"])

    @classmethod
    def needs(cls, config: Any) -> frozenset[str]:
        """Extra rows the loader must put into a training batch."""
        wanted = float(config["cicl_weight"]) > 0 or float(config["ficl_weight"]) > 0
        return frozenset({"partner"}) if wanted else frozenset()

    def estep_pooling(self) -> str:
        """Published: the last position."""
        return "last"

    def calculate_loss(self, interaction: Interaction) -> LossParts:
        """Named parts `rec`, `cicl`, `ficl`, already weighted; a part of weight 0 is absent."""
        uses_centres = self.uses_centres()
        if self.cicl_weight == 0 and not uses_centres:
            return super().calculate_loss(interaction)
        row = branch_of(interaction, self.ITEM_SEQ, self.ITEM_SEQ_LEN)
        partner = branch_of(interaction, self.ITEM_SEQ, self.ITEM_SEQ_LEN, "partner")
        encoded = self.encode([row, partner] if self.reuse_anchor else [row, row, partner])
        output, anchor, other = encoded[0], encoded[-2], encoded[-1]
        targets = interaction[self.POS_ITEM_ID]
        parts = {"rec": self.recommendation_loss(output, targets)}
        if self.cicl_weight > 0:
            labels = targets if self.cl_filter_same else None
            parts["cicl"] = self.cicl_weight * self.info_nce(anchor, other, labels=labels)
        if uses_centres:
            contrasts = [self.contrast_with_centres(view, self.centres.nearest(view)) for view in (anchor, other)]
            parts["ficl"] = self.centre_weight * (contrasts[0] + contrasts[1])
        return LossParts(parts)
