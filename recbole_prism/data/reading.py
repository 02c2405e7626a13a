"""RecBole's reading of atomic files, with checks before and after, 64-bit times and one vocabulary."""

from __future__ import annotations

import logging
import os
import warnings
from pathlib import Path
from typing import Any, Optional, Union

import numpy as np
import pandas as pd
from recbole.data.dataset import SequentialDataset as RecBoleSequentialDataset
from recbole.data.interaction import Interaction
from recbole.utils import FeatureSource, FeatureType

from recbole_prism.config_columns import wrong_encoding
from recbole_prism.data.atomic_file import RESERVED
from recbole_prism.data.fast_read import read_table
from recbole_prism.data.splits import PARTS
from recbole_prism.errors import ConfigError, DataError

logger = logging.getLogger("recbole_prism")


class AtomicFileDataset(RecBoleSequentialDataset):
    """RecBole's methods that read, filter and number events, each where it needs a check or another result.

    Args:
        config: The run's config.
    """

    inter_feat: Union[pd.DataFrame, Interaction]

    def __init__(self, config: Any) -> None:
        self.item_list_field: str = config["ITEM_ID_FIELD"] + config["LIST_SUFFIX"]
        self._raw_times = np.empty(0)
        self._notes: list[tuple[int, str]] = []
        super().__init__(config)

    def _note(self, level: int, text: str) -> None:
        """Log something about the data that a run from the cache must say as well."""
        self._notes.append((level, text))
        logger.log(level, text)

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
        try:
            with open(path, encoding=self.config["encoding"]) as file:
                header = file.readline().rstrip("\n")
        except UnicodeDecodeError as error:
            raise DataError(*wrong_encoding(path, error)) from error
        if header.startswith("\ufeff"):
            raise DataError(f"{path} begins with a byte order mark.", "Say so: --encoding=utf-8-sig")
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
            table = self._load_fast(filepath) if source == FeatureSource.INTERACTION else None
            return super()._load_feat(filepath, source) if table is None else table
        except UnicodeDecodeError as error:
            raise DataError(*wrong_encoding(filepath, error)) from error
        except ValueError as error:  # pandas and RecBole: bad number, bad row, bad header
            raise DataError(
                f"{filepath} cannot be read: {error}", "Repair the file; its header names each column's type."
            ) from error

    def _load_fast(self, path: str) -> Optional[pd.DataFrame]:
        """An interaction file without sequence columns, in a fraction of RecBole's time; None leaves it to RecBole."""
        separator, encoding = self.config["field_separator"], self.config["encoding"]
        load, unload = self._get_load_and_unload_col(FeatureSource.INTERACTION)
        with open(path, encoding=encoding) as file:
            entries = file.readline().rstrip("\n").split(separator)
        kinds = {entry: entry.partition(":")[::2] for entry in entries}
        kinds = {
            entry: (name, kind)
            for entry, (name, kind) in kinds.items()
            if (load is None or name in load) and (unload is None or name not in unload)
        }
        table = read_table(Path(path), {entry: kind for entry, (_, kind) in kinds.items()}, separator, encoding)
        if table is None:
            return None
        table.columns = [name for name, _ in kinds.values()]
        for name, kind in kinds.values():
            self.field2source[name], self.field2type[name] = FeatureSource.INTERACTION, FeatureType(kind)
            self.field2seqlen[name] = 1
            if kind == "float":
                self.field2bucketnum[name] = 2  # as RecBole presets it
        return table

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
            self._note(
                logging.WARNING,
                f"{int(missing.sum())} events have no user or no item and are left out (first in line {line}). "
                f"These words are read as no value too: {', '.join(sorted(RESERVED - {'[PAD]'}))}.",
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
        self._note(logging.INFO, f"rm_dup_inter: {n_before - len(self.inter_feat)} repeated events removed.")

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
