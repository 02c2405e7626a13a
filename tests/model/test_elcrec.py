"""ELCRec: the clustering loss, its closed form, and centres that start once and stay on the sphere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from recbole.data.interaction import Interaction
from torch import Tensor
from torch.nn import functional

from recbole_prism.model.functional.info_nce import info_nce
from recbole_prism.model.functional.intent_clustering import clustering_loss
from recbole_prism.model.functional.pooling import pool
from recbole_prism.model.functional.random_hash import hash_seed
from recbole_prism.model.sequential_recommender.elcrec import ELCRec
from recbole_prism.model.sequential_recommender.iclrec import ICLRec
from recbole_prism.model.sequential_recommender.intents import STREAM_KMEANS
from recbole_prism.trainer.trainer import Trainer
from tests.contracts.conftest import first_batch, make_case
from tests.model.helpers import batch, build, with_views
from tests.model.test_iclrec import OURS, states

ALONE = {"seqcl_weight": 0.0, "intentcl_weight": 0.0, "cluster_weight": 0.0}


def model_of(**settings: Any) -> ELCRec:
    return build(ELCRec, **{**OURS, "cluster_weight": 1.0, **settings})


def views() -> Interaction:
    return with_views(batch(6), mask_id=0)


def unit(n: int, seed: int) -> Tensor:
    points = torch.randn(n, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return functional.normalize(points, dim=1)


def test_clustering_loss_is_the_double_loop_with_its_gradients() -> None:
    representations, centres = (
        unit(7, 0).requires_grad_(),
        (unit(4, 1) * 1.1).requires_grad_(),
    )  # a little off the sphere
    align = torch.stack([(h - c).square().sum() for h in representations for c in centres]).mean()
    separate = torch.stack([(c - e).square().sum() for c in centres for e in centres]).mean()
    ours = clustering_loss(representations, centres)
    assert float(ours.detach()) == pytest.approx(float((align - separate).detach()), abs=1e-12)
    for found, expected in zip(
        torch.autograd.grad(ours, (representations, centres)),
        torch.autograd.grad(align - separate, (representations, centres)),
    ):
        assert torch.allclose(found, expected, atol=1e-12)


def test_clustering_loss_sees_two_mean_vectors_only() -> None:
    representations, centres = unit(7, 0), unit(4, 1)
    mean, centre = representations.mean(0), centres.mean(0)
    expected = 2 * float(centre @ centre) - 2 * float(mean @ centre)
    assert float(clustering_loss(representations, centres)) == pytest.approx(expected, abs=1e-12)
    # all representations u, centres whose mean is u / 2: -1/2, the minimum
    u = torch.tensor([1.0, 0.0])
    pair = torch.tensor([[0.5, 0.75**0.5], [0.5, -(0.75**0.5)]])
    assert float(clustering_loss(u.expand(6, 2), pair)) == pytest.approx(-0.5)


@pytest.mark.parametrize("fusion", ["shift", "concat"])
def test_parts_by_hand(fusion: str) -> None:
    model, data = model_of(intent_fusion=fusion), views()
    with torch.no_grad():
        model.centres.weight.mul_(1.03)  # as an optimizer step leaves them
    parts = model.calculate_loss(data)
    assert parts.names == ("rec", "seqcl", "intentcl", "cluster")
    centres = model.centres.weight.detach()
    assert torch.allclose(centres.norm(dim=1), torch.ones(5), atol=1e-6)
    row, first, second = (states(model, data, prefix) for prefix in ("", "view_1_", "view_2_"))
    fused = []
    for view, lengths in (first, second):
        nearest = centres[torch.cdist(view, centres).argmin(dim=2)]
        joined = view + nearest if fusion == "shift" else torch.cat([view, nearest], dim=2)
        assert joined.shape[2] == (16 if fusion == "shift" else 32)
        fused.append(pool(joined, lengths, "concat_valid"))
    assert float(parts[1].detach()) == pytest.approx(float(info_nce(*fused)), rel=1e-5)
    h = functional.normalize(pool(*row, "mean_valid"), dim=1)
    chosen = centres[torch.cdist(h, centres).argmin(dim=1)]
    contrasts = [float(info_nce(pool(*view, "mean_valid"), chosen)) for view in (first, second)]
    assert float(parts[2].detach()) == pytest.approx(sum(contrasts) / 2, rel=1e-5)
    distances = torch.cdist(h, centres).square().mean() - torch.cdist(centres, centres).square().mean()
    assert float(parts[3].detach()) == pytest.approx(float(distances), abs=1e-5)


def test_gradients_of_each_part_reach_centres_and_encoder() -> None:
    for number, key in enumerate(ALONE):
        model = model_of(**{**ALONE, key: 1.0})
        parts = model.calculate_loss(views())
        assert parts.names == ("rec", ("seqcl", "intentcl", "cluster")[number])
        parts[1].backward()
        assert model.centres.weight.grad.abs().sum() > 0
        assert model.trm_encoder.layers[0].multi_head_attention.query.weight.grad.abs().sum() > 0


def test_with_centres_at_0_shift_is_iclrecs_sequence_contrast() -> None:
    model, other, data = model_of(intent_fusion="shift"), build(ICLRec, **{**OURS, "intentcl_weight": 0.0}), views()
    with torch.no_grad():
        model.centres.weight.zero_()
    ours, theirs = model.calculate_loss(data)[1].detach(), other.calculate_loss(data)[1].detach()
    assert float(ours) == pytest.approx(float(theirs), rel=1e-6)


def test_at_weight_0_centres_stay_put(toy_path: Path) -> None:
    case = make_case(toy_path, "ELCRec", epochs=1, **ALONE)
    before = case.model.centres.weight.detach().clone()
    Trainer(case.config, case.model).fit(case.train, case.valid, verbose=False)
    assert torch.equal(case.model.centres.weight, before) and not case.model.centres.started
    assert case.model.needs(case.config) == frozenset()


@pytest.mark.parametrize("start", ["kmeans", "random"])
def test_k_means_runs_once_also_after_loading(toy_path: Path, start: str) -> None:
    case = make_case(toy_path, "ELCRec", "repeats", center_init=start)
    model, rows = case.model, case.train.dataset
    assert model.centres.started == (start == "kmeans")
    if start == "kmeans":
        last = {int(user): row for row, user in enumerate(rows.rows.user)}  # rows of a user: oldest first
        points = model.represent_rows(rows, np.array([last[user] for user in sorted(last)]), "mean_valid")
        found = model.kmeans.fit(points, hash_seed(case.config["seed"], 0, STREAM_KMEANS))
        assert torch.allclose(model.centres.weight, functional.normalize(found, dim=1), atol=1e-5)
    copied = make_case(toy_path, "ELCRec", "repeats", center_init=start).model
    copied.load_state_dict(model.state_dict())
    model.cluster_rows = copied.cluster_rows = None  # another clustering would fail
    model.on_train_epoch_start(rows, 1)
    copied.on_train_epoch_start(rows, 0)
    assert torch.equal(copied.centres.weight, model.centres.weight)


def test_scores_do_not_depend_on_centres(toy_path: Path) -> None:
    case = make_case(toy_path, "ELCRec")
    data = first_batch(case.test)
    before = case.model.eval().full_sort_predict(data)
    with torch.no_grad():
        case.model.centres.weight.neg_()
    assert torch.equal(case.model.full_sort_predict(data), before)


def test_parameter_count_on_toys() -> None:
    sizes = {"n_items": 11_925, "hidden_size": 64, "inner_size": 256, "MAX_ITEM_LIST_LENGTH": 50, "n_intents": 512}
    model = build(ELCRec, **{**OURS, **sizes})
    assert sum(p.numel() for p in model.parameters()) == 899_264
    # the authors' checkpoint: three layers, one row more (11,926)
    model = build(ELCRec, **{**OURS, **sizes, "n_layers": 3, "n_items": 11_926})
    assert sum(p.numel() for p in model.parameters()) == 949_312
