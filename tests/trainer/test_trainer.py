"""The training loop: what it keeps, what it reports, when it stops."""

from __future__ import annotations

import logging
import math
from typing import Any, Callable

import pytest
import torch
from recbole.data.interaction import Interaction
from torch import Tensor, nn

from recbole_prism.errors import NonFiniteError
from recbole_prism.model.functional.loss_parts import LossParts
from recbole_prism.trainer import Trainer, seed_everything
from tests.trainer.fakes import N_USERS, Bigram, EvalLoader, Scripted, TrainLoader, settings


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_cycle_is_learned_and_the_best_epoch_is_returned() -> None:
    trainer = Trainer(settings(epochs=30), Bigram())
    score, result = trainer.fit(TrainLoader(), EvalLoader())
    assert score == 1.0 and result == {"hit@1": 1.0, "hit@5": 1.0, "ndcg@1": 1.0, "ndcg@5": 1.0}
    losses = [record["loss"]["rec"] for record in trainer.history]
    assert losses[0] > 2 and losses[-1] < 0.5
    assert trainer.evaluate(EvalLoader(end=6))["hit@1"] == 1.0


def test_weights_of_the_best_epoch_are_tested_though_nothing_is_saved() -> None:
    trainer = Trainer(settings(epochs=5), Scripted([2, 7, 3, 7, 1]))
    score, result = trainer.fit(TrainLoader(), EvalLoader(), saved=False)
    assert score == 7 / N_USERS and result is not None and result["hit@1"] == 7 / N_USERS
    assert trainer.stopper.best_epoch == 1  # an equal score later is no better one
    assert trainer.evaluate(EvalLoader(), load_best_model=False)["hit@1"] == 1 / N_USERS
    assert trainer.evaluate(EvalLoader())["hit@1"] == 7 / N_USERS


@pytest.mark.parametrize(
    ("script", "patience", "eval_step", "n_epochs"),
    [
        ([3] * 9, 2, 1, 3),
        ([1, 2, 3, 3, 3, 3, 3, 3, 3], 4, 1, 7),
        ([3] * 9, 2, 2, 6),  # patience counts evaluations, here after epochs 1, 3 and 5
        ([1, 2, 3, 4, 5, 6, 7, 8, 9], 1, 1, 9),
    ],
)
def test_stops_when_evaluations_bring_nothing_better(
    script: list[int], patience: int, eval_step: int, n_epochs: int
) -> None:
    trainer = Trainer(settings(epochs=9, stopping_step=patience, eval_step=eval_step), Scripted(script))
    trainer.fit(TrainLoader(), EvalLoader())
    assert len(trainer.history) == n_epochs
    evaluated = [record["epoch"] for record in trainer.history if record["valid"] is not None]
    assert evaluated == list(range(eval_step - 1, n_epochs, eval_step))


def test_history_has_named_parts_that_add_up_and_the_models_scalars() -> None:
    model, loader = Bigram(), TrainLoader()
    trainer = Trainer(settings(epochs=2), model)
    trainer.fit(loader, EvalLoader())
    assert model.epochs_seen == [(loader.dataset, 0), (loader.dataset, 1)]
    for epoch, record in enumerate(trainer.history):
        assert record["epoch"] == epoch
        assert list(record["loss"]) == ["total", "rec", "pull"]
        assert math.isclose(record["loss"]["total"], record["loss"]["rec"] + record["loss"]["pull"])
        assert record["rows"] == 40 and record["rows_per_second"] == 40 / record["train_seconds"]
        assert list(record["valid"]) == ["hit@1", "hit@5", "ndcg@1", "ndcg@5"]
        assert record["valid_seconds"] > 0 and record["cpu_seconds"] > 0 and record["peak_memory_mb"] > 50
    assert 0 < trainer.history[0]["scalars"]["pull_weight"] < trainer.history[1]["scalars"]["pull_weight"]


def test_reported_loss_is_the_mean_over_batches() -> None:
    class Counting(Scripted):
        n_calls = 0

        def calculate_loss(self, interaction: Interaction) -> tuple[Tensor, ...]:
            self.n_calls += 1
            return super().calculate_loss(interaction), torch.tensor(float(self.n_calls)) + 0 * self.weight.sum()

    trainer = Trainer(settings(epochs=1), Counting([1]))
    trainer.fit(TrainLoader(batch_size=8), EvalLoader())
    assert trainer.history[0]["loss"] == {"total": 3.0, "part_0": 0.0, "part_1": 3.0}  # 1 .. 5


def test_same_seed_same_losses_and_weights() -> None:
    def run(seed: int) -> tuple[list[Any], dict[str, Tensor]]:
        seed_everything(seed)
        model = Bigram(seed)
        trainer = Trainer(settings(), model)
        trainer.fit(TrainLoader(), EvalLoader())
        return [(record["loss"], record["valid"]) for record in trainer.history], weights(model)

    first, again, other = run(3), run(3), run(4)
    assert first[0] == again[0] and same(first[1], again[1])
    assert first[0] != other[0]


def test_evaluation_does_not_change_training() -> None:
    def run(eval_step: int) -> dict[str, Tensor]:
        model = Bigram()
        seed_everything(1)
        Trainer(settings(eval_step=eval_step), model).fit(TrainLoader(), EvalLoader())
        return weights(model)

    assert same(run(1), run(4))


def test_clipping_bounds_the_step() -> None:
    def moved(clip: Any) -> float:
        model = Bigram()
        before = weights(model)
        chosen = settings(learner="sgd", learning_rate=1.0, clip_grad_norm=clip, epochs=1)
        Trainer(chosen, model).fit(TrainLoader(40), EvalLoader())
        steps = [model.state_dict()[name] - before[name] for name in before]
        return math.sqrt(sum(float(step.square().sum()) for step in steps))

    assert moved({"max_norm": 0.01}) == pytest.approx(0.01, rel=1e-3)
    assert moved(None) > 0.05


@pytest.mark.parametrize("valid", [None, EvalLoader(empty=True)])
def test_without_validation_the_last_weights_count(valid: Any, caplog: pytest.LogCaptureFixture) -> None:
    trainer = Trainer(settings(epochs=3, stopping_step=1), Scripted([5, 1, 4]))
    with caplog.at_level(logging.WARNING, logger="recbole_prism"):
        assert trainer.fit(TrainLoader(), valid) == (None, None)
    assert "no validation rows" in caplog.text
    assert len(trainer.history) == 3
    assert trainer.evaluate(EvalLoader())["hit@1"] == 4 / N_USERS


def test_metric_that_stays_at_zero_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="recbole_prism"):
        Trainer(settings(epochs=2), Scripted([0, 0])).fit(TrainLoader(), EvalLoader())
    assert "hit@1 never rose above 0" in caplog.text


def test_log_line_names_parts_metrics_and_both_times(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="recbole_prism"):
        Trainer(settings(epochs=1), Bigram()).fit(TrainLoader(), EvalLoader())
    for piece in ("epoch 0", "rec ", "pull ", "hit@1 ", "s training", "s evaluation"):
        assert piece in caplog.text, piece
    assert "pull_weight" not in caplog.text  # in the history only


def test_callback_gets_epoch_and_score() -> None:
    calls: list[tuple[int, float]] = []
    trainer = Trainer(settings(epochs=4, eval_step=2), Scripted([1, 2, 3, 4]))
    trainer.fit(TrainLoader(), EvalLoader(), callback_fn=lambda epoch, score: calls.append((epoch, score)))
    assert calls == [(1, 2 / N_USERS), (3, 4 / N_USERS)]


class Broken(Bigram):
    """Goes wrong at the 7th batch: the 2nd of epoch 1."""

    def __init__(self, how: Callable[["Broken", Tensor], Tensor]) -> None:
        super().__init__()
        self.how, self.n_calls = how, 0

    def calculate_loss(self, interaction: Interaction) -> LossParts:
        rec, pull = super().calculate_loss(interaction)
        self.n_calls += 1
        return LossParts({"rec": rec, "cl": self.how(self, pull) if self.n_calls == 7 else pull})


def nan_gradient(model: Broken, part: Tensor) -> Tensor:
    return part + (model.head.weight * 0).sum() / (model.head.weight * 0).sum()


def nan_parameter(model: Broken, part: Tensor) -> Tensor:
    with torch.no_grad():
        model.head.bias[3] = math.inf
    return part * math.nan


@pytest.mark.parametrize(
    ("how", "tensor"), [(nan_gradient, "gradient of head.weight"), (nan_parameter, "parameter head.bias")]
)
def test_bad_loss_is_named_by_part_batch_rows_and_tensor(how: Any, tensor: str) -> None:
    loader = TrainLoader()
    loader.set_epoch(1)
    rows = [batch["row_id"].tolist() for batch in loader][1]
    with pytest.raises(NonFiniteError) as caught:
        Trainer(settings(), Broken(how)).fit(loader, EvalLoader())
    message = str(caught.value)
    for piece in ("'cl' is nan", "epoch 1", "batch 1", f"rows {', '.join(map(str, rows))}", tensor, "learning_rate"):
        assert piece in message, (piece, message)


def test_bad_update_after_the_last_finite_loss_is_found() -> None:
    class RootOfZero(Scripted):
        def calculate_loss(self, interaction: Interaction) -> Tensor:
            return (self.weight * 0).sqrt().sum()  # value 0, slope NaN

    with pytest.raises(NonFiniteError, match="parameter weight is not finite after epoch 0"):
        Trainer(settings(), RootOfZero([1] * 4)).fit(TrainLoader(batch_size=40), EvalLoader())


def test_bad_scores_stop_the_training() -> None:
    class BadScores(Bigram):
        def full_sort_predict(self, interaction: Interaction) -> Tensor:
            return super().full_sort_predict(interaction) * math.nan

    with pytest.raises(NonFiniteError, match="scores.* epoch 0; all parameters are finite"):
        Trainer(settings(), BadScores()).fit(TrainLoader(), EvalLoader())


def test_bad_scores_are_named_by_epoch_and_first_bad_tensor() -> None:
    class Late(Bigram):
        """After its second epoch it has an infinite weight that no loss has met."""

        def full_sort_predict(self, interaction: Interaction) -> Tensor:
            if len(self.epochs_seen) == 2:
                with torch.no_grad():
                    self.head.bias[3] = math.inf
            return super().full_sort_predict(interaction)

    trainer = Trainer(settings(), Late())
    with pytest.raises(NonFiniteError) as caught:
        trainer.fit(TrainLoader(), EvalLoader())
    for piece in ("batch 0", "row ids 0, 1", "weights of epoch 1", "first non-finite tensor: parameter head.bias"):
        assert piece in str(caught.value), piece
    trainer.load_best_weights()
    assert trainer.epoch == 0
