"""FamouSRec (reconstruction): sizes, both computation paths, spectra, router and losses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from recbole_prism.model.functional.info_nce import info_nce
from recbole_prism.model.layers.expert_router import ExpertRouter, imbalance
from recbole_prism.model.layers.light_experts import ConvolutionExpert, RecurrentExpert
from recbole_prism.model.layers.packed import pack
from recbole_prism.model.layers.spectral import (
    FrequencyFilterLayer,
    kept_bins,
    mean_amplitude,
    packed_mean_amplitude,
    packed_without_bins,
    without_bins,
)
from recbole_prism.model.sequential_recommender.famousrec import FamouSRec
from recbole_prism.model.sequential_recommender.sasrec import SASRec
from recbole_prism.registry import resolve
from tests.model.helpers import batch, sequences
from tests.model.helpers import build as build_any

BASE: dict[str, Any] = {
    "n_freq_layers": 2, "n_rnn_layers": 1, "third_expert": "gru", "router_input": "spectrum", "router_topk": 0,
    "router_temperature": 1.0, "cl_weight": 0.1, "cl_temperature": 1.0, "cl_similarity": "dot", "freq_mask_ratio": 0.4,
    "freq_mask_mode": "random", "balance_weight": 0.01, "initializer_range": 0.3,
}  # fmt: skip
# Every key that changes what a training step computes, away from its default.
VARIANTS: list[dict[str, Any]] = [
    {}, {"n_freq_layers": 1}, {"n_freq_layers": 3}, {"third_expert": "conv"}, {"n_rnn_layers": 2},
    {"router_input": "mean"}, {"router_input": "last"}, {"router_topk": 1}, {"router_topk": 2},
    {"router_temperature": 0.3}, {"cl_weight": 0.5}, {"cl_weight": 0.0}, {"cl_temperature": 0.2},
    {"cl_similarity": "cosine"}, {"freq_mask_ratio": 0.8}, {"freq_mask_mode": "low"}, {"freq_mask_mode": "high"},
    {"balance_weight": 0.5}, {"balance_weight": 0.0}, {"MAX_ITEM_LIST_LENGTH": 13},
]  # fmt: skip


def build(**overrides: Any) -> Any:
    return build_any(FamouSRec, **{**BASE, **overrides})


def name_of(variant: dict[str, Any]) -> str:
    return "-".join(f"{key}={value}" for key, value in variant.items()) or "default"


def step(**settings: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    """Loss parts and gradients; the same draws of frequencies whatever the path."""
    model, data = build(**settings), batch()
    data["item_id"][1] = data["item_id"][0]
    torch.manual_seed(5)
    parts = model.calculate_loss(data)
    sum(parts).backward()
    return parts, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("third", ["gru", "conv"])
def test_parameter_count_on_toys(third: str) -> None:
    sizes = {"n_items": 11_925, "hidden_size": 64, "inner_size": 256, "MAX_ITEM_LIST_LENGTH": 50}
    assert sum(p.numel() for p in build(third_expert=third, **sizes).parameters()) == 964_739


def test_it_is_called_a_reconstruction() -> None:
    assert resolve("famous-rec").display_name == resolve("FamouSRec").display_name == "FamouSRec (reconstruction)"


@pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
def test_packed_equals_padded(variant: dict[str, Any]) -> None:
    """Circular convolutions of valid steps against Fourier transforms of the window."""
    parts, grads = step(**variant)
    plain_parts, plain_grads = step(fast_path=False, **variant)
    assert parts.names == plain_parts.names and grads.keys() == plain_grads.keys()
    for ours, plain in zip(parts, plain_parts):
        assert float(ours.detach()) == pytest.approx(float(plain.detach()), rel=2e-5, abs=1e-6)
    for name, grad in grads.items():
        assert torch.allclose(grad, plain_grads[name], atol=2e-5, rtol=1e-3), name


@pytest.mark.parametrize("variant", VARIANTS[1:], ids=name_of)
def test_every_key_changes_the_step(variant: dict[str, Any]) -> None:
    parts, grads = step(**variant)
    default_parts, default_grads = step()
    assert parts.names != default_parts.names or any(
        not torch.equal(grads[name], grad)
        for name, grad in default_grads.items()
        if name in grads and grads[name].shape == grad.shape
    )


@pytest.mark.parametrize("fast_path", [True, False])
def test_first_expert_alone_is_sasrec(fast_path: bool) -> None:
    """Router weights 0, bias (+10,000, 0, 0): SASRec's scores, with its weights."""
    model = build(fast_path=fast_path).eval()
    model.router.dense.weight.data.zero_()
    model.router.dense.bias.data = torch.tensor([1e4, 0.0, 0.0])
    sasrec = build_any(SASRec, seed=7, initializer_range=0.3).eval()
    model.load_state_dict(sasrec.state_dict(), strict=False)
    data = batch()
    assert torch.allclose(model.full_sort_predict(data), sasrec.full_sort_predict(data), atol=1e-5)


def test_base_weights_equal_sasrec() -> None:
    """The other experts' parameters come last, so the attention expert starts as SASRec does under the same seed."""
    own, sasrec = build().state_dict(), build_any(SASRec, initializer_range=0.3).state_dict()
    assert all(torch.equal(own[name], weight) for name, weight in sasrec.items())


class TestFilter:
    """The frequency filter and the removal of bins."""

    def layer(self, window: int = 12, identity: bool = False) -> FrequencyFilterLayer:
        torch.manual_seed(0)
        layer = FrequencyFilterLayer(window, 4, 8, 0.0, "gelu", 1e-12, 0.5)
        if identity:
            layer.complex_weight.data = torch.tensor([1.0, 0.0]).expand_as(layer.complex_weight).clone()
        return layer

    @pytest.mark.parametrize("window", [1, 2, 49, 50])
    def test_a_filter_of_ones_returns_its_valid_input(self, window: int) -> None:
        hidden, valid = torch.randn(3, window, 4), torch.rand(3, window) > 0.4
        filtered = self.layer(window, identity=True).filtered(hidden, valid)
        assert not filtered.is_complex()
        assert torch.allclose(filtered, hidden * valid[..., None], atol=1e-6)

    @pytest.mark.parametrize("window", [7, 8])
    def test_filter_is_the_circular_convolution_of_its_kernel(self, window: int) -> None:
        """Against numpy's full complex transform of the window, and step by step."""
        layer = self.layer(window)
        hidden, valid = torch.randn(2, window, 4), torch.ones(2, window, dtype=torch.bool)
        filtered = layer.filtered(hidden, valid)
        kernel = layer.kernel()
        weight = layer.complex_weight.detach()[0].numpy().astype(np.float64)
        transform = np.fft.rfft(hidden.numpy().astype(np.float64), axis=1) * (weight[..., 0] + 1j * weight[..., 1])
        expected = torch.from_numpy(np.fft.irfft(transform, n=window, axis=1)).float()
        assert torch.allclose(filtered, expected, atol=1e-5)
        for i in range(window):
            total = sum(kernel[(i - j) % window] * hidden[:, j] for j in range(window))
            assert torch.allclose(filtered[:, i], total, atol=1e-5)

    @pytest.mark.parametrize("n_layers", [1, 2])
    def test_a_history_may_stand_anywhere_in_the_window(self, n_layers: int) -> None:
        """Right- and left-padded alike give the same vector at the last item."""
        layers = [self.layer(12) for _ in range(n_layers)]
        history = torch.randn(1, 5, 4)
        states = []
        for start in (0, 7):
            hidden, valid = torch.randn(1, 12, 4), torch.zeros(1, 12, dtype=torch.bool)
            hidden[:, start : start + 5], valid[:, start : start + 5] = history, True
            for layer in layers:
                hidden = layer(hidden, valid)
            states.append(hidden[:, start + 4])
        assert torch.allclose(*states, atol=1e-5)

    def test_packed_equals_padded(self) -> None:
        layer, table = self.layer(12), torch.randn(30, 4)
        seq, length = sequences(6, 9, 30)
        layout, valid = pack([(seq, length)]), torch.arange(9) < length[:, None]
        padded = layer(table[seq], valid)
        packed = layer.packed(table[layout.items], layout)
        assert torch.allclose(packed, padded[layout.sequences, layout.positions], atol=1e-5)
        last = layout.to_row_order(layer.packed_last(table[layout.items], layout))
        assert torch.allclose(last, padded[torch.arange(6), length - 1], atol=1e-5)

    @pytest.mark.parametrize("window", [9, 12, 13])
    def test_spectra_of_packed_tokens(self, window: int) -> None:
        table, (seq, length) = torch.randn(30, 4), sequences(6, 9, 30)
        layout, valid = pack([(seq, length)]), torch.arange(9) < length[:, None]
        kept = kept_bins(6, window, 0.5, "random", torch.device("cpu"))
        padded = without_bins(table[seq], valid, kept, window)
        packed = packed_without_bins(table[layout.items], layout, kept, window)
        assert torch.allclose(packed, padded[layout.sequences, layout.positions], atol=1e-5)
        amplitude = layout.to_row_order(packed_mean_amplitude(table[layout.items], layout, window))
        assert torch.allclose(amplitude, mean_amplitude(table[seq], valid, length, window), atol=1e-5)

    def test_amplitude_by_hand(self) -> None:
        """Steps (1, 1, 1, 1) of a window of 4: amplitudes 4, 0, 0; mean 4 / 3, over the root of the length 2."""
        amplitude = mean_amplitude(torch.ones(1, 4, 1), torch.ones(1, 4, dtype=torch.bool), torch.tensor([4]), 4)
        assert float(amplitude) == pytest.approx(2 / 3)

    def test_kept_bins(self) -> None:
        device = torch.device("cpu")
        assert kept_bins(2, 9, 0.5, "low", device).int().tolist() == [[1, 0, 0, 1, 1]] * 2
        assert kept_bins(2, 9, 0.5, "high", device).int().tolist() == [[1, 1, 1, 0, 0]] * 2
        torch.manual_seed(0)
        drawn = kept_bins(4000, 9, 0.3, "random", device)
        assert drawn[:, 0].all() and abs(float(drawn[:, 1:].float().mean()) - 0.7) < 5 * (0.21 / 16_000) ** 0.5
        assert kept_bins(3, 9, 0.0, "random", device).all() and kept_bins(3, 1, 0.5, "random", device).shape == (3, 1)
        with pytest.raises(ValueError, match="mode"):
            kept_bins(1, 9, 0.5, "middle", device)

    def test_no_bin_lost_leaves_the_view_as_it_is(self) -> None:
        hidden, valid = torch.randn(2, 6, 4), torch.arange(6) < torch.tensor([[6], [3]])
        every = kept_bins(2, 11, 0.0, "random", torch.device("cpu"))
        assert torch.allclose(without_bins(hidden, valid, every, 11), hidden * valid[..., None], atol=1e-6)


class TestLightExperts:
    """Last states from packed tokens against those of a padded batch."""

    @pytest.mark.parametrize("expert", [RecurrentExpert(4, 1, 0.0, 1e-12), RecurrentExpert(4, 2, 0.0, 1e-12),
                                        ConvolutionExpert(4, 0.0)], ids=["gru", "gru-2", "conv"])  # fmt: skip
    def test_last_state(self, expert: Any) -> None:
        table, (seq, length) = torch.randn(30, 4), sequences(7, 9, 30, lengths=[1, 9, 2, 3, 4, 9, 5])
        layout = pack([(seq, length)])
        last = layout.to_row_order(expert.packed_last(table[layout.items], layout))
        assert torch.allclose(last, expert(table[seq])[torch.arange(7), length - 1], atol=1e-5)
        alone = torch.cat([expert(table[seq[b : b + 1, : length[b]]])[:, -1] for b in range(7)])
        assert torch.allclose(last, alone, atol=1e-5)


class TestRouter:
    """Gates."""

    def test_by_hand(self) -> None:
        router = ExpertRouter(2, 3, 0.5, 0)
        router.dense.weight.data.zero_()
        router.dense.bias.data = torch.tensor([0.0, 0.5, 1.0])
        gates, dense = router(torch.randn(4, 2))
        expected = torch.tensor([1.0, np.e, np.e**2]) / (1 + np.e + np.e**2)
        assert torch.allclose(gates, expected.expand(4, 3)) and torch.equal(gates, dense)
        router.n_kept = 2
        gates, dense = router(torch.randn(4, 2))
        assert torch.allclose(gates, torch.tensor([0.0, 1.0, np.e]).expand(4, 3) / (1 + np.e))
        assert torch.allclose(dense, expected.expand(4, 3))

    def test_gates_sum_to_one_and_belong_to_their_row(self) -> None:
        model, (seq, length) = build().eval(), sequences(5, 12, 30)
        gates = model.gates(seq, length)
        assert gates.shape == (5, 3) and torch.allclose(gates.sum(-1), torch.ones(5)) and gates.std(0).max() > 1e-3
        other, lengths = sequences(5, 12, 30, seed=9)
        mixed = torch.cat([seq[:1], other[1:]]), torch.cat([length[:1], lengths[1:]])
        assert torch.allclose(model.gates(*mixed)[0], gates[0], atol=1e-6)

    def test_every_expert_learns(self) -> None:
        _, grads = step()
        for prefix in ("trm_encoder", "filter_layers", "light", "router"):
            found = [grad for name, grad in grads.items() if name.startswith(prefix)]
            assert found and all(torch.isfinite(grad).all() and grad.abs().max() > 0 for grad in found)


class TestLosses:
    """The three parts."""

    @pytest.mark.parametrize("fast_path", [True, False])
    def test_without_weights_one_pass_and_cross_entropy(self, fast_path: bool) -> None:
        model, data = build(cl_weight=0.0, balance_weight=0.0, fast_path=fast_path), batch()
        rows: list[int] = []
        model.router.register_forward_hook(lambda _, __, output: rows.append(output[0].shape[0]))
        parts = model.calculate_loss(data)
        expected = nn.functional.cross_entropy(model.full_sort_predict(data), data["item_id"])
        assert parts.names == ("rec",) and rows[:1] == [7] and len(rows) == 2  # the step, then the scores
        assert float(parts[0].detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
        rows.clear()
        build_with_view = build(fast_path=fast_path)
        build_with_view.router.register_forward_hook(lambda _, __, output: rows.append(output[0].shape[0]))
        build_with_view.calculate_loss(data)
        assert rows == [14]

    @pytest.mark.parametrize("fast_path", [True, False])
    def test_contrast_of_an_unchanged_view(self, fast_path: bool) -> None:
        """With no bin lost both views are the row itself, and rows of one target are no negatives."""
        model, data = build(freq_mask_ratio=0.0, fast_path=fast_path), batch()
        data["item_id"][1] = data["item_id"][0]
        part = dict(zip(("rec", "cl", "balance"), model.calculate_loss(data)))["cl"]
        own = model(data["item_id_list"], data["item_length"])
        expected = 0.1 * info_nce(own, own, 1.0, "dot", data["item_id"])
        assert float(part.detach()) == pytest.approx(float(expected.detach()), rel=1e-4, abs=1e-7)

    def test_imbalance(self) -> None:
        assert float(imbalance(torch.full((4, 3), 1 / 3))) == pytest.approx(0.0, abs=1e-6)
        assert float(imbalance(torch.eye(3))) == pytest.approx(0.0, abs=1e-6)  # one-sided rows, balanced batch
        assert float(imbalance(torch.tensor([[0.0, 1.0, 0.0]] * 5))) == pytest.approx(2.0)
        assert float(imbalance(torch.tensor([[0.5, 0.5, 0.0]]))) == pytest.approx(0.5)

    @pytest.mark.parametrize("fast_path", [True, False])
    def test_degenerate_batches_with_dropout(self, fast_path: bool) -> None:
        one, short, twins = batch(n_rows=1), batch(n_rows=3), batch(n_rows=4)
        short["item_length"][:] = 1
        short["item_id_list"][:, 1:] = 0
        twins["item_id"][:] = 5
        for third in ("gru", "conv"):
            for data in (one, short, twins):
                model = build(hidden_dropout_prob=0.5, attn_dropout_prob=0.5, third_expert=third, fast_path=fast_path)
                loss = sum(model.calculate_loss(data))
                loss.backward()
                assert torch.isfinite(loss)
                assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_padding_and_width_do_not_matter() -> None:
    for fast_path in (True, False):
        model, (seq, length) = build(fast_path=fast_path).eval(), sequences(5, 8, 30)
        expected = model(seq, length)
        model.item_embedding.weight.data[0] = 1e3
        assert torch.allclose(model(nn.functional.pad(seq, (0, 4)), length), expected, atol=1e-5)


def test_epoch_scalars_are_mean_gates() -> None:
    model, data = build(third_expert="conv"), batch()
    model.calculate_loss(data)
    model.calculate_loss(data)
    gates = model.gates(data["item_id_list"], data["item_length"]).mean(0)
    scalars = model.epoch_scalars()
    assert list(scalars) == ["gate_attn", "gate_freq", "gate_conv"]
    assert list(scalars.values()) == pytest.approx(gates.tolist(), abs=1e-5)
    assert model.epoch_scalars() == {}
