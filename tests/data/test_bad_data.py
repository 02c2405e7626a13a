"""Files that cannot be used: each error names the cause and the cure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recbole_prism.data.dataset import SequentialDataset
from recbole_prism.errors import ConfigError, DataError
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
