"""Two light encoders of a history, of equal size: a GRU without biases, and two short causal convolutions.

Notation: B rows, T positions, d width, N valid tokens, S packed sequences.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence

from recbole_prism.model.layers.dropout import Dropout
from recbole_prism.model.layers.packed import Packed

_KERNEL = 3


class RecurrentExpert(nn.Module):
    """LayerNorm(dropout(GRU(x))).

    Args:
        hidden_size: d.
        n_layers: GRU layers.
        dropout_prob: Dropout of the states.
        layer_norm_eps: Epsilon of the LayerNorm.
    """

    def __init__(self, hidden_size: int, n_layers: int, dropout_prob: float, layer_norm_eps: float) -> None:
        super().__init__()
        self.gru = nn.GRU(hidden_size, hidden_size, n_layers, bias=False, batch_first=True)
        for weight in self.gru.parameters():
            nn.init.xavier_uniform_(weight)
        self.dropout = Dropout(dropout_prob)
        self.LayerNorm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)

    def forward(self, hidden: Tensor) -> Tensor:
        """Padded batch [B, T, d] -> [B, T, d]."""
        return self.LayerNorm(self.dropout(self.gru(hidden)[0]))

    def packed_last(self, hidden: Tensor, batch: Packed) -> Tensor:
        """Packed tokens [N, d] -> [S, d] at each sequence's last position, in sorted order."""
        n_sequences = batch.order.shape[0]
        rank = n_sequences - 1 - torch.argsort(batch.order)  # longest first, as torch wants it
        by_step = torch.argsort(batch.positions * n_sequences + rank[batch.sequences])
        longest = int(batch.host_lengths.max())
        running = (batch.host_lengths[:, None] > np.arange(longest)).sum(0)  # sequences that still go on
        steps = PackedSequence(hidden.index_select(0, by_step), torch.as_tensor(running, dtype=torch.int64))
        return self.LayerNorm(self.dropout(self.gru(steps)[1][-1].flip(0)))


class ConvolutionExpert(nn.Module):
    """dropout(conv(gelu(conv(x)))) with causal convolutions of width 3.

    Args:
        hidden_size: d.
        dropout_prob: Dropout of the output.
    """

    def __init__(self, hidden_size: int, dropout_prob: float) -> None:
        super().__init__()
        self.conv_1 = nn.Conv1d(hidden_size, hidden_size, _KERNEL)
        self.conv_2 = nn.Conv1d(hidden_size, hidden_size, _KERNEL)
        self.dropout = Dropout(dropout_prob)

    def forward(self, hidden: Tensor) -> Tensor:
        """Padded batch [B, T, d] -> [B, T, d]."""
        before = (_KERNEL - 1, 0)
        inner = functional.gelu(self.conv_1(functional.pad(hidden.transpose(1, 2), before)))
        return self.dropout(self.conv_2(functional.pad(inner, before)).transpose(1, 2))

    def packed_last(self, hidden: Tensor, batch: Packed) -> Tensor:
        """Packed tokens [N, d] -> [S, d] at each sequence's last position, in sorted order, from its last five."""
        n_seen = 2 * _KERNEL - 1
        back = torch.arange(n_seen - 1, -1, -1, device=hidden.device)  # 4, 3, 2, 1, 0 steps behind the last one
        exists = batch.lengths[batch.order].unsqueeze(-1) > back  # [S, 5]
        places = (batch.last_tokens.unsqueeze(-1) - back).clamp(min=0)
        window = hidden.index_select(0, places.flatten()).view(*places.shape, -1) * exists.unsqueeze(-1)
        inner = functional.gelu(self.conv_1(window.transpose(1, 2)))  # [S, d, 3]
        return self.dropout(self.conv_2(inner * exists[:, None, _KERNEL - 1 :]).squeeze(-1))
