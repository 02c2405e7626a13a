"""Values of raw columns: ids kept as text, times as 64-bit seconds; what is not understood is refused with its row."""

from __future__ import annotations

from typing import Optional

import numpy as np
import pandas as pd

from recbole_prism.errors import DataError

TIME_UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
_EXACT = 2.0**53  # above it a 64-bit float skips whole numbers
# pandas 1 has no such format and guesses, which reads ISO 8601 as well
_ISO = {"format": "ISO8601"} if int(pd.__version__.split(".")[0]) >= 2 else {}


def id_strings(values: "pd.Series[object]", first_row: int) -> "np.ndarray":
    """Ids of one column as text, unchanged: "007" stays "007", whole numbers become their digits.

    Args:
        values: Column of strings or integers; its name is used in messages.
        first_row: Number of its first row in the file, counted from 1 without the header.

    Returns:
        Object array of `str`.

    Raises:
        DataError: For an empty or missing id, or a value that is neither text nor a whole number.
    """
    if pd.api.types.is_integer_dtype(values.dtype) and not pd.api.types.is_extension_array_dtype(values.dtype):
        return values.astype(str).to_numpy(dtype=object)
    ids = values.to_numpy(dtype=object)
    for position, value in enumerate(ids):
        if type(value) is str and value:
            continue
        if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            ids[position] = str(value)
            continue
        raise DataError(
            f"row {first_row + position}, column {values.name!r}: {value!r} is not an id",
            "ids must be text or whole numbers and may not be missing: repair or remove these rows",
        )
    return ids


class TimeColumn:
    """Turns one time column, chunk by chunk, into seconds (or the plain numbers it holds).

    Numbers are divided by the unit; text that is not a number must be ISO 8601 (a time without zone is taken as UTC).
    The first row decides which of the two the column holds.

    Args:
        unit: Unit of numeric times: "s" (kept as they are), "ms", "us" or "ns".
    """

    def __init__(self, unit: str = "s") -> None:
        if unit not in TIME_UNITS:
            raise DataError(f"unknown time unit {unit!r}", f"use one of {', '.join(TIME_UNITS)}")
        self._unit = unit
        self._is_number: Optional[bool] = None

    def seconds(self, values: "pd.Series[object]", first_row: int) -> "np.ndarray":
        """Parse one chunk.

        Args:
            values: Numbers, text or datetimes; its name is used in messages.
            first_row: Number of its first row in the file, counted from 1 without the header.

        Returns:
            float64 array; at Unix seconds its resolution is a quarter of a microsecond.

        Raises:
            DataError: For a missing time or one that cannot be parsed, naming row, column and value.
        """
        if pd.api.types.is_datetime64_any_dtype(values.dtype):
            return self._from_dates(values, values, first_row)
        if self._is_number is None:
            self._is_number = bool(pd.to_numeric(values.head(1), errors="coerce").notna().all())
        if self._is_number:
            return self._from_numbers(values, first_row)
        return self._from_dates(pd.to_datetime(values, utc=True, errors="coerce", **_ISO), values, first_row)

    def _from_numbers(self, values: "pd.Series[object]", first_row: int) -> "np.ndarray":
        numbers = pd.to_numeric(values, errors="coerce").to_numpy()
        if self._unit == "s" and (np.isfinite(numbers) & (np.abs(numbers) > _EXACT)).any():
            raise DataError(
                f"the times in column {values.name!r} are too large to be kept exactly",
                "state their unit, e.g. --time_unit ns",
            )
        seconds = numbers.astype(np.float64) / TIME_UNITS[self._unit]
        _refuse(values, ~np.isfinite(seconds), first_row)
        return seconds

    def _from_dates(self, dates: "pd.Series[object]", values: "pd.Series[object]", first_row: int) -> "np.ndarray":
        _refuse(values, dates.isna().to_numpy(), first_row)
        if dates.dt.tz is not None:
            dates = dates.dt.tz_convert("UTC").dt.tz_localize(None)
        return dates.to_numpy().astype("datetime64[us]").astype(np.int64) / 1e6


def _refuse(values: "pd.Series[object]", bad: "np.ndarray", first_row: int) -> None:
    if not bad.any():
        return
    position = int(np.flatnonzero(bad)[0])
    raise DataError(
        f"row {first_row + position}, column {values.name!r}: {values.iloc[position]!r} is not a time",
        "the whole column must hold numbers, or ISO 8601 text such as 2020-01-31 or 2020-01-31T12:00:00+02:00",
    )
