"""Which settings a search tries next: grid, random, or Optuna's tree-structured Parzen estimator.

A search that is gone on with tells what it has tried before; then it proposes what is left.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Optional

from recbole_prism.errors import ConfigError, RecBolePrismError
from recbole_prism.tuning.space import INT, LOGUNIFORM, Dimension, Listed, Space

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

GRID, RANDOM, OPTUNA = SEARCHERS = ("grid", "random", "optuna")
_DRAWS = 10_000  # a draw that was there before is drawn anew, so often
_ASKS = 10  # Optuna, which asks for what it likes again and again; then a random draw takes its place

Values = dict[str, Any]


class Proposals:
    """Grid and random: a fixed row of proposals, whatever their results.

    Args:
        points: In the order in which they are tried.
        size: How many different ones there are.
    """

    def __init__(self, points: Iterator[Values], size: float) -> None:
        self._points = points
        self._size = size
        self._known: set[str] = set()

    def tell(self, values: Mapping[str, Any], score: Optional[float]) -> None:
        """Take note of a trial that ended.

        Args:
            values: What it tried.
            score: Its best validation score; None if it failed.
        """
        self.reserve(values)

    def reserve(self, values: Mapping[str, Any]) -> None:
        """Do not propose these: they are being tried already."""
        self._known.add(_key(values))

    def next(self) -> Optional[Values]:
        """Settings that were neither proposed nor told before; None if there are no more."""
        if len(self._known) >= self._size:
            return None
        for _, values in zip(range(_DRAWS), self._points):
            if _key(values) not in self._known:
                self._known.add(_key(values))
                return values
        return None


class OptunaProposals(Proposals):
    """Optuna: proposals that depend on the results told so far.

    Args:
        space: What is searched.
        bigger: Whether a higher score is better.
        seed: Of the sampler.

    Raises:
        RecBolePrismError: Optuna is not installed.
    """

    def __init__(self, space: Space, bigger: bool, seed: int) -> None:
        super().__init__(space.samples(seed), space.size)
        try:
            import optuna
        except ImportError as error:
            raise RecBolePrismError("--searcher=optuna needs Optuna", "pip install optuna") from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna = optuna
        self._space = space
        self._distributions = {key: _distribution(optuna, found) for key, found in space.dimensions.items()}
        # what is still running counts as bad, so that parallel trials do not all try the same
        sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        self._study = optuna.create_study(direction="maximize" if bigger else "minimize", sampler=sampler)
        self._asked: dict[str, Any] = {}

    def tell(self, values: Mapping[str, Any], score: Optional[float]) -> None:
        """As `Proposals.tell`; those of an earlier attempt count like those proposed here."""
        super().tell(values, score)
        state = self._optuna.trial.TrialState.FAIL if score is None else self._optuna.trial.TrialState.COMPLETE
        asked = self._asked.pop(_key(values), None)
        if asked is not None:
            self._study.tell(asked, score, state=state)
            return
        places = {key: _place(self._space.dimensions[key], value) for key, value in values.items()}
        trial = self._optuna.trial.create_trial(
            params=places, distributions=self._distributions, value=score, state=state
        )
        self._study.add_trial(trial)

    def next(self) -> Optional[Values]:
        """As `Proposals.next`."""
        n_asks = _ASKS if len(self._known) < self._size else 0
        for _ in range(n_asks):
            trial = self._study.ask(fixed_distributions=self._distributions)
            values = {key: _value(self._space.dimensions[key], place) for key, place in trial.params.items()}
            if _key(values) not in self._known:
                return self._give(values, trial)
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        drawn = super().next()
        if drawn is None:
            return None
        self._study.enqueue_trial({key: _place(self._space.dimensions[key], value) for key, value in drawn.items()})
        return self._give(drawn, self._study.ask(fixed_distributions=self._distributions))

    def _give(self, values: Values, trial: Any) -> Values:
        self.reserve(values)
        self._asked[_key(values)] = trial
        return values


def proposals(searcher: str, space: Space, bigger: bool, seed: int) -> Proposals:
    """Make the proposals of a searcher.

    Args:
        searcher: "grid", "random" or "optuna".
        space: What is searched.
        bigger: Whether a higher score is better.
        seed: Of all draws.

    Raises:
        ConfigError: There is no such searcher, or it cannot search this space.
    """
    if searcher == GRID:
        return Proposals(iter(space.grid(seed)), space.size)
    if searcher == RANDOM:
        return Proposals(space.samples(seed), space.size)
    if searcher == OPTUNA:
        return OptunaProposals(space, bigger, seed)
    raise ConfigError(f"searcher is {searcher!r}", f"one of {', '.join(SEARCHERS)}")


def _key(values: Mapping[str, Any]) -> str:
    return json.dumps(values, sort_keys=True)


def _distribution(optuna: Any, dimension: Dimension) -> BaseDistribution:
    if isinstance(dimension, Listed):  # by place: Optuna's categories are numbers and texts only
        return optuna.distributions.CategoricalDistribution(tuple(range(len(dimension.values))))
    if dimension.kind == INT:
        return optuna.distributions.IntDistribution(int(dimension.low), int(dimension.high))
    low, high = float(dimension.low), float(dimension.high)
    return optuna.distributions.FloatDistribution(low, high, log=dimension.kind == LOGUNIFORM)


def _value(dimension: Dimension, place: Any) -> Any:
    return dimension.values[place] if isinstance(dimension, Listed) else place


def _place(dimension: Dimension, value: Any) -> Any:
    return dimension.values.index(value) if isinstance(dimension, Listed) else value
