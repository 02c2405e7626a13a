"""Atomic file -> flat items and one (start, end, target) triple per row.

RecBole reads, filters and numbers the events (reading.py, cache.py); this class then sorts them by 64-bit time (RecBole
keeps 32 bits, which puts Unix times up to 128 s apart out of order) and keeps one flat array of items. A history is a
window into it, so memory grows with the number of events, not with events times history length. Events of a user with
equal times stay in file order.
"""

from __future__ import annotations

import copy
import hashlib
import logging
from pathlib import Path
from typing import Any, Optional, Union

import numpy as np
import pandas as pd
import torch
from recbole.data.interaction import Interaction
from recbole.utils import FeatureSource, FeatureType

from recbole_prism.config_columns import ROW_ID
from recbole_prism.data.cache import EventCache, StoredEvents, is_recboles_own
from recbole_prism.data.dataset_info import DatasetInfo
from recbole_prism.data.reading import AtomicFileDataset
from recbole_prism.data.splits import PARTS, Rows, ranges, split_rows
from recbole_prism.errors import DataError

logger = logging.getLogger("recbole_prism")


class SequentialDataset(AtomicFileDataset):
    """A sequential data set, and after `build` each of its three parts.

    Vocabularies, `num`, `token2id`, `id2token` and item or user features are RecBole's. Batches hold user, target and
    history; other columns of the interaction file serve RecBole's filters only.

    Attributes:
        items: Item ids, per user chronological, users one after the other. int32 [N]
        times: Times as read, in the order of `items`; empty for pre-split files. float64 [N]
        rows: Rows of this part. This and what follows: only after `build`.
        info: Counts, names and fingerprint.
        item_counts_train, item_counts_all: Events per item in the training part and in all data. int64 [n_items]

    Raises:
        DataError: If a file or column is missing, a time is not a finite number, or no event is left.
    """

    items: np.ndarray
    times: np.ndarray
    rows: Rows
    info: DatasetInfo
    item_counts_train: np.ndarray
    item_counts_all: np.ndarray

    def __init__(self, config: Any) -> None:
        self._inter_feat: Union[pd.DataFrame, Interaction, None] = None
        self._cache: Optional[EventCache] = None
        self._stored: Optional[StoredEvents] = None
        super().__init__(config)
        for name in self.feat_name_list:
            if name != "inter_feat":
                setattr(self, name, self._dataframe_to_interaction(getattr(self, name)))
        self._flatten()

    # ---- the cache ----

    def _from_scratch(self) -> None:
        """RecBole's entry to reading: take what an earlier run has kept, or read."""
        file, reason = self._inter_file(), self._why_not_cached()
        if reason:
            logger.debug("'%s' is not cached: %s.", self.dataset_name, reason)
        elif file.is_file():
            self._cache = EventCache(self.config, file)
            self._stored = self._cache.load()
        if self._stored is None:
            super()._from_scratch()
        else:
            self._restore(self._stored)

    def _inter_file(self) -> Path:
        return Path(self.config["data_path"]) / f"{self.dataset_name}.inter"

    def _why_not_cached(self) -> str:
        """What the cache cannot represent, or must not write; "" if it is used."""
        if not self.config["data_cache"]:
            return "data_cache is off"
        if type(self) is not SequentialDataset:
            return "a subclass may read it otherwise"
        for key in ("benchmark_filename", "additional_feat_suffix", "preload_weight", "discretization"):
            if self.config[key]:
                return f"{key} is set"
        for source in (FeatureSource.USER, FeatureSource.ITEM):
            file = self._inter_file().with_suffix(f".{source.value}")
            if file.is_file() and self._get_load_and_unload_col(source)[0] != set():
                return f"{file.name} is read as well"
        return "it is part of RecBole's installation" if is_recboles_own(self._inter_file().parent) else ""

    def _restore(self, stored: StoredEvents) -> None:
        """Everything that RecBole's reading would have left behind."""
        self._get_preset()
        self._get_field_from_config()
        for name, kind, source, length, buckets in stored.fields:
            self.field2type[name], self.field2source[name] = FeatureType(kind), FeatureSource(source)
            if length is not None:
                self.field2seqlen[name] = length
            if buckets is not None:
                self.field2bucketnum[name] = buckets
        self._init_alias()
        for names, tokens in stored.vocabularies:
            ids = {token: number for number, token in enumerate(tokens)}
            for name in names:
                self.field2id_token[name], self.field2token_id[name] = tokens, ids
        self.user_feat = self.item_feat = None
        self.feat_name_list = ["inter_feat"]
        for level, text in stored.notes:
            logger.log(level, text)

    def _to_store(self) -> StoredEvents:
        shared: dict[int, tuple[list[str], np.ndarray]] = {}
        for name, tokens in self.field2id_token.items():
            shared.setdefault(id(tokens), ([], tokens))[0].append(name)
        length, buckets = self.field2seqlen, self.field2bucketnum
        fields = [
            [name, kind.value, self.field2source[name].value, length.get(name), buckets.get(name)]
            for name, kind in self.field2type.items()
        ]
        vocabularies = list(shared.values())
        return StoredEvents(self.items, self.times, self._events_of_user, vocabularies, fields, self._notes)

    # ---- flat arrays ----

    def _flatten(self) -> None:
        """Replace the table of events by the flat arrays."""
        if self._stored is not None:
            self.items, self.times = self._stored.items, self._stored.times
            self._events_of_user = self._stored.events_of_user
            self._all_rows, self._part_index = self._rows_of_sequences()
        else:
            self._flatten_table(self.inter_feat)
        self._raw_times = np.empty(0)
        self._inter_feat = self._cache = self._stored = None
        self._report()

    def _flatten_table(self, table: pd.DataFrame) -> None:
        user, item = table[self.uid_field].to_numpy(), table[self.iid_field].to_numpy()
        missing = int(((user == 0) | (item == 0)).sum())
        if missing:  # only pre-split files come this far: all others were filtered
            raise DataError(
                f"{missing} rows of '{self.dataset_name}' have no user or no item.", "Remove them from the files."
            )
        if self.benchmark_filename_list is not None:
            self._all_rows, self._part_index = self._rows_of_files(table, user, item)
            return
        order = np.lexsort((self._raw_times, user))  # stable: equal times stay in file order
        self.items = item[order].astype(np.int32)
        self.times = self._raw_times[order]
        self._events_of_user = np.bincount(user, minlength=self.user_num)
        self._all_rows, self._part_index = self._rows_of_sequences()
        if self._cache is not None:
            self._cache.store(self._to_store())

    def _rows_of_sequences(self) -> tuple[Rows, list[np.ndarray]]:
        """One row per event that has an earlier one, and the row numbers of the three parts."""
        n_events = self._events_of_user
        first = np.cumsum(n_events) - n_events
        rows_of_user = np.maximum(n_events - 1, 0)
        if not rows_of_user.any():
            raise DataError(f"No user of '{self.dataset_name}' has two events, so there is nothing to predict from.")
        user = np.repeat(np.arange(len(n_events), dtype=np.int32), rows_of_user)
        is_row = np.ones(len(self.items), dtype=bool)
        is_row[first[n_events > 0]] = False
        rows = self._make_rows(user, first[user], np.flatnonzero(is_row), self.items[is_row])
        return rows, split_rows(self.config["eval_args"], rows_of_user, self.times[is_row])

    def _rows_of_files(self, table: pd.DataFrame, user: np.ndarray, item: np.ndarray) -> tuple[Rows, list[np.ndarray]]:
        """Rows as they stand in pre-split files; each carries its own history."""
        length = table[self.item_list_length_field].to_numpy()
        if not (length > 0).all():
            raise DataError(
                f"{int((length == 0).sum())} rows of '{self.dataset_name}' have an empty {self.item_list_field}.",
                "Remove them.",
            )
        self.items = np.concatenate(table[self.item_list_field].to_numpy()).astype(np.int32)
        self.times = np.empty(0)
        self._events_of_user = np.bincount(user, minlength=self.user_num)
        end = np.cumsum(length)
        rows = self._make_rows(user.astype(np.int32), end - length, end, item.astype(np.int32))
        return rows, np.split(np.arange(len(rows)), np.cumsum(self.file_size_list)[:-1])

    def _make_rows(self, user: np.ndarray, history_start: np.ndarray, end: np.ndarray, target: np.ndarray) -> Rows:
        start = np.maximum(history_start, end - self.max_item_list_len)
        return Rows(user, history_start, start, end, target, np.arange(len(user), dtype=np.int64))

    def _report(self) -> None:
        unused = self.item_num - 1 - len(np.unique(np.concatenate([self.items, self._all_rows.target])))
        if unused:
            logger.info(
                "%d items of '%s' come from the item file alone: nobody has used them, yet they are ranked.",
                unused,
                self.dataset_name,
            )
        if len(self.times):
            user = np.repeat(np.arange(len(self._events_of_user)), self._events_of_user)
            tied = (self.times[1:] == self.times[:-1]) & (user[1:] == user[:-1])
            share = 100 * np.mean(np.append(tied, False) | np.insert(tied, 0, False))
            logger.info(
                "%.1f %% of the events share user and time with another one; among those the file's order counts.",
                share,
            )

    # ---- parts ----

    def build(self) -> list[SequentialDataset]:
        """Split into train, valid and test.

        Raises:
            DataError: If a part that `eval_args` asks for has no rows.
        """
        parts = [self._all_rows.take(index) for index in self._part_index]
        self._check_parts(parts)
        self.info = self._describe(parts)
        self.item_counts_train = self._count_items(parts[0])
        self.item_counts_all = self._count_items(self._all_rows)
        if self.benchmark_filename_list is None:
            self.item_counts_all = np.bincount(self.items, minlength=self.item_num)  # users with one event, too
        built = [copy.copy(self) for _ in parts]
        for part, rows in zip(built, parts):
            part.rows = rows
        return built

    def _check_parts(self, parts: list[Rows]) -> None:
        split = (self.config["eval_args"] or {}).get("split") or {}
        shares = {"valid_only": [1, 1, 0], "test_only": [1, 0, 1]}.get(str(split.get("LS")), [1, 1, 1])
        shares = split.get("RS") or split.get("TS") or shares
        for number, share in enumerate(shares):
            if share > 0 and not len(parts[number]):
                sizes = [len(part) for part in parts]
                raise DataError(
                    f"The {PARTS[number]} part of '{self.dataset_name}' has no rows (train, valid, test: {sizes}).",
                    "With leave-one-out a user needs 3 events for a test row and 4 for a validation row as well.",
                )

    def _count_items(self, rows: Rows) -> np.ndarray:
        """Events per item in these rows: their targets, and the first event of each sequence. int64 [n_items]"""
        first = self.items[rows.history_start[rows.end - rows.history_start == 1]]
        return np.bincount(rows.target, minlength=self.item_num) + np.bincount(first, minlength=self.item_num)

    def _describe(self, parts: list[Rows]) -> DatasetInfo:
        digest = hashlib.sha256(f"{self.user_num} {self.item_num} {self.max_item_list_len}".encode())
        arrays = [
            array for rows in parts for array in (rows.user, rows.history_start, rows.start, rows.end, rows.target)
        ]
        for array in [self.items, *arrays]:
            digest.update(f" {array.dtype.str} {len(array)} ".encode())
            digest.update(np.ascontiguousarray(array).data)
        return DatasetInfo(
            name=self.dataset_name,
            n_users=self.user_num,
            n_items=self.item_num,
            n_interactions=len(self.items) if self.benchmark_filename_list is None else len(self._all_rows),
            n_train_rows=len(parts[0]),
            n_valid_rows=len(parts[1]),
            n_test_rows=len(parts[2]),
            uid_field=self.uid_field,
            iid_field=self.iid_field,
            item_list_field=self.item_list_field,
            item_list_length_field=self.item_list_length_field,
            max_item_list_length=self.max_item_list_len,
            fingerprint=digest.hexdigest(),
        )

    def fingerprint(self) -> str:
        """SHA-256 (hex) of items, rows of all three parts and counts; the same for each part."""
        return self.info.fingerprint

    def user_histories(self) -> tuple[np.ndarray, np.ndarray]:
        """Everything each user has done; of pre-split files the history and the target of the user's last row.

        Returns:
            Items, oldest first, users one after the other, int32; and offsets, int64 [n_users + 1]: those of user u are
            items[offsets[u] : offsets[u + 1]].
        """
        items, counts = self.items, self._events_of_user
        if self.benchmark_filename_list is not None:
            rows = self._all_rows
            last = np.full(self.user_num, -1)
            last[rows.user] = np.arange(len(rows))  # of several rows the last one stays
            last = last[last >= 0]
            length = rows.end[last] - rows.history_start[last]
            items = self.items[ranges(rows.history_start[last], length)]
            items = np.insert(items, np.cumsum(length), rows.target[last])
            counts = np.zeros(self.user_num, dtype=np.int64)
            counts[rows.user[last]] = length + 1
        return items, np.concatenate([[0], np.cumsum(counts)])

    # ---- what RecBole-style code asks of a data set ----

    @property
    def inter_feat(self) -> Union[pd.DataFrame, Interaction]:
        """While reading: RecBole's table. Later: user and item of all events or of this part's targets, on demand."""
        if self._inter_feat is None:
            user, item = np.repeat(np.arange(len(self._events_of_user)), self._events_of_user), self.items
            if hasattr(self, "rows") or self.benchmark_filename_list is not None:
                rows = self.rows if hasattr(self, "rows") else self._all_rows
                user, item = rows.user, rows.target
            columns = {self.uid_field: user, self.iid_field: item}
            self._inter_feat = Interaction(
                {name: torch.from_numpy(values.astype(np.int64)) for name, values in columns.items()}
            )
        return self._inter_feat

    @inter_feat.setter
    def inter_feat(self, table: pd.DataFrame) -> None:
        self._inter_feat = table

    def __len__(self) -> int:
        """Rows of this part; before `build`, events."""
        return len(self.rows) if hasattr(self, "rows") else len(self.inter_feat)

    def __getitem__(self, index: np.ndarray, width: Optional[int] = None) -> Interaction:
        """The rows of a batch.

        Args:
            index: Row numbers. int64 [B]
            width: Width w of the histories; None for the longest of the batch.

        Returns:
            user_id, item_id (target), row_id and item_length [B], item_id_list [B, w], right-padded with 0; all int64.
        """
        rows = self.rows
        history, length = self.windows(index, width)
        return Interaction(
            {
                self.uid_field: torch.from_numpy(rows.user[index].astype(np.int64)),
                self.iid_field: torch.from_numpy(rows.target[index].astype(np.int64)),
                ROW_ID: torch.from_numpy(rows.row_id[index]),
                self.item_list_field: history,
                self.item_list_length_field: length,
            }
        )

    def windows(self, index: np.ndarray, width: Optional[int] = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Histories [B, w], right-padded with 0, and their lengths [B] of some rows; see `__getitem__`."""
        start = self.rows.start[index]
        length = self.rows.end[index] - start
        steps = np.arange(int(length.max()) if width is None else width)
        inside = steps < length[:, None]
        history = self.items[np.where(inside, start[:, None] + steps, 0)].astype(np.int64)
        return torch.from_numpy(history * inside), torch.from_numpy(length)

    def histories(self, index: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """The distinct items of each row's user before the target, beyond the window too.

        Returns:
            Place in `index` and item id of every (row, item) pair, sorted. int64 [M], [M]
        """
        start, end = self.rows.history_start[index], self.rows.end[index]
        row = np.repeat(np.arange(len(index)), end - start)
        pairs = np.unique(row * self.item_num + self.items[ranges(start, end - start)])
        return torch.from_numpy(pairs // self.item_num), torch.from_numpy(pairs % self.item_num)
