"""PRISM on a bidirectional backbone: the cloze loss, the contrast at the mask, and both paths equal."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from recbole.data.interaction import Interaction
from torch import Tensor

from recbole_prism.model.functional.info_nce import info_nce
from recbole_prism.model.sequential_recommender import prism as prism_module
from recbole_prism.model.sequential_recommender.prism import PRISM
from tests.model.helpers import BASE, batch, build, cloze_batch

# without noise and with every lens kept a masked path is the prediction path
QUIET = {"backbone": "bert4rec", "router_noise": False, "perspective_dropout": 0.0, "initializer_range": 0.3}
VARIANTS: list[dict[str, Any]] = [
    {},
    {"cloze": "recbole"},
    {"n_layers": 3},
    {"spcl": False},
    {"ccl": False},
    {"same_target": False},
    {"spcl_anchor": "fresh", "ccl_reduction": "mean"},
    {"boost_form": "exponential_group", "boost_norm": "group", "lens_scope": "group", "lens_value": "layer"},
]


def parts_of(model: Any, data: Interaction) -> dict[str, Tensor]:
    loss = model.calculate_loss(data)
    return dict(zip(loss.names, loss))


def number(part: Tensor) -> float:
    return float(part.detach())


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_packed_equals_padded(variant: dict[str, Any]) -> None:
    results = []
    for fast_path in (True, False):
        model = build(PRISM, **{**QUIET, **variant}, fast_path=fast_path).double()
        data = cloze_batch(variant.get("cloze", "repaired"))
        parts = parts_of(model, data)
        sum(parts.values()).backward()
        model.eval()
        results.append((parts, model.full_sort_predict(data), {n: p.grad for n, p in model.named_parameters()}))
    (parts, scores, grads), (plain_parts, plain_scores, plain_grads) = results
    assert {name: number(part) for name, part in parts.items()} == pytest.approx(
        {name: number(part) for name, part in plain_parts.items()}, abs=1e-6
    )
    assert torch.allclose(scores, plain_scores, atol=1e-9)
    without = {name for name, grad in grads.items() if grad is None}
    assert all("noise_scale" in name or "beta" in name for name in without)  # no noise; a boost of one group cancels
    for name in grads.keys() - without:
        assert torch.allclose(grads[name], plain_grads[name], atol=1e-6), name


@pytest.mark.parametrize("anchor", ["shared", "fresh"])
def test_losses_by_definition(anchor: str) -> None:
    """One row at a time, with nothing but the model's plain encoder: cloze cross-entropy at each mask, and InfoNCE of
    what histories and partners are scored by."""
    model = build(PRISM, **QUIET, spcl_anchor=anchor).double()
    data = cloze_batch()
    losses = []
    for masked, labels, length in zip(data["cloze_item_id_list"], data["cloze_labels"], data["cloze_item_length"]):
        states = model.encode_padded(masked[None, :length], length[None])[0][0]
        for place in torch.nonzero(labels).flatten().tolist():
            losses.append(-model.item_scores(model.head(states[place])).log_softmax(-1)[labels[place]])
    views = []
    for prefix in ("", "partner_"):
        rows = zip(data[f"{prefix}item_id_list"], data[f"{prefix}item_length"])
        views.append(torch.cat([model(seq[None, :length], length[None]) for seq, length in rows]))
    contrast = info_nce(*views, temperature=0.1, similarity="cosine", labels=data["item_id"])
    parts = parts_of(model, data)
    assert number(parts["rec"]) == pytest.approx(number(torch.stack(losses).mean()), abs=1e-9)
    assert number(parts["spcl"]) == pytest.approx(0.1 * number(contrast), abs=1e-6)


@pytest.mark.parametrize("targets", ["all", "unique"])
def test_lenses_agree_on_the_distinct_masked_items(targets: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And at every position of the masked rows, mean over rows."""
    model = build(PRISM, **QUIET, ccl_targets=targets)
    data = cloze_batch()
    seen = []

    def spy(outputs: Tensor, items: Tensor, ratio: Tensor, weights: Tensor) -> Tensor:
        seen.append((items, weights))
        return outputs.sum() * 0.0

    monkeypatch.setattr(prism_module, "lens_consistency", spy)
    model.calculate_loss(data)
    ((items, weights),) = seen
    labels = data["cloze_labels"]
    assert torch.equal(items, model.item_embedding(torch.unique(labels[labels > 0])))
    assert torch.allclose(weights, torch.full((int(data["cloze_item_length"].sum()),), 1 / 9))


def test_every_item_of_the_history_counts_and_nothing_behind_it() -> None:
    model = build(PRISM, **QUIET).eval()
    data = batch(6, 8)
    seq, lengths = data["item_id_list"], data["item_length"]
    with torch.no_grad():
        states, _ = model.encode_padded(seq, lengths)
        full = torch.nonzero(lengths >= 3).flatten()
        changed = seq.clone()
        changed[full, lengths[full] - 1] = changed[full, lengths[full] - 1] % 29 + 1
        other, _ = model.encode_padded(changed, lengths)
        assert ((states[full, 0] - other[full, 0]).abs().amax(dim=1) > 1e-4).all()  # the first position sees the last
        wide = torch.nn.functional.pad(seq, (0, 3))
        assert torch.allclose(model(wide, lengths), model(seq, lengths), atol=1e-5)


def test_a_masked_path_draws_its_own_lenses() -> None:
    """With masking on, the contrast changes from call to call and the recommendation loss does not."""
    model = build(PRISM, **{**QUIET, "perspective_dropout": 0.5})
    data = cloze_batch()
    first, second = parts_of(model, data), parts_of(model, data)
    assert number(first["rec"]) == pytest.approx(number(second["rec"]), abs=1e-6)
    assert abs(number(first["spcl"]) - number(second["spcl"])) > 1e-4


def test_no_mask_that_counts_leaves_the_contrast() -> None:
    model = build(PRISM, **QUIET, cloze="recbole")
    data = cloze_batch("recbole")
    data.update(Interaction({"cloze_labels": torch.zeros_like(data["cloze_labels"])}))
    parts = parts_of(model, data)
    assert number(parts["rec"]) == 0.0 == number(parts["ccl"]) and number(parts["spcl"]) > 0
    sum(parts.values()).backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_needs_and_parameters() -> None:
    assert PRISM.needs({**BASE, "backbone": "bert4rec"}) == {"partner", "cloze"}
    assert PRISM.needs({**BASE, "backbone": "bert4rec", "spcl": False}) == {"cloze"}
    assert PRISM.needs(BASE) == {"partner"}
    sizes = {"n_items": 11_925, "hidden_size": 64, "inner_size": 256, "MAX_ITEM_LIST_LENGTH": 50}
    counts = [
        sum(p.numel() for p in build(PRISM, **sizes, backbone=backbone).parameters())
        for backbone in ("sasrec", "bert4rec")
    ]
    # a vector for the mask, a linear layer, a LayerNorm and a bias per item
    assert counts == [908_673, 908_673 + 64 + 64 * 64 + 64 + 2 * 64 + 11_925]
