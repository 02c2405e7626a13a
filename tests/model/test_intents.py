"""The E-step that ICLRec, ICSRec and ELCRec share: which rows, when, in what mode, and what it leaves untouched."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recbole_prism.errors import ConfigError
from recbole_prism.model.functional.pooling import pool
from recbole_prism.model.sequential_recommender import intents
from recbole_prism.model.sequential_recommender.iclrec import ICLRec
from recbole_prism.model.sequential_recommender.intents import estep_index
from tests.contracts.conftest import Case, make_case
from tests.model.helpers import build


@pytest.mark.parametrize("fast_path", [True, False])
@pytest.mark.parametrize("pooling", ["last", "mean_valid"])
def test_representations_are_those_of_each_row_alone(
    toy_path: Path, monkeypatch: pytest.MonkeyPatch, pooling: str, fast_path: bool
) -> None:
    """Windows longer than T included, in chunks, in the order asked for."""
    monkeypatch.setattr(intents, "_CHUNK", 7)
    case = make_case(toy_path, "ICLRec", "repeats", MAX_ITEM_LIST_LENGTH=5, fast_path=fast_path)
    model, rows = case.model, case.train.dataset
    index = np.random.default_rng(0).permutation(len(rows))[:150]
    found = model.represent_rows(rows, index, pooling)
    assert int((rows.rows.end - rows.rows.start).max()) == 5
    model.eval()
    with torch.no_grad():
        for row, representation in zip(index, found):
            items, length = rows.windows(np.array([row]))
            expected = pool(model.encode_padded(items, length)[0], length, pooling)[0]
            assert torch.allclose(representation, expected, atol=1e-5)


def test_published_pooling_averages_over_all_t_positions(toy_path: Path) -> None:
    case = make_case(toy_path, "ICLRec", intent_pooling="mean_all", fast_path=False)
    model, rows = case.model.eval(), case.train.dataset
    items, length = rows.windows(np.array([3]), 12)
    expected = model.encode_padded(items, length)[0].mean(dim=1)
    assert torch.allclose(model.represent_rows(rows, np.array([3]), "mean_all"), expected, atol=1e-6)
    assert case.config.properties.fixed_width and next(iter(case.train))["view_1_item_id_list"].shape[1] == 12


@pytest.mark.parametrize("key", ["intent_pooling", "seqcl_pooling"])
def test_published_poolings_and_the_fast_path_exclude_each_other(key: str) -> None:
    value = "mean_all" if key == "intent_pooling" else "concat_all"
    with pytest.raises(ConfigError, match=f"{key}: {value} looks at padding"):
        build(ICLRec, **{key: value})
    build(ICLRec, **{key: value}, fast_path=False)


def test_one_row_per_user_is_the_one_before_the_last_training_target(toy_path: Path) -> None:
    case = make_case(toy_path, "ICLRec", "repeats")
    dataset = case.train.dataset
    index = estep_index(dataset.rows, "user_last")
    assert len(set(dataset.rows.user[index].tolist())) == len(index) == len(set(dataset.rows.user.tolist()))
    items, offsets = dataset.user_histories()
    for row in index:
        user = dataset.rows.user[row]
        history = items[offsets[user] : offsets[user + 1]]
        # validation and test take the last two of at least four events; the third last is the row's target
        n_held_out = 2 if len(history) >= 4 else len(history) - 2
        assert dataset.rows.end[row] == offsets[user] + len(history) - n_held_out - 1
        assert dataset.rows.target[row] == history[len(history) - n_held_out - 1]
    assert estep_index(dataset.rows, "all").tolist() == list(range(len(dataset)))


def epochs_with_e_step(case: Case, epochs: int) -> list[int]:
    ran: list[int] = []
    cluster = case.model.cluster_rows
    case.model.cluster_rows = lambda rows, epoch, *rest: ran.append(epoch) or cluster(rows, epoch, *rest)
    for epoch in range(epochs):
        case.model.on_train_epoch_start(case.train.dataset, epoch)
    return ran


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"estep_every": 2}, [0, 2, 4]),
        ({"estep_warmup": 3}, [3, 4]),
        ({"estep_warmup": 1, "estep_every": 3}, [1, 4]),
        ({"intentcl_weight": 0.0}, []),
    ],
)
def test_schedule(toy_path: Path, settings: dict[str, Any], expected: list[int]) -> None:
    case = make_case(toy_path, "ICLRec", kmeans_iters=1, **settings)
    case.model.centres.raw = torch.empty(0)
    assert epochs_with_e_step(case, 5) == expected


def test_no_intents_during_warm_up(toy_path: Path) -> None:
    case = make_case(toy_path, "ICLRec", estep_warmup=1)
    assert case.model.calculate_loss(next(iter(case.train))).names == ("rec", "seqcl")
    case.model.on_train_epoch_start(case.train.dataset, 1)
    assert case.model.calculate_loss(next(iter(case.train))).names == ("rec", "seqcl", "intentcl")


@pytest.mark.parametrize("warm", [True, False])
def test_warm_start_key(toy_path: Path, warm: bool) -> None:
    case = make_case(toy_path, "ICLRec", kmeans_warm_start=warm, kmeans_iters=1)
    asked = []
    fit = type(case.model.kmeans).fit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            type(case.model.kmeans),
            "fit",
            lambda kmeans, points, seed, init: asked.append((seed, init)) or fit(kmeans, points, seed, init),
        )
        before = case.model.centres.raw
        case.model.on_train_epoch_start(case.train.dataset, 1)
        case.model.on_train_epoch_start(case.train.dataset, 2)
    assert (asked[0][1] is before) if warm else (asked[0][1] is None)
    assert asked[0][0] != asked[1][0]  # other random starts in other epochs


def test_global_generators_and_mode_stay_as_they_are(toy_path: Path) -> None:
    case = make_case(toy_path, "ICLRec", hidden_dropout_prob=0.5)
    case.model.train()
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    case.model.on_train_epoch_start(case.train.dataset, 1)
    assert case.model.training
    assert random.getstate() == before[0] and np.random.get_state()[1].tolist() == before[1]
    assert torch.equal(torch.get_rng_state(), before[2])
    first = case.model.centres.raw
    case.model.on_train_epoch_start(case.train.dataset, 1)  # no dropout: from its own centres it moves on, or stays
    assert torch.isfinite(first).all()


def test_an_unchanged_model_never_raises_the_inertia(toy_path: Path) -> None:
    case = make_case(toy_path, "ICLRec", kmeans_iters=1)
    model, rows = case.model, case.train.dataset
    points = model.represent_rows(rows, estep_index(rows.rows, "user_last"), "mean_valid").double()

    def inertia() -> float:
        return float(torch.cdist(points, model.centres.raw.double()).square().min(dim=1).values.sum())

    values = [inertia()]
    for epoch in range(1, 6):
        model.on_train_epoch_start(rows, epoch)
        values.append(inertia())
    assert all(after <= before * (1 + 1e-6) for before, after in zip(values, values[1:]))
    assert values[-1] < values[0]


def test_centres_are_resumed_and_copied(toy_path: Path) -> None:
    case, other = (make_case(toy_path, "ICSRec") for _ in range(2))
    other.model.centres.raw = torch.empty(0)
    assert other.model.resume_state() == {}
    other.model.load_resume_state(case.model.resume_state())
    assert torch.equal(other.model.centres.raw, case.model.centres.raw)
    assert torch.equal(copy.deepcopy(case.model).centres.raw, case.model.centres.raw)


def test_usage_of_the_intents_is_told_once_per_epoch(toy_path: Path) -> None:
    case = make_case(toy_path, "ICSRec", n_intents=3)
    case.model.centres.raw[1:] = 1e6  # nobody is near
    case.model.calculate_loss(next(iter(case.train)))
    assert case.model.epoch_scalars() == {"intents_used": 1.0, "largest_intent": 1.0}
    assert case.model.epoch_scalars() == {}
