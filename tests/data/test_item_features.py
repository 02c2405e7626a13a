"""Item features reach RecBole's feature models untouched; what cannot be ranked here is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from recbole_prism.data.preparation import create_dataset, data_preparation
from recbole_prism.errors import ModelError
from tests import toy
from tests.data.helpers import make_config

COLUMNS = {"inter": ["user_id", "item_id", "timestamp"], "item": ["item_id", "kind"]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The cyclic walks; item i<k> is of kind c<k % 3>."""
    toy.write_inter(tmp_path, "cyclic", toy.cyclic())
    lines = [f"i{k}\tc{k % 3}" for k in range(toy.CYCLE)]
    (tmp_path / "cyclic" / "cyclic.item").write_text("item_id:token\tkind:token\n" + "\n".join(lines) + "\n")
    return tmp_path


@pytest.mark.parametrize("model", ["GRU4RecF", "SASRecF", "FDSA"])
def test_feature_models(path: Path, model: str) -> None:
    settings = {"load_col": COLUMNS, "selected_features": ["kind"], "train_batch_size": 64, "MAX_ITEM_LIST_LENGTH": 12}
    config = make_config(path, "cyclic", f"recbole:{model}", **settings)
    dataset = create_dataset(config)
    train, valid, _ = data_preparation(config, dataset)
    features, items, kinds = (
        dataset.get_item_feature(),
        dataset.field2id_token["item_id"],
        dataset.field2id_token["kind"],
    )
    for number in range(1, len(items)):
        assert kinds[features["kind"][number]] == f"c{int(items[number][1:]) % 3}"
    torch.manual_seed(0)
    network = config.model_class(config, train.dataset)
    interaction = next(iter(train))
    network.calculate_loss(interaction).backward()
    tables = [p for name, p in network.named_parameters() if "feature" in name and "embedding_table" in name]
    assert tables and all(table.grad is not None and table.grad.abs().sum() > 0 for table in tables)  # they are used
    network.eval()
    batch = next(iter(valid))[0]
    assert network.full_sort_predict(batch).shape == (len(batch), dataset.item_num)


@pytest.mark.parametrize("model", ["DIN", "DIEN"])
def test_refused_by_name(path: Path, model: str) -> None:
    with pytest.raises(ModelError, match=rf"{model} .* scores one candidate at a time"):
        create_dataset(make_config(path, "cyclic", f"recbole:{model}"))
