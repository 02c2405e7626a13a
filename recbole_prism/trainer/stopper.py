"""Early stopping on the unrounded validation metric."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Mapping, Optional


@dataclass
class EarlyStopper:
    """Counts evaluations since the last strictly better score.

    RecBole counts an equal score as progress and compares rounded scores, so a flat metric never stops it.

    Attributes:
        patience: Evaluations in a row without a strictly better score after which training stops (`stopping_step`).
        bigger: True if a higher score is better.
        best_score: Best score so far, unrounded; None before the first evaluation.
        best_epoch: Epoch of the best score; -1 before the first evaluation.
        n_waited: Evaluations since the best one.
    """

    patience: int
    bigger: bool = True
    best_score: Optional[float] = None
    best_epoch: int = -1
    n_waited: int = 0

    def update(self, score: float, epoch: int) -> bool:
        """Record one evaluation.

        Returns:
            True if the score is strictly better than every score before it.
        """
        if self.best_score is None or (score > self.best_score if self.bigger else score < self.best_score):
            self.best_score, self.best_epoch, self.n_waited = score, epoch, 0
            return True
        self.n_waited += 1
        return False

    @property
    def should_stop(self) -> bool:
        """True once `patience` evaluations in a row, at least one, brought nothing better."""
        return self.n_waited >= max(self.patience, 1)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    def load_dict(self, values: Mapping[str, Any]) -> None:
        """Take over the progress (not the settings) of `to_dict`."""
        self.best_score, self.best_epoch = values["best_score"], values["best_epoch"]
        self.n_waited = values["n_waited"]
