"""Our GRU4Rec against RecBole's."""

from __future__ import annotations

import pytest
import torch
from recbole.model.sequential_recommender.gru4rec import GRU4Rec as RecBoleGRU4Rec

from recbole_prism.errors import ConfigError
from recbole_prism.model.sequential_recommender.gru4rec import GRU4Rec
from tests.model.helpers import assert_equals_stock, build, sequences

SIZES = {"embedding_size": 10, "hidden_size": 14, "dropout_prob": 0.0}


@pytest.mark.parametrize("fast_path", [True, False])
@pytest.mark.parametrize("num_layers", [1, 2])
def test_equals_recbole_without_dropout(fast_path: bool, num_layers: int) -> None:
    """Same names, same weights under one seed, same loss, gradients and scores."""
    ours = build(GRU4Rec, fast_path=fast_path, num_layers=num_layers, **SIZES)
    stock = build(RecBoleGRU4Rec, num_layers=num_layers, **SIZES)
    assert_equals_stock(ours, stock)


def test_dropout_is_on_the_embeddings_of_valid_items_only() -> None:
    """In training the mean over many passes of the packed input is the plain one, and padding draws nothing."""
    model = build(GRU4Rec, num_layers=1, **{**SIZES, "dropout_prob": 0.5})
    seq, length = sequences(5, 6, 30, lengths=[6, 1, 3, 3, 2])
    shapes = []
    model.emb_dropout.register_forward_hook(lambda module, inputs, output: shapes.append(tuple(output.shape)))
    outputs = {model(seq, length).detach().sum().item() for _ in range(3)}
    assert shapes == [(15, 10)] * 3 and len(outputs) == 3
    assert torch.equal(model.eval()(seq, length), model(seq, length))


def test_parameter_count_on_toys() -> None:
    model = build(GRU4Rec, n_items=11_925, embedding_size=64, hidden_size=128, num_layers=1, dropout_prob=0.3)
    assert sum(p.numel() for p in model.parameters()) == 11_925 * 64 + 3 * 128 * (64 + 128) + 128 * 64 + 64


def test_other_losses_are_refused() -> None:
    with pytest.raises(ConfigError, match="recbole:GRU4Rec"):
        build(GRU4Rec, num_layers=1, **SIZES, loss_type="BPR")
