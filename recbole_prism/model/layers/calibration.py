"""The two attention calibrators of AC-TSR, spatial and adversarial.

Notation: b rows, q queries, w keys (width of the block), T maximum length, d width, H heads, D = d / H. Attention is
causal: a visible key never stands behind its query.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from recbole_prism.model.layers.attention import MultiHeadAttention

ANNEALING_STEPS = 100_000.0
FIXED_SHARE = 0.5


class SpatialCalibrator(nn.Module):
    """Errors added to the attention logits: is a key on the expected side of the query, and at the expected distance?

    The maps act on the concatenation of a head's query and key, computed in two halves, and are shared by all heads.

    Args:
        head_size: D.
        use_order: With the order error.
        use_distance: With the distance error.
    """

    def __init__(self, head_size: int, use_order: bool, use_distance: bool) -> None:
        super().__init__()
        self.order = nn.Linear(2 * head_size, 1) if use_order else None
        self.distance = nn.Linear(2 * head_size, 1) if use_distance else None
        self.distance_scale = nn.Parameter(torch.randn(1)) if use_distance else None

    def forward(self, query: Tensor, key: Tensor, positions: Tensor) -> Tensor:
        """Sum of the errors, meant for the logits before their division by sqrt(D).

        Args:
            query: [b, H, q, D].
            key: [b, H, w, D], of positions 0 .. w - 1.
            positions: [b or 1, q] position of each query.

        Returns:
            [b, H, q, w], right for keys that do not stand behind the query.
        """
        errors = query.new_zeros(())
        if self.order is not None:
            errors = errors + functional.logsigmoid(-pair_map(self.order, query, key))
        if self.distance is not None and self.distance_scale is not None:
            keys = torch.arange(key.shape[-2], device=key.device)
            distance = torch.log1p((positions[..., None] - keys).abs().to(key.dtype))[:, None]  # [b or 1, 1, q, w]
            surprise = distance - pair_map(self.distance, query, key)
            errors = errors - self.distance_scale.square() * surprise.square() / 2
        return errors


def pair_map(linear: nn.Linear, query: Tensor, key: Tensor) -> Tensor:
    """`linear([query_i ; key_j])` for all pairs: [b, H, q, D], [b, H, w, D] -> [b, H, q, w]; 2 D -> 1."""
    to_query, to_key = linear.weight[0].chunk(2)
    return (torch.matmul(query, to_query) + linear.bias)[..., :, None] + torch.matmul(key, to_key)[..., None, :]


class AdversarialCalibrator(nn.Module):
    """Masks that are trained to hurt the prediction, and an attention that is raised where they do.

    Args:
        hidden_size: d.
        max_length: T.
        combine_option: How A and A_cal become A_fin: `gate`, G A + (1 - G) A_cal with a gate per query and absolute key
            position; `fixed`, A + 0.5 A_cal; `annealing`, from A to A_cal within some 100,000 training steps.
    """

    steps: Tensor

    def __init__(self, hidden_size: int, max_length: int, combine_option: str) -> None:
        super().__init__()
        self.max_length = max_length
        self.combine_option = combine_option
        self.attack_query = nn.Linear(hidden_size, hidden_size)
        self.attack_key = nn.Linear(hidden_size, hidden_size)
        self.gate = nn.Linear(hidden_size, max_length) if combine_option == "gate" else None
        if combine_option == "annealing":
            self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def count_step(self) -> None:
        """Note a training step, on which `annealing` depends."""
        if self.training and self.combine_option == "annealing":
            self.steps += 1

    def mask(self, attention: MultiHeadAttention, query: Tensor, key: Tensor, bias: Tensor) -> Tensor:
        """M: attention of the attack's own projections, after dropout.

        Args:
            attention: The layer's attention.
            query: [b, q, d] projected queries, projected again by `attack_query`.
            key: [b, w, d] projected keys, projected again by `attack_key`.
            bias: [b, 1, q, w] additive visibility mask.

        Returns:
            [b, H, q, w], 0 at hidden keys.
        """
        logits = attention.logits(attention.heads(query), attention.heads(key))
        return attention.attn_dropout(torch.softmax(logits + bias, dim=-1))

    def calibrate(self, attention: Tensor, mask: Tensor, query: Tensor, bias: Tensor) -> Tensor:
        """A_fin from A and M.

        Args:
            attention: [b, H, q, w] A.
            mask: [b, H, q, w] M.
            query: [b, q, d] projected queries.
            bias: [b, 1, q, w] additive visibility mask.
        """
        raised = attention * torch.exp(1.0 - mask)
        if self.combine_option == "fixed":
            mixed = attention + FIXED_SHARE * self._softmax_to_max_length(raised)
        else:
            calibrated = torch.softmax(raised + bias, dim=-1)
            mixed = calibrated + self._share(query, attention) * (attention - calibrated)
        return torch.softmax(mixed + bias, dim=-1)

    def _share(self, query: Tensor, attention: Tensor) -> Tensor:
        """Share of A in the mixture: [b, 1, q, w] by the gate, [] by annealing."""
        if self.gate is None:
            return torch.exp(-self.steps.to(attention.dtype) / ANNEALING_STEPS)
        width = attention.shape[-1]
        return torch.sigmoid(functional.linear(query, self.gate.weight[:width], self.gate.bias[:width]))[:, None]

    def _softmax_to_max_length(self, raised: Tensor) -> Tensor:
        """Softmax over T keys without a visibility mask: hidden keys, those cut off by the width too, count exp(0)."""
        top = raised.detach().amax(dim=-1, keepdim=True)  # >= 0
        parts = torch.exp(raised - top)
        cut_off = (self.max_length - raised.shape[-1]) * torch.exp(-top)
        return parts / (parts.sum(dim=-1, keepdim=True) + cut_off)


def perturb(attention: Tensor, mask: Tensor, noise: Tensor, bias: Tensor) -> Tensor:
    """A_att: where M is small, attention gives way to noise. All [b, H, q, w], `bias` [b, 1, q, w]."""
    return torch.softmax(attention * mask + noise * (1.0 - mask) + bias, dim=-1)


def mask_gain(mask: Tensor) -> Tensor:
    """Sum over heads and keys of (1 - M)^2 - 1, per query: [b, H, q, w] -> [b, q]; a hidden key adds 0."""
    return (mask * (mask - 2.0)).sum(dim=(1, 3))


def mask_norm(gain: Tensor, n_rows: int, n_heads: int, max_length: int) -> Tensor:
    """Frobenius norm of 1 - M over n_rows x H x T x T entries, whatever the width that was computed.

    Entries of hidden keys, of padded queries and of positions that a shorter width cut off have M = 0: each adds 1
    under the root.

    Args:
        gain: Sum of `mask_gain` over all valid queries, a scalar.
        n_rows: B.
        n_heads: H.
        max_length: T.
    """
    return torch.sqrt(gain + float(n_rows * n_heads * max_length**2))
