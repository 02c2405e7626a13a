"""ICSRec: its losses by hand, its partners, its clustering of all training rows, and what stays out of the gradient."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from recbole.data.interaction import Interaction
from torch import Tensor

from recbole_prism.errors import ModelError
from recbole_prism.model.functional.info_nce import info_nce
from recbole_prism.model.sequential_recommender.icsrec import ICSRec
from tests.contracts.conftest import first_batch, make_case
from tests.model.helpers import batch, build


def with_centres(n_intents: int = 5, **settings: Any) -> ICSRec:
    model = build(
        ICSRec, **{"cicl_weight": 1.0, "ficl_weight": 1.0, "cl_temperature": 1.0, "cl_similarity": "dot"} | settings
    )
    model.centres.raw = torch.randn(n_intents, 16, generator=torch.Generator().manual_seed(9))
    return model


@torch.no_grad()
def encoded(model: ICSRec, data: Interaction) -> tuple[Tensor, Tensor]:
    """Row and partner, without dropout."""
    row = model(data["item_id_list"], data["item_length"])
    return row, model(data["partner_item_id_list"], data["partner_item_length"])


def record_calls(model: ICSRec, name: str) -> list[Tensor]:
    """First argument of every call of a method."""
    method, seen = getattr(model, name), []

    def recording(first: Tensor, *rest: Any, **named: Any) -> Tensor:
        seen.append(first)
        return method(first, *rest, **named)

    setattr(model, name, recording)
    return seen


def test_parts_by_hand() -> None:
    model, data = with_centres(), batch(n_rows=6)
    data["item_id"][3] = data["item_id"][1]
    with torch.no_grad():
        parts = dict(zip(("rec", "cicl", "ficl"), model.calculate_loss(data)))
    row, partner = encoded(model, data)
    assert float(parts["cicl"]) == pytest.approx(float(info_nce(row, partner, labels=data["item_id"])), rel=1e-5)
    expected = 0.0
    for view in (row, partner):
        nearest = [min(range(5), key=lambda k: float((v - model.centres.raw[k]).norm())) for v in view]
        centres = torch.stack([model.centres.raw[k] / model.centres.raw[k].norm() for k in nearest])
        expected += float(info_nce(view, centres, labels=torch.tensor(nearest)))
    assert float(parts["ficl"]) == pytest.approx(expected, rel=1e-5)  # a sum, not a mean


@pytest.mark.parametrize("reuse", [True, False])
def test_weights_scale_their_parts_and_remove_them(reuse: bool) -> None:
    data = batch()
    full = with_centres(reuse_anchor=reuse).calculate_loss(data)
    assert full.names == ("rec", "cicl", "ficl")
    coarse = with_centres(cicl_weight=0.5, ficl_weight=0.0, reuse_anchor=reuse).calculate_loss(data)
    fine = with_centres(cicl_weight=0.0, ficl_weight=0.25, reuse_anchor=reuse).calculate_loss(data)
    assert coarse.names == ("rec", "cicl") and fine.names == ("rec", "ficl")
    assert float(coarse[1].detach()) == pytest.approx(0.5 * float(full[1].detach()))
    assert float(fine[1].detach()) == pytest.approx(0.25 * float(full[2].detach()))
    sum(fine).backward()


def test_reused_anchor_is_the_prediction_and_a_second_pass_is_not() -> None:
    """With dropout, a contrast of the row with itself is 0-distant only where the encoding is shared."""
    data = batch()
    seen = {}
    for reuse in (True, False):
        model = with_centres(reuse_anchor=reuse, hidden_dropout_prob=0.5).train()
        outputs, views = record_calls(model, "recommendation_loss"), record_calls(model, "info_nce")
        model.calculate_loss(data)
        seen[reuse] = torch.equal(outputs[0], views[0])
    assert seen == {True: True, False: False}


def test_filtering_equals_plain_contrast_where_it_is_off() -> None:
    data = batch(n_rows=6)
    data["item_id"][:] = 7
    filtered = with_centres(n_intents=1).calculate_loss(data)
    assert (
        float(filtered[1].detach()) == 0.0 and float(filtered[2].detach()) == 0.0
    )  # equal targets, one cluster: no negatives
    model = with_centres(cl_filter_same=False)
    assert float(model.calculate_loss(data)[1].detach()) == pytest.approx(
        float(info_nce(*encoded(model, data))), rel=1e-5
    )


def test_centres_are_constants() -> None:
    model = with_centres()
    before = model.centres.raw.clone()
    sum(model.calculate_loss(batch())).backward()
    assert not model.centres.raw.requires_grad and torch.equal(model.centres.raw, before)
    assert "centres.raw" not in model.state_dict()
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in build(ICSRec).parameters())


def test_assignment_looks_at_raw_centres() -> None:
    model = with_centres()
    model.centres.raw = torch.zeros(2, 16)
    model.centres.raw[0, 0], model.centres.raw[1, 1] = 1.0, 10.0
    view = torch.zeros(1, 16)
    view[0, 0], view[0, 1] = 1.0, 2.0  # nearer to the short centre, but of the direction of the long one
    assert model.centres.nearest(view).tolist() == [0]
    assert torch.allclose(model.centres.directions(torch.tensor([0, 1])).norm(dim=1), torch.ones(2))


def test_parameters_are_sasrecs() -> None:
    model = build(ICSRec, n_items=11_925, hidden_size=64, inner_size=256, MAX_ITEM_LIST_LENGTH=50)
    assert sum(p.numel() for p in model.parameters()) == 866_496


def test_without_an_e_step_it_says_so() -> None:
    with pytest.raises(ModelError, match="no intent centres yet"):
        build(ICSRec).calculate_loss(batch())


# ---- with data


@pytest.mark.parametrize("sampling", ["random", "last"])
def test_partners_are_training_rows_of_the_same_target_and_another_history(toy_path: Path, sampling: str) -> None:
    case = make_case(toy_path, "ICSRec", "repeats", partner_sampling=sampling, MAX_ITEM_LIST_LENGTH=3)
    rows, items = case.train.dataset.rows, case.train.dataset.items
    by_target: dict[int, list[int]] = {}
    for row, target in enumerate(rows.target.tolist()):
        by_target.setdefault(target, []).append(row)
    window = [tuple(items[start:end].tolist()) for start, end in zip(rows.start, rows.end)]
    case.train.set_epoch(0)
    drawn: list[dict[int, int]] = []
    for _ in range(2):
        drawn.append({})
        for data in case.train:
            drawn[-1].update(zip(data["row_id"].tolist(), data["partner_row_id"].tolist()))
    for row, partner in drawn[0].items():
        others = [other for other in by_target[int(rows.target[row])] if window[other] != window[row]]
        assert partner in others if others else partner == row
        if sampling == "last" and others:
            assert partner == others[-1]
    assert (drawn[0] == drawn[1]) == (sampling == "last")


def test_centres_are_those_of_all_training_rows_and_follow_the_model(toy_path: Path) -> None:
    case = make_case(toy_path, "ICSRec", "repeats", n_intents=4)
    model, rows = case.model, case.train.dataset
    seen = []
    fit = type(model.kmeans).fit

    def recording(kmeans: Any, points: Tensor, seed: int, init: Any = None) -> Tensor:
        seen.append((points, init))
        return fit(kmeans, points, seed, init)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(model.kmeans), "fit", recording)
        first = model.centres.raw
        model.on_train_epoch_start(rows, 1)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
        model.on_train_epoch_start(rows, 2)
    model.eval()
    assert seen[1][0].shape == (len(rows), 16)  # every row, in order, without dropout
    alone = torch.cat([model(*rows.windows(np.array([row]))) for row in range(0, len(rows), 9)])
    assert torch.allclose(seen[1][0][::9], alone, atol=1e-5)
    assert torch.equal(seen[0][1], first)  # a warm start from the epoch before
    assert not torch.allclose(model.centres.raw, first, atol=1e-3)


def test_scores_do_not_need_centres(toy_path: Path) -> None:
    case = make_case(toy_path, "ICSRec")
    data = first_batch(case.test)
    with_them = case.model.eval().full_sort_predict(data)
    case.model.centres.raw = torch.empty(0)
    assert torch.equal(case.model.full_sort_predict(data), with_them)
