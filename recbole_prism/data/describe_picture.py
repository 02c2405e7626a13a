"""The description as a picture: events per user and events per item."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from recbole_prism.data.describe import Description
from recbole_prism.data.files import writing_errors
from recbole_prism.errors import DataError


def save_picture(name: str, found: Description, path: Path) -> None:
    """Draw lengths, popularity and the share of events that the most popular items have.

    Args:
        name: Name of the data set, for the title.
        found: Its description.
        path: File to write; its suffix tells the format (.png, .pdf, .svg).

    Raises:
        DataError: If matplotlib is not installed or the file cannot be written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise DataError("a picture needs matplotlib", "in the checkout: pip install '.[plots]'") from error
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    FigureCanvasAgg(figure)  # no window, no global state
    figure.suptitle(
        f"{name}: {len(found.lengths):,} users, {len(found.popularity):,} items, {found.lengths.sum():,} events"
    )
    lengths, popularity, share = figure.subplots(1, 3)
    _histogram(lengths, found.lengths, "events per user", "users")
    lengths.axvline(found.max_length, color="tab:red", linewidth=1, label=f"longest history given: {found.max_length}")
    lengths.legend(frameon=False, fontsize=8)
    _histogram(popularity, found.popularity, "events per item", "items")
    cumulated = np.cumsum(np.sort(found.popularity)[::-1]) / found.popularity.sum()
    share.plot(np.arange(1, len(cumulated) + 1) / len(cumulated), cumulated)
    share.plot([0, 1], [0, 1], color="grey", linewidth=0.8, linestyle=":")
    share.set(xlabel="share of items, most popular first", ylabel="share of events", xlim=(0, 1), ylim=(0, 1.01))
    with writing_errors(path.parent):
        figure.savefig(path, dpi=120)


def _histogram(axes: Any, values: np.ndarray, xlabel: str, ylabel: str) -> None:
    """Logarithmic classes, so that a long tail stays visible."""
    edges = np.unique(np.round(np.geomspace(values.min(), values.max() + 1, 31)))
    axes.hist(values, bins=edges - 0.5, color="tab:blue", edgecolor="white", linewidth=0.4)
    axes.set(xscale="log", yscale="log", xlabel=xlabel, ylabel=ylabel)
    axes.set_ylim(bottom=0.7)  # a class with a single user or item stays visible
