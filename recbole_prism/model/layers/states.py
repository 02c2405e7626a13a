"""States of all positions of stacked sequences, packed or padded, behind one interface.

Notation: S sequences, N valid tokens, w width. "Tokens" are values of positions: [N, ...] packed, [S, w, ...] padded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from recbole_prism.model.layers.packed import Packed, take_distinct_rows


@dataclass(frozen=True)
class States(ABC):
    """What an encoder gives for S sequences, the branches of a batch one after the other.

    Attributes:
        tokens: Tokens of width d.
        lengths: [S].
        n_rows: B, sequences of the first branch.
        items: Item ids of the tokens.
    """

    tokens: Tensor
    lengths: Tensor
    n_rows: int
    items: Tensor

    @property
    @abstractmethod
    def positions(self) -> Tensor:
        """Position of each token, from 0."""

    @abstractmethod
    def spread(self, tokens: Tensor) -> Tensor:
        """Tokens -> [S, w, ...]; behind the lengths 0 if packed, what stands there if padded."""

    @abstractmethod
    def last(self, tokens: Tensor) -> Tensor:
        """Tokens -> [S, ...] of the last valid position of each sequence."""

    @abstractmethod
    def weights(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Softmax over each sequence's tokens of query . key: [S, d] and tokens of width d -> tokens without width."""

    @abstractmethod
    def attend(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Position t of every sequence takes the softmax over all its tokens of queries[t] . key, unscaled.

        Args:
            queries: [T, d], one for each position.
            keys: Tokens of width d.
            values: Tokens of width d.

        Returns:
            Tokens of width d.
        """


@dataclass(frozen=True)
class PackedStates(States):
    """Valid tokens only.

    Attributes:
        batch: Their layout.
    """

    batch: Packed

    @property
    def positions(self) -> Tensor:
        """[N]"""
        return self.batch.positions

    @property
    def _places(self) -> Tensor:
        return self.batch.sequences * int(self.batch.host_lengths.max()) + self.batch.positions

    def spread(self, tokens: Tensor) -> Tensor:
        """[N, ...] -> [S, w, ...], w the longest length; 0 behind the lengths."""
        n_sequences, width = len(self.batch.host_lengths), int(self.batch.host_lengths.max())
        block = tokens.new_zeros((n_sequences * width,) + tokens.shape[1:]).index_copy(0, self._places, tokens)
        return block.view((n_sequences, width) + tokens.shape[1:])

    def last(self, tokens: Tensor) -> Tensor:
        """[N, ...] -> [S, ...]."""
        return take_distinct_rows(tokens, self.batch.starts + self.batch.lengths - 1)

    def weights(self, queries: Tensor, keys: Tensor) -> Tensor:
        """[S, d], [N, d] -> [N]."""
        scores = torch.matmul(self.spread(keys), queries[..., None]).squeeze(-1)  # [S, w]
        padded = torch.arange(scores.shape[1], device=scores.device) >= self.lengths[:, None]
        weights = torch.softmax(scores.masked_fill(padded, float("-inf")), dim=-1)
        return take_distinct_rows(weights.flatten(), self._places)

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """[T, d], [N, d], [N, d] -> [N, d]."""
        found = []
        both = torch.cat([keys, values], dim=-1)
        ones = torch.ones_like(self.batch.positions, dtype=torch.bool)
        for group, tokens, inside in zip(self.batch.groups, self.batch.split(both), self.batch.split(ones)):
            key, value = group.pad(tokens).chunk(2, dim=-1)  # [b, w, d]
            scores = torch.matmul(queries[: group.width], key.transpose(1, 2))  # [b, w, w]
            weights = torch.softmax(scores.masked_fill(~group.pad(inside)[:, None], float("-inf")), dim=-1)
            found.append(group.unpad(torch.matmul(weights, value)))
        return torch.cat(found)


@dataclass(frozen=True)
class PaddedStates(States):
    """All positions of a padded batch.

    Attributes:
        masks_padding: Softmaxes leave padding out.
    """

    masks_padding: bool = True

    @property
    def positions(self) -> Tensor:
        """[S, w]"""
        return torch.arange(self.tokens.shape[1], device=self.lengths.device).expand(self.tokens.shape[:2])

    def _masked(self, scores: Tensor, padded: Tensor) -> Tensor:
        return scores.masked_fill(padded, float("-inf")) if self.masks_padding else scores

    def spread(self, tokens: Tensor) -> Tensor:
        """Nothing to do: [S, w, ...]."""
        return tokens

    def last(self, tokens: Tensor) -> Tensor:
        """[S, w, ...] -> [S, ...]."""
        return tokens[torch.arange(tokens.shape[0], device=tokens.device), self.lengths - 1]

    def weights(self, queries: Tensor, keys: Tensor) -> Tensor:
        """[S, d], [S, w, d] -> [S, w]."""
        scores = torch.matmul(keys, queries[..., None]).squeeze(-1)
        return torch.softmax(self._masked(scores, self.positions >= self.lengths[:, None]), dim=-1)

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """[T, d], [S, w, d], [S, w, d] -> [S, w, d]."""
        scores = torch.matmul(queries[: keys.shape[1]], keys.transpose(1, 2))  # [S, w, w]
        padded = (self.positions >= self.lengths[:, None])[:, None]
        return torch.matmul(torch.softmax(self._masked(scores, padded), dim=-1), values)
