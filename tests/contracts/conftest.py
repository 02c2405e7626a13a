"""One small untrained model of every registered kind, with batches of the toy data."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from recbole.data.interaction import Interaction

from recbole_prism.config import Config
from recbole_prism.data.preparation import create_dataset, data_preparation
from recbole_prism.registry import list_models, load_class, resolve

# Small; without dropout equal inputs give equal outputs in training mode too; large weights make differences visible.
SMALL = {
    "device": "cpu", "MAX_ITEM_LIST_LENGTH": 12, "train_batch_size": 32, "hidden_size": 16, "inner_size": 32,
    "embedding_size": 16, "hidden_dropout_prob": 0.0, "attn_dropout_prob": 0.0, "dropout_prob": 0.0,
    "dropout_probs": [0.0, 0.0], "initializer_range": 0.2, "show_progress": False, "n_intents": 8, "kmeans_restarts": 1,
}  # fmt: skip


COUNTED = tuple(name for name in list_models() if hasattr(load_class(resolve(name)), "count"))
TRAINED = tuple(name for name in list_models() if name not in COUNTED)


class Case(NamedTuple):
    """A model with its config and loaders."""

    config: Config
    model: Any
    train: Any
    valid: Any
    test: Any


def make_case(data_path: Path, model: str, dataset: str = "cyclic", **settings: Any) -> Case:
    """Build a model of the given name; keys that the model does not know are left out."""
    known = Config(model=model, dataset=dataset, config_dict={"data_path": str(data_path)})
    values = {key: value for key, value in SMALL.items() if key in known}
    config = Config(model=model, dataset=dataset, config_dict={**values, "data_path": str(data_path), **settings})
    loaders = data_preparation(config, create_dataset(config))
    torch.manual_seed(0)
    model = config.model_class(config, loaders[0].dataset.info)
    if hasattr(model, "on_train_epoch_start"):  # as the trainer does
        model.on_train_epoch_start(loaders[0].dataset, 0)
    if config.properties.counted:
        model.count(loaders[0].dataset)
    return Case(config, model, *loaders)


def first_batch(loader: Any) -> Interaction:
    """The first batch of a loader, without RecBole's evaluation tuple around it."""
    batch = next(iter(loader))
    return batch[0] if isinstance(batch, tuple) else batch


@pytest.fixture(scope="module", params=list_models())
def case(request: pytest.FixtureRequest, toy_path: Path) -> Case:
    return make_case(toy_path, request.param)
