"""Optimizers by name and their state without pickle."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from recbole_prism.errors import ConfigError
from recbole_prism.trainer.optim import LEARNERS, build_optimizer, load_optimizer_state, optimizer_state


def model_and_optimizer(learner: str, seed: int = 0) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    return model, build_optimizer(model.parameters(), learner=learner, learning_rate=0.05, weight_decay=0.01)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        inputs = torch.randn(5, 3, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        model(inputs).square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize("learner", sorted(LEARNERS))
def test_state_survives_tensors_and_json(learner: str) -> None:
    straight, optimizer = model_and_optimizer(learner)
    train(straight, optimizer, range(6))

    first, optimizer = model_and_optimizer(learner)
    train(first, optimizer, range(3))
    tensors, groups = optimizer_state(optimizer)
    second, optimizer = model_and_optimizer(learner, seed=1)
    second.load_state_dict(first.state_dict())
    load_optimizer_state(optimizer, {k: v.clone() for k, v in tensors.items()}, json.loads(json.dumps(groups)))
    train(second, optimizer, range(3, 6))
    for name, parameter in straight.state_dict().items():
        assert torch.equal(parameter, second.state_dict()[name]), name


def test_adam_is_fused_and_equals_the_plain_formula() -> None:
    model, optimizer = model_and_optimizer("Adam")
    assert isinstance(optimizer, torch.optim.Adam) and optimizer.defaults["fused"]
    before = {name: parameter.detach().clone().double() for name, parameter in model.named_parameters()}
    inputs = torch.randn(5, 3)
    model(inputs).square().sum().backward()
    optimizer.step()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        gradient = parameter.grad.double() + 0.01 * before[name]
        expected = before[name] - 0.05 * gradient / (gradient.abs() + 1e-8)  # the first step is g / |g|
        torch.testing.assert_close(parameter.detach().double(), expected, rtol=0, atol=1e-6)


def test_frozen_parameters_are_left_out() -> None:
    model = nn.Linear(3, 2)
    model.bias.requires_grad_(False)
    optimizer = build_optimizer(model.parameters(), learner="sgd", learning_rate=1.0, weight_decay=0.0)
    assert [len(group["params"]) for group in optimizer.param_groups] == [1]


def test_unknown_learner_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="sparse_adam.*\n.*adamw.*sgd.*adagrad.*rmsprop"):
        build_optimizer([], learner="sparse_adam", learning_rate=0.1, weight_decay=0.0)
