"""How a queue is told: what runs, how far, how long it will still take."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Optional

from recbole_prism.experiments.queue import ELSEWHERE, RUNNING, WAITING, Job
from recbole_prism.run_store import COMPLETE

_SHOWN_WAITING = 5  # of those not begun, in the live table


def duration(seconds: float) -> str:
    """Seconds as a person says them: "45 s", "12 min", "3.2 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def seconds_left(job: Job, jobs: Sequence[Job]) -> Optional[float]:
    """Estimate of what a run still needs; None if nothing alike was measured yet.

    An epoch takes what this run's took so far, else those of the same model and data set here. The number of epochs is
    what finished runs of the same model and data set needed, else all of `epochs`: early stopping makes it an upper
    bound.

    Args:
        job: Of which.
        jobs: All of the queue.
    """
    if not job.is_open:
        return 0.0
    alike = [other for other in jobs if (other.spec.model, other.spec.dataset) == (job.spec.model, job.spec.dataset)]
    measured = [other.progress.seconds_per_epoch for other in (alike if not job.progress.n_epochs else [job])]
    known = [seconds for seconds in measured if seconds is not None]
    if not known:
        return None
    needed = [other.progress.n_epochs for other in alike if other.state == COMPLETE]
    total = min(job.config["epochs"], statistics.median(needed) if needed else job.config["epochs"])
    least = 1 if job.progress.n_epochs < job.config["epochs"] else 0
    return statistics.median(known) * max(total - job.progress.n_epochs, least)


def summary_line(jobs: Sequence[Job], n_jobs: int, passed: Optional[float] = None) -> str:
    """One line about all.

    Args:
        jobs: Of the queue.
        n_jobs: How many run at the same time.
        passed: Seconds since the queue began; None if it was not begun.
    """
    counts: dict[str, int] = {}
    for job in jobs:
        counts[job.state] = counts.get(job.state, 0) + 1
    n_reused = sum(job.reused for job in jobs)
    parts = [f"{number} {state}" + (f" ({n_reused} reused)" if state == COMPLETE and n_reused else "")
             for state, number in counts.items()]  # fmt: skip
    left = [seconds_left(job, jobs) for job in jobs]
    known = sum(seconds for seconds in left if seconds is not None) / n_jobs
    n_unknown = sum(seconds is None for seconds in left)
    tail = f", about {duration(known)} left" if known else ""
    if n_unknown:
        tail += f"{' and' if tail else ','} {n_unknown} runs of unknown length"
    words = f"{len(jobs)} runs: {', '.join(parts)}"
    return words + ("" if passed is None else f"; {duration(passed)} passed") + tail


def job_line(job: Job, jobs: Sequence[Job]) -> str:
    """One line about one run.

    Args:
        job: Of which.
        jobs: All of the queue.
    """
    width = max(len(other.spec.label) for other in jobs)
    progress, n_epochs, words = job.progress, job.config["epochs"], []
    if progress.n_epochs:
        words.append(
            f"{progress.n_epochs} epochs" if job.state == COMPLETE else f"{progress.n_epochs} of {n_epochs} epochs"
        )
    if progress.best is not None:
        words.append(f"best {job.config['valid_metric'].lower()} {progress.best:.4f} in epoch {progress.best_epoch}")
    if job.state == RUNNING:
        words.append(f"running for {duration(time.monotonic() - job.started)}")
    if progress.seconds_per_epoch is not None:
        words.append(f"{duration(progress.seconds_per_epoch)} an epoch")
    left = seconds_left(job, jobs)
    if left is not None and job.is_open:
        words.append(f"about {duration(left)} left")
    if job.reason:
        words.append(job.reason)
    state = "reused" if job.reused else job.state
    return f"  {job.spec.label:<{width}}  {state:<11}  {', '.join(words)}".rstrip()


def live_lines(jobs: Sequence[Job], n_jobs: int, passed: float) -> list[str]:
    """The table while a queue runs: what runs, the next ones, and what failed."""
    waiting = [job for job in jobs if job.state == WAITING]
    shown = [job for job in jobs if job.state in (RUNNING, ELSEWHERE)] + waiting[:_SHOWN_WAITING]
    shown += [job for job in jobs if not job.is_open and job.state != COMPLETE]
    lines = [summary_line(jobs, n_jobs, passed), *(job_line(job, jobs) for job in shown)]
    if len(waiting) > _SHOWN_WAITING:
        lines.append(f"  and {len(waiting) - _SHOWN_WAITING} more")
    return lines


def all_lines(jobs: Sequence[Job], n_jobs: int, passed: Optional[float] = None) -> list[str]:
    """Every run, in the order of the queue."""
    return [summary_line(jobs, n_jobs, passed), *(job_line(job, jobs) for job in jobs)]
