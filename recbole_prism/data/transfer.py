"""Batches on their way to the device: made ahead of time, copied without waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch
from recbole.data.interaction import Interaction

from recbole_prism.model.functional.host_copy import keep_host_copy

Batch = TypeVar("Batch")

AHEAD = 2  # batches made while the device computes: one to hide the making, one for its variation


def to_device(interaction: Interaction, device: torch.device) -> Interaction:
    """Copy a batch to the device of the model.

    For a GPU the copies start from pinned memory and nobody waits for them; the values on the CPU stay beside them
    (`host_copy`), where packing and the cloze task read them. On a CPU the batch is returned as it is.

    Args:
        interaction: A batch on the CPU.
        device: Where the model is.
    """
    if device.type == "cpu":
        return interaction
    moved = {}
    for name, value in interaction.interaction.items():
        source = value.pin_memory() if device.type == "cuda" and not value.is_cuda else value
        moved[name] = source.to(device, non_blocking=True)
        if value.device.type == "cpu":
            keep_host_copy(moved[name], value.numpy())
    return Interaction(moved)


def ahead_of_use(batches: Iterable[Batch], n_ahead: int) -> Iterator[Batch]:
    """The same batches in the same order, up to `n_ahead` of them made by a thread before they are asked for.

    Args:
        batches: One pass of a loader. An error in it is raised where its batch would have come.
        n_ahead: 0 makes each batch when it is asked for.
    """
    if n_ahead == 0:
        yield from batches
        return
    source, end = iter(batches), object()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="batches") as maker:
        waiting: deque[Future[object]] = deque(maker.submit(next, source, end) for _ in range(n_ahead))
        try:
            while (batch := waiting.popleft().result()) is not end:
                waiting.append(maker.submit(next, source, end))
                yield batch  # type: ignore[misc]
        finally:
            for future in waiting:
                future.cancel()
