"""CL4SRec: its loss against encodings of SASRec, the [mask] token, and what padding may change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from recbole_prism.errors import ConfigError
from recbole_prism.model.layers.mask_token import MaskToken
from recbole_prism.model.sequential_recommender.cl4srec import CL4SRec
from recbole_prism.model.sequential_recommender.sasrec import SASRec
from tests.contracts.conftest import make_case
from tests.model.helpers import batch, build, with_views
from tests.model.test_functional import double_loop_info_nce

VIEWS = ("view_1", "view_2")


def extended_sasrec(model: CL4SRec) -> SASRec:
    """A SASRec with one item more, the [mask] token, and the same weights; an oracle for encodings only."""
    oracle = build(SASRec, n_items=31, fast_path=False).eval()
    weights = {name: value for name, value in model.state_dict().items() if name != "mask_token.weight"}
    table = torch.cat([weights["item_embedding.weight"], model.state_dict()["mask_token.weight"][None]])
    oracle.load_state_dict({**weights, "item_embedding.weight": table})
    return oracle


def encodings(model: SASRec, data: Any) -> list[Tensor]:
    fields = [(data[f"{view}_item_id_list"], data[f"{view}_item_length"]) for view in VIEWS]
    return [model(*field).detach().double() for field in fields]


@pytest.mark.parametrize("fast_path", [True, False])
@pytest.mark.parametrize("settings", [(0.1, 1.0, "dot"), (0.4, 1.0, "dot"), (0.1, 0.5, "dot"), (0.1, 1.0, "cosine")])
def test_loss_is_the_sum_of_its_definition(fast_path: bool, settings: tuple[float, float, str]) -> None:
    """L_rec of the untouched histories, and the double loop over separately encoded views."""
    weight, tau, similarity = settings
    model = build(
        CL4SRec, fast_path=fast_path, cl_weight=weight, cl_temperature=tau, cl_similarity=similarity,
        initializer_range=0.1,
    )  # fmt: skip
    data = with_views(batch())
    assert any((data[f"{view}_item_id_list"] == 30).any() for view in VIEWS)
    oracle = extended_sasrec(model)
    first, second = encodings(oracle, data)
    expected = weight * double_loop_info_nce(first, second, tau, similarity, list(range(7)), "both_views")
    logits = oracle(data["item_id_list"], data["item_length"]) @ model.item_embedding.weight.T
    rec, cl = model.calculate_loss(data)
    assert float(cl.detach()) == pytest.approx(expected, rel=1e-5)
    expected_rec = functional.cross_entropy(logits, data["item_id"]).detach()
    assert float(rec.detach()) == pytest.approx(float(expected_rec), rel=1e-5)


def test_the_mask_token_learns_from_masked_views_alone() -> None:
    for types, learns in ((("mask",), True), (("crop",), False), (("reorder",), False)):
        model = build(CL4SRec)
        sum(model.calculate_loss(with_views(batch(), types=types))).backward()
        gradient = model.mask_token.weight.grad
        assert bool(gradient.abs().max() > 0) is learns


def test_the_mask_token_is_no_candidate() -> None:
    model = build(CL4SRec).eval()
    assert model.full_sort_predict(batch()).shape == (7, 30)
    assert model.item_embedding.weight.shape == (30, 16)


def test_masked_items_as_padding() -> None:
    """No token is made; attention does not see the item: SASRec with id 0 in its place."""
    model = build(CL4SRec, aug_mask_token="padding", cl_similarity="dot", cl_temperature=1.0, initializer_range=0.1)
    assert model.mask_token is None
    data = with_views(batch(), mask_id=0)
    oracle = build(SASRec, fast_path=False).eval()
    oracle.load_state_dict(model.state_dict())
    first, second = encodings(oracle, data)
    expected = 0.1 * double_loop_info_nce(first, second, 1.0, "dot", list(range(7)), "both_views")
    assert float(model.calculate_loss(data)[1].detach()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("fast_path", [True, False])
def test_weight_zero_is_sasrec(fast_path: bool) -> None:
    """In training mode with dropout: parameters, loss, gradients and scores, bit by bit; views are not asked for."""
    settings = {"fast_path": fast_path, "hidden_dropout_prob": 0.5, "attn_dropout_prob": 0.5}
    results = []
    for model_class in (SASRec, CL4SRec):
        model = build(model_class, cl_weight=0.0, **settings)
        torch.manual_seed(3)
        (loss,) = model.calculate_loss(batch())
        loss.backward()
        torch.manual_seed(4)
        scores = model.full_sort_predict(batch())
        results.append([loss, scores, *(p.grad for p in model.parameters()), *model.state_dict().values()])
        names = list(model.state_dict())
    assert len(results[0]) == len(results[1]) and names == list(build(SASRec).state_dict())
    assert all(torch.equal(a, b) for a, b in zip(*results))
    assert CL4SRec.needs({"cl_weight": 0.0}) == frozenset() and CL4SRec.needs({"cl_weight": 0.1}) == frozenset(VIEWS)


def test_base_weights_equal_sasrec() -> None:
    """The token comes last, so the base starts as SASRec does under the same seed."""
    model, sasrec = build(CL4SRec).state_dict(), build(SASRec).state_dict()
    assert set(model) - set(sasrec) == {"mask_token.weight"}
    assert all(torch.equal(model[name], weight) for name, weight in sasrec.items())


def test_parameter_count_on_toys() -> None:
    model = build(CL4SRec, n_items=11_925, hidden_size=64, inner_size=256, MAX_ITEM_LIST_LENGTH=50)
    assert sum(p.numel() for p in model.parameters()) == 866_560


def test_the_token_starts_with_the_range_of_the_others() -> None:
    torch.manual_seed(0)
    token = MaskToken(4096, 0.02).weight.detach()
    assert abs(float(token.std()) - 0.02) < 5 * 0.02 / (2 * 4096) ** 0.5 and abs(float(token.mean())) < 5 * 0.02 / 64
    assert build(CL4SRec, initializer_range=1e-6).mask_token.weight.abs().max() < 1e-5


@pytest.mark.parametrize("fast_path", [True, False])
def test_padding_vector_changes_neither_scores_nor_views(fast_path: bool) -> None:
    model = build(CL4SRec, fast_path=fast_path).eval()
    data = with_views(batch())
    branches = [(data[f"{view}_item_id_list"], data[f"{view}_item_length"]) for view in VIEWS]
    with torch.no_grad():
        before = [model.full_sort_predict(data)[:, 1:], *model.encode(branches)]
        model.item_embedding.weight[0] += torch.randn(16) * 50
        after = [model.full_sort_predict(data)[:, 1:], *model.encode(branches)]
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(before, after))


def test_training_rows_are_as_before(toy_path: Path) -> None:
    """The authors' code writes views into the stored rows; here an epoch of training leaves every history alone."""
    case = make_case(toy_path, "CL4SRec")
    case.train.set_epoch(0)
    before = [batch["item_id_list"].clone() for batch in case.train]
    items = case.train.dataset.items.copy()
    case.train.set_epoch(0)
    for data in case.train:
        sum(case.model.calculate_loss(data)).backward()
    case.train.set_epoch(0)
    assert all(torch.equal(a["item_id_list"], b) for a, b in zip(case.train, before))
    assert np.array_equal(case.train.dataset.items, items)


def test_a_batch_without_views_is_refused() -> None:
    with pytest.raises(ConfigError, match="lacks view_1_item_id_list, view_1_item_length"):
        build(CL4SRec).calculate_loss(batch())


@pytest.mark.parametrize("value", [[], ["crop", "crop"], ["crop", "cut"], "crop", ["crop", 1]])
def test_wrong_operators_are_refused(toy_path: Path, value: Any) -> None:
    with pytest.raises(ConfigError, match="a list of different values among crop, mask, reorder"):
        make_case(toy_path, "CL4SRec", aug_types=value)


def test_masking_everything_is_refused(toy_path: Path) -> None:
    with pytest.raises(ConfigError, match="aug_mask_ratio is 1.0"):
        make_case(toy_path, "CL4SRec", aug_mask_ratio=1.0)
