"""Base of the transformer recommenders: RecBole's SASRec with this package's encoder in it."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import torch
from recbole.data.interaction import Interaction
from recbole.model.sequential_recommender.sasrec import SASRec as RecBoleSASRec
from torch import Tensor
from torch.nn import functional

from recbole_prism.errors import ConfigError
from recbole_prism.model.layers.dropout import Dropout
from recbole_prism.model.layers.encoder import TransformerEncoder
from recbole_prism.model.layers.packed import Packed, pack, visible_keys
from recbole_prism.model.layers.states import PackedStates, PaddedStates, States
from recbole_prism.model.sequential_recommender.common import check_loss_type, fast_path_of
from recbole_prism.model.sequential_recommender.item_scores import ItemScores

Branch = tuple[Tensor, Tensor]  # item ids [B, w] right-padded with 0, lengths [B]


class TransformerRecommender(ItemScores, RecBoleSASRec):
    """Causal post-LN transformer over the history, scored against the item table (RecBole's SASRec).

    Parameter names, shapes and initial values under one seed are RecBole's; the computation leaves out padding and the
    positions of the last layer that nobody reads. `fast_path: False` computes everything plainly, on the same batches.

    Args:
        config: RecBole config.
        dataset: Anything with RecBole's `num(field)`.

    Attributes:
        causal: A position sees itself and earlier ones only.

    Raises:
        ConfigError: For a loss other than full-softmax cross-entropy, or a fast path without the property it needs.
    """

    causal: bool = True

    def __init__(self, config: Any, dataset: Any) -> None:
        check_loss_type(config, type(self).__name__, stock="SASRec")
        super().__init__(config, dataset)
        self.fast_path = fast_path_of(config, type(self).__name__)
        stock_weights = self.trm_encoder.state_dict()
        self.trm_encoder: TransformerEncoder = TransformerEncoder(n_layers=self.n_layers, **self.layer_settings())
        self.trm_encoder.load_state_dict(stock_weights)
        self.dropout = Dropout(self.hidden_dropout_prob)

    def layer_settings(self) -> dict[str, Any]:
        """What every layer of this model is built with, by the names of `TransformerLayer`."""
        return {
            "n_heads": self.n_heads,
            "hidden_size": self.hidden_size,
            "inner_size": self.inner_size,
            "hidden_dropout_prob": self.hidden_dropout_prob,
            "attn_dropout_prob": self.attn_dropout_prob,
            "hidden_act": self.hidden_act,
            "layer_norm_eps": self.layer_norm_eps,
        }

    def embed(self, items: Tensor, positions: Tensor) -> Tensor:
        """Dropout(LayerNorm(item + position embedding)): [...] and [...] -> [..., d]."""
        return self.dropout(self.LayerNorm(self.item_embedding(items) + self.position_embedding(positions)))

    def encode(self, branches: Sequence[Branch]) -> tuple[Tensor, ...]:
        """Sequence representations of several branches in one pass.

        Args:
            branches: Pairs of item ids [B, w] and lengths [B].

        Returns:
            One [B, d] per branch, in row order.
        """
        sizes = [length.shape[0] for _, length in branches]
        if not self.fast_path:
            return tuple(self._last(*branch) for branch in branches)
        batch = pack(branches, causal=self.causal)
        return self.encode_packed(batch).split(sizes)

    def encode_states(self, branches: Sequence[Branch]) -> States:
        """States of all positions of several branches in one pass; packed on the fast path.

        Args:
            branches: Pairs of item ids [B, w] and lengths [B].
        """
        lengths, n_rows = torch.cat([length for _, length in branches]), branches[0][1].shape[0]
        if not self.fast_path:
            width = max(seq.shape[1] for seq, _ in branches)
            stacked = torch.cat([functional.pad(seq, (0, width - seq.shape[1])) for seq, _ in branches])
            return PaddedStates(self.encode_padded(stacked, lengths)[0], lengths, n_rows, stacked)
        batch = pack(branches, causal=self.causal)
        hidden = self.embed(batch.items, batch.positions)
        for layer in self.trm_encoder.layers:
            hidden, _, _ = layer.packed(hidden, batch)
        return PackedStates(hidden, lengths, n_rows, batch.items, batch)

    def encode_packed(self, batch: Packed) -> Tensor:
        """[S, d] at the last position of each packed sequence, in original order."""
        return self.trm_encoder.packed_last(self.embed(batch.items, batch.positions), batch)

    def encode_padded(self, item_seq: Tensor, item_seq_len: Tensor) -> tuple[Tensor, Tensor]:
        """Plain computation of every position, free of data-dependent shapes (export, tracing, diagnosis).

        Args:
            item_seq: [B, w] item ids, right-padded with 0.
            item_seq_len: [B] lengths.

        Returns:
            Hidden states [B, w, d] and the last layer's raw attention logits [B, H, w, w].
        """
        visible = self.visible(item_seq, item_seq_len)
        hidden, logits = self.trm_encoder(self.embed(item_seq, self.positions(item_seq)), visible)
        return hidden, logits[-1]

    def visible(self, item_seq: Tensor, item_seq_len: Tensor) -> Tensor:
        """[B, 1, w, w] bool: key j inside the length and not id 0, and j <= query i in a causal model."""
        inside = self.positions(item_seq) < item_seq_len[:, None]
        return visible_keys(inside & (item_seq != 0), causal=self.causal)

    def positions(self, item_seq: Tensor) -> Tensor:
        """[B, w] position numbers from 0."""
        return torch.arange(item_seq.shape[1], device=item_seq.device).expand_as(item_seq)

    def _last(self, item_seq: Tensor, item_seq_len: Tensor) -> Tensor:
        return self.gather_indexes(self.encode_padded(item_seq, item_seq_len)[0], item_seq_len - 1)

    def forward(self, item_seq: Tensor, item_seq_len: Tensor) -> Tensor:
        """Sequence representation, as RecBole: item ids [B, w] and lengths [B] -> [B, d]."""
        return self.encode([(item_seq, item_seq_len)])[0]


def branch_of(interaction: Interaction, item_field: str, length_field: str, prefix: Optional[str] = None) -> Branch:
    """Item ids and lengths of a branch of the batch (`prefix` "partner", "view_1", ...; None: the row itself).

    Raises:
        ConfigError: If the loader did not supply the branch.
    """
    names = [f"{prefix}_{name}" if prefix else name for name in (item_field, length_field)]
    missing = [name for name in names if name not in interaction.interaction]
    if missing:
        raise ConfigError(
            f"the batch lacks {', '.join(missing)}",
            "use this package's data loader: it supplies what the model's `needs(config)` asks for",
        )
    return interaction[names[0]], interaction[names[1]]
