"""A synthetic data set of any size, for the scaling curves: batches only, no file."""

from __future__ import annotations

from typing import Any

import torch
from recbole.data.interaction import Interaction
from torch import Tensor


class Counts:
    """What a model reads of a data set."""

    def __init__(self, n_items: int) -> None:
        self.n_items = n_items

    def num(self, field: str) -> int:
        return {"item_id": self.n_items, "user_id": 2}[field]


def lengths_like_toys(n_rows: int, longest: int, generator: torch.Generator) -> Tensor:
    """Prefix lengths as in the Amazon sets: geometric with mean 8, at most `longest`."""
    uniform = torch.rand(n_rows, generator=generator)
    return (torch.log(uniform) / torch.log(torch.tensor(1 - 1 / 8.0))).ceil().long().clamp(1, longest)


def batch(n_rows: int, n_items: int, lengths: Tensor, partner_lengths: Tensor, generator: torch.Generator) -> Any:
    """A training batch with partners, histories and targets drawn at random."""

    def history(length: Tensor) -> Tensor:
        width = int(length.max())
        items = torch.randint(1, n_items, (n_rows, width), generator=generator)
        return items * (torch.arange(width) < length[:, None])

    rows = torch.arange(n_rows)
    return Interaction(
        {
            "user_id": torch.ones_like(rows), "row_id": rows, "partner_row_id": rows,
            "item_id": torch.randint(1, n_items, (n_rows,), generator=generator),
            "item_id_list": history(lengths), "item_length": lengths,
            "partner_item_id_list": history(partner_lengths), "partner_item_length": partner_lengths,
        }
    )  # fmt: skip
