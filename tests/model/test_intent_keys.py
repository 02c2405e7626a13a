"""Every setting of the intent models changes what it names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.contracts.conftest import make_case

ESTEP: dict[str, Any] = {"n_intents": 3, "kmeans_iters": 1, "kmeans_restarts": 4}
CONTRAST: dict[str, Any] = {"cl_temperature": 0.5, "cl_similarity": "cosine"}
VIEWS: dict[str, Any] = {
    "aug_types": ["crop"], "aug_distinct": True, "aug_crop_ratio": 0.9, "aug_mask_ratio": 0.1, "aug_reorder_ratio": 0.9,
}  # fmt: skip
WEIGHTS = {"seqcl_weight": 0.2, "intentcl_weight": 0.2}
POOLINGS = {"seqcl_pooling": "last", "intent_pooling": "last"}
CHANGES: dict[str, dict[str, Any]] = {
    "ICLRec": {
        **ESTEP, **CONTRAST, **VIEWS, **WEIGHTS, **POOLINGS, "aug_mask_token": "mask", "estep_rows": "all",
        "cl_filter_same": True, "estep_warmup": 1,
    },
    "ELCRec": {
        **ESTEP, **CONTRAST, **VIEWS, **WEIGHTS, **POOLINGS, "aug_mask_token": "mask", "cluster_weight": 0.5,
        "intent_fusion": "shift", "center_init": "random", "cl_filter_same": True,
    },
    "ICSRec": {
        **ESTEP, **CONTRAST, "cicl_weight": 0.2, "ficl_weight": 0.2, "cl_filter_same": False, "estep_rows": "user_last",
        "partner_sampling": "last", "partner_exclude": "row",
    },
    "IOCRec": {
        **CONTRAST, **VIEWS, "aug_mask_token": "padding", "cl_weight": 0.2, "n_intents": 3, "intent_norm_eps": 1e-3,
        "intent_agg": "sum",
    },
}  # fmt: skip


CLUSTERS = {"n_intents": 5, "kmeans_iters": 3}
BASE: dict[str, dict[str, Any]] = {"ICLRec": CLUSTERS, "ELCRec": CLUSTERS, "ICSRec": CLUSTERS, "IOCRec": {}}


def loss(path: Path, model: str, **settings: Any) -> list[float]:
    """Parts of three batches: one alone may hold no row that a setting concerns."""
    case = make_case(path, model, "repeats", **{"MAX_ITEM_LIST_LENGTH": 8, **BASE[model], **settings})
    case.model.train()
    torch.manual_seed(0)
    return [float(part.detach()) for _, batch in zip(range(3), case.train) for part in case.model.calculate_loss(batch)]


@pytest.mark.parametrize("model", list(CHANGES))
def test_each_key_changes_the_loss(toy_path: Path, model: str) -> None:
    default = loss(toy_path, model)
    assert loss(toy_path, model) == default
    without_effect = [key for key, value in CHANGES[model].items() if loss(toy_path, model, **{key: value}) == default]
    assert not without_effect
