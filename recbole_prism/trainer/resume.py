"""Everything an interrupted training needs to go on as if nothing had happened."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Iterator, Optional

import torch
from torch import Tensor, nn

from recbole_prism.errors import RecBolePrismError, RunDirectoryError
from recbole_prism.run_directory import RunDirectory
from recbole_prism.run_files import DAMAGED_CURE
from recbole_prism.trainer.optim import load_optimizer_state, optimizer_state
from recbole_prism.trainer.randomness import random_states, restore_random_states

if TYPE_CHECKING:
    from recbole_prism.trainer.trainer import Trainer

logger = logging.getLogger("recbole_prism")


def cpu_weights(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the model's state_dict on the CPU that later training does not touch."""
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in model.state_dict().items()}


def save(trainer: "Trainer", directory: RunDirectory, read_back: bool) -> None:
    """Store the state of a training between two epochs.

    Args:
        trainer: The training.
        directory: Where to.
        read_back: Read it again and compare, so that a disk or a file format that loses something shows in the first
            epoch and not after hours.

    Raises:
        RunDirectoryError: What is read is not, bit by bit, what was written.
    """
    tensors, values = capture(trainer)
    directory.write_resume(tensors, values)
    if not read_back:
        return
    stored, _ = directory.read_resume() or ({}, {})
    for group, named in tensors.items():
        for name, tensor in named.items():
            again = stored.get(group, {}).get(name)
            if again is None or not _same_bits(tensor, again):
                raise RunDirectoryError(
                    f"{directory.path}: {group} {name} does not come back as it was stored",
                    "check the disk (full, network?) or give another --checkpoint_dir",
                )


def _same_bits(one: Tensor, other: Tensor) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    one, other = (tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other))
    return torch.equal(one, other)  # bytes: a NaN equals itself


def restore(trainer: "Trainer", directory: RunDirectory) -> bool:
    """Put a stored state into a new trainer of the same settings.

    Returns:
        False if there is none.

    Raises:
        RunDirectoryError: The state or the history is damaged.
    """
    stored = directory.read_resume()
    if stored is None:
        return False
    history = directory.read_history()
    apply(trainer, *stored)
    trainer.history = history[: trainer.next_epoch]  # a kill may have come between the two writes
    if len(trainer.history) < trainer.next_epoch:
        raise RunDirectoryError(
            f"{directory.path / 'history.jsonl'} tells of {len(history)} of {trainer.next_epoch} epochs", DAMAGED_CURE
        )
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
    trainer.epoch = values["next_epoch"] - 1
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
