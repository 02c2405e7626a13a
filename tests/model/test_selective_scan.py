"""The selective scan against a loop over every row, step, channel and state, in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from recbole_prism.model.functional import selective_scan as module
from recbole_prism.model.functional.selective_scan import decayed_product, selective_scan


def inputs(n_rows: int = 3, n_steps: int = 5, n_channels: int = 4, n_states: int = 2) -> tuple[Tensor, ...]:
    """delta, u, rates, b, c."""
    draw = torch.Generator().manual_seed(3)
    shapes = [(n_rows, n_steps, n_channels), (n_rows, n_steps, n_channels), (n_channels, n_states)]
    shapes += [(n_rows, n_steps, n_states)] * 2
    delta, u, rates, b, c = (torch.randn(shape, generator=draw, dtype=torch.float64) for shape in shapes)
    return tuple(part.requires_grad_() for part in (delta.abs(), u, rates.abs() * 2, b, c))


def by_loops(delta: Tensor, u: Tensor, rates: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """The recurrence, one number at a time."""
    n_rows, n_steps, n_channels = u.shape
    rows = []
    for r in range(n_rows):
        state = [[torch.zeros((), dtype=u.dtype) for _ in range(rates.shape[1])] for _ in range(n_channels)]
        for t in range(n_steps):
            outputs = []
            for k in range(n_channels):
                y = torch.zeros((), dtype=u.dtype)
                for s in range(rates.shape[1]):
                    state[k][s] = torch.exp(-delta[r, t, k] * rates[k, s]) * state[k][s] + u[r, t, k] * b[r, t, s]
                    y = y + state[k][s] * c[r, t, s]
                outputs.append(y)
            rows.append(torch.stack(outputs))
    return torch.stack(rows).view(n_rows, n_steps, n_channels)


@pytest.mark.parametrize("cells", [1, 10**9])
def test_scan_equals_loops_with_gradients(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row by row (a bound of one cell) and all rows at once."""
    monkeypatch.setattr(module, "_SCAN_CELLS", cells)
    monkeypatch.setattr(module, "_DECAY_CELLS", cells)
    arguments = inputs()
    ours, expected = selective_scan(*arguments), by_loops(*arguments)
    assert torch.allclose(ours, expected, atol=1e-12)
    weights = torch.randn(ours.shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    for got, wanted in zip(
        torch.autograd.grad((ours * weights).sum(), arguments),
        torch.autograd.grad((expected * weights).sum(), arguments),
    ):
        assert torch.allclose(got, wanted, atol=1e-11)


@pytest.mark.parametrize("cells", [1, 10**9])
def test_decayed_product_gives_the_last_output(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last step's output is the sum over inputs of u times their decayed products, gradients included."""
    monkeypatch.setattr(module, "_DECAY_CELLS", cells)
    arguments = inputs()
    delta, u, rates, b, c = arguments
    elapsed = delta.sum(1, keepdim=True) - delta.cumsum(1)
    weights = decayed_product(elapsed.flatten(0, 1), rates, (b * c[:, -1:]).flatten(0, 1))
    ours, expected = (weights.view_as(u) * u).sum(1), by_loops(*arguments)[:, -1]
    assert torch.allclose(ours, expected, atol=1e-12)
    factors = torch.randn(ours.shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    for got, wanted in zip(
        torch.autograd.grad((ours * factors).sum(), arguments),
        torch.autograd.grad((expected * factors).sum(), arguments),
    ):
        assert torch.allclose(got, wanted, atol=1e-11)


def test_one_step_has_a_closed_form() -> None:
    """y = u <b, c>: nothing has decayed yet."""
    delta, u, rates, b, c = inputs(n_steps=1)
    expected = u * (b * c).sum(-1, keepdim=True)
    assert torch.allclose(selective_scan(delta, u, rates, b, c), expected, atol=1e-14)
    at_once = decayed_product(torch.zeros_like(delta[:, 0]), rates, (b * c)[:, 0])
    assert torch.allclose(at_once * u[:, 0], expected[:, 0], atol=1e-14)


def test_a_decay_by_hand() -> None:
    """Rate ln 2 and step 3: an input of 8 is 1 three steps later."""
    weight = decayed_product(torch.full((1, 1), 3.0), torch.full((1, 1), math.log(2.0)), torch.ones(1, 1))
    assert float(8 * weight) == pytest.approx(1.0, abs=1e-6)


def test_extreme_steps_stay_finite_and_forget() -> None:
    """A step of 10,000 leaves nothing of what was before, without a denormal or infinite number."""
    delta, u, rates, b, c = (part.detach().float() for part in inputs())
    delta[:, 2] = 1e4
    arguments = tuple(part.requires_grad_() for part in (delta, u, rates.clamp(min=0.1), b, c))
    output = selective_scan(*arguments)
    forgotten = u.detach().clone()
    forgotten[:, :2] = -7.0
    again = selective_scan(delta, forgotten, arguments[2], b, c)
    assert torch.allclose(output[:, 2:], again[:, 2:], atol=1e-6)
    assert not torch.allclose(output[:, :2], again[:, :2])
    assert all(torch.isfinite(grad).all() for grad in torch.autograd.grad(output.sum(), arguments))


def test_the_backward_pass_keeps_no_state_per_step() -> None:
    """What autograd holds between the passes are the inputs: no [C, S] tensor for each of the 40 steps."""
    arguments = inputs(n_rows=2, n_steps=40, n_channels=8, n_states=16)
    saved: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda part: saved.append(part.numel()) or part, lambda part: part):
        selective_scan(*arguments)
        decayed_product(arguments[0].flatten(0, 1), arguments[2], arguments[3].flatten(0, 1))
    assert saved and max(saved) == 2 * 40 * 16  # b and c; the states would be 2 * 40 * 8 * 16 numbers
