"""Rounds of FedAvg: 1,000 tiny clients, 100 a round, beside Flower's simulation and Apple's pfl.

    python benchmarks/federated_rounds.py --pfl PYTHON --flower PYTHON [--rounds N] [--repeats N]

The peers' interpreters have `pfl==0.6.* torch==2.13.0` and `flwr[simulation]==1.41.0 torch==2.13.0`. Each
trains once before it is measured; the start of processes is in the peak memory only. Writes
`benchmarks/results/federated_rounds.json`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import federated_rounds_inputs as inputs
from measuring import compared, limited, machine, run

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "federated_rounds.json"


def ours(rounds: int) -> dict[str, float]:
    """Seconds, processor seconds and loss of holdfast."""
    import torch

    from holdfast import federated
    from holdfast.federated.training import mean_over

    clients, (x, y) = inputs.clients()
    network = inputs.network()

    def train(rounds: int) -> Any:
        settings = federated.Settings(
            rounds=rounds,
            per_round=inputs.PER_ROUND,
            batch=inputs.BATCH,
            learning_rate=inputs.RATE,
        )
        return federated.run(network, clients, settings=settings)

    train(1)
    begin = time.perf_counter(), time.process_time()
    result = train(rounds)
    seconds, cpu = time.perf_counter() - begin[0], time.process_time() - begin[1]
    network.load_state_dict({n: torch.from_numpy(a) for n, a in result.weights.items()})
    test = torch.from_numpy(x), torch.from_numpy(y)
    loss = mean_over(network, test, torch.nn.functional.cross_entropy)
    return {"seconds": seconds, "cpu": cpu, "loss": loss}


def main() -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pfl", type=Path)
    parser.add_argument("--flower", type=Path)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ours", action="store_true", help="run holdfast alone and print JSON")
    options = parser.parse_args()
    if options.ours:
        print(json.dumps(ours(options.rounds)))
        return
    host, count = machine(), str(options.rounds)
    commands: dict[str, list[str | Path]] = {
        "holdfast": [sys.executable, __file__, "--ours", "--rounds", count],
        "pfl": [options.pfl, HERE / "federated_rounds_pfl.py", count],
        "Flower": [options.flower, HERE / "federated_rounds_flower.py", count],
    }
    commands = {name: command for name, command in commands.items() if command[0]}
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in commands}
    for _ in range(options.repeats):
        for name, command in commands.items():
            done = run(command)
            answer = json.loads(done.output.strip().splitlines()[-1])
            measured[name].append({**answer, "peak_mb": done.peak_mb})
            print(name, measured[name][-1], file=sys.stderr)

    def median(name: str, key: str) -> float:
        return statistics.median(one[key] / options.rounds for one in measured[name])

    goals = {"pfl": 1.0, "Flower": 5.0}
    comparisons = [
        compared("one round", median("holdfast", "seconds"), name, median(name, "seconds"), goal)
        for name, goal in goals.items()
        if name in measured
    ]
    if "pfl" in measured:
        cpu = median("holdfast", "cpu"), median("pfl", "cpu")
        comparisons.append(compared("one round, processor time", cpu[0], "pfl", cpu[1]))
    losses = {n: statistics.median(one["loss"] for one in runs) for n, runs in measured.items()}
    limits = [
        limited(f"test loss after {count} rounds, {name}", loss, "nats")
        for name, loss in losses.items()
    ]
    limits += [
        limited(f"peak memory, {name}", max(one["peak_mb"] for one in runs), "MB")
        for name, runs in measured.items()
    ]
    result = {
        "title": "Federated rounds",
        "script": "benchmarks/federated_rounds.py",
        "input": f"{inputs.CLIENTS:,} clients of {inputs.EXAMPLES} examples, {inputs.PER_ROUND} per round, "
        f"batch {inputs.BATCH}, a network of {inputs.FEATURES}-32-{inputs.CLASSES}, {count} rounds",
        "comparisons": comparisons,
        "limits": limits,
        "figures": {"runs": measured},
        "notes": [
            "Each runs its own sampling and shuffling from the same first weights, so losses agree as far "
            "as these allow. Flower runs clients in Ray workers, the others in one process."
        ],
        "machine": host,
        "versions": {"pfl": "0.6.0", "flwr": "1.41.0", "torch": "2.13.0"},
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    for row in comparisons:
        print(
            f"{row['what']}: {row['ratio']} times as fast as {row['peer']} (goal {row['target']})"
        )


if __name__ == "__main__":
    main()
