"""FAME: the fused vector against the equations written out head by head and expert by expert."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from recbole_prism.model.sequential_recommender.fame import FAME
from tests.model.helpers import batch, build, sequences


def fame(**overrides: Any) -> Any:
    return build(FAME, **{"n_experts": 3, "head_residual": True, "initializer_range": 0.3, **overrides})


def layer_norm(values: Tensor, norm: torch.nn.LayerNorm) -> Tensor:
    centred = values - values.mean()
    return centred / (centred.square().mean() + norm.eps).sqrt() * norm.weight + norm.bias


def facet_scores(model: Any, hidden: Tensor, n: int) -> Tensor:
    """Scores of one row [V] from the input of the facet layer [T, d], by the printed formulas: every head scores the
    items in its own projection of the item table, and the gate mixes the scores."""
    layer, width, n_heads = model.facet_layer, model.hidden_size, model.n_heads
    size, n_experts = width // n_heads, layer.n_experts
    w_key, w_value = layer.key_value.weight.chunk(2)
    b_key, b_value = layer.key_value.bias.chunk(2)
    x = hidden[n - 1]
    facets, tables = [], []
    for h in range(n_heads):
        part = slice(h * size, (h + 1) * size)
        outputs = []
        for e in range(n_experts):
            query = (layer.query.weight[e * width : (e + 1) * width] @ x + layer.query.bias[e * width :][:width])[part]
            keys = [(w_key @ hidden[j] + b_key)[part] for j in range(n)]
            weights = torch.softmax(torch.stack([query @ key for key in keys]) / size**0.5, dim=0)
            outputs.append(sum(weights[j] * (w_value @ hidden[j] + b_value)[part] for j in range(n)))
        router = layer.router.weight[h * n_experts : (h + 1) * n_experts]  # transposed R^h
        shares = torch.softmax(router @ torch.cat(outputs), dim=0)
        mixed = sum(shares[e] * outputs[e] for e in range(n_experts))
        u = layer_norm(mixed + x[part] if layer.head_residual else mixed, layer.LayerNorm)
        block = layer.feed_forward
        inner = torch.nn.functional.gelu(block.dense_1.weight @ u + block.dense_1.bias)
        facets.append(layer_norm(block.dense_2.weight @ inner + block.dense_2.bias + u, block.LayerNorm))
        tables.append(model.item_embedding.weight @ layer.item_facets.weight[:, part])  # E C^h
    gate = torch.softmax(layer.gate.weight @ torch.cat(facets) + layer.gate.bias, dim=0)
    return sum(gate[h] * (tables[h] @ facets[h]) for h in range(n_heads))


@pytest.mark.parametrize("settings", [{}, {"head_residual": False}, {"n_experts": 1}, {"n_heads": 4, "n_layers": 1}])
@pytest.mark.parametrize("fast_path", [True, False])
def test_scores_follow_the_equations(settings: dict[str, Any], fast_path: bool) -> None:
    """One layer below (none for n_layers 1) is SASRec's; `n_experts: 1` has no choice to make."""
    model = fame(fast_path=fast_path, **settings).double().eval()
    data = batch(n_rows=5)
    seq, length = data["item_id_list"], data["item_length"]
    with torch.no_grad():
        hidden, _ = model.trm_encoder(model.embed(seq, model.positions(seq)), model.visible(seq, length))
        expected = torch.stack([facet_scores(model, hidden[b], int(length[b])) for b in range(5)])
        assert torch.allclose(model.full_sort_predict(data), expected, atol=1e-9)


def test_last_position_only_equals_all_positions_and_gather() -> None:
    seq, length = sequences(6, 12, 30)
    fast, plain = (fame(fast_path=path, n_layers=3).eval() for path in (True, False))
    everywhere, logits = plain.encode_padded(seq, length)
    assert torch.allclose(fast(seq, length), everywhere[torch.arange(6), length - 1], atol=1e-6)
    assert logits.shape == (6, 2, 3, 12, 12)


def test_shares_and_gate_sum_to_one_and_one_expert_has_no_choice() -> None:
    model = fame()
    experts, hidden = torch.randn(4, 2, 3, 8), torch.randn(4, 16)
    mixed, shares = model.facet_layer.mix_experts(experts)
    _, gate = model.facet_layer.facets(mixed, hidden)
    assert torch.allclose(shares.sum(-1), torch.ones(4, 2)) and shares.std() > 0.01
    assert torch.allclose(gate.sum(-1), torch.ones(4)) and gate.std() > 0.01
    single = fame(n_experts=1)
    _, shares = single.facet_layer.mix_experts(experts[:, :, :1])
    assert torch.equal(shares, torch.ones(4, 2, 1))
    sum(single.calculate_loss(batch())).backward()
    assert torch.equal(single.facet_layer.router.weight.grad, torch.zeros_like(single.facet_layer.router.weight))


def test_order_of_experts_does_not_matter() -> None:
    """Query blocks moved together with the router's input blocks and outputs."""
    model, moved = fame().eval(), fame().eval()
    order = torch.tensor([2, 0, 1])
    layer = moved.facet_layer
    with torch.no_grad():
        layer.query.weight.copy_(layer.query.weight.view(3, 16, 16)[order].flatten(0, 1))
        layer.query.bias.copy_(layer.query.bias.view(3, 16)[order].flatten())
        blocks = layer.router.weight.view(2, 3, 3, 8)  # head, output expert, input expert, D
        unmoved_outputs = blocks[:, :, order].reshape(6, 24)
        layer.router.weight.copy_(blocks[:, order][:, :, order].reshape(6, 24))
    data = batch()
    assert torch.allclose(moved.full_sort_predict(data), model.full_sort_predict(data), atol=1e-5)
    with torch.no_grad():
        layer.router.weight.copy_(unmoved_outputs)
    assert not torch.allclose(moved.full_sort_predict(data), model.full_sort_predict(data), atol=1e-3)


def test_gradient_reaches_every_expert_head_and_item() -> None:
    model = fame()
    sum(model.calculate_loss(batch())).backward()
    layer = model.facet_layer
    blocks = {
        "experts": layer.query.weight.grad.view(3, -1),
        "routers": layer.router.weight.grad.view(2, -1),
        "item facets": layer.item_facets.weight.grad.view(16, 2, 8).transpose(0, 1).flatten(1),
        "gate": layer.gate.weight.grad,
        "feed-forward": layer.feed_forward.dense_1.weight.grad,
        "items": model.item_embedding.weight.grad,
    }
    assert all(bool((block.abs().amax(dim=1) > 1e-8).all()) for block in blocks.values())
    model.zero_grad()
    seq, length = sequences(3, 6, 30)
    model(seq, length).square().sum().backward()  # no item table behind it: histories only
    reached = model.item_embedding.weight.grad.abs().amax(dim=1) > 0
    assert reached[seq[seq != 0]].all() and int(reached.sum()) == len(set(seq[seq != 0].tolist()))


def test_experts_start_apart() -> None:
    blocks = fame().facet_layer.query.weight.detach().view(3, -1)
    assert torch.corrcoef(blocks).fill_diagonal_(0).abs().max() < 0.3


def test_dropout_of_attention_and_of_head_outputs() -> None:
    """Where everything is dropped, the facets see the residual alone: the same as experts whose values are 0."""
    seq, length = sequences(4, 8, 30)
    for name in ("attn_dropout", "out_dropout"):
        model, silent = fame(), fame().eval()
        getattr(model.facet_layer, name).probability = 1.0
        with torch.no_grad():
            for part in (silent.facet_layer.key_value.weight, silent.facet_layer.key_value.bias):
                part[16:] = 0
        assert torch.allclose(model.train()(seq, length), silent(seq, length), atol=1e-6)


def test_residual_key_changes_the_scores() -> None:
    with_it, without = (fame(head_residual=flag).eval().full_sort_predict(batch()) for flag in (True, False))
    assert not torch.allclose(with_it, without, atol=1e-3)


def test_padding_vector_does_not_matter() -> None:
    model, data = fame().eval(), batch()
    before = model.full_sort_predict(data)
    with torch.no_grad():
        model.item_embedding.weight[0] = 100 * torch.randn(16)
    assert torch.allclose(model.full_sort_predict(data)[:, 1:], before[:, 1:], atol=1e-5)


@pytest.mark.parametrize(("n_experts", "n_heads"), [(1, 1), (4, 2), (8, 4)])
def test_parameter_counts_on_toys(n_experts: int, n_heads: int) -> None:
    sizes = {"n_items": 11_925, "hidden_size": 64, "inner_size": 256, "MAX_ITEM_LIST_LENGTH": 50}
    model = fame(n_experts=n_experts, n_heads=n_heads, **sizes)
    d, n, h, width = 64, n_experts, n_heads, 64 // n_heads
    facet_layer = 2 * (d * d + d) + n * (d * d + d) + n * n * d + 2 * width + 2 * (width * width + width) + 2 * width
    facet_layer += d * d + d * h + h
    count = sum(p.numel() for p in model.parameters())
    assert count == 763_200 + 3_200 + 128 + 49_984 + facet_layer
    if (n_experts, n_heads) == (4, 2):
        assert count == 848_962
