"""The one in-batch contrastive loss of this package (also called NT-Xent)."""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor
from torch.nn import functional

SIMILARITIES = ("cosine", "dot")
NEGATIVES = ("both_views", "cross_view")


def info_nce(
    first: Tensor,
    second: Tensor,
    temperature: float = 1.0,
    similarity: str = "dot",
    labels: Optional[Tensor] = None,
    negatives: str = "both_views",
) -> Tensor:
    """InfoNCE between two views of B things, both directions averaged, in fp32.

    Args:
        first: [B, m] first views.
        second: [B, m] second views; row b of both belong together.
        temperature: tau > 0.
        similarity: `cosine` or `dot`.
        labels: [B]; rows of equal label are not negatives of each other. None: all other rows are.
        negatives: `both_views`: the other rows of both views, 2B - 2 without labels. `cross_view`: of the other view
            only, B - 1.

    Returns:
        Scalar; 0 where no row has a negative (B = 1).

    Raises:
        ValueError: On an unknown similarity or set of negatives.
    """
    if similarity not in SIMILARITIES:
        raise ValueError(f"similarity must be one of {SIMILARITIES}, got {similarity!r}")
    views = torch.cat([first, second]).to(torch.promote_types(first.dtype, torch.float32))
    if similarity == "cosine":
        views = unit_rows(views)
    return info_nce_of_scores(torch.matmul(views, views.T) / temperature, labels, negatives)


def unit_rows(views: Tensor) -> Tensor:
    """Rows [n, m] at length 1; what dropout zeroed keeps a gradient that cannot blow up."""
    return functional.normalize(views, dim=-1, eps=1e-3)  # LayerNorm outputs are far longer


def info_nce_of_scores(scores: Tensor, labels: Optional[Tensor] = None, negatives: str = "both_views") -> Tensor:
    """`info_nce` for given similarities, already divided by the temperature.

    Args:
        scores: [2B, 2B] of all views with all views, the first views first.
        labels: As for `info_nce`.
        negatives: As for `info_nce`.

    Returns:
        Scalar.

    Raises:
        ValueError: On an unknown set of negatives.
    """
    if negatives not in NEGATIVES:
        raise ValueError(f"negatives must be one of {NEGATIVES}, got {negatives!r}")
    n_rows = scores.shape[0] // 2
    place = torch.arange(2 * n_rows, device=scores.device)
    partner = (place + n_rows) % (2 * n_rows)
    excluded = place[:, None] == place[None, :]
    if negatives == "cross_view":
        excluded = (place[:, None] < n_rows) == (place[None, :] < n_rows)
    if labels is not None:
        label = labels.repeat(2)
        excluded = excluded | (label[:, None] == label[None, :])
    excluded = excluded & (partner[:, None] != place[None, :])
    return functional.cross_entropy(scores.masked_fill(excluded, torch.finfo(scores.dtype).min), partner)
