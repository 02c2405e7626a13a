"""Bidirectional form of the transformer recommenders: RecBole's BERT4Rec with this package's encoder in it.

Sun et al., "BERT4Rec: Sequential Recommendation with Bidirectional Encoder Representations from Transformer", CIKM
2019.
"""

from __future__ import annotations

from typing import Any, Optional

import numpy as np
import torch
from recbole.data.interaction import Interaction
from torch import Tensor, nn

from recbole_prism.errors import ConfigError
from recbole_prism.model.functional.cloze import CLOZE, CLOZE_LABELS, append_item
from recbole_prism.model.functional.host_copy import host_copy, keep_host_copy, on_device
from recbole_prism.model.layers.packed import pack
from recbole_prism.model.sequential_recommender.transformer import Branch, TransformerRecommender, branch_of

Places = tuple[Tensor, Tensor]  # row [M] and position [M] of some positions of a batch


class BidirectionalRecommender(TransformerRecommender):
    """A transformer recommender that may also be bidirectional, trained on the cloze task.

    The bidirectional form has the parameters of RecBole's BERT4Rec under their names: a vector for the mask token
    behind the item table, and an output head (linear, gelu, LayerNorm) with a bias per item. A history is scored at a
    mask put behind it. The key `cloze` chooses the rules:

    * `repaired`: the history's oldest item makes room for the mask only where the history is full; in training history
      and target are masked together, by row, and every mask counts.
    * `recbole`: the oldest item always makes room; the target is never seen in training, position 0 and all but the
      last int(mask_ratio * T) masks of a row do not count, and one draw per batch decides whether only last items are
      masked.

    Args:
        config: RecBole config with `cloze`, and what the loader needs for it: `mask_ratio`, `ft_ratio`.
        dataset: Anything with RecBole's `num(field)`.
        bidirectional: False leaves the causal model, bit by bit.

    Raises:
        ConfigError: `cloze: recbole` with a `mask_ratio` under which no mask would count.
    """

    def __init__(self, config: Any, dataset: Any, bidirectional: bool = True) -> None:
        super().__init__(config, dataset)
        self.causal = not bidirectional
        if not bidirectional:
            return
        self.mask_token: int = self.n_items
        self.cloze_style: str = config["cloze"]
        if self.cloze_style == "recbole" and int(config["mask_ratio"] * self.max_seq_length) == 0:
            raise ConfigError(
                f"mask_ratio {config['mask_ratio']} of MAX_ITEM_LIST_LENGTH {self.max_seq_length} is less than one "
                "item: by RecBole's rules no masked item would count",
                "raise one of them, or use cloze: repaired",
            )
        self.item_embedding = nn.Embedding(self.n_items + 1, self.hidden_size, padding_idx=0)
        self.output_ffn = nn.Linear(self.hidden_size, self.hidden_size)
        self.output_gelu = nn.GELU()
        self.output_ln = nn.LayerNorm(self.hidden_size, eps=self.layer_norm_eps)
        self.output_bias = nn.Parameter(torch.zeros(self.n_items))
        for module in (self.item_embedding, self.output_ffn, self.output_ln):
            module.apply(self._init_weights)

    def query(self, item_seq: Tensor, item_seq_len: Tensor) -> Branch:
        """The sequence whose last position predicts what follows a history: with a mask behind it, if bidirectional."""
        if self.causal:
            return item_seq, item_seq_len
        return append_item(item_seq, item_seq_len, self.mask_token, self.max_seq_length, self.cloze_style)

    def head(self, hidden: Tensor) -> Tensor:
        """Hidden states of the last layer [..., d] -> representations [..., d]."""
        if self.causal:
            return hidden
        representation: Tensor = self.output_ln(self.output_gelu(self.output_ffn(hidden)))
        return representation

    def output_table(self) -> tuple[Tensor, Optional[Tensor]]:
        """See the base class; the mask token is no item."""
        if self.causal:
            return super().output_table()
        return self.item_embedding.weight[: self.n_items], self.output_bias

    def forward(self, item_seq: Tensor, item_seq_len: Tensor) -> Tensor:
        """Sequence representation: item ids [B, w] and lengths [B] -> [B, d]."""
        return self.head(self.encode([self.query(item_seq, item_seq_len)])[0])

    def masked_states(self, item_seq: Tensor, item_seq_len: Tensor, places: Places) -> Tensor:
        """Hidden states of the last layer at some positions.

        Args:
            item_seq: [B, w] item ids.
            item_seq_len: [B] lengths.
            places: Row [M] and position [M] of each.

        Returns:
            [M, d].
        """
        if not self.fast_path:
            return self.encode_padded(item_seq, item_seq_len)[0][places]
        batch = pack([(item_seq, item_seq_len)], causal=self.causal)
        tokens = batch.starts[places[0]] + places[1]
        return self.trm_encoder.packed_at(self.embed(batch.items, batch.positions), batch, tokens)

    def cloze_task(self, interaction: Interaction) -> tuple[Branch, Places, Tensor]:
        """Masked sequences of a batch, row [M] and position [M] of the masks that count, and the items behind them [M].

        Raises:
            ConfigError: If the loader did not supply them.
        """
        branch = branch_of(interaction, self.ITEM_SEQ, self.ITEM_SEQ_LEN, CLOZE)
        labels = interaction[CLOZE_LABELS]
        on_host = host_copy(labels)
        places = np.argwhere(on_host).T  # torch.nonzero would wait for a GPU
        rows, positions = on_device(places, labels.device)
        return branch, (rows, positions), keep_host_copy(labels[rows, positions], on_host[places[0], places[1]])

    def prediction_loss(self, states: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy over M predictions, 0 without any: [M, d], [M] -> scalar."""
        output = self.head(states)
        return self.recommendation_loss(output, targets) if targets.shape[0] else output.sum()
