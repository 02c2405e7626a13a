"""The projection that recomputes in backward equals the modules it is made of."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from recbole_prism.model.layers import projection
from recbole_prism.model.layers.dropout import Dropout, scaled_keep_mask
from recbole_prism.model.layers.projection import projected_norm


def plain(values: Tensor, residual: Tensor, dense: nn.Linear, dropout: nn.Module, norm: nn.LayerNorm) -> Tensor:
    projected = dropout(dense(values))
    return norm(projected if residual is None else projected + residual)


class FixedMask(nn.Module):
    """Dropout with a mask decided beforehand."""

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.mask = mask

    def forward(self, values: Tensor) -> Tensor:
        return values * self.mask


@pytest.mark.parametrize("with_residual", [True, False])
@pytest.mark.parametrize("probability", [0.0, 0.3])
def test_values_and_gradients(with_residual: bool, probability: float, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    mask = scaled_keep_mask(torch.Size((5, 3, 6)), 0.3, torch.device("cpu"), torch.float64)
    monkeypatch.setattr(projection, "scaled_keep_mask", lambda *_: mask.clone())
    dense, norm = nn.Linear(4, 6).double(), nn.LayerNorm(6).double()
    nn.init.normal_(norm.weight)
    weight = torch.randn(5, 3, 6, dtype=torch.float64)
    results = []
    for function, dropout in (
        (projected_norm, Dropout(probability)), (plain, FixedMask(mask if probability else torch.ones(())))
    ):  # fmt: skip
        generator = torch.Generator().manual_seed(1)
        values = torch.randn(5, 3, 4, generator=generator, dtype=torch.float64, requires_grad=True)
        residual = torch.randn(5, 1, 6, generator=generator, dtype=torch.float64, requires_grad=True)
        leaves = [values, *dense.parameters(), *norm.parameters(), *([residual] if with_residual else [])]
        output = function(values, residual if with_residual else None, dense, dropout, norm)
        results.append([output, *torch.autograd.grad((output * weight).sum(), leaves)])
    for ours, expected in zip(*results):
        assert ours.shape == expected.shape and (ours - expected).abs().max() < 1e-12


def test_dropout_of_everything_and_none_in_evaluation() -> None:
    dense, norm, values = nn.Linear(4, 4), nn.LayerNorm(4), torch.randn(3, 4)
    everything = projected_norm(values, values, dense, Dropout(1.0), norm)
    assert torch.allclose(everything, norm(values))
    evaluated = projected_norm(values, values, dense, Dropout(0.9).eval(), norm)
    assert torch.allclose(evaluated, norm(dense(values) + values), atol=1e-6)
