"""Ray Tune runs the trials of a search. Which ones, and what became of them, is the ledger's business, not Ray's.

So a search is gone on with from the ledger and the run directories of its trials, on any version of Ray, and nothing is
unpickled. Ray's own folder of an experiment is deleted when the search ends.
"""

from __future__ import annotations

import logging
import shutil
import time
from types import SimpleNamespace
from typing import Any, Callable, Mapping, Optional

from recbole_prism.tuning import ray_names
from recbole_prism.tuning.ledger import DONE, FAILED, RUNNING, STOPPED, Ledger, Trial, shown
from recbole_prism.tuning.plan import ASHA, Plan
from recbole_prism.tuning.proposals import Proposals
from recbole_prism.tuning.trial import BEST, DIRECTORY, EPOCH, N_EPOCHS, SCORE, SECONDS, run_trial

logger = logging.getLogger("recbole_prism")

_NUMBER, _VALUES = "number", "values"  # of a trial, in the config that Ray hands around


class Desk:
    """Hands out trials and takes their results; the only one that changes the ledger.

    Args:
        plan: The search.
        ledger: What was done so far. Trials that did not come to an end are begun again, first of all; their run
            directories know how far they were.
        proposals: Of new trials.
        after_end: Called when a trial has ended.
    """

    def __init__(
        self, plan: Plan, ledger: Ledger, proposals: Proposals, after_end: Callable[[], None] = lambda: None
    ) -> None:
        self.plan = plan
        self.ledger = ledger
        self._proposals = proposals
        self._after_end = after_end
        self._begin = time.monotonic()
        for trial in ledger.trials:
            if trial.state in (DONE, STOPPED):
                proposals.tell(trial.values, trial.best(plan.bigger))
        self.again = [trial for trial in ledger.trials if trial.state in (RUNNING, FAILED)]
        for trial in self.again:
            proposals.reserve(trial.values)
        self.n_open = len(self.again) + max(0, plan.n_trials - len(ledger.trials))

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: Ray pickles its searchers and callbacks, and what it pickled is never read."""
        return {}

    @property
    def is_unfinished(self) -> bool:
        """Whether a trial is left that did not come to an end."""
        return bool(self.again) or any(trial.state == RUNNING for trial in self.ledger.trials)

    @property
    def is_over(self) -> bool:
        """Whether the hours are over."""
        return self.plan.way.hours is not None and self._seconds >= 3600 * self.plan.way.hours

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._begin

    def next(self) -> Optional[Trial]:
        """The trial to be started next; None if there is none."""
        if self.again:
            trial = self.again.pop(0)
            trial.state, trial.reason = RUNNING, ""
        else:
            values = self._proposals.next() if len(self.ledger.trials) < self.plan.n_trials else None
            if values is None:
                return None
            trial = self.ledger.add(values)
        self.ledger.write()
        logger.info("trial %d of %d begins: %s", trial.number, self.plan.n_trials, shown(trial.values))
        return trial

    def result(self, number: int, result: Mapping[str, Any]) -> None:
        """Take note of a report of a trial."""
        trial = self.ledger.of(number)
        trial.add(result[EPOCH], result[SCORE])
        trial.seconds = result[SECONDS]
        trial.run_directory = result.get(DIRECTORY)
        self.ledger.write()

    def end(self, number: int, failed: bool = False) -> None:
        """Take note of the end of a trial."""
        trial = self.ledger.of(number)
        ended_itself = trial.run_directory is not None or trial.epochs[-1:] == [self.plan.epochs - 1]
        if self.is_over and not ended_itself and not failed:
            return  # stopped with the search: it can be gone on with
        trial.state = FAILED if failed else DONE if ended_itself else STOPPED
        score = trial.best(self.plan.bigger)
        self._proposals.tell(trial.values, None if failed else score)
        self.ledger.write()
        self._log_end(trial, score)
        self._after_end()

    def _log_end(self, trial: Trial, score: Optional[float]) -> None:
        ended = [other for other in self.ledger.trials if other.state != RUNNING]
        left = self.plan.n_trials - len(ended)
        found = "no score" if score is None else f"best validation {self.plan.metric} {score:.4f}"
        logger.info(
            "trial %d %s after %d evaluations (%.0f s), %s; %d of %d ended, %.1f min passed, %d left",
            *(trial.number, trial.state, len(trial.scores), trial.seconds, found),
            *(len(ended), self.plan.n_trials, self._seconds / 60, left),
        )


def run_trials(desk: Desk) -> None:
    """Run the trials that are left. Failing ones do not stop the others; Ctrl-C stops all, and returns.

    Args:
        desk: Of the search.
    """
    tune = ray_names.load_tune()
    plan, way = desk.plan, desk.plan.way
    started = ray_names.start(way.address)
    storage = plan.folder / "ray"
    trainable = tune.with_parameters(_trainable, settings=plan.settings, bigger=plan.bigger)
    try:
        tuner = tune.Tuner(
            tune.with_resources(trainable, {"cpu": way.cpus, "gpu": plan.gpus}),
            tune_config=tune.TuneConfig(
                num_samples=desk.n_open,
                search_alg=_searcher(desk),
                scheduler=_scheduler(plan, desk.ledger),
                max_concurrent_trials=way.parallel,
                time_budget_s=None if way.hours is None else 3600 * way.hours,
                reuse_actors=False,  # each trial in a process of its own: what one leaves behind, none finds
                trial_dirname_creator=lambda trial: f"trial_{trial.config[_NUMBER]}",
            ),
            run_config=ray_names.run_config(f"started_{int(time.time())}", str(storage), [_teller(desk)]),
        )
        for result in tuner.fit():
            if result.error is not None:
                desk.ledger.of(result.config[_NUMBER]).reason = _last_line(result.error)
        desk.ledger.write()
    finally:
        if started:
            ray_names.stop()
        shutil.rmtree(storage, ignore_errors=True)


def _trainable(config: dict[str, Any], settings: Mapping[str, Any], bigger: bool) -> None:
    run_trial({**settings, **config[_VALUES]}, bigger, ray_names.report)


def _searcher(desk: Desk) -> Any:
    """A Ray searcher that asks the desk."""
    from ray.tune.search import Searcher

    class DeskSearcher(Searcher):
        def suggest(self, trial_id: str) -> Any:
            trial = desk.next()
            return Searcher.FINISHED if trial is None else {_NUMBER: trial.number, _VALUES: trial.values}

        def on_trial_complete(self, trial_id: str, result: Optional[dict] = None, error: bool = False) -> None:
            """The callback tells the desk."""

        def save(self, checkpoint_path: str) -> None:
            """The ledger is what is gone on from."""

        def restore(self, checkpoint_path: str) -> None:
            """As `save`."""

    return DeskSearcher(metric=BEST, mode=_mode(desk.plan))


def _teller(desk: Desk) -> Any:
    """A Ray callback that tells the desk."""
    from ray.tune import Callback

    class Teller(Callback):
        def on_trial_result(self, iteration: int, trials: list, trial: Any, result: dict, **info: Any) -> None:
            desk.result(trial.config[_NUMBER], result)

        def on_trial_complete(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
            desk.end(trial.config[_NUMBER])

        def on_trial_error(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
            desk.end(trial.config[_NUMBER], failed=True)

    return Teller()


def _scheduler(plan: Plan, ledger: Ledger) -> Any:
    """ASHA, told what earlier trials of the search had reached after as many epochs."""
    if plan.way.scheduler != ASHA:
        return None
    from ray.tune.schedulers import ASHAScheduler

    scheduler: Any = ASHAScheduler(
        time_attr=N_EPOCHS,
        metric=BEST,
        mode=_mode(plan),
        max_t=plan.epochs,
        grace_period=min(plan.way.grace, plan.epochs),
        reduction_factor=plan.way.reduction,
        stop_last_trials=False,
    )
    for trial in ledger.trials:
        if trial.state not in (DONE, STOPPED):
            continue
        past = SimpleNamespace(trial_id=f"past_{trial.number}")  # all that ASHA asks of a trial
        scheduler.on_trial_add(None, past)
        for place, epoch in enumerate(trial.epochs):
            best = (max if plan.bigger else min)(trial.scores[: place + 1])
            scheduler.on_trial_result(None, past, {N_EPOCHS: epoch + 1, BEST: best})
    return scheduler


def _mode(plan: Plan) -> str:
    return "max" if plan.bigger else "min"


def _last_line(error: Exception) -> str:
    """The cause of a failed trial: the last line of its traceback, without the cure."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("->")]
    return lines[-1] if lines else type(error).__name__
