"""The one progress reporter: a bar on a terminal, nothing where it is switched off."""

from __future__ import annotations

from typing import Iterable, Optional, TypeVar

from tqdm.auto import tqdm  # already required by RecBole; knows terminals, notebooks and redirected output

T = TypeVar("T")


def progress(iterable: Iterable[T], *, description: str, total: Optional[int] = None, enabled: bool = True) -> "tqdm[T]":
    """Wrap an iterable in a progress bar.

    Args:
        iterable: What to iterate over.
        description: Text left of the bar.
        total: Number of elements, where `len` cannot tell.
        enabled: False gives the same object without any output.
    """
    return tqdm(iterable, desc=description, total=total, disable=not enabled, dynamic_ncols=True, leave=False)
