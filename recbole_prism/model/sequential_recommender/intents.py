"""Base of the intent models: states of all positions, and representations of the training rows for an E-step."""

from __future__ import annotations

from functools import partial
from typing import Any, Iterator, Optional

import numpy as np
import torch
from torch import Tensor

from recbole_prism.errors import ConfigError
from recbole_prism.model.functional.info_nce import info_nce
from recbole_prism.model.functional.kmeans import KMeans
from recbole_prism.model.functional.pooling import looks_at_padding, pool
from recbole_prism.model.functional.random_hash import hash_seed
from recbole_prism.model.layers.intents import IntentUsage
from recbole_prism.model.sequential_recommender.transformer import TransformerRecommender

STREAM_KMEANS = 101  # of random_hash, apart from the loader's streams
_CHUNK = 1024  # sequences encoded at a time in an E-step


class IntentRecommender(TransformerRecommender):
    """A transformer recommender that clusters representations of its training rows.

    Args:
        config: RecBole config with `cl_temperature`, `cl_similarity`, `n_intents` and the `kmeans_*` keys.
        dataset: Anything with RecBole's `num(field)`.

    Raises:
        ConfigError: With a pooling that looks at padding on the fast path, which has none.
    """

    def __init__(self, config: Any, dataset: Any) -> None:
        for key in ("intent_pooling", "seqcl_pooling"):
            if key in config and looks_at_padding(config[key]) and config["fast_path"]:
                raise ConfigError(
                    f"{key}: {config[key]} looks at padding, which the fast path leaves out",
                    f"set fast_path: False, or {key}: {config[key].replace('_all', '_valid')}",
                )
        super().__init__(config, dataset)
        self.seed = int(config["seed"])
        self.temperature, self.similarity = float(config["cl_temperature"]), str(config["cl_similarity"])
        self.info_nce = partial(info_nce, temperature=self.temperature, similarity=self.similarity)
        self.kmeans = KMeans(
            n_clusters=config["n_intents"],
            n_iterations=config["kmeans_iters"],
            n_restarts=config["kmeans_restarts"],
            backend=config["kmeans_backend"],
        )
        self.cl_filter_same = bool(config["cl_filter_same"])
        self.usage = IntentUsage()

    def epoch_scalars(self) -> dict[str, float]:
        """Intents in use and share of the largest among the epoch's rows."""
        return self.usage.read()

    # ---- clustering

    def cluster_rows(
        self, train_rows: Any, epoch: int, rows: str, pooling: str, init: Optional[Tensor] = None
    ) -> Tensor:
        """k-means over representations of training rows.

        Args:
            train_rows: The training part, see `represent_rows`.
            epoch: Which the random starts belong to.
            rows: `all`, or `user_last`: the row of each user with the latest target.
            pooling: Of the representations.
            init: [K, d] centres to go on from.

        Returns:
            [K, d] centres.
        """
        points = self.represent_rows(train_rows, estep_index(train_rows.rows, rows), pooling)
        return self.kmeans.fit(points, hash_seed(self.seed, epoch, STREAM_KMEANS), init)

    @torch.no_grad()
    def represent_rows(self, train_rows: Any, index: np.ndarray, pooling: str) -> Tensor:
        """Representations of training rows in evaluation mode.

        Args:
            train_rows: The training part: `rows` with `start` and `end` of each row's window, `windows(index, width)`.
            index: Row numbers. [n]
            pooling: `last`, `mean_valid` or `mean_all`.

        Returns:
            [n, d], on the model's device.
        """
        was_training = self.training
        self.eval()
        try:
            represent = self._represent_prefixes if self.fast_path else self._represent_padded
            return represent(train_rows, index, pooling)
        finally:
            self.train(was_training)

    def _represent_prefixes(self, train_rows: Any, index: np.ndarray, pooling: str) -> Tensor:
        """Of all windows with one beginning the longest is encoded: the model is causal, the others are its prefixes.

        A user's rows begin at the same event until they are longer than MAX_ITEM_LIST_LENGTH.
        """
        device = self.item_embedding.weight.device
        found = torch.empty(len(index), self.hidden_size, device=device)
        for sequences, members, sequence_of_member, length_of_member in _prefix_chunks(train_rows.rows, index):
            items, lengths = (tensor.to(device) for tensor in train_rows.windows(sequences))
            encoded = self.encode_states([(items, lengths)])
            states = encoded.spread(encoded.tokens)
            if pooling == "mean_valid":
                states = states.cumsum(dim=1) / torch.arange(1, states.shape[1] + 1, device=device)[:, None]
            places = torch.from_numpy(sequence_of_member).to(device), torch.from_numpy(length_of_member - 1).to(device)
            found[torch.from_numpy(members).to(device)] = states[places]
        return found

    def _represent_padded(self, train_rows: Any, index: np.ndarray, pooling: str) -> Tensor:
        """The same plainly, row by row."""
        width = self.max_seq_length if looks_at_padding(pooling) else None
        device, found = self.item_embedding.weight.device, []
        for start in range(0, len(index), _CHUNK):
            items, lengths = (tensor.to(device) for tensor in train_rows.windows(index[start : start + _CHUNK], width))
            found.append(pool(self.encode_padded(items, lengths)[0], lengths, pooling))
        return torch.cat(found)


def estep_index(rows: Any, kind: str) -> np.ndarray:
    """Rows of an E-step: `all`, or `user_last`: the one of each user with the latest target.

    Args:
        rows: `user` and `end` of each row.
        kind: `all` or `user_last`.

    Returns:
        Row numbers, ascending for `all`, by user otherwise.
    """
    if kind == "all":
        return np.arange(len(rows.user))
    order = np.lexsort((rows.end, rows.user))
    return order[np.append(rows.user[order][1:] != rows.user[order][:-1], True)]


def _prefix_chunks(rows: Any, index: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Cut rows into chunks of sequences to encode, sequences of similar length together.

    Args:
        rows: `start` and `end` of each row's window.
        index: Row numbers. [n]

    Yields:
        Row numbers [G] of the longest window from each of G starts; places in `index` [m] of all rows that begin there;
        for each of these the number of its sequence in the chunk and its length.
    """
    starts, lengths = rows.start[index], rows.end[index] - rows.start[index]
    _, group = np.unique(starts, return_inverse=True)
    by_group = np.lexsort((lengths, group))
    longest = by_group[np.append(np.diff(group[by_group]) != 0, True)]  # the last of each group, in order of groups
    order = np.argsort(lengths[longest], kind="stable")  # groups by length
    rank = np.argsort(order, kind="stable")[group]  # of each row's group
    members = np.argsort(rank, kind="stable")
    for first in range(0, len(order), _CHUNK):
        low, high = np.searchsorted(rank[members], [first, first + _CHUNK])
        chosen = members[low:high]
        yield index[longest[order[first : first + _CHUNK]]], chosen, rank[chosen] - first, lengths[chosen]
