"""Training loop, early stopping, optimizers, resume."""

from __future__ import annotations

from recbole_prism.trainer.counting import CountingTrainer
from recbole_prism.trainer.randomness import seed_everything
from recbole_prism.trainer.stopper import EarlyStopper
from recbole_prism.trainer.trainer import Trainer

__all__ = ["CountingTrainer", "EarlyStopper", "Trainer", "seed_everything"]
