"""Which points are worth augmenting: influence scores beside pyDVL's.

    python benchmarks/curation_influence.py [--python PYTHON] [--large]

PYTHON has pyDVL, which needs NumPy 1; without it the script makes `.venv-pydvl`. Both score 10,000 points
of 128 features by the same fitted logistic regression; the scores are compared. 200 points are left out
one by one in truth. With --large also 50,000 points of 512 features and ten classes.
Writes `benchmarks/results/curation_influence.json`.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from holdfast.data.curation.influence_scores import Classifier, influence
from measuring import compared, limited, machine

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "curation_influence.json"
VENV = HERE.parent / ".venv-pydvl"
PEERS = ["pydvl[influence]==0.10.0", "numpy<2", "pandas<2.3", "torch==2.13.0"]


def problem(n: int, d: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Overlapping classes of Gaussian points: features [n, d], labels [n]."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % classes
    return 0.2 * rng.normal(size=(classes, d))[y] + rng.normal(size=(n, d)), y


def left_out() -> float:
    """Rank correlation of influence with the loss that refitting without each of 200 points adds."""
    x, y = problem(200, 8, 2)
    model = Classifier.fit(x, y)
    added = []
    for point in range(len(x)):
        others = np.arange(len(x)) != point
        without = Classifier.fit(x[others], y[others])
        added.append(without.losses(x[[point]], y[[point]]) - model.losses(x[[point]], y[[point]]))
    return float(spearmanr(influence(model, x, y), np.concatenate(added)).statistic)


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", type=Path, help="an interpreter that has pyDVL")
    parser.add_argument("--large", action="store_true", help="also 50,000 points")
    given = parser.parse_args()
    python = given.python
    if python is None:
        python = VENV / "bin" / "python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
            subprocess.run([python, "-m", "pip", "-q", "install", *PEERS], check=True)
    where = machine()
    x, y = problem(10_000, 128, 2)
    model = Classifier.fit(x, y)
    ours, theirs, cpu = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        stored, made = Path(folder) / "problem.npz", Path(folder) / "scores.npz"
        np.savez(stored, x=x, y=y, w=model.weights[0], c=model.c)
        for _ in range(5):
            start, begin = time.perf_counter(), time.process_time()
            scores = influence(model, x, y)
            ours.append((time.perf_counter() - start, time.process_time() - begin))
            subprocess.run(
                [python, "-W", "ignore", HERE / "curation_pydvl.py", stored, made], check=True
            )
            with np.load(made) as peer:
                theirs.append(float(peer["seconds"]))
                cpu.append(float(peer["cpu"]))
                error = float(np.abs(peer["scores"] - scores).max() / scores.max())
    what = "influence of 10,000 points on themselves, 128 features"
    fastest, least = min(each[0] for each in ours), min(each[1] for each in ours)
    limits = [
        limited("largest difference of scores, relative to the largest score", error, "", 1e-4),
        limited("1 - rank correlation with true leave-one-out", 1 - left_out(), "", 0.05),
    ]
    if given.large:
        x, y = problem(50_000, 512, 10)
        large = Classifier.fit(x, y)
        start, begin = time.perf_counter(), time.process_time()
        influence(large, x, y)
        wall, used = time.perf_counter() - start, time.process_time() - begin
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        limits += [
            limited("50,000 points, 512 features, 10 classes", wall, "s", 30.0),
            limited("the same, CPU", used, "s"),
            limited("peak memory", peak, "GiB", 4.0),
        ]
    result = {
        "title": "Points to augment",
        "script": "benchmarks/curation_influence.py",
        "input": "overlapping Gaussian classes, random; fastest of five runs",
        "comparisons": [
            compared(what, fastest, "pyDVL DirectInfluence", min(theirs), 20.0),
            compared(f"{what}, CPU seconds", least, "pyDVL DirectInfluence", min(cpu)),
        ],
        "limits": limits,
        "figures": {},
        "notes": [],
        "machine": where,
        "versions": {"pydvl": "0.10.0", "numpy": np.__version__},
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
