"""First-order Markov chain: what followed the history's last item in the training rows."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np
import torch
from torch import Tensor

from recbole_prism.model.sequential_recommender.counted import CountedRecommender

_PAIRS = ("followers", "times")  # buffers whose length is known after counting only


class Markov(CountedRecommender):
    """Score of item j after item i: (n_ij + p_j) / (n_i + 1).

    n_ij is the number of training rows whose history ends with i and whose target is j, n_i their sum over j, and p_j
    the share of j among all events of the training part, which decides among items that never followed i.
    """

    starts: Tensor
    followers: Tensor
    times: Tensor
    shares: Tensor

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        self.register_buffer("starts", torch.zeros(self.n_items + 1, dtype=torch.int64))  # first pair of each item i
        self.register_buffer("followers", torch.zeros(0, dtype=torch.int64))  # j of each pair
        self.register_buffer("times", torch.zeros(0))  # n_ij of each pair
        self.register_buffer("shares", torch.zeros(self.n_items))  # p_j

    def count(self, train_rows: Any) -> None:
        """See the base class."""
        rows, n_items, device = train_rows.rows, self.n_items, self.shares.device
        pairs = train_rows.items[rows.end - 1].astype(np.int64) * n_items + rows.target
        pairs, times = np.unique(pairs, return_counts=True)
        starts = np.searchsorted(pairs, np.arange(n_items + 1) * n_items)
        counts = train_rows.item_counts_train
        self.starts = torch.from_numpy(starts).to(device)
        self.followers = torch.from_numpy(pairs % n_items).to(device)
        self.times = torch.from_numpy(times.astype(np.float32)).to(device)
        self.shares = torch.from_numpy((counts / max(counts.sum(), 1)).astype(np.float32)).to(device)

    def item_scores(self, item_seq: Tensor, item_seq_len: Tensor) -> Tensor:
        """[B, V]; only the last item of each history counts."""
        last = item_seq.gather(1, item_seq_len[:, None] - 1).squeeze(1)
        first, n_pairs = self.starts[last], self.starts[last + 1] - self.starts[last]
        row = torch.repeat_interleave(n_pairs)  # of each (row, follower)
        place = torch.arange(row.shape[0], device=row.device) - (n_pairs.cumsum(0) - n_pairs)[row] + first[row]
        scores = self.shares.repeat(item_seq.shape[0], 1)
        scores[row, self.followers[place]] += self.times[place]
        n_seen = torch.zeros_like(scores[:, 0]).index_add_(0, row, self.times[place])
        return scores / (n_seen[:, None] + 1)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *arguments: Any) -> None:
        for name in _PAIRS:  # as many as were stored
            if prefix + name in state_dict:
                setattr(self, name, getattr(self, name).new_zeros(state_dict[prefix + name].shape))
        super()._load_from_state_dict(state_dict, prefix, *arguments)
