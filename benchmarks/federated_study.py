"""HeteroSwitch beside FedAvg and q-FedAvg on CIFAR-10 through nine simulated devices.

    python benchmarks/federated_study.py [--data DIR] [--rounds N] [--seeds N] [--processes N] [--photos N]

30 clients, 10 a round, batch 10. DIR has the archives train_1200_per_class.tar.gz and
test_300_per_class.tar.gz of one JPEG per image. Writes `benchmarks/results/federated_study.json`.
"""

from __future__ import annotations

import argparse
import io
import json
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from holdfast import federated
from measuring import limited, machine

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "federated_study.json"
CONFIG = """\
model = "cnn"
data = {{ path = "cifar.npz", clients = 30 }}
devices = {{}}
training = {{ rounds = {rounds}, per_round = 10, batch = 10, learning_rate = 0.1, epochs = {epochs} }}
compare = [
  {{ name = "fedavg" }},
  {{ name = "q-fedavg" }},
  {{ name = "heteroswitch" }},
  {{ name = "heteroswitch", switch = "transform" }},
  {{ name = "heteroswitch", switch = "averaging" }},
  {{ name = "heteroswitch", switch = "always" }},
]
"""


def photos(folder: Path, per_class: int) -> tuple[np.ndarray, np.ndarray]:
    """Images [n, 32, 32, 3] and names of classes, at most so many of each class and archive."""
    images, labels, taken = [], [], {}
    for name in ("train_1200_per_class", "test_300_per_class"):
        with tarfile.open(folder / f"{name}.tar.gz") as archive:
            for member in archive:
                label = member.name.split("/")[-2] if member.name.endswith(".jpg") else None
                key = name, label
                taken[key] = taken.get(key, 0) + 1
                file = archive.extractfile(member)
                if label is None or file is None or taken[key] > per_class:
                    continue
                images.append(np.asarray(Image.open(io.BytesIO(file.read())).convert("RGB")))
                labels.append(label)
    return np.array(images), np.array(labels)


def main() -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=HERE.parents[1] / "shared/data/cifar10")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--photos", type=int, default=400, help="per class and archive")
    options = parser.parse_args()
    host = machine()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        x, y = photos(options.data, options.photos)
        np.savez(folder / "cifar.npz", x=x, y=y)
        (folder / "study.toml").write_text(
            CONFIG.format(rounds=options.rounds, epochs=options.epochs)
        )
        found = federated.study(folder / "study.toml", options.seeds, processes=options.processes)
    rows: dict[tuple[str, str], dict[str, Any]] = {
        (row["rule"], row["metric"]): row for row in found.rows
    }
    mean, variance = (rows["heteroswitch", key] for key in ("mean_accuracy", "variance"))
    cheap = [rows["q-fedavg", key] for key in ("mean_accuracy", "variance")]
    baseline = rows["fedavg", "variance"]["value"]
    limits = [
        limited("points of mean accuracy below FedAvg", -100 * mean["difference"], "points", 0.5),
        limited("variance over devices, of FedAvg's", variance["value"] / baseline, "", 1.0),
    ]
    result = {
        "title": "Devices that differ",
        "script": "benchmarks/federated_study.py",
        "input": f"{len(x):,} photos of CIFAR-10 through 9 simulated devices, 30 clients, 10 a round, "
        f"{options.rounds} rounds, {options.seeds} seeds",
        "comparisons": [],
        "limits": limits,
        "figures": {"rows": found.rows},
        "notes": [
            f"HeteroSwitch less FedAvg: mean accuracy {_difference(mean, 100)} points, variance over "
            f"devices {_difference(variance, 1e4)} squared points (95 % intervals over seeds).",
            f"q-FedAvg (q = 0.2) less FedAvg: mean accuracy {_difference(cheap[0], 100)} points, "
            f"variance {_difference(cheap[1], 1e4)} squared points.",
        ],
        "machine": host,
        "versions": {},
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    print(found)


def _difference(row: dict[str, Any], scale: float) -> str:
    low, high = row["difference_ci95"]
    return f"{scale * row['difference']:+.2f} [{scale * low:+.2f}, {scale * high:+.2f}]"


if __name__ == "__main__":
    main()
