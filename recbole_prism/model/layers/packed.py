"""Packed batches: only valid tokens are computed, attention runs in groups of sequences of similar length.

Notation: S sequences of lengths n_s, N = sum n_s tokens. Tokens stand sequence after sequence, the sequences sorted by
length. Nothing here changes a value: padding is left out, and put in again inside an attention group only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from recbole_prism.model.functional.host_copy import host_copy

MAX_GROUPS = 8
# Attention cells that cost as much as the fixed part (kernel launches) of one more group; the optimum is flat.
_GROUP_COST = 20_000


class _MoveRows(torch.autograd.Function):
    """Copy rows to distinct places of a larger, else zero tensor; the backward pass copies them back."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, index: Tensor, n_rows: int) -> Tensor:
        ctx.save_for_backward(index)
        return values.new_zeros((n_rows,) + values.shape[1:]).index_copy_(0, index, values)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Optional[Tensor], ...]:
        (index,) = ctx.saved_tensors
        return grad.index_select(0, index), None, None


class _TakeRows(torch.autograd.Function):
    """Take rows at distinct places; unlike `index_select`, the backward pass need not add up."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.n_rows = values.shape[0]
        return values.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Optional[Tensor], ...]:
        (index,) = ctx.saved_tensors
        return grad.new_zeros((ctx.n_rows,) + grad.shape[1:]).index_copy_(0, index, grad), None


def take_distinct_rows(values: Tensor, index: Tensor) -> Tensor:
    """`values[index]` along dimension 0 for an index without repetitions."""
    return _TakeRows.apply(values, index)


def visible_keys(key_mask: Tensor, *, causal: bool) -> Tensor:
    """Which key a query may see.

    A query without any visible key (every item so far is masked) sees itself: an attention row must hold something, and
    RecBole's way, a softmax over everything, would look at padding.

    Args:
        key_mask: [B, T] bool, True where attention may look at the position.
        causal: True hides later positions.

    Returns:
        [B, 1, T, T] bool, [b, 0, i, j] True if query i sees key j.
    """
    width = key_mask.shape[1]
    diagonal = torch.eye(width, dtype=torch.bool, device=key_mask.device)
    if causal:
        visible = key_mask[:, None, :] & torch.ones_like(diagonal).tril()
        blind = key_mask.cumsum(dim=1) == 0
    else:
        visible = key_mask[:, None, :].expand(-1, width, width)
        blind = ~key_mask.any(dim=1, keepdim=True).expand_as(key_mask)
    return (visible | (blind[:, :, None] & diagonal))[:, None]


@dataclass(frozen=True)
class LengthGroup:
    """A run of sequences, in sorted order, that attention handles as one padded block of width w.

    Attributes:
        rows: Place of the sequences in sorted order.
        width: w, the longest length in the group.
        places: [n] place of each of the group's n tokens in the flattened block [b * w].
        visible: [b, 1, w, w] bool, True where a key may be seen by a query.
        last: [b] place of each sequence's last token in the flattened block [b * w].
    """

    rows: slice
    width: int
    places: Tensor
    visible: Tensor
    last: Tensor

    @property
    def visible_to_last(self) -> Tensor:
        """[b, 1, 1, w] bool, the keys that the query at each sequence's last position may see."""
        block = self.visible.squeeze(1).flatten(0, 1)
        return block.index_select(0, self.last)[:, None, None, :]

    @property
    def n_rows(self) -> int:
        return self.rows.stop - self.rows.start

    def pad(self, tokens: Tensor) -> Tensor:
        """[n, ...] tokens of this group -> [b, w, ...], zero at padded places."""
        block = _MoveRows.apply(tokens, self.places, self.n_rows * self.width)
        return block.view((self.n_rows, self.width) + tokens.shape[1:])

    def unpad(self, block: Tensor) -> Tensor:
        """[b, w, ...] -> the [n, ...] valid tokens."""
        return take_distinct_rows(block.reshape((-1,) + block.shape[2:]), self.places)


@dataclass(frozen=True)
class Packed:
    """Tokens of several stacked sequences.

    Attributes:
        items: [N] item ids; 0 marks a masked item inside a sequence, never padding.
        positions: [N] position inside the sequence, from 0.
        sequences: [N] original number of the sequence that a token belongs to.
        key_mask: [N] bool, True where attention may look at the token (id != 0).
        lengths: [S] lengths in original order.
        starts: [S] first token of each sequence, in original order.
        order: [S] original number of the sequence at each sorted place.
        groups: Length groups, covering all sequences in sorted order.
        group_sizes: Number of tokens of each group.
        host_lengths: `lengths` on the CPU.
    """

    items: Tensor
    positions: Tensor
    sequences: Tensor
    key_mask: Tensor
    lengths: Tensor
    starts: Tensor
    order: Tensor
    groups: tuple[LengthGroup, ...]
    group_sizes: tuple[int, ...]
    host_lengths: np.ndarray

    def split(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """[N, ...] -> one tensor per length group."""
        return tokens.split(self.group_sizes)

    def to_row_order(self, sorted_rows: Tensor) -> Tensor:
        """[S, ...] in sorted order -> original order."""
        return take_distinct_rows(sorted_rows, torch.argsort(self.order))

    def tokens_of(self, first: int, n_sequences: int) -> Tensor:
        """Places of the tokens of sequences first, first + 1, ..., in the order of the tokens.

        What `nonzero` would say, but their number is known here, so nobody waits for the device.
        """
        wanted = (self.sequences >= first) & (self.sequences < first + n_sequences)
        n_wanted = int(self.host_lengths[first : first + n_sequences].sum())
        slots = torch.where(wanted, torch.cumsum(wanted, 0) - 1, n_wanted)  # the last slot takes all others
        places = torch.zeros(n_wanted + 1, dtype=torch.int64, device=wanted.device)
        return places.scatter_(0, slots, torch.arange(wanted.shape[0], device=wanted.device))[:n_wanted]

    @property
    def last_tokens(self) -> Tensor:
        """[S] place of each sequence's last token, in sorted order."""
        return (self.starts + self.lengths - 1)[self.order]


def group_boundaries(sorted_lengths: np.ndarray) -> list[int]:
    """Cut ascending lengths into at most `MAX_GROUPS` groups with the least attention work.

    Work of a group is b * w^2 cells plus a fixed cost; dynamic programming over the distinct lengths is exact.

    Returns:
        Start of each group and the number of sequences as last element.
    """
    widths, counts = np.unique(sorted_lengths, return_counts=True)
    ends = np.cumsum(counts)
    starts = ends - counts
    # work[i, j]: distinct lengths i..j in one group
    work = (ends[None, :] - starts[:, None]) * widths[None, :].astype(np.float64) ** 2 + _GROUP_COST
    work[np.tril_indices(len(widths), -1)] = np.inf
    best, cuts = work[0], []
    for _ in range(min(MAX_GROUPS, len(widths)) - 1):
        candidate = best[:-1, None] + work[1:, :]
        cut = candidate.argmin(axis=0)
        better = candidate[cut, np.arange(len(widths))] < best
        cuts.append(np.where(better, cut, -1))
        best = np.where(better, candidate[cut, np.arange(len(widths))], best)
    bounds, last = [len(sorted_lengths)], len(widths) - 1
    for cut in reversed(cuts):
        if cut[last] >= 0:
            last = int(cut[last])
            bounds.append(int(ends[last]))
    return [0] + bounds[::-1]


def pack(branches: Sequence[tuple[Tensor, Tensor]], *, causal: bool = True) -> Packed:
    """Stack right-padded sequences of one or more branches (anchor, partner, views) into one packed batch.

    Args:
        branches: Pairs of item ids [B, w] and lengths [B], 1 <= length <= w; B and w may differ between branches.
        causal: True lets a query see keys up to its own position only.

    Returns:
        The packed batch; sequences are numbered through the branches in the order given.
    """
    width = max(seq.shape[1] for seq, _ in branches)
    stacked = torch.cat([functional.pad(seq, (0, width - seq.shape[1])) for seq, _ in branches])
    lengths = torch.cat([length for _, length in branches])
    on_host = np.concatenate([host_copy(length) for _, length in branches])
    order, starts, sequences, positions = _token_layout(lengths, on_host)
    return _assemble(stacked[sequences, positions], lengths, on_host, order, starts, sequences, positions, causal)


def restack(packed: Packed, n_copied: int, *, causal: bool = True) -> tuple[Packed, Tensor, Tensor]:
    """Add a second copy of the first sequences, as a new branch behind the existing ones.

    Args:
        packed: A packed batch of S sequences and N tokens.
        n_copied: C; sequences 0..C-1 get a copy, numbered S, S + 1, ...
        causal: As for `pack`.

    Returns:
        The packed batch of S + C sequences; [N_c] the tokens of `packed` that belong to copied sequences; [N + N_c] for
        each token of the new batch its place in `cat([all N tokens, the N_c copied tokens])`.
    """
    copied_tokens = packed.tokens_of(0, n_copied)
    copied_lengths = torch.where(packed.order < n_copied, packed.lengths[packed.order], 0)  # in sorted order
    copied_starts = torch.empty_like(packed.starts)
    copied_starts[packed.order] = torch.cumsum(copied_lengths, 0) - copied_lengths + packed.items.shape[0]
    lengths = torch.cat([packed.lengths, packed.lengths[:n_copied]])
    sources = torch.cat([packed.starts, copied_starts[:n_copied]])
    on_host = np.concatenate([packed.host_lengths, packed.host_lengths[:n_copied]])
    order, starts, sequences, positions = _token_layout(lengths, on_host)
    place = sources[sequences] + positions
    items = torch.cat([packed.items, packed.items[copied_tokens]])[place]
    return _assemble(items, lengths, on_host, order, starts, sequences, positions, causal), copied_tokens, place


def _token_layout(lengths: Tensor, on_host: np.ndarray) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sorted order [S], first token [S], and per token [N] its sequence and position; `on_host` are the lengths too."""
    order = torch.argsort(lengths, stable=True)
    ascending = lengths[order]
    starts = torch.empty_like(ascending)
    starts[order] = torch.cumsum(ascending, 0) - ascending
    sequences = torch.repeat_interleave(order, ascending, output_size=int(on_host.sum()))
    positions = torch.arange(sequences.shape[0], device=lengths.device) - starts[sequences]
    return order, starts, sequences, positions


def _assemble(
    items: Tensor,
    lengths: Tensor,
    on_host: np.ndarray,
    order: Tensor,
    starts: Tensor,
    sequences: Tensor,
    positions: Tensor,
    causal: bool,
) -> Packed:
    """Cut the token layout into length groups."""
    ascending = np.sort(on_host)
    bounds = group_boundaries(ascending)
    ends = np.concatenate([[0], np.cumsum(ascending)])
    key_mask = items != 0
    groups = tuple(
        _group(
            lengths[order[start:stop]], positions[ends[start] : ends[stop]], key_mask[ends[start] : ends[stop]],
            slice(start, stop), int(ascending[stop - 1]), causal,
        )
        for start, stop in zip(bounds[:-1], bounds[1:])
    )  # fmt: skip
    sizes = tuple(int(ends[stop] - ends[start]) for start, stop in zip(bounds[:-1], bounds[1:]))
    return Packed(items, positions, sequences, key_mask, lengths, starts, order, groups, sizes, on_host)


def _group(lengths: Tensor, positions: Tensor, keys: Tensor, rows: slice, width: int, causal: bool) -> LengthGroup:
    """Places and visibility of one length group: `lengths` [b], `positions` and `keys` [n]."""
    n_rows, device = lengths.shape[0], lengths.device
    row_starts = torch.arange(n_rows, device=device) * width
    places = torch.repeat_interleave(row_starts, lengths, output_size=positions.shape[0]) + positions
    visible = torch.zeros(n_rows * width, dtype=torch.bool, device=device).index_copy_(0, places, keys)
    visible = visible_keys(visible.view(n_rows, width), causal=causal)
    return LengthGroup(rows, width, places, visible, row_starts + lengths - 1)
