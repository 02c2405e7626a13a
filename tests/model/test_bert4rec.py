"""Our BERT4Rec against RecBole's, and what it does otherwise."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from recbole.data.interaction import Interaction
from recbole.model.sequential_recommender.bert4rec import BERT4Rec as RecBoleBERT4Rec
from torch import Tensor

from recbole_prism.errors import ConfigError
from recbole_prism.model.sequential_recommender.bert4rec import BERT4Rec
from tests.model.helpers import batch, build, cloze_batch

KEYS = {"cloze": "repaired", "mask_ratio": 0.4, "ft_ratio": 0.5}
# names of the fields that RecBole's transform makes
FIELDS = {"MASK_ITEM_SEQ": "masked", "POS_ITEMS": "pos", "NEG_ITEMS": "neg", "MASK_INDEX": "index"}
T, N_ITEMS = 12, 30


def pair(**overrides: Any) -> tuple[Any, Any]:
    """Ours and RecBole's with the same weights."""
    ours, stock = build(BERT4Rec, **{**KEYS, **overrides}), build(RecBoleBERT4Rec, **KEYS, **FIELDS)
    stock.load_state_dict(ours.state_dict())
    return ours, stock


def as_recbole(data: Interaction) -> Interaction:
    """Left-padded lists of at most int(0.4 * 12) = 4 places and items, which is the form RecBole's loss reads."""
    labels = data["cloze_labels"]
    index = torch.zeros(len(labels), 4, dtype=torch.int64)
    for row, label in enumerate(labels):
        places = torch.nonzero(label).flatten()
        index[row, 4 - len(places) :] = places
    pos = torch.where(index > 0, labels.gather(1, index), 0)
    return Interaction({"masked": data["cloze_item_id_list"], "pos": pos, "neg": pos, "index": index})


@pytest.mark.parametrize("fast_path", [True, False])
def test_stock_rules_equal_recbole(fast_path: bool) -> None:
    """Loss, gradients and scores with `cloze: recbole`."""
    ours, stock = pair(cloze="recbole", fast_path=fast_path)
    data = cloze_batch("recbole")
    (loss,) = ours.calculate_loss(data)
    stock_loss = stock.calculate_loss(as_recbole(data))
    assert float(loss.detach()) == pytest.approx(float(stock_loss.detach()), abs=1e-5)
    loss.backward()
    stock_loss.backward()
    stock_parameters = dict(stock.named_parameters())
    assert {name for name, _ in ours.named_parameters()} == set(stock_parameters)
    for name, parameter in ours.named_parameters():
        assert torch.allclose(parameter.grad, stock_parameters[name].grad, atol=1e-5), name
    ours.eval()
    stock.eval()
    assert torch.allclose(ours.full_sort_predict(data), stock.full_sort_predict(data), atol=1e-5)
    assert torch.allclose(ours.predict(data), stock.predict(data), atol=1e-5)


@pytest.mark.parametrize("fast_path", [True, False])
def test_repaired_scores_keep_the_oldest_item(fast_path: bool) -> None:
    """Where there is room: RecBole's scores for the history with a throw-away item in front, whatever that item is, one
    position earlier. At full length the oldest makes room in both."""
    ours, stock = pair(fast_path=fast_path)
    ours.eval()
    stock.eval()
    data = batch(9, T, N_ITEMS)
    seq, lengths = data["item_id_list"], data["item_length"]
    assert int(lengths.max()) == T  # one row is full
    room = lengths < T
    shifted = torch.cat([torch.full((9, 1), 7), seq[:, :-1]], dim=1)
    in_front = Interaction({"item_id_list": shifted, "item_length": lengths + 1, "item_id": data["item_id"]})
    with torch.no_grad():
        scores = ours.full_sort_predict(data)
        assert torch.allclose(scores[room], stock.full_sort_predict(in_front[room]), atol=1e-5)
        assert torch.allclose(scores[~room], stock.full_sort_predict(data)[~room], atol=1e-5)
        assert not torch.allclose(scores[room], stock.full_sort_predict(data)[room], atol=1e-2)


def naive_loss(model: Any, data: Interaction) -> Tensor:
    """One row and one mask at a time, without padding."""
    losses = []
    for masked, labels, length in zip(data["cloze_item_id_list"], data["cloze_labels"], data["cloze_item_length"]):
        states = model.encode_padded(masked[None, :length], length[None])[0][0]
        for place in torch.nonzero(labels).flatten().tolist():
            scores = model.item_scores(model.head(states[place]))
            losses.append(torch.logsumexp(scores, 0) - scores[labels[place]])
    return torch.stack(losses).mean()


@pytest.mark.parametrize("style", ["repaired", "recbole"])
@pytest.mark.parametrize("n_layers", [1, 2])
def test_packed_loss_is_the_naive_one(style: str, n_layers: int) -> None:
    model = build(BERT4Rec, **{**KEYS, "cloze": style}, n_layers=n_layers).double()
    data = cloze_batch(style)
    (loss,) = model.calculate_loss(data)
    expected = naive_loss(model, data)
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), abs=1e-10)
    grads = torch.autograd.grad(loss, list(model.parameters()))
    for grad, other in zip(grads, torch.autograd.grad(expected, list(model.parameters()))):
        assert torch.allclose(grad, other, atol=1e-10)


@pytest.mark.parametrize("fast_path", [True, False])
def test_a_batch_in_which_no_mask_counts_teaches_nothing(fast_path: bool) -> None:
    """Possible by RecBole's rules, where its own loss is 0 / 0."""
    model = build(BERT4Rec, **{**KEYS, "cloze": "recbole"}, fast_path=fast_path)
    data = cloze_batch("recbole")
    data.update(Interaction({"cloze_labels": torch.zeros_like(data["cloze_labels"])}))
    (loss,) = model.calculate_loss(data)
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert all(not p.grad.any() for p in model.parameters() if p.grad is not None)


def test_parameter_count_on_toys() -> None:
    """SASRec's, a vector for the mask token, a linear layer, a LayerNorm and a bias per item."""
    model = build(BERT4Rec, n_items=11_925, hidden_size=64, inner_size=256, MAX_ITEM_LIST_LENGTH=50, **KEYS)
    assert sum(p.numel() for p in model.parameters()) == 866_496 + 64 + 64 * 64 + 64 + 2 * 64 + 11_925


def test_a_mask_ratio_under_which_nothing_counts_is_refused() -> None:
    with pytest.raises(ConfigError, match="less than one item"):
        build(BERT4Rec, **{**KEYS, "cloze": "recbole", "mask_ratio": 0.05})
    build(BERT4Rec, **{**KEYS, "mask_ratio": 0.05})
