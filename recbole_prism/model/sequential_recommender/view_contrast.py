"""What ICLRec and ELCRec share: two augmented views, contrasted as whole sequences."""

from __future__ import annotations

from typing import Any

from recbole.data.interaction import Interaction
from torch import Tensor

from recbole_prism.model.functional.pooling import pool
from recbole_prism.model.functional.sequence_gram import sequence_info_nce
from recbole_prism.model.layers.states import PackedStates, States
from recbole_prism.model.sequential_recommender.intents import IntentRecommender
from recbole_prism.model.sequential_recommender.transformer import branch_of
from recbole_prism.model.sequential_recommender.views import ViewRecommender

VIEWS = ("view_1", "view_2")


class ViewContrast(ViewRecommender, IntentRecommender):
    """Views of a history, their contrast position by position, and the pooling that intents are taken from.

    Args:
        config: RecBole config with `seqcl_weight`, `intentcl_weight`, `seqcl_pooling`, `intent_pooling`, `reuse_views`.
        dataset: Anything with RecBole's `num(field)`.
    """

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        self.seqcl_weight = float(config["seqcl_weight"])
        self.intentcl_weight = float(config["intentcl_weight"])
        self.seqcl_pooling: str = config["seqcl_pooling"]
        self.intent_pooling: str = config["intent_pooling"]
        self.reuse_views = bool(config["reuse_views"])

    @classmethod
    def needs(cls, config: Any) -> frozenset[str]:
        """Extra sequences the loader must put into a training batch."""
        wanted = float(config["seqcl_weight"]) > 0 or float(config["intentcl_weight"]) > 0
        return frozenset(VIEWS) if wanted else frozenset()

    def encode_views(self, interaction: Interaction, n_pairs: int) -> States:
        """States of the rows and, behind them, `n_pairs` encodings of both views, each with dropout of its own."""
        names = [None, *VIEWS * n_pairs]
        return self.encode_states([branch_of(interaction, self.ITEM_SEQ, self.ITEM_SEQ_LEN, name) for name in names])

    def sequence_contrast(self, encoded: States, states: Tensor) -> Tensor:
        """InfoNCE of the first pair of views.

        Args:
            encoded: What `encode_views` gave.
            states: [S, w, m] of its positions, spread.

        Returns:
            Scalar.
        """
        n_rows = encoded.n_rows
        views = slice(n_rows, 3 * n_rows)
        if self.seqcl_pooling == "concat_valid" and isinstance(encoded, PackedStates):
            lengths = encoded.batch.host_lengths[views]
            return sequence_info_nce(states[views], lengths, self.temperature, self.similarity)
        pooled = pool(states[views], encoded.lengths[views], self.seqcl_pooling)
        return self.info_nce(pooled[:n_rows], pooled[n_rows:])

    def pooled_views(self, encoded: States, states: Tensor) -> tuple[Tensor, Tensor]:
        """Intent representations [B, d] of the last pair of views."""
        n_rows = encoded.n_rows
        pooled = pool(states[-2 * n_rows :], encoded.lengths[-2 * n_rows :], self.intent_pooling)
        return pooled[:n_rows], pooled[n_rows:]

    def n_pairs(self, both: bool) -> int:
        """Encodings of the views: one pair for each contrast that is there (`both`), if they are not to share it."""
        return 2 if both and not self.reuse_views else 1
