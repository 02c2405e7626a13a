"""Small models and batches for the tests of the model room."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np
import pytest
import torch
from recbole.data.interaction import Interaction
from torch import Tensor

from recbole_prism.model.functional.augment import N_ROW_DRAWS, OPERATORS, Augmentation
from recbole_prism.model.functional.cloze import append_item, mask_items, mask_items_as_recbole

BASE: dict[str, Any] = {
    "USER_ID_FIELD": "user_id", "ITEM_ID_FIELD": "item_id", "LIST_SUFFIX": "_list", "NEG_PREFIX": "neg_",
    "ITEM_LIST_LENGTH_FIELD": "item_length", "MAX_ITEM_LIST_LENGTH": 12, "device": torch.device("cpu"),
    "n_layers": 2, "n_heads": 2, "hidden_size": 16, "inner_size": 32, "hidden_dropout_prob": 0.0,
    "attn_dropout_prob": 0.0, "hidden_act": "gelu", "layer_norm_eps": 1e-12, "initializer_range": 0.5,
    "loss_type": "CE", "fast_path": True,
    "seed": 0, "n_intents": 5, "estep_rows": "all", "estep_every": 1, "estep_warmup": 0, "kmeans_backend": "auto",
    "kmeans_iters": 5, "kmeans_restarts": 1, "kmeans_warm_start": True, "cicl_weight": 0.1, "ficl_weight": 0.1,
    "reuse_anchor": False, "seqcl_weight": 0.1, "intentcl_weight": 0.1, "cluster_weight": 0.1, "reuse_views": True,
    "seqcl_pooling": "concat_valid", "intent_pooling": "mean_valid", "intent_fusion": "concat", "center_init": "kmeans",
    "backbone": "sasrec", "cloze": "repaired", "mask_ratio": 0.4, "ft_ratio": 0.5,
    "n_lenses": 4, "aux_weight": 0.1, "cl_temperature": 0.1, "cl_similarity": "cosine", "perspective_dropout": 0.25,
    "boost_form": "scaled", "boost_norm": "visible", "boost_center": False, "lens_value": "own", "lens_residual": True,
    "lens_scope": "all", "views": "both", "router_noise": True, "spcl": True, "same_target": True, "spm": True,
    "spcl_negatives": "both_views", "cl_filter_same": True, "spcl_anchor": "shared", "spm_level": "position",
    "ccl": True, "ccl_reduction": "sum", "ccl_targets": "all", "ccl_target_grad": True, "partner_exclude": "row",
    "cl_weight": 0.1, "aug_mask_token": "mask", "contrast": "us_x", "dropout_cl_weight": 0.1,
}  # fmt: skip


class Settings(dict):
    """A config as far as models read it: a missing key is an error."""


class Counts:
    """A data set as far as models read it."""

    def __init__(self, n_items: int = 30) -> None:
        self.n_items = n_items

    def num(self, field: str) -> int:
        return {"item_id": self.n_items, "user_id": 9}[field]


def build(model_class: type, seed: int = 0, n_items: int = 30, **overrides: Any) -> Any:
    """A model with small sizes and large random weights (so that differences show)."""
    torch.manual_seed(seed)
    return model_class(Settings({**BASE, **overrides}), Counts(n_items))


def sequences(
    n_rows: int, width: int, n_items: int, seed: int = 1, lengths: Optional[list[int]] = None
) -> tuple[Tensor, Tensor]:
    """Right-padded item ids [B, width] and lengths [B], lengths 1..width."""
    generator = torch.Generator().manual_seed(seed)
    if lengths is None:
        length = torch.randint(1, width + 1, (n_rows,), generator=generator)
    else:
        length = torch.tensor(lengths)
    items = torch.randint(1, n_items, (n_rows, width), generator=generator)
    return items * (torch.arange(width) < length[:, None]), length


def batch(n_rows: int = 7, width: int = 12, n_items: int = 30, seed: int = 1) -> Interaction:
    """A training batch with partners."""
    item_seq, length = sequences(n_rows, width, n_items, seed)
    partner_seq, partner_length = sequences(n_rows, width, n_items, seed + 1)
    targets = torch.randint(1, n_items, (n_rows,), generator=torch.Generator().manual_seed(seed + 2))
    return Interaction(
        {
            "user_id": torch.arange(1, n_rows + 1), "item_id": targets, "item_id_list": item_seq, "item_length": length,
            "row_id": torch.arange(n_rows), "partner_row_id": torch.arange(n_rows),
            "partner_item_id_list": partner_seq, "partner_item_length": partner_length,
        }
    )  # fmt: skip


def with_views(data: Interaction, n_items: int = 30, seed: int = 5, **settings: Any) -> Interaction:
    """The batch with two augmented views of each history, masked items by default the id `n_items`."""
    values = {"types": OPERATORS, "crop_ratio": 0.6, "mask_ratio": 0.5, "reorder_ratio": 0.6, "mask_id": n_items}
    augmentation = Augmentation(**{**values, "distinct": True, **settings})
    items, lengths = data["item_id_list"].numpy(), data["item_length"].numpy()
    draws = np.random.default_rng(seed).random((2, len(items), N_ROW_DRAWS + items.shape[1]))
    views = augmentation.two_views(items, lengths, *draws)
    fields = dict(data.interaction)
    for number, (view_items, view_lengths) in enumerate(views, start=1):
        fields[f"view_{number}_item_id_list"] = torch.from_numpy(view_items)
        fields[f"view_{number}_item_length"] = torch.from_numpy(view_lengths)
    return Interaction(fields)


def cloze_batch(style: str = "repaired", seed: int = 1, width: int = 12, n_items: int = 30) -> Interaction:
    """A training batch of 9 rows with partners and the cloze task; `width` is T."""
    data = batch(9, width, n_items, seed)
    seq, lengths = data["item_id_list"], data["item_length"]
    generator = torch.Generator().manual_seed(seed)
    last_only = torch.rand(9, generator=generator) < 0.3
    if style == "repaired":
        seq, lengths = append_item(seq, lengths, data["item_id"], width)
    task = seq, lengths, last_only, torch.rand(seq.shape, generator=generator), 0.4, n_items
    masked, labels = mask_items_as_recbole(*task, width) if style == "recbole" else mask_items(*task)
    fields = {"cloze_item_id_list": masked, "cloze_item_length": lengths, "cloze_labels": labels}
    return Interaction({**data.interaction, **fields})


def assert_equals_stock(ours: Any, stock: Any) -> None:
    """Same names, same weights, same loss, gradients and scores of a batch, in training and in evaluation mode."""
    data = batch()
    (loss,) = ours.calculate_loss(data)
    stock_loss = stock.calculate_loss(data)
    assert float(loss.detach()) == pytest.approx(float(stock_loss.detach()), abs=1e-6)
    loss.backward()
    stock_loss.backward()
    stock_parameters = dict(stock.named_parameters())
    assert [name for name, _ in ours.named_parameters()] == list(stock_parameters)
    for name, parameter in ours.named_parameters():
        assert torch.equal(parameter, stock_parameters[name])
        assert torch.allclose(parameter.grad, stock_parameters[name].grad, atol=1e-6), name
    ours.eval()
    stock.eval()
    assert torch.allclose(ours.full_sort_predict(data), stock.full_sort_predict(data), atol=1e-6)
    assert torch.allclose(ours.predict(data), stock.predict(data), atol=1e-6)
