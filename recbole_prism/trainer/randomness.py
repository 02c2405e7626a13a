"""One seed in one place, and the random states that a resumed run goes on from."""

from __future__ import annotations

import random
from typing import Any, Mapping

import numpy as np
import torch
from torch import Tensor


def seed_everything(seed: int, reproducible: bool = True) -> None:
    """Seed Python's, NumPy's and torch's global generators (torch: on every device).

    Args:
        seed: Non-negative integer below 2**32.
        reproducible: RecBole's key `reproducibility`: cuDNN takes deterministic kernels and does not time alternatives.
    """
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.backends.cudnn.deterministic = reproducible
    torch.backends.cudnn.benchmark = not reproducible


def random_states(device: torch.device) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the global generators.

    Args:
        device: Device of the model; its own generator is included when it is a GPU.

    Returns:
        Tensors and plain values (JSON-able), for `restore_random_states`.
    """
    version, internal, gauss_next = random.getstate()
    _, keys, position, has_gauss, cached_gaussian = np.random.get_state()
    tensors = {
        "python": torch.tensor(internal, dtype=torch.int64),
        "numpy": torch.from_numpy(np.asarray(keys).astype(np.int64)),
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        tensors["cuda"] = torch.cuda.get_rng_state(device)
    values = {
        "python_version": version,
        "python_gauss_next": gauss_next,
        "numpy_position": int(position),
        "numpy_has_gauss": int(has_gauss),
        "numpy_cached_gaussian": float(cached_gaussian),
    }
    return tensors, values


def restore_random_states(device: torch.device, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
    """Set the global generators to what `random_states` read."""
    random.setstate((values["python_version"], tuple(tensors["python"].tolist()), values["python_gauss_next"]))
    np.random.set_state(
        (
            "MT19937",
            tensors["numpy"].numpy().astype(np.uint32),
            values["numpy_position"],
            values["numpy_has_gauss"],
            values["numpy_cached_gaussian"],
        )
    )
    torch.set_rng_state(tensors["torch"].cpu())
    if device.type == "cuda" and "cuda" in tensors:  # a run begun on the CPU has none
        torch.cuda.set_rng_state(tensors["cuda"].cpu(), device)
