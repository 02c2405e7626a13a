"""A transformer layer whose attention is calibrated (AC-TSR): packed, packed at the last position, and padded.

Notation: B rows, T maximum length, d width, H heads, N packed tokens, S packed sequences, b rows and w keys of a block.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Optional

import torch
from torch import Tensor, nn

from recbole_prism.model.layers.attention import MultiHeadAttention
from recbole_prism.model.layers.calibration import (
    AdversarialCalibrator,
    SpatialCalibrator,
    mask_gain,
    perturb,
)
from recbole_prism.model.layers.encoder import TransformerLayer
from recbole_prism.model.layers.packed import Packed, take_distinct_rows


class Block(NamedTuple):
    """Attention maps of a block of queries.

    Attributes:
        logits: [b, H, q, w] raw logits, spatial errors included.
        attention: [b, H, q, w] A, their softmax over visible keys after dropout.
        weights: [b, H, q, w] A_fin, the attention that is used; A itself without the adversarial calibrator.
    """

    logits: Tensor
    attention: Tensor
    weights: Tensor


class PaddedPass(NamedTuple):
    """What a layer computes for a padded batch.

    Attributes:
        output: [B, w, d].
        block: Attention maps of all queries.
        mask: [B, H, w, w] M; None without the adversarial calibrator.
        bias: [B, 1, w, w] additive visibility mask.
        value: [B, w, d] projected values.
    """

    output: Tensor
    block: Block
    mask: Optional[Tensor]
    bias: Tensor
    value: Tensor


class AttackedPass(NamedTuple):
    """What the last layer computes in training, per row.

    Attributes:
        output: [S, d] calibrated branch at the last position.
        perturbed: [S, d] perturbed branch at the last position.
        gain: Scalar, sum of `mask_gain` over the layer's queries.
    """

    output: Tensor
    perturbed: Tensor
    gain: Tensor


class LayerCalibrator(nn.Module):
    """The calibrators of one layer; without any of them the layer itself, number for number.

    Args:
        head_size: D = d / H.
        hidden_size: d.
        max_length: T.
        use_order: With the order error.
        use_distance: With the distance error.
        use_adversarial: With the adversarial calibrator.
        combine_option: See `AdversarialCalibrator`.
    """

    def __init__(
        self,
        head_size: int,
        hidden_size: int,
        max_length: int,
        use_order: bool,
        use_distance: bool,
        use_adversarial: bool,
        combine_option: str,
    ) -> None:
        super().__init__()
        self.spatial = SpatialCalibrator(head_size, use_order, use_distance) if use_order or use_distance else None
        self.adversarial = AdversarialCalibrator(hidden_size, max_length, combine_option) if use_adversarial else None

    def block(
        self,
        attention: MultiHeadAttention,
        query: Tensor,
        key: Tensor,
        positions: Tensor,
        bias: Tensor,
        mask: Optional[Tensor],
    ) -> Block:
        """Attention maps of a block of queries.

        Args:
            attention: The layer's attention.
            query: [b, q, d] projected queries.
            key: [b, w, d] projected keys.
            positions: [b or 1, q] position of each query.
            bias: [b, 1, q, w] additive visibility mask.
            mask: [b, H, q, w] M; None without the adversarial calibrator.
        """
        query_heads, key_heads = attention.heads(query), attention.heads(key)
        logits = attention.logits(query_heads, key_heads)
        if self.spatial is not None:
            logits = logits + self.spatial(query_heads, key_heads, positions) / math.sqrt(attention.head_size)
        spread = attention.attn_dropout(torch.softmax(logits + bias, dim=-1))
        if self.adversarial is None or mask is None:
            return Block(logits, spread, spread)
        return Block(logits, spread, self.adversarial.calibrate(spread, mask, query, bias))

    # ---- packed tokens

    def packed(self, layer: TransformerLayer, hidden: Tensor, batch: Packed) -> tuple[Tensor, Tensor]:
        """All positions: [N, d] -> output [N, d] and, in training, the summed `mask_gain` (else 0)."""
        attention = layer.multi_head_attention
        contexts, gain = [], hidden.new_zeros(())
        for group, tokens in zip(batch.groups, batch.split(self._projected(attention, hidden))):
            query, key, value, *attack = group.pad(tokens).split(hidden.shape[-1], dim=-1)
            bias = hiding_bias(group.visible, hidden.dtype)
            mask = self._mask(attention, attack, bias)
            if mask is not None and self.training:
                gain = gain + group.unpad(mask_gain(mask)).sum()
            weights = self.block(attention, query, key, _positions(key), bias, mask).weights
            contexts.append(group.unpad(_context(attention, weights, value)))
        return layer.feed_forward(attention.output(torch.cat(contexts), hidden)), gain

    def packed_last(self, layer: TransformerLayer, hidden: Tensor, batch: Packed) -> Tensor:
        """Last position of each sequence only: [N, d] -> [S, d], in sorted order."""
        attention = layer.multi_head_attention
        last = hidden.index_select(0, batch.last_tokens)
        positions = (batch.lengths - 1)[batch.order, None]
        queries, projected = attention.query(last), attention.projected(hidden, attention.key, attention.value)
        if self.adversarial is not None:
            attack_keys = self.adversarial.attack_key(projected[..., : hidden.shape[-1]])
            projected = torch.cat([projected, attack_keys], dim=-1)
        contexts = []
        for group, tokens in zip(batch.groups, batch.split(projected)):
            key, value, *attack = group.pad(tokens).split(hidden.shape[-1], dim=-1)
            query, bias = queries[group.rows, None], hiding_bias(group.visible_to_last, hidden.dtype)
            if self.adversarial is not None:
                attack = [self.adversarial.attack_query(query), *attack]
            mask = self._mask(attention, attack, bias)
            weights = self.block(attention, query, key, positions[group.rows], bias, mask).weights
            contexts.append(_context(attention, weights, value).squeeze(1))
        return layer.feed_forward(attention.output(torch.cat(contexts), last))

    def packed_attacked(self, layer: TransformerLayer, hidden: Tensor, batch: Packed, noise: Tensor) -> AttackedPass:
        """Last layer in training: both branches at the last position, and the masks of all positions.

        Args:
            layer: The last layer.
            hidden: [N, d].
            batch: Their layout.
            noise: [S, H, T] standard normal numbers of the perturbed branch, in original order.

        Returns:
            The pass, in sorted order.
        """
        attention, adversarial = layer.multi_head_attention, self._required()
        last, positions = hidden.index_select(0, batch.last_tokens), (batch.lengths - 1)[batch.order, None]
        noise, contexts, perturbed, gain = noise[batch.order], [], [], hidden.new_zeros(())
        for group, tokens in zip(batch.groups, batch.split(self._projected(attention, hidden))):
            query, key, value, *attack = group.pad(tokens).split(hidden.shape[-1], dim=-1)
            mask = adversarial.mask(attention, attack[0], attack[1], hiding_bias(group.visible, hidden.dtype))
            gain = gain + group.unpad(mask_gain(mask)).sum()
            query = take_distinct_rows(query.flatten(0, 1), group.last)[:, None]
            mask = take_distinct_rows(mask.transpose(1, 2).flatten(0, 1), group.last)[:, :, None]
            bias = hiding_bias(group.visible_to_last, hidden.dtype)
            seen = self.block(attention, query, key, positions[group.rows], bias, mask)
            attacked = perturb(seen.attention, mask, noise[group.rows, :, None, : group.width], bias)
            contexts.append(_context(attention, seen.weights, value).squeeze(1))
            perturbed.append(_context(attention, attacked, value).squeeze(1))
        branches = attention.output(torch.cat(contexts + perturbed), torch.cat([last, last]))
        output, attacked = layer.feed_forward(branches).chunk(2)
        return AttackedPass(output, attacked, gain)

    # ---- padded batch

    def padded(self, layer: TransformerLayer, hidden: Tensor, visible: Tensor) -> PaddedPass:
        """All positions: [B, w, d] and visible [B, 1, w, w]."""
        attention = layer.multi_head_attention
        query, key, value = attention.query(hidden), attention.key(hidden), attention.value(hidden)
        attack = []
        if self.adversarial is not None:
            attack = [self.adversarial.attack_query(query), self.adversarial.attack_key(key)]
        bias = hiding_bias(visible, hidden.dtype)
        mask = self._mask(attention, attack, bias)
        block = self.block(attention, query, key, _positions(key), bias, mask)
        output = layer.feed_forward(attention.output(_context(attention, block.weights, value), hidden))
        return PaddedPass(output, block, mask, bias, value)

    # ---- parts

    def _projected(self, attention: MultiHeadAttention, hidden: Tensor) -> Tensor:
        """Query, key, value and, with the adversarial calibrator, attack query and attack key, side by side."""
        projected = attention.projected(hidden, attention.query, attention.key, attention.value)
        if self.adversarial is None:
            return projected
        query, key, _ = projected.chunk(3, dim=-1)
        return torch.cat([projected, self.adversarial.attack_query(query), self.adversarial.attack_key(key)], dim=-1)

    def _mask(self, attention: MultiHeadAttention, attack: list[Tensor], bias: Tensor) -> Optional[Tensor]:
        return None if self.adversarial is None else self.adversarial.mask(attention, attack[0], attack[1], bias)

    def _required(self) -> AdversarialCalibrator:
        if self.adversarial is None:
            raise ValueError("the perturbed branch needs the adversarial calibrator")
        return self.adversarial


def perturbed_last(layer: TransformerLayer, seen: PaddedPass, hidden: Tensor, last: Tensor, noise: Tensor) -> Tensor:
    """Perturbed branch of a padded batch at one position per row.

    Args:
        layer: The last layer.
        seen: What it computed from `hidden`, with masks.
        hidden: [B, w, d].
        last: [B] last position of each row.
        noise: [B, H, T] standard normal numbers.

    Returns:
        [B, d].

    Raises:
        ValueError: Without masks there is no perturbed branch.
    """
    if seen.mask is None:
        raise ValueError("the perturbed branch needs the adversarial calibrator")
    rows = torch.arange(last.shape[0], device=last.device)
    attention, mask, bias = (part[rows, :, last][:, :, None] for part in (seen.block.attention, seen.mask, seen.bias))
    attacked = perturb(attention, mask, noise[:, :, None, : hidden.shape[1]], bias)
    context = _context(layer.multi_head_attention, attacked, seen.value).squeeze(1)
    return layer.feed_forward(layer.multi_head_attention.output(context, hidden[rows, last]))


def hiding_bias(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """Additive attention mask: 0 where `visible` (bool) is True, elsewhere a number that no logit reaches.

    RecBole's -10000 gives the same softmax, until a distance error, which has no lower bound, falls below it.
    """
    return visible.to(dtype).sub_(1.0).mul_(1e30)


def _context(attention: MultiHeadAttention, weights: Tensor, value: Tensor) -> Tensor:
    """Weighted values: [b, H, q, w], [b, w, d] -> [b, q, d]."""
    return torch.matmul(weights, attention.heads(value)).transpose(1, 2).flatten(-2)


def _positions(key: Tensor) -> Tensor:
    """[1, w] positions of a block [b, w, d]."""
    return torch.arange(key.shape[1], device=key.device)[None]
