"""IOCRec against its equations written as loops in float64, and what the published form does with padding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from recbole_prism.errors import ConfigError
from recbole_prism.model.functional import best_intent_loss as best_intent_loss_module
from recbole_prism.model.functional.info_nce import info_nce
from recbole_prism.model.sequential_recommender.iocrec import IOCRec
from tests.model.helpers import batch, build, sequences, with_views

OURS = {
    "n_intents": 3, "mask_padding": True, "intent_norm_eps": 1e-5, "intent_agg": "position", "cl_weight": 1.0,
    "cl_temperature": 1.0, "cl_similarity": "dot", "aug_mask_token": "mask",
}  # fmt: skip


def model_of(**settings: Any) -> IOCRec:
    model = build(IOCRec, **{**OURS, **settings})
    with torch.no_grad():  # parts that start at 0 or 1 must show too
        for norm in model.disentangler.modules():
            if isinstance(norm, nn.LayerNorm):
                norm.weight.normal_(mean=1.0, std=0.3)
                norm.bias.normal_(std=0.3)
    return model


def intents_by_loop(model: IOCRec, items: Tensor, length: int) -> Tensor:
    """R [K, T, d] of one history, padded to the full T; without padding where the model masks it."""
    d, n_intents = model.hidden_size, model.disentangler.prototypes.shape[0]
    part, across = model.disentangler, model.global_attention
    states = model.encode_padded(items[None], torch.tensor([length]))[0][0]
    vectors = model.item_vectors(items)
    seen = range(length if model.masks_padding else len(items))
    keys = [across.key(vectors[j]) for j in seen]
    values = torch.stack([across.value(vectors[j]) for j in seen])
    attended = []
    for t in range(len(items)):
        weights = torch.softmax(torch.stack([across.queries[t] @ key for key in keys]), dim=0)
        attended.append(sum(weight * value for weight, value in zip(weights, values)))
    intents = torch.zeros(n_intents, len(items), d, dtype=states.dtype)
    for branch in (states, torch.stack(attended)):
        query = part.query_norm(branch[length - 1] + part.positions[length - 1] + part.query_shift)
        scores = []
        for t in seen:
            key = part.key_norm(branch[t] + part.positions[t])
            scores.append(query @ (key + torch.relu(part.key(key))) / d**0.5)
        weights = torch.softmax(torch.stack(scores), dim=0)
        for t in seen:
            shares = torch.softmax(
                torch.stack([part.state_norm(branch[t]) @ part.prototype_norm(u) / d**0.5 for u in part.prototypes]), 0
            )
            for k in range(n_intents):
                intents[k, t] += part.intent_norm(shares[k] * weights[t] * branch[t])
    return intents


@pytest.mark.parametrize("masks", [True, False])
def test_scores_equal_the_loops_in_float64(masks: bool) -> None:
    seq, length = sequences(5, 12, 30, lengths=[1, 2, 5, 9, 12])
    plain = model_of(mask_padding=masks, fast_path=False).double().eval()
    models = [plain]
    if masks:
        models.append(model_of().double().eval())
        models[1].load_state_dict(plain.state_dict())
    with torch.no_grad():
        expected = []
        for row, n in zip(seq, length.tolist()):
            intents = intents_by_loop(plain, row, n)[:, n - 1]
            expected.append(torch.stack([intents @ item for item in plain.item_embedding.weight]).amax(dim=1))
        for model in models:
            scores = model.item_scores(model(seq, length))
            assert scores.shape == (5, 30)  # no column for the mask token
            assert torch.allclose(scores, torch.stack(expected), atol=1e-9)


@pytest.mark.parametrize("fast_path", [True, False])
@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_contrast_by_loop(fast_path: bool, similarity: str) -> None:
    """Each intent of each row is a sample; the other intents of the row are negatives too."""
    data = with_views(batch(4))
    model = model_of(fast_path=fast_path, cl_similarity=similarity).double()
    parts = model.calculate_loss(data)
    assert parts.names == ("rec", "cl")
    with torch.no_grad():
        samples = []
        for view in ("view_1", "view_2"):
            items, lengths = data[f"{view}_item_id_list"], data[f"{view}_item_length"].tolist()
            padded = functional.pad(items, (0, 12 - items.shape[1]))
            samples.append(torch.cat([intents_by_loop(model, r, n).flatten(1) for r, n in zip(padded, lengths)]))
    assert samples[0].shape == (4 * 3, 12 * 16)
    expected = info_nce(*samples, similarity=similarity)
    assert float(parts[1].detach()) == pytest.approx(float(expected), rel=1e-9)


def test_published_contrast_reads_padding() -> None:
    data = with_views(batch(4))
    for view in ("view_1", "view_2"):
        items = data[f"{view}_item_id_list"]
        data.interaction[f"{view}_item_id_list"] = functional.pad(items, (0, 12 - items.shape[1]))
    model = model_of(fast_path=False, mask_padding=False).double()
    with torch.no_grad():
        samples = [
            torch.cat(
                [
                    intents_by_loop(model, row, n).flatten(1)
                    for row, n in zip(data[f"{view}_item_id_list"], data[f"{view}_item_length"].tolist())
                ]
            )
            for view in ("view_1", "view_2")
        ]
    expected = float(info_nce(*samples))
    assert float(model.calculate_loss(data)[1].detach()) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("n_intents", [1, 3])
def test_loss_of_the_best_intent_in_chunks(monkeypatch: pytest.MonkeyPatch, n_intents: int) -> None:
    """Equal to cross-entropy of the table of maxima, with its gradients; 10 rows in chunks of 4, 4 and 2."""
    monkeypatch.setattr(best_intent_loss_module, "_CHUNK_SCORES", 4 * n_intents * 30)
    monkeypatch.setattr(best_intent_loss_module, "_MIN_ROWS", 1)
    generator = torch.Generator().manual_seed(0)
    intents = torch.randn(10, n_intents, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    items = torch.randn(30, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(30, (10,), generator=generator)
    table = torch.stack([torch.stack([(row @ item).max() for item in items]) for row in intents])
    expected = torch.stack([torch.logsumexp(row, 0) - row[target] for row, target in zip(table, targets)]).mean()
    ours = best_intent_loss_module.best_intent_loss(intents, items, targets)
    assert float(ours.detach()) == pytest.approx(float(expected.detach()), abs=1e-12)
    for found, oracle in zip(*(torch.autograd.grad(loss * 3, (intents, items)) for loss in (ours, expected))):
        assert torch.allclose(found, oracle, atol=1e-12)


def test_summed_intents() -> None:
    """`sum`: one vector per intent, the LayerNorm behind the sum over positions."""
    seq, length = sequences(3, 12, 30, lengths=[1, 4, 12])
    for fast in (True, False):
        model = model_of(intent_agg="sum", fast_path=fast).double().eval()
        found = model(seq, length)
        part = model.disentangler
        for row, n in enumerate(length.tolist()):
            states = model.encode_states([(seq[row : row + 1, :n], length[row : row + 1])])
            across = model.global_attention(states, model.item_vectors(states.items))
            expected = 0
            for tokens in (states.tokens, across):
                weights = part.position_weights(states, tokens)
                parts = part.shares(tokens)[..., None] * weights[..., None, None] * tokens[..., None, :]
                expected = expected + part.intent_norm(parts.reshape(n, 3, 16).sum(dim=0))
            assert torch.allclose(found[row], expected, atol=1e-12)
        loss = model.calculate_loss(with_views(batch(4)))
        assert loss.names == ("rec", "cl") and all(torch.isfinite(part) for part in loss)


def test_permuted_prototypes_permute_the_intents_and_keep_the_scores() -> None:
    seq, length = sequences(5, 12, 30)
    model = model_of().eval()
    order = torch.tensor([2, 0, 1])
    with torch.no_grad():
        intents, scores = model(seq, length), model.item_scores(model(seq, length))
        model.disentangler.prototypes.copy_(model.disentangler.prototypes[order])
        permuted = model(seq, length)
        assert torch.allclose(permuted, intents[:, order], atol=1e-5)
        assert torch.allclose(model.item_scores(permuted), scores, atol=1e-4)
        one = model_of(n_intents=1).eval()
        assert torch.equal(one.disentangler.shares(torch.randn(4, 16)), torch.ones(4, 1))
        output = one(seq, length)
        assert torch.allclose(one.item_scores(output), output[:, 0] @ one.item_embedding.weight.T)


@pytest.mark.parametrize("masks", [True, False])
def test_padding_matters_in_the_published_form_only(masks: bool) -> None:
    seq, length = sequences(4, 8, 30, lengths=[1, 3, 5, 8])
    model = model_of(mask_padding=masks, fast_path=False).eval()

    def scores(width: int) -> Tensor:
        return model.item_scores(model(functional.pad(seq, (0, width - 8)), length))[:, 1:]

    with torch.no_grad():
        before, wider = scores(8), scores(12)
        model.item_embedding.weight[0] += 1.0
        changed = scores(8)
    assert torch.allclose(wider, before, atol=1e-5) == masks
    assert torch.allclose(changed, before, atol=1e-5) == masks


def test_the_published_form_needs_the_plain_path() -> None:
    with pytest.raises(ConfigError, match="mask_padding: False looks at padding"):
        model_of(mask_padding=False)


@pytest.mark.parametrize(("agg", "on_one_ray"), [("position", True), ("sum", False)])
def test_intents_of_a_branch_lie_on_one_ray_unless_summed(agg: str, on_one_ray: bool) -> None:
    """LayerNorm takes the positive factor p * w away again; at the start, with unit weights and no bias."""
    seq, length = sequences(6, 12, 30, lengths=[4, 5, 6, 8, 10, 12])
    model = build(IOCRec, **{**OURS, "intent_agg": agg}).eval()
    with torch.no_grad():
        states = model.encode_states([(seq, length)])
        intents = functional.normalize(model.disentangler(states, states.tokens, last_only=True), dim=-1)
    cosines = (intents @ intents.transpose(1, 2)).abs()[:, ~torch.eye(3, dtype=torch.bool)]
    assert (cosines.min() > 0.9999) == on_one_ray
    if not on_one_ray:
        assert cosines.min() < 0.9


def test_a_tiny_epsilon_makes_the_intents_the_same() -> None:
    seq, length = sequences(6, 12, 30, lengths=[4, 5, 6, 8, 10, 12])
    spread = {}
    for eps in (1e-5, 1e-12):
        model = build(IOCRec, **{**OURS, "intent_norm_eps": eps, "initializer_range": 0.02}).eval()
        with torch.no_grad():
            intents = model(seq, length)
        spread[eps] = float((intents - intents[:, :1]).abs().max())
    assert spread[1e-12] < 0.01 * spread[1e-5]


@pytest.mark.parametrize("weight", [0.0, 0.1])
def test_without_the_contrast_there_are_no_views_and_no_mask_token(weight: float) -> None:
    model = build(IOCRec, **{**OURS, "cl_weight": weight})
    assert bool(model.needs({"cl_weight": weight})) == (model.mask_token is not None) == (weight > 0)
    data = with_views(batch(3)) if weight else batch(3)
    assert model.calculate_loss(data).names == (("rec", "cl") if weight else ("rec",))


@pytest.mark.parametrize(
    ("n_items", "n_layers", "inner_size", "expected"),
    [
        (11_926, 3, 128, 886_912),  # with the mask row 11,927: the counts that the public logs print
        (11_926, 3, 256, 936_448),
        (11_926, 3, 512, 1_035_520),
        (11_925, 2, 256, 886_400),  # Toys in the common protocol
    ],
)
def test_parameter_counts(n_items: int, n_layers: int, inner_size: int, expected: int) -> None:
    sizes = {"hidden_size": 64, "MAX_ITEM_LIST_LENGTH": 50, "n_intents": 4}
    model = build(IOCRec, **{**OURS, **sizes, "n_items": n_items, "n_layers": n_layers, "inner_size": inner_size})
    assert sum(p.numel() for p in model.parameters()) == expected


def test_initial_values() -> None:
    """Linear weights N(0, 0.02), biases as torch's default, queries and prototypes N(0, 1), positions N(0, 0.02)."""
    model = build(IOCRec, **{**OURS, "hidden_size": 64, "n_intents": 64, "initializer_range": 0.02, "n_heads": 1})
    part, across = model.disentangler.requires_grad_(False), model.global_attention.requires_grad_(False)
    for linear in (part.key, across.key, across.value):
        assert float(linear.weight.std()) == pytest.approx(0.02, rel=0.05)
        assert float(linear.bias.abs().max()) <= 1 / 8 and float(linear.bias.std()) == pytest.approx(
            1 / 8 / 3**0.5, rel=0.25
        )
    for values, std in ((part.prototypes, 1.0), (across.queries, 1.0), (part.positions, 0.02)):
        assert float(values.std()) == pytest.approx(std, rel=0.1)
    assert float(part.query_shift.std()) == pytest.approx(1.0, rel=0.3)
    assert all(norm.eps == 1e-5 for norm in part.modules() if isinstance(norm, nn.LayerNorm))
