"""Comparisons of runs made by hand: pairing over rows and seeds, symmetry, refusal of unlike runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from recbole_prism.cli import main
from recbole_prism.errors import ConfigError, EvaluationError
from recbole_prism.evaluation.significance import paired_test
from recbole_prism.experiments.compare import Side, compare, read_side, to_markdown
from tests.experiments.fakes import measured_run

GOOD = {1: [0, 0, 1, 9, 0, 2], 2: [0, 1, 0, 9, 0, 9], 3: [0, 0, 0, 3, 9, 0]}
BAD = {1: [9, 0, 9, 9, 3, 9], 2: [9, 1, 9, 9, 9, 9], 4: [0, 0, 0, 0, 0, 0]}


def side(folder: Path, model: str, ranks: dict[int, list[int]]) -> Side:
    return Side(model, {seed: measured_run(folder, model, seed, rows) for seed, rows in ranks.items()})


def test_rows_and_seeds_are_paired_by_hand(tmp_path: Path) -> None:
    (found,) = compare([side(tmp_path, "A", GOOD), side(tmp_path, "B", BAD)], ["hit@1"])
    assert found.seeds == (1, 2)  # 3 and 4 have no partner
    a = np.array([[1, 1, 0, 0, 1, 0], [1, 0, 1, 0, 1, 0]], dtype=float)
    b = np.array([[0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]], dtype=float)
    assert found.rows == paired_test(a.mean(axis=0), b.mean(axis=0))
    assert found.over_seeds == paired_test(a.mean(axis=1), b.mean(axis=1))
    assert found.rows.difference == pytest.approx(6 / 12 - 1 / 12)
    left = compare([side(tmp_path / "l", "A", GOOD), side(tmp_path / "l", "B", BAD)], ["hit@1"], seen_removed=False)
    assert left[0].rows.mean_a == 0.0  # with nothing removed one more item is before each target


def test_swapping_sides_mirrors(tmp_path: Path) -> None:
    sides = [side(tmp_path, "A", GOOD), side(tmp_path, "B", BAD)]
    for one, other in zip(compare(sides), compare(sides[::-1])):
        assert (one.a, one.b) == (other.b, other.a)
        for mine, theirs in ((one.rows, other.rows), (one.over_seeds, other.over_seeds)):
            assert mine is not None and theirs is not None
            assert mine.difference == -theirs.difference
            assert mine.low == pytest.approx(-theirs.high) and mine.high == pytest.approx(-theirs.low)
        assert one.holm == pytest.approx(other.holm) and one.verdict == other.verdict


def test_identical_runs_have_no_difference(tmp_path: Path) -> None:
    one = side(tmp_path, "A", GOOD)
    found = compare([one, Side("B", one.runs)])
    assert [c.verdict for c in found] == ["no difference"] * 2
    assert all(c.rows.difference == 0 and c.holm["rows t"] == 1.0 for c in found)


def test_one_seed_compares_rows_alone_and_says_so(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    good, bad = draw.integers(0, 5, 400), draw.integers(0, 60, 400)
    (found,) = compare(
        [side(tmp_path, "A", {1: good.tolist()}), side(tmp_path, "B", {7: bad.tolist()})], ["ndcg@5"]
    )  # no common seed: all rows of both
    assert found.seeds == () and found.over_seeds is None and found.holm["seeds t"] is None
    assert found.verdict == "A above B (these runs; one seed says nothing of others)"
    text = to_markdown(
        [found], [side(tmp_path / "x", "A", {1: good.tolist()}), side(tmp_path / "x", "B", {7: bad.tolist()})]
    )
    assert "## Over test rows" in text and "## Over seeds" not in text


def test_holm_covers_everything_asked_for_together(tmp_path: Path) -> None:
    sides = [side(tmp_path, "A", GOOD), side(tmp_path, "B", BAD), side(tmp_path, "C", GOOD)]
    found = compare(sides, ["hit@1", "hit@5"])
    assert [(c.b, c.metric) for c in found] == [("B", "hit@1"), ("B", "hit@5"), ("C", "hit@1"), ("C", "hit@5")]
    raw = [c.rows.p_t for c in found]
    assert raw[2:] == [1.0, 1.0] and raw[0] is not None and raw[1] is not None
    smallest = min(raw[:2])  # type: ignore[type-var]
    assert min(c.holm["rows t"] for c in found) == pytest.approx(min(1.0, 4 * smallest))  # type: ignore[type-var, operator]


def test_seeds_decide_where_there_are_several(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    # every row of A is better, but the seeds' means scatter more than A and B differ
    rows = {seed: draw.integers(0, 40, 300) for seed in (1, 2)}
    a = {1: np.maximum(rows[1] - 8, 0).tolist(), 2: rows[2].tolist()}
    b = {1: rows[1].tolist(), 2: rows[2].tolist()}
    (found,) = compare([side(tmp_path, "A", a), side(tmp_path, "B", b)], ["ndcg@5"])
    assert found.holm["rows t"] is not None and found.holm["rows t"] < 0.05
    assert found.verdict == "no difference beyond chance"


def test_other_data_is_refused(tmp_path: Path) -> None:
    other = Side("B", {1: measured_run(tmp_path, "B", 1, GOOD[1], targets=[6, 5, 4, 3, 2, 1])})
    with pytest.raises(EvaluationError, match="not measured alike: test targets"):
        compare([side(tmp_path, "A", GOOD), other])
    with pytest.raises(ConfigError, match="only one side"):
        compare([other])
    with pytest.raises(ConfigError, match="no metric with a cut-off"):
        compare([other, other], ["ndcg"])


def test_the_command_line_reads_folders_and_lists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    side(tmp_path / "a", "A", GOOD)
    side(tmp_path / "b", "B", BAD)
    runs = ",".join(str(tmp_path / f"b/B-0123456789ab-s{seed}") for seed in (1, 2))
    assert main(["compare", str(tmp_path / "a"), runs, "--metrics=NDCG@5", f"--to={tmp_path / 'out'}"]) == 0
    shown = capsys.readouterr().out
    assert "# A against B" in shown and "seeds 1 2" in shown and (tmp_path / "out/compare.md").read_text() in shown
    (content,) = json.loads((tmp_path / "out/compare.json").read_text())
    assert content["metric"] == "ndcg@5" and content["rows"]["n"] == 6 and content["verdict"]
    assert read_side(runs).runs.keys() == {1, 2}
    assert main(["compare", str(tmp_path / "nothing"), runs]) == 2
    assert "there is no complete run" in capsys.readouterr().err
