"""A search from its beginning, or from where it was stopped, to a tested winner."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Optional

from recbole_prism import quick_start
from recbole_prism.errors import RecBolePrismError
from recbole_prism.run_files import write_json
from recbole_prism.tuning.ledger import FAILED, Ledger, Trial, claim, ranking, shown
from recbole_prism.tuning.outcome import write_picture, write_recipe, write_tables
from recbole_prism.tuning.plan import Plan
from recbole_prism.tuning.proposals import proposals
from recbole_prism.tuning.ray_run import Desk, run_trials

logger = logging.getLogger("recbole_prism")


@dataclass(frozen=True)
class Outcome:
    """What a search found.

    Attributes:
        folder: With recipe.yaml, trials.md, trials.csv, trials.png, trials.json and search.json.
        winner: The best trial on validation.
        result: What `quick_start.run` returned for it; None if the search was stopped before its end.
        trials: All trials.
    """

    folder: Path
    winner: Trial
    result: Optional[dict[str, Any]]
    trials: list[Trial]


def search(plan: Plan) -> Outcome:
    """Try settings, and test the best ones once.

    A search that was stopped or killed goes on: trials that ended are not repeated, those that had begun go on after
    their last finished epoch.

    Args:
        plan: From `make_plan`.

    Raises:
        RecBolePrismError: No trial has a score, or another process is at this search.
    """
    ledger = _open(plan)
    found = proposals(plan.way.searcher, plan.space, plan.bigger, plan.chosen["seed"])
    desk = Desk(plan, ledger, found, after_end=partial(_write_so_far, plan, ledger))
    logger.info("search: %s", plan.folder)
    if ledger.trials:
        n_again = len(desk.again)
        logger.info("it is gone on with: %d trials ended, %d had begun", len(ledger.trials) - n_again, n_again)
    if desk.n_open:
        run_trials(desk)
    if desk.is_unfinished and not desk.is_over:
        logger.info("stopped before its end; the same command goes on, and with --conclude tests the best so far")
        return Outcome(plan.folder, _write(plan, ledger), None, ledger.trials)
    return conclude(plan, ledger)


def conclude(plan: Plan, ledger: Optional[Ledger] = None) -> Outcome:
    """Test the best trial so far, once, and write recipe, tables and picture; no other trial is trained.

    The winner is chosen by its validation score alone. If it had been stopped early it is trained to its end first. One
    that fails meanwhile gives way to the next.

    Args:
        plan: From `make_plan`.
        ledger: Of the search; None reads it.

    Raises:
        RecBolePrismError: No trial has a score.
    """
    ledger = ledger or _open(plan)
    while True:
        winner = _write(plan, ledger)
        logger.info("trial %d is best on validation (%s) and is tested: %s", *_named(plan, winner))
        try:
            result = quick_start.run(config_dict={**plan.settings, **winner.values})
        except RecBolePrismError as error:
            logger.warning("trial %d failed: %s", winner.number, error.cause)
            winner.state, winner.reason = FAILED, error.cause
            ledger.write()
            continue
        winner.run_directory = result["run_directory"]
        ledger.write()
        write_recipe(plan, ledger, winner, result)
        return Outcome(plan.folder, winner, result, ledger.trials)


def _named(plan: Plan, trial: Trial) -> tuple[int, str, str]:
    return trial.number, f"{plan.metric} {trial.best(plan.bigger):.4f}", shown(trial.values)


def _open(plan: Plan) -> Ledger:
    claim(plan.folder)
    description = {"settings": plan.settings, "space": plan.space.to_dict(), "way": vars(plan.way)}
    write_json(plan.folder / "search.json", description)
    return Ledger(plan.folder)


def _write_so_far(plan: Plan, ledger: Ledger) -> None:
    """Tables and a recipe of the best, after every trial: a search that is killed leaves them."""
    best = ranking(ledger.trials, plan.bigger)
    write_tables(plan, ledger)
    if best:
        write_recipe(plan, ledger, best[0], None)


def _write(plan: Plan, ledger: Ledger) -> Trial:
    """Write what there is to be seen; give the best trial."""
    _write_so_far(plan, ledger)
    best = ranking(ledger.trials, plan.bigger)
    if not best:
        reasons = [trial.reason for trial in ledger.trials if trial.reason]
        raise RecBolePrismError(
            f"no trial of {plan.folder} has a score" + (f"; the first failed: {reasons[0]}" if reasons else ""),
            "repair the cause; the same command tries them again",
        )
    write_picture(plan, ledger)
    return best[0]
