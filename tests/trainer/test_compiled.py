"""`compile: True` gives the same numbers, and training goes on where it cannot work."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Callable

import pytest
import torch

from recbole_prism.errors import ConfigError
from recbole_prism.trainer import Trainer
from recbole_prism.trainer.compiled import CompiledLoss
from tests.contracts.conftest import first_batch, make_case


def no_compiler(loss: Callable[..., Any], dynamic: bool) -> Callable[..., Any]:
    def fail(*arguments: Any) -> Any:
        torch.rand(3)  # as a compiler that fails half way through a step
        raise RuntimeError("no C++ compiler\nand a long trace")

    return fail


def test_falls_back_with_a_message(
    toy_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    case = make_case(toy_path, "SASRec", fast_path=False, hidden_dropout_prob=0.3)
    monkeypatch.setattr(torch, "compile", no_compiler)
    loss, batch = CompiledLoss(case.model.train().calculate_loss), first_batch(case.train)
    torch.manual_seed(1)
    plain = [float(sum(case.model.calculate_loss(batch)).detach()) for _ in range(2)]
    torch.manual_seed(1)
    with caplog.at_level(logging.WARNING, logger="recbole_prism"):
        assert [float(sum(loss(batch)).detach()) for _ in range(2)] == plain  # the same dropout draws, too
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "torch.compile failed (RuntimeError: no C++ compiler): training goes on without it"
    ]


def test_a_fault_of_the_model_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", no_compiler)

    def faulty(interaction: Any) -> Any:
        raise ValueError("the model's own fault")

    with pytest.raises(ValueError, match="own fault"):
        CompiledLoss(faulty)(None)


def test_the_key_compiles(toy_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []
    monkeypatch.setattr(torch, "compile", lambda loss, dynamic: compiled.append(loss) or loss)
    case = make_case(toy_path, "SASRec", fast_path=False, compile=True, epochs=1)
    Trainer(case.config, case.model).fit(case.train, None, verbose=False)
    assert compiled == [case.model.calculate_loss]


def test_packed_batches_are_refused(toy_path: Path) -> None:
    with pytest.raises(ConfigError, match="fast_path: False"):
        make_case(toy_path, "SASRec", compile=True)


@pytest.mark.slow
def test_compiled_equals_plain(toy_path: Path) -> None:
    case = make_case(toy_path, "SASRec", fast_path=False)
    loss = CompiledLoss(case.model.train().calculate_loss)
    for batch in list(case.train)[:3]:
        plain, compiled = (float(sum(f(batch)).detach()) for f in (case.model.calculate_loss, loss))
        assert compiled == pytest.approx(plain, rel=1e-5)
    assert loss._used is not loss._plain
