"""Batches as RecBole Interactions, each a pure function of (seed, epoch, rows), whichever process makes it."""

from __future__ import annotations

import copy
import random
from contextlib import contextmanager
from typing import Any, Callable, Iterator, NamedTuple, Optional

import numpy as np
import torch
from recbole.data.interaction import Interaction
from recbole.data.transform import construct_transform

from recbole_prism.config_columns import PARTNER, ROW_ID, VIEWS
from recbole_prism.data.dataset import SequentialDataset
from recbole_prism.data.dataset_info import DatasetInfo
from recbole_prism.data.same_target import SameTargetIndex, window_keys
from recbole_prism.errors import DataError, ModelError
from recbole_prism.model.functional.augment import N_ROW_DRAWS, Augmentation
from recbole_prism.model.functional.cloze import (
    CLOZE,
    CLOZE_LABELS,
    append_item,
    mask_items,
    mask_items_as_recbole,
)
from recbole_prism.model.functional.random_hash import hash_seed, hash_uniform

KNOWN_NEEDS = frozenset({PARTNER, *VIEWS, CLOZE})

STREAM_PARTNER, STREAM_TRANSFORM, STREAM_VIEW_1, STREAM_VIEW_2 = 1, 2, 3, 4  # of random_hash; every use has its own
STREAM_CLOZE, STREAM_CLOZE_LAST = 5, 6
TRAINING_TRANSFORMS = frozenset({"mask_itemseq", "crop_itemseq", "reorder_itemseq"})  # RecBole's; not for evaluation


class EpochOrder:
    """The shuffles that stock RecBole's loader makes with a seed: one generator that goes on from epoch to epoch.

    Each pass over a torch loader takes from its generator a base seed for workers, the permutation, and one permutation
    more that torch draws when the rows run out.

    Args:
        n_rows: Number of rows R.
        seed: The run's seed.
    """

    def __init__(self, n_rows: int, seed: int) -> None:
        self.n_rows = n_rows
        self.seed = seed
        self._rewind()

    def _rewind(self) -> None:
        self._epoch, self._state = 0, torch.Generator().manual_seed(self.seed).get_state()

    def generator_state(self, epoch: int) -> torch.Tensor:
        """State of the generator at the start of an epoch. Going back costs a replay from epoch 0."""
        if epoch < self._epoch:
            self._rewind()
        generator = torch.Generator()
        generator.set_state(self._state)
        for _ in range(self._epoch, epoch):
            self._draw(generator)
            torch.randperm(self.n_rows, generator=generator)
        self._epoch, self._state = epoch, generator.get_state()
        return self._state

    def permutation(self, epoch: int) -> np.ndarray:
        """Order of the rows in an epoch. int64 [R]"""
        generator = torch.Generator()
        generator.set_state(self.generator_state(epoch))
        return self._draw(generator).numpy()

    def _draw(self, generator: torch.Generator) -> torch.Tensor:
        torch.empty((), dtype=torch.int64).random_(generator=generator)
        return torch.randperm(self.n_rows, generator=generator)


class _Key(NamedTuple):
    """Everything a batch depends on, besides data and settings."""

    epoch: int
    number: int
    rows: np.ndarray


class _Batches(torch.utils.data.Dataset):
    """Key -> batch, in the form torch's workers want."""

    def __init__(self, collate: Callable[[_Key], Any]) -> None:
        self.collate = collate

    def __getitem__(self, key: _Key) -> Any:
        return self.collate(key)


class _Keys:
    """The sampler of a torch loader whose workers live on: yields the keys of the pass that is about to begin."""

    def __init__(self) -> None:
        self.keys: list[_Key] = []

    def __iter__(self) -> Iterator[_Key]:
        return iter(self.keys)


def _unchanged(batch: Any) -> Any:
    return batch


class _Loader:
    """Rows in batches of a fixed size, made here or by worker processes.

    Args:
        config: The run's config.
        dataset: A part, after `SequentialDataset.build`.
        batch_size: Rows per batch.
    """

    def __init__(self, config: Any, dataset: SequentialDataset, batch_size: int) -> None:
        self.config = config
        self.dataset = dataset
        self.batch_size = int(batch_size)
        self.seed = int(config["seed"])
        stock = config.model_entry.origin == "stock"  # may rely on RecBole's width without saying so
        self.width: Optional[int] = dataset.max_item_list_len if config.properties.fixed_width or stock else None
        self.epoch = 0
        self._workers: Optional[torch.utils.data.DataLoader] = None
        self._sampler = _Keys()
        # Constructing a transform writes the names of its fields into the config, where the model finds them.
        self.transform = construct_transform(config) if config["transform"] is not None else None

    @property
    def info(self) -> DatasetInfo:
        """Counts, names and fingerprint of the data set."""
        return self.dataset.info

    def __len__(self) -> int:
        """Number of batches."""
        return -(-len(self.dataset) // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, from 0, that the next pass yields. Without a call each pass is one epoch after the last."""
        self.epoch = epoch

    def _order(self) -> np.ndarray:
        return self.dataset.rows.row_id

    def _next_keys(self) -> list[_Key]:
        """Keys of one pass, which moves the loader on by an epoch."""
        epoch, order, size = self.epoch, self._order(), self.batch_size
        self.epoch += 1
        return [_Key(epoch, number, order[number * size : (number + 1) * size]) for number in range(len(self))]

    def _collate(self, key: _Key) -> Any:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        """One pass. With workers there is one pass at a time: a new one ends the one before."""
        keys = self._next_keys()
        if not self.config["worker"]:
            return map(self._collate, keys)
        if self._workers is None:
            self._workers = torch.utils.data.DataLoader(
                _Batches(copy.copy(self)._collate),  # of a copy: no reference cycle, so workers end with the loader
                batch_size=None,
                sampler=self._sampler,
                collate_fn=_unchanged,
                num_workers=self.config["worker"],
                persistent_workers=True,
                generator=torch.Generator(),  # torch's base seed must not come from the global state
            )
        self._sampler.keys = keys
        return iter(self._workers)

    def __getstate__(self) -> dict[str, Any]:
        """What a worker process needs; it has no workers of its own."""
        return {**self.__dict__, "_workers": None}

    def _transformed(self, key: _Key, interaction: Interaction) -> Interaction:
        if self.transform is None:
            return interaction
        with python_random(hash_seed(self.seed, key.epoch, STREAM_TRANSFORM) + key.number):
            return self.transform(self.dataset, interaction)


@contextmanager
def python_random(seed: int) -> Iterator[None]:
    """Seed Python's global generator, which RecBole's transforms draw from, and put its state back afterwards."""
    before = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before)


class TrainDataLoader(_Loader):
    """Training batches, row for row those of stock RecBole's loader with the same seed in the same epoch.

    Histories are cut to the longest in the batch. If the model's `needs(config)` names "partner", each row brings along
    another row with the same target; if it names "view_1" or "view_2", a random view of its history (the `aug_*` keys);
    if it names "cloze", its items with some of them masked, and what was masked (`cloze`, `mask_ratio`, `ft_ratio`).

    Args:
        config: The run's config.
        dataset: The training part.

    Raises:
        ModelError: If the model needs something this loader does not know, or views without the keys that make them.
        DataError: If RecBole's masking cannot work on so few items.
    """

    def __init__(self, config: Any, dataset: SequentialDataset) -> None:
        super().__init__(config, dataset, config["train_batch_size"])
        needs = getattr(config.model_class, "needs", None)
        self.needs: frozenset[str] = frozenset() if needs is None else frozenset(needs(config))
        unknown = sorted(self.needs - KNOWN_NEEDS)
        if unknown:
            raise ModelError(
                f"{config['model']} needs {unknown} in a batch.", f"The loader offers {sorted(KNOWN_NEEDS)}."
            )
        self._check_transform()
        self.partners = self._index_partners() if PARTNER in self.needs else None
        self.augmentation = self._augmentation() if self.needs & set(VIEWS) else None
        self._epoch_order = EpochOrder(len(dataset), self.seed)

    def _check_transform(self) -> None:
        longest = int((self.dataset.rows.end - self.dataset.rows.start).max())
        if self.config["transform"] == "mask_itemseq" and longest >= self.dataset.item_num - 1:
            raise DataError(
                f"A history of {longest} items among {self.dataset.item_num - 1}: RecBole's masking looks for an item "
                "outside of each history and would never end.",
                "Set MAX_ITEM_LIST_LENGTH below the number of items.",
            )

    def _index_partners(self) -> SameTargetIndex:
        rows = self.dataset.rows
        if self.config["partner_exclude"] == "prefix":
            return SameTargetIndex(rows.target, window_keys(self.dataset.items, rows.start, rows.end))
        return SameTargetIndex(rows.target)

    def _augmentation(self) -> Augmentation:
        values = {key: self.config[f"aug_{key}"] for key in ("types", "distinct", "mask_token")}
        ratios = {f"{name}_ratio": self.config[f"aug_{name}_ratio"] for name in ("crop", "mask", "reorder")}
        missing = [f"aug_{key}" for key, value in {**values, **ratios}.items() if value is None]
        if missing:
            raise ModelError(
                f"{self.config['model']} needs views of a history, but has no {', '.join(missing)}",
                "declare them in its `config_defaults`; properties/model/CL4SRec.yaml shows values",
            )
        return Augmentation(
            types=tuple(values["types"]),
            distinct=values["distinct"],
            mask_id=self.dataset.item_num if values["mask_token"] == "mask" else 0,
            **ratios,
        )

    def _order(self) -> np.ndarray:
        return self._epoch_order.permutation(self.epoch) if self.config["shuffle"] else super()._order()

    def _collate(self, key: _Key) -> Interaction:
        interaction = self.dataset.__getitem__(key.rows, self.width)
        if self.partners is not None:
            partner = self._partners_of(self.partners, key)
            history, length = self.dataset.windows(partner, self.width)
            interaction[f"{PARTNER}_{self.dataset.item_list_field}"] = history
            interaction[f"{PARTNER}_{self.dataset.item_list_length_field}"] = length
            interaction[f"{PARTNER}_{ROW_ID}"] = torch.from_numpy(partner)
        if self.augmentation is not None:
            self._add_views(self.augmentation, key, interaction)
        if CLOZE in self.needs:
            self._add_cloze(key, interaction)
        return self._transformed(key, interaction)

    def _partners_of(self, index: SameTargetIndex, key: _Key) -> np.ndarray:
        if self.config["partner_sampling"] == "last":
            return index.last[key.rows]
        return index.draw(key.rows, hash_uniform(self.seed, key.epoch, key.rows, STREAM_PARTNER))

    def _add_views(self, augmentation: Augmentation, key: _Key, interaction: Interaction) -> None:
        names = self.dataset.item_list_field, self.dataset.item_list_length_field
        items, lengths = (interaction[name].numpy() for name in names)
        # A row's numbers are counted from row * (draws of the longest history), whatever the width of the batch.
        counters = key.rows[:, None] * (N_ROW_DRAWS + self.dataset.max_item_list_len)
        counters = counters + np.arange(N_ROW_DRAWS + items.shape[1])
        draws = (hash_uniform(self.seed, key.epoch, counters, stream) for stream in (STREAM_VIEW_1, STREAM_VIEW_2))
        for view, (view_items, view_lengths) in zip(VIEWS, augmentation.two_views(items, lengths, *draws)):
            if view in self.needs:
                width = self.width or int(view_lengths.max())
                interaction[f"{view}_{names[0]}"] = torch.from_numpy(np.ascontiguousarray(view_items[:, :width]))
                interaction[f"{view}_{names[1]}"] = torch.from_numpy(view_lengths)

    def _add_cloze(self, key: _Key, interaction: Interaction) -> None:
        """Masked items and their labels: of history and target together, or of the history alone (`cloze: recbole`)."""
        names = self.dataset.item_list_field, self.dataset.item_list_length_field
        items, lengths = (interaction[name] for name in names)
        longest, as_recbole = self.dataset.max_item_list_len, self.config["cloze"] == "recbole"
        # RecBole draws once per batch whether only last items are masked
        drawn_for = np.full(len(key.rows), key.number) if as_recbole else key.rows
        last_only = hash_uniform(self.seed, key.epoch, drawn_for, STREAM_CLOZE_LAST) < self.config["ft_ratio"]
        if not as_recbole:
            items, lengths = append_item(items, lengths, interaction[self.dataset.iid_field], longest)
        counters = key.rows[:, None] * longest + np.arange(items.shape[1])
        draws = torch.from_numpy(hash_uniform(self.seed, key.epoch, counters, STREAM_CLOZE))
        task = items, lengths, torch.from_numpy(last_only), draws, self.config["mask_ratio"], self.dataset.item_num
        masked, labels = mask_items_as_recbole(*task, longest) if as_recbole else mask_items(*task)
        interaction[f"{CLOZE}_{names[0]}"] = masked
        interaction[f"{CLOZE}_{names[1]}"] = lengths
        interaction[CLOZE_LABELS] = labels


class FullSortEvalDataLoader(_Loader):
    """Evaluation batches for full ranking, in row order, in RecBole's four-part form.

    Yields (interaction, (history_row, history_item), positive_row, positive_item): the pairs list the distinct items
    that each row's user has had before the target, beyond the history a model is given; rows are places in the batch.

    Args:
        config: The run's config.
        dataset: The validation or test part.
    """

    def __init__(self, config: Any, dataset: SequentialDataset) -> None:
        super().__init__(config, dataset, config["eval_batch_size"])
        if config["transform"] in TRAINING_TRANSFORMS:
            self.transform = None

    def _collate(self, key: _Key) -> tuple[Interaction, tuple[torch.Tensor, torch.Tensor], torch.Tensor, torch.Tensor]:
        interaction = self._transformed(key, self.dataset.__getitem__(key.rows, self.width))
        return (
            interaction,
            self.dataset.histories(key.rows),
            torch.arange(len(key.rows)),
            interaction[self.dataset.iid_field],
        )
