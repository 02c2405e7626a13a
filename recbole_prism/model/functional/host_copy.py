"""Values of a tensor on the CPU, kept beside it, so that reading them does not wait for a GPU."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_ATTRIBUTE = "_recbole_prism_host_copy"


def keep_host_copy(tensor: Tensor, values: np.ndarray) -> Tensor:
    """Attach the values of `tensor`, as they are on the CPU, and return the tensor.

    The copy belongs to this tensor object alone: what is computed from it (a slice, a sum) has none.
    """
    setattr(tensor, _ATTRIBUTE, values)
    return tensor


def host_copy(tensor: Tensor) -> np.ndarray:
    """Values of `tensor`: the copy kept beside it or, without one, read from its device."""
    kept: np.ndarray | None = getattr(tensor, _ATTRIBUTE, None)
    return tensor.cpu().numpy() if kept is None else kept


def on_device(values: np.ndarray, device: torch.device) -> Tensor:
    """A copy of an array on a device; for a GPU from pinned memory, so that nobody waits for it."""
    tensor = torch.from_numpy(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def distinct(tensor: Tensor) -> Tensor:
    """The distinct values of a tensor of whole numbers, ascending; `torch.unique` would wait for a GPU."""
    return on_device(np.unique(host_copy(tensor)), tensor.device)
