"""Makes ``flower-fedavg.npz``: three rounds of FedAvg by Flower 1.41, in an environment that has it.

    pip install flwr==1.41.0 && python tests/federated/flower_vectors.py tests/federated/flower-fedavg.npz

The updates follow from seeds and are not in the file; only Flower's weights after each round are.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

SHAPES = {"conv.weight": (4, 3, 3, 3), "conv.bias": (4,), "head.weight": (10, 64)}
EXAMPLES = (7, 600, 31, 1, 100_003, 250)


def start() -> dict[str, Any]:
    """Global weights before the first round."""
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


def clients(current: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Weights of the clients after a round."""
    rng = np.random.default_rng(number)
    return [
        {
            name: array + 0.1 * rng.normal(size=array.shape).astype(np.float32)
            for name, array in current.items()
        }
        for _ in EXAMPLES
    ]


def main(path: str) -> None:
    """Write Flower's weights."""
    from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
    from flwr.serverapp.strategy.strategy_utils import aggregate_arrayrecords

    current, made = start(), {}
    for number in (1, 2, 3):
        records = [
            RecordDict(
                {
                    "arrays": ArrayRecord({name: Array(array) for name, array in each.items()}),
                    "metrics": MetricRecord({"num-examples": examples}),
                }
            )
            for each, examples in zip(clients(current, number), EXAMPLES, strict=True)
        ]
        result = aggregate_arrayrecords(records, "num-examples")
        current = {name: result[name].numpy() for name in SHAPES}
        made.update({f"{number}/{name}": array for name, array in current.items()})
    np.savez_compressed(path, **made)


if __name__ == "__main__":
    main(sys.argv[1])
