"""Clusters of source files: spherical k-means beside faiss.

    python benchmarks/curation_kmeans.py --python PYTHON [--points 200000]

PYTHON has faiss (pip install faiss-cpu). Both put the same unit vectors of 384 dimensions into 100
clusters: 25 rounds on at most 256 points per cluster, then every point to its nearest centroid. Writes
`benchmarks/results/curation_kmeans.json`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.data.curation.clusters import cluster
from measuring import compared, limited, machine

RESULT = Path(__file__).resolve().parent / "results" / "curation_kmeans.json"
WIDTH, CLUSTERS, RUNS = 384, 100, 3
PEER = """
import sys, time, numpy, faiss
x = numpy.load(sys.argv[1])
used = []
for seed in range(int(sys.argv[3])):
    start = time.process_time()
    means = faiss.Kmeans(x.shape[1], 100, niter=25, spherical=True, seed=seed + 1)
    means.train(x)
    cosines, label = means.index.search(x, 1)
    used.append(time.process_time() - start)
numpy.savez(sys.argv[2], cpu=min(used), cosine=cosines.mean())
"""


def least(work: Callable[[], Any]) -> tuple[float, Any]:
    """The least CPU seconds of three runs, and the last result."""
    used = []
    for _ in range(RUNS):
        start = time.process_time()
        result = work()
        used.append(time.process_time() - start)
    return min(used), result


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", type=Path, required=True, help="an interpreter with faiss")
    parser.add_argument("--points", type=int, default=200_000)
    given = parser.parse_args()
    where = machine()
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(300, WIDTH)).astype(np.float32)
    x = centers[rng.integers(0, 300, given.points)]
    x += 1.5 * rng.standard_normal(x.shape, np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    ours, clusters = least(lambda: cluster(x, k=CLUSTERS))
    sample = x[: 256 * CLUSTERS]
    product, _ = least(
        lambda: (x @ clusters.centroids.T, [sample @ clusters.centroids.T for _ in range(25)])
    )
    with tempfile.TemporaryDirectory() as folder:
        points, made = Path(folder) / "x.npy", Path(folder) / "peer.npz"
        np.save(points, x)
        subprocess.run(
            [given.python, "-W", "ignore", "-c", PEER, points, made, str(RUNS)], check=True
        )
        with np.load(made) as peer:
            theirs, cosine = float(peer["cpu"]), float(peer["cosine"])
    what = f"{given.points:,} vectors of {WIDTH} dimensions, {CLUSTERS} clusters, CPU seconds"
    result = {
        "title": "Clusters of source files",
        "script": "benchmarks/curation_kmeans.py",
        "input": "random unit vectors around 300 centers; least of three runs",
        "comparisons": [compared(what, ours, "faiss Kmeans, spherical", theirs, 1.0)],
        "limits": [
            limited("CPU seconds over those of the matrix products alone", ours / product, "", 1.3),
            limited("mean cosine with the centroid", float(clusters.similarity.mean()), ""),
            limited("mean cosine with the centroid, faiss", cosine, ""),
        ],
        "figures": {},
        "notes": ["Measured beside other work: CPU seconds."],
        "machine": where,
        "versions": {"numpy": np.__version__},
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
