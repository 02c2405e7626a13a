"""Perspective lenses: K re-weighings of one attention map, each in favour of one semantic group of keys.

Lens k adds to the attention logits A of query i a boost b_i^k on the keys of group k only. Groups partition the keys,
so every lens is a mixture of the same K averages, each over one group (docs/prism.md, "One pass for all lenses"):

    context^k = sum_q softmax_q(level^q + [q = k] b^k) mean^q

with level^q the log-sum-exp of the logits to group q and mean^q the values averaged by the softmax within it. One
exponential map and one product with group-wise values serve all lenses; the K x K mixture acts on [q, K, .] tensors.
Every group has its own maximum, so nothing overflows and nothing is subtracted.

Shapes: B rows, H heads, q queries, T keys, K lenses = groups, D = d / H.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
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
        visible: [B, 1, q, T] bool, or 1 and 0 in the logits' type.
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


@torch.no_grad()
def _group_maxima(logits: Tensor, groups: Tensor, hide: Tensor) -> Tensor:
    """Largest visible logit per query and group, [B, H, q, K]; hugely negative without visible keys. No gradient."""
    shown = logits + hide
    others = groups.log().transpose(1, 2).contiguous()  # [B, K, T]: 0 for the group's keys, -inf elsewhere
    maxima = torch.stack([(shown + bias[:, None, None]).amax(dim=-1) for bias in others.unbind(1)], dim=-1)
    return maxima.clamp_min_(torch.finfo(logits.dtype).min / 2)  # finite, and exp of it is 0 beside any real logit


class _GroupSums(torch.autograd.Function):
    """Weighted sum of the values of each group's keys; the values spread over the groups are made anew in backward.

    weights [B, H, q, T], values [B, H, T, D], groups [B, T, K] one-hot -> [B, H, q, K, D].
    """

    @staticmethod
    def forward(ctx: Any, weights: Tensor, values: Tensor, groups: Tensor) -> Tensor:
        ctx.save_for_backward(weights, values, groups)
        return torch.matmul(weights, _spread(values, groups)).unflatten(-1, (groups.shape[-1], -1))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        weights, values, groups = ctx.saved_tensors
        flat = grad.flatten(-2)  # [B, H, q, K * D]
        to_values = torch.matmul(weights.transpose(-1, -2), flat).unflatten(-1, (groups.shape[-1], -1))
        to_values = to_values.mul_(groups[:, None, :, :, None]).sum(dim=-2)
        return torch.matmul(flat, _spread(values, groups).transpose(-1, -2)), to_values, None


def _spread(values: Tensor, groups: Tensor) -> Tensor:
    """Each key's value at the place of its group, 0 at the others: [B, H, T, D], [B, T, K] -> [B, H, T, K * D]."""
    return (groups[:, None, :, :, None] * values[:, :, :, None, :]).flatten(-2)


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

    Masks are added as 0 and -inf: on a CPU filling by a bool mask takes twenty times as long as an addition.

    Args:
        logits: [B, H, q, T] raw logits of the layer below, finite.
        values: [B, H, T, D].
        anchors: [B, T] group of each key, 0..K-1 (any of them where the key is not visible).
        visible: [B, 1, q, T] bool.
        beta: Scalar.
        n_lenses: K.
        settings: Form of the boost.
        dropout: Attention dropout; one mask is shared by the lenses.

    Returns:
        [B, H, q, K, D]; zero where a lens sees no key.
    """
    groups = functional.one_hot(anchors, n_lenses).to(logits.dtype)  # [B, T, K]
    seen = visible.to(logits.dtype)
    hide = seen.log()  # [B, 1, q, T]: 0 where visible, -inf elsewhere
    maxima = _group_maxima(logits, groups, hide)  # m: [B, H, q, K]
    own = anchors[:, None, None, :].expand(logits.shape)
    weights = (logits - maxima.gather(-1, own)).add_(hide).exp_()  # E: [B, H, q, T]
    totals = torch.matmul(weights, groups[:, None])  # D: [B, H, q, K]
    totals = totals.masked_fill(totals == 0, 1.0)
    inside = weights * totals.reciprocal().gather(-1, own)  # softmax within each group
    means = _GroupSums.apply(dropout(inside), values, groups)  # N / D: [B, H, q, K, D]
    if settings.scope == "group":
        return means
    gains = boost(boost_signal(logits, groups, seen, settings), beta, settings.form)
    return torch.matmul(_mixing_weights(maxima + totals.log(), gains), means)


def _mixing_weights(levels: Tensor, gains: Tensor) -> Tensor:
    """Weight of group q in lens k: softmax over q of level^q + [q = k] b^k, [..., K, K] (lens, group).

    Args:
        levels: [..., K] logarithm of the summed exponentials of each group's logits.
        gains: [..., K] boosts b.
    """
    # Taken along the last but one dimension: along a last one of K numbers it is twice as slow on a CPU.
    return torch.softmax(levels[..., :, None] + torch.diag_embed(gains), dim=-2).transpose(-1, -2)
