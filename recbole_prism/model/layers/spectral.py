"""Spectra of histories over a fixed window of T steps: learnable filter, amplitudes, removal of bins.

Notation: B rows, w <= T positions of a batch, d width, F = floor(T / 2) + 1 bins, N valid tokens, S packed sequences.
Bins belong to one window length T, so a narrower batch counts as padded with zeros to T. For packed tokens nothing is
padded: a filter over T steps is a circular convolution, whose rows and columns of valid positions are taken.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from recbole_prism.model.layers.dropout import Dropout
from recbole_prism.model.layers.feed_forward import FeedForward
from recbole_prism.model.layers.packed import Packed

MASK_MODES = ("random", "low", "high")


def n_bins(window: int) -> int:
    """F, the number of frequencies of `window` real steps."""
    return window // 2 + 1


def _distances(width: int, window: int, device: torch.device) -> Tensor:
    """[w, w] (i - j) mod T: which entry of a kernel leads from position j to position i."""
    steps = torch.arange(width, device=device)
    return (steps[:, None] - steps) % window


class FrequencyFilterLayer(nn.Module):
    """A = LayerNorm(U + dropout(filtered U)), then a feed-forward block (FMLP-Rec's layer); not causal.

    Args:
        window: T.
        hidden_size: d.
        inner_size: Width inside the feed-forward block.
        hidden_dropout_prob: Dropout of the filtered input and of the feed-forward block.
        hidden_act: Activation of the feed-forward block.
        layer_norm_eps: Epsilon of the LayerNorms.
        initializer_range: Standard deviation of the filter's initial real and imaginary parts.
    """

    def __init__(
        self,
        window: int,
        hidden_size: int,
        inner_size: int,
        hidden_dropout_prob: float,
        hidden_act: str,
        layer_norm_eps: float,
        initializer_range: float,
    ) -> None:
        super().__init__()
        self.window = window
        self.complex_weight = nn.Parameter(torch.randn(1, n_bins(window), hidden_size, 2) * initializer_range)
        self.LayerNorm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.out_dropout = Dropout(hidden_dropout_prob)
        self.feed_forward = FeedForward(hidden_size, inner_size, hidden_dropout_prob, hidden_act, layer_norm_eps)

    def forward(self, hidden: Tensor, valid: Tensor) -> Tensor:
        """Padded batch [B, w, d] with valid [B, w] bool -> [B, w, d]."""
        return self._around(self.filtered(hidden, valid), hidden)

    def packed(self, hidden: Tensor, batch: Packed) -> Tensor:
        """Packed tokens [N, d] -> [N, d]."""
        kernel, width = self.kernel(), batch.groups[-1].width  # the last group is the widest
        places = _distances(width, self.window, hidden.device)
        circulant = kernel.T.index_select(1, places.flatten()).view(-1, width, width)  # [d, w, w]
        parts = []
        for group, tokens in zip(batch.groups, batch.split(hidden)):
            block = group.pad(tokens).permute(2, 1, 0)  # [d, w, b]
            filtered = torch.bmm(circulant[:, : group.width, : group.width], block)
            parts.append(group.unpad(filtered.permute(2, 1, 0)))
        return self._around(torch.cat(parts), hidden)

    def packed_last(self, hidden: Tensor, batch: Packed) -> Tensor:
        """Packed tokens [N, d] -> [S, d] at each sequence's last position, in sorted order."""
        behind = batch.lengths.index_select(0, batch.sequences) - 1 - batch.positions
        parts = batch.split(hidden * self.kernel().index_select(0, behind))
        filtered = torch.cat([group.pad(part).sum(1) for group, part in zip(batch.groups, parts)])
        return self._around(filtered, hidden.index_select(0, batch.last_tokens))

    def filtered(self, hidden: Tensor, valid: Tensor) -> Tensor:
        """The filter alone, on a padded batch: [B, w, d] -> [B, w, d]."""
        spectrum = torch.fft.rfft(hidden * valid.unsqueeze(-1), n=self.window, dim=1, norm="ortho")
        spectrum = spectrum * torch.view_as_complex(self.complex_weight)
        return torch.fft.irfft(spectrum, n=self.window, dim=1, norm="ortho")[:, : hidden.shape[1]]

    def kernel(self) -> Tensor:
        """[T, d], what the filter convolves with: the same operation as `filtered` on all T steps."""
        return torch.fft.irfft(torch.view_as_complex(self.complex_weight)[0], n=self.window, dim=0)

    def _around(self, filtered: Tensor, hidden: Tensor) -> Tensor:
        return self.feed_forward(self.LayerNorm(hidden + self.out_dropout(filtered)))


def mean_amplitude(hidden: Tensor, valid: Tensor, lengths: Tensor, window: int) -> Tensor:
    """Amplitude spectrum of each row, averaged over its bins and divided by the root of the length.

    Args:
        hidden: [B, w, d].
        valid: [B, w] bool.
        lengths: [B].
        window: T.

    Returns:
        [B, d].
    """
    spectrum = torch.fft.rfft(hidden * valid.unsqueeze(-1), n=window, dim=1)
    return spectrum.abs().mean(1) / lengths.to(hidden.dtype).sqrt().unsqueeze(-1)


def packed_mean_amplitude(hidden: Tensor, batch: Packed, window: int) -> Tensor:
    """The same for packed tokens: [N, d] -> [S, d] in sorted order, by a discrete Fourier transform of valid steps."""
    width = batch.groups[-1].width
    turns = torch.arange(n_bins(window), device=hidden.device)[:, None] * torch.arange(width, device=hidden.device)
    angles = (turns % window).to(hidden.dtype) * (-2 * math.pi / window)  # [F, w]
    waves = torch.cat([angles.cos(), angles.sin()])
    parts = []
    for group, tokens in zip(batch.groups, batch.split(hidden)):
        real, imaginary = torch.matmul(waves[:, : group.width], group.pad(tokens)).chunk(2, dim=1)
        parts.append(torch.complex(real, imaginary).abs().mean(1))
    return torch.cat(parts) / batch.lengths[batch.order].to(hidden.dtype).sqrt().unsqueeze(-1)


def kept_bins(n_rows: int, window: int, ratio: float, mode: str, device: torch.device) -> Tensor:
    """Which bins of each row survive a perturbation; bin 0 always does.

    Args:
        n_rows: B.
        window: T.
        ratio: Probability that a bin is dropped (`random`), or share of bins in the dropped band (`low`, `high`).
        mode: One of `MASK_MODES`.
        device: Where the draws are made.

    Returns:
        [B, F] bool.

    Raises:
        ValueError: On an unknown mode.
    """
    if mode not in MASK_MODES:
        raise ValueError(f"mode must be one of {MASK_MODES}, got {mode!r}")
    n_others = n_bins(window) - 1
    if mode == "random":
        kept = torch.rand(n_rows, n_others, device=device) >= ratio
    else:
        n_dropped, bins = round(ratio * n_others), torch.arange(n_others, device=device)
        kept = (bins >= n_dropped if mode == "low" else bins < n_others - n_dropped).expand(n_rows, -1)
    return torch.cat([kept.new_ones(n_rows, 1), kept], dim=1)


def without_bins(hidden: Tensor, valid: Tensor, kept: Tensor, window: int) -> Tensor:
    """Rows [B, w, d] without the bins that `kept` [B, F] leaves out; zero outside valid [B, w]."""
    mask = valid.unsqueeze(-1)
    spectrum = torch.fft.rfft(hidden * mask, n=window, dim=1) * kept.unsqueeze(-1)
    return torch.fft.irfft(spectrum, n=window, dim=1)[:, : hidden.shape[1]] * mask


def packed_without_bins(hidden: Tensor, batch: Packed, kept: Tensor, window: int) -> Tensor:
    """The same for packed tokens [N, d] -> [N, d]; `kept` [S, F] in original order."""
    kernels = torch.fft.irfft(kept.to(hidden.dtype), n=window, dim=1).index_select(0, batch.order)  # [S, T]
    parts = []
    for group, tokens in zip(batch.groups, batch.split(hidden)):
        places = _distances(group.width, window, hidden.device)
        circulant = kernels[group.rows].index_select(1, places.flatten()).unflatten(1, places.shape)  # [b, w, w]
        parts.append(group.unpad(torch.bmm(circulant, group.pad(tokens))))
    return torch.cat(parts)
