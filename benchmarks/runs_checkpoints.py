"""Checkpoints: ours beside torch.save, DCP's save and DCP's async_save, on the same state.

    python benchmarks/runs_checkpoints.py

Every contender saves about 1 GB in a fresh process (and in two, over gloo), several times, the contenders
in turn. Two times count: how long a save stops the training, and until the checkpoint is complete on the
disk. A contender's first save is told apart, as it makes groups and memory that later ones use. Writes
`benchmarks/results/runs_checkpoints.json`, of which `render.py` makes the page; takes about three minutes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from measuring import CORES, Run, compared, machine, run, summary

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "runs_checkpoints.json"
CONTENDERS = ("torch_save", "dcp_save", "dcp_async_save", "holdfast")
NAMES = {
    "torch_save": "torch.save",
    "dcp_save": "DCP save",
    "dcp_async_save": "DCP async_save",
    "holdfast": "holdfast",
}
TIMES = {"blocking": "stops the training", "complete": "until complete"}

Measured = dict[str, list[Run]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the results."""
    options = _options(arguments)
    host = machine()
    runs: Measured = defaultdict(list)
    with tempfile.TemporaryDirectory(dir=options.work, prefix="checkpoints-") as name:
        for _ in range(options.repeats):
            for ranks in (1, 2):
                for contender in CONTENDERS:
                    _saves(Path(name), options, contender, ranks, runs)
    text = json.dumps(_results(options, runs, host), indent=2) + "\n"
    options.result.parent.mkdir(exist_ok=True)
    options.result.write_text(text)
    print(f"wrote {options.result}")


def _saves(
    work: Path, options: argparse.Namespace, contender: str, ranks: int, runs: Measured
) -> None:
    """Some saves of one contender in fresh processes."""
    folder = work / "folder"
    folder.mkdir()
    steps = HERE / "runs_checkpoints_steps.py"
    given = [contender, str(ranks), str(options.megabytes), str(options.saves), folder]
    whole = run([sys.executable, steps, *given])
    shutil.rmtree(folder)
    first, *later = json.loads(whole.output.splitlines()[-1])
    label = f"{contender}_on_{ranks}"
    runs[f"{label}_first_blocking"].append(Run(first["blocking_s"], whole.peak_mb, ""))
    for each in later:
        for kind in TIMES:
            runs[f"{label}_{kind}"].append(Run(each[f"{kind}_s"], whole.peak_mb, ""))


def _results(options: argparse.Namespace, runs: Measured, host: dict[str, Any]) -> dict[str, Any]:
    medians = {
        label: statistics.median(one.seconds for one in each) for label, each in runs.items()
    }
    size = f"{options.megabytes / 1e3:g} GB"
    comparisons = [
        compared(
            f"{size} on {'one process' if ranks == 1 else f'{ranks} ranks'}, {what}",
            medians[f"holdfast_on_{ranks}_{kind}"],
            NAMES[peer],
            medians[f"{peer}_on_{ranks}_{kind}"],
        )
        for kind, what in TIMES.items()
        for ranks in (1, 2)
        for peer in CONTENDERS[:-1]
    ]
    return {
        "title": "Checkpoints",
        "script": "benchmarks/runs_checkpoints.py",
        "input": (
            f"{size} of replicated float32 tensors in host memory, {options.saves - 1} saves in each "
            f"of {options.repeats} processes (or pairs of ranks) after a first one"
        ),
        "comparisons": comparisons,
        "limits": [
            {
                "what": f"the first save of {size} stops the training, on {ranks}",
                "value": round(medians[f"holdfast_on_{ranks}_first_blocking"], 3),
                "unit": "s",
                "limit": None,
            }
            for ranks in (1, 2)
        ],
        "figures": {label: summary(each) for label, each in runs.items()},
        "machine": host,
        "versions": {name: version(name) for name in ("holdfast", "torch")},
        "notes": [
            f"On {CORES} cores and one disk, the contenders in turn; times are medians.",
            "torch.save, on rank 0, does not bring its file to the disk (no fsync) and sums nothing; DCP "
            "syncs its files and sums nothing; ours syncs, sums and publishes by a rename, so it has "
            "more to do until a checkpoint is complete. Its aim is a short stop.",
            "Ours copies into memory that it keeps from the save before; DCP's async_save takes fresh "
            "memory for each save, and its own advice (cached, pinned memory) needs a GPU.",
        ],
    }


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--megabytes", type=float, default=1000)
    parser.add_argument("--saves", type=int, default=3, help="in a process; the first is apart")
    parser.add_argument("--repeats", type=int, default=3, help="processes of each contender")
    parser.add_argument("--work", type=Path, help="where the checkpoints go (about 3 GB)")
    parser.add_argument("--result", type=Path, default=RESULT, help="the file to write")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
