"""BERT4Rec: bidirectional transformer trained on the cloze task.

Sun et al., "BERT4Rec: Sequential Recommendation with Bidirectional Encoder Representations from Transformer", CIKM
2019. RecBole's parameters; see docs/models/BERT4Rec.md for what is repaired in RecBole's training and testing.
"""

from __future__ import annotations

from typing import Any

from recbole.data.interaction import Interaction

from recbole_prism.model.functional.cloze import CLOZE
from recbole_prism.model.functional.loss_parts import LossParts
from recbole_prism.model.sequential_recommender.bidirectional import BidirectionalRecommender


class BERT4Rec(BidirectionalRecommender):
    """See `BidirectionalRecommender`; keys in properties/model/BERT4Rec.yaml."""

    @classmethod
    def needs(cls, config: Any) -> frozenset[str]:
        """Extra fields the loader must put into a training batch."""
        return frozenset({CLOZE})

    def calculate_loss(self, interaction: Interaction) -> LossParts:
        """Cross-entropy over all items at the masked positions."""
        branch, places, targets = self.cloze_task(interaction)
        return LossParts({"rec": self.prediction_loss(self.masked_states(*branch, places), targets)})
