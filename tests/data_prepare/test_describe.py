"""`describe` on data sets small enough to count by hand."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Callable

import numpy as np
import pytest

from recbole_prism.config import Config
from recbole_prism.data.dataset import SequentialDataset
from recbole_prism.data.describe import PartCounts, describe, histogram_lines, user_lines
from recbole_prism.data.leakage import leakage_checks
from recbole_prism.data.splits import Rows
from recbole_prism.data_cli import describe_main
from recbole_prism.errors import ConfigError, DataError
from tests.toy import write_inter

# b has two events on one day and takes x again; users with one event stand around it, the later one first
EVENTS = [
    ("late", "x", 9),
    ("b", "x", 1),
    ("b", "y", 2),
    ("b", "y", 3),
    ("b", "x", 4),
    ("b", "z", 4),
    ("early", "x", 1),
]
EVENTS += [("c", "x", 1), ("c", "y", 2)]


def read(data_path: Path, name: str, **settings: object) -> SequentialDataset:
    return SequentialDataset(Config("SASRec", name, config_dict={"data_path": str(data_path), **settings}))


@pytest.fixture()
def mine(tmp_path: Path) -> Path:
    write_inter(tmp_path, "mine", EVENTS)
    return tmp_path


def test_counts_by_hand(mine: Path) -> None:
    dataset = read(mine, "mine", MAX_ITEM_LIST_LENGTH=2)
    found = describe(dataset, dataset.build())
    assert sorted(found.lengths) == [1, 1, 2, 5]
    assert sorted(found.popularity) == [1, 3, 5]  # z, y, x
    assert (found.repeated, found.repeated_at_once) == (2, 1)  # b: y again at once, x again
    assert (found.tied, found.users_tied_at_end) == (1, 1)
    # rows: b x->y, xy->y (train), xyy->x (valid), xyyx->z (test); c x->y (train). z is never trained on
    assert found.parts == (
        PartCounts(rows=3, users=2, cut=0, repeated=1, cold=0, rare=3),
        PartCounts(rows=1, users=1, cut=1, repeated=1, cold=0, rare=1),
        PartCounts(rows=1, users=1, cut=1, repeated=0, cold=1, rare=1),
    )


def test_every_row_of_a_user(toy_path: Path) -> None:
    dataset = read(toy_path, "short", MAX_ITEM_LIST_LENGTH=3)
    parts = dataset.build()
    lines = user_lines(parts, "u5")
    assert [line.split() for line in lines] == [
        ["user", "u5:", "5", "events"],
        ["train", "501", "a", "->", "b"],
        ["train", "502", "a,", "b", "->", "c"],
        ["valid", "503", "a,", "b,", "c", "->", "d"],
        ["test", "504", "(1", "older),", "b,", "c,", "d", "->", "e"],
    ]
    assert [line.split()[0] for line in user_lines(parts, "u3")] == ["user", "train", "test"]
    assert user_lines(parts, "u1") == ["user u1: one event, so no row"]
    with pytest.raises(DataError, match="there is no user 'u9'"):
        user_lines(parts, "u9")


@pytest.mark.parametrize("split", [{"LS": "valid_and_test"}, {"RS": [0.6, 0.2, 0.2]}, {"TS": [0.6, 0.2, 0.2]}])
def test_no_leak_in_our_splits(toy_path: Path, split: dict) -> None:
    dataset = read(toy_path, "cyclic", eval_args={"split": split})
    checks = leakage_checks(dataset, dataset.build())
    assert [check.broken for check in checks] == [0] * 7
    assert all(check.checked > 0 for check in checks)


def test_users_with_one_event_do_not_look_like_a_fall_of_time(mine: Path) -> None:
    dataset = read(mine, "mine")
    assert not any(check.broken for check in leakage_checks(dataset, dataset.build()))


def _see_the_target(rows: Rows) -> Rows:
    return replace(rows, end=rows.end - 1)


def _see_another_user(rows: Rows) -> Rows:
    return replace(rows, start=np.maximum(rows.start - 1, 0))


@pytest.mark.parametrize(
    ("spoil", "broken"),
    [
        (lambda train, valid, test: (train, valid, replace(test, end=test.end - 1, target=valid.target)), "two rows"),
        (lambda train, valid, test: (train, valid, _see_the_target(test)), "right after its history"),
        (lambda train, valid, test: (_see_another_user(train), valid, test), "own user's events"),
        (lambda train, valid, test: (valid, train, test), "train targets come before their valid"),
        (lambda train, valid, test: (train, test, valid), "valid targets come before their test"),
    ],
)
def test_planted_leaks_are_found(toy_path: Path, spoil: Callable[..., tuple[Rows, ...]], broken: str) -> None:
    dataset = read(toy_path, "cyclic")
    parts = dataset.build()
    for part, rows in zip(parts, spoil(*(part.rows for part in parts))):
        part.rows = rows
    assert any(broken in check.question and check.broken > 0 for check in leakage_checks(dataset, parts))


def test_a_fall_of_time_is_found(toy_path: Path) -> None:
    dataset = read(toy_path, "cyclic")
    parts = dataset.build()
    dataset.times[[0, 1]] = dataset.times[[1, 0]]
    assert [check.broken for check in leakage_checks(dataset, parts)].count(1) == 1


def test_histogram_classes() -> None:
    lines = histogram_lines(np.array([3, 4, 5, 9, 9, 9, 10, 25]), "users")
    assert [line.split()[0] for line in lines] == ["3-4", "5-9", "10-19", "20-49"]
    assert [line.split()[-3] for line in lines] == ["2", "4", "1", "1"]
    assert [line.count("#") for line in lines] == [20, 40, 10, 10]


def test_the_verb(toy_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert describe_main(["short", f"--data_path={toy_path}"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("short: 5 users, 5 items, 15 interactions\n")
    assert "holds    no event is the target of two rows, in whatever parts (10 checked)\n" in text
    assert describe_main(["short", f"--data_path={toy_path}", "--user", "u2"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "user u2: 2 events"
    with pytest.raises(ConfigError, match="cannot read the argument"):
        describe_main(["short", "--data_path", str(toy_path)])
    with pytest.raises(DataError, match="unknown data set 'shrt'"):
        describe_main(["shrt", f"--data_path={toy_path}"])


def test_the_picture(toy_path: Path, tmp_path: Path) -> None:
    picture = tmp_path / "cyclic.png"
    if importlib.util.find_spec("matplotlib") is None:  # an extra: without it the message says so
        with pytest.raises(DataError, match="needs matplotlib"):
            describe_main(["cyclic", f"--data_path={toy_path}", "--picture", str(picture)])
        return
    assert describe_main(["cyclic", f"--data_path={toy_path}", "--picture", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 10_000
    with pytest.raises(DataError, match="writing below .*none failed"):
        describe_main(["cyclic", f"--data_path={toy_path}", "--picture", str(tmp_path / "none" / "x.png")])
