"""The selective scan of a state-space layer (Gu and Dao, "Mamba", 2023), in plain PyTorch and bounded memory.

Notation: B rows, T steps, C channels, S states per channel. With step sizes delta > 0, inputs u = delta * x, input
vectors b, output vectors c and decay rates a > 0 (the paper's -A):

    state_t = exp(-delta_t a) * state_{t-1} + u_t b_t,   y_t = <state_t, c_t>,   state_0 = 0

Unrolled, y_t = sum over i <= t of u_i * sum over s of exp(-a_s (delta_{i+1} + ... + delta_t)) b_i,s c_t,s: where one
step is read only, nothing has to be done in sequence. Neither form keeps a [C, S] tensor per step for the backward
pass: decays and states are computed anew there, some rows at a time.
"""

from __future__ import annotations

import math
from typing import Any, Iterator, Optional

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_SCAN_CELLS = 8_000_000  # states [rows, T, C, S] kept at a time by the backward pass of the scan: 32 MB in fp32
_DECAY_CELLS = 200_000  # decays [tokens, C, S] handled at a time, near the cache
# A decay below 2^-100 is held there: nothing in a sum, but no denormal number, which is slow to compute with.
_SMALLEST_EXPONENT = -100.0
_LN_2 = math.log(2.0)


# Below, rates are [S, C], negative and in units of ln 2 (exp2 is the fastest kernel), and so are decays and states.


def _decay(delta: Tensor, rates: Tensor, out: Tensor) -> Tensor:
    """2^(delta rates) into `out` [n, S, C]; delta [n, C]."""
    torch.mul(delta.unsqueeze(1), rates, out=out)
    return out.clamp_(min=_SMALLEST_EXPONENT).exp2_()


class _Scan(torch.autograd.Function):
    """Steps in sequence, for a block of rows at a time."""

    @staticmethod
    def forward(ctx: Any, delta: Tensor, u: Tensor, rates: Tensor, b: Tensor, c: Tensor) -> Tensor:
        ctx.save_for_backward(delta, u, rates, b, c)
        output = torch.empty_like(u)
        block = max(1, _DECAY_CELLS // rates.numel())
        for start in range(0, u.shape[0], block):
            rows = slice(start, start + block)
            state = u.new_zeros(u[rows].shape[0], *rates.shape)
            decay = torch.empty_like(state)
            for t in range(u.shape[1]):
                state.mul_(_decay(delta[rows, t], rates, decay))
                state.addcmul_(b[rows, t].unsqueeze(-1), u[rows, t].unsqueeze(1))
                output[rows, t] = torch.bmm(c[rows, t].unsqueeze(1), state).squeeze(1)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Optional[Tensor], ...]:
        delta, u, rates, b, c = ctx.saved_tensors
        to_rates = torch.zeros_like(rates)
        to_delta, to_u, to_b, to_c = (torch.empty_like(part) for part in (delta, u, b, c))
        block = max(1, _SCAN_CELLS // (u.shape[1] * rates.numel()))
        for start in range(0, u.shape[0], block):
            rows = slice(start, start + block)
            states = _states(delta[rows], u[rows], rates, b[rows])
            to_state, decay = torch.zeros_like(states[0]), torch.empty_like(states[0])
            for t in reversed(range(u.shape[1])):
                to_output = grad[rows, t].unsqueeze(1)
                to_state.addcmul_(c[rows, t].unsqueeze(-1), to_output)
                to_u[rows, t] = torch.bmm(b[rows, t].unsqueeze(1), to_state).squeeze(1)
                to_b[rows, t] = torch.mul(to_state, u[rows, t].unsqueeze(1), out=decay).sum(-1)
                to_c[rows, t] = states[t + 1].mul_(to_output).sum(-1)  # not read again
                to_state.mul_(_decay(delta[rows, t], rates, decay))
                exponent = torch.mul(states[t], to_state, out=decay).mul_(_LN_2)
                to_delta[rows, t] = torch.mul(exponent, rates, out=states[t + 1]).sum(1)
                to_rates += exponent.mul_(delta[rows, t].unsqueeze(1)).sum(0)
        return to_delta, to_u, to_rates, to_b, to_c


def _states(delta: Tensor, u: Tensor, rates: Tensor, b: Tensor) -> Tensor:
    """Every state of some rows, the empty one first: [T + 1, rows, S, C]."""
    states = u.new_zeros(u.shape[1] + 1, u.shape[0], *rates.shape)
    for t in range(u.shape[1]):
        decay = _decay(delta[:, t], rates, states[t + 1])
        decay.mul_(states[t]).addcmul_(b[:, t].unsqueeze(-1), u[:, t].unsqueeze(1))
    return states


class _DecayedProduct(torch.autograd.Function):
    """weight[n, c] = sum over s of 2^(elapsed[n, c] rates[s, c]) gate[n, s]."""

    @staticmethod
    def forward(ctx: Any, elapsed: Tensor, rates: Tensor, gate: Tensor) -> Tensor:
        ctx.save_for_backward(elapsed, rates, gate)
        weights = torch.empty_like(elapsed)
        for tokens, buffer in _token_chunks(elapsed, rates, n_buffers=1):
            decay = _decay(elapsed[tokens], rates, buffer)
            weights[tokens] = torch.bmm(gate[tokens].unsqueeze(1), decay).squeeze(1)
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Optional[Tensor], ...]:
        elapsed, rates, gate = ctx.saved_tensors
        to_elapsed, to_rates, to_gate = torch.empty_like(elapsed), torch.zeros_like(rates), torch.empty_like(gate)
        for tokens, buffer, spare in _token_chunks(elapsed, rates, n_buffers=2):
            product = _decay(elapsed[tokens], rates, buffer).mul_(grad[tokens].unsqueeze(1))
            torch.sum(product, -1, out=to_gate[tokens])
            exponent = product.mul_((gate[tokens] * _LN_2).unsqueeze(-1))
            torch.sum(torch.mul(exponent, rates, out=spare), 1, out=to_elapsed[tokens])
            to_rates += exponent.mul_(elapsed[tokens].unsqueeze(1)).sum(0)
        return to_elapsed, to_rates, to_gate


def _token_chunks(elapsed: Tensor, rates: Tensor, n_buffers: int) -> Iterator[tuple[Any, ...]]:
    """Runs of tokens with buffers [n, S, C] for each; every run gets the same memory."""
    n_tokens = elapsed.shape[0]
    chunk = max(1, _DECAY_CELLS // rates.numel())
    buffers = elapsed.new_empty(n_buffers, min(chunk, n_tokens), *rates.shape)
    for start in range(0, n_tokens, chunk):
        yield (slice(start, min(start + chunk, n_tokens)), *(buffer[: n_tokens - start] for buffer in buffers))


def selective_scan(delta: Tensor, u: Tensor, rates: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Outputs y of every step.

    Args:
        delta: [B, T, C] step sizes, >= 0.
        u: [B, T, C] inputs, already multiplied by their step sizes.
        rates: [C, S] decay rates a > 0.
        b: [B, T, S] input vectors.
        c: [B, T, S] output vectors.

    Returns:
        [B, T, C]; step t depends on the steps up to t only, so padding on the right changes nothing in front of it.
    """
    return _Scan.apply(delta, u, rates.T / -_LN_2, b, c)


def decayed_product(elapsed: Tensor, rates: Tensor, gate: Tensor) -> Tensor:
    """Weight of each input in the output of a later step: sum over s of exp(-elapsed a_s) b_s c_s.

    Args:
        elapsed: [N, C] sum of the step sizes behind each input, up to the step whose output is wanted.
        rates: [C, S] decay rates a > 0.
        gate: [N, S] b of the input times c of the step whose output is wanted.

    Returns:
        [N, C]; the output is the sum of these weights times u.
    """
    return _DecayedProduct.apply(elapsed, rates.T / -_LN_2, gate)
