"""The loss of an epoch by parts, read from the device once per window of batches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Optional, Union

import numpy as np
import torch
from torch import Tensor

from recbole_prism.errors import ModelError
from recbole_prism.model.functional.loss_parts import LossParts

GPU_WINDOW = 64  # batches between two reads: a read makes the CPU wait for the GPU


def named_parts(loss: Union[Tensor, tuple[Tensor, ...]], model: str) -> dict[str, Tensor]:
    """Name the parts of what `calculate_loss` returned.

    Args:
        loss: `LossParts`, or as in RecBole a scalar tensor ("loss") or a tuple of them ("part_0", "part_1", ...).
        model: Name of the model, for the message.

    Raises:
        ModelError: It is none of these, or nothing that can be minimised.
    """
    if isinstance(loss, LossParts):
        parts = dict(zip(loss.names, loss))
    elif isinstance(loss, tuple):
        parts = {f"part_{index}": part for index, part in enumerate(loss)}
    else:
        parts = {"loss": loss}
    problem = next(filter(None, map(_problem, parts.values())), "" if parts else "an empty tuple")
    if not problem and not any(part.requires_grad for part in parts.values()):
        problem = "a loss without a gradient: it depends on no parameter, or was detached"
    if problem:
        raise ModelError(
            f"calculate_loss of the model {model} returned {problem}",
            "return a scalar floating-point tensor with a gradient (a mean over rows), a tuple of such, or LossParts",
        )
    return parts


def _problem(part: object) -> str:
    """Why something is no part of a loss; empty if it is one."""
    if not isinstance(part, Tensor):
        return f"a value of type {type(part).__name__}"
    if part.numel() != 1:
        return f"a tensor of shape {tuple(part.shape)}"
    return "" if part.is_floating_point() else f"a tensor of type {part.dtype}"


@dataclass(frozen=True)
class BadBatch:
    """The first batch of an epoch with a non-finite loss.

    Attributes:
        batch: Its number in the epoch, from 0.
        values: Every loss part of it.
        row_ids: Its training rows; None if the loader does not tell them (stock RecBole).
    """

    batch: int
    values: dict[str, float]
    row_ids: Optional[Tensor]

    @property
    def part(self) -> str:
        """Name of the first part that is not finite."""
        return next(name for name, value in self.values.items() if not math.isfinite(value))


class LossTracker:
    """Sums loss parts over an epoch in float64 and watches that they stay finite.

    Args:
        device: Device of the losses. On the CPU every batch is looked at; on a GPU they are collected without waiting
            for the device and looked at every `GPU_WINDOW` batches.
    """

    def __init__(self, device: torch.device) -> None:
        self.window = 1 if device.type == "cpu" else GPU_WINDOW
        self.names: tuple[str, ...] = ()
        self.n_batches = 0
        self._sum = np.zeros(0)
        self._waiting: list[tuple[Tensor, Optional[Tensor]]] = []

    def add(self, parts: dict[str, Tensor], row_ids: Optional[Tensor]) -> Optional[BadBatch]:
        """Take the parts of one batch.

        Args:
            parts: Scalar tensors by name; the same names in every batch.
            row_ids: int64 [B], the rows of the batch, kept until the batch has been looked at.

        Returns:
            The first bad batch, if one was found now.

        Raises:
            ModelError: The names differ from those of the batches before.
        """
        names = tuple(parts)
        if not self.names:
            self.names, self._sum = names, np.zeros(len(names))
        elif names != self.names:
            raise ModelError(
                f"calculate_loss returned the parts {names} after {self.names}", "return the same parts for every batch"
            )
        values = torch.stack([part.detach().reshape(()) for part in parts.values()])
        self._waiting.append((values, row_ids))
        return self.read() if len(self._waiting) >= self.window else None

    def read(self) -> Optional[BadBatch]:
        """Look at the batches collected since the last read; on a GPU this waits for the device."""
        if not self._waiting:
            return None
        values = torch.stack([batch for batch, _ in self._waiting]).double().cpu().numpy()  # [window, parts]
        bad = None
        if not np.isfinite(values).all():
            first = int(np.flatnonzero(~np.isfinite(values).all(axis=1))[0])
            bad = BadBatch(
                self.n_batches + first, dict(zip(self.names, values[first].tolist())), self._waiting[first][1]
            )
        self._sum += values.sum(axis=0)
        self.n_batches += len(self._waiting)
        self._waiting.clear()
        return bad

    def mean(self) -> dict[str, float]:
        """Mean over the batches read so far: "total" first, then each part."""
        parts = dict(zip(self.names, (self._sum / max(self.n_batches, 1)).tolist()))
        return {"total": sum(parts.values()), **parts}
