"""RecBole's two data steps: `create_dataset` reads, `data_preparation` splits and makes the loaders."""

from __future__ import annotations

import logging
import warnings
from typing import Any, Union

import numpy as np
from recbole.data.dataloader import TrainDataLoader as RecBoleTrainDataLoader
from recbole.data.dataset import SequentialDataset as RecBoleSequentialDataset
from recbole.data.utils import create_dataset as create_recbole_dataset
from recbole.data.utils import create_samplers
from recbole.model.abstract_recommender import AbstractRecommender

from recbole_prism.config_columns import wrong_encoding
from recbole_prism.data.dataset import SequentialDataset
from recbole_prism.data.dataset_info import DatasetInfo
from recbole_prism.data.loader import EpochOrder, FullSortEvalDataLoader, TrainDataLoader
from recbole_prism.errors import ConfigError, DataError, ModelError

logger = logging.getLogger("recbole_prism")

Dataset = Union[SequentialDataset, RecBoleSequentialDataset]
Loaders = tuple[Union[TrainDataLoader, "StockTrainDataLoader"], FullSortEvalDataLoader, FullSortEvalDataLoader]


class StockTrainDataLoader(RecBoleTrainDataLoader):
    """RecBole's own training loader, able to start at any epoch, and with our `info` and training part beside it."""

    info: DatasetInfo
    our_rows: SequentialDataset

    def set_epoch(self, epoch: int) -> None:
        """Put the loader's generator where it stands at the start of an epoch, from 0."""
        self.generator.set_state(EpochOrder(self.sample_size, self.config["seed"]).generator_state(epoch))


def create_dataset(config: Any) -> Dataset:
    """Read the atomic files.

    Args:
        config: The run's config.

    Returns:
        Our data set; RecBole's own for a model named as `recbole:X`.

    Raises:
        DataError: If a file cannot be used, naming the cause.
        ModelError: If a stock model cannot rank all items (DIN, DIEN).
    """
    if config.model_entry.origin != "stock":
        return SequentialDataset(config)
    if config.model_class.full_sort_predict is AbstractRecommender.full_sort_predict:
        raise ModelError(
            f"{config.model_entry.display_name} scores one candidate at a time from labelled rows, but here all items "
            "are ranked.",
            "Choose a model that has `full_sort_predict`.",
        )
    try:
        with warnings.catch_warnings():  # RecBole's filling warns of pandas 3, which _compat.py refuses
            warnings.simplefilter("ignore", FutureWarning)
            return create_recbole_dataset(config)
    except UnicodeDecodeError as error:
        raise DataError(*wrong_encoding(f"a file of the data set {config['dataset']}", error)) from error


def data_preparation(config: Any, dataset: Dataset) -> Loaders:
    """Split a data set and make the loaders.

    For `recbole:X` training runs on RecBole's own rows and loader, and evaluation on ours, so that all models are
    ranked on the same rows.

    Args:
        config: The run's config; transforms write the names of their fields into it, so models are built afterwards.
        dataset: From `create_dataset`.

    Returns:
        Loaders of the training, validation and test part.

    Raises:
        DataError: If a part has no rows.
        ConfigError: If negative sampling is asked for on our data path.
    """
    if config.model_entry.origin == "stock":
        return _stock_loaders(config, dataset)
    distribution = (config["train_neg_sample_args"] or {}).get("distribution", "none")
    if distribution != "none":
        raise ConfigError(
            f"train_neg_sample_args asks for {distribution} negatives, but here models train against all items.",
            "Set train_neg_sample_args to ~ (and loss_type to CE).",
        )
    train, valid, test = dataset.build()
    return TrainDataLoader(config, train), FullSortEvalDataLoader(config, valid), FullSortEvalDataLoader(config, test)


def _stock_loaders(config: Any, dataset: RecBoleSequentialDataset) -> Loaders:
    ours = SequentialDataset(config)
    for field in (ours.uid_field, ours.iid_field):
        if not np.array_equal(dataset.field2id_token[field], ours.field2id_token[field]):
            raise DataError(
                f"RecBole numbers the values of '{field}' otherwise.",
                "Remove rm_dup_inter, or run the model without 'recbole:'.",
            )
    our_rows, valid, test = ours.build()
    built = dataset.build()
    _warn_of_other_rows(built[2], test)
    train = StockTrainDataLoader(
        config, built[0], create_samplers(config, dataset, built)[0], shuffle=config["shuffle"]
    )
    train.info, train.our_rows = ours.info, our_rows
    return train, FullSortEvalDataLoader(config, valid), FullSortEvalDataLoader(config, test)


def _warn_of_other_rows(stock: RecBoleSequentialDataset, ours: SequentialDataset) -> None:
    """RecBole sorts by 32-bit times; where that changes a test target, its training rows may hold what we test on."""
    stock_pairs = np.stack([stock.inter_feat[field].numpy() for field in (stock.uid_field, stock.iid_field)], axis=1)
    our_pairs = np.stack([ours.rows.user, ours.rows.target], axis=1)
    n_same = len(set(map(tuple, stock_pairs.tolist())) & set(map(tuple, our_pairs.tolist())))
    if n_same < len(set(map(tuple, our_pairs.tolist()))):
        logger.warning(
            "RecBole's 32-bit times order events otherwise: %d of %d test rows are not the same, so the training rows "
            "of 'recbole:' may hold test targets. Its results on this data set are not comparable.",
            len(our_pairs) - n_same,
            len(our_pairs),
        )
