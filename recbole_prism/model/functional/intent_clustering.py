"""The clustering loss of ELCRec."""

from __future__ import annotations

from torch import Tensor


def clustering_loss(representations: Tensor, centres: Tensor) -> Tensor:
    """mean_{b,k} |h_b - c_k|^2 - mean_{k,l} |c_k - c_l|^2, the pairs k = l included as in the authors' code.

    With unit vectors this is 2 |c|^2 - 2 <h, c>, where c and h are the means of centres and representations: the loss
    sees two mean vectors only and cannot shape single clusters.

    Args:
        representations: [B, d].
        centres: [K, d].

    Returns:
        Scalar.
    """
    mean_centre = centres.mean(dim=0)
    norms = representations.square().sum(dim=1).mean() - centres.square().sum(dim=1).mean()
    return norms + 2 * mean_centre.square().sum() - 2 * (representations.mean(dim=0) * mean_centre).sum()
