"""The loss through torch.compile, and without it where that does not work."""

from __future__ import annotations

import logging
from typing import Any, Callable

import torch

logger = logging.getLogger("recbole_prism")

Loss = Callable[[Any], Any]


class CompiledLoss:
    """`torch.compile` of a loss, for batches of any number of rows and any width.

    Compilation happens in the first call, which it makes many seconds long. If it fails there (no C++ compiler, an
    operation that it does not know, ...), a warning says why and this call and all later ones are not compiled.

    Args:
        loss: A model's `calculate_loss`.
    """

    def __init__(self, loss: Loss) -> None:
        self._plain = loss
        self._used: Loss = torch.compile(loss, dynamic=True)
        self._has_worked = False

    def __call__(self, interaction: Any) -> Any:
        """The loss of a batch."""
        if self._has_worked:
            return self._used(interaction)
        state = torch.get_rng_state()
        try:
            result = self._used(interaction)
        except Exception as error:  # compilers fail in many ways; a fault of the model itself shows again below
            reason = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
            logger.warning("torch.compile failed (%s): training goes on without it", reason)
            torch.set_rng_state(state)
            self._used = self._plain
            result = self._plain(interaction)
        self._has_worked = True
        return result
