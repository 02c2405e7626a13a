"""Selective state-space layers (Mamba-1) over packed tokens or a padded batch, in plain PyTorch.

Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", 2023. Notation: B rows, T positions, d
width, C = expand * d channels, N valid tokens, S packed sequences. A layer is causal, so padding on the right never
reaches a valid position.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from recbole_prism.model.functional.selective_scan import decayed_product, selective_scan
from recbole_prism.model.layers.dropout import Dropout
from recbole_prism.model.layers.packed import Packed

_SMALLEST_STEP, _LARGEST_STEP = 1e-3, 1e-1  # Mamba's initial step sizes


class StateSpaceBlock(nn.Module):
    """Gated projection, short causal convolution and selective scan; parameter names are Mamba's.

    Args:
        hidden_size: d.
        d_state: States per channel.
        d_conv: Width of the convolution.
        expand: C / d.
    """

    def __init__(self, hidden_size: int, d_state: int, d_conv: int, expand: int) -> None:
        super().__init__()
        self.n_channels, self.d_state = expand * hidden_size, d_state
        self.rank = math.ceil(hidden_size / 16)
        self.in_proj = nn.Linear(hidden_size, 2 * self.n_channels, bias=False)
        self.conv1d = nn.Conv1d(self.n_channels, self.n_channels, d_conv, groups=self.n_channels, padding=d_conv - 1)
        self.x_proj = nn.Linear(self.n_channels, self.rank + 2 * d_state, bias=False)
        self.dt_proj = nn.Linear(self.rank, self.n_channels)
        self.A_log = nn.Parameter(torch.arange(1.0, d_state + 1).log().repeat(self.n_channels, 1))
        self.D = nn.Parameter(torch.ones(self.n_channels))
        self.out_proj = nn.Linear(self.n_channels, hidden_size, bias=False)

    @torch.no_grad()
    def init_small_steps(self) -> None:
        """Biases that make the initial step sizes log-uniform in [0.001, 0.1], as in Mamba."""
        low, high = math.log(_SMALLEST_STEP), math.log(_LARGEST_STEP)
        steps = torch.empty_like(self.dt_proj.bias).uniform_(low, high).exp()
        self.dt_proj.bias.copy_(steps + torch.log(-torch.expm1(-steps)))  # softplus of it gives the steps

    def forward(self, hidden: Tensor) -> Tensor:
        """Padded batch [B, T, d] -> [B, T, d], step by step."""
        x, z = self.in_proj(hidden).chunk(2, dim=-1)
        x = functional.silu(self.conv1d(x.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        delta, b, c = self._selected(x)
        y = selective_scan(delta, delta * x, self.A_log.exp(), b, c)
        return self._output(y, x, z)

    def packed(self, hidden: Tensor, batch: Packed) -> Tensor:
        """Packed tokens [N, d] -> [N, d]: the scan runs per length group."""
        x, z = self.in_proj(hidden).chunk(2, dim=-1)
        x = functional.silu(self._packed_convolution(x, batch.positions))
        delta, b, c = self._selected(x)
        sizes, rates, outputs = [self.n_channels, self.n_channels, self.d_state, self.d_state], self.A_log.exp(), []
        for group, tokens in zip(batch.groups, batch.split(torch.cat([delta, delta * x, b, c], dim=-1))):
            steps, inputs, into, out_of = group.pad(tokens).split(sizes, dim=-1)
            outputs.append(group.unpad(selective_scan(steps, inputs, rates, into, out_of)))
        return self._output(torch.cat(outputs), x, z)

    def packed_last(self, hidden: Tensor, batch: Packed) -> Tensor:
        """Packed tokens [N, d] -> [S, d] at each sequence's last position, in sorted order; nothing is sequential."""
        to_x, to_z = self.in_proj.weight.chunk(2)
        x = functional.silu(self._packed_convolution(functional.linear(hidden, to_x), batch.positions))
        last_x = x.index_select(0, batch.last_tokens)
        z = functional.linear(hidden.index_select(0, batch.last_tokens), to_z)
        to_step, to_b, to_c = self.x_proj.weight.split([self.rank, self.d_state, self.d_state])
        delta = self._step_sizes(functional.linear(x, to_step))
        c = batch.to_row_order(functional.linear(last_x, to_c)).index_select(0, batch.sequences)
        weights = decayed_product(_elapsed(delta, batch), self.A_log.exp(), functional.linear(x, to_b) * c)
        parts = batch.split(weights * delta * x)
        y = torch.cat([group.pad(part).sum(1) for group, part in zip(batch.groups, parts)])
        return self._output(y, last_x, z)

    def _packed_convolution(self, x: Tensor, positions: Tensor) -> Tensor:
        """The causal convolution of [N, C]: a sum of shifted copies, zero in front of each sequence."""
        kernel = self.conv1d.weight.squeeze(1)  # [C, width]
        width = kernel.shape[1]
        output = x * kernel[:, -1] + cast(Tensor, self.conv1d.bias)
        for shift in range(1, width):
            earlier = functional.pad(x, (0, 0, shift, 0))[: x.shape[0]]
            output = output + torch.where((positions >= shift).unsqueeze(-1), earlier * kernel[:, -1 - shift], 0.0)
        return output

    def _selected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Step sizes [..., C], input and output vectors [..., d_state] of tokens [..., C]."""
        low_rank, b, c = self.x_proj(x).split([self.rank, self.d_state, self.d_state], dim=-1)
        return self._step_sizes(low_rank), b, c

    def _step_sizes(self, low_rank: Tensor) -> Tensor:
        return functional.softplus(self.dt_proj(low_rank))

    def _output(self, y: Tensor, x: Tensor, z: Tensor) -> Tensor:
        return self.out_proj((y + self.D * x) * functional.silu(z))


def _elapsed(delta: Tensor, batch: Packed) -> Tensor:
    """Sum of the step sizes behind each token, in its sequence: [N, C] -> [N, C]; 0 at the last one."""
    parts = []
    for group, tokens in zip(batch.groups, batch.split(delta)):
        from_the_end = group.pad(tokens).flip(1).cumsum(1)
        parts.append(group.unpad(functional.pad(from_the_end[:, :-1], (0, 0, 1, 0)).flip(1)))
    return torch.cat(parts)


class StateSpaceLayer(nn.Module):
    """LayerNorm(dropout(block(x)) + x); a single layer of a model has no residual connection (`residual`)."""

    def __init__(
        self,
        hidden_size: int,
        d_state: int,
        d_conv: int,
        expand: int,
        dropout_prob: float,
        layer_norm_eps: float,
        residual: bool,
    ) -> None:
        super().__init__()
        self.mamba = StateSpaceBlock(hidden_size, d_state, d_conv, expand)
        self.LayerNorm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.dropout = Dropout(dropout_prob)
        self.residual = residual

    def forward(self, hidden: Tensor) -> Tensor:
        """Padded batch [B, T, d] -> [B, T, d]."""
        return self._around(self.mamba(hidden), hidden)

    def packed(self, hidden: Tensor, batch: Packed) -> Tensor:
        """Packed tokens [N, d] -> [N, d]."""
        return self._around(self.mamba.packed(hidden, batch), hidden)

    def packed_last(self, hidden: Tensor, batch: Packed) -> Tensor:
        """Packed tokens [N, d] -> [S, d] at the last positions, in sorted order."""
        return self._around(self.mamba.packed_last(hidden, batch), hidden.index_select(0, batch.last_tokens))

    def _around(self, output: Tensor, hidden: Tensor) -> Tensor:
        output = self.dropout(output)
        return self.LayerNorm(output + hidden if self.residual else output)


class StateSpaceEncoder(nn.Module):
    """`n_layers` state-space layers.

    Args:
        n_layers: L >= 1.
        stacked: Each layer reads the one below. False, as in STAR-Rec's released code: every layer reads the input and
            the last one's output counts, so the others are never computed and get no gradient.
        hidden_size: d.
        d_state: States per channel.
        d_conv: Width of the convolution.
        expand: Channels / d.
        dropout_prob: Dropout of a layer's output.
        layer_norm_eps: Epsilon of the LayerNorms.
    """

    def __init__(
        self,
        n_layers: int,
        stacked: bool,
        hidden_size: int,
        d_state: int,
        d_conv: int,
        expand: int,
        dropout_prob: float,
        layer_norm_eps: float,
    ) -> None:
        super().__init__()
        settings = (hidden_size, d_state, d_conv, expand, dropout_prob, layer_norm_eps)
        self.layer = nn.ModuleList([StateSpaceLayer(*settings, residual=n_layers > 1) for _ in range(n_layers)])
        self.stacked = stacked

    @property
    def layers(self) -> list[StateSpaceLayer]:
        """The layers that are computed, from the input upwards."""
        layers = [layer for layer in self.layer if isinstance(layer, StateSpaceLayer)]
        return layers if self.stacked else layers[-1:]

    def forward(self, hidden: Tensor) -> Tensor:
        """Padded batch [B, T, d] -> [B, T, d]."""
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden

    def packed(self, hidden: Tensor, batch: Packed) -> Tensor:
        """Packed tokens [N, d] -> [N, d]."""
        for layer in self.layers:
            hidden = layer.packed(hidden, batch)
        return hidden

    def packed_last(self, hidden: Tensor, batch: Packed) -> Tensor:
        """Packed tokens [N, d] -> [S, d] at the last positions, in sorted order."""
        *below, last = self.layers
        for layer in below:
            hidden = layer.packed(hidden, batch)
        return last.packed_last(hidden, batch)
