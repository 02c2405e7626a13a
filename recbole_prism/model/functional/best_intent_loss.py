"""Cross-entropy of scores that are maxima over several vectors per row, without holding the scores as a whole."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_CHUNK_SCORES = 2_400_000  # scores handled at a time
_MIN_ROWS = 16


class _BestIntentLoss(torch.autograd.Function):
    """Mean loss and, chunk by chunk while the scores are at hand, its gradients; backward only scales them."""

    @staticmethod
    def forward(ctx: Any, intents: Tensor, items: Tensor, targets: Tensor) -> Tensor:
        (n_rows, n_intents, _), n_items = intents.shape, items.shape[0]
        chunk = max(_MIN_ROWS, _CHUNK_SCORES // (n_intents * n_items))
        want_gradients = any(ctx.needs_input_grad)
        grad_intents, grad_items = torch.empty_like(intents), torch.zeros_like(items)
        loss = intents.new_zeros(())
        for start in range(0, n_rows, chunk):
            rows, target = intents[start : start + chunk].flatten(0, 1), targets[start : start + chunk, None]
            scores = torch.mm(rows, items.T).view(-1, n_intents, n_items)
            best, winner = scores.max(dim=1)
            best -= best.amax(dim=1, keepdim=True)
            loss -= best.gather(1, target).sum()
            total = best.exp_().sum(dim=1, keepdim=True)
            loss += total.log().sum()
            if not want_gradients:
                continue
            best /= total * n_rows
            best.scatter_add_(1, target, best.new_full(target.shape, -1.0 / n_rows))
            grad_scores = scores.zero_().scatter_(1, winner[:, None], best[:, None]).flatten(0, 1)
            torch.mm(grad_scores, items, out=grad_intents[start : start + chunk].view(rows.shape))
            grad_items.addmm_(grad_scores.T, rows)
        ctx.save_for_backward(grad_intents, grad_items)
        return loss / n_rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Optional[Tensor], ...]:
        grad_intents, grad_items = ctx.saved_tensors
        return grad_intents * grad_loss, grad_items * grad_loss, None


def best_intent_loss(intents: Tensor, items: Tensor, targets: Tensor) -> Tensor:
    """Mean over rows of -log softmax_v(max_k r_bk . e_v)[target]; of equal intents the first gets the gradient.

    Args:
        intents: [B, K, d].
        items: [V, d] item table.
        targets: [B] item ids.

    Returns:
        Scalar.
    """
    loss: Tensor = _BestIntentLoss.apply(intents.contiguous(), items, targets)
    return loss
