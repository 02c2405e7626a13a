"""Perspective lenses: K re-weighings of one attention map, each in favour of one semantic group of keys.

Lens k adds to the attention logits A of query i a boost b_i^k on the keys of group k only. Groups partition the keys,
so the softmax of every lens follows from sums per group (docs/prism.md, "One pass for all lenses"): one exponential map
and one product with group-wise values serve all lenses, and the K x K combination acts on [q, K, .] tensors. Every
group has its own maximum, so nothing overflows and nothing is subtracted.

Shapes: B rows, H heads, q queries, T keys, K lenses = groups, D = d / H.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

import torch
from torch import Tensor
from torch.nn import functional

BOOST_FORMS = ("scaled", "exponential", "exponential_group", "none")
BOOST_NORMS = ("visible", "group", "max_length")
LENS_SCOPES = ("all", "group")


@dataclass(frozen=True)
class BoostSettings:
    """How the relational boost signal is formed.

    Attributes:
        form: `scaled`: exp(beta) S on the group's keys. `exponential`: exp(beta S) there and 1 elsewhere.
            `exponential_group`: exp(beta S) there, 0 elsewhere. `none`: no boost.
        norm: What the sum of group logits is divided by: number of `visible` keys, of the `group`'s visible keys, or
            `max_length`.
        center: Subtract the mean logit of the query's visible keys first.
        scope: `all`: every visible key takes part in every lens. `group`: only the lens's group does.
        max_length: T of the configuration, for norm `max_length`.
    """

    form: str = "scaled"
    norm: str = "visible"
    center: bool = False
    scope: str = "all"
    max_length: int = 50

    def __post_init__(self) -> None:
        for value, known in ((self.form, BOOST_FORMS), (self.norm, BOOST_NORMS), (self.scope, LENS_SCOPES)):
            if value not in known:
                raise ValueError(f"{value!r} is not one of {known}")


def boost_signal(logits: Tensor, groups: Tensor, visible: Tensor, settings: BoostSettings) -> Tensor:
    """Relational boost signal S_i^k: mean raw logit from query i to the keys of group k.

    Args:
        logits: [B, H, q, T] raw attention logits.
        groups: [B, T, K] float, one-hot group of each key.
        visible: [B, 1, q, T] bool.
        settings: Norm and centring.

    Returns:
        [B, H, q, K]; 0 for an empty group.
    """
    seen = visible.to(logits.dtype)
    n_seen = seen.sum(dim=-1, keepdim=True).clamp_min(1.0)  # [B, 1, q, 1]
    shown = logits * seen
    if settings.center:
        shown = (shown - shown.sum(dim=-1, keepdim=True) / n_seen) * seen
    total = torch.matmul(shown, groups[:, None])
    if settings.norm == "visible":
        return total / n_seen
    if settings.norm == "max_length":
        return total / settings.max_length
    return total / torch.matmul(seen, groups[:, None]).clamp_min(1.0)


def boost(signal: Tensor, beta: Tensor, form: str) -> Tensor:
    """Logit gain b_i^k of the keys of group k relative to all other keys under lens k: [B, H, q, K]."""
    if form == "scaled":
        return torch.exp(beta) * signal
    if form == "exponential":
        return torch.exp(beta * signal) - 1.0
    if form == "exponential_group":
        return torch.exp(beta * signal)
    return torch.zeros_like(signal)


def _group_maxima(logits: Tensor, anchors: Tensor, visible: Tensor, n_lenses: int) -> Tensor:
    """Largest visible logit per query and group, [B, H, q, K]; -inf for a group without visible keys. No gradient."""
    shown = logits.detach().masked_fill(~visible, float("-inf"))
    maxima = [shown.masked_fill((anchors != k)[:, None, None, :], float("-inf")).amax(dim=-1) for k in range(n_lenses)]
    return torch.stack(maxima, dim=-1)


def lens_contexts(
    logits: Tensor,
    values: Tensor,
    anchors: Tensor,
    visible: Tensor,
    beta: Tensor,
    n_lenses: int,
    settings: BoostSettings,
    dropout: Callable[[Tensor], Tensor],
) -> Tensor:
    """Attention contexts of all lenses, P^k V for k = 1..K.

    Args:
        logits: [B, H, q, T] raw logits of the layer below.
        values: [B, H, T, D].
        anchors: [B, T] group of each key, 0..K-1 (any value where the key is not visible).
        visible: [B, 1, q, T] bool.
        beta: Scalar.
        n_lenses: K.
        settings: Form of the boost.
        dropout: Attention dropout; one mask is shared by the lenses.

    Returns:
        [B, H, q, K, D]; zero where a lens sees no key.
    """
    groups = functional.one_hot(anchors, n_lenses).to(logits.dtype)  # [B, T, K]
    maxima = _group_maxima(logits, anchors, visible, n_lenses)  # m: [B, H, q, K]
    own_maxima = maxima.gather(-1, anchors[:, None, None, :].expand(logits.shape))
    weights = (logits - own_maxima).masked_fill(~visible, float("-inf")).exp()  # E: [B, H, q, T]
    totals = torch.matmul(weights, groups[:, None])  # D: [B, H, q, K]
    grouped = (groups[:, None, :, :, None] * values[:, :, :, None, :]).flatten(-2)  # [B, H, T, K * D]
    sums = torch.matmul(dropout(weights), grouped).unflatten(-1, (n_lenses, -1))  # N: [B, H, q, K, D]
    if settings.scope == "group":
        return sums / totals.masked_fill(totals == 0, 1.0)[..., None]
    gains = boost(boost_signal(logits, groups, visible, settings), beta, settings.form)
    mixing = _mixing_weights(maxima, gains)  # w: [B, H, q, K, K]
    norm = (mixing * totals[..., None, :]).sum(dim=-1)
    return torch.matmul(mixing, sums) / norm.masked_fill(norm == 0, 1.0)[..., None]


def _mixing_weights(maxima: Tensor, gains: Tensor) -> Tensor:
    """Weight of group q in lens k, exp(m^q + [q = k] b^k - max), [..., K, K] (lens, group); 0 for an empty group."""
    levels = maxima[..., None, :] + torch.diag_embed(gains)
    top = levels.detach().amax(dim=-1, keepdim=True)
    return (levels - top.masked_fill(top == float("-inf"), 0.0)).exp()
