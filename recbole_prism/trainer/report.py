"""The record of an epoch (a line of history.jsonl) and its log line."""

from __future__ import annotations

import logging
import sys
from typing import Any, Mapping, Optional

import psutil
import torch

from recbole_prism.trainer.stopper import EarlyStopper

logger = logging.getLogger("recbole_prism")


def peak_memory_mb() -> float:
    """Largest resident memory of this process so far, in MB (10^6 bytes); on Windows the present one.

    It never falls: what an earlier run of the process needed counts. Loader workers are processes of their own.
    """
    try:
        import resource
    except ImportError:  # Windows has no such module
        return float(psutil.Process().memory_info().rss / 1e6)
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def epoch_record(
    *,
    epoch: int,
    losses: Mapping[str, float],
    valid_result: Optional[Mapping[str, float]],
    n_rows: int,
    train_seconds: float,
    valid_seconds: float,
    cpu_seconds: float,
    device: torch.device,
    scalars: Mapping[str, float],
) -> dict[str, Any]:
    """One line of history.jsonl.

    Args:
        epoch: From 0.
        losses: "total" and each part, means over the batches.
        valid_result: All validation metrics, unrounded; None if the epoch was not evaluated.
        n_rows: Training rows seen.
        train_seconds: Wall-clock time of training.
        valid_seconds: Wall-clock time of the evaluation.
        cpu_seconds: Processor time of both, over all threads of this process; loader workers (`worker`) not included.
        device: Where the model is.
        scalars: What the model reports about itself.
    """
    memory = {"peak_memory_mb": peak_memory_mb()}
    if device.type == "cuda":
        memory["gpu_peak_memory_mb"] = torch.cuda.max_memory_allocated(device) / 1e6
    return {
        "epoch": epoch,
        "loss": dict(losses),
        "valid": None if valid_result is None else dict(valid_result),
        "train_seconds": train_seconds,
        "valid_seconds": valid_seconds,
        "cpu_seconds": cpu_seconds,
        "rows": n_rows,
        "rows_per_second": n_rows / train_seconds,
        **memory,
        "scalars": dict(scalars),
    }


def log_epoch(record: Mapping[str, Any], stopper: EarlyStopper, metric: str, decimals: int, loss_decimals: int) -> None:
    """Log one epoch: loss parts, validation metrics, the best so far, seconds of training and of evaluation apart.

    What a model reports about itself is in history.jsonl only; the line is long enough.
    """
    total, *parts = record["loss"].items()
    loss = f"loss {total[1]:.{loss_decimals}f}"
    if len(parts) > 1:
        loss += " (" + ", ".join(f"{name} {value:.{loss_decimals}f}" for name, value in parts) + ")"
    pieces = [f"epoch {record['epoch']}", loss]
    if record["valid"] is not None:
        pieces.append(" ".join(f"{name} {value:.{decimals}f}" for name, value in record["valid"].items()))
        best = f"{stopper.best_score:.{decimals}f} in epoch {stopper.best_epoch}"
        pieces.append(f"best {metric} {best}, waited {stopper.n_waited} of {stopper.patience}")
    seconds = f"{record['train_seconds']:.2f} s training ({record['rows_per_second']:,.0f} rows/s)"
    if record["valid"] is not None:
        seconds += f", {record['valid_seconds']:.2f} s evaluation"
    logger.info(" | ".join([*pieces, seconds]))


def log_end(stopper: EarlyStopper, n_epochs: int, metric: str) -> None:
    """Log how training ended, with a warning for a validation metric that never left 0."""
    if stopper.best_score is None:
        logger.info("finished after %d epochs, without validation", n_epochs)
        return
    why = f"nothing better in {stopper.patience} evaluations" if stopper.should_stop else "all epochs done"
    best = f"best {metric} {stopper.best_score:.6f} in epoch {stopper.best_epoch}"
    logger.info("finished after %d epochs (%s): %s", n_epochs, why, best)
    if stopper.bigger and stopper.best_score <= 0:
        logger.warning(
            "%s never rose above 0: nothing was learned that validation can see (learning_rate, data?)", metric
        )
