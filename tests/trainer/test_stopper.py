"""Early stopping: strictly better, unrounded, counted in evaluations."""

from __future__ import annotations

import json

import pytest

from recbole_prism.trainer import EarlyStopper


def stop_round(scores: list[float], patience: int, bigger: bool = True) -> int:
    """Number of evaluations after which training stops; -1 if it does not."""
    stopper = EarlyStopper(patience, bigger)
    for index, score in enumerate(scores):
        stopper.update(score, index)
        if stopper.should_stop:
            return index + 1
    return -1


@pytest.mark.parametrize(
    ("scores", "patience", "expected"),
    [
        ([0.5] * 20, 3, 4),  # the first one is the best; an equal score is no progress
        ([0.1, 0.2, 0.3, 0.4], 1, -1),
        ([0.1, 0.2, 0.15, 0.19, 0.2], 3, 5),
        ([0.1, 0.05, 0.11, 0.05, 0.05], 2, 5),  # counted from the best, not in total
        ([0.1, 0.2, 0.2], 0, 3),  # no patience: the first evaluation without progress is the last
        ([0.12340001, 0.12340002, 0.12340003], 1, -1),  # differences below four decimals count
    ],
)
def test_stops_after_patience_evaluations_without_a_strictly_better_score(
    scores: list[float], patience: int, expected: int
) -> None:
    assert stop_round(scores, patience) == expected
    assert stop_round([-score for score in scores], patience, bigger=False) == expected


def test_remembers_the_first_epoch_of_the_best_score_and_goes_on_from_its_own_dict() -> None:
    scores = [0.0, 0.3, 0.2, 0.3, 0.1, 0.25, 0.2]
    straight = EarlyStopper(10)
    first = EarlyStopper(10)
    for epoch, score in enumerate(scores[:3]):
        first.update(score, epoch)
    second = EarlyStopper(10)
    second.load_dict(json.loads(json.dumps(first.to_dict())))
    for epoch, score in enumerate(scores):
        straight.update(score, epoch)
        if epoch >= 3:
            second.update(score, epoch)
    assert second == straight
    assert (straight.best_score, straight.best_epoch, straight.n_waited) == (0.3, 1, 5)


def test_a_first_score_of_zero_is_better_than_none() -> None:
    stopper = EarlyStopper(2)
    assert stopper.update(0.0, 0)
    assert not stopper.update(0.0, 1)
