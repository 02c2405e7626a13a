"""Base of the models that are fitted by counting: nothing to train or to tune; rows that any model should beat."""

from __future__ import annotations

from typing import Any

from recbole.data.interaction import Interaction
from recbole.model.abstract_recommender import SequentialRecommender
from recbole.utils import InputType
from torch import Tensor

from recbole_prism.errors import ModelError


class CountedRecommender(SequentialRecommender):
    """A model without parameters. Counts are buffers, so that they are stored and loaded like weights."""

    input_type = InputType.POINTWISE

    def count(self, train_rows: Any) -> None:
        """Take the counts from the training split.

        Args:
            train_rows: Has `items`, `rows` and `item_counts_train`, as `recbole_prism.data.dataset.SequentialDataset`.
        """
        raise NotImplementedError

    def item_scores(self, item_seq: Tensor, item_seq_len: Tensor) -> Tensor:
        """Scores of all items after each history: item ids [B, w] and lengths [B] -> [B, V]."""
        raise NotImplementedError

    def calculate_loss(self, interaction: Interaction) -> Tensor:
        """There is none.

        Raises:
            ModelError: Always.
        """
        raise ModelError(f"{type(self).__name__} has no loss: it counts", "fit it with trainer.CountingTrainer")

    def full_sort_predict(self, interaction: Interaction) -> Tensor:
        """Scores of all items: [B, V]."""
        return self.item_scores(interaction[self.ITEM_SEQ], interaction[self.ITEM_SEQ_LEN])

    def predict(self, interaction: Interaction) -> Tensor:
        """Score of each row's `item_id`: [B]."""
        return self.full_sort_predict(interaction).gather(1, interaction[self.ITEM_ID][:, None]).squeeze(1)
