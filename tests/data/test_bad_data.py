"""Files that cannot be used: each error names the cause and the cure."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

from recbole_prism.data.dataset import SequentialDataset
from recbole_prism.data.preparation import create_dataset
from recbole_prism.errors import ConfigError, DataError, ModelError
from tests import toy
from tests.data.helpers import make_config, make_dataset

HEADER = "user_id:token\titem_id:token\ttimestamp:float"


@pytest.mark.parametrize(
    ("header", "events", "settings", "words"),
    [
        ("uid:token\titem_id:token\ttimestamp:float", toy.short(), {}, ["'user_id'", "uid:token", "USER_ID_FIELD"]),
        ("user_id:token\titem_id:token\twhen:float", toy.short(), {}, ["'timestamp'", "when:float", "TIME_FIELD"]),
        ("user_id:token\titem_id:token\ttimestamp:token", toy.short(), {}, ["'timestamp:float'", "'token'"]),
        ("user_id,item_id,timestamp", toy.short(), {}, ["field_separator", "'user_id'"]),
        (HEADER, [*toy.short(), ("u1", "a", "")], {}, ["1 of 16", "no finite time", "line 17"]),
        (HEADER, [*toy.short(), ("u1", "a", "inf")], {}, ["no finite time", "line 17"]),
        (HEADER, [*toy.short(), ("u1", "a", "yesterday")], {}, ["cannot be read", "timestamp:float"]),
        (HEADER, [(f"u{k}", "a", k) for k in range(9)], {}, ["No user", "two events"]),
        (HEADER, [(f"u{k}", item, k) for k in range(9) for item in "ab"], {}, ["valid part", "4 for a validation"]),
        (HEADER, toy.short(), {"user_inter_num_interval": "[9,inf)"}, ["No event", "Loosen"]),
    ],
)
def test_refused(tmp_path: Path, header: str, events: list[Any], settings: dict[str, Any], words: list[str]) -> None:
    toy.write_inter(tmp_path, "bad", events, header)
    with pytest.raises(DataError) as error:
        make_dataset(tmp_path, "bad", **settings).build()
    for word in words:
        assert word in str(error.value)


def test_column_of_another_name(tmp_path: Path) -> None:
    """Naming the columns is enough: they are loaded although load_col lists the default names."""
    toy.write_inter(tmp_path, "own", toy.short(), "uid:token\tasin:token\twhen:float")
    names = {"USER_ID_FIELD": "uid", "ITEM_ID_FIELD": "asin", "TIME_FIELD": "when"}
    train, _, _ = make_dataset(tmp_path, "own", **names).build()
    assert train[train.rows.row_id].columns == ["uid", "asin", "row_id", "asin_list", "item_length"]


@pytest.mark.parametrize("n_events", [1, 5000])  # the wrong byte stands near the start, and beyond the first block
def test_file_in_another_encoding(tmp_path: Path, n_events: int) -> None:
    events = [*(("u", f"i{k % 9}", k) for k in range(n_events)), ("u", "käse", n_events)]
    path = toy.write_inter(tmp_path, "own", events)
    path.write_bytes(path.read_text(encoding="utf-8").encode("latin-1"))
    with pytest.raises(DataError, match=r"(?s)own\.inter is not text in the encoding utf-8.*--encoding=latin-1"):
        make_dataset(tmp_path, "own")
    with pytest.raises(DataError, match=r"(?s)a file of the data set own is not text .*--encoding=latin-1"):
        create_dataset(make_config(tmp_path, "own", "recbole:GRU4Rec"))
    assert "käse" in make_dataset(tmp_path, "own", encoding="latin-1").field2id_token["item_id"]
    path.write_bytes(b"\xff\xfe" + path.read_text(encoding="latin-1").encode("utf-16-le"))
    with pytest.raises(DataError, match="--encoding="):
        make_dataset(tmp_path, "own")


def test_byte_order_mark(tmp_path: Path) -> None:
    path = toy.write_inter(tmp_path, "own", toy.short())
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    with pytest.raises(DataError, match="--encoding=utf-8-sig"):
        make_dataset(tmp_path, "own")
    assert make_dataset(tmp_path, "own", encoding="utf-8-sig").user_num == 6


def test_words_that_stand_for_no_value_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    toy.write_inter(tmp_path, "own", [*toy.short(), ("u1", "NA", 5), ("null", "a", 6)])
    make_dataset(tmp_path, "own")
    assert "2 events have no user or no item" in caplog.text and "NA," in caplog.text and "null." in caplog.text


def test_a_model_that_wants_the_data_is_told_what_there_is(toy_path: Path) -> None:
    info = make_dataset(toy_path, "short").build()[0].info
    with pytest.raises(ModelError, match=r"(?s)'inter_matrix'.*n_items.*num\(field\)"):
        info.inter_matrix(form="csr")
    assert not hasattr(info, "inter_feat") and pickle.loads(pickle.dumps(info)) == copy.copy(info) == info


def test_file_that_vanished(tmp_path: Path) -> None:
    path = toy.write_inter(tmp_path, "gone", toy.short())
    config = make_config(tmp_path, "gone")
    path.unlink()
    with pytest.raises(DataError, match=r"does not exist\.\n  -> Put it there"):
        SequentialDataset(config)


@pytest.mark.parametrize("split", [{"RS": [0.5, 0.5]}, {"RS": [0, 1, 1]}, {"LS": "both"}, {"XX": 1}, None])
def test_split_settings(toy_path: Path, split: Any) -> None:
    config = make_config(toy_path, "short")
    config["eval_args"] = {**config["eval_args"], "split": split}
    with pytest.raises(ConfigError):
        SequentialDataset(config)


def test_order_by_time_only(toy_path: Path) -> None:
    config = make_config(toy_path, "short")
    config["eval_args"] = {**config["eval_args"], "order": "RO"}
    with pytest.raises(ConfigError, match="order: TO"):
        SequentialDataset(config)
