"""A training step never waits for a GPU: it runs on tensors without values, on which every look at a value raises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from recbole.data.interaction import Interaction
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode

from recbole_prism.config import Config
from recbole_prism.model.functional.host_copy import keep_host_copy

LENGTHS = np.array([1, 2, 3, 4, 5, 5, 6, 7])
WIDTH, N_ITEMS = 8, 41


class Counts:
    """What a model asks of a data set."""

    def num(self, field: str) -> int:
        return N_ITEMS


def batch_without_values(host_copies: bool) -> Interaction:
    fields = {"item_id": keep_host_copy(torch.ones(len(LENGTHS), dtype=torch.int64), LENGTHS)}
    for prefix in ("", "partner_", "view_1_", "view_2_", "cloze_"):
        fields[f"{prefix}item_id_list"] = torch.ones(len(LENGTHS), WIDTH, dtype=torch.int64)
        fields[f"{prefix}item_length"] = torch.ones(len(LENGTHS), dtype=torch.int64)
        if host_copies:
            keep_host_copy(fields[f"{prefix}item_length"], LENGTHS)
    labels = np.where(np.arange(WIDTH) == LENGTHS[:, None] - 1, 3, 0)  # each row's last item was masked
    fields["cloze_labels"] = keep_host_copy(torch.ones(labels.shape, dtype=torch.int64), labels)
    return Interaction(fields)


def model_without_values(name: str, **settings: Any) -> Any:
    config = Config(
        name, "ml-100k", config_dict={"device": "cpu", "hidden_size": 16, "inner_size": 32, "n_layers": 3, **settings}
    )
    model = config.model_class(config, Counts()).train()
    if name in ("ICSRec", "ICLRec"):
        model.centres.raw = torch.ones(5, 16)  # as an E-step leaves them
    return model


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("SASRec", {}),
        ("PRISM", {}),
        ("PRISM", {"spcl_anchor": "fresh", "boost_center": True}),
        ("PRISM", {"backbone": "bert4rec"}),
        ("PRISM", {"ccl_targets": "unique"}),
        ("BERT4Rec", {}),
        ("CL4SRec", {}),
        ("CL4SRec", {"aug_mask_token": "padding"}),
        ("DuoRec", {}),
        ("DuoRec", {"contrast": "us", "cl_filter_same": True}),
        ("ACSASRec", {}),
        ("ACSASRec", {"combine_option": "annealing"}),
        ("FAME", {}),
        ("ELCRec", {}),
        ("ICSRec", {}),
        ("ICLRec", {}),
        ("IOCRec", {}),
        ("FamouSRec", {"third_expert": "conv"}),  # torch's GRU reads sizes that stand on the CPU, here without values
    ],
)
def test_a_step_looks_at_no_value(name: str, settings: dict[str, Any]) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):
        loss = sum(model_without_values(name, **settings).calculate_loss(batch_without_values(host_copies=True)))
        loss.backward()
    assert loss.shape == ()


def test_the_test_can_fail() -> None:
    """Without lengths on the CPU packing must read them; `nonzero` must look at values."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        with pytest.raises(RuntimeError):
            model_without_values("SASRec").calculate_loss(batch_without_values(host_copies=False))
        with pytest.raises(DynamicOutputShapeException):
            torch.nonzero(torch.ones(3))
