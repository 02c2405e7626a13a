"""Paired tests against values worked out by hand, and their symmetries."""

from __future__ import annotations

import math

import numpy as np
import pytest

from recbole_prism.errors import EvaluationError
from recbole_prism.evaluation.significance import holm, paired_test

A = np.array([5.0, 7.0, 6.0, 10.0])
B = np.array([4.0, 5.0, 6.0, 5.0])


def test_t_test_by_hand() -> None:
    # differences 1, 2, 0, 5: mean 2, variance (1 + 0 + 4 + 9) / 3, t = 2 / sqrt(14 / 12) with 3 degrees of freedom
    t = 2 / math.sqrt(14 / 12)
    x = t / math.sqrt(3)  # CDF of Student's t for 3 degrees of freedom in closed form
    p = 2 * (0.5 - (math.atan(x) + x / (1 + x * x)) / math.pi)
    found = paired_test(A, B)
    assert (found.n, found.mean_a, found.mean_b, found.difference, found.n_equal) == (4, 7.0, 5.0, 2.0, 1)
    assert found.percent == pytest.approx(40.0)
    assert found.p_t == pytest.approx(p, rel=1e-9)


def test_wilcoxon_by_hand() -> None:
    # three differences that are not 0, all positive: of 2^3 signs the given and its mirror are as extreme
    assert paired_test(A, B).p_wilcoxon == pytest.approx(2 / 8)
    five = paired_test(np.arange(1.0, 6.0), np.zeros(5))
    assert five.p_wilcoxon == pytest.approx(2 / 32)


def test_bootstrap_interval_holds_what_resampled_means_can_be() -> None:
    found = paired_test(A, B, confidence=0.999)
    assert found.low is not None and found.high is not None
    assert 0.0 <= found.low < 2.0 < found.high <= 5.0
    draw = np.random.default_rng(1)
    a = draw.normal(0.3, 1.0, 4000)
    wide = paired_test(a, np.zeros(4000))
    half = 1.96 * a.std() / math.sqrt(4000)  # the normal approximation
    assert wide.low == pytest.approx(a.mean() - half, abs=0.1 * half)
    assert wide.high == pytest.approx(a.mean() + half, abs=0.1 * half)


def test_swapping_mirrors() -> None:
    draw = np.random.default_rng(0)
    a, b = draw.random(500), draw.random(500)
    one, other = paired_test(a, b), paired_test(b, a)
    assert one.difference == -other.difference
    assert one.low is not None and one.high is not None
    assert (one.low, one.high) == (pytest.approx(-other.high, abs=1e-12), pytest.approx(-other.low, abs=1e-12))
    assert one.p_t == pytest.approx(other.p_t) and one.p_wilcoxon == pytest.approx(other.p_wilcoxon)


def test_equal_numbers_have_no_difference_and_no_evidence() -> None:
    found = paired_test(A, A.copy())
    assert (found.difference, found.low, found.high, found.p_t, found.p_wilcoxon) == (0.0, 0.0, 0.0, 1.0, 1.0)
    assert found.n_equal == 4


def test_one_pair_gives_a_difference_and_no_test() -> None:
    for other in (1.0, 2.0):
        found = paired_test(np.array([2.0]), np.array([other]))
        assert found.difference == 2.0 - other
        assert (found.low, found.high, found.p_t, found.p_wilcoxon) == (None, None, None, None)


def test_the_same_difference_everywhere_is_certain() -> None:
    assert paired_test(np.array([2.0, 3.0, 4.0]), np.array([1.0, 2.0, 3.0])).p_t == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (np.zeros(2), np.zeros(3), "no pairs"),
        (np.zeros(0), np.zeros(0), "no pairs"),
        (np.array([1.0, np.nan]), np.zeros(2), "not finite"),
    ],
)
def test_what_cannot_be_paired_is_refused(a: np.ndarray, b: np.ndarray, message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        paired_test(a, b)


def test_holm_by_hand() -> None:
    # sorted: 0.01 x 4, 0.02 x 3, 0.03 x 2 (raised to what stood before), 0.5 x 1
    assert holm([0.5, 0.01, 0.03, 0.02]) == pytest.approx([0.5, 0.04, 0.06, 0.06])
    assert holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])
    assert holm([None, 0.04, None]) == [None, 0.04, None]  # what was not tested does not count
    assert holm([]) == []
