"""Our data set and stock RecBole's from the same settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Optional

import pytest
from recbole.config import Config as RecBoleConfig
from recbole.data.utils import create_dataset, data_preparation
from recbole.model.sequential_recommender.bert4rec import BERT4Rec

from recbole_prism.config import Config
from recbole_prism.data.dataset import SequentialDataset
from recbole_prism.registry import ModelProperties


class MaskedItems(BERT4Rec):
    """A model from outside that works on RecBole's own masking transform."""

    config_defaults: ClassVar[dict[str, Any]] = {
        "n_layers": 1, "n_heads": 2, "hidden_size": 16, "inner_size": 32, "hidden_dropout_prob": 0.0,
        "attn_dropout_prob": 0.0, "hidden_act": "gelu", "layer_norm_eps": 1e-12, "initializer_range": 0.02,
        "loss_type": "CE", "mask_ratio": 0.2, "ft_ratio": 0.5, "transform": "mask_itemseq",
    }  # fmt: skip

    @classmethod
    def declared_properties(cls, config: Any) -> ModelProperties:
        return ModelProperties()


def make_config(path: Path, name: str, model: str = "GRU4Rec", **settings: Any) -> Config:
    return Config(model=model, dataset=name, config_dict={"data_path": str(path), "device": "cpu", **settings})


def make_dataset(path: Path, name: str, model: str = "GRU4Rec", **settings: Any) -> SequentialDataset:
    return SequentialDataset(make_config(path, name, model, **settings))


class TokenRow(NamedTuple):
    """A row in the file's own words."""

    user: str
    history: tuple[str, ...]
    target: str


def token_rows(part: SequentialDataset) -> list[TokenRow]:
    """Rows of a part with the window a model is given."""
    items, users = part.field2id_token[part.iid_field], part.field2id_token[part.uid_field]
    rows = part.rows
    return [
        TokenRow(str(users[user]), tuple(str(token) for token in items[part.items[start:end]]), str(items[target]))
        for user, start, end, target in zip(rows.user, rows.start, rows.end, rows.target)
    ]


def stock_config(monkeypatch: pytest.MonkeyPatch, path: Optional[Path], name: str, **settings: Any) -> RecBoleConfig:
    """Stock RecBole's Config, kept from reading pytest's arguments and from changing the environment for good."""
    monkeypatch.setattr("sys.argv", ["stock"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    values = {
        "train_neg_sample_args": None,
        "load_col": {"inter": ["user_id", "item_id", "timestamp"]},
        "train_batch_size": 256,
        "gpu_id": "",
        **({"data_path": str(path)} if path else {}),
        **settings,
    }
    return RecBoleConfig(model="GRU4Rec", dataset=name, config_dict=values)


def stock_loaders(monkeypatch: pytest.MonkeyPatch, path: Optional[Path], name: str, **settings: Any) -> Any:
    """Stock RecBole's data set before the split, and its three loaders."""
    config = stock_config(monkeypatch, path, name, **settings)
    dataset = create_dataset(config)
    vocabulary = dataset.field2id_token
    return vocabulary, data_preparation(config, dataset)
