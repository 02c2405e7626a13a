"""Everything an interrupted training needs to go on as if nothing had happened."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Iterator, Optional

from torch import Tensor, nn

from recbole_prism.errors import RecBolePrismError
from recbole_prism.run_directory import RunDirectory
from recbole_prism.trainer.optim import load_optimizer_state, optimizer_state
from recbole_prism.trainer.randomness import random_states, restore_random_states

if TYPE_CHECKING:
    from recbole_prism.trainer.trainer import Trainer

logger = logging.getLogger("recbole_prism")


def cpu_weights(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the model's state_dict on the CPU that later training does not touch."""
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in model.state_dict().items()}


def save(trainer: "Trainer", directory: RunDirectory) -> None:
    """Store the state of a training between two epochs."""
    directory.write_resume(*capture(trainer))


def restore(trainer: "Trainer", directory: RunDirectory) -> bool:
    """Put a stored state into a new trainer of the same settings.

    Returns:
        False if there is none.
    """
    stored = directory.read_resume()
    if stored is None:
        return False
    apply(trainer, *stored)
    trainer.history = directory.read_history()[: trainer.next_epoch]  # a kill may have come between the two writes
    directory.write_history(trainer.history)
    return True


def capture(trainer: "Trainer") -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """Read the state of a training between two epochs.

    Returns:
        Tensors by group ("model", "best", "optimizer", "random", "kept" by the model) and name, and plain values.
    """
    optimizer, groups = optimizer_state(trainer.optimizer)
    random, random_values = random_states(trainer.device)
    keep = getattr(trainer.model, "resume_state", None)
    tensors = {
        "model": cpu_weights(trainer.model),
        "best": trainer.best_weights or {},
        "optimizer": optimizer,
        "random": random,
        "kept": {} if keep is None else dict(keep()),
    }
    values = {
        "next_epoch": trainer.next_epoch,
        "stopper": trainer.stopper.to_dict(),
        "best_valid_result": trainer.best_valid_result,
        "optimizer_groups": groups,
        "random": random_values,
    }
    return tensors, values


def apply(trainer: "Trainer", tensors: dict[str, dict[str, Tensor]], values: dict[str, Any]) -> None:
    """Put what `capture` read into a new trainer of the same settings."""
    trainer.next_epoch = values["next_epoch"]
    trainer.stopper.load_dict(values["stopper"])
    trainer.best_valid_result = values["best_valid_result"]
    trainer.best_weights = tensors.get("best") or None
    trainer.model.load_state_dict(tensors["model"])
    load_optimizer_state(trainer.optimizer, tensors["optimizer"], values["optimizer_groups"])
    if tensors.get("kept"):
        trainer.model.load_resume_state(tensors["kept"])  # type: ignore[operator]
    restore_random_states(trainer.device, tensors["random"], values["random"])  # last: nothing above may draw from them


@contextmanager
def failure_marked(directory: Optional[RunDirectory]) -> Iterator[None]:
    """Write into status.json why what happens inside was stopped; the error goes on."""
    try:
        yield
    except BaseException as error:  # Ctrl-C too: the directory stays resumable and says what happened
        if directory is not None:
            cause = error.cause if isinstance(error, RecBolePrismError) else str(error)
            directory.fail(f"{type(error).__name__}: {cause}")
        raise
