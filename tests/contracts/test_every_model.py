"""What every registered model keeps, discovered from the registry: a new model is tested by being listed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from recbole.data.interaction import Interaction
from torch import Tensor
from torch.nn import functional

from recbole_prism.errors import ConfigError, ModelError
from recbole_prism.model.sequential_recommender.sasrec import SASRec
from recbole_prism.registry import resolve
from tests.contracts.conftest import COUNTED, TRAINED, Case, first_batch, make_case


def total(parts: Any) -> Tensor:
    return sum(parts) if isinstance(parts, tuple) else parts


def scores(case: Case, batch: Interaction) -> Tensor:
    case.model.eval()
    with torch.no_grad():
        return case.model.full_sort_predict(batch).view(len(batch), -1).clone()


def changed(batch: Interaction, **fields: Tensor) -> Interaction:
    return Interaction({**batch.interaction, **fields})


def test_scores_have_a_column_per_item_and_agree_with_predict(case: Case) -> None:
    batch = first_batch(case.test)
    table = scores(case, batch)
    n_items = case.config["n_items"] or case.train.dataset.info.n_items
    assert table.shape == (len(batch), n_items) and torch.isfinite(table).all()
    with torch.no_grad():
        single = case.model.predict(batch)
    assert torch.allclose(single, table[torch.arange(len(batch)), batch["item_id"]], atol=1e-5)


def test_the_target_is_not_looked_at(case: Case) -> None:
    batch = first_batch(case.test)
    wrong = changed(batch, item_id=torch.flip(batch["item_id"], [0]))
    assert torch.equal(scores(case, wrong), scores(case, batch))


def test_scores_do_not_depend_on_the_batch(case: Case) -> None:
    batch = first_batch(case.test)
    table = scores(case, batch)
    assert torch.equal(scores(case, batch), table)  # deterministic
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(0))
    assert torch.allclose(scores(case, batch[order]), table[order], atol=1e-5)
    alone = torch.cat([scores(case, batch[b : b + 1]) for b in range(4)])
    assert torch.allclose(alone, table[:4], atol=1e-5)


def test_declared_padding_free(case: Case) -> None:
    """Neither a wider batch nor, for our own models, the padding vector changes scores or losses."""
    if not case.config.properties.padding_free:
        assert case.config["model"] == "Caser"  # a stock class whose results may depend on the width
        return
    batch, train = first_batch(case.test), first_batch(case.train)
    before = scores(case, batch)
    assert torch.allclose(scores(case, changed(batch, item_id_list=widened(batch["item_id_list"]))), before, atol=1e-5)
    if case.config.properties.counted:
        return
    loss = loss_of(case, train)
    wide = {name: widened(value) for name, value in train.interaction.items() if name.endswith("item_id_list")}
    assert loss_of(case, changed(train, **wide)) == pytest.approx(loss, rel=1e-5)
    if case.config.model_entry.origin == "own":
        with torch.no_grad():
            case.model.item_embedding.weight[0] += 5.0
        after = scores(case, batch)
        with torch.no_grad():
            case.model.item_embedding.weight[0] -= 5.0
        assert torch.allclose(after[:, 1:], before[:, 1:], atol=1e-5)


def widened(item_seq: Tensor) -> Tensor:
    """The same histories, padded to T."""
    return functional.pad(item_seq, (0, 12 - item_seq.shape[1]))


def loss_of(case: Case, batch: Interaction) -> float:
    case.model.train()
    torch.manual_seed(1)
    with torch.no_grad():
        return float(total(case.model.calculate_loss(batch)))


def test_declared_causal(case: Case) -> None:
    """States up to t do not change with the items behind t; where a model shows no states, its scores for the first t
    items are the same whatever stands behind them."""
    if not case.config.properties.causal:
        return
    batch = first_batch(case.test)
    seq, length = batch["item_id_list"], batch["item_length"]
    t = 4
    later = torch.where((torch.arange(seq.shape[1]) > t) & (seq != 0), seq % 40 + 1, seq)
    assert not torch.equal(later, seq)
    case.model.eval()
    if case.config.model_entry.origin == "own":
        with torch.no_grad():
            states, other = (case.model.encode_padded(items, length)[0][:, : t + 1] for items in (seq, later))
        assert torch.allclose(states, other, atol=1e-5)
        return
    cut = torch.full_like(length, t + 1).minimum(length)
    fields = [changed(batch, item_id_list=items, item_length=cut) for items in (seq, later)]
    assert torch.allclose(scores(case, fields[0]), scores(case, fields[1]), atol=1e-5)


def test_declared_attention_logits(case: Case) -> None:
    """The last layer's raw logits come for every head, query and key; finite, and not the same for all keys."""
    if not case.config.properties.attention_logits:
        return
    batch = first_batch(case.test)
    with torch.no_grad():
        _, logits = case.model.encode_padded(batch["item_id_list"], batch["item_length"])
    n_rows, width = batch["item_id_list"].shape
    assert logits.shape == (n_rows, case.config["n_heads"], width, width) and torch.isfinite(logits).all()
    assert (logits[..., -1, :] - logits[..., -1:, -1]).abs().max() > 0


def test_loss_is_finite_reaches_parameters_and_falls(toy_path: Path, case: Case) -> None:
    if case.config.properties.counted:
        return
    batch = first_batch(case.train)
    model = case.model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(8):
        torch.manual_seed(1)
        optimizer.zero_grad()
        loss = total(model.calculate_loss(batch))
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert all(value == value and abs(value) != float("inf") for value in losses)
    assert losses[-1] < losses[0]
    without = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert not without, f"no gradient: {without}"


KINDS = ("one_row", "length_1", "length_T", "one_user", "one_target")


def rows_of_kind(batch: Interaction, kind: str) -> Interaction:
    """A degenerate batch, out of a normal one."""
    lengths = batch["item_length"]
    rows = {
        "one_row": torch.tensor([0]),
        "length_1": torch.full((3,), int(lengths.argmin())),
        "length_T": torch.full((3,), int(lengths.argmax())),
        "one_user": torch.nonzero(batch["user_id"] == batch["user_id"].mode().values).squeeze(1),
        "one_target": torch.arange(8),
    }[kind]
    batch = batch[rows]
    if kind == "one_target":
        batch = changed(batch, item_id=torch.full_like(batch["item_id"], 7))
    return batch


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("kind", KINDS)
def test_degenerate_batches_train(toy_path: Path, name: str, kind: str) -> None:
    case = make_case(toy_path, name)
    batch = rows_of_kind(next(iter(case.train)), kind)
    loss = total(case.model.train().calculate_loss(batch))
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in case.model.parameters() if p.grad is not None)


@pytest.mark.parametrize("name", [name for name in TRAINED if resolve(name).origin == "own"])
def test_fast_path_equals_plain_path(toy_path: Path, name: str) -> None:
    """Scores, losses and gradients on the loader's own batches (random parts of the model switched off)."""
    results = []
    for fast in (True, False):
        quiet = {"router_noise": False, "perspective_dropout": 0.0} if name == "PRISM" else {}
        case = make_case(toy_path, name, fast_path=fast, **quiet)
        parts = case.model.calculate_loss(first_batch(case.train))
        total(parts).backward()
        grads = {key: p.grad for key, p in case.model.named_parameters() if p.grad is not None}
        results.append((scores(case, first_batch(case.test)), [float(part.detach()) for part in parts], grads))
    fast_result, plain_result = results
    assert torch.allclose(fast_result[0], plain_result[0], atol=1e-5)
    assert fast_result[1] == pytest.approx(plain_result[1], rel=1e-5)
    for key, grad in fast_result[2].items():
        assert torch.allclose(grad, plain_result[2][key], atol=1e-5), key


def test_fast_path_wants_the_property(toy_path: Path) -> None:
    """A class that does not say that padding does not matter to it is refused, and runs plainly when asked to."""
    with pytest.raises(ConfigError, match="does not declare `padding_free`"):
        make_case(toy_path, f"{__name__}:Silent")
    case = make_case(toy_path, f"{__name__}:Silent", fast_path=False)
    assert torch.isfinite(total(case.model.calculate_loss(first_batch(case.train))))


class Silent(SASRec):
    """A model from outside that declares nothing."""

    config_defaults: ClassVar[dict[str, Any]] = {
        "n_layers": 2, "n_heads": 2, "hidden_size": 16, "inner_size": 32, "hidden_dropout_prob": 0.0,
        "attn_dropout_prob": 0.0, "hidden_act": "gelu", "layer_norm_eps": 1e-12, "initializer_range": 0.02,
        "loss_type": "CE",
    }  # fmt: skip


@pytest.mark.parametrize("name", COUNTED)
def test_counted_models_have_nothing_to_train(toy_path: Path, name: str) -> None:
    case = make_case(toy_path, name)
    assert case.config.properties.counted and not list(case.model.parameters()) and list(case.model.buffers())
    with pytest.raises(ModelError, match="no loss"):
        case.model.calculate_loss(first_batch(case.train))
