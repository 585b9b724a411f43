"""Clusters on the sphere: against every partition, scikit-learn's distances, and pandas' ranks."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labelled_points import rotation
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.pairwise import cosine_similarity

from holdfast.data.curation.clusters import CLUSTERS, PER_CLUSTER, Clusters, cluster


def unit(points: Any) -> Any:
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)


def cohesion(points: Any, labels: Any) -> float:
    """Sum of the cosines of points with the mean direction of their cluster: what k-means raises."""
    return float(sum(np.linalg.norm(points[labels == one].sum(axis=0)) for one in set(labels)))


def test_the_best_of_several_starts_is_the_best_partition_of_all() -> None:
    points = unit(np.random.default_rng(4).normal(size=(9, 3)))
    best = max(cohesion(points, np.array(each)) for each in product((0, 1), repeat=9))
    reached = [cohesion(points, cluster(points, seed, 2).label) for seed in range(12)]
    assert max(reached) == pytest.approx(best, rel=1e-6)
    assert min(reached) > 0.8 * best


def test_each_point_goes_to_the_nearest_centroid() -> None:
    points = unit(np.random.default_rng(1).normal(size=(300, 5)))
    found = cluster(points, 3)
    assert len(found.centroids) == 30
    cosines = cosine_similarity(points, found.centroids)
    assert (cosines.argmax(axis=1) == found.label).all()
    assert found.similarity == pytest.approx(cosines.max(axis=1), abs=1e-6)
    assert np.linalg.norm(found.centroids, axis=1) == pytest.approx(1, abs=1e-5)


def test_axes_and_copies_change_no_partition() -> None:
    rng = np.random.default_rng(2)
    truth = np.repeat(np.arange(4), 40)
    points = unit(8 * np.eye(6)[truth] + rng.normal(size=(160, 6)))
    order = rng.permutation(160)
    for other, planted in (
        (points, truth),
        (unit(points @ rotation(6)), truth),
        (points[order], truth[order]),
        (np.repeat(points, 2, axis=0), np.repeat(truth, 2)),
    ):
        found = [cluster(other, seed, 4).label for seed in range(4)]
        best = max(found, key=lambda labels: cohesion(other, labels))
        assert adjusted_rand_score(planted, best) == 1


@pytest.mark.parametrize(
    ("n", "k"), [(1, 1), (9, 1), (19, 1), (20, 2), (999, 99), (1000, 100), (1500, 100)]
)
def test_how_many_clusters(n: int, k: int) -> None:
    assert (CLUSTERS, PER_CLUSTER) == (100, 10)
    points = unit(np.random.default_rng(0).normal(size=(n, 3)))
    assert len(cluster(points).centroids) == k


@pytest.mark.parametrize("points", [np.zeros((30, 4)), np.ones((30, 4)) / 2, np.eye(1)])
def test_points_that_are_all_the_same_or_nothing(points: Any) -> None:
    found = cluster(points.astype(np.float32))
    assert len(set(found.label.tolist())) == 1
    assert np.isfinite(found.centroids).all()
    scores = found.badness()
    for name in ("small-cluster", "far-from-centroid", "combined"):
        assert len(set(scores[name].tolist())) == 1, name  # so they go together, or stay


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([1.0, 0.5, 0.5 + 1e-8, -1.0])), min_size=1
    )
)
def test_scores_are_ranks_of_sizes_and_distances(rows: list[tuple[int, float]]) -> None:
    label, similarity = np.array([a for a, _ in rows]), np.array([b for _, b in rows], np.float32)
    scores = Clusters(np.zeros((4, 2), np.float32), label, similarity).badness()
    frame = pd.DataFrame({"label": label, "far": (1 - similarity.astype(float)).round(6)})
    frame["size"] = frame.groupby("label")["label"].transform("size")
    assert scores["small-cluster"].tolist() == (-frame["size"]).tolist()
    assert scores["far-from-centroid"] == pytest.approx(frame["far"])
    ranks = (-frame["size"]).rank() + frame["far"].rank()
    assert scores["combined"] == pytest.approx(ranks / len(frame))
