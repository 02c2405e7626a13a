"""LayerNorm(dropout(W x + b) + residual) that keeps little for the backward pass."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from recbole_prism.model.layers.dropout import Dropout, scaled_keep_mask


class _ProjectedNorm(torch.autograd.Function):
    """Keeps the input, one byte of dropout mask per element and LayerNorm's statistics.

    What LayerNorm read is computed anew in backward: one more small product, two tensors of the output's size less.
    """

    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        residual: Optional[Tensor],
        weight: Tensor,
        bias: Tensor,
        scale: Tensor,
        shift: Tensor,
        eps: float,
        drop: float,
    ) -> Tensor:
        projected = functional.linear(values, weight, bias)
        kept = None
        if drop > 0:
            mask = scaled_keep_mask(projected.shape, drop, projected.device, projected.dtype)
            kept, ctx.gain = mask != 0, mask.amax()
            projected *= mask
        if residual is not None:
            projected += residual
        output, mean, deviation = torch.native_layer_norm(projected, scale.shape, scale, shift, eps)
        ctx.save_for_backward(values, residual, weight, bias, scale, shift, kept, mean, deviation)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Optional[Tensor], ...]:
        values, residual, weight, bias, scale, shift, kept, mean, deviation = ctx.saved_tensors
        normed = functional.linear(values, weight, bias)
        mask = None if kept is None else kept.to(grad.dtype).mul_(ctx.gain)
        if mask is not None:
            normed *= mask
        if residual is not None:
            normed += residual
        to_normed, to_scale, to_shift = torch.ops.aten.native_layer_norm_backward(
            grad.contiguous(), normed, scale.shape, mean, deviation, scale, shift, [True, True, True]
        )
        to_residual = None if residual is None else to_normed.sum_to_size(residual.shape)
        if mask is not None:
            to_normed *= mask
        flat = to_normed.flatten(0, -2)
        to_weight = torch.mm(flat.T, values.flatten(0, -2))
        return torch.matmul(to_normed, weight), to_residual, to_weight, flat.sum(0), to_scale, to_shift, None, None


def projected_norm(
    values: Tensor, residual: Optional[Tensor], dense: nn.Linear, dropout: Dropout, norm: nn.LayerNorm
) -> Tensor:
    """`norm(dropout(dense(values)) + residual)`.

    Args:
        values: [..., d].
        residual: Broadcast against the output; None: nothing is added.
        dense: d -> d'.
        dropout: Applied in training.
        norm: LayerNorm over d'.

    Returns:
        [..., d'].
    """
    drop = dropout.rate
    if drop == 1.0 or not torch.is_grad_enabled():
        projected = dropout(dense(values))
        return norm(projected if residual is None else projected + residual)
    return _ProjectedNorm.apply(values, residual, dense.weight, dense.bias, norm.weight, norm.bias, norm.eps, drop)
