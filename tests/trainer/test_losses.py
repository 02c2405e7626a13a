"""Loss parts over an epoch, and the search for the first bad tensor."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from recbole_prism.errors import ModelError
from recbole_prism.model.functional.loss_parts import LossParts
from recbole_prism.trainer.checks import bad_gradient, bad_parameter, loss_error
from recbole_prism.trainer.losses import BadBatch, LossTracker, named_parts


def test_names_of_parts() -> None:
    one, two = torch.tensor(1.0, requires_grad=True), torch.tensor(2.0)  # a part that is switched off has no gradient
    assert named_parts(one, "Mine") == {"loss": one}
    assert named_parts((one, two), "Mine") == {"part_0": one, "part_1": two}
    assert named_parts(LossParts({"rec": one, "ccl": two}), "Mine") == {"rec": one, "ccl": two}


@pytest.mark.parametrize(
    ("loss", "problem"),
    [
        (1.0, "a value of type float"),
        (None, "a value of type NoneType"),
        ((), "an empty tuple"),
        ((torch.ones((), requires_grad=True), None), "a value of type NoneType"),
        (torch.ones(3, requires_grad=True), r"a tensor of shape \(3,\)"),
        (torch.ones((), dtype=torch.int64), "a tensor of type torch.int64"),
        ((torch.ones(()), torch.ones(())), "a loss without a gradient"),
    ],
)
def test_what_is_no_loss_is_refused_by_the_models_name(loss: Any, problem: str) -> None:
    with pytest.raises(ModelError, match=f"of the model Mine returned {problem}[^$]*-> return a scalar"):
        named_parts(loss, "Mine")


@pytest.mark.parametrize("window", [1, 3, 64])
def test_mean_of_an_epoch_does_not_depend_on_when_it_is_read(window: int) -> None:
    tracker = LossTracker(torch.device("cpu"))
    tracker.window = window
    for step in range(1, 8):
        assert tracker.add({"rec": torch.tensor(float(step)), "ccl": torch.tensor(0.5)}, None) is None
    assert tracker.read() is None
    assert tracker.mean() == {"total": 4.5, "rec": 4.0, "ccl": 0.5}
    assert tracker.n_batches == 7


@pytest.mark.parametrize(("window", "found_after"), [(1, 5), (3, 6), (64, 8)])
def test_first_bad_batch_is_named_whenever_it_is_read(window: int, found_after: int) -> None:
    tracker = LossTracker(torch.device("cpu"))
    tracker.window = window
    bad, found = None, 0
    for step in range(8):
        value = math.nan if step >= 4 else 1.0
        bad = tracker.add({"rec": torch.tensor(1.0), "cl": torch.tensor(value)}, torch.tensor([step, step + 100]))
        found = step + 1
        if bad is not None:
            break
    bad = bad or tracker.read()
    assert bad is not None and found == found_after
    assert (bad.batch, bad.part) == (4, "cl")
    assert bad.row_ids is not None and bad.row_ids.tolist() == [4, 104]


def test_parts_may_not_change_within_an_epoch() -> None:
    tracker = LossTracker(torch.device("cpu"))
    tracker.add({"rec": torch.tensor(1.0)}, None)
    with pytest.raises(ModelError, match="ccl"):
        tracker.add({"rec": torch.tensor(1.0), "ccl": torch.tensor(1.0)}, None)


def test_first_bad_tensor_in_named_order() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))
    assert bad_parameter(model) is None
    model[1].running_var[0] = math.inf
    assert bad_parameter(model) == "buffer 1.running_var"
    with torch.no_grad():
        model[2].weight[0, 0] = math.nan
    assert bad_parameter(model) == "parameter 2.weight"


def test_gradient_that_is_not_finite_is_found_though_the_parameters_are() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    with torch.no_grad():
        model[1].weight.zero_()
        model[1].bias.zero_()
    loss = model(torch.ones(3, 2)).sqrt().mean()  # the slope of a root at 0 is infinite
    assert bad_gradient(model, loss) in ("gradient of 0.weight", "gradient of 1.weight")
    assert bad_gradient(model, (model[1].weight ** 2).sum()) is None


def test_error_names_part_epoch_batch_rows_and_tensor() -> None:
    bad = BadBatch(17, {"rec": 1.0, "cl": math.inf}, torch.arange(30, 50))
    message = str(loss_error(bad, 3, "parameter head.weight"))
    for piece in ("'cl' is inf", "epoch 3", "batch 17", "rows 30, 31,", "parameter head.weight", "cl_temperature"):
        assert piece in message, piece
    assert "50" not in message.split("\n")[0]
