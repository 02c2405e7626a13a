"""pandas' C engine is used only where it gives what RecBole's reading gives, down to the last bit."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Optional, Union

import pandas as pd
import pytest

from recbole_prism.config import Config
from recbole_prism.data.dataset import SequentialDataset
from recbole_prism.errors import DataError
from tests import toy
from tests.data.helpers import make_config

HEADER = "user_id:token\titem_id:token\ttimestamp:float\n"
FIELDS = ("field2type", "field2source", "field2seqlen", "field2bucketnum")


class Reading(Exception):
    """Ends a data set's reading after its interaction file."""


def read(config: Config, fast: bool) -> tuple[bool, Union[str, tuple[pd.DataFrame, list[Any]]]]:
    """Whether the fast reading gave a table, and what was read: table and field properties, or the error."""
    used = False

    class Reader(SequentialDataset):
        def _load_fast(self, path: str) -> Optional[pd.DataFrame]:
            nonlocal used
            table = super()._load_fast(path) if fast else None
            used = table is not None
            return table

        def _load_feat(self, filepath: str, source: Any) -> Optional[pd.DataFrame]:
            raise Reading(super()._load_feat(filepath, source), [list(getattr(self, name).items()) for name in FIELDS])

    try:
        Reader(config)
    except Reading as end:
        return used, end.args  # type: ignore[return-value]
    except DataError as error:
        return used, str(error)
    raise AssertionError("no file was read")


def assert_equal(config: Config) -> bool:
    """Both readings agree; returns whether the fast one was used."""
    (used, found), (_, expected) = read(config, True), read(config, False)
    if isinstance(expected, str):
        assert found == expected
        return used
    pd.testing.assert_frame_equal(found[0], expected[0], check_exact=True)
    for name in found[0]:
        if found[0][name].dtype == object:  # None and NaN are not the same to everybody
            assert [type(value) for value in found[0][name]] == [type(value) for value in expected[0][name]]
        else:
            assert found[0][name].to_numpy().tobytes() == expected[0][name].to_numpy().tobytes()
    assert found[1] == expected[1]
    return used


def write(path: Path, text: str) -> Config:
    file = path / "odd" / "odd.inter"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(text.encode())
    return make_config(path, "odd")


@pytest.mark.parametrize("name", sorted(toy.ALL))
def test_toy_data(toy_path: Path, name: str) -> None:
    """`tok` has quotes inside, spaces, leading zeros and non-ASCII ids."""
    assert assert_equal(make_config(toy_path, name))


def test_some_columns_of_many(tmp_path: Path) -> None:
    rows = [(user, item, f"{time}\t{1 + k % 5}\tx{k % 3}\ta b") for k, (user, item, time) in enumerate(toy.repeats())]
    header = "user_id:token\titem_id:token\ttimestamp:float\trating:float\tkind:token\twords:token_seq"
    toy.write_inter(tmp_path, "wide", rows, header)
    for columns, used in ((["rating", "kind"], True), (["words"], False)):
        assert assert_equal(make_config(tmp_path, "wide", load_col={"inter": columns})) is used
    assert assert_equal(make_config(tmp_path, "wide", load_col=None, unload_col={"inter": ["words"]}))
    assert not assert_equal(make_config(tmp_path, "wide", load_col={"inter": "*"}))


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("", False),
        ("\nu\ti\t1\n", False),
        ("u\ti\t1", True),
        ("u\ti\t 5 \n\n  \nu\t\tnan\nNA\tnull\t+7\n", True),
        ("u\ti\t1\nu\ti\n", True),  # missing at the end
        ("u\ti\t1\nu\ti\t2\t9\n", True),  # RecBole drops what is beyond the header ...
        ("u\ti\t1\t\nu\ti\t2\t\n", False),  # ... but takes this for an index
        ('u\t"i\nj"\t1\nu\tk\t2\n', False),
        ('"u"\ti\t1\n', False),
        ("u\ti\t1\r\nu\tj\t2\r\n", False),
        ("u\ti\rj\t1\n", False),
        ("u\ti\t1700000000123456789\nu\ti\t0.5\n", False),
        ("u\ti\t1e400\n", False),
        ("u\ti\t1_000\n", False),
        ("u\ti\tyesterday\n", False),
        ("u\ti\tinf\nu\tj\t-5\n", False),
        ("u\ti\t9007199254740991\nu\tj\t-0.0\nu\tk\t1e-300\n", True),
    ],
)
def test_odd_rows(tmp_path: Path, text: str, used: bool) -> None:
    assert assert_equal(write(tmp_path, HEADER + text)) is used


def test_random_files(tmp_path: Path) -> None:
    draw = random.Random(5)
    pieces = [
        "a",
        '"',
        "7",
        "007",
        " ",
        "NA",
        "é",
        "日",
        "'",
        "\\",
        "#",
        "1e3",
        ",",
        "[x]",
        "",
        "nan",
        "None",
        "\u2028",
    ]
    times = [
        lambda: str(draw.randrange(2**53)),
        lambda: f"{1.7e9 + draw.random() * 1e8:.6f}",
        lambda: repr(draw.random() * 10 ** draw.randint(-5, 12)),
        lambda: f"{draw.random() * 1e9:.12e}",
    ]
    n_used = 0
    for number in range(60):
        rows = []
        for _ in range(30):
            tokens = ["".join(draw.choice(pieces) for _ in range(draw.randint(1, 3))) for _ in range(2)]
            if number % 4:  # most files keep to what the fast reading takes
                tokens = [token.lstrip('"') for token in tokens]
            rows.append("\t".join([*tokens, draw.choice(times)()]))
        n_used += assert_equal(write(tmp_path, HEADER + "\n".join(rows) + draw.choice(["", "\n", "\n\n"])))
    assert 40 <= n_used < 60


def test_a_quote_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is looked through in blocks; a field may begin at the border of two."""
    text = HEADER + "u\ti\t1\n" * 5 + 'u\t"i"\t2\n'
    for size in range(1, 40):
        monkeypatch.setattr("recbole_prism.data.fast_read._BLOCK", size)
        assert not assert_equal(write(tmp_path, text))
