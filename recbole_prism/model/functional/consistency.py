"""Collaborative consistency of the lenses in item space (PRISM, section 4), without keeping a [N, K, B] tensor."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# Scores handled at a time: a chunk of [n, K, B] floats stays in a core's cache.
_CHUNK_SCORES = 1 << 19


class _Consistency(torch.autograd.Function):
    """Loss and, in the same pass over the scores, its gradients; the backward pass only scales them."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, items: Tensor, pair_weights: Tensor) -> Tensor:
        wanted = ctx.needs_input_grad
        n_rows = max(1, _CHUNK_SCORES // (outputs.shape[1] * items.shape[0]))
        loss = outputs.new_zeros(())
        grads = [torch.zeros_like(t) if want else None for t, want in zip((outputs, items, pair_weights), wanted)]
        for start in range(0, outputs.shape[0], n_rows):
            _add_chunk(outputs[start : start + n_rows], items, pair_weights[start : start + n_rows], loss, grads, start)
        ctx.save_for_backward(*[grad for grad in grads if grad is not None])
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Optional[Tensor], ...]:
        saved = iter(ctx.saved_tensors)
        return tuple(next(saved) * grad_loss if want else None for want in ctx.needs_input_grad)


def _add_chunk(
    outputs: Tensor, items: Tensor, pair_weights: Tensor, loss: Tensor, grads: list[Optional[Tensor]], start: int
) -> None:
    """Add one chunk's share to the loss and the gradients.

    With scores s^k, p^k = softmax(s^k) and G_kl = sum_n p^k_n s^l_n, the symmetric divergence of lenses k and l is
    (G_kk + G_ll - G_kl - G_lk) / 2: the log-normalisers cancel.
    """
    n, n_lenses, _ = outputs.shape
    scores = torch.matmul(outputs, items.T)  # [n, K, B]
    probabilities = torch.softmax(scores, dim=-1)
    cross = torch.matmul(probabilities, scores.transpose(1, 2))  # G: [n, K, K]
    own = cross.diagonal(dim1=1, dim2=2)
    divergence = (own[:, :, None] + own[:, None, :] - cross - cross.transpose(1, 2)) / 2
    loss += (pair_weights * divergence).sum() / 2  # each pair stands twice in the symmetric matrix
    if grads[2] is not None:
        grads[2][start : start + n] = divergence / 2
    if grads[0] is None and grads[1] is None:
        return
    # loss = sum_k,l C_kl G_kl with C = (diag(row sums of W) - W) / 2; dG goes to s directly and through p.
    coefficients = (torch.diag_embed(pair_weights.sum(dim=2)) - pair_weights) / 2
    mixed = torch.matmul(coefficients, scores)  # sum_l C_kl s^l
    expected = (probabilities * mixed).sum(dim=-1, keepdim=True)
    grad_scores = mixed.sub_(expected).mul_(probabilities)
    grad_scores.baddbmm_(coefficients, probabilities)
    flat = grad_scores.flatten(0, 1)
    if grads[0] is not None:
        torch.mm(flat, items, out=grads[0][start : start + n].view(-1, items.shape[1]))
    if grads[1] is not None:
        grads[1].addmm_(flat.T, outputs.flatten(0, 1))


def pair_weights(composition: Tensor, token_weights: Tensor, eps: float = 1e-8) -> Tensor:
    """w^{k,l} = g^k g^l / (g^k + g^l + eps), times the weight of the position; symmetric with zero diagonal.

    Args:
        composition: [N, K] semantic composition ratio g.
        token_weights: [N] weight of each position in the loss.
        eps: Keeps the quotient finite where both are 0.

    Returns:
        [N, K, K].
    """
    left, right = composition[:, :, None], composition[:, None, :]
    weights = left * right / (left + right + eps)
    off_diagonal = 1.0 - torch.eye(composition.shape[1], dtype=composition.dtype, device=composition.device)
    return weights * off_diagonal * token_weights[:, None, None]


def lens_consistency(outputs: Tensor, items: Tensor, composition: Tensor, token_weights: Tensor) -> Tensor:
    """Weighted symmetric KL divergence between the item distributions of every pair of lenses.

    sum_i t_i sum_{k<l} w_i^{k,l} (KL(p_i^k || p_i^l) + KL(p_i^l || p_i^k)) / 2, p_i^k = softmax(z_i^k E^T), in fp32.

    Args:
        outputs: [N, K, d] lens outputs z.
        items: [B, d] embeddings of the batch's target items.
        composition: [N, K] semantic composition ratio g.
        token_weights: [N] weight t of each position.

    Returns:
        Scalar.
    """
    dtype = torch.promote_types(outputs.dtype, torch.float32)
    weights = pair_weights(composition.to(dtype), token_weights.to(dtype))
    return _Consistency.apply(outputs.to(dtype).contiguous(), items.to(dtype), weights)
