"""What holds for every batch: rows, windows, partners, histories; workers and earlier passes change nothing."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from recbole.model.sequential_recommender import GRU4Rec

from recbole_prism.data import loader as loader_module
from recbole_prism.data.loader import EpochOrder, TrainDataLoader
from recbole_prism.data.preparation import create_dataset, data_preparation
from recbole_prism.errors import ConfigError, DataError, ModelError
from tests.data.helpers import make_config

MASKED = "tests.data.helpers:MaskedItems"


def loaders(path: Path, name: str, model: str = "GRU4Rec", needs: Any = None, **settings: Any) -> Any:
    config = make_config(path, name, model, **{"train_batch_size": 32, "eval_batch_size": 17, **settings})
    if needs is not None:  # any stock class stands in for a model that asks for more
        stand_in = type("Needy", (config.model_class,), {"needs": classmethod(lambda cls, config: frozenset(needs))})
        config.model_class = stand_in
    return data_preparation(config, create_dataset(config))


def content(batch: Any) -> dict[str, torch.Tensor]:
    return batch.interaction


def same(first: list[Any], second: list[Any]) -> bool:
    """Whether two lists of batches hold the same fields with the same values."""
    return len(first) == len(second) and all(
        list(content(a)) == list(content(b))
        and all(torch.equal(content(a)[field], content(b)[field]) for field in content(a))
        for a, b in zip(first, second)
    )


def test_windows_lengths_and_types(toy_path: Path) -> None:
    train, _, _ = loaders(toy_path, "repeats", MAX_ITEM_LIST_LENGTH=7)
    rows, items = train.dataset.rows, train.dataset.items
    seen = []
    for batch in train:
        assert batch.columns == ["user_id", "item_id", "row_id", "item_id_list", "item_length"]
        assert {tensor.dtype for tensor in content(batch).values()} == {torch.int64}
        assert batch["item_id_list"].shape == (len(batch), int(batch["item_length"].max()))
        for row, history, length in zip(batch["row_id"], batch["item_id_list"], batch["item_length"]):
            start, end = rows.start[row], rows.end[row]
            assert history[:length].tolist() == items[start:end].tolist() and not history[length:].any()
            assert 1 <= length <= 7
        assert batch["item_id"].tolist() == rows.target[batch["row_id"]].tolist()
        assert batch["user_id"].tolist() == rows.user[batch["row_id"]].tolist()
        seen += batch["row_id"].tolist()
    assert sorted(seen) == list(range(len(train.dataset)))
    assert len(train) == -(-len(seen) // 32)


def test_fixed_width(toy_path: Path) -> None:
    train, valid, _ = loaders(toy_path, "short", "Caser", MAX_ITEM_LIST_LENGTH=9)
    assert all(batch["item_id_list"].shape[1] == 9 for batch in train)
    assert all(batch[0]["item_id_list"].shape[1] == 9 for batch in valid)


@pytest.mark.parametrize(("model", "needs"), [("GRU4Rec", ["partner"]), ("BERT4Rec", None), (MASKED, None)])
def test_workers_change_nothing(toy_path: Path, model: str, needs: Any) -> None:
    """Also with RecBole's random masking, whose result depends on the number of workers in RecBole."""
    alone, _, _ = loaders(toy_path, "cyclic", model, needs)
    helped, valid, _ = loaders(toy_path, "cyclic", model, needs, worker=2)
    for _ in range(2):
        assert same(list(alone), list(helped))
    helped.set_epoch(0)
    next(iter(helped))  # a pass broken off leaves nothing behind
    for each in (alone, helped):
        each.set_epoch(1)
    assert same(list(alone), list(helped))
    assert sum(len(batch[0]) for batch in valid) == len(valid.dataset)


@pytest.mark.parametrize("model", ["BERT4Rec", MASKED])
def test_batches_depend_on_epoch_alone(toy_path: Path, model: str) -> None:
    train, _, _ = loaders(toy_path, "cyclic", model)
    first, second = list(train), list(train)
    assert not same(first, second)
    train.set_epoch(0)
    random.seed(99)
    torch.manual_seed(99)
    state, torch_state = random.getstate(), torch.get_rng_state()
    assert same(list(train), first)
    assert random.getstate() == state and torch.equal(torch.get_rng_state(), torch_state)  # no global state is touched
    other_seed, _, _ = loaders(toy_path, "cyclic", model, seed=1)
    assert not same(list(other_seed), first)


def test_passes_side_by_side(toy_path: Path) -> None:
    train, _, _ = loaders(toy_path, "repeats")
    left, right = iter(train), iter(train)
    left_rows, right_rows = ([batch["row_id"].tolist() for batch in batches] for batches in (right, left))
    train.set_epoch(0)
    assert [batch["row_id"].tolist() for batch in train] == right_rows
    assert [batch["row_id"].tolist() for batch in train] == left_rows


def test_without_shuffle_rows_come_in_order(toy_path: Path) -> None:
    train, _, _ = loaders(toy_path, "repeats", shuffle=False)
    assert torch.cat([batch["row_id"] for batch in train]).tolist() == list(range(len(train.dataset)))


def test_loader_travels_to_a_worker(toy_path: Path) -> None:
    """As it must where processes are spawned, not forked."""
    train, _, _ = loaders(toy_path, "repeats", needs=None, worker=1)
    list(train)
    copy = pickle.loads(pickle.dumps(train))
    key = loader_module._Key(3, 0, np.arange(5))
    assert same([copy._collate(key)], [train._collate(key)])


def test_epoch_order_forwards_and_back() -> None:
    order = EpochOrder(101, seed=5)
    ahead = [order.permutation(epoch).tolist() for epoch in range(4)]
    assert [order.permutation(epoch).tolist() for epoch in (3, 0, 2, 2, 1)] == [ahead[e] for e in (3, 0, 2, 2, 1)]
    assert EpochOrder(101, seed=5).permutation(3).tolist() == ahead[3]
    assert all(sorted(rows) == list(range(101)) for rows in ahead) and len(set(map(tuple, ahead))) == 4


@pytest.mark.parametrize("exclude", ["row", "prefix"])
def test_partners(toy_path: Path, exclude: str) -> None:
    """Same target, from the training part, with the partner's own window; not the row itself if another is allowed."""
    settings = {"partner_exclude": exclude} if exclude == "prefix" else {}
    train, _, _ = loaders(toy_path, "repeats", "PRISM", needs=["partner"], MAX_ITEM_LIST_LENGTH=4, **settings)
    rows, items = train.dataset.rows, train.dataset.items
    windows = [tuple(items[start:end]) for start, end in zip(rows.start, rows.end)]
    for _ in range(3):
        for batch in train:
            partners = batch["partner_row_id"].numpy()
            assert batch["partner_item_id_list"].shape == (len(batch), int(batch["partner_item_length"].max()))
            for place, (row, partner) in enumerate(zip(batch["row_id"].numpy(), partners)):
                assert rows.target[row] == rows.target[partner]
                length = batch["partner_item_length"][place]
                assert tuple(batch["partner_item_id_list"][place, :length].tolist()) == windows[partner]
                assert not batch["partner_item_id_list"][place, length:].any()
                group = np.flatnonzero(rows.target == rows.target[row])
                taken = [row] if exclude == "row" else [r for r in group if windows[r] == windows[row]]
                assert partner not in taken or (len(taken) == len(group) and partner == row)


def test_partner_draws_differ_by_epoch(toy_path: Path) -> None:
    train, _, _ = loaders(toy_path, "repeats", needs=["partner"], shuffle=False)
    first, second = (torch.cat([batch["partner_row_id"] for batch in train]) for _ in range(2))
    assert (first != second).float().mean() > 0.5


VIEWS = {"aug_types": ["crop", "mask", "reorder"], "aug_distinct": True, "aug_mask_token": "mask"}
VIEWS.update(aug_crop_ratio=0.6, aug_mask_ratio=0.3, aug_reorder_ratio=0.6)


class Viewing(GRU4Rec):
    """A model from outside that asks for two views."""

    config_defaults: ClassVar[dict[str, Any]] = {
        "embedding_size": 8, "hidden_size": 8, "num_layers": 1, "dropout_prob": 0.0, **VIEWS,
    }  # fmt: skip

    @classmethod
    def needs(cls, config: Any) -> frozenset[str]:
        return frozenset({"view_1", "view_2"})


class ViewingWithoutKeys(Viewing):
    config_defaults: ClassVar[dict[str, Any]] = {
        key: value for key, value in Viewing.config_defaults.items() if key not in ("aug_types", "aug_mask_ratio")
    }


def view_loader(path: Path, name: str = "cyclic", **settings: Any) -> TrainDataLoader:
    return loaders(path, name, f"{__name__}:Viewing", **settings)[0]


def test_views_of_a_row(toy_path: Path) -> None:
    """Each view comes from its own row by the operator whose trace it shows; the batch's histories stay as they are."""
    train = view_loader(toy_path, MAX_ITEM_LIST_LENGTH=9)
    n_items, seen = train.dataset.item_num, set()
    rows, items = train.dataset.rows, train.dataset.items.copy()
    for batch in train:
        for view in ("view_1", "view_2"):
            histories, lengths = batch[f"{view}_item_id_list"], batch[f"{view}_item_length"]
            assert histories.dtype == lengths.dtype == torch.int64
            assert histories.shape == (len(batch), int(lengths.max()))
            for row, out, length in zip(batch["row_id"].tolist(), histories.tolist(), lengths.tolist()):
                history = items[rows.start[row] : rows.end[row]].tolist()
                assert not any(out[length:])
                out = out[:length]
                if length < len(history):
                    start = history.index(out[0])
                    assert out == history[start : start + length] and length == max(1, int(0.6 * len(history)))
                    seen.add("crop")
                elif n_items in out:
                    assert out.count(n_items) == int(0.3 * len(history))
                    assert all(a in (b, n_items) for a, b in zip(out, history))
                    seen.add("mask")
                else:
                    assert sorted(out) == sorted(history)
                    seen.add("reorder" if out != history else "same")
        for row, history, length in zip(batch["row_id"], batch["item_id_list"], batch["item_length"]):
            assert history[:length].tolist() == items[rows.start[row] : rows.end[row]].tolist()
    assert seen == {"crop", "mask", "reorder", "same"}
    assert (train.dataset.items == items).all()


def by_row(batches: list[Any], field: str) -> dict[int, list[int]]:
    """The field of each row, without padding."""
    length = field.replace("id_list", "length")
    return {
        int(row): values[:n].tolist()
        for batch in batches
        for row, values, n in zip(batch["row_id"], batch[field], batch[length])
    }


def test_views_depend_on_seed_epoch_and_row_alone(toy_path: Path) -> None:
    """Not on the order of rows, the size or the width of a batch, or the process that makes it."""
    fields = ("view_1_item_id_list", "view_2_item_id_list")
    train = view_loader(toy_path)
    first, second = ([by_row(batches, field) for field in fields] for batches in (list(train), list(train)))
    for settings in ({"shuffle": False}, {"train_batch_size": 7}, {"worker": 2}):
        other = list(view_loader(toy_path, **settings))
        assert [by_row(other, field) for field in fields] == first
    assert first[0] != first[1]
    for other in (second, [by_row(list(view_loader(toy_path, seed=1)), field) for field in fields]):
        assert all(sum(a[row] != b[row] for row in a) > len(a) / 2 for a, b in zip(first, other))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("aug_types", ["crop"]),
        ("aug_distinct", False),
        ("aug_mask_token", "padding"),
        ("aug_crop_ratio", 0.3),
        ("aug_mask_ratio", 0.6),
        ("aug_reorder_ratio", 0.9),
    ],
)
def test_every_key_changes_the_views(toy_path: Path, key: str, value: Any) -> None:
    assert not same(list(view_loader(toy_path)), list(view_loader(toy_path, **{key: value})))


def test_a_masked_item_may_be_padding(toy_path: Path) -> None:
    """Id 0 inside the length, which stays what it was; at least one item stays visible."""
    (batch, *_) = view_loader(toy_path, aug_types=["mask"], aug_mask_token="padding", aug_mask_ratio=0.99)
    lengths = batch["view_1_item_length"]
    assert torch.equal(lengths, batch["item_length"])
    assert torch.equal((batch["view_1_item_id_list"] != 0).sum(1), lengths - (lengths * 0.99).long())


def test_one_view_alone(toy_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = list(view_loader(toy_path))
    monkeypatch.setattr(Viewing, "needs", classmethod(lambda cls, config: frozenset({"view_2"})))
    alone = list(view_loader(toy_path))
    assert "view_1_item_length" not in alone[0].columns
    assert all(torch.equal(a["view_2_item_id_list"], b["view_2_item_id_list"]) for a, b in zip(alone, both))


def test_views_without_their_keys(toy_path: Path) -> None:
    with pytest.raises(ModelError, match="ViewingWithoutKeys needs views of a history, but has no aug_types, aug_mask"):
        loaders(toy_path, "cyclic", f"{__name__}:ViewingWithoutKeys")


def test_masking_that_would_never_end(toy_path: Path) -> None:
    with pytest.raises(DataError, match="among 6"):
        loaders(toy_path, "repeats", MASKED)
    loaders(toy_path, "repeats", MASKED, MAX_ITEM_LIST_LENGTH=5)


def test_unknown_need(toy_path: Path) -> None:
    with pytest.raises(ModelError, match="view_3"):
        loaders(toy_path, "repeats", needs=["partner", "view_3"])


def test_negative_sampling_is_refused(toy_path: Path) -> None:
    config = make_config(toy_path, "short")
    config["train_neg_sample_args"] = {"distribution": "uniform", "sample_num": 1}
    with pytest.raises(ConfigError, match="uniform negatives"):
        data_preparation(config, create_dataset(config))


def test_evaluation_batches(toy_path: Path) -> None:
    """RecBole's four parts; the history holds each distinct item of the whole past once, not the last T only."""
    _, valid, test = loaders(toy_path, "repeats", MAX_ITEM_LIST_LENGTH=3)
    for part in (valid, test):
        rows, items, n_rows = part.dataset.rows, part.dataset.items, 0
        for interaction, (history_row, history_item), positive_row, positive_item in part:
            assert positive_row.tolist() == list(range(len(interaction)))
            assert positive_item.tolist() == interaction["item_id"].tolist()
            assert interaction["row_id"].tolist() == list(range(n_rows, n_rows + len(interaction)))
            for place, row in enumerate(interaction["row_id"]):
                known = set(items[rows.history_start[row] : rows.end[row]].tolist())
                assert sorted(known) == history_item[history_row == place].tolist()
            n_rows += len(interaction)
        assert n_rows == len(part.dataset)


def test_history_is_the_users_past(toy_path: Path) -> None:
    """Against the file's own order of events, not against the flat arrays."""
    from tests import toy

    _, valid, test = loaders(toy_path, "repeats", MAX_ITEM_LIST_LENGTH=3)
    walks: dict[str, list[str]] = {}
    for user, item, _ in toy.repeats():
        walks.setdefault(user, []).append(item)
    for part, n_last in ((valid, 2), (test, 1)):
        data = part.dataset
        for interaction, (history_row, history_item), _, _ in part:
            for place, user in enumerate(data.id2token("user_id", interaction["user_id"].numpy())):
                past, target = walks[user][:-n_last], walks[user][-n_last]
                tokens = data.id2token("item_id", history_item[history_row == place].numpy())
                assert set(tokens) == set(past) and len(tokens) == len(set(past))
                assert data.id2token("item_id", interaction["item_id"].numpy())[place] == target


def test_empty_part_gives_no_batches(toy_path: Path) -> None:
    _, valid, test = loaders(toy_path, "short", eval_args={"split": {"LS": "test_only"}})
    assert len(valid) == 0 and list(valid) == [] and len(list(test)) == 1


def test_one_row_batches(toy_path: Path) -> None:
    train, _, test = loaders(toy_path, "short", train_batch_size=1, eval_batch_size=1)
    assert isinstance(train, TrainDataLoader) and sorted(b["item_id_list"].shape for b in train)[0] == (1, 1)
    assert [len(batch[0]) for batch in test] == [1, 1, 1]
