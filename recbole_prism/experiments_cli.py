"""The verbs `queue` and `slim` of the command line."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Iterator, Optional

from recbole_prism.data_cli import setting_of
from recbole_prism.experiments.queue import FAILED, Job, Queue, plan_jobs
from recbole_prism.experiments.queue_file import read_queue
from recbole_prism.experiments.queue_table import all_lines, job_line, live_lines, summary_line
from recbole_prism.experiments.slim import slim_copy
from recbole_prism.run_store import COMPLETE, DAMAGED

_REDRAW_SECONDS = 2.0  # on a terminal
_TELL_SECONDS = 600.0  # elsewhere


def queue_main(argv: Sequence[str]) -> int:
    """`recbole-prism queue FILE`: make the runs of a queue file.

    Args:
        argv: Arguments after the verb.

    Returns:
        Exit status: 0 all complete, 1 a run failed, 3 the budget ended it before all were made.

    Raises:
        RecBolePrismError: The file or a setting is wrong.
    """
    parser = argparse.ArgumentParser(
        prog="recbole-prism queue",
        description="Make the runs that a YAML file lists, in its order. Stop it and start it again at any time: "
        "complete runs are reused, begun ones go on after their last finished epoch.",
        epilog="--key=value sets a setting of all runs, e.g. --data_path=/data --checkpoint_dir=runs",
        allow_abbrev=False,
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the queue; its form is in docs/experiments.md")
    add_queue_options(parser)
    parser.add_argument("--status", action="store_true", help="show how far every run is, and start nothing")
    args, rest = parser.parse_known_args(list(argv))
    find_modules_here()
    jobs = plan_jobs(read_queue(args.file, dict(map(setting_of, rest))), n_jobs=args.jobs)
    if args.status:
        say(all_lines(jobs, args.jobs, 0.0))
        return 0
    return run_jobs(jobs, f"queue-{args.file.stem}", args.jobs, args.budget)


def add_queue_options(parser: argparse.ArgumentParser) -> None:
    """The options of every verb that makes many runs."""
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at the same time (default: 1)")
    parser.add_argument(
        "--budget", type=float, metavar="HOURS", help="stop after so long; what is not done can be gone on with"
    )


def run_jobs(jobs: Sequence[Job], name: str, n_jobs: int, budget_hours: Optional[float]) -> int:
    """Make runs with a live table, and tell at the end what became of each.

    Args:
        jobs: From `plan_jobs`.
        name: Of the folder, beside the run directories, for what the processes print.
        n_jobs: How many at the same time.
        budget_hours: None: until all are made.

    Returns:
        Exit status; see `queue_main`.
    """
    logs = Path(os.path.expanduser(jobs[0].config["checkpoint_dir"])) / "logs" / name
    table = LiveTable(n_jobs)
    queue = Queue(jobs, logs, n_jobs=n_jobs, budget_hours=budget_hours, report=table.show)
    with stop_on_signals():
        queue.run()
    table.end()
    say(all_lines(jobs, n_jobs, table.passed))
    bad = [job for job in jobs if job.state in (FAILED, DAMAGED)]
    if bad:
        say(["", "not made:", *(f"  {job.spec.label}: {job.reason}" for job in bad)])
        return 1
    return 0 if all(job.state == COMPLETE for job in jobs) else 3


class LiveTable:
    """Shows a queue: a redrawn table on a terminal, elsewhere a line per change and a summary now and then."""

    def __init__(self, n_jobs: int) -> None:
        self._n_jobs = n_jobs
        self._begin = time.monotonic()
        self._shown_at: Optional[float] = None
        self._n_lines = 0
        self._states: dict[str, str] = {}

    @property
    def passed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._begin

    def show(self, jobs: Sequence[Job]) -> None:
        """Show them, if it is time."""
        is_terminal = sys.stdout.isatty()
        pause = _REDRAW_SECONDS if is_terminal else _TELL_SECONDS
        is_due = self._shown_at is None or time.monotonic() - self._shown_at >= pause
        if is_terminal and is_due:
            self._redraw(live_lines(jobs, self._n_jobs, self.passed))
        elif not is_terminal:
            changed = [job for job in jobs if self._states and self._states.get(job.spec.label) != job.state]
            say([job_line(job, jobs).strip() for job in changed])
            if is_due:
                say([summary_line(jobs, self._n_jobs, self.passed)])
                say([job_line(job, jobs) for job in jobs if job.state == "running" and job not in changed])
        self._states = {job.spec.label: job.state for job in jobs}
        if is_due:
            self._shown_at = time.monotonic()

    def end(self) -> None:
        """Make room for what comes after."""
        if sys.stdout.isatty():
            self._redraw([])

    def _redraw(self, lines: list[str]) -> None:
        width = os.get_terminal_size().columns
        up = f"\x1b[{self._n_lines}A" if self._n_lines else ""
        sys.stdout.write(f"{up}\x1b[J" + "".join(f"{line[: width - 1]}\n" for line in lines))
        sys.stdout.flush()
        self._n_lines = len(lines)


def slim_main(argv: Sequence[str]) -> int:
    """`recbole-prism slim RUN_DIR... --to FOLDER`: copies of runs that are small enough to be kept in a repository.

    Args:
        argv: Arguments after the verb.

    Returns:
        Exit status 0.

    Raises:
        RunDirectoryError: A run is not complete, or its place is taken.
    """
    parser = argparse.ArgumentParser(
        prog="recbole-prism slim",
        description="Copy complete runs without weights, histories, raw ids, lists and paths: enough for every table "
        "and comparison. A copy tells which manifest it was made from, and is checked like any run.",
        allow_abbrev=False,
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN_DIR")
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="made: FOLDER/<data set>/<run>")
    args = parser.parse_args(list(argv))
    for path in args.runs:
        copy, was_there = slim_copy(path, args.to)
        say([f"{copy}{' (there already)' if was_there else ''}"])
    return 0


def say(lines: Sequence[str]) -> None:
    """Print lines at once, so that a log file shows them while it grows."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def find_modules_here() -> None:
    """Let `my_module:MyModel` be found where the command is called, as `run` does."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Let Ctrl-C and a polite kill stop a queue in good order, in a background process too."""

    def stop(number: int, frame: Optional[FrameType]) -> None:
        raise KeyboardInterrupt

    before: dict[int, Any] = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
