"""States of all positions of stacked sequences, packed or padded, behind one interface."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from torch import Tensor

from recbole_prism.model.layers.packed import Packed


@dataclass(frozen=True)
class States:
    """What an encoder gives for S sequences, the branches of a batch one after the other.

    Attributes:
        tokens: [N, d] of a packed batch, [S, w, d] of a padded one.
        lengths: [S].
        n_rows: B, sequences of the first branch.
        batch: Layout of the packed tokens; None for a padded batch.
    """

    tokens: Tensor
    lengths: Tensor
    n_rows: int
    batch: Optional[Packed]

    def spread(self, tokens: Tensor) -> Tensor:
        """Values of all tokens -> [S, w, ...]; behind the lengths 0 if packed, what stands there if padded."""
        if self.batch is None:
            return tokens
        n_sequences, width = len(self.batch.host_lengths), int(self.batch.host_lengths.max())
        places = self.batch.sequences * width + self.batch.positions
        block = tokens.new_zeros((n_sequences * width,) + tokens.shape[1:]).index_copy(0, places, tokens)
        return block.view((n_sequences, width) + tokens.shape[1:])
