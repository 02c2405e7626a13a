"""Atomic file -> flat items and one (start, end, target) triple per row.

RecBole reads, filters and numbers the events; this class then sorts them by 64-bit time (RecBole keeps 32 bits, which
puts Unix times up to 128 s apart out of order) and keeps one flat array of items. A history is a window into it, so
memory grows with the number of events, not with events times history length. Events of a user with equal times stay in
file order.
"""

from __future__ import annotations

import copy
import hashlib
import logging
import os
import warnings
from typing import Any, Optional, Union

import numpy as np
import pandas as pd
import torch
from recbole.data.dataset import SequentialDataset as RecBoleSequentialDataset
from recbole.data.interaction import Interaction
from recbole.utils import FeatureSource

from recbole_prism.data.dataset_info import DatasetInfo
from recbole_prism.data.splits import PARTS, Rows, ranges, split_rows
from recbole_prism.errors import ConfigError, DataError

logger = logging.getLogger("recbole_prism")

ROW_ID = "row_id"


class SequentialDataset(RecBoleSequentialDataset):
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
        self._raw_times = np.empty(0)
        self.item_list_field: str = config["ITEM_ID_FIELD"] + config["LIST_SUFFIX"]
        super().__init__(config)
        for name in self.feat_name_list:
            if name != "inter_feat":
                setattr(self, name, self._dataframe_to_interaction(getattr(self, name)))
        self._flatten()

    # ---- reading: RecBole's methods, with checks before and after ----

    def _load_data(self, token: str, dataset_path: str) -> None:
        parts = self.benchmark_filename_list
        if parts is not None and len(parts) != len(PARTS):
            raise ConfigError(f"benchmark_filename is {parts!r}.", "Name three files, for train, valid and test.")
        names = [f"{token}.inter"] if parts is None else [f"{token}.{part}.inter" for part in parts]
        for name in names:
            self._check_file(os.path.join(dataset_path, name))
        super()._load_data(token, dataset_path)

    def _required(self) -> dict[str, tuple[str, str]]:
        """Columns an interaction file must have: name -> (type, setting that names it)."""
        required = {self.uid_field: ("token", "USER_ID_FIELD"), self.iid_field: ("token", "ITEM_ID_FIELD")}
        if self.benchmark_filename_list is None:
            required[self.time_field] = ("float", "TIME_FIELD")
        else:
            required[self.item_list_field] = ("token_seq", "LIST_SUFFIX")
        return required

    def _check_file(self, path: str) -> None:
        """The file exists and its header has the columns that sequences are made of, in their types."""
        if not os.path.isfile(path):
            cure = f"Put it there, or set data_path to the folder that holds the folder '{self.dataset_name}'."
            raise DataError(f"The interaction file {path} does not exist.", cure)
        with open(path, encoding=self.config["encoding"]) as file:
            header = file.readline().rstrip("\n")
        types = dict(column.partition(":")[::2] for column in header.split(self.config["field_separator"]))
        for name, (kind, key) in self._required().items():
            if name not in types:
                raise DataError(
                    f"{path} has no column '{name}'. Its header is {header!r}.",
                    f"If the column has another name, say so in a YAML file or on the command line: `{key}: <name>`; "
                    f"columns are separated by field_separator, here {self.config['field_separator']!r}.",
                )
            if types[name] != kind:
                raise DataError(
                    f"{path}: column '{name}' has the type '{types[name]}'.", f"Its header must read '{name}:{kind}'."
                )

    def _get_load_and_unload_col(self, source: Any) -> tuple[Optional[set[str]], Optional[set[str]]]:
        """RecBole's choice of columns, plus those without which there are no sequences."""
        load, unload = super()._get_load_and_unload_col(source)
        if source == FeatureSource.INTERACTION:
            load = None if load is None else load | set(self._required())
            unload = None if unload is None else unload - set(self._required())
        return load, unload

    def _set_alias(self, alias_name: str, default_value: list[str]) -> None:
        """History and target share one vocabulary; RecBole gives pre-split files two unless told otherwise."""
        if alias_name == "item_id" and self.benchmark_filename_list is not None:
            default_value = [*default_value, self.item_list_field]
        super()._set_alias(alias_name, default_value)

    def _load_feat(self, filepath: str, source: Any) -> Optional[pd.DataFrame]:
        if self.item_list_field in (self.config["seq_len"] or {}):
            raise ConfigError(
                f"seq_len cuts '{self.item_list_field}' to its oldest items.",
                "Remove it: MAX_ITEM_LIST_LENGTH keeps the most recent ones.",
            )
        try:
            return super()._load_feat(filepath, source)
        except ValueError as error:  # pandas and RecBole: bad number, bad row, bad header, wrong encoding
            raise DataError(
                f"{filepath} cannot be read: {error}", "Repair the file; its header names each column's type."
            ) from error

    def _load_inter_feat(self, token: str, dataset_path: str) -> None:
        super()._load_inter_feat(token, dataset_path)
        if self.benchmark_filename_list is None:
            bad = np.flatnonzero(~np.isfinite(self.inter_feat[self.time_field].to_numpy()))
            if len(bad):
                raise DataError(
                    f"{len(bad)} of {len(self.inter_feat)} events have no finite time in column '{self.time_field}' "
                    f"(first in line {bad[0] + 2} of {token}.inter).",
                    "Give these events a time or remove them: without one their place in a sequence is unknown.",
                )

    def _filter_nan_user_or_item(self) -> None:
        missing = self.inter_feat[[self.uid_field, self.iid_field]].isnull().any(axis=1).to_numpy()
        if missing.any():
            line = int(np.argmax(missing)) + 2
            logger.warning(
                "%d events have no user or no item and are left out (first in line %d).", int(missing.sum()), line
            )
            self.inter_feat = self.inter_feat[~missing]
        super()._filter_nan_user_or_item()

    def _remove_duplication(self) -> None:
        """As RecBole's, but with a stable sort, so that events with equal times keep their order."""
        keep = self.config["rm_dup_inter"]
        if keep is None:
            return
        n_before = len(self.inter_feat)
        ordered = self.inter_feat.sort_values(self.time_field, kind="stable")
        self.inter_feat = ordered.drop_duplicates(subset=[self.uid_field, self.iid_field], keep=keep)
        logger.info("rm_dup_inter: %d repeated events removed.", n_before - len(self.inter_feat))

    def _fill_nan(self) -> None:
        with warnings.catch_warnings():  # RecBole's filling warns of pandas 3, which _compat.py refuses
            warnings.simplefilter("ignore", FutureWarning)
            super()._fill_nan()

    def _reset_index(self) -> None:
        if self.inter_feat.empty:
            raise DataError(
                f"No event of '{self.dataset_name}' is left after filtering.",
                "Loosen the filters (interval keys, val_interval).",
            )
        super()._reset_index()

    def _remap_ID_all(self) -> None:
        if self.benchmark_filename_list is None:  # from here on RecBole may normalise or discretise the column
            self._raw_times = self.inter_feat[self.time_field].to_numpy(np.float64, copy=True)
        super()._remap_ID_all()

    # ---- flat arrays ----

    def _flatten(self) -> None:
        """Replace the table of events by the flat arrays."""
        table = self.inter_feat
        user, item = table[self.uid_field].to_numpy(), table[self.iid_field].to_numpy()
        missing = int(((user == 0) | (item == 0)).sum())
        if missing:  # only pre-split files come this far: all others were filtered
            raise DataError(
                f"{missing} rows of '{self.dataset_name}' have no user or no item.", "Remove them from the files."
            )
        if self.benchmark_filename_list is None:
            order = np.lexsort((self._raw_times, user))  # stable: equal times stay in file order
            self.items = item[order].astype(np.int32)
            self.times = self._raw_times[order]
            self._events_of_user = np.bincount(user, minlength=self.user_num)
            self._all_rows, self._part_index = self._rows_of_sequences()
        else:
            self._all_rows, self._part_index = self._rows_of_files(table, user, item)
        self._raw_times = np.empty(0)
        self._inter_feat = None
        self._report()

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
