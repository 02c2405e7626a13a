"""Centres of a clustering of sequence representations: the intents of ICLRec and ICSRec."""

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
