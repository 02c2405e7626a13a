"""Centres of clusters of sequence representations: constants (ICLRec, ICSRec) or learned (ELCRec)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from recbole_prism.model.functional.kmeans import assign


class IntentCentres(nn.Module):
    """K centres, constants of the training; none until they are given.

    A representation belongs to the nearest centre as it is; losses see the centre at unit length.

    Attributes:
        raw: [K, d] centres; empty before the first E-step.
    """

    raw: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("raw", torch.empty(0), persistent=False)  # not weights: made anew from them, or resumed

    @property
    def known(self) -> bool:
        """Whether there are centres."""
        return self.raw.numel() > 0

    def nearest(self, representations: Tensor) -> Tensor:
        """Intent of each representation, without gradient: [..., d] -> [...]."""
        return assign(representations.detach(), self.raw)

    def directions(self, intents: Tensor) -> Tensor:
        """Unit vectors of intents: [...] -> [..., d]."""
        return functional.normalize(self.raw, dim=-1)[intents]


class LearnedCentres(nn.Module):
    """K centres as parameters, random unit vectors at first.

    Args:
        n_centres: K.
        hidden_size: d.
        seed: Of the random vectors; no global generator is drawn from.
    """

    _started: Tensor

    def __init__(self, n_centres: int, hidden_size: int, seed: int) -> None:
        super().__init__()
        draws = torch.randn(n_centres, hidden_size, generator=torch.Generator().manual_seed(seed))
        self.weight = nn.Parameter(functional.normalize(draws, dim=-1))
        self.register_buffer("_started", torch.zeros((), dtype=torch.bool))  # stays with the weights

    @property
    def started(self) -> bool:
        """Whether `start` has been called, in this run or in the one that the weights come from."""
        return bool(self._started)

    @torch.no_grad()
    def start(self, centres: Tensor) -> None:
        """Take the directions of centres [K', d], K' <= K; where there are fewer, the rest stay as they are."""
        self.weight[: centres.shape[0]] = functional.normalize(centres, dim=-1)
        self._started.fill_(True)

    @torch.no_grad()
    def to_unit_length(self) -> None:
        """Scale every centre back to length 1; optimizer steps leave the sphere."""
        self.weight.copy_(functional.normalize(self.weight, dim=-1))

    def nearest(self, representations: Tensor) -> Tensor:
        """Nearest centre of each representation, without gradient: [..., d] -> [...]."""
        return assign(representations.detach(), self.weight.detach())

    def forward(self, intents: Tensor) -> Tensor:
        """Centres of intents, with gradient: [...] -> [..., d]."""
        return functional.embedding(intents, self.weight)


class IntentUsage:
    """Counts, on the device, how the training rows of an epoch spread over the intents."""

    def __init__(self) -> None:
        self._counts: list[Tensor] = []

    def add(self, intents: Tensor, n_intents: int) -> None:
        """Count a batch: intents [B] out of `n_intents`."""
        counts = functional.one_hot(intents, n_intents).sum(dim=0)  # bincount would wait for a GPU
        self._counts = [self._counts[0] + counts] if self._counts else [counts]

    def read(self) -> dict[str, float]:
        """Number of intents in use and share of the largest since the last call."""
        if not self._counts:
            return {}
        counts = self._counts.pop()
        return {"intents_used": float((counts > 0).sum()), "largest_intent": float(counts.max() / counts.sum())}
