"""Raw tables as a stream of chunks: CSV and the like, JSON lines, Parquet. Memory does not grow with the file."""

from __future__ import annotations

import ast
import csv
import json
import re
import warnings
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import IO, Any, Iterator, Optional

import numpy as np
import pandas as pd

from recbole_prism.data.columns import TimeColumn, id_strings
from recbole_prism.data.containers import bare_name, open_raw
from recbole_prism.errors import DataError

CHUNK_ROWS = 250_000
_FORMATS = {
    ".csv": ("csv", ","),
    ".tsv": ("csv", "\t"),
    ".dat": ("csv", "::"),
    ".json": ("json_lines", ""),
    ".jsonl": ("json_lines", ""),
    ".parquet": ("parquet", ""),
}
_OTHER_DELIMITERS = (";", "\t", "|", ",")


@dataclass(frozen=True)
class Table:
    """How a raw file is to be read.

    Attributes:
        user, item, time: Names of its columns (or JSON keys).
        rating: Column of ratings, where a filter needs it; "" for none.
        format: "csv", "json_lines" or "parquet".
        delimiter: Between fields of a "csv"; one character or "::".
        header: Names of all columns of a file without a header line; empty if the first line holds them.
        time_unit: Unit of numeric times: s, ms, us, ns.
    """

    user: str
    item: str
    time: str
    rating: str = ""
    format: str = "csv"
    delimiter: str = ","
    header: tuple[str, ...] = ()
    time_unit: str = "s"

    @property
    def columns(self) -> list[str]:
        return [column for column in (self.user, self.item, self.time, self.rating) if column]


@dataclass(frozen=True)
class Events:
    """A chunk of n interactions in file order.

    Attributes:
        user, item: [n] object arrays of str.
        time: [n] float64.
        rating: [n] float64, or None.
    """

    user: "np.ndarray"
    item: "np.ndarray"
    time: "np.ndarray"
    rating: "Optional[np.ndarray]"


def table_by_suffix(path: Path, user: str, item: str, time: str, time_unit: str = "s") -> Table:
    """Reading plan of a user's own file, with the format told by its name (before .gz).

    Raises:
        DataError: If the suffix is none of .csv, .tsv, .dat, .json, .jsonl (each also with .gz) and .parquet.
    """
    suffix = Path(bare_name(path.name.lower())).suffix
    if suffix not in _FORMATS:
        raise DataError(
            f"{path.name}: cannot tell the format from the name",
            f"name it {', '.join(_FORMATS)} (text formats also .gz)",
        )
    kind, delimiter = _FORMATS[suffix]
    return Table(user, item, time, format=kind, delimiter=delimiter, time_unit=time_unit)


def read_events(path: Path, table: Table, member: str = "") -> Iterator[Events]:
    """Read the wanted columns of a raw file, chunk by chunk.

    Args:
        path: Raw file.
        table: How to read it.
        member: File name of the member inside an archive.

    Raises:
        DataError: For a missing, damaged or cut file, a missing column, a broken line, an unusable id or time.
    """
    times, first_row = TimeColumn(table.time_unit), 1
    for frame in _frames(path, table, member):
        yield Events(
            user=id_strings(frame[table.user], first_row),
            item=id_strings(frame[table.item], first_row),
            time=times.seconds(frame[table.time], first_row),
            rating=_ratings(frame[table.rating], first_row) if table.rating else None,
        )
        first_row += len(frame)


def _frames(path: Path, table: Table, member: str) -> Iterator[pd.DataFrame]:
    if table.format == "parquet":
        yield from _read_parquet(path, table)
        return
    reader = {"csv": _read_csv, "json_lines": _read_json_lines}[table.format]
    with open_raw(path, member) as stream:
        yield from reader(stream, table, path)


def _ratings(values: "pd.Series[object]", first_row: int) -> "np.ndarray":
    ratings = pd.to_numeric(values, errors="coerce").to_numpy(dtype=np.float64)
    if np.isnan(ratings).any():
        position = int(np.flatnonzero(np.isnan(ratings))[0])
        raise DataError(
            f"row {first_row + position}, column {values.name!r}: {values.iloc[position]!r} is not a rating"
        )
    return ratings


def missing_columns(path: Path, wanted: list[str], found: list[str]) -> DataError:
    """The error for a file that lacks columns; it shows those it has."""
    missing = [column for column in wanted if column not in found]
    return DataError(
        f"{path} has no column {', '.join(map(repr, missing))}; it has: {', '.join(map(repr, found))}",
        "name the columns as they are",
    )


def _read_csv(stream: IO[bytes], table: Table, path: Path) -> Iterator[pd.DataFrame]:
    n_header = 0 if table.header else 1
    if n_header:
        table = _with_header(stream.readline(), table, path)
    names = _column_names(table, path)
    try:
        # all columns are read: with `usecols` pandas would take a line with too many fields without a word
        chunks = pd.read_csv(
            stream,
            sep=table.delimiter[0],
            header=None,
            names=names,
            index_col=False,
            dtype=str,
            keep_default_na=False,
            chunksize=CHUNK_ROWS,
        )
        while True:
            with warnings.catch_warnings():
                warnings.simplefilter("error", pd.errors.ParserWarning)  # "length of header or names does not match"
                chunk = next(chunks, None)
            if chunk is None:
                return
            yield chunk
    except pd.errors.EmptyDataError:
        return
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error}", "convert it to UTF-8 first") from error
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        fields = f"every line should have {len(table.header)} fields: {', '.join(table.header)}"
        raise DataError(f"{path} has a broken line: {_file_line(str(error), n_header)}", fields) from error


def _column_names(table: Table, path: Path) -> list[str]:
    """Names to read with: unused columns, which may be nameless or stand twice, get names of their own."""
    twice = [column for column in table.columns if table.header.count(column) > 1]
    if twice:
        raise DataError(f"{path} has two columns {twice[0]!r}", "rename one of them")
    names = [name if name in table.columns else f"\0unused{number}" for number, name in enumerate(table.header)]
    if table.delimiter != "::":
        return names
    # pandas reads one-character delimiters many times faster: with ":" every other field is empty
    return [name for pair in ((name, f"\0{name}") for name in names) for name in pair][:-1]


def _file_line(message: str, n_header: int) -> str:
    """pandas counts lines from where it started to read; people count from the top of the file."""
    return re.sub(r"line (\d+)", lambda match: f"line {int(match[1]) + n_header}", message).strip()


def _with_header(line: bytes, table: Table, path: Path) -> Table:
    """Take the column names from the first line; another delimiter is taken if only it gives the wanted columns."""
    try:
        text = line.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error}", "convert it to UTF-8 first") from error
    own = _split_header(text, table.delimiter)
    if set(table.columns) <= set(own):
        return replace(table, header=own)
    for delimiter in _OTHER_DELIMITERS:
        header = _split_header(text, delimiter)
        if set(table.columns) <= set(header):
            return replace(table, header=header, delimiter=delimiter)
    raise missing_columns(path, table.columns, list(own))


def _split_header(text: str, delimiter: str) -> tuple[str, ...]:
    if len(delimiter) > 1:
        return tuple(text.split(delimiter))
    return tuple(next(csv.reader([text], delimiter=delimiter), []))


def _read_json_lines(stream: IO[bytes], table: Table, path: Path) -> Iterator[pd.DataFrame]:
    records = (
        _values(line, number, table.columns, path) for number, line in enumerate(stream, start=1) if line.strip()
    )
    while True:
        chunk = list(islice(records, CHUNK_ROWS))
        if not chunk:
            return
        yield pd.DataFrame(dict(zip(table.columns, (pd.Series(column, dtype=object) for column in zip(*chunk)))))


def _values(line: bytes, number: int, columns: list[str], path: Path) -> tuple[Any, ...]:
    try:
        record = json.loads(line)
    except ValueError:
        record = _python_literal(line, number, path)
    if not isinstance(record, dict):
        raise DataError(f"{path}, line {number}: not an object with named values", "each line must be one JSON object")
    try:
        return tuple([record[column] for column in columns])
    except KeyError as error:
        raise missing_columns(Path(f"{path}, line {number}:"), columns, list(record)) from error


def _python_literal(line: bytes, number: int, path: Path) -> Any:
    """The older Amazon files are Python dictionaries, not JSON."""
    try:
        return ast.literal_eval(line.decode("utf-8"))
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise DataError(
            f"{path}, line {number}: neither JSON nor a Python dictionary: {line[:60]!r}",
            "the file may be cut off or of another format",
        ) from error


def _read_parquet(path: Path, table: Table) -> Iterator[pd.DataFrame]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise DataError("reading Parquet needs pyarrow", "pip install pyarrow") from error
    if not path.is_file():
        raise DataError(f"{path} does not exist", "check the path")
    try:
        with pq.ParquetFile(path) as parquet:
            found = parquet.schema_arrow.names
            if not set(table.columns) <= set(found):
                raise missing_columns(path, table.columns, found)
            for batch in parquet.iter_batches(CHUNK_ROWS, columns=table.columns):
                yield pd.DataFrame(
                    {name: _pandas_column(column) for name, column in zip(batch.schema.names, batch.columns)}
                )
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} is damaged or not a Parquet file: {error}", "write or download it again") from error


def _pandas_column(column: Any) -> "pd.Series[object]":
    """Whole numbers with gaps stay whole numbers (pandas alone would make them 7.0)."""
    import pyarrow as pa

    if pa.types.is_integer(column.type) and column.null_count:
        return pd.Series(column.to_pylist(), dtype=object)
    return column.to_pandas()
