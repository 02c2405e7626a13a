"""One vector per sequence from the states of its positions."""

from __future__ import annotations

import torch
from torch import Tensor

POOLINGS = ("last", "mean_valid", "mean_all", "concat_valid", "concat_all")


def looks_at_padding(pooling: str) -> bool:
    """Whether a pooling reads positions behind the length; they are as many as MAX_ITEM_LIST_LENGTH leaves."""
    return pooling.endswith("_all")


def pool(states: Tensor, lengths: Tensor, pooling: str) -> Tensor:
    """Pool the states of right-padded sequences.

    Args:
        states: [B, w, d].
        lengths: [B], 1 <= length <= w.
        pooling: `last`: the last valid position. `mean_valid`, `concat_valid`: mean over the valid positions, or all
            positions one after the other with zeros for padding. `mean_all`, `concat_all`: the same with padding as it
            is, as published.

    Returns:
        [B, d], or [B, w * d] of `concat_valid` and `concat_all`.

    Raises:
        ValueError: On an unknown pooling.
    """
    if pooling not in POOLINGS:
        raise ValueError(f"pooling must be one of {POOLINGS}, got {pooling!r}")
    if pooling == "last":
        return states[torch.arange(states.shape[0], device=states.device), lengths - 1]
    if pooling == "mean_all":
        return states.mean(dim=1)
    if pooling == "concat_all":
        return states.flatten(1)
    valid = torch.arange(states.shape[1], device=states.device) < lengths[:, None]
    states = states * valid[..., None]
    return states.flatten(1) if pooling == "concat_valid" else states.sum(dim=1) / lengths[:, None]
