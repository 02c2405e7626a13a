"""The "training" of models that are fitted by counting the training rows: one pass, no optimizer, nothing to resume."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from recbole_prism.run_directory import RunDirectory
from recbole_prism.trainer import resume
from recbole_prism.trainer.trainer import Callback, Trainer


class CountingTrainer(Trainer):
    """For models that declare `counted`: `model.count(train_rows)` takes the training split, and that is all.

    What a run writes and returns is that of a training of one epoch with a loss of 0. An interrupted run starts anew.
    """

    def _prepare(self) -> None:
        self.eval_step = 1

    def fit(
        self,
        train_data: Any,
        valid_data: Any = None,
        verbose: bool = True,
        saved: bool = True,
        show_progress: bool = False,
        callback_fn: Optional[Callback] = None,
    ) -> tuple[Optional[float], Optional[dict[str, float]]]:
        """Count, evaluate, store. Arguments and results are those of `Trainer.fit`."""
        self._directory = self.run_directory if saved else None
        validates = valid_data is not None and len(valid_data.dataset) > 0
        with resume.failure_marked(self._directory):
            self._fit_epoch(train_data, valid_data if validates else None, verbose, show_progress, callback_fn)
            if self._directory is not None:
                self._directory.write_tensors("model.safetensors", resume.cpu_weights(self.model))
        return self.stopper.best_score, self.best_valid_result

    def _train_epoch(self, train_data: Any, epoch: int, show_progress: bool) -> tuple[dict[str, float], int]:
        self.epoch = epoch
        self.model.count(train_data.dataset)  # type: ignore[operator]
        return {"total": 0.0}, len(train_data.dataset)

    def _save(self, directory: RunDirectory, record: Mapping[str, Any]) -> None:
        directory.write_history([record])
