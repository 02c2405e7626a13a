"""Batches made ahead of time are the same batches; copies to a device keep what packing must know on the CPU."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from recbole.data.interaction import Interaction

from recbole_prism.data.transfer import ahead_of_use, to_device
from recbole_prism.model.functional.host_copy import host_copy
from tests.contracts.conftest import make_case


@pytest.mark.parametrize("n_ahead", [0, 1, 3, 100])
def test_order_and_number_stay(n_ahead: int) -> None:
    assert list(ahead_of_use(range(7), n_ahead)) == list(range(7))
    assert list(ahead_of_use([], n_ahead)) == []


def test_batches_are_the_loaders_own(toy_path: Path) -> None:
    train = make_case(toy_path, "PRISM").train
    train.set_epoch(3)
    plain = list(train)
    train.set_epoch(3)
    for one, other in zip(plain, list(ahead_of_use(train, 2))):
        assert all(torch.equal(one[name], other[name]) for name in one.interaction)


def test_only_so_many_are_made_ahead() -> None:
    made: list[int] = []
    ready = threading.Semaphore(0)

    def batches() -> Iterator[int]:
        for number in range(10):
            made.append(number)
            ready.release()
            yield number

    stream = ahead_of_use(batches(), 2)
    assert next(stream) == 0
    for _ in range(3):  # the one that was taken and two ahead of it
        assert ready.acquire(timeout=10)
    assert not ready.acquire(timeout=0.2)
    assert made == [0, 1, 2]
    stream.close()  # type: ignore[attr-defined]
    assert len(made) <= 4  # leaving early makes no more than what had begun


def test_an_error_comes_where_the_batch_would_have() -> None:
    def batches() -> Iterator[int]:
        yield 0
        raise ValueError("broken row")

    stream = ahead_of_use(batches(), 2)
    assert next(stream) == 0
    with pytest.raises(ValueError, match="broken row"):
        next(stream)


def test_a_cpu_batch_is_left_alone_and_a_copied_one_remembers_its_numbers() -> None:
    batch = Interaction({"item_length": torch.tensor([3, 1]), "item_id_list": torch.tensor([[1, 2, 3], [4, 0, 0]])})
    assert to_device(batch, torch.device("cpu")) is batch
    moved = to_device(batch, torch.device("meta"))  # holds no values, so they can come from the kept copy only
    assert moved["item_length"].device.type == "meta" and moved["item_id_list"].shape == (2, 3)
    assert host_copy(moved["item_length"]).tolist() == [3, 1]
    assert host_copy(batch["item_length"]).tolist() == [3, 1]
