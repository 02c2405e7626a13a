"""Base of the models that see augmented views of a history."""

from __future__ import annotations

from typing import Any, Optional

from torch import Tensor

from recbole_prism.model.layers.mask_token import MaskToken
from recbole_prism.model.sequential_recommender.transformer import TransformerRecommender


class ViewRecommender(TransformerRecommender):
    """A transformer recommender that knows what a masked item is, if its batches hold views.

    Args:
        config: RecBole config with `aug_mask_token`.
        dataset: Anything with RecBole's `num(field)`.
    """

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        masks = "view_1" in self.needs(config) and config["aug_mask_token"] == "mask"
        self.mask_token: Optional[MaskToken] = (
            MaskToken(self.hidden_size, self.initializer_range) if masks else None  # created last
        )

    @classmethod
    def needs(cls, config: Any) -> frozenset[str]:
        """Extra sequences the loader must put into a training batch."""
        raise NotImplementedError

    def item_vectors(self, items: Tensor) -> Tensor:
        """Vectors of items or [mask]: [...] -> [..., d]."""
        return self.item_embedding(items) if self.mask_token is None else self.mask_token(items, self.item_embedding)

    def embed(self, items: Tensor, positions: Tensor) -> Tensor:
        """Dropout(LayerNorm(item or [mask] + position embedding)): [...] and [...] -> [..., d]."""
        return self.dropout(self.LayerNorm(self.item_vectors(items) + self.position_embedding(positions)))
