"""The example of docs/plug_in.md: PRISM's module in DuoRec, against PRISM's encodings and DuoRec's loss."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

from recbole_prism.model.functional.info_nce import info_nce
from recbole_prism.model.sequential_recommender.duorec import DuoRec
from recbole_prism.model.sequential_recommender.prism import PRISM
from recbole_prism.quick_start import load, run
from tests.model.helpers import batch, build

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SETTINGS = {"cl_similarity": "dot", "cl_temperature": 4.0, "cl_filter_same": False, "initializer_range": 0.1}


@pytest.fixture()
def plugged(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The example's class."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("duorec_with_prism").DuoRecWithPRISM


@pytest.mark.parametrize("fast_path", [True, False])
@pytest.mark.parametrize("n_layers", [2, 3])
def test_encodings_are_prisms_and_the_loss_duorecs(plugged: Any, fast_path: bool, n_layers: int) -> None:
    model = build(plugged, **SETTINGS, fast_path=fast_path, n_layers=n_layers)
    data = batch()
    for module in model.prism:
        module.router.noise = False  # every pass draws it anew
    prism = build(PRISM, **SETTINGS, aux_weight=0.0, fast_path=False, n_layers=n_layers, router_noise=False)
    weights = model.state_dict()
    prism.load_state_dict({name.replace("prism.", "modules_between.", 1): value for name, value in weights.items()})
    row, partner = (prism(data[f"{prefix}item_id_list"], data[f"{prefix}item_length"]) for prefix in ("", "partner_"))
    (expected_rec,) = prism.calculate_loss(data)
    parts = model.calculate_loss(data)
    assert parts.names == ("rec", "cl")
    assert float(parts[0].detach()) == pytest.approx(float(expected_rec.detach()), rel=1e-5)
    assert float(parts[1].detach()) == pytest.approx(0.1 * float(info_nce(row, partner, 4.0).detach()), rel=1e-4)
    assert torch.allclose(model.eval().full_sort_predict(data), prism.eval().full_sort_predict(data), atol=1e-5)


def test_the_module_comes_on_top(plugged: Any) -> None:
    """DuoRec's weights are those of DuoRec under the same seed; the rest has PRISM's size, and all of it learns."""
    sizes = {"n_items": 11_925, "hidden_size": 64, "inner_size": 256, "MAX_ITEM_LIST_LENGTH": 50}
    model, duorec = build(plugged, **sizes), build(DuoRec, **sizes).state_dict()
    assert all(torch.equal(model.state_dict()[name], weight) for name, weight in duorec.items())
    assert sum(p.numel() for p in model.parameters()) == 908_673
    sum(model.calculate_loss(batch())).backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.prism.parameters())


def test_the_module_takes_part_in_the_contrast(plugged: Any) -> None:
    """Of the contrast alone: gradient reaches router, boost and lenses."""
    model = build(plugged, **SETTINGS)
    model.calculate_loss(batch())[1].backward()
    reached = {name.split(".")[1] for name, p in model.prism.named_parameters() if p.grad.abs().max() > 0}
    assert reached == {"router", "beta", "value", "dense", "LayerNorm", "feed_forward"}


def test_it_trains_like_any_model(plugged: Any, toy_path: Path, tmp_path: Path) -> None:
    settings = {
        "data_path": str(toy_path), "checkpoint_dir": str(tmp_path), "device": "cpu", "epochs": 2,
        "MAX_ITEM_LIST_LENGTH": 12, "hidden_size": 16, "inner_size": 32,
    }  # fmt: skip
    result = run("duorec_with_prism:DuoRecWithPRISM", "cyclic", config_dict=settings)
    loaded = load(result["run_directory"], device="cpu")
    losses = [epoch["loss"] for epoch in loaded.history]
    assert set(losses[0]) >= {"rec", "cl"} and losses[1]["rec"] < losses[0]["rec"]
    assert isinstance(loaded.model, DuoRec) and len(loaded.model.prism) == 1
