"""A queue of runs: each in a process of its own, in the given order, stopped and gone on with at any time.

What is done stands in the run directories only, so the same queue started again does what is missing.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Optional, Sequence

from recbole_prism import run_files
from recbole_prism.config import Config
from recbole_prism.errors import ConfigError, RecBolePrismError
from recbole_prism.experiments.launch import STOP_SECONDS, Launch, Launched, LocalRun
from recbole_prism.run_store import (
    COMPLETE,
    DAMAGED,
    FAILED,
    INTERRUPTED,
    RUNNING,
    RunProgress,
    RunSpec,
    RunStore,
    inspect,
    progress_of,
)

logger = logging.getLogger("recbole_prism")

WAITING, ELSEWHERE = "waiting", "elsewhere"
POLL_SECONDS = 1.0
_CRASHES = 2  # a process that was killed from outside (out of memory, say) is started once more


@dataclass
class Job:
    """A run on its way through a queue.

    Attributes:
        spec: What is to be run.
        config: Its checked settings.
        path: Its run directory.
        state: "waiting", "running", "elsewhere" (another live process is at it), "complete", "failed", "damaged" or
            "interrupted" (stopped with the queue).
        reused: Whether it was complete before the queue began.
        reason: Why it failed, or where it runs.
        attempts: How often its process was started.
        progress: How far it is.
        started: When its present process was started, on the monotonic clock.
    """

    spec: RunSpec
    config: Config
    path: Path
    state: str = WAITING
    reused: bool = False
    reason: str = ""
    attempts: int = 0
    progress: RunProgress = field(default_factory=RunProgress)
    started: float = 0.0

    def look(self) -> None:
        """Read how far it is."""
        self.progress = progress_of(self.path, self.config["valid_metric"], self.config["valid_metric_bigger"])

    @property
    def is_open(self) -> bool:
        """Whether it is still to be made."""
        return self.state in (WAITING, RUNNING, ELSEWHERE)


def plan_jobs(specs: Sequence[RunSpec], store: Optional[RunStore] = None, n_jobs: int = 1) -> list[Job]:
    """Check all settings and look at what is there already; nothing is started.

    Args:
        specs: The runs. One that does not say how many torch threads it uses gets its share of the machine.
        store: Where to look; a new one by default.
        n_jobs: How many are to run at the same time.

    Raises:
        RecBolePrismError: As `Config`, with the run's name in front: found before hours are spent.
    """
    store = store or RunStore()
    jobs = []
    for spec in specs:
        try:
            config = spec.config()
            if config["n_threads"] is None:
                n_threads = max(1, (os.cpu_count() or 1) // n_jobs)
                spec = RunSpec(**{**vars(spec), "settings": {**spec.settings, "n_threads": n_threads}})
                config = spec.config()
            job = Job(spec, config, store.place(config))
        except RecBolePrismError as error:
            raise type(error)(f"{spec.label}: {error.cause}", error.cure) from error
        job.look()
        found = inspect(job.path)
        if found.state in (COMPLETE, DAMAGED):
            job.state, job.reused, job.reason = found.state, found.state == COMPLETE, found.reason
        elif found.state == RUNNING:
            job.state, job.reason = ELSEWHERE, found.reason
        elif found.state in (FAILED, INTERRUPTED):
            job.reason = f"earlier: {found.reason}"
        jobs.append(job)
    return jobs


class Queue:
    """Makes runs.

    Args:
        jobs: From `plan_jobs`.
        logs: Folder for what the processes print, one file per run.
        n_jobs: How many run at the same time.
        budget_hours: No run goes on for longer; what is not done by then can be gone on with.
        report: Called about once a second with the jobs, and at the end.
        launch: Starts a run; by default in a process of this machine.

    Raises:
        ConfigError: n_jobs or budget_hours is not above 0.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        logs: Path,
        *,
        n_jobs: int = 1,
        budget_hours: Optional[float] = None,
        report: Callable[[Sequence[Job]], None] = lambda jobs: None,
        launch: Launch = LocalRun,
    ) -> None:
        if n_jobs < 1 or (budget_hours is not None and budget_hours <= 0):
            raise ConfigError(f"jobs {n_jobs}, budget {budget_hours}: both must be above 0", "--jobs=2 --budget=1.5")
        self.jobs = list(jobs)
        self._logs = logs
        self._n_jobs = n_jobs
        self._deadline = None if budget_hours is None else time.monotonic() + 3600 * budget_hours
        self._report = report
        self._launch = launch
        self._running: list[tuple[Job, Launched]] = []

    def run(self) -> list[Job]:
        """Make all runs that are not there; a failing one does not stop the others.

        Returns:
            The jobs as they ended. With a budget some may be "waiting" or "interrupted".

        Raises:
            KeyboardInterrupt: After the running ones have been stopped, all of which can be gone on with.
        """
        try:
            while any(job.is_open for job in self.jobs) and not self._is_over():
                self._collect()
                self._start()
                self._report(self.jobs)
                time.sleep(POLL_SECONDS)
        finally:
            self._stop()
            self._report(self.jobs)
        return self.jobs

    def _is_over(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def _start(self) -> None:
        """Fill the free places, in the order of the queue."""
        for job in self.jobs:
            if len(self._running) >= self._n_jobs:
                return
            if job.state not in (WAITING, ELSEWHERE) or any(job.path == other.path for other, _ in self._running):
                continue
            found = inspect(job.path)  # another queue, or the same settings under another name, may have made it
            if found.state in (COMPLETE, DAMAGED):
                job.state, job.reused, job.reason = found.state, found.state == COMPLETE, found.reason
                job.look()
            elif found.state == RUNNING:
                job.state, job.reason = ELSEWHERE, found.reason
            else:
                self._begin(job)

    def _begin(self, job: Job) -> None:
        with run_files.writing(self._logs):
            self._logs.mkdir(parents=True, exist_ok=True)
        self._running.append((job, self._launch(job.spec.arguments(), self._log_of(job))))
        job.state, job.reason, job.started = RUNNING, "", time.monotonic()
        job.attempts += 1

    def _collect(self) -> None:
        """Look at the running ones and take leave of those that ended."""
        for job, process in list(self._running):
            job.look()
            status = process.poll()
            if status is None:
                continue
            self._running.remove((job, process))
            process.stop()
            found = inspect(job.path)
            job.state, job.reason = found.state, found.reason
            if found.state == COMPLETE:
                continue
            if status < 0 and job.attempts < _CRASHES:
                job.state, job.reason = WAITING, f"killed by signal {-status}, is started again"
                logger.warning("%s: %s", job.spec.label, job.reason)
            elif found.state == RUNNING:  # another process was a moment faster
                job.state = ELSEWHERE
            elif status == 0:
                job.state, job.reason = FAILED, "the sources or the data were changed meanwhile: start the queue again"
            elif found.state != DAMAGED:
                job.state, job.reason = FAILED, self._why(job, status)

    def _why(self, job: Job, status: int) -> str:
        """The last line that a failed run's process printed, without its cure."""
        lines = self._log_of(job).read_text(encoding="utf-8", errors="replace").splitlines()
        lines = [line for line in lines if line.strip() and not line.startswith("  -> ")]
        cause = f"killed by signal {-status}" if status < 0 else lines[-1] if lines else f"exit status {status}"
        return f"{cause} ({self._log_of(job)})"

    def _log_of(self, job: Job) -> Path:
        return self._logs / f"{job.spec.name}-s{job.spec.seed}.log"

    def _stop(self) -> None:
        """Interrupt what runs; wait until each has said so in its directory."""
        for _, process in self._running:
            process.stop()
        deadline = time.monotonic() + STOP_SECONDS
        for job, process in self._running:
            process.wait(max(0.0, deadline - time.monotonic()))
            found = inspect(job.path)  # it may have been in its last second
            job.state = COMPLETE if found.state == COMPLETE else INTERRUPTED
            job.reason = found.reason
            job.look()
        self._running = []
