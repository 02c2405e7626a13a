"""DuoRec: its modes against encodings of SASRec, its partners, and what a weight of 0 leaves."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from recbole.data.interaction import Interaction

from recbole_prism.data.loader import STREAM_PARTNER
from recbole_prism.data.same_target import SameTargetIndex
from recbole_prism.data.splits import Rows
from recbole_prism.errors import ConfigError
from recbole_prism.model.functional.info_nce import info_nce
from recbole_prism.model.functional.random_hash import hash_uniform
from recbole_prism.model.sequential_recommender.duorec import CONTRASTS, DuoRec
from recbole_prism.model.sequential_recommender.sasrec import SASRec
from tests.contracts.conftest import make_case
from tests.model.helpers import batch, build
from tests.model.test_functional import double_loop_info_nce

DUO = {"cl_similarity": "dot", "cl_temperature": 4.0, "cl_filter_same": False, "initializer_range": 0.1}
DROPOUT = {"hidden_dropout_prob": 0.5, "attn_dropout_prob": 0.5}


def duorec(**settings: Any) -> DuoRec:
    return build(DuoRec, **{**DUO, **settings})


def sasrec_like(model: DuoRec) -> SASRec:
    oracle = build(SASRec, fast_path=False)
    oracle.load_state_dict(model.state_dict())
    return oracle


@pytest.mark.parametrize("fast_path", [True, False])
@pytest.mark.parametrize(
    "settings",
    [
        {}, {"cl_temperature": 1.0}, {"cl_similarity": "cosine"}, {"cl_weight": 0.4}, {"cl_filter_same": True},
        {"contrast": "un"}, {"contrast": "un", "dropout_cl_weight": 0.3}, {"contrast": "su"}, {"contrast": "us"},
        {"contrast": "us", "cl_weight": 0.0}, {"contrast": "us", "dropout_cl_weight": 0.0},
    ],
    ids=str,
)  # fmt: skip
def test_loss_is_the_sum_of_its_definition(fast_path: bool, settings: dict[str, Any]) -> None:
    """Without dropout h = z_u, so each mode's value follows from h and z_s, encoded separately."""
    model = duorec(fast_path=fast_path, **settings)
    data = batch()
    data["item_id"][1] = data["item_id"][4]  # two rows share a target
    oracle = sasrec_like(model)
    row = oracle(data["item_id_list"], data["item_length"]).detach().double()
    partner = oracle(data["partner_item_id_list"], data["partner_item_length"]).detach().double()
    chosen = {"contrast": "us_x", "cl_weight": 0.1, "dropout_cl_weight": 0.1, **DUO, **settings}
    labels = data["item_id"].tolist() if chosen["cl_filter_same"] else list(range(7))

    def contrast(other: torch.Tensor) -> float:
        tau, similarity = chosen["cl_temperature"], chosen["cl_similarity"]
        return double_loop_info_nce(row, other, tau, similarity, labels, "both_views")

    semantic, dropout = chosen["cl_weight"] * contrast(partner), chosen["dropout_cl_weight"] * contrast(row)
    expected = {
        "us_x": {"cl": semantic}, "su": {"cl": semantic}, "un": {"dropout_cl": dropout},
        "us": {"dropout_cl": dropout, "cl": semantic},
    }[chosen["contrast"]]  # fmt: skip
    expected = {name: value for name, value in expected.items() if value > 0}
    parts = model.calculate_loss(data)
    values = dict(zip(parts.names, (float(part.detach()) for part in parts)))
    (rec,) = oracle.calculate_loss(data)
    assert values == pytest.approx({"rec": float(rec.detach()), **expected}, rel=1e-5)


def test_which_passes_are_contrasted() -> None:
    """With dropout h, z_u and z_s differ: `us_x` leaves h out, so h of a model in `su` is another vector than z_u."""
    model = duorec(**DROPOUT, fast_path=False)
    seen: list[tuple[torch.Tensor, ...]] = []
    encode = model.encode
    model.encode = lambda branches: seen.append(encode(branches)) or seen[-1]
    for mode, pairs in {"un": [(0, 1)], "su": [(0, 1)], "us": [(0, 1), (0, 2)], "us_x": [(1, 2)]}.items():
        model.terms = [(term, 0.1) for term in CONTRASTS[mode]]
        _, *contrasts = model.calculate_loss(batch())
        assert [float(part.detach()) for part in contrasts] == pytest.approx(
            [0.1 * float(info_nce(seen[-1][a], seen[-1][b], 4.0).detach()) for a, b in pairs]
        )
        assert len(seen[-1]) == max(map(max, pairs)) + 1
    assert not torch.allclose(seen[-1][0], seen[-1][1])  # the two passes of one history


@pytest.mark.parametrize("fast_path", [True, False])
@pytest.mark.parametrize(
    "off",
    [
        {"contrast": "none"}, {"cl_weight": 0.0}, {"contrast": "su", "cl_weight": 0.0},
        {"contrast": "un", "dropout_cl_weight": 0.0}, {"contrast": "us", "cl_weight": 0.0, "dropout_cl_weight": 0.0},
    ],
    ids=str,
)  # fmt: skip
def test_without_contrast_it_is_sasrec(fast_path: bool, off: dict[str, Any]) -> None:
    """In training mode with dropout: parameters, loss, gradients and scores, bit by bit; no partner is asked for."""
    results = []
    for model_class in (SASRec, DuoRec):
        model = build(model_class, **{**DUO, **DROPOUT, "fast_path": fast_path, **off})
        torch.manual_seed(3)
        (loss,) = model.calculate_loss(without_partner(batch()))
        loss.backward()
        torch.manual_seed(4)
        results.append([loss, model.full_sort_predict(batch()), *(p.grad for p in model.parameters())])
        results[-1] += list(model.parameters())
    assert len(results[0]) == len(results[1])
    assert all(torch.equal(a, b) for a, b in zip(*results))
    assert DuoRec.needs({"contrast": "us_x", "cl_weight": 0.1, "dropout_cl_weight": 0.1, **off}) == frozenset()


def without_partner(data: Interaction) -> Interaction:
    return Interaction({name: value for name, value in data.interaction.items() if not name.startswith("partner")})


def test_us_x_has_no_use_for_the_dropout_weight_and_un_none_for_partners() -> None:
    losses = []
    for weight in (0.1, 5.0):
        torch.manual_seed(3)
        losses.append(duorec(**DROPOUT, dropout_cl_weight=weight).calculate_loss(batch()))
    assert all(torch.equal(a, b) for a, b in zip(*losses))
    weights = {"cl_weight": 0.1, "dropout_cl_weight": 0.1}
    wants = {mode for mode in CONTRASTS if DuoRec.needs({"contrast": mode, **weights}) == {"partner"}}
    assert wants == {"su", "us", "us_x"}
    assert len(duorec(contrast="un").calculate_loss(without_partner(batch()))) == 2


def test_rows_without_partner_and_without_dropout() -> None:
    """The partner is then the row itself: z_u = z_s, and the contrast is that of h with itself."""
    data = batch()
    for name in ("item_id_list", "item_length"):
        data.interaction[f"partner_{name}"] = data[name]
    model = duorec()
    _, again, partner = model.encode([(data["item_id_list"], data["item_length"])] * 3)
    assert torch.equal(again, partner)
    hidden = model(data["item_id_list"], data["item_length"])
    assert float(model.calculate_loss(data)[1].detach()) == pytest.approx(
        0.1 * float(info_nce(hidden, hidden, 4.0).detach()), rel=1e-6
    )


def test_gradient_reaches_items_of_partner_histories() -> None:
    """Of the contrast alone: the cross-entropy moves every item."""
    data = batch(n_items=15)  # ids up to 14 in the rows
    data.interaction["partner_item_id_list"] = data["partner_item_id_list"] + 14 * (data["partner_item_id_list"] > 0)
    model = duorec()
    model.calculate_loss(data)[1].backward()
    moved = model.item_embedding.weight.grad.abs().amax(dim=1) > 0
    histories = torch.cat([data["item_id_list"].flatten(), data["partner_item_id_list"].flatten()]).unique()
    assert torch.nonzero(moved).squeeze(1).tolist() == histories[histories > 0].tolist()
    assert int(moved[15:].sum()) > 0


def test_parameters_and_scores_are_sasrecs() -> None:
    """No parameter more; in evaluation nothing asks for a partner."""
    model = duorec(n_items=11_925, hidden_size=64, inner_size=256, MAX_ITEM_LIST_LENGTH=50)
    assert sum(p.numel() for p in model.parameters()) == 866_496
    model = duorec().eval()
    data = without_partner(batch())
    assert torch.allclose(model.full_sort_predict(data), sasrec_like(model).eval().full_sort_predict(data), atol=1e-5)


def test_a_batch_without_partners_is_refused() -> None:
    with pytest.raises(ConfigError, match="lacks partner_item_id_list, partner_item_length"):
        duorec().calculate_loss(without_partner(batch()))


def test_an_unknown_mode_is_refused(toy_path: Path) -> None:
    with pytest.raises(ConfigError, match="contrast is 'us_y'.*expected one of us_x, un, su, us, none"):
        make_case(toy_path, "DuoRec", contrast="us_y")


def test_partners_over_the_epochs(toy_path: Path) -> None:
    """Same target, never the row itself if there is another, each other row of a group of ten equally often."""
    train = make_case(toy_path, "DuoRec", "repeats").train
    targets = train.dataset.rows.target
    group = np.flatnonzero(targets == np.bincount(targets).argmax())[:10]
    index = SameTargetIndex(np.where(np.isin(np.arange(len(targets)), group), 1000, targets))
    row, n = group[3], 4500
    drawn = Counter(
        int(index.draw(group[3:4], hash_uniform(2020, epoch, group[3:4], STREAM_PARTNER))[0]) for epoch in range(n)
    )
    assert set(drawn) == set(group) - {row}
    chi2 = sum((count - n / 9) ** 2 / (n / 9) for count in drawn.values())
    assert chi2 < 33  # 8 degrees of freedom: above with probability 6e-5


def test_a_row_alone_is_its_own_partner(toy_path: Path) -> None:
    """Data set "short": users share no target at the same place, some targets occur once."""
    train = make_case(toy_path, "DuoRec", "short").train
    targets = train.dataset.rows.target
    alone = np.flatnonzero(np.bincount(targets)[targets] == 1)
    assert len(alone)
    for data in train:
        for place in np.flatnonzero(np.isin(data["row_id"].numpy(), alone)):
            n = int(data["item_length"][place])
            assert int(data["partner_item_length"][place]) == n
            assert torch.equal(data["partner_item_id_list"][place, :n], data["item_id_list"][place, :n])


def test_no_row_of_validation_or_test_is_a_partner(toy_path: Path) -> None:
    """An event is a user's n-th; an index over all rows, as a counter-example, does contain events of both parts."""
    case = make_case(toy_path, "DuoRec")
    train, held_out = case.train.dataset, [part.dataset for part in (case.valid, case.test)]

    def events(rows: Rows) -> set[tuple[int, int]]:
        return set(zip(rows.user.tolist(), rows.end.tolist()))

    def indexed(rows: Rows, index: SameTargetIndex) -> set[tuple[int, int]]:
        return events(rows.take(np.sort(index.order)))

    later = set().union(*(events(part.rows) for part in held_out))
    assert len(later) == sum(len(part.rows) for part in held_out)
    assert case.train.partners is not None
    assert not indexed(train.rows, case.train.partners) & later
    everything = train._all_rows
    assert indexed(everything, SameTargetIndex(everything.target)) >= later
