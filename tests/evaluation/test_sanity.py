"""The warning for a model that does no better than counting."""

from __future__ import annotations

import logging

import pytest

from recbole_prism.evaluation.sanity import check_baselines

SCORES = {"Popularity": 0.02, "Markov": 0.05}


@pytest.mark.parametrize(
    ("score", "bigger", "lost_to"),
    [
        (0.06, True, []),
        (0.05, True, ["Markov"]),
        (0.01, True, ["Popularity", "Markov"]),
        (0.03, False, ["Popularity"]),
        (0.01, False, []),
    ],
)
def test_warns_of_each_that_is_as_good(
    score: float, bigger: bool, lost_to: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="recbole_prism"):
        assert check_baselines("SASRec", "NDCG@20", score, SCORES, bigger) == lost_to
    assert [record.levelname for record in caplog.records] == ["WARNING"] * bool(lost_to)
    assert all(f"{name} {SCORES[name]:.4f}" in caplog.text for name in lost_to)
