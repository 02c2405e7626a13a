"""AC-SASRec: both calibrators against the equations written out pair by pair, and whose gradient goes where."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from recbole_prism.errors import ConfigError
from recbole_prism.model.layers.calibration import AdversarialCalibrator, SpatialCalibrator, mask_norm, pair_map
from recbole_prism.model.sequential_recommender.acsasrec import ACSASRec
from recbole_prism.model.sequential_recommender.sasrec import SASRec
from tests.model.helpers import batch, build, sequences

KEYS: dict[str, Any] = {
    "use_order": True, "use_distance": True, "use_position_embedding": False, "use_adversarial": True,
    "combine_option": "gate", "mask_loss_weight": 0.3, "initializer_range": 0.3, "compile": False,
}  # fmt: skip
OFF = {"use_order": False, "use_distance": False, "use_adversarial": False, "use_position_embedding": True}
VARIANTS: list[dict[str, Any]] = [
    {}, {"use_order": False}, {"use_distance": False}, {"use_position_embedding": True}, {"use_adversarial": False},
    {"combine_option": "fixed"}, {"combine_option": "annealing"}, {"mask_loss_weight": 3.0}, {"n_layers": 1},
    {"n_layers": 3, "n_heads": 4}, {"use_order": False, "use_distance": False},
]  # fmt: skip


def calibrated(**overrides: Any) -> Any:
    return build(ACSASRec, **{**KEYS, **overrides})


def name_of(variant: dict[str, Any]) -> str:
    return ",".join(f"{key}={value}" for key, value in variant.items()) or "default"


class Maps(NamedTuple):
    """[T, T] maps of one row and head."""

    attention: Tensor
    mask: Tensor
    used: Tensor
    perturbed: Tensor


def softmax_over(logits: list[Tensor], width: int) -> Tensor:
    """Softmax of the visible keys' logits, zeros behind them."""
    return torch.cat([torch.softmax(torch.stack(logits), dim=0), logits[0].new_zeros(width - len(logits))])


def written_out(model: Any, number: int, hidden: Tensor, n: int, h: int, noise: Tensor) -> Maps:
    """Attention maps of one layer, row and head, for queries below the row's length n; by the printed formulas.

    `hidden` [T, d] is the layer's input with T the maximum length, `noise` [T, T] epsilon.
    """
    attention, calibrator = model.trm_encoder.layer[number].multi_head_attention, model.calibrators[number]
    size, width = attention.head_size, hidden.shape[0]
    part = slice(h * size, (h + 1) * size)
    query, key = (side.weight @ hidden.T + side.bias[:, None] for side in (attention.query, attention.key))
    attack_query = calibrator.adversarial.attack_query.weight @ query
    attack_query = attack_query + calibrator.adversarial.attack_query.bias[:, None]
    attack_key = calibrator.adversarial.attack_key.weight @ key + calibrator.adversarial.attack_key.bias[:, None]
    rows: list[list[Tensor]] = []
    for i in range(n):
        logits, attacks = [], []
        for j in range(i + 1):
            pair = torch.cat([query[part, i], key[part, j]])
            logit = query[part, i] @ key[part, j]
            order = calibrator.spatial.order
            logit = logit + torch.log(1 / (1 + torch.exp(order.weight[0] @ pair + order.bias[0])))
            distance = calibrator.spatial.distance
            surprise = math.log(1 + abs(i - j)) - (distance.weight[0] @ pair + distance.bias[0])
            logit = logit - calibrator.spatial.distance_scale[0] ** 2 * surprise**2 / 2
            logits.append(logit / math.sqrt(size))
            attacks.append(attack_query[part, i] @ attack_key[part, j] / math.sqrt(size))
        spread, mask = softmax_over(logits, width), softmax_over(attacks, width)
        raised = spread * torch.exp(1 - mask)
        option = model.calibrators[number].adversarial.combine_option
        if option == "gate":
            gate = calibrator.adversarial.gate
            share = torch.sigmoid(gate.weight @ query[:, i] + gate.bias)
            mixed = share * spread + (1 - share) * softmax_over(list(raised[: i + 1]), width)
        elif option == "fixed":
            mixed = spread + 0.5 * torch.softmax(raised, dim=0)  # over all T keys
        else:
            share = math.exp(-int(calibrator.adversarial.steps) / 100_000)
            mixed = share * spread + (1 - share) * softmax_over(list(raised[: i + 1]), width)
        perturbed = spread * mask + noise[i] * (1 - mask)
        rows.append([spread, mask, *(softmax_over(list(row[: i + 1]), width) for row in (mixed, perturbed))])
    return Maps(*(torch.stack([row[k] for row in rows]) for k in range(4)))


def layer_output(model: Any, number: int, weights: Tensor, hidden: Tensor, i: int) -> Tensor:
    """[d] output of one layer at query i from its heads' attention rows [H, T]."""
    layer = model.trm_encoder.layer[number]
    attention, size = layer.multi_head_attention, layer.multi_head_attention.head_size
    value = attention.value(hidden)
    heads = [weights[h] @ value[:, h * size : (h + 1) * size] for h in range(attention.n_heads)]
    return layer.feed_forward(attention.LayerNorm(attention.dense(torch.cat(heads)) + hidden[i]))


@pytest.mark.parametrize("fast_path", [True, False])
@pytest.mark.parametrize("option", ["gate", "fixed", "annealing"])
def test_training_pass_follows_the_equations(option: str, fast_path: bool) -> None:
    """Both branches and the penalty of two layers; the batch is narrower than T, which is 12."""
    model = calibrated(combine_option=option, fast_path=fast_path).double()
    for calibrator in model.calibrators:
        if option == "annealing":
            calibrator.adversarial.steps.fill_(60_000)
    lengths, n_heads, full = [1, 3, 7], 2, 12
    seq, length = sequences(3, 7, 30, lengths=lengths)
    noise = torch.randn(3, n_heads, full, dtype=torch.float64)
    run = model._packed_pass if fast_path else model._padded_pass
    with torch.no_grad():
        output, perturbed, gains = run((seq, length), noise)
        squares = torch.zeros(2, dtype=torch.float64)
        for b, n in enumerate(lengths):
            hidden = model.embed(nn.functional.pad(seq[b], (0, full - 7)), torch.arange(full))
            for number in range(2):
                on_last = torch.zeros(n_heads, full, full, dtype=torch.float64)
                on_last[:, n - 1] = noise[b]
                maps = [written_out(model, number, hidden, n, h, on_last[h]) for h in range(n_heads)]
                squares[number] += sum((1 - seen.mask).square().sum() for seen in maps)
                squares[number] += n_heads * (full - n) * full  # padded queries: M = 0
                entering = hidden
                used = torch.stack([seen.used for seen in maps])
                states = [layer_output(model, number, used[:, i], entering, i) for i in range(n)]
                hidden = torch.cat([torch.stack(states), entering[n:]])
            assert torch.allclose(output[b], hidden[n - 1], atol=1e-9)
            attacked = torch.stack([seen.perturbed[n - 1] for seen in maps])
            assert torch.allclose(perturbed[b], layer_output(model, 1, attacked, entering, n - 1), atol=1e-9)
        norms = torch.stack([mask_norm(gain, 3, n_heads, full) for gain in gains])
        assert torch.allclose(norms, squares.sqrt(), atol=1e-9)


def test_maps_are_distributions_over_visible_keys_and_nearly_flat() -> None:
    """Every map is >= 0, sums to 1 and is 0 at hidden keys; softmax of numbers in [0, 1] varies by e at most."""
    model = calibrated(initializer_range=2.0).eval()
    seq, length = sequences(4, 9, 30)
    visible = model.visible(seq, length)
    hidden = model.embed(seq, model.positions(seq))
    seen = model.calibrators[0].padded(model.trm_encoder.layer[0], hidden, visible)
    gate = model.calibrators[0].adversarial.gate
    with torch.no_grad():  # G = 0 leaves the softmax of A_cal
        gate.weight.zero_()
        gate.bias.fill_(-1e4)
    only = model.calibrators[0].padded(model.trm_encoder.layer[0], hidden, visible)
    for part in (seen.block.attention, seen.mask, seen.block.weights, only.block.weights):
        assert part.shape == (4, 2, 9, 9) and (part >= 0).all()
        assert torch.allclose(part.sum(-1), torch.ones(4, 2, 9), atol=1e-5)
        assert (part[~visible.expand_as(part)] == 0).all()
    used = seen.block.weights.detach()
    most = used.masked_fill(~visible, 0).amax(-1) / used.masked_fill(~visible, 1).amin(-1)
    assert 2 < most.max() <= math.e + 1e-4  # and it does vary: the logits are large here
    assert seen.block.attention.amax(-1).median() > 0.99  # errors beyond any fixed mask value


def test_dropout_is_on_both_softmaxes_and_not_on_the_attention_in_use() -> None:
    """At a rate of one half an entry of A or M is 0 or twice its value in evaluation; the two draw on their own."""
    model = calibrated(attn_dropout_prob=0.5)
    seq, length = sequences(6, 9, 30)
    visible, hidden = model.visible(seq, length), model.embed(seq, model.positions(seq))

    def maps() -> tuple[Tensor, Tensor, Tensor]:
        seen = model.calibrators[0].padded(model.trm_encoder.layer[0], hidden, visible)
        return seen.block.attention.detach(), seen.mask.detach(), seen.block.weights.detach()

    shown, kept = visible.expand(-1, 2, -1, -1), []
    *thinned, used = maps()
    assert torch.allclose(used.sum(-1), torch.ones(6, 2, 9), atol=1e-5) and (used[shown] > 0).all()
    model.eval()
    for dropped, whole in zip(thinned, maps()):
        kept.append((dropped > 0)[shown])
        assert 0.3 < kept[-1].float().mean() < 0.7
        assert torch.allclose(dropped[dropped > 0], 2 * whole[dropped > 0], rtol=1e-4)
    assert not torch.equal(*kept)


@pytest.mark.parametrize("fast_path", [True, False])
def test_noise_of_a_step_is_standard_normal_and_drawn_anew(fast_path: bool) -> None:
    """One number per row, head and key of the maximum length."""
    model, data, drawn = calibrated(fast_path=fast_path), batch(n_rows=64), []
    name = "_packed_pass" if fast_path else "_padded_pass"
    through = getattr(model, name)
    setattr(model, name, lambda branch, noise: drawn.append(noise) or through(branch, noise))
    for _ in range(2):
        model.calculate_loss(data)
    first, second = drawn
    assert first.shape == (64, 2, 12) and not torch.equal(first, second)
    error = first.numel() ** -0.5
    for noise in drawn:
        assert abs(float(noise.mean())) < 5 * error and abs(float(noise.square().mean()) - 1) < 5 * 2**0.5 * error


def losses(model: Any, data: Any) -> tuple[Tensor, Tensor]:
    """L_cal and L_att of the pass that `calculate_loss` makes under the same seed."""
    seen = model._training_pass((data["item_id_list"], data["item_length"]))
    table = model.item_embedding.weight
    own, attacked = (nn.functional.cross_entropy(h @ table.T, data["item_id"]) for h in (seen.output, seen.perturbed))
    return own, model.mask_loss_weight * seen.penalty - attacked


@pytest.mark.parametrize("fast_path", [True, False])
@pytest.mark.parametrize("weight", [0.3, 0.0])
def test_every_parameter_gets_the_gradient_of_its_own_loss(weight: float, fast_path: bool) -> None:
    model, data = calibrated(mask_loss_weight=weight, fast_path=fast_path), batch()
    attack = {id(parameter) for parameter in model.attack_parameters()}
    named = dict(model.named_parameters())
    assert {name for name, p in named.items() if id(p) in attack} == {
        f"calibrators.{n}.adversarial.attack_{side}.{kind}"
        for n in (0, 1) for side in ("query", "key") for kind in ("weight", "bias")
    }  # fmt: skip
    torch.manual_seed(3)
    own_loss, attack_loss = losses(model, data)
    if weight == 0:
        torch.manual_seed(3)
        seen = model._training_pass((data["item_id_list"], data["item_length"]))
        attack_loss = -nn.functional.cross_entropy(seen.perturbed @ model.item_embedding.weight.T, data["item_id"])
    own = torch.autograd.grad(own_loss, list(named.values()), retain_graph=True)
    others = torch.autograd.grad(attack_loss, model.attack_parameters())
    torch.manual_seed(3)
    (loss,) = model.calculate_loss(data)
    assert float(loss.detach()) == pytest.approx(float(own_loss.detach()), abs=1e-6)
    loss.backward()
    from_attack = {id(parameter): grad for parameter, grad in zip(model.attack_parameters(), others)}
    for (name, parameter), from_own in zip(named.items(), own):
        assert torch.allclose(parameter.grad, from_attack.get(id(parameter), from_own), atol=2e-6), name
        if id(parameter) in attack and name.endswith("weight"):
            assert not torch.allclose(from_own, from_attack[id(parameter)], atol=1e-4), name
    reached = [
        "calibrators.0.adversarial.attack_query.weight", "calibrators.0.spatial.distance_scale",
        "calibrators.0.spatial.order.weight", "calibrators.1.spatial.distance.weight",
        "calibrators.0.adversarial.gate.weight", "calibrators.1.adversarial.gate.weight",
    ]  # fmt: skip
    assert all(named[name].grad.abs().max() > 1e-7 for name in reached)


def test_the_attack_learns_to_hurt() -> None:
    """A step along the attack parameters alone lowers their loss; the other loss's gradient would not do it."""
    model, data = calibrated(), batch(n_rows=16)
    values = []
    for _ in range(6):
        torch.manual_seed(3)
        values.append(float(losses(model, data)[1].detach()))
        torch.manual_seed(3)
        model.zero_grad()
        sum(model.calculate_loss(data)).backward()
        with torch.no_grad():
            for parameter in model.attack_parameters():
                parameter -= 0.02 * parameter.grad
    assert values == sorted(values, reverse=True) and values[-1] < values[0] - 1e-3


@pytest.mark.parametrize("fast_path", [True, False])
def test_without_calibrators_it_is_sasrec_number_for_number(fast_path: bool) -> None:
    """Weights of one seed, dropout on: loss, gradients and scores of two training steps."""
    settings = {"hidden_dropout_prob": 0.3, "attn_dropout_prob": 0.3, "fast_path": fast_path}
    models = [calibrated(**settings, **OFF), build(SASRec, **settings, initializer_range=0.3)]
    data = batch()
    for seed in (1, 2):
        for model in models:
            torch.manual_seed(seed)
            model.zero_grad()
            sum(model.calculate_loss(data)).backward()
        ours, theirs = (dict(model.named_parameters()) for model in models)
        assert ours.keys() == theirs.keys()
        for name, parameter in ours.items():
            assert torch.equal(parameter.grad, theirs[name].grad), name
            with torch.no_grad():
                parameter -= 0.1 * parameter.grad
                theirs[name] -= 0.1 * theirs[name].grad
    ours, theirs = (model.eval().full_sort_predict(data) for model in models)
    assert torch.equal(ours, theirs)


def results(variant: dict[str, Any], **more: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Loss, scores and gradients under one seed."""
    model, data = calibrated(**{**variant, **more}), batch()
    torch.manual_seed(5)
    (loss,) = model.calculate_loss(data)
    loss.backward()
    grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return loss.detach(), model.eval().full_sort_predict(data).detach(), grads


@pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
def test_packed_equals_padded(variant: dict[str, Any]) -> None:
    """The noise of a row does not depend on the path, so gradients of the attack agree too."""
    loss, scores, grads = results(variant)
    plain_loss, plain_scores, plain_grads = results(variant, fast_path=False)
    assert torch.allclose(loss, plain_loss, atol=1e-5) and torch.allclose(scores, plain_scores, atol=1e-4)
    assert grads.keys() == plain_grads.keys()
    for name, grad in grads.items():
        assert torch.allclose(grad, plain_grads[name], atol=1e-5, rtol=1e-3), name


@pytest.mark.parametrize("variant", VARIANTS[1:8], ids=name_of)
def test_every_key_changes_the_step(variant: dict[str, Any]) -> None:
    _, _, grads = results(variant)
    _, _, default_grads = results({})
    shared = grads.keys() & default_grads.keys()
    assert any(not torch.allclose(grads[name], default_grads[name], atol=1e-6) for name in shared)


def test_penalty_does_not_depend_on_the_width() -> None:
    """The same rows padded to T: the same gradients of the attack, whose loss holds the penalty."""
    seq, length = sequences(5, 7, 30)
    data = batch(n_rows=5)
    for fast_path in (True, False):
        grads = []
        for width in (7, 12):
            model = calibrated(fast_path=fast_path, mask_loss_weight=5.0)
            data.interaction["item_id_list"] = nn.functional.pad(seq, (0, width - 7))
            data.interaction["item_length"] = length
            torch.manual_seed(5)
            sum(model.calculate_loss(data)).backward()
            grads.append([parameter.grad for parameter in model.attack_parameters()])
        for narrow, wide in zip(*grads):
            assert torch.allclose(narrow, wide, atol=1e-6)


def test_split_form_equals_the_map_of_the_concatenation() -> None:
    linear, query, key = nn.Linear(16, 1), torch.randn(2, 3, 5, 8), torch.randn(2, 3, 6, 8)
    pairs = torch.cat(
        [query[..., :, None, :].expand(-1, -1, 5, 6, 8), key[..., None, :, :].expand(-1, -1, 5, 6, 8)], dim=-1
    )
    assert torch.allclose(pair_map(linear, query, key), linear(pairs).squeeze(-1), atol=1e-5)


@pytest.mark.parametrize("fast_path", [True, False])
def test_evaluation_draws_nothing_and_padding_does_not_matter(fast_path: bool) -> None:
    model, data = calibrated(fast_path=fast_path).eval(), batch()
    torch.manual_seed(0)
    before, state = model.full_sort_predict(data), torch.get_rng_state()
    torch.manual_seed(1)
    assert torch.equal(model.full_sort_predict(data), before)
    torch.manual_seed(0)
    assert torch.equal(torch.get_rng_state(), state)
    with torch.no_grad():
        model.item_embedding.weight[0] = 100 * torch.randn(16)
    assert torch.allclose(model.full_sort_predict(data)[:, 1:], before[:, 1:], atol=1e-5)


@pytest.mark.parametrize(("use_order", "use_distance"), [(False, False), (True, False), (True, True)])
def test_what_tells_positions_apart(use_order: bool, use_distance: bool) -> None:
    """One layer, a constant gate, no positions: the order of earlier items matters with the distance error only. The
    order error of a fixed query says nothing of it, since causal attention shows one side."""
    model = calibrated(n_layers=1, use_order=use_order, use_distance=use_distance).eval()
    with torch.no_grad():
        for part in model.calibrators[0].adversarial.gate.parameters():
            part.zero_()
    seq, length = torch.tensor([[3, 9, 14, 20, 5]]), torch.tensor([5])
    moved = seq[:, [2, 0, 3, 1, 4]]
    assert torch.allclose(model(moved, length), model(seq, length), atol=1e-5) != use_distance


def test_order_error_of_a_key_in_front() -> None:
    """log sigmoid(-a) with a = w [q; k] + b, and the distance error at its expected distance is 0."""
    calibrator = SpatialCalibrator(2, use_order=True, use_distance=False)
    with torch.no_grad():
        calibrator.order.weight.copy_(torch.tensor([[1.0, 0.0, 0.0, 2.0]]))
        calibrator.order.bias.fill_(0.5)
    query, key = torch.tensor([[[[1.0, 7.0]]]]), torch.tensor([[[[7.0, -1.0], [7.0, 3.0]]]])  # a: -0.5, 7.5
    expected = torch.log(torch.sigmoid(torch.tensor([0.5, -7.5])))
    assert torch.allclose(calibrator(query, key, torch.tensor([[1]])).flatten(), expected, atol=1e-6)
    far = SpatialCalibrator(2, use_order=False, use_distance=True)
    with torch.no_grad():
        far.distance.weight.zero_()
        far.distance.bias.fill_(math.log(3))  # two steps apart
        far.distance_scale.fill_(2.0)
    errors = far(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 3, 2), torch.tensor([[2]])).flatten()
    assert torch.allclose(errors, torch.tensor([0.0, -2 * math.log(1.5) ** 2, -2 * math.log(3) ** 2]), atol=1e-6)


def test_all_layers_start_with_one_distance_scale() -> None:
    scales = [calibrator.spatial.distance_scale for calibrator in calibrated(n_layers=3).calibrators]
    assert len({float(scale.detach()) for scale in scales}) == 1 and len({id(scale) for scale in scales}) == 3
    starts = [calibrated(seed=seed, n_layers=1).calibrators[0].spatial.distance_scale.detach() for seed in range(20)]
    assert float(torch.cat(starts).abs().max()) > 1.2  # N(0, 1), not N(0, 0.3)


def test_annealing_counts_training_steps_and_moves_with_the_weights() -> None:
    model, data = calibrated(combine_option="annealing"), batch()
    for _ in range(3):
        model.calculate_loss(data)
    model.eval().full_sort_predict(data)
    model.calculate_loss(data)
    assert [int(calibrator.adversarial.steps) for calibrator in model.calibrators] == [3, 3]
    other = calibrated(combine_option="annealing", seed=1)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.eval().full_sort_predict(data), model.full_sort_predict(data))
    adversary = AdversarialCalibrator(4, 3, "annealing")
    spread, mask, bias = (
        torch.tensor([[[[0.7, 0.3, 0.0]]]]),
        torch.tensor([[[[0.4, 0.6, 0.0]]]]),
        torch.zeros(1, 1, 1, 3),
    )
    start = adversary.calibrate(spread, mask, torch.zeros(1, 1, 4), bias)
    assert torch.allclose(start, torch.softmax(spread, dim=-1))
    adversary.steps.fill_(10**7)
    end = adversary.calibrate(spread, mask, torch.zeros(1, 1, 4), bias)
    assert torch.allclose(end, torch.softmax(torch.softmax(spread * torch.exp(1 - mask), dim=-1), dim=-1))


def test_scalars_of_an_epoch() -> None:
    """Mean over the batches, then anew; nothing before the first batch."""
    model = calibrated()
    assert model.epoch_scalars() == {}
    hurts, penalties = [], []
    for seed in (1, 2):
        data = batch(seed=seed)
        torch.manual_seed(seed)
        with torch.no_grad():
            made = model._training_pass((data["item_id_list"], data["item_length"]))
            scores = made.perturbed @ model.item_embedding.weight.T
        hurts.append(float(nn.functional.cross_entropy(scores, data["item_id"])))
        penalties.append(float(made.penalty))
        torch.manual_seed(seed)
        model.calculate_loss(data)
    scalars = model.epoch_scalars()
    assert scalars["perturbed_rec"] == pytest.approx(sum(hurts) / 2, rel=1e-5)
    assert scalars["mask_penalty"] == pytest.approx(sum(penalties) / 2, rel=1e-5)
    assert model.epoch_scalars() == {}


def test_a_compiled_loss_is_refused_where_a_gradient_is_taken_inside() -> None:
    with pytest.raises(ConfigError, match="use_adversarial: False"):
        calibrated(compile=True)
    assert calibrated(compile=True, use_adversarial=False).attack_parameters() == []


def test_parameter_counts_on_toys() -> None:
    def count(**settings: Any) -> int:
        sizes = {"n_items": 11_925, "hidden_size": 64, "inner_size": 256, "MAX_ITEM_LIST_LENGTH": 50}
        return sum(p.numel() for p in calibrated(**sizes, **settings).parameters())

    assert count() == 886_698
    assert count(use_position_embedding=True) == 889_898
    assert count(n_heads=4) == 886_698 - 2 * (130 - 66)
    assert count(**OFF) == 866_496
    assert count(combine_option="fixed") == 886_698 - 2 * 3_250
