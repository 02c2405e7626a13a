"""The loss of a batch as named parts, in a form that RecBole's own trainer accepts too."""

from __future__ import annotations

from typing import Mapping

from torch import Tensor


class LossParts(tuple):  # RecBole's trainer sums a tuple and logs its parts
    """Scalar loss parts, already weighted; their sum is what is minimised.

    Attributes:
        names: Name of each part, in order. The first is the recommendation loss, "rec".
    """

    names: tuple[str, ...]

    def __new__(cls, parts: Mapping[str, Tensor]) -> "LossParts":
        loss = super().__new__(cls, tuple(parts.values()))
        loss.names = tuple(parts)
        return loss
