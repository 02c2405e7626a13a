"""Says where a training that left the finite numbers went wrong."""

from __future__ import annotations

import math
from typing import Any, Optional

import torch
from torch import Tensor, nn

from recbole_prism.errors import NonFiniteError
from recbole_prism.trainer.losses import BadBatch

CURE = (
    "usual causes: a learning rate too high (learning_rate), a temperature too close to 0 (cl_temperature), vectors of "
    "length 0; try learning_rate <= 0.001, cl_temperature >= 0.05, or clip_grad_norm={max_norm: 5}"
)
_N_ROWS_SHOWN = 8


def bad_parameter(model: nn.Module) -> Optional[str]:
    """Name of the first parameter or buffer, in the model's order, with a NaN or an infinite value."""
    for kind, tensors in (("parameter", model.named_parameters()), ("buffer", model.named_buffers())):
        for name, tensor in tensors:
            if tensor.is_floating_point() and not torch.isfinite(tensor).all():
                return f"{kind} {name}"
    return None


def bad_gradient(model: nn.Module, loss: Tensor) -> Optional[str]:
    """Name of the first parameter, in the model's order, whose gradient of `loss` is not finite."""
    if not loss.requires_grad:
        return None
    model.zero_grad(set_to_none=True)
    loss.backward(retain_graph=True)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not torch.isfinite(parameter.grad).all():
            return f"gradient of {name}"
    return None


def loss_error(bad: BadBatch, epoch: int, tensor: Optional[str]) -> NonFiniteError:
    """The error for a non-finite loss.

    Args:
        bad: The batch.
        epoch: Epoch, from 0.
        tensor: First non-finite tensor, if one was found.
    """
    rows = ""
    if bad.row_ids is not None:
        shown = ", ".join(str(row) for row in bad.row_ids[:_N_ROWS_SHOWN].tolist())
        rows = f", rows {shown}{', ...' if len(bad.row_ids) > _N_ROWS_SHOWN else ''}"
    where = f"first non-finite tensor: {tensor}" if tensor else "all parameters are finite"
    return NonFiniteError(
        f"loss part '{bad.part}' is {bad.values[bad.part]} in epoch {epoch}, batch {bad.batch}{rows}; {where}", CURE
    )


def parameter_error(tensor: str, epoch: int) -> NonFiniteError:
    """The error for parameters that an epoch with finite losses left non-finite (its last update did it)."""
    return NonFiniteError(f"{tensor} is not finite after epoch {epoch}, though every loss was", CURE)


def score_error(error: NonFiniteError, epoch: Optional[int], tensor: Optional[str]) -> NonFiniteError:
    """The error for non-finite scores, completed by what the ranking cannot know.

    Args:
        error: Of the ranking, naming batch and rows.
        epoch: Whose weights the model has; None if unknown.
        tensor: First non-finite parameter or buffer, if there is one.
    """
    weights = "" if epoch is None else f", with the weights of epoch {epoch}"
    where = f"first non-finite tensor: {tensor}" if tensor else "all parameters are finite, the forward pass is not"
    return NonFiniteError(f"{error.cause}{weights}; {where}", error.cure)


def failure_record(bad: BadBatch, epoch: int, tensor: Optional[str]) -> dict[str, Any]:
    """Contents of failure.json: enough to make the batch again (`epoch` and all its row ids)."""
    return {
        "epoch": epoch,
        "batch": bad.batch,
        # JSON has no NaN
        "loss": {name: value if math.isfinite(value) else str(value) for name, value in bad.values.items()},
        "row_ids": None if bad.row_ids is None else bad.row_ids.tolist(),
        "first_bad_tensor": tensor,
    }
