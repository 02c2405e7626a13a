"""The same rows in the same order, and the same batches, as stock RecBole wherever its 32-bit times are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

import numpy as np
import pandas as pd
import pytest
import recbole
import torch
from recbole.data.dataset import Dataset

from recbole_prism.data.dataset import SequentialDataset
from recbole_prism.data.loader import FullSortEvalDataLoader, TrainDataLoader
from recbole_prism.data.preparation import create_dataset, data_preparation
from tests import toy
from tests.data.helpers import make_config, stock_loaders

FIELDS = ("user_id", "item_id", "item_length")
T = 12  # shorter than many walks, so that windows are cut


def stock_rows(part: Any) -> dict[str, np.ndarray]:
    feat = part.inter_feat
    return {name: feat[name].numpy() for name in (*FIELDS, "item_id_list")}


def our_rows(part: SequentialDataset) -> dict[str, np.ndarray]:
    batch = part.__getitem__(part.rows.row_id, part.max_item_list_len)
    return {name: batch[name].numpy() for name in (*FIELDS, "item_id_list")}


SPLITS: list[dict[str, Any]] = [
    {"split": {"LS": "valid_and_test"}},
    {"split": {"LS": "test_only"}},
    {"split": {"LS": "valid_only"}},
    {"split": {"RS": [0.8, 0.1, 0.1]}},
    {"split": {"RS": [0.5, 0.3, 0.2]}},
    {"split": {"RS": [8, 1, 1]}, "group_by": "none"},
]
if hasattr(Dataset, "time_based_split"):  # recbole 1.2.1 on; test_dataset.py has a split by hand
    SPLITS += [{"split": {"TS": [0.8, 0.1, 0.1]}}, {"split": {"TS": [0.6, 0.3, 0.1]}}]


@pytest.mark.parametrize("name", ["cyclic", "short", "repeats"])
@pytest.mark.parametrize("eval_args", SPLITS, ids=str)
def test_rows(monkeypatch: pytest.MonkeyPatch, toy_path: Path, name: str, eval_args: dict[str, Any]) -> None:
    eval_args = {"group_by": "user", "order": "TO", "mode": "full", **eval_args}
    settings = {"MAX_ITEM_LIST_LENGTH": T, "eval_args": eval_args}
    vocabulary, loaders = stock_loaders(monkeypatch, toy_path, name, **settings)
    config = make_config(toy_path, name, model="recbole:GRU4Rec", **settings)
    dataset = SequentialDataset(config)
    parts = dataset.build()
    for field in ("user_id", "item_id"):
        assert np.array_equal(vocabulary[field], dataset.field2id_token[field])
    for loader, part in zip(loaders, parts):
        expected, found = stock_rows(loader.dataset), our_rows(part)
        for field in expected:
            assert np.array_equal(expected[field], found[field]), field


def test_rows_of_ml_100k(monkeypatch: pytest.MonkeyPatch) -> None:
    """RecBole's YAML normalises these times, so 32 bits tell most of them apart: equal for every user where they do."""
    vocabulary, loaders = stock_loaders(monkeypatch, None, "ml-100k")
    parts = SequentialDataset(make_config(Path("dataset"), "ml-100k")).build()
    file = Path(recbole.__file__).parent / "dataset_example" / "ml-100k" / "ml-100k.inter"
    events = pd.read_csv(file, sep="\t", dtype={"user_id:token": str})
    time = events["timestamp:float"]
    events["short"] = ((time - time.min()) / (time.max() - time.min())).astype(np.float32)
    n_times = events.groupby("user_id:token")[["timestamp:float", "short"]].nunique()
    right = n_times.index[n_times["timestamp:float"] == n_times["short"]]
    assert len(right) > 400
    users = np.flatnonzero(np.isin(vocabulary["user_id"], right))
    for loader, part, n_rows in zip(loaders, parts, (97171, 943, 943)):
        expected, found = stock_rows(loader.dataset), our_rows(part)
        assert len(part) == len(expected["user_id"]) == n_rows
        for rows in (expected, found):  # users whose times stock confuses may shift the others, not disorder them
            keep = np.isin(rows["user_id"], users)
            order = np.argsort(rows["user_id"][keep], kind="stable")
            rows.update({field: values[keep][order] for field, values in rows.items()})
        for field in expected:
            assert np.array_equal(expected[field], found[field]), field


@pytest.mark.parametrize(("name", "batch_size"), [("cyclic", 64), ("repeats", 37), ("short", 5)])
def test_batches_of_three_epochs(monkeypatch: pytest.MonkeyPatch, toy_path: Path, name: str, batch_size: int) -> None:
    settings = {"MAX_ITEM_LIST_LENGTH": T, "train_batch_size": batch_size, "seed": 11}
    _, (stock, _, _) = stock_loaders(monkeypatch, toy_path, name, **settings)
    config = make_config(toy_path, name, **settings)
    ours, _, _ = data_preparation(config, create_dataset(config))
    assert len(ours) == len(stock)
    expected = [list(stock) for _ in range(3)]
    passes = [list(ours) for _ in range(3)]
    ours.set_epoch(2)
    passes.append(list(ours))
    ours.set_epoch(1)
    passes.append(list(ours))
    for epoch, batches in zip((0, 1, 2, 2, 1), passes):
        for want, got in zip(expected[epoch], batches):
            width = int(want["item_length"].max())
            assert got["item_id_list"].shape[1] == width
            assert torch.equal(got["item_id_list"], want["item_id_list"][:, :width])
            assert not want["item_id_list"][:, width:].any()
            for field in FIELDS:
                assert torch.equal(got[field], want[field])


@pytest.mark.parametrize("model", ["Caser", "NARM", "tests.data.helpers:MaskedItems"])
def test_stock_models_train_on_our_batches(toy_path: Path, model: str) -> None:
    """Three epochs with a finite, falling loss, and scores for every item from an evaluation batch."""
    config = make_config(toy_path, "cyclic", model, train_batch_size=64, MAX_ITEM_LIST_LENGTH=T)
    train, valid, _ = data_preparation(config, create_dataset(config))
    torch.manual_seed(0)
    network = config.model_class(config, train.dataset)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    losses = []
    for _ in range(3):
        total = 0.0
        for batch in train:
            optimizer.zero_grad()
            loss = network.calculate_loss(batch)
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(total)
    assert np.isfinite(losses).all() and losses[-1] < losses[0]
    network.eval()
    interaction = next(iter(valid))[0]
    assert network.full_sort_predict(interaction).view(len(interaction), -1).shape[1] == valid.dataset.item_num


@pytest.mark.parametrize("model", ["recbole:SASRec", "recbole:SHAN", "recbole:Caser"])
def test_untouched_stock_model(toy_path: Path, model: str) -> None:
    """RecBole's own data set and training loader; our rows for evaluation, at full width."""
    config = make_config(toy_path, "cyclic", model, train_batch_size=64, MAX_ITEM_LIST_LENGTH=T)
    dataset = create_dataset(config)
    assert not isinstance(dataset, SequentialDataset)
    train, valid, test = data_preparation(config, dataset)
    assert not isinstance(train, TrainDataLoader) and isinstance(test, FullSortEvalDataLoader)
    assert train.info == valid.info == test.info and train.info.n_train_rows == len(train.dataset)
    network = config.model_class(config, train.dataset)
    assert torch.isfinite(network.calculate_loss(next(iter(train))))
    interaction = next(iter(test))[0]
    assert interaction["item_id_list"].shape == (toy.CYCLE_USERS, T)
    assert network.full_sort_predict(interaction).numel() == toy.CYCLE_USERS * (toy.CYCLE + 1)


def test_stock_loader_starts_at_any_epoch(toy_path: Path) -> None:
    def epochs(first: Optional[int]) -> list[torch.Tensor]:
        config = make_config(toy_path, "cyclic", "recbole:GRU4Rec")
        train, _, _ = data_preparation(config, create_dataset(config))
        if first is not None:
            train.set_epoch(first)
        return [torch.cat([batch["item_id"] for batch in train]) for _ in range(3)]

    whole = epochs(None)
    assert torch.equal(epochs(2)[0], whole[2]) and not torch.equal(whole[0], whole[1])


def test_other_order_of_stock_is_announced(toy_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = make_config(toy_path, "ties", "recbole:GRU4Rec")
    with caplog.at_level("WARNING", logger="recbole_prism"):
        data_preparation(config, create_dataset(config))
    assert "1 of 2 test rows are not the same" in caplog.text
