"""STAR-Rec: sizes, both computation paths, padding, and what its parts reduce to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from recbole_prism.config import Config
from recbole_prism.errors import ConfigError
from recbole_prism.model.functional.selective_scan import selective_scan
from recbole_prism.model.layers.dense_mixture import DenseMixture
from recbole_prism.model.layers.packed import pack
from recbole_prism.model.layers.preference_attention import PreferenceAttention
from recbole_prism.model.layers.state_space import StateSpaceBlock
from recbole_prism.model.sequential_recommender.starrec import STARRec
from recbole_prism.registry import resolve
from tests.model.helpers import batch, sequences
from tests.model.helpers import build as build_any
from tests.model.test_no_waiting import N_ITEMS, batch_without_values

BASE: dict[str, Any] = {
    "num_layers": 1, "dropout_prob": 0.0, "d_state": 4, "d_conv": 4, "expand": 2, "n_experts": 3, "expert_mult": 2,
    "official": False, "attn_mask_mode": "padding", "sim_norm": "time", "ssm_stack": "stacked", "ssm_dt_init": "zero",
    "use_position_embedding": False, "moe_level": "token",
}  # fmt: skip
# Every key that changes what is computed, away from its default.
VARIANTS: list[dict[str, Any]] = [
    {}, {"official": True}, {"attn_mask_mode": "causal"}, {"attn_mask_mode": "none"}, {"sim_norm": "feature"},
    {"sim_norm": "feature", "attn_mask_mode": "causal"}, {"num_layers": 3},
    {"ssm_stack": "parallel_last", "num_layers": 2},
    {"ssm_dt_init": "mamba"}, {"use_position_embedding": True}, {"moe_level": "sequence"},
    {"moe_level": "sequence", "attn_mask_mode": "none"}, {"n_heads": 4}, {"n_experts": 1}, {"expert_mult": 4},
    {"d_state": 7}, {"d_conv": 1}, {"d_conv": 20}, {"expand": 1},
]  # fmt: skip


def build(**overrides: Any) -> Any:
    return build_any(STARRec, **{**BASE, **overrides})


def name_of(variant: dict[str, Any]) -> str:
    return "-".join(f"{key}={value}" for key, value in variant.items()) or "default"


def test_parameter_counts() -> None:
    def count(**settings: Any) -> int:
        sizes = {"n_items": 11_925, "hidden_size": 64, "d_state": 32, "n_experts": 4, "expert_mult": 4}
        return sum(p.numel() for p in build(**{**sizes, "MAX_ITEM_LIST_LENGTH": 50, **settings}).parameters())

    assert count() == 763_200 + 128 + 38_784 + 128 + 25_218 + 2 + 132_740 == 960_200
    assert count(d_state=16) == 954_056
    assert count(hidden_size=128) == 2_282_888
    assert count(use_position_embedding=True) == 963_400


@pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
def test_fast_path_equals_every_position(variant: dict[str, Any]) -> None:
    """Scores, loss and gradients; the plain path computes all positions and steps through the scan."""
    results = []
    for fast in (True, False):
        model, data = build(fast_path=fast, **variant), batch()
        (loss,) = model.calculate_loss(data)
        loss.backward()
        results.append((loss.detach(), model.full_sort_predict(data), dict(model.named_parameters())))
    (loss, scores, fast), (plain_loss, plain_scores, plain) = results
    assert torch.allclose(scores, plain_scores, atol=1e-4, rtol=1e-5) and torch.allclose(loss, plain_loss, rtol=1e-5)
    for name, parameter in plain.items():
        assert (parameter.grad is None) == (fast[name].grad is None), name
        if parameter.grad is not None:
            assert torch.allclose(fast[name].grad, parameter.grad, atol=2e-5, rtol=2e-3), name


@pytest.mark.parametrize("variant", VARIANTS[1:], ids=name_of)
def test_every_key_changes_the_states(variant: dict[str, Any]) -> None:
    """The first key of each variant, the others held; the same weights where they have the same shapes."""
    first = next(iter(variant))
    model, other = build(**{key: value for key, value in variant.items() if key != first}), build(**variant)
    if first != "ssm_dt_init":
        shapes = {name: part.shape for name, part in other.state_dict().items()}
        same = {name: part for name, part in model.state_dict().items() if shapes.get(name) == part.shape}
        other.load_state_dict(same, strict=False)
    seq, length = sequences(7, 12, 30)
    states, changed = (m.encode_padded(seq, length)[0][torch.arange(7), length // 2] for m in (model, other))
    assert not torch.allclose(states, changed, atol=1e-3)


def test_causal_mode_leaves_the_last_position_as_it_is() -> None:
    """The last query sees every key under either mask: what differs are the positions before it."""
    data = batch()
    assert torch.allclose(
        build().full_sort_predict(data), build(attn_mask_mode="causal").full_sort_predict(data), atol=1e-5
    )


@pytest.mark.parametrize("mode", ["padding", "causal", "none"])
@pytest.mark.parametrize("norm", ["time", "feature"])
@pytest.mark.parametrize("fast_path", [True, False])
def test_padding_matters_only_where_attention_sees_it(mode: str, norm: str, fast_path: bool) -> None:
    model = build(attn_mask_mode=mode, sim_norm=norm, fast_path=fast_path).eval()
    nn.init.normal_(model.LayerNorm.bias)  # after training a padding position is not zero
    seq, length = sequences(5, 8, 30)
    narrow, wide = model(seq, length), model(functional.pad(seq, (0, 4)), length)
    assert torch.allclose(narrow, wide, atol=1e-5) == (mode != "none")
    model.fusion.data = torch.tensor([-1e4, 1e4])  # the state space alone never sees padding
    assert torch.allclose(model(seq, length), model(functional.pad(seq, (0, 4)), length), atol=1e-5)


def test_causal_where_declared() -> None:
    settings = {**BASE, "attn_mask_mode": "causal", "sim_norm": "feature"}
    properties = resolve("STAR-Rec").properties
    assert properties(settings).causal and not properties({**settings, "sim_norm": "time"}).causal
    assert not properties({**settings, "moe_level": "sequence"}).causal and not properties(BASE).causal
    seq, length = sequences(4, 9, 30, lengths=[9, 9, 7, 6])
    later = seq.clone()
    later[:, 5:] = torch.where(seq[:, 5:] != 0, 31 - seq[:, 5:], 0).clamp(max=29)
    for changed, same in (({}, True), ({"sim_norm": "time"}, False), ({"attn_mask_mode": "padding"}, False)):
        model = build(**{**settings, **changed}).eval()
        states, other = (model.encode_padded(items, length)[0][:, :5] for items in (seq, later))
        assert torch.allclose(states, other, atol=1e-5) == same


def test_official_is_the_released_code() -> None:
    released = {"attn_mask_mode": "none", "sim_norm": "time", "ssm_stack": "parallel_last", "ssm_dt_init": "zero"}
    official, spelt_out = build(official=True, num_layers=2), build(num_layers=2, **released)
    data = batch()
    assert torch.equal(official.full_sort_predict(data), spelt_out.full_sort_predict(data))
    properties = resolve("STARRec").properties({**BASE, "official": True})
    assert properties.fixed_width and not properties.padding_free
    assert resolve("STARRec").properties(BASE).padding_free


def test_official_refuses_keys_that_it_replaces(toy_path: Path) -> None:
    given = {"data_path": str(toy_path), "official": True}
    assert Config("STARRec", "cyclic", config_dict=given).properties.fixed_width
    with pytest.raises(ConfigError, match="sim_norm"):
        Config("STARRec", "cyclic", config_dict={**given, "sim_norm": "feature"})


def test_padding_is_the_layer_norms_bias() -> None:
    model = build()
    nn.init.normal_(model.LayerNorm.bias)
    padded = model.embed(torch.tensor([[3, 0]]), torch.tensor([[0, 1]]))[0, 1]
    assert torch.allclose(padded, model.LayerNorm.bias)


class TestStateSpace:
    """The Mamba block."""

    def block(self, **settings: Any) -> StateSpaceBlock:
        torch.manual_seed(0)
        return StateSpaceBlock(**{"hidden_size": 6, "d_state": 3, "d_conv": 4, "expand": 2, **settings}).double()

    def test_initial_values(self) -> None:
        block = self.block()
        assert torch.allclose(block.A_log.exp(), torch.tensor([1.0, 2.0, 3.0]).double().expand(12, 3))
        assert torch.equal(block.D, torch.ones(12).double())
        block.init_small_steps()
        steps = functional.softplus(block.dt_proj.bias)
        assert ((steps > 0.00099) & (steps < 0.101)).all() and steps.max() / steps.min() > 3

    def test_step_by_step(self) -> None:
        """Each row and position from the formulas, the convolution as a sum over its taps."""
        block, hidden = self.block(), torch.randn(2, 5, 6).double()
        output = block(hidden)
        for row in range(2):
            x, z = (hidden[row] @ block.in_proj.weight.T).chunk(2, dim=-1)
            state = torch.zeros(12, 3).double()
            convolved = []
            for t in range(5):
                total = block.conv1d.bias
                for tap in range(4):
                    if t - tap >= 0:
                        total = total + block.conv1d.weight[:, 0, 3 - tap] * x[t - tap]
                convolved.append(functional.silu(total))
            for t, value in enumerate(convolved):
                low_rank, b, c = (block.x_proj.weight @ value).split([1, 3, 3])
                delta = functional.softplus(block.dt_proj.weight @ low_rank + block.dt_proj.bias)
                state = torch.exp(-delta[:, None] * block.A_log.exp()) * state + (delta * value)[:, None] * b
                y = (state @ c + block.D * value) * functional.silu(z[t])
                assert torch.allclose(output[row, t], block.out_proj.weight @ y, atol=1e-12)

    def test_causal(self) -> None:
        block, hidden = self.block(), torch.randn(1, 6, 6).double()
        changed = hidden.clone()
        changed[:, 4] += 1.0
        assert torch.equal(block(changed)[:, :4], block(hidden)[:, :4])
        assert not torch.allclose(block(changed)[:, 4:], block(hidden)[:, 4:])

    @pytest.mark.parametrize("d_conv", [1, 4, 20])
    def test_packed_equals_padded(self, d_conv: int) -> None:
        block = self.block(d_conv=d_conv)
        seq, length = sequences(6, 7, 30)
        layout = pack([(seq, length)], causal=False)
        table = torch.randn(30, 6).double()
        padded = block(table[seq])
        packed = block.packed(table[layout.items], layout)
        assert torch.allclose(packed, padded[layout.sequences, layout.positions], atol=1e-12)
        last = layout.to_row_order(block.packed_last(table[layout.items], layout))
        assert torch.allclose(last, padded[torch.arange(6), length - 1], atol=1e-12)

    def test_step_sizes_of_the_scan_at_the_start(self) -> None:
        """A bias of zero means steps near ln 2, whatever the input, as the released code begins."""
        model = build(initializer_range=0.02)
        block = model.state_space.layers[0].mamba
        delta, _, _ = block._selected(torch.randn(5, 32))
        assert torch.allclose(delta, torch.full_like(delta, 0.6931), atol=0.01)


class TestReductions:
    """What remains when parts are switched off by their weights."""

    def test_fusion_can_ignore_either_encoder(self) -> None:
        model, data = build().eval(), batch()
        for share, module in (([1e4, -1e4], model.state_space), ([-1e4, 1e4], model.attention)):
            model.fusion.data = torch.tensor(share)
            before = model.full_sort_predict(data)
            for parameter in module.parameters():
                parameter.data += 0.3
            assert torch.allclose(model.full_sort_predict(data), before, atol=1e-6)

    def test_blend_can_leave_standard_attention(self) -> None:
        torch.manual_seed(0)
        layer = PreferenceAttention(2, 8, 0.0, 1e-12, "feature").eval()
        layer.blend.data = torch.tensor([1e4, -1e4])
        hidden, mask = torch.randn(3, 5, 8), torch.ones(5, 5, dtype=torch.bool).tril()
        query, key, value = (
            part(hidden).unflatten(-1, (2, 4)).transpose(1, 2) for part in (layer.query, layer.key, layer.value)
        )
        context = functional.scaled_dot_product_attention(query, key, value, mask).transpose(1, 2).flatten(-2)
        expected = layer.LayerNorm(layer.dense(context * functional.silu(layer.gate(context))) + hidden)
        output, _ = layer(hidden, mask.expand(3, 1, 5, 5))
        assert torch.allclose(output, expected, atol=1e-5)

    @pytest.mark.parametrize("norm", ["time", "feature"])
    def test_similarity_by_hand(self, norm: str) -> None:
        """Logits with the query-key part switched off, item by item; negative similarities count as 0.01."""
        torch.manual_seed(1)
        layer = PreferenceAttention(2, 8, 0.0, 1e-12, norm)
        layer.blend.data = torch.tensor([-1e4, 1e4])
        nn.init.normal_(layer.scale_1)
        hidden = torch.randn(2, 4, 8)
        _, logits = layer(hidden, torch.ones(2, 1, 4, 4, dtype=torch.bool))
        gated = hidden * torch.sigmoid(layer.similarity_gate(hidden))
        gated = torch.stack([layer.scale_1 * gated, layer.scale_2 * gated]).mean(0)
        negative = 0
        for row in range(2):
            for i in range(4):
                for j in range(4):
                    one, other = gated[row, i], gated[row, j]
                    lengths = (gated[row].norm(dim=0) ** 2) if norm == "time" else one.norm() * other.norm()
                    value = float((one * other / lengths).sum().detach())
                    negative += value < 0
                    expected = (value if value >= 0 else 0.01) / 2.0  # sqrt(8 / 2)
                    assert float(logits[row, 0, i, j].detach()) == pytest.approx(expected, abs=1e-5)
                    assert float(logits[row, 1, i, j].detach()) == pytest.approx(expected, abs=1e-5)
        assert negative > 0

    def test_equal_experts_are_one_feed_forward(self) -> None:
        torch.manual_seed(0)
        mixture = DenseMixture(3, 6, 10, 0.0, 1e-12)
        nn.init.normal_(mixture.bias_2)
        mixture.dense_1.weight.data = mixture.dense_1.weight.data[:10].repeat(3, 1)
        mixture.dense_1.bias.data = mixture.dense_1.bias.data[:10].repeat(3)
        mixture.dense_2.weight.data = mixture.dense_2.weight.data[:, :10].repeat(1, 3)
        mixture.bias_2.data = mixture.bias_2.data[:1].repeat(3, 1)
        hidden = torch.randn(5, 6)
        inner = functional.gelu(hidden @ mixture.dense_1.weight[:10].T + mixture.dense_1.bias[:10])
        plain = inner @ mixture.dense_2.weight[:, :10].T + mixture.bias_2[0]
        assert torch.allclose(mixture(hidden), mixture.LayerNorm(plain + hidden), atol=1e-5)

    def test_mixture_is_the_sum_over_experts(self) -> None:
        torch.manual_seed(0)
        mixture = DenseMixture(3, 6, 10, 0.0, 1e-12)
        nn.init.normal_(mixture.bias_2)
        hidden, decides = torch.randn(5, 6), torch.randn(5, 6)
        gates = torch.softmax(decides @ mixture.gate.weight.T + mixture.gate.bias, -1)
        total: Any = 0.0
        for e in range(3):
            part = slice(10 * e, 10 * e + 10)
            inner = functional.gelu(hidden @ mixture.dense_1.weight[part].T + mixture.dense_1.bias[part])
            total = total + gates[:, e : e + 1] * (inner @ mixture.dense_2.weight[:, part].T + mixture.bias_2[e])
        assert torch.allclose(mixture(hidden, decides), mixture.LayerNorm(total + hidden), atol=1e-5)


def test_sequence_level_gate_sees_the_mean_of_valid_positions() -> None:
    model = build(moe_level="sequence").eval()
    seen: list[Tensor] = []
    model.experts.gate.register_forward_hook(lambda _, given, __: seen.append(given[0].squeeze(1)))
    seq, length = sequences(4, 6, 30)
    model(seq, length)
    model.fast_path = False
    model(seq, length)
    packed_order = torch.argsort(length, stable=True)
    assert torch.allclose(seen[0], seen[1][packed_order], atol=1e-5) and seen[0].shape == (4, 16)


@pytest.mark.parametrize("fast_path", [True, False])
def test_gradients_reach_every_layer_that_counts(fast_path: bool) -> None:
    """Stacked layers all learn; of parallel ones only the last, as released."""
    data = batch()
    for stack, n_without in (("stacked", 0), ("parallel_last", 11)):
        model = build(num_layers=2, ssm_stack=stack, fast_path=fast_path)
        sum(model.calculate_loss(data)).backward()
        without = [name for name, p in model.named_parameters() if p.grad is None]
        assert len(without) == n_without and all(name.startswith("state_space.layer.0.") for name in without)
        assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("variant", [{}, {"official": True}, {"moe_level": "sequence", "num_layers": 2}], ids=name_of)
def test_degenerate_batches_with_dropout(variant: dict[str, Any]) -> None:
    one, short, twins = batch(n_rows=1), batch(n_rows=3), batch(n_rows=4)
    short["item_length"][:] = 1
    short["item_id_list"][:, 1:] = 0
    twins["item_id"][:] = 5
    for data in (one, short, twins):
        model = build(dropout_prob=0.5, **variant)
        loss = sum(model.calculate_loss(data))
        loss.backward()
        assert torch.isfinite(loss)
        assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_the_plain_path_runs_the_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both forms of the state space are in use: the scan in the plain path, none of it in the fast one."""
    calls: list[int] = []
    monkeypatch.setattr(
        "recbole_prism.model.layers.state_space.selective_scan",
        lambda *parts: calls.append(1) or selective_scan(*parts),
    )
    data = batch()
    for fast, n_calls in ((True, 0), (False, 1)):
        build(fast_path=fast).full_sort_predict(data)
        assert len(calls) == n_calls


@pytest.mark.parametrize(
    "variant",
    [{}, {"official": True}, {"num_layers": 2, "moe_level": "sequence"}, {"sim_norm": "feature"}],
    ids=name_of,
)
def test_a_step_looks_at_no_value(variant: dict[str, Any]) -> None:
    """It runs on tensors without values: on a GPU nothing would wait."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        loss = sum(build(dropout_prob=0.5, n_items=N_ITEMS, **variant).calculate_loss(batch_without_values(True)))
        loss.backward()
    assert loss.shape == ()
