"""With and without the cache everything is the same; what does not fit or is damaged is never used, and it is said."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recbole_prism.data import cache
from recbole_prism.data.dataset import SequentialDataset
from recbole_prism.data.preparation import create_dataset, data_preparation
from tests import toy
from tests.data.helpers import make_config, make_dataset

ROWS = ("user", "history_start", "start", "end", "target", "row_id")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return toy.write_all(tmp_path)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level("DEBUG", logger="recbole_prism")
    return caplog


def said(log: pytest.LogCaptureFixture) -> str:
    text = log.text
    log.clear()
    return text


def cache_file(path: Path, name: str) -> Path:
    return path / name / "cache" / "events.npc"


def assert_same(found: SequentialDataset, expected: SequentialDataset) -> None:
    assert found.field2token_id == expected.field2token_id
    for field, tokens in expected.field2id_token.items():
        assert found.field2id_token[field].tolist() == tokens.tolist()
        assert found.field2id_token[field].dtype == tokens.dtype
    for name in ("field2type", "field2source", "field2seqlen", "field2bucketnum"):
        assert list(getattr(found, name).items()) == list(getattr(expected, name).items())
    for one, other in zip(found.build(), expected.build()):
        assert one.info == other.info  # with the fingerprint
        for name in ("items", "times", "item_counts_train", "item_counts_all"):
            assert getattr(one, name).dtype == getattr(other, name).dtype
            assert np.array_equal(getattr(one, name), getattr(other, name))
        for name in ROWS:
            assert np.array_equal(getattr(one.rows, name), getattr(other.rows, name))
        for ours, theirs in zip(one.user_histories(), other.user_histories()):
            assert np.array_equal(ours, theirs)
        assert {*vars(one)} == {*vars(other)}


SETTINGS = [
    ("cyclic", {}),
    ("tok", {}),
    ("ties", {}),
    ("repeats", {"rm_dup_inter": "last"}),
    ("repeats", {"item_inter_num_interval": "[60,inf)"}),
    ("repeats", {"val_interval": {"timestamp": "[50,300]"}, "normalize_all": True, "model": "recbole:GRU4Rec"}),
    ("short", {"eval_args": {"split": {"LS": "test_only"}}}),
]


@pytest.mark.parametrize(("name", "settings"), SETTINGS, ids=str)
def test_same_data_with_and_without(
    path: Path, log: pytest.LogCaptureFixture, name: str, settings: dict[str, Any]
) -> None:
    expected = make_dataset(path, name, data_cache=False, **settings)
    assert not cache_file(path, name).exists() and "data_cache is off" in said(log)
    first = make_dataset(path, name, **settings)
    assert "there is no cache of it yet" in said(log)
    assert_same(first, make_dataset(path, name, **settings))
    assert "Using the cache" in said(log)
    assert_same(make_dataset(path, name, **settings), expected)
    assert os.listdir(path / name / "cache") == ["events.npc"]


def test_same_batches(path: Path) -> None:
    def batches(use_cache: bool) -> list[Any]:
        config = make_config(path, "repeats", train_batch_size=64, data_cache=use_cache)
        train, valid, test = data_preparation(config, create_dataset(config))
        return [*train, *train, *[batch[0] for loader in (valid, test) for batch in loader]]

    batches(True)
    for one, other in zip(batches(True), batches(False)):
        assert one.columns == other.columns
        assert all(torch.equal(one[field], other[field]) for field in one.columns)


def test_one_cache_serves_every_split_and_length(path: Path, log: pytest.LogCaptureFixture) -> None:
    make_dataset(path, "cyclic")
    for settings in ({"MAX_ITEM_LIST_LENGTH": 3}, {"eval_args": {"split": {"RS": [0.6, 0.2, 0.2]}}}):
        said(log)
        cached = make_dataset(path, "cyclic", **settings)
        assert "Using the cache" in said(log)
        assert_same(cached, make_dataset(path, "cyclic", data_cache=False, **settings))


def test_a_change_is_named(path: Path, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    make_dataset(path, "repeats")
    said(log)
    make_dataset(path, "repeats", rm_dup_inter="first")
    assert "because the setting rm_dup_inter (None -> 'first') changed" in said(log)
    events = toy.repeats()
    toy.write_inter(path, "repeats", [*events[:-1], (*events[-1][:2], -1)])  # the same size, or nearly
    changed = make_dataset(path, "repeats", rm_dup_inter="first")
    assert "because the content of repeats.inter changed" in said(log)
    assert_same(changed, make_dataset(path, "repeats", rm_dup_inter="first", data_cache=False))
    said(log)
    code = {**cache._code(), "the version of pandas": "9.9", "the sources of its data room": "0"}
    monkeypatch.setattr(cache, "_code", lambda: code)
    make_dataset(path, "repeats", rm_dup_inter="first")
    text = said(log)
    assert "the sources of its data room, the version of pandas (" in text and "-> '9.9') changed" in text
    make_dataset(path, "repeats", rm_dup_inter="first")
    assert "Using the cache" in said(log)


def test_damage_is_never_used(path: Path, log: pytest.LogCaptureFixture) -> None:
    expected = make_dataset(path, "short", data_cache=False)
    make_dataset(path, "short")
    file = cache_file(path, "short")
    whole = file.read_bytes()
    places = np.linspace(0, len(whole) - 1, 12).astype(int).tolist()
    damaged = [whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :] for place in places]
    for content in [*damaged, b"", whole[:20], whole[: len(whole) // 2], whole[:-1], whole + b"x"]:
        file.write_bytes(content)
        said(log)
        found = make_dataset(path, "short")
        assert "because the cache is unusable (damaged or cut off)" in said(log)
        assert file.read_bytes() == whole
    assert_same(found, expected)


def test_interruption_leaves_no_cache(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cache.os, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            make_dataset(path, "short")
    assert not (path / "short" / "cache").exists()


@pytest.mark.parametrize(
    ("number", "level"), [(errno.EACCES, "DEBUG"), (errno.EROFS, "DEBUG"), (errno.ENOSPC, "WARNING")]
)
def test_a_run_does_without(
    path: Path, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, number: int, level: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, "cannot be written")

    monkeypatch.setattr(cache.np, "savez", fail)
    dataset = make_dataset(path, "short")
    record = next(record for record in log.records if "is not cached" in record.message)
    assert "cannot be written" in record.message and record.levelno == getattr(logging, level)
    monkeypatch.undo()
    assert_same(dataset, make_dataset(path, "short", data_cache=False))


def test_no_folder_can_be_made(path: Path, log: pytest.LogCaptureFixture) -> None:
    (path / "short" / "cache").write_text("a file of the user's")
    make_dataset(path, "short").build()
    assert "'short' is not cached" in said(log)
    assert (path / "short" / "cache").read_text() == "a file of the user's"


def test_a_file_that_changes_while_it_is_read_is_not_cached(
    path: Path, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = SequentialDataset._load_inter_feat

    def read_late(self: SequentialDataset, token: str, folder: str) -> None:
        toy.write_inter(path, "short", [*toy.short(), ("u1", "e", 1)])
        read(self, token, folder)

    monkeypatch.setattr(SequentialDataset, "_load_inter_feat", read_late)
    make_dataset(path, "short")
    assert "its file was changed while it was read" in said(log) and not cache_file(path, "short").exists()


def test_what_reading_said_is_said_again(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    toy.write_inter(tmp_path, "holes", [*toy.short(), ("", "a", 1), ("u5", "a", 2)])
    for _ in range(2):
        make_dataset(tmp_path, "holes", rm_dup_inter="first")
        text = said(log)
        assert "1 events have no user or no item" in text and "1 repeated events removed" in text
        assert "share user and time" in text
    assert "Using the cache" in text


def test_not_cached(path: Path, log: pytest.LogCaptureFixture) -> None:
    """What the cache cannot represent, and RecBole's own folder."""
    (path / "short" / "short.item").write_text("item_id:token\tprice:float\na\t1\n")
    make_dataset(path, "short")  # load_col names no column of it
    assert "Reading 'short'" in said(log)
    columns = {"inter": ["user_id", "item_id", "timestamp"], "item": ["item_id", "price"]}
    dataset = make_dataset(path, "short", load_col=columns, filter_inter_by_user_or_item=False)
    assert "short.item is read as well" in said(log) and dataset.item_feat is not None

    class Other(SequentialDataset):
        pass

    Other(make_config(path, "cyclic"))
    assert "a subclass may read it otherwise" in said(log) and not cache_file(path, "cyclic").exists()
    make_dataset(path, "ml-100k")
    assert "it is part of RecBole's installation" in said(log)


def test_a_run_is_the_same_run(path: Path) -> None:
    with_cache, without = (make_config(path, "short", data_cache=flag) for flag in (True, False))
    assert with_cache.identity_values() == without.identity_values()
