"""GRU4Rec: a GRU over the history.

Tan et al., "Improved Recurrent Neural Networks for Session-based Recommendations", DLRS 2016, as RecBole builds it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from recbole.model.sequential_recommender.gru4rec import GRU4Rec as RecBoleGRU4Rec
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from recbole_prism.model.functional.host_copy import host_copy, on_device
from recbole_prism.model.layers.dropout import Dropout
from recbole_prism.model.sequential_recommender.common import check_loss_type, fast_path_of
from recbole_prism.model.sequential_recommender.item_scores import ItemScores


class GRU4Rec(ItemScores, RecBoleGRU4Rec):
    """RecBole's parameters, names and initial values; padding and what is read nowhere are left out.

    The GRU runs over valid items only and the output projection over each history's last state, which is all that
    RecBole reads. `fast_path: False` computes every position of the padded batch.

    Args:
        config: RecBole config with the keys of properties/model/GRU4Rec.yaml.
        dataset: Anything with RecBole's `num(field)`.

    Raises:
        ConfigError: For a loss other than full-softmax cross-entropy, or a fast path without the property it needs.
    """

    def __init__(self, config: Any, dataset: Any) -> None:
        check_loss_type(config, type(self).__name__, stock="GRU4Rec")
        super().__init__(config, dataset)
        self.fast_path = fast_path_of(config, type(self).__name__)
        self.emb_dropout = Dropout(self.dropout_prob)

    def encode_padded(self, item_seq: Tensor, item_seq_len: Tensor) -> tuple[Tensor, None]:
        """States of every position, [B, w, d]; a GRU has no attention logits."""
        states, _ = self.gru_layers(self.emb_dropout(self.item_embedding(item_seq)))
        return self.dense(states), None

    def encode_packed(self, item_seq: Tensor, item_seq_len: Tensor) -> Tensor:
        """State at the last item of each history, [B, d], from valid items only."""
        on_host = host_copy(item_seq_len)
        order = np.argsort(-on_host, kind="stable")  # the longest history first
        goes_on = np.arange(on_host.max())[:, None] < on_host[order]  # [longest, B]
        steps, places = np.nonzero(goes_on)  # step by step, the histories that still go on
        device = item_seq.device
        items = item_seq.reshape(-1).index_select(0, on_device(order[places] * item_seq.shape[1] + steps, device))
        values = self.emb_dropout(self.item_embedding(items))
        _, last = self.gru_layers(PackedSequence(values, torch.from_numpy(goes_on.sum(axis=1))))
        return self.dense(last[-1].index_select(0, on_device(np.argsort(order), device)))

    def forward(self, item_seq: Tensor, item_seq_len: Tensor) -> Tensor:
        """Sequence representation, as RecBole: item ids [B, w] and lengths [B] -> [B, d]."""
        if self.fast_path:
            return self.encode_packed(item_seq, item_seq_len)
        return self.gather_indexes(self.encode_padded(item_seq, item_seq_len)[0], item_seq_len - 1)
