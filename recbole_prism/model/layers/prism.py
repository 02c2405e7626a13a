"""The PRISM module: router, perspective lenses and their synthesis, between two layers of a transformer recommender.

Use `PrismLayer.forward` to put it into an encoder of your own (docs/plug_in.md); the models of this package call its
parts on packed tokens. Source: Kim et al., "From Overlooked to Explored", CIKM 2026, sections on the router, the lenses
and perspective synthesis; choices that the published text leaves open are arguments.

Shapes: B rows, T positions, H heads, d width, K lenses, N packed tokens.
"""

from __future__ import annotations

from typing import Iterator, Optional, Sequence

import torch
from torch import Tensor, nn

from recbole_prism.model.layers.dropout import Dropout
from recbole_prism.model.layers.feed_forward import FeedForward
from recbole_prism.model.layers.lens import BoostSettings, lens_contexts
from recbole_prism.model.layers.packed import Packed, visible_keys
from recbole_prism.model.layers.projection import projected_norm
from recbole_prism.model.layers.router import VIEWS, SemanticAnchorRouter, composition, primary_anchor, view_mask

LENS_VALUES = ("own", "layer", "hidden")


class PrismLayer(nn.Module):
    """Mixture of perspectives over the attention map of the layer below.

    Args:
        n_lenses: K, semantic groups = perspective lenses.
        n_heads: H of the layer below.
        hidden_size: d.
        inner_size: Inner width of the feed-forward block.
        hidden_dropout_prob: Dropout of the output projection and the feed-forward block.
        attn_dropout_prob: Dropout of the lens weights.
        hidden_act: Activation of the feed-forward block.
        layer_norm_eps: Epsilon of the LayerNorms.
        boost: Form of the relational boost; None: the defaults of `BoostSettings`.
        lens_value: What the lenses average: `own` projection, the values of the `layer` below, or `hidden` itself.
        lens_residual: Add the input to the lens outputs before their LayerNorm.
        views: `both`, or one of the ablations `affinity` and `contrast`.
        router_noise: Noise of the router in training.

    Raises:
        ValueError: On a value outside the named choices.
    """

    def __init__(
        self,
        n_lenses: int,
        n_heads: int,
        hidden_size: int,
        inner_size: int,
        hidden_dropout_prob: float,
        attn_dropout_prob: float,
        hidden_act: str = "gelu",
        layer_norm_eps: float = 1e-12,
        boost: Optional[BoostSettings] = None,
        lens_value: str = "own",
        lens_residual: bool = True,
        views: str = "both",
        router_noise: bool = True,
    ) -> None:
        super().__init__()
        if lens_value not in LENS_VALUES:
            raise ValueError(f"lens_value must be one of {LENS_VALUES}, got {lens_value!r}")
        if views not in VIEWS or (views == "contrast" and n_lenses < 2):
            raise ValueError(f"views must be one of {VIEWS}, and 'contrast' needs 2 lenses; got {views!r}, {n_lenses}")
        if hidden_size % n_heads:
            raise ValueError(f"hidden_size {hidden_size} is not a multiple of n_heads {n_heads}")
        self.n_lenses, self.n_heads = n_lenses, n_heads
        self.boost = boost or BoostSettings()
        self.lens_value, self.lens_residual, self.views = lens_value, lens_residual, views
        self.router = SemanticAnchorRouter(hidden_size, n_lenses, router_noise)
        self.beta = nn.Parameter(torch.zeros(()))
        self.value = nn.Linear(hidden_size, hidden_size) if lens_value == "own" else None
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.LayerNorm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.attn_dropout = Dropout(attn_dropout_prob)
        self.out_dropout = Dropout(hidden_dropout_prob)
        self.feed_forward = FeedForward(hidden_size, inner_size, hidden_dropout_prob, hidden_act, layer_norm_eps)

    def forward(
        self,
        hidden: Tensor,
        logits: Tensor,
        lengths: Tensor,
        key_mask: Optional[Tensor] = None,
        causal: bool = True,
        layer_values: Optional[Tensor] = None,
    ) -> Tensor:
        """Plug-in form on a right-padded batch, without data-dependent shapes.

        Args:
            hidden: [B, T, d] output of the layer below.
            logits: [B, H, T, T] its raw attention logits Q K^T / sqrt(d / H), before any mask.
            lengths: [B] valid positions of each row.
            key_mask: [B, T] bool, True where a position may be attended to (for instance not a masked item); None:
                every valid position.
            causal: True if a position of the backbone sees itself and earlier ones only.
            layer_values: [B, H, T, d / H] values of the layer below, needed for `lens_value` "layer" only.

        Returns:
            [B, T, d], input of the layer above; padded positions hold no meaning.
        """
        valid = torch.arange(hidden.shape[1], device=hidden.device) < lengths[:, None]
        keys = valid if key_mask is None else valid & key_mask
        routing = self.router(hidden)
        anchors = primary_anchor(routing)
        outputs = self.lens_outputs(hidden, logits, anchors, visible_keys(keys, causal=causal), layer_values)
        return self.synthesise(outputs, composition(routing, self.allowed(anchors)))

    def allowed(self, anchors: Tensor) -> Tensor:
        """[..., K] bool, lenses that the view ablation leaves at positions with the given anchors [...]."""
        return view_mask(anchors, self.n_lenses, self.views)

    def lens_outputs(
        self, hidden: Tensor, logits: Tensor, anchors: Tensor, visible: Tensor, layer_values: Optional[Tensor] = None
    ) -> Tensor:
        """Lens outputs z of a padded batch: hidden [B, T, d], anchors [B, T], visible [B, 1, T, T] -> [B, T, K, d]."""
        values = self._heads(self._values(hidden)) if self.lens_value != "layer" else layer_values
        if values is None:
            raise ValueError("lens_value 'layer' needs layer_values, the values of the layer below")
        return self._project(self._contexts(logits, values, anchors, visible), hidden)

    def packed_lens_outputs(
        self, hidden: Tensor, logits: Sequence[Tensor], layer_values: Sequence[Tensor], anchors: Tensor, batch: Packed
    ) -> Tensor:
        """Lens outputs z of packed tokens.

        Args:
            hidden: [N, d].
            logits: Per length group the raw logits [b, H, w, w] of the layer below.
            layer_values: Per length group its values [b, H, w, d / H].
            anchors: [N] primary semantic anchor of each token.
            batch: Layout of the tokens.

        Returns:
            [N, K, d].
        """
        return self._project(
            torch.cat(list(self._group_contexts(hidden, logits, layer_values, anchors, batch))), hidden
        )

    def packed_output(
        self, hidden: Tensor, logits: Sequence[Tensor], layer_values: Sequence[Tensor], batch: Packed
    ) -> Tensor:
        """Output of the module for packed tokens: router, lenses and synthesis in one, [N, d] -> [N, d].

        Each length group is mixed before the next one's lens outputs are made: [N, K, d] is never whole, and its parts
        stay in the cache. Arguments as for `packed_lens_outputs`.
        """
        routing = self.router(hidden)
        anchors = primary_anchor(routing)
        ratio = composition(routing, self.allowed(anchors))
        contexts = self._group_contexts(hidden, logits, layer_values, anchors, batch)
        mixed = [
            mix(self._project(block, below), shares)
            for block, below, shares in zip(contexts, batch.split(hidden), batch.split(ratio))
        ]
        output: Tensor = self.feed_forward(torch.cat(mixed))
        return output

    def _group_contexts(
        self, hidden: Tensor, logits: Sequence[Tensor], layer_values: Sequence[Tensor], anchors: Tensor, batch: Packed
    ) -> Iterator[Tensor]:
        """Contexts of all lenses of one length group after the other, [n, K, d] each."""
        own: Sequence[Optional[Tensor]] = [None] * len(batch.groups)
        if self.lens_value != "layer":
            own = batch.split(self._values(hidden))
        for group, group_logits, below, block, anchor in zip(
            batch.groups, logits, layer_values, own, batch.split(anchors)
        ):
            values = below if block is None else self._heads(group.pad(block))
            yield group.unpad(self._contexts(group_logits, values, group.pad(anchor), group.visible))

    def synthesise(self, outputs: Tensor, ratio: Tensor) -> Tensor:
        """H_out = FeedForward(sum_k g^k z^k): [..., K, d] and [..., K] -> [..., d]."""
        synthesised: Tensor = self.feed_forward(mix(outputs, ratio))
        return synthesised

    def _values(self, hidden: Tensor) -> Tensor:
        return hidden if self.value is None else self.value(hidden)

    def _heads(self, block: Tensor) -> Tensor:
        """[B, T, d] -> [B, H, T, d / H]."""
        return block.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

    def _contexts(self, logits: Tensor, values: Tensor, anchors: Tensor, visible: Tensor) -> Tensor:
        """Contexts of all lenses with the heads side by side: [B, T, K, d]."""
        contexts = lens_contexts(
            logits, values, anchors, visible, self.beta, self.n_lenses, self.boost, self.attn_dropout
        )  # [B, H, T, K, d / H]
        return contexts.permute(0, 2, 3, 1, 4).flatten(-2)

    def _project(self, contexts: Tensor, hidden: Tensor) -> Tensor:
        """Output projection, residual and LayerNorm, shared by the lenses: [..., K, d] and [..., d] -> [..., K, d]."""
        residual = hidden[..., None, :] if self.lens_residual else None
        return projected_norm(contexts, residual, self.dense, self.out_dropout, self.LayerNorm)


def mix(outputs: Tensor, ratio: Tensor) -> Tensor:
    """sum_k g^k z^k: [..., K, d] and [..., K] -> [..., d]."""
    return (ratio[..., None] * outputs).sum(dim=-2)  # faster than N products of 1 x K with K x d
