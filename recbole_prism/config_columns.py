"""Checks of the keys that name columns, against the headers of the atomic files, before any data is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping, Optional, Union

import recbole

from recbole_prism.config_values import INTERVAL_FORM, is_interval
from recbole_prism.errors import ConfigError, DataError
from recbole_prism.model.functional.cloze import CLOZE, CLOZE_LABELS
from recbole_prism.registry import ModelEntry, nearest

# names in a batch that no setting changes: the number of a row, what belongs to its same-target partner and its views
ROW_ID, PARTNER, VIEWS = "row_id", "partner", ("view_1", "view_2")
_SUFFIXES = ("inter", "user", "item", "kg", "link")


def dataset_folder(values: Mapping[str, Any]) -> Path:
    """The folder of the atomic files; ml-100k is the one that comes with RecBole."""
    bundled = Path(recbole.__file__).parent / "dataset_example"
    return (bundled if values["dataset"] == "ml-100k" else Path(values["data_path"])) / values["dataset"]


def inter_names(values: Mapping[str, Any]) -> list[str]:
    """Names of the interaction files: one, or the pre-split ones."""
    phases = values.get("benchmark_filename")
    return [f"{values['dataset']}.{phase}.inter" for phase in phases] if phases else [f"{values['dataset']}.inter"]


def main_columns(values: Mapping[str, Any]) -> list[str]:
    """The columns that sequences are made of."""
    return [values[key] for key in ("USER_ID_FIELD", "ITEM_ID_FIELD", "TIME_FIELD")]


def check_names(values: Mapping[str, Any], origin: Mapping[str, str]) -> None:
    """Refuse names under which one part of a batch would overwrite another.

    Raises:
        ConfigError: Two parts have the same name.
    """
    user, item, time, length = (
        values[key] for key in ("USER_ID_FIELD", "ITEM_ID_FIELD", "TIME_FIELD", "ITEM_LIST_LENGTH_FIELD")
    )
    history = item + values["LIST_SUFFIX"]
    parts = [("USER_ID_FIELD", user), ("ITEM_ID_FIELD", item), ("TIME_FIELD", time)]
    parts += [("LIST_SUFFIX", history), ("LIST_SUFFIX", time + values["LIST_SUFFIX"])]
    parts += [("ITEM_LIST_LENGTH_FIELD", length), ("NEG_PREFIX", values["NEG_PREFIX"] + item)]
    parts += [("", name) for name in (ROW_ID, *(f"{PARTNER}_{name}" for name in (history, length, ROW_ID)))]
    parts += [("", f"{branch}_{name}") for branch in (*VIEWS, CLOZE) for name in (history, length)]
    parts += [("", CLOZE_LABELS)]
    seen: dict[str, str] = {}
    for key, name in parts:
        if name in seen:
            keys = [part for part in (seen[name], key) if part]
            where = ", ".join(f"{part} from {origin[part]}" for part in keys)
            cause = f"two parts of a batch have the name {name!r} ({where})"
            raise ConfigError(cause, f"change {' or '.join(keys)}: user, item, time, history and length need one each")
        seen[name] = key


def check_form(values: Mapping[str, Any], origin: Mapping[str, str], entry: ModelEntry) -> None:
    """Check what load_col and unload_col can be told without a file.

    Raises:
        ConfigError: A part is not a list of names, both speak of the same file, or RecBole's own data path would miss
            a column it needs.
    """
    known = (*_SUFFIXES, *(values["additional_feat_suffix"] or ()))
    for key in ("load_col", "unload_col"):
        for suffix, names in (values[key] or {}).items():
            if suffix not in known:
                guess = nearest(str(suffix), known)
                cure = f"did you mean {guess}?" if guess else f"known: {', '.join(known)}"
                raise ConfigError(f"{key} names the unknown file suffix {suffix!r} (from {origin[key]})", cure)
            if not (isinstance(names, list) and all(isinstance(name, str) for name in names)) and names != "*":
                cause = f"{key}.{suffix} is {names!r}, expected a list of columns (from {origin[key]})"
                raise ConfigError(cause, f"write {key}: {{{suffix}: [{names}]}}" if isinstance(names, str) else "")
    both = [suffix for suffix in values["unload_col"] or () if suffix in (values["load_col"] or ())]
    if both:
        raise ConfigError(
            f"unload_col and load_col both choose the columns of .{both[0]}", "write load_col: ~ to load all others"
        )
    if entry.origin == "stock" and values["load_col"] is not None and not values["benchmark_filename"]:
        loaded = values["load_col"].get("inter", [])
        missing = [name for name in main_columns(values) if name not in loaded and loaded != "*"]
        if missing:
            raise ConfigError(
                f"load_col.inter leaves out {', '.join(missing)}, which {entry.display_name} needs",
                f"write load_col: {{inter: [{', '.join(main_columns(values))}]}}",
            )


def check_columns(values: Mapping[str, Any], origin: Mapping[str, str]) -> None:
    """Check the columns of load_col and val_interval against the files, which exist.

    The columns of `main_columns` are left to the data set, which also knows their types.

    Raises:
        DataError: A column is not in the header, or is not loaded.
        ConfigError: A column and its filter do not go together.
    """
    if origin["load_col"] == "default" and not values["val_interval"]:
        return
    types: dict[str, str] = {}  # of the loaded columns
    in_files: set[str] = set()
    for suffix in ("inter", "user", "item"):
        asked = _asked(values, suffix)
        for path in _files(values, suffix):
            header = _header(path, values)
            in_files |= header.keys()
            for name in asked or ():
                if name not in header and name not in main_columns(values):
                    guess = nearest(name, header)
                    cure = f"did you mean {guess}?" if guess else f"it has: {', '.join(header)}"
                    raise DataError(f"load_col names the column {name!r}, which {path} does not have", cure)
            dropped = (values["unload_col"] or {}).get(suffix, [])
            always = main_columns(values) if suffix == "inter" else []
            for name, kind in header.items():
                if name in always or ((asked is None or name in asked) and name not in dropped):
                    types[name] = kind
    for name, wanted in (values["val_interval"] or {}).items():
        _check_filter(name, wanted, types, in_files)


def _check_filter(name: str, wanted: Any, types: Mapping[str, str], in_files: set[str]) -> None:
    if name not in types:
        guess = nearest(name, in_files)
        cure = f"did you mean {guess}?" if guess else f"columns: {', '.join(sorted(in_files))}"
        if name in in_files:
            cure = f"add it to load_col, e.g. load_col: {{inter: [..., {name}]}}"
        raise DataError(f"val_interval names the column {name!r}, which is not loaded", cure)
    if types[name].startswith("float"):
        if not is_interval(str(wanted)):  # as RecBole reads it: [3, 5] will do as well
            raise ConfigError(f"val_interval.{name} is {wanted!r}; {name} holds numbers", f"write {INTERVAL_FORM}")
    elif not isinstance(wanted, list):
        raise ConfigError(
            f"val_interval.{name} is {wanted!r}; {name} holds tokens", "write the list of tokens to keep: [a, b]"
        )


def _asked(values: Mapping[str, Any], suffix: str) -> Optional[list[str]]:
    """Columns that load_col asks for; None for all."""
    if values["load_col"] is None:
        return None
    asked = values["load_col"].get(suffix, [])
    return None if asked == "*" else asked


def _files(values: Mapping[str, Any], suffix: str) -> list[Path]:
    names = inter_names(values) if suffix == "inter" else [f"{values['dataset']}.{suffix}"]
    return [path for path in (dataset_folder(values) / name for name in names) if path.is_file()]


def wrong_encoding(file: Union[str, Path], error: UnicodeDecodeError) -> tuple[str, str]:
    """Cause and cure where a file is not in the encoding it is read with."""
    return (
        f"{file} is not text in the encoding {error.encoding}: {error.reason}",
        "say which encoding it has, e.g. --encoding=latin-1 or --encoding=utf-16",
    )


def _header(path: Path, values: Mapping[str, Any]) -> dict[str, str]:
    """Column -> type, from the first line."""
    encoding = values.get("encoding")
    try:
        with open(path, encoding=encoding) as file:
            line = file.readline().rstrip("\n")
    except UnicodeDecodeError as error:
        raise DataError(*wrong_encoding(path, error)) from error
    return dict(column.partition(":")[::2] for column in line.split(values["field_separator"]))
