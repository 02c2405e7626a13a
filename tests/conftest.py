"""Shared fixtures: one thread, toy data sets."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests import toy


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Equal numbers and times on every machine, and no fight over cores."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def toy_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data_path with the data sets of tests/toy.py: cyclic, short, ties, tok, repeats."""
    return toy.write_all(tmp_path_factory.mktemp("toy"))
