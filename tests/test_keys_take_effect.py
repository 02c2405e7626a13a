"""Keys of RecBole that were once accepted and read nowhere: each changes what it names."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest

from recbole_prism import quick_start
from recbole_prism.config import Config
from recbole_prism.data.preparation import create_dataset, data_preparation
from tests import toy

SMALL = {"device": "cpu", "epochs": 1, "hidden_size": 8, "embedding_size": 8, "show_progress": False}


def run(folder: Path, **settings: Any) -> dict[str, Any]:
    toy.write_inter(folder, "repeats", toy.repeats())
    settings = {
        **SMALL,
        "topk": [2],
        "valid_metric": "Hit@2",
        "data_path": str(folder),
        "data_cache": False,
        **settings,
    }
    return quick_start.run("GRU4Rec", "repeats", config_dict=settings, saved=False)


def test_state_is_the_logging_level_of_one_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("recbole_prism")
    before = logger.level
    run(tmp_path, state="error")
    assert not [record for record in caplog.records if record.name == logger.name and record.levelno < logging.ERROR]
    assert logger.level == before


def test_places_of_the_loss(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="recbole_prism"):
        run(tmp_path, loss_decimal_place=2)
    assert re.search(r"epoch 0 \| loss \d\.\d\d \|", caplog.text)


def test_tail_ratio_says_which_items_are_the_tail(tmp_path: Path) -> None:
    metrics = {"metrics": ["Hit", "TailPercentage"], "mask_history": False}
    shares = [run(tmp_path, tail_ratio=ratio, **metrics)["test_result"]["tailpercentage@2"] for ratio in (0.1, 1.0)]
    assert shares[0] < 1.0 and shares[1] == 1.0  # one of six items, all of them


def test_recboles_own_data_path_takes_columns_of_other_names(tmp_path: Path) -> None:
    toy.write_inter(tmp_path, "own", toy.cyclic(), "uid:token\tasin:token\twhen:float")
    names = {"USER_ID_FIELD": "uid", "ITEM_ID_FIELD": "asin", "TIME_FIELD": "when", "data_path": str(tmp_path)}
    config = Config("recbole:SASRec", "own", config_dict={"device": "cpu", **names})
    train, _, _ = data_preparation(config, create_dataset(config))
    batch = next(iter(train))
    assert {"uid", "asin", "asin_list", "when_list", "item_length"} <= set(batch.columns)
