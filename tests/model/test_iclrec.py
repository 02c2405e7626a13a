"""ICLRec: its losses by hand, the encodings they see, and what gets no gradient."""

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
from recbole_prism.model.functional.pooling import pool
from recbole_prism.model.sequential_recommender.iclrec import ICLRec
from recbole_prism.trainer.trainer import Trainer
from tests.contracts.conftest import make_case
from tests.model.helpers import batch, build, with_views
from tests.toy import write_inter

OURS = {
    "seqcl_weight": 1.0, "intentcl_weight": 1.0, "cl_temperature": 1.0, "cl_similarity": "dot",
    "aug_mask_token": "padding", "cl_filter_same": False,
}  # fmt: skip


def with_centres(n_intents: int = 5, **settings: Any) -> ICLRec:
    model = build(ICLRec, **{**OURS, **settings})
    model.centres.raw = torch.randn(n_intents, 16, generator=torch.Generator().manual_seed(9))
    return model


def views(n_rows: int = 6) -> Interaction:
    return with_views(batch(n_rows), mask_id=0)


@torch.no_grad()
def states(model: ICLRec, data: Interaction, prefix: str = "") -> tuple[Tensor, Tensor]:
    """States [B, w, d] of a branch, w the same for all, and lengths."""
    seq, length = data[f"{prefix}item_id_list"], data[f"{prefix}item_length"]
    return model.encode_padded(functional.pad(seq, (0, 12 - seq.shape[1])), length)[0], length


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("seqcl", ["concat_valid", "last"])
@pytest.mark.parametrize("intent", ["mean_valid", "last"])
@pytest.mark.parametrize("reuse", [True, False])
def test_parts_by_hand(filtered: bool, seqcl: str, intent: str, reuse: bool) -> None:
    model = with_centres(cl_filter_same=filtered, seqcl_pooling=seqcl, intent_pooling=intent, reuse_views=reuse)
    data = views()
    parts = model.calculate_loss(data)
    assert parts.names == ("rec", "seqcl", "intentcl")
    row, first, second = (states(model, data, prefix) for prefix in ("", "view_1_", "view_2_"))
    expected = info_nce(pool(*first, seqcl), pool(*second, seqcl))
    assert float(parts[1].detach()) == pytest.approx(float(expected), rel=1e-5)
    nearest = [min(range(5), key=lambda k: float((h - model.centres.raw[k]).norm())) for h in pool(*row, intent)]
    centres = torch.stack([model.centres.raw[k] / model.centres.raw[k].norm() for k in nearest])
    labels = torch.tensor(nearest) if filtered else None
    contrasts = [float(info_nce(pool(*view, intent), centres, labels=labels)) for view in (first, second)]
    assert float(parts[2].detach()) == pytest.approx(sum(contrasts) / 2, rel=1e-5)


def test_published_poolings_on_the_plain_path() -> None:
    model = with_centres(seqcl_pooling="concat_all", intent_pooling="mean_all", fast_path=False)
    data = views()
    wide = {name: functional.pad(v, (0, 12 - v.shape[1])) for name, v in data.interaction.items() if v.ndim == 2}
    data = Interaction({**data.interaction, **wide})
    parts = model.calculate_loss(data)
    (first, _), (second, _), (row, _) = (states(model, data, prefix) for prefix in ("view_1_", "view_2_", ""))
    assert float(parts[1].detach()) == pytest.approx(float(info_nce(first.flatten(1), second.flatten(1))), rel=1e-5)
    centres = model.centres.directions(model.centres.nearest(row.mean(1)))
    contrasts = [float(info_nce(view.mean(1), centres)) for view in (first, second)]
    assert float(parts[2].detach()) == pytest.approx(sum(contrasts) / 2, rel=1e-5)


def test_weights_scale_their_parts_and_remove_them() -> None:
    data, full = views(), with_centres().calculate_loss(views())
    sequence = with_centres(seqcl_weight=0.5, intentcl_weight=0.0).calculate_loss(data)
    intent = with_centres(seqcl_weight=0.0, intentcl_weight=0.25).calculate_loss(data)
    assert sequence.names == ("rec", "seqcl") and intent.names == ("rec", "intentcl")
    assert float(sequence[1].detach()) == pytest.approx(0.5 * float(full[1].detach()))
    assert float(intent[1].detach()) == pytest.approx(0.25 * float(full[2].detach()))
    assert not ICLRec.needs({"seqcl_weight": 0.0, "intentcl_weight": 0.0})
    assert ICLRec.needs({"seqcl_weight": 0.0, "intentcl_weight": 0.1}) == {"view_1", "view_2"}


def test_one_cluster_and_filtering_leave_no_negatives() -> None:
    assert float(with_centres(n_intents=1, cl_filter_same=True).calculate_loss(views())[2].detach()) == 0.0


def test_neither_centres_nor_the_row_that_chooses_them_get_a_gradient() -> None:
    """With views of other items than the rows', only the items of the views move."""
    model = with_centres(seqcl_weight=0.0)
    data = views()
    for name in ("view_1_item_id_list", "view_2_item_id_list"):
        data.interaction[name] = torch.where(data[name] > 0, data[name] % 9 + 1, 0)
    data.interaction["item_id_list"] = torch.where(data["item_id_list"] > 0, data["item_id_list"] % 9 + 15, 0)
    before = model.centres.raw.clone()
    model.calculate_loss(data)[1].backward()
    gradient = model.item_embedding.weight.grad.abs().sum(dim=1)
    assert gradient[1:10].sum() > 0 and gradient[10:].sum() == 0
    assert torch.equal(model.centres.raw, before) and not model.centres.raw.requires_grad


def test_reuse_encodes_views_once() -> None:
    lengths = []
    for settings in ({}, {"reuse_views": False}, {"reuse_views": False, "seqcl_weight": 0.0}):
        model = with_centres(**settings)
        encode = model.encode_states
        model.encode_states = lambda branches, encode=encode: lengths.append(len(branches)) or encode(branches)
        model.calculate_loss(views())
    assert lengths == [3, 5, 3]


def test_the_mask_token_is_a_parameter_only_where_it_is_shown() -> None:
    count = {
        token: sum(p.numel() for p in build(ICLRec, **{**OURS, "aug_mask_token": token}).parameters())
        for token in ("padding", "mask")
    }
    assert count["mask"] - count["padding"] == 16
    model = build(
        ICLRec, n_items=11_925, hidden_size=64, inner_size=256, MAX_ITEM_LIST_LENGTH=50, aug_mask_token="padding"
    )
    assert sum(p.numel() for p in model.parameters()) == 866_496


def test_clusters_separate_two_communities(tmp_path: Path) -> None:
    """Users of items 0-9 and users of items 10-19: after some epochs two clusters are these."""
    events = [
        (f"u{user}", f"i{10 * (user % 2) + (user // 2 + 3 * step) % 10}", user + 40 * step)
        for user in range(24)
        for step in range(7)
    ]
    write_inter(tmp_path, "communities", events)
    settings = {"n_intents": 2, "epochs": 10, "learning_rate": 0.01, "kmeans_restarts": 5, "kmeans_warm_start": False}
    case = make_case(tmp_path, "ICLRec", "communities", **settings)
    Trainer(case.config, case.model).fit(case.train, case.valid, verbose=False)
    dataset = case.train.dataset
    found = case.model.centres.nearest(case.model.represent_rows(dataset, np.arange(len(dataset)), "mean_valid"))
    tokens = dataset.id2token("user_id", dataset.rows.user)
    community = torch.tensor([int(token[1:]) % 2 for token in tokens])
    agreement = float((found == community).float().mean())
    assert max(agreement, 1 - agreement) > 0.95
