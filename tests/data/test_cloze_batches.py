"""What the loader puts into a batch for the cloze task: sequences, labels, and how often what is masked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recbole_prism.data.preparation import create_dataset, data_preparation
from tests.data.helpers import make_config

T = 6


def train_loader(path: Path, **settings: Any) -> Any:
    settings = {"train_batch_size": 16, "MAX_ITEM_LIST_LENGTH": T, **settings}
    config = make_config(path, "repeats", "BERT4Rec", **settings)
    return data_preparation(config, create_dataset(config))[0]


def unmasked(batch: Any) -> torch.Tensor:
    """The sequences with the labelled items put back."""
    labels = batch["cloze_labels"]
    return torch.where(labels > 0, labels, batch["cloze_item_id_list"])


def test_history_and_target_are_masked_together(toy_path: Path) -> None:
    train = train_loader(toy_path)
    rows, items, mask = train.dataset.rows, train.dataset.items, train.dataset.item_num
    for batch in train:
        masked, labels, lengths = (batch[f"cloze_{name}"] for name in ("item_id_list", "labels", "item_length"))
        assert masked.dtype == labels.dtype == lengths.dtype == torch.int64 and masked.shape == labels.shape
        assert masked.shape[1] == int(lengths.max()) <= T
        assert torch.equal(masked == mask, labels > 0) and (labels > 0).any(dim=1).all()
        for row, seq, length in zip(batch["row_id"], unmasked(batch), lengths):
            whole = [*items[rows.start[row] : rows.end[row]], rows.target[row]][-T:]
            assert seq[:length].tolist() == whole and not seq[length:].any()


def test_stock_rules_mask_the_history_alone(toy_path: Path) -> None:
    train = train_loader(toy_path, cloze="recbole", mask_ratio=0.4)
    per_batch = []
    for _ in range(4):
        for batch in train:
            history, lengths = batch["item_id_list"], batch["item_length"]
            assert torch.equal(batch["cloze_item_length"], lengths) and not batch["cloze_labels"][:, 0].any()
            is_mask = batch["cloze_item_id_list"] == train.dataset.item_num
            assert torch.equal(torch.where(is_mask, history, batch["cloze_item_id_list"]), history)
            assert (batch["cloze_labels"] > 0).sum(dim=1).max() <= int(0.4 * T)
            only_last = torch.equal(is_mask, torch.arange(is_mask.shape[1]) == lengths[:, None] - 1)
            per_batch.append(only_last)
    assert 0.3 < np.mean(per_batch) < 0.7  # whole batches, half of them


@pytest.mark.parametrize(("ft_ratio", "mask_ratio"), [(0.0, 0.3), (1.0, 0.3), (0.5, 0.3), (0.0, 0.8)])
def test_rates(toy_path: Path, ft_ratio: float, mask_ratio: float) -> None:
    """Full rows, over ten epochs: `mask_ratio` of the items before the last one, unless the row masks its last only."""
    train = train_loader(toy_path, ft_ratio=ft_ratio, mask_ratio=mask_ratio, train_batch_size=512)
    masked = []
    for _ in range(10):
        (batch,) = list(train)
        full = batch["cloze_item_length"] == T
        masked.append(batch["cloze_labels"][full] > 0)
    share = torch.cat(masked)[:, :-1].double()
    expected = (1 - ft_ratio) * mask_ratio
    error = (expected * (1 - expected) / share.numel()) ** 0.5
    assert abs(float(share.mean()) - expected) <= 6 * error  # rows that share a draw of ft_ratio: a little more spread
    assert float(torch.cat(masked)[:, -1].double().mean()) >= ft_ratio


def test_draws_belong_to_rows(toy_path: Path) -> None:
    """Another batch size gives a row the same masks; another epoch does not."""
    small, large = (train_loader(toy_path, train_batch_size=size) for size in (7, 64))

    def masks(loader: Any, epoch: int) -> dict[int, list[int]]:
        loader.set_epoch(epoch)
        rows = {}
        for batch in loader:
            for row, seq, length in zip(batch["row_id"], batch["cloze_item_id_list"], batch["cloze_item_length"]):
                rows[int(row)] = seq[:length].tolist()
        return rows

    assert masks(small, 3) == masks(large, 3) != masks(large, 4)
