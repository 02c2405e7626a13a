"""The one progress reporter: a bar on a terminal or in a notebook, nothing elsewhere; log lines do not tear it."""

from __future__ import annotations

import logging
import sys
from typing import Iterable, Optional, TypeVar

from tqdm.auto import tqdm  # already required by RecBole; knows terminals, notebooks and redirected output

T = TypeVar("T")


def progress(
    iterable: Iterable[T], *, description: str, total: Optional[int] = None, enabled: bool = True
) -> "tqdm[T]":
    """Wrap an iterable in a progress bar.

    Args:
        iterable: What to iterate over.
        description: Text left of the bar.
        total: Number of elements, where `len` cannot tell.
        enabled: False gives the same object without any output.
    """
    return tqdm(iterable, desc=description, total=total, disable=not _visible(enabled), dynamic_ncols=True, leave=False)


def row_bar(*, description: str, total: int, enabled: bool = True) -> "tqdm[object]":
    """A bar that counts rows, so that it shows rows per second; a context manager, moved by `update(n_rows)`."""
    return tqdm(
        desc=description,
        total=total,
        unit=" rows",
        unit_scale=True,
        disable=not _visible(enabled),
        dynamic_ncols=True,
        leave=False,
    )


class ConsoleHandler(logging.Handler):
    """Writes log records to standard error, above a running bar."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        try:
            tqdm.write(self.format(record), file=sys.stderr)
        except Exception:  # the logging module's own rule: a failing handler reports itself and never stops the program
            self.handleError(record)


def _visible(enabled: bool) -> bool:
    """A redrawn bar only fills up a file or a pipe; a notebook's output is no terminal either, but shows it well."""
    return enabled and (sys.stderr.isatty() or "ipykernel" in sys.modules)
