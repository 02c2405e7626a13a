"""Optimizers by RecBole's names, and their state without pickle."""

from __future__ import annotations

from typing import Any, Iterable, Mapping

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop

from recbole_prism.errors import ConfigError

LEARNERS: dict[str, type[Optimizer]] = {
    "adam": Adam,
    "adamw": AdamW,
    "sgd": SGD,
    "adagrad": Adagrad,
    "rmsprop": RMSprop,
}
_FUSED_LEARNERS = ("adam", "adamw")
_FUSED_DEVICES = ("cpu", "cuda")  # one kernel over all parameters instead of a dozen per parameter


def build_optimizer(
    parameters: Iterable[Parameter], *, learner: str, learning_rate: float, weight_decay: float
) -> Optimizer:
    """Build the optimizer that RecBole's key `learner` names.

    Args:
        parameters: Parameters to train; those without `requires_grad` are left out.
        learner: One of `LEARNERS`, in any case.
        learning_rate: Step size.
        weight_decay: L2 weight, as the torch optimizer of that name understands it.

    Raises:
        ConfigError: The learner is unknown.
    """
    name = learner.lower()
    if name not in LEARNERS:
        raise ConfigError(f"learner: unknown optimizer {learner!r}", f"choose one of {', '.join(LEARNERS)}")
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    options: dict[str, Any] = {"lr": learning_rate, "weight_decay": weight_decay}
    if name in _FUSED_LEARNERS:
        options["fused"] = all(p.device.type in _FUSED_DEVICES and p.is_floating_point() for p in trained)
    return LEARNERS[name](trained, **options)


def optimizer_state(optimizer: Optimizer) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """Split the state of an optimizer into tensors and plain values.

    Returns:
        Tensors by "<parameter index>.<name>", and the options of each parameter group (JSON-able).
    """
    state = optimizer.state_dict()
    tensors = {
        f"{index}.{name}": torch.as_tensor(value)
        for index, values in state["state"].items()
        for name, value in values.items()
        if value is not None  # SGD without momentum keeps an empty slot
    }
    return tensors, state["param_groups"]


def load_optimizer_state(
    optimizer: Optimizer, tensors: Mapping[str, Tensor], groups: Iterable[Mapping[str, Any]]
) -> None:
    """Put the result of `optimizer_state` into an optimizer built for the same parameters in the same order."""
    state: dict[int, dict[str, Any]] = {}
    for key, tensor in tensors.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = tensor
    restored = [
        {name: tuple(value) if name == "betas" else value for name, value in group.items()}  # JSON has no tuples
        for group in groups
    ]
    optimizer.load_state_dict({"state": state, "param_groups": restored})
