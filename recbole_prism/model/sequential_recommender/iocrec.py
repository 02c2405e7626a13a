"""IOCRec: several intents of one history at once, scored by the best of them and contrasted one by one.

Li et al., "Multi-Intention Oriented Contrastive Learning for Sequential Recommendation", WSDM 2023. There is no
official code; the equations are those of the public implementation that later papers compare with.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from recbole.data.interaction import Interaction
from torch import Tensor
from torch.nn import functional

from recbole_prism.errors import ConfigError
from recbole_prism.model.functional.best_intent_loss import best_intent_loss
from recbole_prism.model.functional.info_nce import info_nce
from recbole_prism.model.functional.loss_parts import LossParts
from recbole_prism.model.functional.pooling import pool
from recbole_prism.model.functional.sequence_gram import sequence_info_nce
from recbole_prism.model.layers.disentangle import Disentangler, GlobalAttention
from recbole_prism.model.layers.states import PackedStates, PaddedStates, States
from recbole_prism.model.sequential_recommender.transformer import Branch, branch_of
from recbole_prism.model.sequential_recommender.views import ViewRecommender


class IOCRec(ViewRecommender):
    """L = L_rec + cl_weight * L_cl with K intents R[b, k, t] for each row and position.

    A causal transformer and an attention with learned queries over the item vectors are each split into intents by the
    same module; the intents of a row are the sums of both. An item's score is the largest over the intents at the last
    position. L_cl contrasts the intents of two views of a row position by position: those of other rows and the other
    intents of the same row are negatives.

    Args:
        config: RecBole config with the keys of properties/model/IOCRec.yaml.
        dataset: Anything with RecBole's `num(field)`.

    Raises:
        ConfigError: If intents are to look at padding on the fast path, which has none.
    """

    def __init__(self, config: Any, dataset: Any) -> None:
        if config["fast_path"] and not config["mask_padding"]:
            raise ConfigError(
                "mask_padding: False looks at padding, which the fast path leaves out",
                "set fast_path: False, or mask_padding: True",
            )
        super().__init__(config, dataset)
        self.masks_padding = bool(config["mask_padding"])
        self.cl_weight = float(config["cl_weight"])
        self.temperature, self.similarity = float(config["cl_temperature"]), str(config["cl_similarity"])
        self.info_nce = partial(info_nce, temperature=self.temperature, similarity=self.similarity)
        self.sums = config["intent_agg"] == "sum"
        self.global_attention = GlobalAttention(
            self.max_seq_length, self.hidden_size, self.hidden_dropout_prob, self.initializer_range
        )
        self.disentangler = Disentangler(
            n_intents=config["n_intents"],
            max_length=self.max_seq_length,
            hidden_size=self.hidden_size,
            initializer_range=self.initializer_range,
            eps=float(config["intent_norm_eps"]),
            sums=self.sums,
        )

    @classmethod
    def needs(cls, config: Any) -> frozenset[str]:
        """Extra sequences the loader must put into a training batch."""
        return frozenset({"view_1", "view_2"}) if float(config["cl_weight"]) > 0 else frozenset()

    def forward(self, item_seq: Tensor, item_seq_len: Tensor) -> Tensor:
        """Intents of histories at their last position: item ids [B, w] and lengths [B] -> [B, K, d]."""
        return self._intents(self._encoded([(item_seq, item_seq_len)]), last_only=True)

    def _encoded(self, branches: list[Branch]) -> States:
        """States of the local branch."""
        states = self.encode_states(branches)
        return replace(states, masks_padding=self.masks_padding) if isinstance(states, PaddedStates) else states

    def _intents(self, states: States, *, last_only: bool) -> Tensor:
        """R, the sum over the local and the global branch; see `Disentangler` for its shape."""
        across = self.global_attention(states, self.item_vectors(states.items))
        local_intents = self.disentangler(states, states.tokens, last_only=last_only)
        intents: Tensor = local_intents + self.disentangler(states, across, last_only=last_only)
        return intents

    def item_scores(self, output: Tensor) -> Tensor:
        """Scores of all items, padding column included, by the best intent: [B, K, d] -> [B, V]."""
        items, _ = self.output_table()
        scores = torch.matmul(output[:, 0], items.T)
        for intent in output.unbind(dim=1)[1:]:  # one table of scores at a time, not K
            scores = torch.maximum(scores, torch.matmul(intent, items.T))
        return scores

    def predict(self, interaction: Interaction) -> Tensor:
        """Score of one item per row. [B]"""
        output = self.forward(interaction[self.ITEM_SEQ], interaction[self.ITEM_SEQ_LEN])
        candidates = self.item_embedding(interaction[self.ITEM_ID])
        return torch.matmul(output, candidates[..., None]).squeeze(-1).amax(dim=1)

    def recommendation_loss(self, output: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy over all items: [B, K, d], [B] -> scalar."""
        if self.fast_path:
            return best_intent_loss(output, self.item_embedding.weight, targets)
        return functional.cross_entropy(self.item_scores(output), targets)

    def calculate_loss(self, interaction: Interaction) -> LossParts:
        """Recommendation loss, and the weighted contrast ("cl") unless its weight is 0."""
        if self.cl_weight == 0:
            return super().calculate_loss(interaction)
        names = (None, "view_1", "view_2")
        states = self._encoded([branch_of(interaction, self.ITEM_SEQ, self.ITEM_SEQ_LEN, name) for name in names])
        intents = self._intents(states, last_only=False)
        output = (intents if self.sums else states.last(intents))[: states.n_rows]
        rec = self.recommendation_loss(output, interaction[self.POS_ITEM_ID])
        return LossParts({"rec": rec, "cl": self.cl_weight * self._contrast(states, intents)})

    def _contrast(self, states: States, intents: Tensor) -> Tensor:
        """InfoNCE of the views' intents, each intent of each row a sample of its own."""
        n_rows = states.n_rows
        if self.sums:
            views = intents[n_rows:].flatten(0, 1)  # [2B * K, d]
            return self.info_nce(*views.chunk(2))
        blocks = states.spread(intents)[n_rows:].transpose(1, 2)  # [2B, K, w, d]
        n_intents, blocks = blocks.shape[1], blocks.flatten(0, 1)
        if isinstance(states, PackedStates):
            host_lengths = states.batch.host_lengths[n_rows:].repeat(n_intents)
            return sequence_info_nce(blocks, host_lengths, self.temperature, self.similarity)
        lengths = states.lengths[n_rows:].repeat_interleave(n_intents)
        views = pool(blocks, lengths, "concat_valid" if self.masks_padding else "concat_all")
        return self.info_nce(*views.chunk(2))
