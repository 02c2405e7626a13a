"""Ranks against hand-made values and against counting one item after the other."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from recbole.data.interaction import Interaction
from torch import nn

from recbole_prism.errors import EvaluationError, ModelError, NonFiniteError
from recbole_prism.evaluation import Ranks, rank_rows, ranking
from tests.evaluation.fakes import FakeLoader, TableModel, count_slowly, random_case, top_slowly

N_ITEMS = 30


def rank(model: nn.Module, loader: FakeLoader, n_items: int = N_ITEMS, **options: object) -> Ranks:
    settings = {"mask_history": True, "memory_gb": 4.0, "device": "cpu", **options}
    return rank_rows(model, loader, n_items=n_items, **settings)


def assert_equal_ranks(one: Ranks, other: Ranks) -> None:
    for (name, left), (_, right) in zip(one.to_arrays().items(), other.to_arrays().items()):
        np.testing.assert_array_equal(left, right, err_msg=name)


def test_by_hand() -> None:
    scores = torch.tensor(
        [
            [99.0, 3.0, 1.0, 3.0, 5.0, 3.0],  # target 1; 4 beats it, 3 and 5 tie; seen: 4, 3
            [math.nan, 1.0, 2.0, 3.0, 4.0, 5.0],  # target 4, itself seen; the padding score is nobody's business
            [-math.inf, 0.0, 0.0, 0.0, 0.0, 0.0],  # target 2; all tie; seen: 1
        ]
    )
    loader = FakeLoader([1, 4, 2], [[4, 3, 4, 4], [5, 4], [1]], batch_size=2)
    ranks = rank(TableModel(scores), loader, n_items=6, n_top=4)
    assert ranks.n_greater_all.tolist() == [1, 1, 0]
    assert ranks.n_equal_all.tolist() == [2, 0, 4]
    assert ranks.n_greater.tolist() == [0, 5, 0]  # row 1: n_items - 1, a miss for any list
    assert ranks.n_equal.tolist() == [1, 0, 3]
    assert ranks.target_in_history.tolist() == [False, True, False]
    assert ranks.top_items.tolist() == [[1, 5, 2, 0], [3, 2, 1, 0], [2, 3, 4, 5]]
    assert ranks.user.tolist() == [1, 2, 3] and ranks.target.tolist() == [1, 4, 2]
    assert ranks.position.tolist() == [4, 2, 1]  # events before the target
    assert ranks.history_length.tolist() == [3, 2, 1]  # at most T = 3 of them
    assert all(
        array.dtype == np.int32 for name, array in ranks.to_arrays().items() if name[0] in "nuph" or name == "target"
    )


@pytest.mark.parametrize("n_levels", [1, 4, 10_000])
@pytest.mark.parametrize("mask_history", [True, False])
def test_equals_slow_counting(n_levels: int, mask_history: bool) -> None:
    scores, target, history = random_case(40, N_ITEMS, n_levels)
    ranks = rank(TableModel(scores), FakeLoader(target, history, 7), mask_history=mask_history, n_top=20)
    for row, values in enumerate(scores.tolist()):
        seen = set(history[row])
        assert (ranks.n_greater_all[row], ranks.n_equal_all[row]) == count_slowly(values, target[row], set())
        assert ranks.target_in_history[row] == (target[row] in seen)
        expected = (N_ITEMS - 1, 0) if target[row] in seen else count_slowly(values, target[row], seen)
        assert (ranks.n_greater[row], ranks.n_equal[row]) == expected
        assert ranks.top_items[row].tolist() == top_slowly(values, seen if mask_history else set(), 20)
    assert ranks.target_in_history.sum() == 8  # every fifth of 40


@pytest.mark.parametrize("batch_size", [1, 7, 40])
@pytest.mark.parametrize("chunk", [1, 3, 100])
@pytest.mark.parametrize("block", [1, 64, 2**20])
def test_batches_chunks_and_blocks_do_not_matter(
    batch_size: int, chunk: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Integer scores are summed and compared without rounding: equality is exact."""
    scores, target, history = random_case(40, N_ITEMS, 5)
    expected = rank(TableModel(scores), FakeLoader(target, history, 40), n_top=20)
    monkeypatch.setitem(ranking.BLOCK_ELEMENTS, "cpu", block)
    monkeypatch.setattr(ranking, "rows_within", lambda *_: chunk)
    model = TableModel(scores)
    assert_equal_ranks(rank(model, FakeLoader(target, history, batch_size), n_top=20), expected)
    assert model.largest_batch == min(batch_size, chunk)


def test_rows_within_a_bound() -> None:
    double = nn.Linear(1, 1).double()
    assert 1500 < ranking.rows_within(4.0, 300_000, nn.Linear(1, 1)) <= 4e9 / (2 * 4 * 300_000)
    assert 750 < ranking.rows_within(4.0, 300_000, double) <= 4e9 / (2 * 8 * 300_000)
    assert ranking.rows_within(0.001, 300_000, nn.Linear(1, 1)) == 1  # one row is the least


class DotModel(nn.Module):
    """Real scores: random user and item vectors."""

    def __init__(self, n_rows: int, n_items: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.user = nn.Parameter(torch.randn(n_rows, 64, generator=generator))
        self.item = nn.Parameter(torch.randn(n_items, 64, generator=generator))

    def full_sort_predict(self, interaction: Interaction) -> torch.Tensor:
        return self.user[interaction["row_id"]] @ self.item.T


def test_real_scores_in_other_batches_up_to_rounding() -> None:
    """A matrix product may add up in another order for another number of rows. Then, and only then, can a rank move: by
    no more than the number of items whose score is within that rounding of the target's."""
    n_rows, n_items = 200, 3000
    _, target, history = random_case(n_rows, n_items, 2)
    model = DotModel(n_rows, n_items)
    whole = rank(model, FakeLoader(target, history, 200), n_items)
    single = rank(model, FakeLoader(target, history, 1), n_items)
    scores = model.full_sort_predict({"row_id": torch.arange(n_rows)}).detach().double()
    aim = scores[torch.arange(n_rows), target]
    close = ((scores[:, 1:] - aim[:, None]).abs() < 1e-4).sum(1).numpy() - 1
    moved = np.abs(whole.n_greater_all - single.n_greater_all)
    assert (moved <= close).all()
    assert (moved == 0).mean() > 0.95


def test_rows_come_back_in_their_order() -> None:
    scores, target, history = random_case(40, N_ITEMS, 5)
    order = np.random.default_rng(1).permutation(40)
    expected = rank(TableModel(scores), FakeLoader(target, history, 40), n_top=20)
    assert_equal_ranks(rank(TableModel(scores), FakeLoader(target, history, 6, order), n_top=20), expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_precisions(dtype: torch.dtype) -> None:
    scores, target, history = random_case(10, N_ITEMS, 5)
    expected = rank(TableModel(scores), FakeLoader(target, history, 10), n_top=20)
    assert_equal_ranks(rank(TableModel(scores.to(dtype)), FakeLoader(target, history, 4), n_top=20), expected)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_non_finite_scores_are_refused(value: float) -> None:
    scores, target, history = random_case(12, N_ITEMS, 5)
    scores[9, 17] = value
    with pytest.raises(NonFiniteError, match=r"1 of 5 rows of evaluation batch 1 \(row ids 9\)"):
        rank(TableModel(scores), FakeLoader(target, history, 5))


def test_a_large_but_finite_sum_is_fine() -> None:
    scores, target, history = random_case(3, N_ITEMS, 5)
    large = scores * 1e37  # adds up to infinity in float32
    assert_equal_ranks(
        rank(TableModel(large), FakeLoader(target, history, 3)),
        rank(TableModel(scores), FakeLoader(target, history, 3)),
    )


def test_modes_of_all_modules_are_restored() -> None:
    scores, target, history = random_case(4, N_ITEMS, 5)
    model = TableModel(scores)
    model.frozen, model.dropout = nn.Linear(1, 1), nn.Dropout()
    model.frozen.eval()
    rank(model, FakeLoader(target, history, 2))
    assert (model.training, model.frozen.training, model.dropout.training) == (True, False, True)
    model.scores[0, 1] = math.nan
    with pytest.raises(NonFiniteError):
        rank(model, FakeLoader(target, history, 2))
    assert (model.training, model.frozen.training, model.dropout.training) == (True, False, True)


def test_ranks_in_evaluation_mode_without_gradients() -> None:
    class Watching(TableModel):
        def full_sort_predict(self, interaction: Interaction) -> torch.Tensor:
            assert not self.training and torch.is_inference_mode_enabled()
            return super().full_sort_predict(interaction)

    scores, target, history = random_case(4, N_ITEMS, 5)
    rank(Watching(scores), FakeLoader(target, history, 2))


def test_scores_of_the_model_are_left_alone() -> None:
    """A popularity model hands out one row for everybody; masking a user's history must not reach the next user's."""

    class Popularity(TableModel):
        def full_sort_predict(self, interaction: Interaction) -> torch.Tensor:
            return self.scores.expand(len(interaction), -1)

    popularity = torch.arange(N_ITEMS, dtype=torch.float32)
    ranks = rank(Popularity(popularity), FakeLoader([5, 6], [[29, 28], [1]], 2), n_top=3)
    assert ranks.top_items.tolist() == [[27, 26, 25], [29, 28, 27]]
    assert torch.equal(popularity, torch.arange(N_ITEMS, dtype=torch.float32))


def test_flat_scores_are_accepted_and_wrong_shapes_refused() -> None:
    class Flat(TableModel):
        def full_sort_predict(self, interaction: Interaction) -> torch.Tensor:
            return super().full_sort_predict(interaction).flatten()

    scores, target, history = random_case(4, N_ITEMS, 5)
    expected = rank(TableModel(scores), FakeLoader(target, history, 2))
    assert_equal_ranks(rank(Flat(scores), FakeLoader(target, history, 2)), expected)
    with pytest.raises(ModelError, match=r"shape \(2, 29\) for 2 rows and 30 items"):
        rank(TableModel(scores[:, 1:]), FakeLoader(target, history, 2))

    class Wrong(TableModel):
        def __init__(self, wrong: object) -> None:
            super().__init__(scores)
            self.wrong = wrong

        def full_sort_predict(self, interaction: Interaction) -> object:
            return self.wrong

    transposed = torch.zeros(N_ITEMS, 2)
    for wrong in (transposed, None, torch.zeros(2, N_ITEMS, dtype=torch.long), np.zeros((2, N_ITEMS))):
        with pytest.raises(ModelError, match="full_sort_predict gave"):
            rank(Wrong(wrong), FakeLoader(target, history, 2))


def test_a_loader_without_histories_is_refused() -> None:
    class Stock(FakeLoader):
        def __iter__(self):  # type: ignore[no-untyped-def]
            for interaction, _, row, item in super().__iter__():
                yield interaction, None, row, item

    scores, target, history = random_case(4, N_ITEMS, 5)
    with pytest.raises(EvaluationError, match="histories"):
        rank(TableModel(scores), Stock(target, history, 2))


def test_no_rows() -> None:
    ranks = rank(TableModel(torch.zeros(0, N_ITEMS)), FakeLoader([], [], 2), n_top=20)
    assert len(ranks) == 0 and ranks.top_items.shape == (0, 20)


def test_progress_wraps_the_loader() -> None:
    scores, target, history = random_case(5, N_ITEMS, 5)
    seen = []
    rank(
        TableModel(scores),
        FakeLoader(target, history, 2),
        progress=lambda it: (seen.append(1) or batch for batch in it),
    )
    assert len(seen) == 3


def test_arrays_round_trip() -> None:
    scores, target, history = random_case(5, N_ITEMS, 5)
    ranks = rank(TableModel(scores), FakeLoader(target, history, 2), mask_history=False, n_top=20)
    arrays = ranks.to_arrays("test_")
    again = Ranks.from_arrays(arrays, "test_")
    assert_equal_ranks(again, ranks)
    assert again.mask_history is False
    del arrays["test_n_equal"]
    with pytest.raises(EvaluationError, match="test_n_equal"):
        Ranks.from_arrays(arrays, "test_")


def test_lists_needed() -> None:
    assert ranking.needs_top_items(["Hit", "NDCG"], [5, 10]) == 0
    assert ranking.needs_top_items(["Hit", "itemcoverage"], [5, 10]) == 10
