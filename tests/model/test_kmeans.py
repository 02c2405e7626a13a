"""k-means against its definition: means, nearest centres, falling inertia; degenerate data; no global random state."""

from __future__ import annotations

import logging
import random
import sys
import types
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from recbole_prism.errors import ConfigError
from recbole_prism.model.functional.kmeans import KMeans, assign, inertia

INSTALLED = ("auto", "torch", "sklearn")
BLOB_MEANS = torch.tensor([[10.0, 0.0], [-10.0, 0.0], [0.0, 10.0], [0.0, -10.0]])


def blobs(n: int = 200, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Points [n, 2] around four far means, in turn, and the number of each point's mean [n]."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 4
    return BLOB_MEANS[labels] + 0.5 * torch.randn(n, 2, generator=generator), labels


def cloud(n: int = 300, seed: int = 3) -> Tensor:
    return torch.randn(n, 5, generator=torch.Generator().manual_seed(seed))


def test_assign_is_the_nearest_centre_by_loop() -> None:
    points, centres = cloud(40).double(), cloud(7, seed=4).double()
    expected = [min(range(7), key=lambda k: float((point - centres[k]).square().sum())) for point in points]
    assert assign(points, centres).tolist() == expected
    assert assign(points.view(8, 5, 5), centres).flatten().tolist() == expected  # any leading shape
    total = sum(float((point - centres[k]).square().sum()) for point, k in zip(points, expected))
    assert inertia(points, centres) == pytest.approx(total, rel=1e-12)


def test_assign_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    points, centres = cloud(50), cloud(7, seed=4)
    whole = assign(points, centres)
    monkeypatch.setattr("recbole_prism.model.functional.kmeans._CHUNK_SCORES", 21)
    assert torch.equal(assign(points, centres), whole)


@pytest.mark.parametrize("backend", INSTALLED)
def test_recovers_far_blobs(backend: str) -> None:
    points, labels = blobs()
    centres = KMeans(4, backend=backend).fit(points, seed=0)
    found = assign(points, centres)
    assert len({(int(a), int(b)) for a, b in zip(found, labels)}) == 4  # one cluster per blob
    for k in range(4):
        assert torch.allclose(centres[k], points[found == k].mean(dim=0), atol=1e-5)


@pytest.mark.parametrize("backend", INSTALLED)
def test_every_centre_is_the_mean_of_its_members_at_the_end(backend: str) -> None:
    points = cloud()
    centres = KMeans(6, n_iterations=200, n_restarts=1, backend=backend).fit(points, seed=1)
    found = assign(points, centres)
    for k in range(6):
        assert torch.allclose(centres[k], points[found == k].mean(dim=0), atol=1e-5)


@pytest.mark.parametrize("backend", INSTALLED)
def test_inertia_never_rises_from_iteration_to_iteration(backend: str) -> None:
    points, one = cloud(), KMeans(12, n_iterations=1, backend=backend)
    centres = points[:12]
    values = [inertia(points, centres)]
    for _ in range(15):
        centres = one.fit(points, seed=0, init=centres)
        values.append(inertia(points, centres))
    assert all(after <= before * (1 + 1e-6) for before, after in zip(values, values[1:]))
    assert values[-1] < 0.8 * values[0]


def test_the_best_of_the_restarts_is_kept() -> None:
    points, _ = blobs(seed=5)
    single = [inertia(points, KMeans(4, 20, 1).fit(points, seed=seed)) for seed in range(12)]
    assert max(single) > 2 * min(single)  # some starts end badly, or this test would show nothing
    several = [inertia(points, KMeans(4, 20, 8).fit(points, seed=seed)) for seed in range(4)]
    assert max(several) == pytest.approx(min(single), rel=1e-4)


def test_warm_start_goes_on_from_the_given_centres() -> None:
    points = cloud()
    start = KMeans(6, 2, 1).fit(points, seed=0)
    split = KMeans(6, 3).fit(points, seed=99, init=start)
    assert torch.equal(split, KMeans(6, 3).fit(points, seed=0, init=start))  # no random start
    assert torch.allclose(split, KMeans(6, 5, 1).fit(points, seed=0), atol=1e-6)


@pytest.mark.parametrize("backend", INSTALLED)
def test_same_seed_same_bits_and_other_seeds_other_starts(backend: str) -> None:
    points, fit = cloud(), KMeans(9, 3, 1, backend)
    assert torch.equal(fit.fit(points, seed=2), fit.fit(points, seed=2))
    assert not torch.equal(fit.fit(points, seed=2), fit.fit(points, seed=3))


@pytest.mark.parametrize("backend", INSTALLED)
def test_no_global_random_state_is_touched(backend: str) -> None:
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    KMeans(5, backend=backend).fit(cloud(), seed=4)
    assert random.getstate() == before[0] and np.random.get_state()[1].tolist() == before[1]
    assert torch.equal(torch.get_rng_state(), before[2])


def test_an_empty_cluster_moves_to_the_farthest_point() -> None:
    points = torch.tensor([[0.0], [1.0], [10.0]])
    # both points near 0 and the far one belong to the first centre; nobody to the second
    centres = KMeans(2, 1).fit(points, seed=0, init=torch.tensor([[1.0], [100.0]]))
    assert centres.flatten().tolist() == pytest.approx([11 / 3, 10.0])


@pytest.mark.parametrize("backend", INSTALLED)
@pytest.mark.filterwarnings("ignore:Number of distinct clusters")  # scikit-learn's, for the equal points
def test_degenerate_data(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    equal = KMeans(4, backend=backend).fit(torch.ones(20, 3), seed=0)
    assert equal.shape == (4, 3) and torch.allclose(equal, torch.ones(4, 3))
    with caplog.at_level(logging.WARNING, logger="recbole_prism"):
        assert KMeans(8, backend=backend).fit(cloud(8), seed=0).shape == (4, 5)  # n <= K
    assert "8 rows for 8 clusters: 4 clusters are made" in caplog.text
    assert torch.equal(KMeans(8, backend=backend).fit(cloud(1), seed=0), cloud(1))


def test_faiss_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ConfigError, match="needs the package faiss"):
        KMeans(2, backend="faiss").fit(cloud(9), seed=0)


def test_what_faiss_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows, the given iterations and start, and its answer is what comes back."""
    points, asked = cloud(9), {}

    class Clustering:
        def __init__(self, width: int, n_clusters: int) -> None:
            self.shape, self.centroids = (n_clusters, width), []

        def train(self, rows: np.ndarray, index: Any) -> None:
            asked.update(vars(self), n_rows=len(rows), start=np.array(self.centroids), index=index)
            self.centroids = [7.0] * (self.shape[0] * self.shape[1])

    fake: Any = types.ModuleType("faiss")
    fake.Clustering = Clustering
    fake.IndexFlatL2 = lambda width: ("flat", width)
    fake.copy_array_to_vector = lambda array, vector: vector.extend(array.tolist())
    fake.vector_to_array = lambda vector: np.asarray(vector, dtype=np.float32)
    monkeypatch.setitem(sys.modules, "faiss", fake)
    centres = KMeans(2, n_iterations=13, backend="faiss").fit(points, seed=0, init=points[3:5])
    assert torch.equal(centres, torch.full((2, 5), 7.0))
    assert (asked["niter"], asked["n_rows"], asked["max_points_per_centroid"]) == (13, 9, 9)
    assert np.allclose(asked["start"], points[3:5].flatten()) and asked["index"] == ("flat", 5)


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(ValueError, match="backend must be one of"):
        KMeans(2, backend="gpu")
