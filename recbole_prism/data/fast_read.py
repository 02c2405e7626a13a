"""Reading an atomic file with pandas' C engine where it gives what its Python engine, which RecBole uses, gives.

The two differ on fields that begin with a quote, carriage returns and zero bytes, rows longer than the header, and
whole numbers beyond 2^53. A file with any of these, or one the C engine refuses, is left to RecBole.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping, Optional

import numpy as np
import pandas as pd

_EXACT = 2.0**53  # above it a 64-bit float skips whole numbers, and the engines round differently
_BLOCK = 1 << 22


def read_table(path: Path, kinds: Mapping[str, str], separator: str, encoding: Optional[str]) -> Optional[pd.DataFrame]:
    """Some columns of an atomic file.

    Args:
        path: The file.
        kinds: Header entries ("item_id:token") of the wanted columns, in the file's order -> "token" or "float".
        separator: RecBole's key `field_separator`.
        encoding: RecBole's key `encoding`; pandas takes None for UTF-8.

    Returns:
        One column per entry, text or float64, missing values as NaN; None if the file must be left to RecBole.
    """
    known = len(separator) == 1 and encoding in (None, "utf-8") and set(kinds.values()) <= {"token", "float"}
    if not (known and _is_plain(path, separator.encode())):
        return None
    types: dict[str, Any] = {entry: np.float64 if kind == "float" else str for entry, kind in kinds.items()}
    try:
        table = pd.read_csv(
            path,
            sep=separator,
            usecols=list(kinds),
            dtype=types,
            encoding=encoding,
            engine="c",
            float_precision="high",  # the routine that the Python engine uses as well
        )
    except ValueError:  # RecBole's reader has the last word, and its message names the line
        return None
    numbers = table.select_dtypes(np.float64)
    return None if bool((numbers.abs() >= _EXACT).to_numpy().any()) else table


def _is_plain(path: Path, separator: bytes) -> bool:
    """Whether both engines see the same fields in the file."""
    with path.open("rb") as stream:
        header, first = stream.readline(), stream.readline()
        if first.count(separator) != header.count(separator):  # a longer first row is read as if it began with an index
            return False
        stream.seek(0)
        last = b"\n"
        while block := stream.read(_BLOCK):
            block = last + block
            if b"\r" in block or b"\0" in block or separator + b'"' in block or b'\n"' in block:
                return False
            last = block[-1:]
    return True
