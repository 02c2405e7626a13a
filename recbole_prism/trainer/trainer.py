"""The training loop, with RecBole's signatures and return values."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional, Union

import torch
from recbole.data.interaction import Interaction
from safetensors.torch import load_file
from torch import Tensor, nn

from recbole_prism.data.transfer import AHEAD, ahead_of_use, to_device
from recbole_prism.errors import NonFiniteError
from recbole_prism.evaluation.metrics import compute_metrics
from recbole_prism.evaluation.ranking import needs_top_items, rank_rows
from recbole_prism.evaluation.ranks import Ranks
from recbole_prism.progress import progress, row_bar
from recbole_prism.run_directory import RunDirectory
from recbole_prism.schema import LIST_METRICS
from recbole_prism.trainer import checks, report, resume
from recbole_prism.trainer.compiled import CompiledLoss
from recbole_prism.trainer.losses import BadBatch, LossTracker, named_parts
from recbole_prism.trainer.optim import build_optimizer
from recbole_prism.trainer.stopper import EarlyStopper

logger = logging.getLogger("recbole_prism")

ROW_ID = "row_id"
_LISTED = frozenset(name.lower() for name in LIST_METRICS)
Callback = Callable[[int, float], None]


class Trainer:
    """Trains a model, keeps its best weights and evaluates it.

    Args:
        config: Settings; read here: learner, learning_rate, weight_decay, clip_grad_norm, epochs, eval_step,
            stopping_step, compile, valid_metric, valid_metric_bigger, metrics, topk, tail_ratio, mask_history,
            eval_memory_gb, metric_decimal_place, loss_decimal_place, device.
        model: A RecBole sequential recommender on `config["device"]`. `calculate_loss` may return a tensor, a tuple or
            `LossParts`. Optional hooks: `on_train_epoch_start(train_rows, epoch)` with the training split,
            `epoch_scalars() -> dict[str, float]` after each epoch, and `resume_state() -> dict[str, Tensor]` with
            `load_resume_state(tensors)` for what the model keeps outside its `state_dict`.
        run_directory: Where history, resume state and best weights go; None keeps everything in memory.

    Attributes:
        stopper: Best validation score so far and its epoch.
        history: One record per epoch, as in history.jsonl.
        epoch: Whose weights the model has; None before the first one and for weights from elsewhere.
    """

    def __init__(
        self, config: Mapping[str, Any], model: nn.Module, run_directory: Optional[RunDirectory] = None
    ) -> None:
        self.config = config
        self.model = model
        self.run_directory = run_directory
        self.device = torch.device(config["device"])
        self.epochs: int = config["epochs"]
        self.eval_step = min(config["eval_step"], self.epochs)
        self.valid_metric: str = config["valid_metric"].lower()
        self.stopper = EarlyStopper(config["stopping_step"], config["valid_metric_bigger"])
        self._prepare()
        self.next_epoch = 0
        self.epoch: Optional[int] = None
        self.history: list[dict[str, Any]] = []
        self.best_valid_result: Optional[dict[str, float]] = None
        self.best_weights: Optional[dict[str, Tensor]] = None  # on the CPU
        self._directory: Optional[RunDirectory] = None  # where `fit` writes
        self._reads_back = True  # the next save is compared with what is read again

    def _prepare(self) -> None:
        """Make what training needs besides the model."""
        self.optimizer = build_optimizer(
            self.model.parameters(),
            learner=self.config["learner"],
            learning_rate=self.config["learning_rate"],
            weight_decay=self.config["weight_decay"],
        )
        loss: Callable[[Interaction], Any] = self.model.calculate_loss  # type: ignore[assignment]
        self._loss = CompiledLoss(loss) if self.config["compile"] else loss

    def fit(
        self,
        train_data: Any,
        valid_data: Any = None,
        verbose: bool = True,
        saved: bool = True,
        show_progress: bool = False,
        callback_fn: Optional[Callback] = None,
    ) -> tuple[Optional[float], Optional[dict[str, float]]]:
        """Train until the validation metric stops rising or `epochs` are over.

        A run directory that holds the state of an unfinished run is gone on from, as if it had never been interrupted.

        Args:
            train_data: Training loader; `set_epoch(epoch)` is called where it exists.
            valid_data: Evaluation loader. Without it, or without rows in it, nothing stops early and the last weights
                count.
            verbose: Write a log line per epoch.
            saved: Write into the run directory, if there is one.
            show_progress: Show a bar per epoch.
            callback_fn: Called as `callback_fn(epoch, valid_score)` after each evaluation; the state is saved by then.

        Returns:
            Best validation score (unrounded) and all validation metrics of that epoch; (None, None) without validation.

        Raises:
            NonFiniteError: A loss, a parameter or a score is NaN or infinite; the run directory then says "failed".
        """
        self._directory = self.run_directory if saved else None
        if self._directory is not None and resume.restore(self, self._directory):
            logger.info("going on with epoch %d of an interrupted run", self.next_epoch)
        validates = self.eval_step > 0 and valid_data is not None and len(valid_data.dataset) > 0
        if not validates:
            logger.warning("no validation rows: nothing stops early, and the weights of the last epoch are tested")
        with resume.failure_marked(self._directory):
            while self.next_epoch < self.epochs and not self.stopper.should_stop:
                self._fit_epoch(train_data, valid_data if validates else None, verbose, show_progress, callback_fn)
            if self._directory is not None:
                self._directory.write_tensors("model.safetensors", self.best_weights or resume.cpu_weights(self.model))
        if verbose:
            report.log_end(self.stopper, self.next_epoch, self.valid_metric)
        return self.stopper.best_score, self.best_valid_result

    def evaluate(
        self,
        eval_data: Any,
        load_best_model: bool = True,
        model_file: Union[str, Path, None] = None,
        show_progress: bool = False,
    ) -> dict[str, float]:
        """Metrics of an evaluation split, unrounded, under the config's `mask_history`.

        Args:
            eval_data: Evaluation loader.
            load_best_model: Put the best weights into the model first; without validation these are the last ones.
            model_file: A .safetensors file to take the weights from instead.
            show_progress: Show a bar.

        Raises:
            NonFiniteError: A score is NaN or infinite.
        """
        if model_file is not None:
            self.model.load_state_dict(load_file(str(model_file)))
            self.epoch = None
        elif load_best_model:
            self.load_best_weights()
        n_top = needs_top_items(self.config["metrics"], self.config["topk"])
        ranks = self.rank(eval_data, n_top=n_top, show_progress=show_progress)
        return self.metrics(ranks, eval_data.dataset, self.config["mask_history"])

    def rank(self, eval_data: Any, n_top: int = 0, show_progress: bool = False) -> Ranks:
        """Ranks of a split's targets under the weights the model has now; see `rank_rows`.

        Raises:
            NonFiniteError: A score is NaN or infinite.
        """

        def batches(loader: Iterable[Any]) -> Iterator[Any]:
            for batch in progress(loader, description="evaluate", enabled=show_progress):
                if self._directory is not None:
                    self._directory.heartbeat()
                yield batch

        try:
            return rank_rows(
                self.model,
                eval_data,
                n_items=eval_data.dataset.item_num,
                mask_history=self.config["mask_history"],
                memory_gb=self.config["eval_memory_gb"],
                device=self.device,
                n_top=n_top,
                progress=batches,
            )
        except NonFiniteError as error:
            raise checks.score_error(error, self.epoch, checks.bad_parameter(self.model)) from error

    def metrics(self, ranks: Ranks, dataset: Any, mask_history: bool) -> dict[str, float]:
        """The configured metrics of ranks, unrounded.

        Metrics of the recommended lists are left out under the `mask_history` that the lists were not made with.
        A split without rows has no metrics.
        """
        if len(ranks) == 0:
            return {}
        names = self.config["metrics"]
        if mask_history != ranks.mask_history:
            names = [name for name in names if name.lower() not in _LISTED]
        return compute_metrics(
            ranks,
            names,
            self.config["topk"],
            mask_history=mask_history,
            item_counts_train=dataset.item_counts_train,
            n_items=dataset.item_num,
            tail_ratio=self.config["tail_ratio"],
        )

    def load_best_weights(self) -> None:
        """Put the best weights into the model, if an evaluation has found any."""
        if self.best_weights is not None:
            self.model.load_state_dict(self.best_weights)
            self.epoch = self.stopper.best_epoch

    def _fit_epoch(
        self,
        train_data: Any,
        valid_data: Any,
        verbose: bool,
        show_progress: bool,
        callback_fn: Optional[Callback],
    ) -> None:
        """One epoch: train, evaluate where it is due, record, save."""
        epoch, clock, cpu_clock = self.next_epoch, time.perf_counter(), time.process_time()
        losses, n_rows = self._train_epoch(train_data, epoch, show_progress)
        train_seconds = time.perf_counter() - clock
        clock = time.perf_counter()
        valid_result = None
        if valid_data is not None and (epoch + 1) % self.eval_step == 0:
            valid_result = self.evaluate(valid_data, load_best_model=False, show_progress=show_progress)
            if self.stopper.update(valid_result[self.valid_metric], epoch):
                self.best_valid_result, self.best_weights = valid_result, resume.cpu_weights(self.model)
        record = report.epoch_record(
            epoch=epoch,
            losses=losses,
            valid_result=valid_result,
            n_rows=n_rows,
            train_seconds=train_seconds,
            valid_seconds=time.perf_counter() - clock,
            cpu_seconds=time.process_time() - cpu_clock,
            device=self.device,
            scalars=_call(self.model, "epoch_scalars") or {},
        )
        self.history.append(record)
        self.next_epoch = epoch + 1
        if self._directory is not None:
            self._save(self._directory, record)
        if verbose:
            decimals = self.config["metric_decimal_place"], self.config["loss_decimal_place"]
            report.log_epoch(record, self.stopper, self.valid_metric, *decimals)
        if callback_fn is not None and valid_result is not None:
            callback_fn(epoch, valid_result[self.valid_metric])

    def _save(self, directory: RunDirectory, record: Mapping[str, Any]) -> None:
        """Write the record of an epoch, and everything that going on from here needs."""
        directory.append_history(record)
        resume.save(self, directory, read_back=self._reads_back)
        self._reads_back = False

    def _train_epoch(self, train_data: Any, epoch: int, show_progress: bool) -> tuple[dict[str, float], int]:
        """Train on every batch once.

        Returns:
            Mean over batches of the total loss and of its parts, and the number of rows.
        """
        self.epoch = epoch
        self.model.train()
        _call(train_data, "set_epoch", epoch)
        _call(self.model, "on_train_epoch_start", train_data.dataset, epoch)
        tracker = LossTracker(self.device)
        n_rows = 0
        with row_bar(description=f"epoch {epoch}", total=len(train_data.dataset), enabled=show_progress) as bar:
            for interaction in ahead_of_use(train_data, 0 if self.device.type == "cpu" else AHEAD):
                self._train_batch(interaction, tracker, epoch)
                n_rows += len(interaction)
                if self._directory is not None:
                    self._directory.heartbeat()
                if bar.update(len(interaction)) and tracker.n_batches:  # True when the bar was drawn
                    bar.set_postfix_str(f"loss {tracker.mean()['total']:.4f}", refresh=False)
        self._stop_if_bad(tracker.read(), epoch)
        tensor = checks.bad_parameter(self.model)
        if tensor is not None:
            raise checks.parameter_error(tensor, epoch)
        return tracker.mean(), n_rows

    def _train_batch(self, interaction: Interaction, tracker: LossTracker, epoch: int) -> None:
        """One optimizer step."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._loss(to_device(interaction, self.device))
        parts = named_parts(loss, type(self.model).__name__)
        bad = tracker.add(parts, interaction[ROW_ID] if ROW_ID in interaction else None)
        self._stop_if_bad(bad, epoch, parts if bad and bad.batch == tracker.n_batches - 1 else None)
        total, *others = parts.values()
        for part in others:
            total = total + part
        total.backward()
        if self.config["clip_grad_norm"]:
            nn.utils.clip_grad_norm_(self.model.parameters(), **self.config["clip_grad_norm"])
        self.optimizer.step()

    def _stop_if_bad(self, bad: Optional[BadBatch], epoch: int, parts: Optional[Mapping[str, Tensor]] = None) -> None:
        """Raise for a batch with a non-finite loss, after writing failure.json."""
        if bad is None:
            return
        tensor = checks.bad_parameter(self.model)
        if tensor is None and parts is not None:
            tensor = checks.bad_gradient(self.model, parts[bad.part])
        if self._directory is not None:
            self._directory.write_json("failure.json", checks.failure_record(bad, epoch, tensor))
        raise checks.loss_error(bad, epoch, tensor)


def _call(owner: Any, hook: str, *arguments: Any) -> Any:
    """Call an optional hook; None where the owner does not have it."""
    method = getattr(owner, hook, None)
    return None if method is None else method(*arguments)
