"""Our SASRec against RecBole's, and the packed path against the padded one."""

from __future__ import annotations

import pytest
import torch
from recbole.model.sequential_recommender.sasrec import SASRec as RecBoleSASRec

from recbole_prism.errors import ConfigError
from recbole_prism.model.sequential_recommender.sasrec import SASRec
from tests.model.helpers import assert_equals_stock, build, sequences


@pytest.mark.parametrize("fast_path", [True, False])
@pytest.mark.parametrize("n_layers", [1, 2, 3])
def test_equals_recbole_without_dropout(fast_path: bool, n_layers: int) -> None:
    """Same names, same weights under one seed, same loss, gradients and scores (width 12 is the stock one)."""
    ours = build(SASRec, fast_path=fast_path, n_layers=n_layers, initializer_range=0.1)
    stock = build(RecBoleSASRec, n_layers=n_layers, initializer_range=0.1)
    assert_equals_stock(ours, stock)


def test_parameter_count_on_toys() -> None:
    model = build(SASRec, n_items=11_925, hidden_size=64, inner_size=256, MAX_ITEM_LIST_LENGTH=50)
    assert sum(p.numel() for p in model.parameters()) == 866_496


def test_a_masked_item_inside_the_history_is_not_attended_to() -> None:
    """Id 0 inside the length. Where a query still sees some key, RecBole agrees; where it sees none (first row), it
    sees itself in both of our paths, whatever the padding, while RecBole looks at padding."""
    seq, length = sequences(4, 6, 30, lengths=[1, 2, 6, 6])
    seq[0, 0] = 0
    seq[2, 3] = 0
    fast, plain, stock = (
        build(model, **keys).eval()
        for model, keys in ((SASRec, {}), (SASRec, {"fast_path": False}), (RecBoleSASRec, {}))
    )
    assert torch.allclose(fast(seq, length), plain(seq, length), atol=1e-5)
    assert torch.allclose(plain(seq, length)[1:], stock(seq, length)[1:], atol=1e-5)
    alone = plain(seq[:1, :1], length[:1])
    assert torch.allclose(alone, plain(seq, length)[:1], atol=1e-5)


def test_dropout_draws_are_independent_per_call_and_scale_is_kept() -> None:
    """With dropout the mean over many passes approaches one plain pass of a linear quantity: the embedding output."""
    model = build(SASRec, hidden_dropout_prob=0.5)
    items, positions = torch.arange(1, 9), torch.arange(8)
    draws = torch.stack([model.embed(items, positions) for _ in range(4000)])
    exact = model.eval().embed(items, positions)
    assert not torch.equal(draws[0], draws[1])
    # each element is x * {0, 2}: standard error of the mean is |x| / sqrt(4000)
    assert ((draws.mean(0) - exact).abs() <= 6 * exact.abs() / 4000**0.5 + 1e-6).all()


def test_other_losses_are_refused() -> None:
    with pytest.raises(ConfigError, match="loss_type 'BPR'"):
        build(SASRec, loss_type="BPR")
