"""Semantic anchor router: which of K semantic groups an item belongs to, in its context (docs/prism.md, section 2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

VIEWS = ("both", "affinity", "contrast")


class SemanticAnchorRouter(nn.Module):
    """Noisy linear router.

    Args:
        hidden_size: d.
        n_lenses: K.
        noise: False leaves out the learned noise in training; its weights stay, unused.
    """

    def __init__(self, hidden_size: int, n_lenses: int, noise: bool = True) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden_size, n_lenses, bias=False)
        self.noise_scale = nn.Linear(hidden_size, n_lenses, bias=False)
        self.noise = noise

    def forward(self, hidden: Tensor) -> Tensor:
        """Routing logits r: [..., d] -> [..., K]; standard normal noise of learned scale is added in training."""
        routing = self.gate(hidden)
        if self.training and self.noise:
            routing = routing + torch.randn_like(routing) * functional.softplus(self.noise_scale(hidden))
        return routing


def primary_anchor(routing: Tensor) -> Tensor:
    """Primary semantic anchor a: [..., K] -> [...], the group of largest routing logit."""
    return routing.argmax(dim=-1)


def view_mask(anchor: Tensor, n_lenses: int, views: str) -> Tensor:
    """Lenses that the view ablation leaves: [..., K] bool.

    Args:
        anchor: [...] primary semantic anchor.
        n_lenses: K.
        views: `both` leaves all, `affinity` only the anchor's own lens, `contrast` only the others.

    Raises:
        ValueError: On an unknown name, or `contrast` with a single lens.
    """
    if views not in VIEWS:
        raise ValueError(f"views must be one of {VIEWS}, got {views!r}")
    if views == "contrast" and n_lenses < 2:
        raise ValueError("views 'contrast' needs at least 2 lenses")
    own = functional.one_hot(anchor, n_lenses).bool()
    if views == "both":
        return torch.ones_like(own)
    return own if views == "affinity" else ~own


def composition(routing: Tensor, kept: Tensor) -> Tensor:
    """Semantic composition ratio over the kept lenses: softmax of [..., K] with the others at -inf; sums to 1."""
    return torch.softmax(routing.masked_fill(~kept, float("-inf")), dim=-1)


def perspective_mask(routing: Tensor, allowed: Tensor, draws: Tensor, drop: float) -> Tensor:
    """Stochastic perspective masking (SPM): keep the strongest allowed lens, each other one with probability 1 - drop.

    With views `both` the strongest lens is the primary semantic anchor; where an ablation excludes that one, the next
    takes its place, so that no position is left without a lens.

    Args:
        routing: [..., K] routing logits.
        allowed: [..., K] bool, lenses of the view ablation.
        draws: Uniform numbers in [0, 1), broadcast against `routing`: per position and lens, or per sequence and lens.
        drop: rho, probability that a lens is dropped.

    Returns:
        [..., K] bool, kept lenses.
    """
    strongest = routing.masked_fill(~allowed, float("-inf")).argmax(dim=-1)
    kept = (draws >= drop) | functional.one_hot(strongest, routing.shape[-1]).bool()
    return kept & allowed
