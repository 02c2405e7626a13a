"""Where the target of every evaluation row landed: all that the metrics, segments and significance tests need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from recbole_prism.errors import EvaluationError


@dataclass(frozen=True)
class Ranks:
    """Rank information of R evaluation rows, in the order of their row ids.

    An item "beats" the target if its score is greater and "ties" with it if the score is equal. Padding (item 0) never
    counts. The plain names have the items of the user's whole history removed, the names in `_all` nothing.

    Attributes:
        user: User index, int32 [R].
        target: Item index of the target, int32 [R].
        position: Number of the user's events before the target, int32 [R].
        history_length: Number of events the model was given (at most MAX_ITEM_LIST_LENGTH), int32 [R].
        n_greater: Items that beat the target, seen items removed, int32 [R]. Where the target is itself a seen item:
            `n_items - 1`, which is every real item, so that it is a miss at every k.
        n_equal: *Other* items that tie with the target, seen items removed, int32 [R].
        n_greater_all: Items that beat the target, int32 [R].
        n_equal_all: *Other* items that tie with the target, int32 [R].
        target_in_history: Whether the target is itself a seen item, bool [R].
        top_items: The best items of each row, best first, equal scores in the order of their index, int32 [R, n_top];
            0 where fewer items are left than places. [R, 0] if they were not collected.
        mask_history: Whether seen items were removed from `top_items`.
    """

    user: np.ndarray
    target: np.ndarray
    position: np.ndarray
    history_length: np.ndarray
    n_greater: np.ndarray
    n_equal: np.ndarray
    n_greater_all: np.ndarray
    n_equal_all: np.ndarray
    target_in_history: np.ndarray
    top_items: np.ndarray
    mask_history: bool

    def __len__(self) -> int:
        return len(self.user)

    def counts(self, mask_history: bool) -> tuple[np.ndarray, np.ndarray]:
        """The pair (n_greater, n_equal) with seen items removed (True) or with nothing removed (False)."""
        return (self.n_greater, self.n_equal) if mask_history else (self.n_greater_all, self.n_equal_all)

    def to_arrays(self, prefix: str = "") -> dict[str, np.ndarray]:
        """Every attribute as an array, under its name with `prefix` in front: the contents of ranks.npz."""
        return {prefix + field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], prefix: str = "") -> Ranks:
        """The inverse of `to_arrays`.

        Raises:
            EvaluationError: If an array is missing.
        """
        missing = [prefix + field.name for field in fields(cls) if prefix + field.name not in arrays]
        if missing:
            raise EvaluationError(f"stored ranks lack the arrays {', '.join(missing)}", "evaluate the run again")
        values = {field.name: arrays[prefix + field.name] for field in fields(cls) if field.name != "mask_history"}
        return cls(**values, mask_history=bool(arrays[prefix + "mask_history"]))
