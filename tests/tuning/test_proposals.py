"""Which settings come next: nothing twice, the same again for a seed, and a search that is gone on with goes on."""

from __future__ import annotations

from typing import Any

import pytest

from recbole_prism.errors import ConfigError
from recbole_prism.tuning.proposals import SEARCHERS, proposals
from recbole_prism.tuning.space import Space

SPACE = Space.of({"a": [1, 2, 3, 4], "b": [0.1, 0.2, 0.3]}, "test")


def score(values: dict[str, Any]) -> float:
    """Best at a = 3, b = 0.2."""
    return -((values["a"] - 3) ** 2) - 100 * (values["b"] - 0.2) ** 2


@pytest.mark.parametrize("searcher", SEARCHERS)
def test_every_setting_of_a_finite_space_comes_once_and_then_none(searcher: str) -> None:
    found = proposals(searcher, SPACE, bigger=True, seed=1)
    points = []
    while (values := found.next()) is not None:
        points.append(tuple(values.values()))
        found.tell(values, score(values))
    assert sorted(points) == [(a, b) for a in (1, 2, 3, 4) for b in (0.1, 0.2, 0.3)]


@pytest.mark.parametrize("searcher", SEARCHERS)
def test_what_was_tried_before_does_not_come_again(searcher: str) -> None:
    first = proposals(searcher, SPACE, bigger=True, seed=1)
    tried = [values for _ in range(5) if (values := first.next()) is not None]
    again = proposals(searcher, SPACE, bigger=True, seed=1)
    for values in tried[:3]:
        again.tell(values, score(values))
    again.tell(tried[3], None)
    again.reserve(tried[4])
    others = []
    while (values := again.next()) is not None:
        others.append(values)
        again.tell(values, score(values))
    assert len(others) == 12 - 5
    assert not [values for values in others if values in tried]


@pytest.mark.parametrize("searcher", ("grid", "random"))
def test_a_search_that_is_gone_on_with_tries_what_the_whole_one_would_have(searcher: str) -> None:
    whole = proposals(searcher, SPACE, bigger=True, seed=3)
    points = [whole.next() for _ in range(8)]
    again = proposals(searcher, SPACE, bigger=True, seed=3)
    for values in points[:4]:
        again.tell(values or {}, 0.0)
    assert [again.next() for _ in range(4)] == points[4:]


@pytest.mark.parametrize("bigger", (True, False))
def test_optuna_turns_to_where_scores_are_good(bigger: bool) -> None:
    space = Space.of({"x": {"type": "uniform", "low": 0, "high": 1}}, "test")
    found = proposals("optuna", space, bigger=bigger, seed=0)
    points = []
    for _ in range(40):
        values = found.next() or {}
        points.append(values["x"])
        distance = abs(values["x"] - 0.8)
        found.tell(values, -distance if bigger else distance)
    early, late = points[:10], points[-10:]
    assert sum(abs(x - 0.8) for x in late) / 10 < 0.5 * sum(abs(x - 0.8) for x in early) / 10


def test_an_unknown_searcher_is_named() -> None:
    with pytest.raises(ConfigError, match="searcher is 'guess'"):
        proposals("guess", SPACE, bigger=True, seed=0)
