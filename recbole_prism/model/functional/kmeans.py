"""k-means (Lloyd's algorithm) for the E-steps of the intent models: the same result for the same seed, no global state.

Published settings (ICLRec, ICSRec, ELCRec): 20 iterations from each of 5 random choices of rows, the best one kept, and
no subsampling; later epochs go on from the centres of the epoch before.
"""

from __future__ import annotations

import importlib
import logging
from dataclasses import dataclass
from typing import Optional

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from recbole_prism.errors import ConfigError

logger = logging.getLogger("recbole_prism")

BACKENDS = ("auto", "torch", "sklearn", "faiss")
_CHUNK_SCORES = 1 << 18  # scores handled at a time: about a core's cache
_CHUNK_SCORES_GPU = 1 << 26


def assign(points: Tensor, centres: Tensor) -> Tensor:
    """Nearest centre by Euclidean distance, of equal ones the first: points [..., d], centres [K, d] -> int64 [...]."""
    half_norms = centres.square().sum(dim=1) / 2
    flat = points.reshape(-1, points.shape[-1])
    n_rows = _chunk_rows(flat, centres)
    found = [torch.addmm(-half_norms, part, centres.T).argmax(dim=1) for part in flat.split(n_rows)]
    return torch.cat(found).view(points.shape[:-1])


def inertia(points: Tensor, centres: Tensor) -> float:
    """Sum of squared distances to the nearest centre, in float64: points [n, d], centres [K, d]."""
    return float(_squared_distances(points, centres, assign(points, centres)).sum(dtype=torch.float64))


@dataclass(frozen=True)
class KMeans:
    """Settings of a clustering.

    Attributes:
        n_clusters: K.
        n_iterations: Lloyd iterations of a fit; it ends earlier once nothing changes.
        n_restarts: Random starts of a fit without given centres; the one of lowest inertia counts.
        backend: `torch`, `sklearn`, `faiss` (an extra) or `auto`: torch, which measures as fast as scikit-learn on one
            core and works on every device.
    """

    n_clusters: int
    n_iterations: int = 20
    n_restarts: int = 5
    backend: str = "auto"

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise ValueError(f"backend must be one of {BACKENDS}, got {self.backend!r}")

    @torch.no_grad()
    def fit(self, points: Tensor, seed: int, init: Optional[Tensor] = None) -> Tensor:
        """Cluster.

        Args:
            points: [n, d], n >= 1.
            seed: Of the random starts.
            init: [K', d] centres to go on from, instead of random starts.

        Returns:
            [K', d] centres; K' = K, or max(1, n // 2) with a warning where there are no more points than clusters.

        Raises:
            ConfigError: For the backend faiss, if it is not installed.
        """
        n_points = points.shape[0]
        n_clusters = self.n_clusters
        if n_points <= n_clusters:
            n_clusters = max(1, n_points // 2)
            logger.warning("%d rows for %d clusters: %d clusters are made", n_points, self.n_clusters, n_clusters)
        if init is not None and init.shape[0] == n_clusters:
            return self._lloyd(points, init)
        random = np.random.default_rng(seed)
        best, lowest = points[:n_clusters], float("inf")
        for _ in range(self.n_restarts):
            rows = torch.from_numpy(random.choice(n_points, n_clusters, replace=False)).to(points.device)
            centres = self._lloyd(points, points[rows])
            value = inertia(points, centres) if self.n_restarts > 1 else 0.0
            if value < lowest:
                best, lowest = centres, value
        return best

    def _lloyd(self, points: Tensor, centres: Tensor) -> Tensor:
        backend = {"sklearn": _sklearn_lloyd, "faiss": _faiss_lloyd}.get(self.backend, _torch_lloyd)
        return backend(points, centres, self.n_iterations)


def _chunk_rows(points: Tensor, centres: Tensor) -> int:
    """Points handled at a time."""
    scores = _CHUNK_SCORES if points.device.type == "cpu" else _CHUNK_SCORES_GPU
    return max(1, scores // centres.shape[0])


def _squared_distances(points: Tensor, centres: Tensor, labels: Tensor) -> Tensor:
    """[n] squared distance of each point to the centre of its label."""
    return (points - centres[labels]).square().sum(dim=1)


def _torch_lloyd(points: Tensor, centres: Tensor, n_iterations: int) -> Tensor:
    """Lloyd iterations on the points' device; a cluster without points moves to the point farthest from its centre."""
    before: Optional[Tensor] = None
    for _ in range(n_iterations):
        labels = assign(points, centres)
        if before is not None and torch.equal(labels, before):
            break
        before = labels
        counts = torch.bincount(labels, minlength=centres.shape[0])
        means = _sums(points, labels, centres.shape[0]) / counts.clamp(min=1)[:, None]
        empty = torch.nonzero(counts == 0).squeeze(1)
        if empty.shape[0]:
            distances = _squared_distances(points, centres, labels)
            means[empty] = points[distances.argsort(descending=True, stable=True)[: empty.shape[0]]]
        centres = means
    return centres


def _sums(points: Tensor, labels: Tensor, n_clusters: int) -> Tensor:
    """Sum of the points of each cluster [K, d], in an order that does not vary from run to run."""
    if points.device.type == "cpu":
        return points.new_zeros(n_clusters, points.shape[1]).index_add_(0, labels, points)
    sums = points.new_zeros(n_clusters, points.shape[1])
    n_rows = max(1, _CHUNK_SCORES_GPU // n_clusters)
    for part, label in zip(points.split(n_rows), labels.split(n_rows)):  # index_add_ would add in any order there
        sums.addmm_(functional.one_hot(label, n_clusters).to(part.dtype).T, part)
    return sums


def _sklearn_lloyd(points: Tensor, centres: Tensor, n_iterations: int) -> Tensor:
    one_thread = importlib.import_module("threadpoolctl").threadpool_limits(limits=1, user_api="openmp")
    model = importlib.import_module("sklearn.cluster").KMeans(
        centres.shape[0],
        init=centres.cpu().numpy(),
        n_init=1,
        max_iter=n_iterations,
        tol=0.0,
        algorithm="lloyd",
        random_state=0,  # unused with given centres, but the global generator must not be looked at
    )
    with one_thread:  # several threads would add up in the order in which they finish
        found = model.fit(points.cpu().numpy()).cluster_centers_
    return torch.from_numpy(np.ascontiguousarray(found)).to(points)


def _faiss_lloyd(points: Tensor, centres: Tensor, n_iterations: int) -> Tensor:
    try:
        faiss = importlib.import_module("faiss")
    except ImportError as error:
        raise ConfigError(
            "kmeans_backend: faiss needs the package faiss",
            "pip install recbole-prism[faiss], or set kmeans_backend: auto",
        ) from error
    rows = np.ascontiguousarray(points.cpu().numpy(), dtype=np.float32)
    clustering = faiss.Clustering(rows.shape[1], centres.shape[0])
    clustering.niter = n_iterations
    clustering.min_points_per_centroid = 1
    clustering.max_points_per_centroid = len(rows)  # no subsampling
    start = np.ascontiguousarray(centres.cpu().numpy(), dtype=np.float32)
    faiss.copy_array_to_vector(start.ravel(), clustering.centroids)
    clustering.train(rows, faiss.IndexFlatL2(rows.shape[1]))
    found = faiss.vector_to_array(clustering.centroids).reshape(start.shape)
    return torch.from_numpy(found).to(points)
