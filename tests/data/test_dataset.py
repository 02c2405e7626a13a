"""Sequences and rows against rows written by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recbole_prism.data.dataset_info import DatasetInfo
from recbole_prism.errors import DataError
from tests import toy
from tests.data.helpers import TokenRow, make_dataset, token_rows


def test_leave_one_out_by_hand(toy_path: Path) -> None:
    """n = 1: no row; 2: train; 3: train and test; from 4 on: all parts. Users in order of their second event's time."""
    train, valid, test = make_dataset(toy_path, "short").build()
    assert token_rows(train) == [
        TokenRow("u5", ("a",), "b"),
        TokenRow("u5", ("a", "b"), "c"),
        TokenRow("u4", ("a",), "b"),
        TokenRow("u3", ("a",), "b"),
        TokenRow("u2", ("a",), "b"),
    ]
    assert token_rows(valid) == [TokenRow("u5", ("a", "b", "c"), "d"), TokenRow("u4", ("a", "b"), "c")]
    assert token_rows(test) == [
        TokenRow("u5", ("a", "b", "c", "d"), "e"),
        TokenRow("u4", ("a", "b", "c"), "d"),
        TokenRow("u3", ("a", "b"), "c"),
    ]
    for part in (train, valid, test):
        assert part.rows.row_id.tolist() == list(range(len(part)))


@pytest.mark.parametrize(("mode", "sizes"), [("test_only", [7, 0, 3]), ("valid_only", [7, 3, 0])])
def test_one_part_left_out(toy_path: Path, mode: str, sizes: list[int]) -> None:
    parts = make_dataset(toy_path, "short", eval_args={"split": {"LS": mode}}).build()
    assert [len(part) for part in parts] == sizes
    assert token_rows(parts[1] if sizes[1] else parts[2])[-1] == TokenRow("u3", ("a", "b"), "c")


def test_time_split_by_hand(toy_path: Path) -> None:
    """Ten rows with target times 501..504 (u5), 601..603 (u4), 701, 702 (u3), 801 (u2). Their 90th percentile is 711.9,
    so the last one is for the test; of the others each user keeps int(n * 0.8 / 0.9) for training."""
    parts = make_dataset(toy_path, "short", eval_args={"split": {"TS": [0.8, 0.1, 0.1]}}).build()
    train, valid, test = ({(row.user, row.target) for row in token_rows(part)} for part in parts)
    assert test == {("u2", "b")}
    assert valid == {("u5", "e"), ("u4", "d"), ("u3", "c")}
    assert train == {("u5", "b"), ("u5", "c"), ("u5", "d"), ("u4", "b"), ("u4", "c"), ("u3", "b")}


def test_window_is_the_most_recent_items(toy_path: Path) -> None:
    _, _, test = make_dataset(toy_path, "short", MAX_ITEM_LIST_LENGTH=2).build()
    assert [row.history for row in token_rows(test)] == [("c", "d"), ("b", "c"), ("a", "b")]
    known = test.rows.end - test.rows.history_start
    assert known.tolist() == [4, 3, 2]  # history_start still covers everything before the target


def test_seconds_keep_their_order_and_ties_the_files(toy_path: Path) -> None:
    """RecBole's 32-bit times would give the first user reversed: neighbouring floats are 128 s apart at 1.7e9."""
    _, _, test = make_dataset(toy_path, "ties").build()
    assert token_rows(test) == [  # 'day' has its second event one second before 'second'
        TokenRow("day", ("d3", "d1", "d4", "d0", "d5"), "d2"),
        TokenRow("second", ("s0", "s1", "s2", "s3", "s4"), "s5"),
    ]


def test_share_of_ties_is_logged(toy_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="recbole_prism"):
        make_dataset(toy_path, "ties")
    assert "50.0 % of the events share user and time" in caplog.text  # 6 of 12


def test_every_id_round_trips(toy_path: Path) -> None:
    dataset = make_dataset(toy_path, "tok")
    field = dataset.iid_field
    assert sorted(dataset.field2id_token[field][1:]) == sorted(toy.TOKENS)
    for token in toy.TOKENS:
        assert dataset.id2token(field, dataset.token2id(field, token)) == token
    assert dataset.token2id(field, "7") != dataset.token2id(field, "007")


def test_counts_by_hand(toy_path: Path) -> None:
    train, _, _ = make_dataset(toy_path, "short").build()
    by_token = dict(zip(train.field2id_token[train.iid_field], train.item_counts_train))
    # first events of u2..u5 and five targets; u1's only event is in no row
    assert by_token == {"[PAD]": 0, "a": 4, "b": 4, "c": 1, "d": 0, "e": 0}
    by_token = dict(zip(train.field2id_token[train.iid_field], train.item_counts_all))
    assert by_token == {"[PAD]": 0, "a": 5, "b": 4, "c": 3, "d": 2, "e": 1}


def test_info_round_trip_and_counts(toy_path: Path) -> None:
    train, valid, test = make_dataset(toy_path, "short").build()
    info = train.info
    assert (info.n_users, info.n_items, info.n_interactions) == (6, 6, 15)
    assert (info.n_train_rows, info.n_valid_rows, info.n_test_rows) == (5, 2, 3)
    assert info.num("user_id") == 6 and info.num("item_id") == 6 and info.item_num == 6 and info.user_num == 6
    assert DatasetInfo.from_dict(info.to_dict()) == info == valid.info == test.info
    with pytest.raises(DataError, match="rating"):
        info.num("rating")
    with pytest.raises(DataError):
        DatasetInfo.from_dict({"name": "x"})


def test_fingerprint_follows_rows(toy_path: Path, tmp_path: Path) -> None:
    def fingerprint(events: list[toy.Event], **settings: object) -> str:
        toy.write_inter(tmp_path, "same", events)
        return make_dataset(tmp_path, "same", **settings).build()[0].fingerprint()

    events = toy.repeats()
    reference = fingerprint(events)
    assert fingerprint(events) == reference
    assert fingerprint(events, MAX_ITEM_LIST_LENGTH=3) != reference
    assert fingerprint([*events[:-1], (*events[-1][:2], -1)]) != reference  # the last event, moved to the beginning
    assert fingerprint(events[:-1]) != reference


def test_recbole_style_questions(toy_path: Path) -> None:
    """What other code asks of a data set is answered for the part, and never from the other parts."""
    train, _, test = make_dataset(toy_path, "short").build()
    assert train.inter_num == 5 and len(test.inter_feat) == 3
    assert train.item_counter[train.token2id("item_id", "b")] == 4
    assert "e" not in train.id2token("item_id", train.inter_feat["item_id"])


def test_other_columns_serve_filters_only(tmp_path: Path) -> None:
    rated = [(user, item, f"{time}\t{1 + (k % 5)}") for k, (user, item, time) in enumerate(toy.repeats())]
    header = "user_id:token\titem_id:token\ttimestamp:float\trating:float"
    toy.write_inter(tmp_path, "rated", rated, header)
    columns = {"inter": ["user_id", "item_id", "timestamp", "rating"]}
    dataset = make_dataset(tmp_path, "rated", load_col=columns, val_interval={"rating": "[3,inf)"})
    assert len(dataset.items) == sum(1 for k in range(len(rated)) if k % 5 >= 2)


def test_normalised_times_change_nothing(toy_path: Path) -> None:
    model = "recbole:GRU4Rec"  # only RecBole's own data path, of which our rows are a part, has this setting
    plain, normal = (make_dataset(toy_path, "cyclic", model, normalize_all=flag).build()[0] for flag in (False, True))
    assert plain.fingerprint() == normal.fingerprint()


def test_items_of_the_item_file_are_ranked_and_said_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    toy.write_inter(tmp_path, "more", toy.short())
    (tmp_path / "more" / "more.item").write_text("item_id:token\tprice:float\na\t1\nz\t2\ny\t3\n")
    assert make_dataset(tmp_path, "more").item_num == 6
    with caplog.at_level("INFO", logger="recbole_prism"):
        dataset = make_dataset(
            tmp_path,
            "more",
            load_col={"inter": ["user_id"], "item": ["item_id", "price"]},
            filter_inter_by_user_or_item=False,
        )
    assert dataset.item_num == 8 and "2 items of 'more'" in caplog.text
    assert dataset.build()[0].get_item_feature()["price"].shape == (8,)


def test_duplicates_stay_unless_asked(tmp_path: Path) -> None:
    events = [("u", item, time) for item, time in (("a", 1), ("b", 1), ("a", 1), ("c", 1), ("b", 2), ("d", 3))]
    toy.write_inter(tmp_path, "twice", events)
    whole = make_dataset(tmp_path, "twice")
    assert "".join(whole.id2token("item_id", whole.items)) == "abacbd"
    first = make_dataset(tmp_path, "twice", rm_dup_inter="first")
    assert "".join(first.id2token("item_id", first.items)) == "abcd"
    last = make_dataset(tmp_path, "twice", rm_dup_inter="last")
    assert "".join(last.id2token("item_id", last.items)) == "acbd"


def test_missing_user_or_item_is_dropped_with_a_count(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    toy.write_inter(tmp_path, "holes", [*toy.short(), ("", "a", 1), ("u1", "", 2)])
    with caplog.at_level("WARNING", logger="recbole_prism"):
        dataset = make_dataset(tmp_path, "holes")
    assert len(dataset.items) == 15
    assert "2 events have no user or no item" in caplog.text and "line 17" in caplog.text


def test_memory_is_per_event(tmp_path: Path) -> None:
    """Arrays of a built data set do not grow with T."""

    def n_bytes(length: int) -> int:
        parts = make_dataset(tmp_path, "same", MAX_ITEM_LIST_LENGTH=length).build()
        arrays = [parts[0].items, parts[0].times] + [vars(part.rows).values() for part in parts]
        flat = [a for group in arrays for a in (group if not isinstance(group, np.ndarray) else [group])]
        return sum(array.nbytes for array in flat)

    toy.write_inter(tmp_path, "same", toy.repeats())
    assert n_bytes(5) == n_bytes(200) <= 400 * (4 + 8 + 40)
