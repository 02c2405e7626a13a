"""The one-pass lens against the naive form: one softmax per lens, as the equations are written."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from recbole_prism.model.layers.lens import (
    BOOST_FORMS,
    BOOST_NORMS,
    LENS_SCOPES,
    BoostSettings,
    _mixing_weights,
    boost_signal,
    lens_contexts,
)
from recbole_prism.model.layers.packed import visible_keys

N_LENSES, LENGTHS = 4, [1, 3, 6, 6]


def naive_lenses(
    logits: Tensor, values: Tensor, anchors: Tensor, visible: Tensor, beta: Tensor, settings: BoostSettings
) -> Tensor:
    """Double loop over queries and lenses; softmax over an explicit list of visible keys."""
    n_rows, n_heads, n_queries, _ = logits.shape
    out = torch.zeros(n_rows, n_heads, n_queries, N_LENSES, values.shape[-1], dtype=logits.dtype)
    for b, h, i, k in itertools.product(range(n_rows), range(n_heads), range(n_queries), range(N_LENSES)):
        keys = [j for j in range(logits.shape[-1]) if visible[b, 0, i, j]]
        group = [j for j in keys if anchors[b, j] == k]
        if settings.scope == "group":
            keys = group
        if not keys:
            continue
        row = logits[b, h, i]
        all_keys = [j for j in range(logits.shape[-1]) if visible[b, 0, i, j]]
        level = torch.stack([row[j] for j in all_keys]).mean() if settings.center else 0.0
        total = sum((row[j] - level for j in group), torch.zeros((), dtype=logits.dtype))
        count = {"visible": len(all_keys), "group": max(len(group), 1), "max_length": settings.max_length}[
            settings.norm
        ]
        signal = total / count
        boosted = []
        for j in keys:
            inside = 1.0 if j in group else 0.0
            gain = {
                "scaled": torch.exp(beta) * signal * inside,
                "exponential": torch.exp(beta * signal * inside),
                "exponential_group": torch.exp(beta * signal) * inside,
                "none": torch.zeros_like(signal),
            }[settings.form]
            boosted.append(row[j] + gain)
        weights = torch.softmax(torch.stack(boosted), dim=0)
        out[b, h, i, k] = sum(weight * values[b, h, j] for weight, j in zip(weights, keys))
    return out


def case(dtype: torch.dtype, spread: float, causal: bool, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Logits, values, anchors (group 3 stays empty), visibility with padding and a masked item in row 2."""
    generator = torch.Generator().manual_seed(seed)
    n_rows, width = len(LENGTHS), max(LENGTHS)
    logits = ((torch.rand(n_rows, 2, width, width, generator=generator, dtype=torch.float64) - 0.5) * 2 * spread).to(
        dtype
    )
    values = torch.randn(n_rows, 2, width, 3, generator=generator, dtype=torch.float64).to(dtype)
    anchors = torch.randint(0, N_LENSES - 1, (n_rows, width), generator=generator)
    keys = torch.arange(width) < torch.tensor(LENGTHS)[:, None]
    keys[2, 2] = False
    return logits, values, anchors, visible_keys(keys, causal=causal)


def contexts(
    logits: Tensor, values: Tensor, anchors: Tensor, visible: Tensor, beta: Tensor, settings: BoostSettings
) -> Tensor:
    return lens_contexts(logits, values, anchors, visible, beta, N_LENSES, settings, dropout=lambda weights: weights)


ALL = [
    BoostSettings(f, n, c, s, max_length=9)
    for f in BOOST_FORMS
    for n in BOOST_NORMS
    for c in (False, True)
    for s in LENS_SCOPES
]


@pytest.mark.parametrize("settings", ALL, ids=lambda s: f"{s.form}-{s.norm}-{s.center}-{s.scope}")
@pytest.mark.parametrize("causal", [True, False])
def test_equals_naive_in_float64(settings: BoostSettings, causal: bool) -> None:
    logits, values, anchors, visible = case(torch.float64, 2.0, causal)
    beta = torch.tensor(0.3, dtype=torch.float64)
    ours = contexts(logits, values, anchors, visible, beta, settings)
    naive = naive_lenses(logits, values, anchors, visible, beta, settings)
    assert (ours - naive).abs().max() < 1e-13


@pytest.mark.parametrize("settings", ALL[:: len(LENS_SCOPES)], ids=lambda s: f"{s.form}-{s.norm}-{s.center}")
def test_gradients_equal_naive(settings: BoostSettings) -> None:
    grads = []
    for function in (contexts, naive_lenses):
        logits, values, anchors, visible = case(torch.float64, 2.0, True)
        beta = torch.tensor(0.3, dtype=torch.float64)
        leaves = [logits.requires_grad_(), values.requires_grad_(), beta.requires_grad_()]
        out = function(logits, values, anchors, visible, beta, settings)
        weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
        grads.append(torch.autograd.grad((out * weight).sum(), leaves, allow_unused=True))
    for ours, naive in zip(*grads):
        ours = torch.zeros_like(naive) if ours is None and naive is not None else ours
        if naive is None:
            assert ours is None or ours.abs().max() == 0
        else:
            assert (ours - naive).abs().max() < 1e-11


@pytest.mark.parametrize("dtype,tolerance", [(torch.float32, 2e-4), (torch.float64, 1e-12)])
@pytest.mark.parametrize("beta", [-60.0, 0.0, 0.5])
def test_stable_for_large_logits_and_boosts(dtype: torch.dtype, tolerance: float, beta: float) -> None:
    """Logits up to +-60; with beta 0.5 the scaled boost reaches +-99. The float64 naive form is the reference."""
    settings = BoostSettings("scaled", "group")
    logits, values, anchors, visible = case(dtype, 60.0, True)
    ours = contexts(logits.requires_grad_(), values, anchors, visible, torch.tensor(beta, dtype=dtype), settings)
    naive = naive_lenses(logits.double(), values.double(), anchors, visible, torch.tensor(beta).double(), settings)
    assert torch.isfinite(ours).all()
    assert (ours.double() - naive).abs().max() < tolerance
    (grad,) = torch.autograd.grad(ours.sum(), [logits])
    assert torch.isfinite(grad).all()


def test_two_lenses_by_hand() -> None:
    """Logits (20, 0, 0), groups {1}, {2, 3}, centred group means S = 40/3 and -20/3, beta 0: lens 1 adds 40/3 to the
    first key, lens 2 takes 20/3 from the other two. With unit vectors as values the contexts are the weights."""
    logits = torch.tensor([20.0, 0.0, 0.0]).view(1, 1, 1, 3)
    visible = torch.ones(1, 1, 1, 3, dtype=torch.bool)
    settings = BoostSettings("scaled", "group", center=True)
    out = contexts(logits, torch.eye(3).view(1, 1, 3, 3), torch.tensor([[0, 1, 1]]), visible, torch.zeros(()), settings)
    assert torch.allclose(out[0, 0, 0, 0], torch.softmax(torch.tensor([20.0 + 40 / 3, 0.0, 0.0]), 0))
    assert torch.allclose(out[0, 0, 0, 1], torch.softmax(torch.tensor([20.0, -20 / 3, -20 / 3]), 0))


def test_a_strong_group_that_its_lens_cuts_away() -> None:
    """Boost -20 on a key 20 above the others levels all three; sums of differences would be 0 / 0 in float32."""
    levels = torch.tensor([20.0, math.log(2.0)])  # one key of logit 20, two of logit 0
    weights = _mixing_weights(levels, torch.tensor([-20.0, 0.0]))[0]
    assert torch.allclose(weights, torch.tensor([1 / 3, 2 / 3]))


def test_boost_signal_by_hand() -> None:
    """Two visible keys of group 0 (1, 3), one of group 1 (5), one invisible (100)."""
    logits = torch.tensor([1.0, 3.0, 5.0, 100.0]).view(1, 1, 1, 4)
    groups = torch.nn.functional.one_hot(torch.tensor([[0, 0, 1, 1]]), 2).float()
    visible = torch.tensor([True, True, True, False]).view(1, 1, 1, 4)
    signal = {
        norm: boost_signal(logits, groups, visible, BoostSettings(norm=norm, max_length=8)) for norm in BOOST_NORMS
    }
    assert torch.allclose(signal["visible"].flatten(), torch.tensor([4 / 3, 5 / 3]))
    assert torch.allclose(signal["group"].flatten(), torch.tensor([2.0, 5.0]))
    assert torch.allclose(signal["max_length"].flatten(), torch.tensor([0.5, 0.625]))
    centred = boost_signal(logits, groups, visible, BoostSettings(norm="group", center=True))
    assert torch.allclose(centred.flatten(), torch.tensor([-1.0, 2.0]))


def test_without_boost_all_lenses_are_the_plain_softmax() -> None:
    logits, values, anchors, visible = case(torch.float64, 2.0, True)
    out = contexts(logits, values, anchors, visible, torch.zeros((), dtype=torch.float64), BoostSettings("none"))
    plain = torch.softmax(logits.masked_fill(~visible, float("-inf")), -1).nan_to_num(0.0) @ values
    assert (out - plain[:, :, :, None]).abs().max() < 1e-14


def test_unknown_choice_is_refused() -> None:
    with pytest.raises(ValueError, match="is not one of"):
        BoostSettings(form="scale")
