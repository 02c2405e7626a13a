"""With every extra weight at 0 a contrastive model trains bit-identically to SASRec: nothing of it is left, not even
a random number drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from recbole_prism.trainer.trainer import Trainer
from tests.contracts.conftest import Case, make_case

OFF: dict[str, dict[str, Any]] = {
    "ACSASRec": {
        "use_order": False, "use_distance": False, "use_adversarial": False, "use_position_embedding": True,
    },
    "CL4SRec": {"cl_weight": 0.0},
    "DuoRec": {"contrast": "none"},
    "ICLRec": {"seqcl_weight": 0.0, "intentcl_weight": 0.0},
    "ELCRec": {"seqcl_weight": 0.0, "intentcl_weight": 0.0, "cluster_weight": 0.0},
    "ICSRec": {"cicl_weight": 0.0, "ficl_weight": 0.0},
}  # fmt: skip
SETTINGS = {"hidden_dropout_prob": 0.5, "attn_dropout_prob": 0.5, "epochs": 2, "train_batch_size": 128}


def train(path: Path, model: str, **off: Any) -> tuple[Case, Trainer]:
    case = make_case(path, model, **SETTINGS, **off)
    trainer = Trainer(case.config, case.model)
    trainer.fit(case.train, case.valid, saved=False, verbose=False)
    return case, trainer


@pytest.fixture(scope="module")
def sasrec(toy_path: Path) -> tuple[Case, Trainer]:
    return train(toy_path, "SASRec")


@pytest.mark.parametrize("name", list(OFF))
def test_two_epochs_are_sasrecs(toy_path: Path, sasrec: tuple[Case, Trainer], name: str) -> None:
    """Losses of every epoch and all weights after two epochs with dropout."""
    case, trainer = train(toy_path, name, **OFF[name])
    weights, expected = case.model.state_dict(), sasrec[0].model.state_dict()
    assert list(weights)[: len(expected)] == list(expected)  # what a model has of its own comes last
    assert all(torch.equal(weights[key], expected[key]) for key in expected)
    losses, expected_losses = ([epoch["loss"] for epoch in each.history] for each in (trainer, sasrec[1]))
    assert losses == expected_losses and len(losses) == 2
