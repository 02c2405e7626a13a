"""The verb `tune` of the command line."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recbole_prism.cli import format_result, log_to_terminal
from recbole_prism.data.prepare import config_with_data
from recbole_prism.data_cli import setting_of
from recbole_prism.errors import ConfigError
from recbole_prism.experiments_cli import find_modules_here, say, stop_on_signals
from recbole_prism.settings_files import parse_value, recipe_path
from recbole_prism.tuning.outcome import RECIPE
from recbole_prism.tuning.plan import SCHEDULERS, Plan, Way, make_plan
from recbole_prism.tuning.proposals import GRID, SEARCHERS
from recbole_prism.tuning.search import Outcome, conclude, search
from recbole_prism.tuning.space import Space, space_path

INTERRUPTED = 130  # exit status, as a shell reports Ctrl-C


def tune_main(argv: Sequence[str]) -> int:
    """`recbole-prism tune --model=NAME --dataset=NAME`: search for settings, and test the best ones once.

    Args:
        argv: Arguments after the verb.

    Returns:
        Exit status: 0 the winner is tested, 130 stopped before that.

    Raises:
        RecBolePrismError: See the message.
    """
    args, rest = _parser().parse_known_args(list(argv))
    find_modules_here()
    # Ray reads these when it starts. It is not to report to its makers, to write three more logs of every trial, or to
    # work in a folder of its own
    for name, value in (
        ("RAY_USAGE_STATS_ENABLED", "0"),
        ("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1"),
        ("RAY_AIR_NEW_OUTPUT", "0"),
    ):
        os.environ.setdefault(name, value)
    log_to_terminal()
    plan = _plan(args, dict(map(setting_of, rest)))
    with stop_on_signals():
        outcome = conclude(plan) if args.conclude else search(plan)
    say(_told(plan, outcome))
    return INTERRUPTED if outcome.result is None else 0


def _plan(args: argparse.Namespace, settings: dict[str, Any]) -> Plan:
    files = args.config_files.split()
    if args.recipe is not None:
        if not isinstance(settings.get("dataset"), str):
            raise ConfigError("--recipe belongs to a data set, and none is named", "add --dataset=NAME")
        files.insert(0, str(recipe_path(settings["dataset"], args.recipe)))
    config = config_with_data(config_file_list=files, command_line=settings)
    changes = parse_value(args.search)
    if not isinstance(changes, dict):
        raise ConfigError(f"--search={args.search}", "a mapping: --search='{learning_rate: [0.001, 0.0003]}'")
    space = Space.load(Path(args.space) if args.space else space_path(config.model_entry.name), changes)
    n_trials = args.trials if args.trials is not None else None if args.searcher == GRID else 20
    own = {name: getattr(args, name) for name in ("searcher", "scheduler", "grace", "reduction", "cpus", "gpus")}
    others = {name: getattr(args, name) for name in ("parallel", "hours", "address")}
    logging.getLogger("recbole_prism").info("space: %s", space.to_dict())
    return make_plan(config, space, Way(n_trials=n_trials, **own, **others))


def _told(plan: Plan, outcome: Outcome) -> list[str]:
    """What is said at the end."""
    failed = [trial for trial in outcome.trials if trial.reason]
    lines = [f"trial {trial.number} failed: {trial.reason}" for trial in failed]
    if outcome.result is not None:
        lines.append(format_result(outcome.result))
    winner, score = outcome.winner.number, outcome.winner.best(plan.bigger)
    lines += [
        f"best of {len(outcome.trials)} trials on validation: number {winner}, {plan.metric} {score:.6f}",
        f"trials: {outcome.folder / 'trials.md'} (.csv, .png)",
        f"recipe: recbole-prism run --config_files={outcome.folder / RECIPE}",
    ]
    return lines


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="recbole-prism tune",
        description="Search for settings with Ray Tune. Trials are compared on validation rows; the winner alone is "
        "tested, once. Stop it and start it again at any time: the same command goes on.",
        epilog="--key=value sets a setting of every trial: --model=PRISM --dataset=amazon-toys --epochs=50. "
        "All is kept in <checkpoint_dir>/searches/<data set>/.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--searcher", choices=SEARCHERS, default=Way.searcher, help=f"default: {Way.searcher}")
    add("--trials", type=int, metavar="N", help="at most so many (default: 20; grid: all)")
    add("--space", metavar="FILE", help="search space (default: properties/search/<Model>.yaml)")
    add("--search", metavar="MAPPING", default="{}", help="keys to search besides, or instead; ~ takes a key out")
    add("--scheduler", choices=SCHEDULERS, default=Way.scheduler, help="asha (default) stops bad trials early")
    add("--grace", type=int, default=Way.grace, metavar="EPOCHS", help=f"no trial is stopped before ({Way.grace})")
    add("--reduction", type=float, default=Way.reduction, metavar="R", help=f"1 in R goes on ({Way.reduction:g})")
    add("--cpus", type=float, default=Way.cpus, metavar="N", help="processors per trial, also its threads (1)")
    add("--gpus", type=float, metavar="SHARE", help="GPU per trial, e.g. 0.25 (default: 1 if there is one, else 0)")
    add("--parallel", type=int, metavar="N", help="at most so many trials at a time (default: as many as fit)")
    add("--hours", type=float, metavar="H", help="stop the trials after so long, and test the best so far")
    add("--address", metavar="ADDRESS", help="of a Ray cluster: auto, host:6379, ray://host:10001")
    add("--conclude", action="store_true", help="begin no trial; test the best so far of a stopped search")
    add("--config_files", default="", metavar='"A B"', help="settings files, the last one strongest")
    add("--recipe", metavar="NAME", help="start from properties/recipe/<dataset>/NAME.yaml")
    return parser
