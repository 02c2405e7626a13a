"""Pre-split files: one vocabulary, the most recent items, and the same rows as the split they were written from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recbole_prism.data.dataset import SequentialDataset
from recbole_prism.errors import ConfigError, DataError
from tests import toy
from tests.data.helpers import TokenRow, make_dataset, token_rows

PARTS = ["first", "second", "third"]
HEADER = "user_id:token\titem_id_list:token_seq\titem_id:token"


def write_parts(path: Path, name: str, parts: list[list[TokenRow]]) -> None:
    for part, rows in zip(PARTS, parts):
        lines = [(row.user, " ".join(row.history), row.target) for row in rows]
        file = toy.write_inter(path, name, lines, HEADER)
        file.rename(file.with_name(f"{name}.{part}.inter"))


def load_parts(path: Path, name: str, **settings: Any) -> list[SequentialDataset]:
    return make_dataset(path, name, benchmark_filename=PARTS, **settings).build()


def test_same_rows_as_the_internal_split(toy_path: Path, tmp_path: Path) -> None:
    internal = make_dataset(toy_path, "cyclic").build()
    rows = [token_rows(part) for part in internal]
    write_parts(tmp_path, "cut", rows)
    files = load_parts(tmp_path, "cut")
    assert [token_rows(part) for part in files] == rows
    assert files[0].item_num == toy.CYCLE + 1  # a second vocabulary for histories would show here
    for name in ("item_counts_train", "item_counts_all"):
        counts = [dict(zip(part.field2id_token["item_id"], getattr(part, name))) for part in (internal[0], files[0])]
        assert counts[0] == counts[1]


def test_long_histories_keep_their_most_recent_items(tmp_path: Path) -> None:
    row = TokenRow("u", tuple("abcdef"), "g")
    write_parts(tmp_path, "long", [[row], [row], [row]])
    test = load_parts(tmp_path, "long", MAX_ITEM_LIST_LENGTH=2)[2]
    assert token_rows(test) == [TokenRow("u", ("e", "f"), "g")]
    known = test.histories(np.array([0]))[1].numpy()
    assert sorted(test.id2token("item_id", known)) == list("abcdef")


def test_refused(tmp_path: Path) -> None:
    row, empty = TokenRow("u", ("a", "b"), "c"), TokenRow("u", (), "c")
    write_parts(tmp_path, "bad", [[row, empty], [row], [row]])
    with pytest.raises(DataError, match="1 rows of 'bad' have an empty item_id_list"):
        load_parts(tmp_path, "bad")
    write_parts(tmp_path, "none", [[row, TokenRow("u", ("a",), "")], [row], [row]])
    with pytest.raises(DataError, match="1 rows of 'none' have no user or no item"):
        load_parts(tmp_path, "none")
    write_parts(tmp_path, "good", [[row], [row], [row]])
    with pytest.raises(ConfigError, match="oldest"):
        load_parts(tmp_path, "good", seq_len={"item_id_list": 2})
    with pytest.raises(ConfigError, match="three files"):
        make_dataset(tmp_path, "good", benchmark_filename=PARTS[:2])
