"""Full-softmax cross-entropy of `hidden @ items.T + bias` that never holds the [B, V] logits as a whole, nor twice."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# Rows handled at a time: as many as have about so many logits (2.4 MB in fp32, near the cache), in steps of 16, but at
# least 48: fewer would turn the products into vector ones. A tenth faster on a CPU than all rows at once.
_CHUNK_LOGITS = 600_000
_MIN_ROWS = 48


class _LinearCrossEntropy(torch.autograd.Function):
    """Mean loss and, chunk by chunk while the logits are at hand, its gradients; backward only scales them."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, items: Tensor, targets: Tensor, bias: Optional[Tensor]) -> Tensor:
        want_hidden, want_items, _, want_bias = ctx.needs_input_grad
        n_rows = hidden.shape[0]
        chunk = max(_MIN_ROWS, _CHUNK_LOGITS // items.shape[0] // 16 * 16)
        buffer = hidden.new_empty(min(chunk, n_rows), items.shape[0])
        grad_hidden = torch.empty_like(hidden) if want_hidden else None
        grad_items = torch.zeros_like(items) if want_items else None
        grad_bias = torch.zeros_like(bias) if want_bias and bias is not None else None
        loss = hidden.new_zeros(())
        for start in range(0, n_rows, chunk):
            rows, target = hidden[start : start + chunk], targets[start : start + chunk, None]
            logits = torch.mm(rows, items.T, out=buffer[: rows.shape[0]])
            if bias is not None:
                logits += bias
            logits -= logits.amax(dim=1, keepdim=True)
            loss -= logits.gather(1, target).sum()
            total = logits.exp_().sum(dim=1, keepdim=True)
            loss += total.log().sum()
            if not (want_hidden or want_items or want_bias):
                continue
            logits /= total * n_rows
            logits.scatter_add_(1, target, logits.new_full(target.shape, -1.0 / n_rows))
            if grad_hidden is not None:
                torch.mm(logits, items, out=grad_hidden[start : start + chunk])
            if grad_items is not None:
                grad_items.addmm_(logits.T, rows)
            if grad_bias is not None:
                grad_bias += logits.sum(dim=0)
        ctx.save_for_backward(grad_hidden, grad_items, grad_bias)
        return loss / n_rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Optional[Tensor], ...]:
        hidden, items, bias = (None if grad is None else grad * grad_loss for grad in ctx.saved_tensors)
        return hidden, items, None, bias


def linear_cross_entropy(hidden: Tensor, items: Tensor, targets: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    """Mean over rows of -log softmax(hidden @ items.T + bias)[target]; exact, equal to the two-step form.

    Args:
        hidden: [B, d] sequence representations.
        items: [V, d] item table.
        targets: [B] item ids.
        bias: [V] of the items; None: 0.

    Returns:
        Scalar.
    """
    return _LinearCrossEntropy.apply(hidden.contiguous(), items, targets, bias)
