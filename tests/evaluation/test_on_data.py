"""Ranks over the package's own loader: against stock RecBole's trainer, and against the whole histories in the data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from recbole.model.sequential_recommender import GRU4Rec
from recbole.trainer import Trainer as RecBoleTrainer

from recbole_prism.data.preparation import create_dataset, data_preparation
from recbole_prism.evaluation import compute_metrics, rank_rows
from recbole_prism.schema import RANK_METRICS
from tests.data.helpers import make_config, stock_loaders
from tests.evaluation.fakes import count_slowly

METRICS, TOPK = list(RANK_METRICS), [1, 5, 10]  # stock RecBole's trainer fails on list metrics


def test_equals_stock_recbole_from_file_to_metric(
    toy_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # stock RecBole writes into the working directory
    settings = {"metrics": METRICS, "topk": TOPK, "MAX_ITEM_LIST_LENGTH": 5, "valid_metric": "NDCG@5"}
    stock_settings = {**settings, "metric_decimal_place": 15, "eval_batch_size": 7}
    _, (stock_train, stock_valid, stock_test) = stock_loaders(monkeypatch, toy_path, "cyclic", **stock_settings)
    torch.manual_seed(0)
    model = GRU4Rec(stock_train.config, stock_train._dataset)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)  # scores far apart

    config = make_config(toy_path, "cyclic", eval_batch_size=16, **settings)
    data = create_dataset(config)
    train, valid, test = data_preparation(config, data)
    trainer = RecBoleTrainer(stock_train.config, model)
    for stock_loader, loader in ((stock_valid, valid), (stock_test, test)):
        stock = trainer.evaluate(stock_loader, load_best_model=False)
        ranks = rank_rows(
            model, loader, n_items=data.item_num, mask_history=False, memory_gb=4.0, device="cpu", n_top=20
        )
        ours = compute_metrics(ranks, METRICS, TOPK, mask_history=False, item_counts_train=None, n_items=data.item_num)
        assert ours == pytest.approx(dict(stock), abs=1e-12)

        rows = loader.dataset.rows
        assert (ranks.position > ranks.history_length).any()  # histories longer than the model is given
        interaction = next(iter(loader))[0]
        scores = model.full_sort_predict(interaction)
        for place, row in enumerate(interaction["row_id"].tolist()):
            seen = set(loader.dataset.items[rows.history_start[row] : rows.end[row]].tolist())
            assert (ranks.n_greater[row], ranks.n_equal[row]) == count_slowly(
                scores[place].tolist(), int(rows.target[row]), seen
            )
    np.testing.assert_array_equal(ranks.target, test.dataset.rows.target)
