"""BERT4Rec: RecBole's class, kept from dividing 0 by 0.

Sun et al., "BERT4Rec: Sequential Recommendation with Bidirectional Encoder Representations from Transformer", CIKM
2019.
"""

from __future__ import annotations

from recbole.data.interaction import Interaction
from recbole.model.sequential_recommender.bert4rec import BERT4Rec as RecBoleBERT4Rec
from torch import Tensor


class BERT4Rec(RecBoleBERT4Rec):
    """RecBole's model and mathematics.

    RecBole leaves masked items at position 0 out of the loss and averages over the others. A batch without any other (a
    last batch of one short history) has nothing to learn from; here its loss is 0 instead of NaN.
    """

    def calculate_loss(self, interaction: Interaction) -> Tensor:
        """Cloze loss of a batch masked by RecBole's `mask_itemseq` transform, scalar."""
        if not bool((interaction[self.MASK_INDEX] > 0).any()):
            return self.item_embedding.weight.sum() * 0.0
        loss: Tensor = super().calculate_loss(interaction)
        return loss
