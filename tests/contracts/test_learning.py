"""Every neural model learns the cycle: each item is always followed by the same next one.

Users' walks are shorter than the cycle, so the answer is never among the removed history items.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recbole_prism.registry import list_models
from recbole_prism.trainer import CountingTrainer, Trainer
from tests.contracts.conftest import make_case

# Training ends soon after validation is perfect: nothing can be strictly better then.
SETTINGS = {
    "epochs": 40, "learning_rate": 0.01, "hidden_size": 32, "inner_size": 64, "metrics": ["Hit", "NDCG"],
    "topk": [1, 20], "valid_metric": "Hit@1", "stopping_step": 3, "initializer_range": 0.02, "embedding_size": 32,
}  # fmt: skip
OWN: dict[str, dict[str, Any]] = {
    "Caser": {"MAX_ITEM_LIST_LENGTH": 6, "train_batch_size": 64},
    "BERT4Rec": {"learning_rate": 0.003},  # at 0.01 it stays at a plateau
}


def hit_at_1(toy_path: Path, name: str) -> float:
    known = make_case(toy_path, name).config
    settings = {key: value for key, value in {**SETTINGS, **OWN.get(name, {})}.items() if key in known}
    case = make_case(toy_path, name, **settings)
    trainer = (CountingTrainer if case.config.properties.counted else Trainer)(case.config, case.model)
    trainer.fit(case.train, case.valid, verbose=False)
    return trainer.evaluate(case.test)["hit@1"]


@pytest.mark.parametrize("name", [name for name in list_models() if name != "Popularity"])
def test_learns_the_cycle(toy_path: Path, name: str) -> None:
    assert hit_at_1(toy_path, name) > 0.95


def test_popularity_cannot(toy_path: Path) -> None:
    assert hit_at_1(toy_path, "Popularity") < 0.2
