"""What `test_every_model.py` asks of each model in its default form, asked of the bidirectional PRISM."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional

from recbole_prism.trainer.trainer import Trainer
from tests.contracts.conftest import Case, first_batch, make_case
from tests.contracts.test_every_model import KINDS, changed, loss_of, rows_of_kind, scores, total, widened
from tests.contracts.test_learning import SETTINGS

BIDIRECTIONAL = {"backbone": "bert4rec"}


@pytest.fixture(scope="module")
def case(toy_path: Path) -> Case:
    return make_case(toy_path, "PRISM", **BIDIRECTIONAL, router_noise=False, perspective_dropout=0.0)


def test_declared(case: Case) -> None:
    properties = case.config.properties
    assert properties.padding_free and properties.last_query_only and properties.attention_logits
    assert not properties.causal and not properties.last_query_only_training


def test_padding_and_batch_do_not_matter(case: Case) -> None:
    batch, train = first_batch(case.test), first_batch(case.train)
    table, loss = scores(case, batch), loss_of(case, train)
    assert table.shape == (len(batch), case.train.dataset.info.n_items)  # the mask token is no candidate
    wide = {name: widened(value) for name, value in train.interaction.items() if name.endswith("item_id_list")}
    wide["cloze_labels"] = functional.pad(train["cloze_labels"], (0, 12 - train["cloze_labels"].shape[1]))
    assert loss_of(case, changed(train, **wide)) == pytest.approx(loss, rel=1e-5)
    alone = torch.cat([scores(case, batch[b : b + 1]) for b in range(4)])
    assert torch.allclose(alone, table[:4], atol=1e-5)
    wrong = changed(batch, item_id=torch.flip(batch["item_id"], [0]))
    assert torch.equal(scores(case, wrong), table)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cloze", ["repaired", "recbole"])
def test_degenerate_batches_train(toy_path: Path, kind: str, cloze: str) -> None:
    case = make_case(toy_path, "PRISM", **BIDIRECTIONAL, cloze=cloze)
    batch = rows_of_kind(next(iter(case.train)), kind)
    loss = total(case.model.train().calculate_loss(batch))
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in case.model.parameters() if p.grad is not None)


def test_learns_the_cycle(toy_path: Path) -> None:
    settings = {key: value for key, value in SETTINGS.items() if key != "embedding_size"}
    own = {"learning_rate": 0.003, "aux_weight": 0.0, "epochs": 20}  # with 0.01 it does not learn at all
    case = make_case(toy_path, "PRISM", **BIDIRECTIONAL, **{**settings, **own})
    trainer = Trainer(case.config, case.model)
    trainer.fit(case.train, case.valid, verbose=False)
    assert trainer.evaluate(case.test)["hit@1"] > 0.95
