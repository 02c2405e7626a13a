"""PRISM as a whole: what section 6 of the model's specification asks for, on both computation paths."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch
from torch import nn

from recbole_prism.errors import ConfigError
from recbole_prism.model.functional.info_nce import info_nce
from recbole_prism.model.layers.lens import BOOST_FORMS
from recbole_prism.model.layers.packed import pack
from recbole_prism.model.layers.prism import PrismLayer
from recbole_prism.model.layers.router import (
    SemanticAnchorRouter,
    composition,
    perspective_mask,
    primary_anchor,
    view_mask,
)
from recbole_prism.model.sequential_recommender.prism import PRISM
from recbole_prism.model.sequential_recommender.sasrec import SASRec
from tests.model.helpers import BASE, batch, build, sequences

# Every key that changes what a training step computes, away from its default.
VARIANTS: list[dict[str, Any]] = [
    {}, {"n_lenses": 2}, {"n_layers": 3}, {"n_layers": 4, "spcl_anchor": "fresh"}, {"aux_weight": 0.5},
    {"cl_temperature": 1.0}, {"cl_similarity": "dot"}, {"boost_form": "exponential"},
    {"boost_form": "exponential_group"},
    {"boost_form": "none"}, {"boost_norm": "group"}, {"boost_norm": "max_length"}, {"boost_center": True},
    {"lens_value": "layer"}, {"lens_value": "hidden"}, {"lens_residual": False}, {"lens_scope": "group"},
    {"views": "affinity"}, {"views": "contrast"}, {"spcl": False}, {"same_target": False}, {"spm": False},
    {"spcl_negatives": "cross_view"}, {"cl_filter_same": False}, {"spcl_anchor": "fresh"}, {"ccl": False},
    {"ccl_reduction": "mean"}, {"ccl_targets": "unique"}, {"ccl_target_grad": False}, {"spcl": False, "ccl": False},
    {"aux_weight": 0.0}, {"lens_value": "layer", "n_layers": 3},
]  # fmt: skip
QUIET = {"router_noise": False, "perspective_dropout": 0.0}


def name_of(variant: dict[str, Any]) -> str:
    return "-".join(f"{key}={value}" for key, value in variant.items()) or "default"


def loss_and_gradients(variant: dict[str, Any], **more: Any) -> tuple[tuple, dict]:
    model = build(PRISM, **{**QUIET, "initializer_range": 0.3, **variant, **more})
    data = batch(n_rows=7)
    data["item_id"][1] = data["item_id"][0]  # two rows share a target
    parts = model.calculate_loss(data)
    sum(parts).backward()
    return parts, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
def test_packed_equals_padded(variant: dict[str, Any]) -> None:
    parts, grads = loss_and_gradients(variant)
    plain_parts, plain_grads = loss_and_gradients(variant, fast_path=False)
    assert parts.names == plain_parts.names
    for ours, plain in zip(parts, plain_parts):
        assert float(ours.detach()) == pytest.approx(float(plain.detach()), rel=2e-5, abs=1e-6)
    assert grads.keys() == plain_grads.keys()
    for name, grad in grads.items():
        assert torch.allclose(grad, plain_grads[name], atol=2e-5, rtol=1e-3), name


@pytest.mark.parametrize("variant", VARIANTS[1:], ids=name_of)
def test_every_key_changes_the_step(variant: dict[str, Any]) -> None:
    """Loss or gradients differ from the default's (with noise off; SPM and router noise have tests of their own).

    `spm: False` equals a drop rate of 0 by definition, so it is compared at a rate of 1.
    """
    base = {"perspective_dropout": 1.0} if "spm" in variant else {}
    parts, grads = loss_and_gradients(variant, **base)
    default_parts, default_grads = loss_and_gradients({}, **base)
    same_losses = parts.names == default_parts.names and all(torch.equal(a, b) for a, b in zip(parts, default_parts))
    same_grads = grads.keys() == default_grads.keys() and all(
        grads[k].shape == default_grads[k].shape and torch.equal(grads[k], default_grads[k]) for k in grads
    )
    assert not (same_losses and same_grads)


def test_noise_keys_change_the_step() -> None:
    data = batch()
    for key, off in (("router_noise", {"router_noise": False}), ("spm_level", {"spm_level": "sequence"})):
        losses = []
        for overrides in ({}, off):
            model = build(PRISM, **overrides)
            torch.manual_seed(5)
            losses.append(float(sum(model.calculate_loss(data)).detach()))
        assert losses[0] != losses[1], key


def test_parameter_counts() -> None:
    def count(n_lenses: int, n_layers: int = 2) -> int:
        sizes = {"n_items": 11_925, "hidden_size": 64, "inner_size": 256, "MAX_ITEM_LIST_LENGTH": 50}
        return sum(p.numel() for p in build(PRISM, n_lenses=n_lenses, n_layers=n_layers, **sizes).parameters())

    d, m = 64, 256
    for k in (2, 4, 6, 8):
        module = 2 * d * k + 1 + 2 * (d * d + d) + 2 * d + (d * m + m) + (m * d + d) + 2 * d
        assert count(k) == 866_496 + module
    assert count(4) == 908_673 and count(8) - count(2) == 768
    assert count(4, 3) - count(4, 2) == 49_984 + (908_673 - 866_496)  # one more layer and one more module


@pytest.mark.parametrize("fast_path", [True, False])
def test_later_items_and_padding_do_not_matter(fast_path: bool) -> None:
    model = build(PRISM, fast_path=fast_path, n_layers=3).eval()
    seq, length = sequences(5, 10, 30)
    hidden, _ = model.encode_padded(seq, length)
    changed = seq.clone()
    changed[:, 6:] = torch.where(seq[:, 6:] != 0, 31 - seq[:, 6:], seq[:, 6:]).clamp(0, 29)
    assert torch.allclose(hidden[:, :6], model.encode_padded(changed, length)[0][:, :6], atol=1e-6)
    expected = model(seq, length)
    model.item_embedding.weight.data[0] = 1e3
    wider = nn.functional.pad(seq, (0, 2))
    assert torch.allclose(model(wider, length), expected, atol=1e-6)
    alone = torch.cat([model(seq[b : b + 1, : length[b]], length[b : b + 1]) for b in range(5)])
    assert torch.allclose(alone, expected, atol=1e-6)
    assert torch.equal(model(seq, length), model(seq, length))


@pytest.mark.parametrize("form", BOOST_FORMS)
def test_boost_needs_beta_and_none_gives_equal_lenses(form: str) -> None:
    model = build(PRISM, boost_form=form, **QUIET).eval()
    module = model.modules_between[0]
    module.beta.data.fill_(0.7)
    seq, length = sequences(4, 8, 30, lengths=[8, 8, 8, 8])
    visible = model.visible(seq, length)
    hidden = model.embed(seq, model.positions(seq))
    seen = model._padded_perspectives(model.trm_encoder.layer[0], module, hidden, visible)
    spread = (seen.outputs - seen.outputs[:, :, :1]).abs().max()
    assert (spread < 1e-6) == (form == "none")
    parts = model.train().calculate_loss(batch())
    sum(parts).backward()
    assert (module.beta.grad is None or float(module.beta.grad) == 0) == (form == "none")


def test_composition_and_views() -> None:
    torch.manual_seed(0)
    routing = torch.randn(50, 4)
    anchors = primary_anchor(routing)
    for views in ("both", "affinity", "contrast"):
        allowed = view_mask(anchors, 4, views)
        ratio = composition(routing, allowed)
        assert torch.allclose(ratio.sum(-1), torch.ones(50))
        used = ratio > 0
        own = torch.nn.functional.one_hot(anchors, 4).bool()
        assert torch.equal(used, {"both": torch.ones_like(own), "affinity": own, "contrast": ~own}[views])
    with pytest.raises(ValueError, match="needs at least 2"):
        view_mask(anchors, 1, "contrast")


def test_stochastic_perspective_masking_rates() -> None:
    torch.manual_seed(1)
    n, k, rho = 20_000, 4, 0.25
    routing = torch.randn(n, k)
    anchors = primary_anchor(routing)
    allowed = view_mask(anchors, k, "both")
    kept = perspective_mask(routing, allowed, torch.rand(n, k), rho)
    own = torch.nn.functional.one_hot(anchors, k).bool()
    assert kept[own].all()
    others = kept[~own].float()
    assert abs(float(others.mean()) - (1 - rho)) < 5 * (rho * (1 - rho) / others.numel()) ** 0.5
    contrast = view_mask(anchors, k, "contrast")
    kept = perspective_mask(routing, contrast, torch.zeros(n, k), rho)  # every draw says drop
    assert torch.equal(kept.sum(-1), torch.ones(n, dtype=torch.long)) and not (kept & own).any()


@pytest.mark.parametrize("level", ["position", "sequence"])
def test_sequence_level_masking_draws_once_per_sequence(level: str) -> None:
    """All lenses tie, so the anchor is group 0 everywhere and g~ shows the kept lenses alone: with one draw per
    sequence it is constant along each, with one per position it is not."""
    model = build(PRISM, spm_level=level, perspective_dropout=0.5, router_noise=False)
    model.modules_between[0].router.gate.weight.data.zero_()
    packed = pack([sequences(6, 12, 30, lengths=[12] * 6)])
    stage = model._stages()[0]
    seen = model._perspectives(*stage, model.embed(packed.items, packed.positions), packed)
    ratio = model._masked_ratio(seen, packed.sequences)
    constant = [bool((ratio[packed.sequences == s] == ratio[packed.sequences == s][0]).all()) for s in range(6)]
    assert all(constant) == (level == "sequence")


def test_router_noise_only_in_training() -> None:
    router = SemanticAnchorRouter(8, 3)
    hidden = torch.randn(5, 8)
    assert not torch.equal(router(hidden), router(hidden))
    router.eval()
    assert torch.equal(router(hidden), hidden @ router.gate.weight.T)


@pytest.mark.parametrize("fast_path", [True, False])
def test_loss_parts_follow_their_definitions(fast_path: bool) -> None:
    """Without any randomness the shared anchor's masked path equals the prediction path, so SPCL is InfoNCE between the
    encodings of the rows and of their partners, and the parts scale with aux_weight."""
    model = build(PRISM, fast_path=fast_path, initializer_range=0.3, **QUIET)
    data = batch()
    parts = dict(zip(("rec", "spcl", "ccl"), model.calculate_loss(data)))
    anchor = model(data["item_id_list"], data["item_length"])
    partner = model(data["partner_item_id_list"], data["partner_item_length"])
    expected = 0.1 * info_nce(anchor, partner, 0.1, "cosine", data["item_id"])
    assert float(parts["spcl"].detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    rec = nn.functional.cross_entropy(model.full_sort_predict(data), data["item_id"])
    assert float(parts["rec"].detach()) == pytest.approx(float(rec.detach()), rel=1e-5)
    doubled = build(PRISM, fast_path=fast_path, initializer_range=0.3, aux_weight=0.2, **QUIET).calculate_loss(data)
    assert float(doubled[1].detach()) == pytest.approx(2 * float(parts["spcl"].detach()), rel=1e-5)
    assert float(doubled[2].detach()) == pytest.approx(2 * float(parts["ccl"].detach()), rel=1e-5)


@pytest.mark.parametrize("fast_path", [True, False])
@pytest.mark.parametrize("anchor", ["shared", "fresh"])
@pytest.mark.parametrize("n_layers", [2, 3])
def test_masked_paths_do_not_touch_the_prediction(fast_path: bool, anchor: str, n_layers: int) -> None:
    """At a drop rate of 1 the masked paths keep the anchor's lens alone, so they are the encodings of the `affinity`
    model with the same weights, while the prediction path is the full model's."""
    settings = {"router_noise": False, "initializer_range": 0.3, "n_layers": n_layers, "fast_path": fast_path}
    model = build(PRISM, perspective_dropout=1.0, spcl_anchor=anchor, **settings)
    affinity = build(PRISM, views="affinity", **settings)
    affinity.load_state_dict(model.state_dict())
    data = batch()
    data["item_id"][1] = data["item_id"][0]
    parts = [float(part.detach()) for part in model.calculate_loss(data)]
    rec = nn.functional.cross_entropy(model.full_sort_predict(data), data["item_id"])
    masked = [affinity(data[f"{prefix}item_id_list"], data[f"{prefix}item_length"]) for prefix in ("", "partner_")]
    spcl = 0.1 * info_nce(*masked, 0.1, "cosine", data["item_id"])
    assert parts[0] == pytest.approx(float(rec.detach()), rel=1e-5)
    assert parts[1] == pytest.approx(float(spcl.detach()), rel=1e-4)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("targets", ["all", "unique"])
@pytest.mark.parametrize("n_layers", [2, 3])
def test_consistency_part_equals_its_definition(reduction: str, targets: str, n_layers: int) -> None:
    """Loop over modules, rows, positions, pairs of lenses: 1 / (L - 1), mean over rows, sum or mean over positions."""
    settings = {"initializer_range": 0.3, "n_layers": n_layers, "ccl_reduction": reduction, "ccl_targets": targets}
    model = build(PRISM, **QUIET, **settings)
    data = batch()
    data["item_id"][1] = data["item_id"][0]
    seq, length = data["item_id_list"], data["item_length"]
    items = model.item_embedding(data["item_id"].unique() if targets == "unique" else data["item_id"])
    hidden, total = model.embed(seq, model.positions(seq)), 0.0
    for layer, module in model._stages():
        seen = model._padded_perspectives(layer, module, hidden, model.visible(seq, length))
        hidden = module.synthesise(seen.outputs, seen.ratio)
        for b in range(len(length)):
            weight = 1 / len(length) / (int(length[b]) if reduction == "mean" else 1)
            for i in range(int(length[b])):
                logs, ratio = torch.log_softmax(seen.outputs[b, i] @ items.T, -1), seen.ratio[b, i]
                for k, other in itertools.combinations(range(len(ratio)), 2):
                    divergence = ((logs[k].exp() - logs[other].exp()) * (logs[k] - logs[other])).sum() / 2
                    pair = ratio[k] * ratio[other] / (ratio[k] + ratio[other]) * divergence
                    total += weight * float(pair.detach())
    part = dict(zip(("rec", "spcl", "ccl"), model.calculate_loss(data)))["ccl"]
    assert float(part.detach()) == pytest.approx(0.1 * total / (n_layers - 1), rel=1e-4)


def test_same_target_false_contrasts_a_row_with_itself() -> None:
    model = build(PRISM, same_target=False, **QUIET)
    data = batch()
    for field in ("partner_item_id_list", "partner_item_length"):
        del data.interaction[field]
    anchor = model(data["item_id_list"], data["item_length"])
    expected = 0.1 * info_nce(anchor, anchor, 0.1, "cosine", data["item_id"])
    assert float(model.calculate_loss(data)[1].detach()) == pytest.approx(float(expected.detach()), rel=1e-5)


def test_no_extra_pass_at_weight_zero() -> None:
    model = build(PRISM, aux_weight=0.0)
    calls = []
    model.trm_encoder.layer[0].register_forward_hook(lambda *_: calls.append(1))
    model.embed = lambda items, positions, embed=model.embed: calls.append(len(items)) or embed(items, positions)
    data = batch()
    assert model.calculate_loss(data).names == ("rec",)
    assert calls == [int(data["item_length"].sum())]
    assert PRISM.needs({**BASE, "aux_weight": 0.0}) == frozenset()
    assert PRISM.needs(BASE) == {"partner"}


def test_missing_partner_fields_are_named() -> None:
    data = batch()
    del data.interaction["partner_item_id_list"]
    with pytest.raises(ConfigError, match="partner_item_id_list"):
        build(PRISM).calculate_loss(data)


@pytest.mark.parametrize("fast_path", [True, False])
def test_degenerate_batches(fast_path: bool) -> None:
    """One row; length 1; all rows of one target: finite losses and gradients, also at full dropout rates."""
    model = build(PRISM, fast_path=fast_path, hidden_dropout_prob=0.5, attn_dropout_prob=0.5)
    one = batch(n_rows=1)
    short = batch(n_rows=3)
    short["item_length"][:] = 1
    short["item_id_list"][:, 1:] = 0
    twins = batch(n_rows=4)
    twins["item_id"][:] = 5
    for data in (one, short, twins):
        model.zero_grad()
        parts = model.calculate_loss(data)
        sum(parts).backward()
        assert all(torch.isfinite(part) for part in parts)
        assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_a_single_layer_is_refused() -> None:
    with pytest.raises(ConfigError, match="n_layers >= 2"):
        build(PRISM, n_layers=1)


def test_base_weights_equal_sasrec() -> None:
    """PRISM's own parameters come last, so its backbone starts as SASRec does under the same seed."""
    prism, sasrec = build(PRISM).state_dict(), build(SASRec).state_dict()
    assert all(torch.equal(prism[name], weight) for name, weight in sasrec.items())


def test_epoch_scalars_count_the_prediction_path_once() -> None:
    model = build(PRISM)
    data = batch()
    model.calculate_loss(data)
    scalars = model.epoch_scalars()
    assert sum(scalars[f"router_usage_1_{k}"] for k in range(1, 5)) == pytest.approx(1.0)
    assert 0 <= scalars["router_entropy_1"] <= 1.3863 and scalars["beta_1"] == 0.0
    assert "router_usage_1_1" not in model.epoch_scalars()  # counters start anew
    plain = build(PRISM, aux_weight=0.0)
    plain.calculate_loss(data)
    assert "router_usage_1_1" in plain.epoch_scalars()
    copy.deepcopy(model)


class TestPlugIn:
    """`PrismLayer.forward` in a foreign encoder: torch's own attention supplies hidden states and logits."""

    def encoder(self, causal: bool) -> tuple[PrismLayer, Any]:
        torch.manual_seed(0)
        projection = nn.Linear(16, 32)
        module = PrismLayer(4, 2, 16, 32, 0.0, 0.0).eval()

        def run(inputs: torch.Tensor, lengths: torch.Tensor, keys: Any = None) -> torch.Tensor:
            query, key = (x.unflatten(-1, (2, 8)).transpose(1, 2) for x in projection(inputs).chunk(2, -1))
            return module(inputs, query @ key.transpose(-1, -2) / 8**0.5, lengths, keys, causal)

        return module, run

    def test_causal_and_padding_free(self) -> None:
        _, run = self.encoder(causal=True)
        inputs, lengths = torch.randn(3, 6, 16), torch.tensor([6, 4, 1])
        out = run(inputs, lengths)
        changed = inputs.clone()
        changed[:, 4:] += 1.0
        assert torch.allclose(run(changed, lengths)[:, :4], out[:, :4], atol=1e-6)
        assert torch.allclose(run(inputs[1:2, :4], lengths[1:2])[0], out[1, :4], atol=1e-6)

    def test_bidirectional_sees_later_keys_but_not_masked_ones(self) -> None:
        _, run = self.encoder(causal=False)
        inputs, lengths = torch.randn(1, 5, 16), torch.tensor([5])
        changed = inputs.clone()
        changed[:, 4] += 1.0
        assert not torch.allclose(run(changed, lengths)[:, 0], run(inputs, lengths)[:, 0], atol=1e-4)
        keys = torch.tensor([[True, True, True, True, False]])
        assert torch.allclose(run(changed, lengths, keys)[:, 0], run(inputs, lengths, keys)[:, 0], atol=1e-6)

    def test_layer_values_are_required_and_used(self) -> None:
        module = PrismLayer(4, 2, 16, 32, 0.0, 0.0, lens_value="layer")
        arguments = (torch.randn(1, 3, 16), torch.randn(1, 2, 3, 3), torch.tensor([3]))
        with pytest.raises(ValueError, match="layer_values"):
            module(*arguments)
        out = [module(*arguments, layer_values=torch.full((1, 2, 3, 8), value)) for value in (0.0, 1.0)]
        assert not torch.allclose(*out)

    @pytest.mark.parametrize("wrong", [{"lens_value": "mine"}, {"views": "all"}, {"n_heads": 3}])
    def test_wrong_choices_are_refused(self, wrong: dict) -> None:
        arguments = {"n_lenses": 4, "n_heads": 2, "hidden_size": 16, "inner_size": 32, **wrong}
        with pytest.raises(ValueError):
            PrismLayer(**arguments, hidden_dropout_prob=0.0, attn_dropout_prob=0.0)
