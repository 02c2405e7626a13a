"""Inner products of whole sequences of states, computed where both sequences have a position only; their contrast."""

from __future__ import annotations

from typing import Any, Iterator, Optional

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from recbole_prism.model.functional.host_copy import on_device
from recbole_prism.model.functional.info_nce import info_nce_of_scores, unit_rows

_SHRINK = 0.75  # a new block of positions begins where fewer than this share of the block's first rows are left


def _blocks(lengths: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Runs of positions start..stop-1 and how many sequences are longer than start."""
    longer = len(lengths) - np.searchsorted(np.sort(lengths), np.arange(int(lengths.max())), side="right")
    start = 0
    for position in range(1, len(longer) + 1):
        if position == len(longer) or longer[position] < _SHRINK * longer[start]:
            yield start, position, int(longer[start])
            start = position


class _SequenceGram(torch.autograd.Function):
    """Sum over blocks of positions of X_n X_n^T, X_n the sequences that reach the block."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, order: Tensor, blocks: list[tuple[int, int, int]]) -> Tensor:
        states = states.index_select(0, order)  # longest sequences first
        gram = states.new_zeros(states.shape[0], states.shape[0])
        for start, stop, n in blocks:
            part = states[:n, start:stop].flatten(1)
            gram[:n, :n].addmm_(part, part.T)
        ctx.save_for_backward(states, order)
        ctx.blocks = blocks
        return _permuted(gram, torch.argsort(order))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Optional[Tensor], None, None]:
        states, order = ctx.saved_tensors
        both = _permuted(grad + grad.T, order)
        grad_states = torch.zeros_like(states)
        for start, stop, n in ctx.blocks:
            part = states[:n, start:stop]
            grad_states[:n, start:stop] = torch.mm(both[:n, :n], part.flatten(1)).view_as(part)
        return grad_states.index_select(0, torch.argsort(order)), None, None


def _permuted(square: Tensor, order: Tensor) -> Tensor:
    """`square[order][:, order]`."""
    return square.index_select(0, order).index_select(1, order)


def sequence_gram(states: Tensor, lengths: np.ndarray) -> Tensor:
    """Inner products of concatenated states: `states.flatten(1) @ states.flatten(1).T`.

    Args:
        states: [R, w, m], zero behind each sequence's length.
        lengths: Lengths of the sequences, on the CPU. [R]

    Returns:
        [R, R].
    """
    order = on_device(np.argsort(-lengths, kind="stable"), states.device)
    gram: Tensor = _SequenceGram.apply(states, order, list(_blocks(lengths)))
    return gram


def sequence_info_nce(states: Tensor, lengths: np.ndarray, temperature: float, similarity: str) -> Tensor:
    """`info_nce` of concatenated states: of `states[:B].flatten(1)` and `states[B:].flatten(1)`.

    Args:
        states: [2B, w, m], zero behind each sequence's length; the first views first.
        lengths: Lengths of the sequences, on the CPU. [2B]
        temperature: tau > 0.
        similarity: `cosine` or `dot`.

    Returns:
        Scalar.
    """
    if similarity == "cosine":
        states = unit_rows(states.flatten(1)).view_as(states)
    return info_nce_of_scores(sequence_gram(states, lengths) / temperature)
