"""Exact Shapley values of a nearest-neighbor classifier beside pyDVL's.

    python benchmarks/curation_shapley.py --python PYTHON

PYTHON has pyDVL 0.10 (0.9 mixes the values of the test points), which needs NumPy 1. Writes
`benchmarks/results/curation_shapley.json`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from holdfast.data.curation.shapley import knn_shapley
from measuring import compared, limited, machine

RESULT = Path(__file__).resolve().parent / "results" / "curation_shapley.json"
POINTS, TESTS, WIDTH, NEIGHBORS, RUNS = 5000, 500, 32, 5, 5
PEER = """
import sys, time, numpy
from pydvl.valuation import Dataset, KNNShapleyValuation
from sklearn.neighbors import KNeighborsClassifier
p = numpy.load(sys.argv[1])
seconds = []
for _ in range(int(sys.argv[4])):
    model, test = KNeighborsClassifier(int(sys.argv[3])), Dataset(p["xt"], p["yt"])
    method = KNNShapleyValuation(model, test, progress=False)
    start = time.process_time()
    method.fit(Dataset(p["x"], p["y"]))
    seconds.append(time.process_time() - start)
result = method.result
order = numpy.argsort(result.indices)
numpy.savez(sys.argv[2], values=result.values[order], seconds=min(seconds))
"""


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", type=Path, required=True, help="an interpreter with pyDVL 0.10")
    python = parser.parse_args().python
    rng = np.random.default_rng(0)
    y, yt = rng.integers(0, 3, POINTS), rng.integers(0, 3, TESTS)
    centers = rng.normal(size=(3, WIDTH))
    x, xt = (centers[labels] + rng.normal(size=(len(labels), WIDTH)) for labels in (y, yt))
    seconds = []
    for _ in range(RUNS):
        start = time.process_time()
        values = knn_shapley(x, y, xt, yt, NEIGHBORS)
        seconds.append(time.process_time() - start)
    with tempfile.TemporaryDirectory() as folder:
        problem, peer = Path(folder) / "problem.npz", Path(folder) / "peer.npz"
        np.savez(problem, x=x, y=y, xt=xt, yt=yt)
        subprocess.run(
            [python, "-W", "ignore", "-c", PEER, problem, peer, str(NEIGHBORS), str(RUNS)],
            check=True,
        )
        with np.load(peer) as theirs:
            error = float(np.abs(theirs["values"] - values).max())
            slowest = float(theirs["seconds"])
    what = f"values of {POINTS:,} points for {TESTS} test points, {WIDTH} features, CPU seconds"
    result = {
        "title": "Points of a nearest-neighbor classifier",
        "script": "benchmarks/curation_shapley.py",
        "input": "overlapping Gaussian classes, random; least of five runs",
        "comparisons": [compared(what, min(seconds), "pyDVL KNNShapleyValuation", slowest, 5.0)],
        "limits": [limited("largest difference of values", error, "", 1e-9)],
        "figures": {},
        "notes": ["Measured beside other work: CPU seconds, least of five."],
        "machine": machine(),
        "versions": {"pydvl": "0.10.0", "numpy": np.__version__},
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
