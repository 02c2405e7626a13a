"""The verbs `queue`, `slim`, `benchmark` and `compare` of the command line."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, Iterator, Optional

from recbole_prism.data_cli import setting_of
from recbole_prism.errors import EvaluationError
from recbole_prism.experiments import compare
from recbole_prism.experiments.benchmark import benchmark_specs, benchmark_tables, missing_lines, write_tables
from recbole_prism.experiments.launch import LocalRun, ray_cluster
from recbole_prism.experiments.queue import FAILED, Job, Queue, plan_jobs
from recbole_prism.experiments.queue_file import read_queue
from recbole_prism.experiments.queue_table import all_lines, job_line, live_lines, summary_line
from recbole_prism.experiments.slim import slim_copy
from recbole_prism.experiments.table_text import to_markdown
from recbole_prism.run_files import write_text, writing
from recbole_prism.run_store import COMPLETE, DAMAGED, RunSpec

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
    jobs = plan(read_queue(args.file, dict(map(setting_of, rest))), args.jobs, args.address)
    if args.status:
        say(all_lines(jobs, args.jobs))
        return 0
    return run_jobs(jobs, f"queue-{args.file.stem}", args.jobs, args.budget, args.address)


def add_queue_options(parser: argparse.ArgumentParser) -> None:
    """The options of every verb that makes many runs."""
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at the same time (default: 1)")
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="make the runs on a Ray cluster (auto: the one this machine is in)",
    )
    parser.add_argument(
        "--budget", type=float, metavar="HOURS", help="stop after so long; what is not done can be gone on with"
    )


def run_jobs(
    jobs: Sequence[Job], name: str, n_jobs: int, budget_hours: Optional[float], address: Optional[str] = None
) -> int:
    """Make runs with a live table, and tell at the end what became of each.

    Args:
        jobs: From `plan`.
        name: Of the folder, beside the run directories, for what the processes print.
        n_jobs: How many at the same time.
        budget_hours: None: until all are made.
        address: Of a Ray cluster; None: this machine.

    Returns:
        Exit status; see `queue_main`.
    """
    logs = Path(os.path.abspath(os.path.expanduser(jobs[0].config["checkpoint_dir"]))) / "logs" / name
    table = LiveTable(n_jobs)
    with nullcontext(LocalRun) if address is None else ray_cluster(address) as launch:
        queue = Queue(jobs, logs, n_jobs=n_jobs, budget_hours=budget_hours, report=table.show, launch=launch)
        with stop_on_signals():
            queue.run()
    table.end()
    say(all_lines(jobs, n_jobs, table.passed))
    bad = [job for job in jobs if job.state in (FAILED, DAMAGED)]
    if bad:
        say(["", "not made:", *(f"  {job.spec.label}: {job.reason}" for job in bad)])
        return 1
    return 0 if all(job.state == COMPLETE for job in jobs) else 3


def plan(specs: Sequence[RunSpec], n_jobs: int, address: Optional[str] = None) -> list[Job]:
    """`plan_jobs`; a cluster gets absolute paths, because its processes start elsewhere."""
    return plan_jobs(specs if address is None else [_absolute(spec) for spec in specs], n_jobs=n_jobs)


def _absolute(spec: RunSpec) -> RunSpec:
    resolved = spec.config().resolved()
    places = {key: os.path.abspath(os.path.expanduser(resolved[key])) for key in ("data_path", "checkpoint_dir")}
    files = tuple(os.path.abspath(file) for file in spec.files)
    return replace(spec, settings={**spec.settings, **places}, files=files)


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
        width, height = os.get_terminal_size()
        lines = lines[: height - 1]  # what has scrolled away could not be drawn over
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


def benchmark_main(argv: Sequence[str]) -> int:
    """`recbole-prism benchmark --models A,B --datasets X --seeds N`: run what is missing, then make the tables.

    Args:
        argv: Arguments after the verb.

    Returns:
        Exit status: as `queue_main`; the tables are made of what there is in any case.

    Raises:
        RecBolePrismError: A setting is wrong, or runs of one data set were not measured alike.
    """
    parser = argparse.ArgumentParser(
        prog="recbole-prism benchmark",
        description="Models beside each other: runs what is missing, then writes Markdown, LaTeX, CSV and JSON.",
        epilog="--key=value sets a setting of all runs, e.g. --epochs=3 --data_path=/data",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--models", required=True, metavar="A,B", help="improvement is that of the first over the others"
    )
    parser.add_argument("--datasets", required=True, metavar="X,Y")
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="2020, 2021, ... (default: 5 of them)")
    parser.add_argument("--config_files", default="", help="settings files of all runs, separated by spaces")
    parser.add_argument("--with-paper", action="store_true", help="add the paper's printed numbers, marked")
    parser.add_argument("--to", type=Path, default=Path("benchmark"), metavar="FOLDER", help="default: benchmark/")
    add_queue_options(parser)
    args, rest = parser.parse_known_args(list(argv))
    find_modules_here()
    specs = benchmark_specs(
        _split(args.models), _split(args.datasets), args.seeds, dict(map(setting_of, rest)), args.config_files.split()
    )
    jobs = plan(specs, args.jobs, args.address)
    status = run_jobs(jobs, "benchmark", args.jobs, args.budget, args.address)
    tables = benchmark_tables(jobs, args.with_paper)
    if not tables:
        raise EvaluationError("no run is complete, so there is no table", "see the reasons above")
    title = f"{args.models} on {args.datasets}"
    paths = write_tables(tables, args.to, title, note=missing_lines(jobs))
    say(["", to_markdown(tables, title), *map(str, paths)])
    return status


def compare_main(argv: Sequence[str]) -> int:
    """`recbole-prism compare A B`: is A better than B, over test rows and over seeds?

    Args:
        argv: Arguments after the verb.

    Returns:
        Exit status 0, whatever the answer.

    Raises:
        RecBolePrismError: The runs cannot be read, or were not measured alike.
    """
    parser = argparse.ArgumentParser(
        prog="recbole-prism compare",
        description="Paired tests of A against each of the others: t-test, Wilcoxon and a bootstrap interval over the "
        "test rows and over the seeds, corrected by Holm for everything that is asked for together.",
        allow_abbrev=False,
    )
    parser.add_argument("sides", nargs="+", metavar="A B", help="run directories (of several seeds), joined by commas")
    parser.add_argument("--metrics", default=",".join(compare.DEFAULT_METRICS), help="default: %(default)s")
    parser.add_argument("--seen", choices=("removed", "left_in"), help="seen items (default: as the runs' protocol)")
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="also write compare.md and compare.json")
    args = parser.parse_args(list(argv))
    sides = [compare.read_side(places) for places in args.sides]
    seen_removed = None if args.seen is None else args.seen == "removed"
    found = compare.compare(sides, _split(args.metrics.lower()), seen_removed)
    text = compare.to_markdown(found, sides)
    say([text])
    if args.to is not None:
        with writing(args.to):
            args.to.mkdir(parents=True, exist_ok=True)
        write_text(args.to / "compare.md", text)
        write_text(args.to / "compare.json", compare.to_json(found))
    return 0


def _split(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


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
