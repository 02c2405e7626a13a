"""The verb `reproduce` of the command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from recbole_prism.data_cli import setting_of
from recbole_prism.errors import ConfigError
from recbole_prism.experiments.estimate import total
from recbole_prism.experiments.queue_table import duration
from recbole_prism.experiments.reproduce import StudyPlan, counts_of, job_lines, plan_study
from recbole_prism.experiments.studies import NAMES, PAPER_DATASETS, STUDIES, TABLE1, find_study
from recbole_prism.experiments.study_report import write_counts, write_report
from recbole_prism.experiments_cli import add_queue_options, find_modules_here, plan, run_jobs, say


def reproduce_main(argv: Sequence[str]) -> int:
    """`recbole-prism reproduce WHAT`: make the runs of a table or figure of the paper, and draw it from them.

    Args:
        argv: Arguments after the verb.

    Returns:
        Exit status: 0 all there, 1 a run failed, 3 the budget ended it before all were made.

    Raises:
        RecBolePrismError: See the message.
    """
    args, rest = _parser().parse_known_args(list(argv))
    settings = dict(map(setting_of, rest))
    reserved = [key for key in ("model", "dataset", "seed") if key in settings]
    if reserved:
        raise ConfigError(f"--{reserved[0]} is not for reproduce", "use --models, --datasets and --seeds")
    find_modules_here()
    folder = Path(args.out or f"reproduced/{args.what}")
    if args.what == TABLE1:
        rows, left_out = counts_of(_names(args.datasets) or PAPER_DATASETS, settings)
        say([str(file) for file in write_counts(rows, left_out, folder)])
        return 0
    study = find_study(args.what, _names(args.models))
    seeds = _seeds(args.seeds) or study.seeds
    datasets = _names(args.datasets) or list(study.datasets)
    only_looks = args.dry_run or args.report
    measured = Path(args.measured) if args.measured else None
    make_jobs = partial(plan, n_jobs=args.jobs, address=args.address)
    study_plan = plan_study(
        study, datasets, seeds, settings, make_jobs=make_jobs, prepares=not only_looks, measured=measured
    )
    say(_summary(study_plan, args.jobs))
    if args.dry_run:
        say(job_lines(study_plan))
        return 0
    status = (
        0 if args.report else run_jobs(study_plan.jobs, f"reproduce-{study.name}", args.jobs, args.budget, args.address)
    )
    files = write_report(study_plan, folder)
    n_missing = sum(len(study_plan.missing(dataset)) for dataset in study_plan.datasets)
    say([f"{n_missing} runs are missing; the page lists them"] if n_missing else [])
    say([str(file) for file in files])
    return status


def _summary(found: StudyPlan, n_jobs: int) -> list[str]:
    seconds, n_unknown = total(found.estimates, n_jobs)
    n_there = sum(not job.is_open for job in found.jobs)
    text = f"{found.study.name}: {len(found.jobs)} runs, {n_there} there"
    bound = "at most " if any(estimate.is_bound for estimate in found.estimates) else "about "
    text += f", {bound}{duration(seconds)} for the others" if seconds else ""
    text += f", {n_unknown} of unknown length (no run of their model was measured here)" if n_unknown else ""
    return [text, *(f"left out: {line}" for line in found.left_out)]


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _seeds(text: str) -> tuple[int, ...]:
    """ "3": the first three; "2020,2021": these."""
    try:
        numbers = tuple(int(part) for part in _names(text))
    except ValueError as error:
        raise ConfigError(f"--seeds={text}", "a number of seeds, or seeds: --seeds=3, --seeds=2020,2021") from error
    if len(numbers) == 1 and 0 < numbers[0] < 100:
        return tuple(range(2020, 2020 + numbers[0]))
    return numbers


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="recbole-prism reproduce",
        description="Make the runs of a table or figure of the paper and write it from their run directories, with the "
        "paper's values beside. Runs that are there are reused; stop it and start it again at any time.",
        epilog="what there is: table1 (data sets); "
        + "; ".join(f"{study.name} ({study.title})" for study in STUDIES.values())
        + ". --key=value sets a setting of all runs, e.g. --data_path=/data --checkpoint_dir=runs --epochs=5",
        allow_abbrev=False,
    )
    parser.add_argument("what", metavar="WHAT", help=", ".join(NAMES))
    parser.add_argument("--datasets", default="", metavar="A,B", help="default: those of the paper")
    parser.add_argument("--models", default="", metavar="A,B", help="only these rows")
    parser.add_argument("--seeds", default="", metavar="N", help="a number of seeds from 2020 on, or seeds: 2020,2021")
    parser.add_argument("--dry-run", action="store_true", help="list the runs and the time they will take")
    parser.add_argument("--report", action="store_true", help="write pages from the runs that are there; make none")
    parser.add_argument("--measured", metavar="FOLDER", help="more runs, for the estimates of time alone")
    parser.add_argument("--out", metavar="FOLDER", help="where to (default: reproduced/WHAT)")
    add_queue_options(parser)
    return parser
