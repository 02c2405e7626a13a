"""Models that count go through a run like any other, and every other run is compared with them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from recbole_prism import quick_start
from recbole_prism.run_files import read_json


def run(toy_path: Path, model: str, **settings: Any) -> dict[str, Any]:
    values = {"data_path": str(toy_path), "device": "cpu", "show_progress": False, "save_histories": False, **settings}
    return quick_start.run(model, "cyclic", config_dict=values)


@pytest.mark.parametrize("model", ["Popularity", "Markov"])
def test_a_run_of_a_counted_model(toy_path: Path, tmp_path: Path, model: str) -> None:
    result = run(toy_path, model, checkpoint_dir=str(tmp_path))
    path = Path(result["run_directory"])
    assert (result["n_epochs"], result["epoch"], result["reused"]) == (1, 0, False)
    assert result["best_valid_score"] == result["best_valid_result"]["ndcg@20"]
    assert (result["test_result"]["hit@5"] > 0.95) == (model == "Markov")
    stored = quick_start.load(path, device="cpu")
    assert [record["epoch"] for record in stored.history] == [0]
    assert "baselines" not in stored.metrics and not list(stored.model.parameters())
    seq, lengths = torch.tensor([[3, 4, 0], [5, 0, 0]]), torch.tensor([2, 1])
    scores = stored.model.item_scores(seq, lengths)
    assert scores.shape == (2, 41) and scores.max() > 0  # the counts came back
    assert run(toy_path, model, checkpoint_dir=str(tmp_path))["reused"]


@pytest.mark.parametrize("model", ["SASRec", "recbole:SASRec"])
def test_an_untrained_model_is_told_that_it_loses(
    toy_path: Path, tmp_path: Path, model: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"epochs": 1, "learning_rate": 1e-6, "hidden_size": 8, "inner_size": 8, "checkpoint_dir": str(tmp_path)}
    with caplog.at_level(logging.WARNING, logger="recbole_prism"):
        result = run(toy_path, model, **settings)
    baselines = read_json(Path(result["run_directory"]) / "metrics.json")["baselines"]
    assert baselines["Markov"] > 0.95 > result["best_valid_score"]
    assert "is not better than counting: validation NDCG@20" in caplog.text
    markov = run(toy_path, "Markov", checkpoint_dir=str(tmp_path))
    assert baselines["Markov"] == pytest.approx(markov["best_valid_score"], abs=1e-12)
