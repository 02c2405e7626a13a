"""CL4SRec: SASRec with a contrast of two augmented views of each history.

Xie et al., "Contrastive Learning for Sequential Recommendation", ICDE 2022, arXiv 2010.14395.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from recbole.data.interaction import Interaction

from recbole_prism.model.functional.info_nce import info_nce
from recbole_prism.model.functional.loss_parts import LossParts
from recbole_prism.model.sequential_recommender.transformer import branch_of
from recbole_prism.model.sequential_recommender.views import ViewRecommender


class CL4SRec(ViewRecommender):
    """L = L_rec + cl_weight * InfoNCE(z1, z2), with z1 and z2 the representations of two views of the same history.

    The loader makes the views (crop, mask, reorder; the `aug_*` keys). Anchor and views go through the encoder in one
    pass, each with dropout of its own; the anchor takes no part in the contrast. Nothing changes at inference.

    Where the paper and the authors' code differ, this follows the code, but for one defect of it: the code writes the
    views into the stored training rows. The main loss is this package's: full cross-entropy on prefix rows.

    Args:
        config: RecBole config with the keys of properties/model/CL4SRec.yaml.
        dataset: Anything with RecBole's `num(field)`.
    """

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        self.cl_weight = float(config["cl_weight"])
        self.info_nce = partial(
            info_nce, temperature=float(config["cl_temperature"]), similarity=config["cl_similarity"]
        )

    @classmethod
    def needs(cls, config: Any) -> frozenset[str]:
        """Extra sequences the loader must put into a training batch."""
        return frozenset({"view_1", "view_2"}) if float(config["cl_weight"]) > 0 else frozenset()

    def calculate_loss(self, interaction: Interaction) -> LossParts:
        """Recommendation loss, and the weighted contrast ("cl") unless its weight is 0."""
        if self.cl_weight == 0:
            return super().calculate_loss(interaction)
        branches = [
            branch_of(interaction, self.ITEM_SEQ, self.ITEM_SEQ_LEN, prefix) for prefix in (None, "view_1", "view_2")
        ]
        output, first, second = self.encode(branches)
        rec = self.recommendation_loss(output, interaction[self.POS_ITEM_ID])
        return LossParts({"rec": rec, "cl": self.cl_weight * self.info_nce(first, second)})
