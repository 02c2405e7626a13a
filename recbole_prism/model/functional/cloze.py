"""The cloze task of bidirectional models: which items are masked, and how an item or the mask is put behind a history.

Sun et al., "BERT4Rec: Sequential Recommendation with Bidirectional Encoder Representations from Transformer", CIKM
2019. Pure functions; sequences are right-padded with 0, lengths are at least 1, T is the longest sequence a model sees.
"""

from __future__ import annotations

from typing import Union

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from recbole_prism.model.functional.host_copy import host_copy, keep_host_copy

CLOZE, CLOZE_LABELS = "cloze", "cloze_labels"  # a batch's masked sequences (a prefix), and what was masked in them


def append_item(
    item_seq: Tensor, lengths: Tensor, item: Union[Tensor, int], max_length: int, style: str = "repaired"
) -> tuple[Tensor, Tensor]:
    """Put one item behind each history.

    Args:
        item_seq: [B, w] item ids, w <= T.
        lengths: [B].
        item: [B] or one id for all rows.
        max_length: T.
        style: `repaired`: the oldest item makes room only where the history has T items already. `recbole`: it always
            does, so that a history of one item becomes `item` alone.

    Returns:
        Item ids [B, min(w + 1, T)] and lengths [B]; with style `recbole` [B, w] and `lengths` as they were.
    """
    width = item_seq.shape[1]
    dropped = torch.ones_like(lengths) if style == "recbole" else (lengths >= max_length).to(lengths.dtype)
    new_width = width if style == "recbole" else min(width + 1, max_length)
    place = torch.arange(new_width, device=item_seq.device)
    shifted = functional.pad(item_seq, (0, 1)).gather(1, (place + dropped[:, None]).clamp(max=width))
    last = (lengths - dropped)[:, None]
    if isinstance(item, Tensor):
        item = item[:, None]
    new_lengths = (
        lengths
        if style == "recbole"
        else keep_host_copy(lengths + 1 - dropped, np.minimum(host_copy(lengths) + 1, max_length))
    )
    return torch.where(place == last, item, shifted), new_lengths


def mask_items(
    item_seq: Tensor, lengths: Tensor, last_only: Tensor, draws: Tensor, mask_ratio: float, mask_token: int
) -> tuple[Tensor, Tensor]:
    """Mask each item with probability `mask_ratio`; a row in which nothing is drawn, or `last_only`, masks its last.

    Args:
        item_seq: [B, w] item ids.
        lengths: [B].
        last_only: [B] bool.
        draws: [B, w] uniform numbers in [0, 1).
        mask_ratio: P(mask) of an item.
        mask_token: What stands at masked positions.

    Returns:
        Item ids [B, w] with the masks in them, and labels [B, w]: the item behind each mask, 0 elsewhere.
    """
    place = torch.arange(item_seq.shape[1], device=item_seq.device)
    masked = (place < lengths[:, None]) & (draws < mask_ratio)
    only_last = last_only | ~masked.any(dim=1)
    masked = torch.where(only_last[:, None], place == lengths[:, None] - 1, masked)
    return torch.where(masked, mask_token, item_seq), torch.where(masked, item_seq, 0)


def mask_items_as_recbole(
    item_seq: Tensor,
    lengths: Tensor,
    last_only: Tensor,
    draws: Tensor,
    mask_ratio: float,
    mask_token: int,
    max_length: int,
) -> tuple[Tensor, Tensor]:
    """The same with RecBole's rules: a row may have no mask, and not every mask has a label.

    Labels have the last int(mask_ratio * T) masks of a row, and never position 0. See `mask_items` for the arguments;
    `max_length` is T.
    """
    place = torch.arange(item_seq.shape[1], device=item_seq.device)
    masked = (place < lengths[:, None]) & (draws < mask_ratio)
    masked = torch.where(last_only[:, None], place == lengths[:, None] - 1, masked)
    from_the_end = masked.flip(1).cumsum(dim=1).flip(1)
    counts = masked & (from_the_end <= int(mask_ratio * max_length)) & (place > 0)
    return torch.where(masked, mask_token, item_seq), torch.where(counts, item_seq, 0)
