"""Hang analysis: 1,024 ranks with 2,000 entries each, beside PyTorch's own `torchfrtrace`.

    python benchmarks/runs_hang.py

Writes the records of a job that hangs (`flight_records`), as pickles and as JSON, and gives them to
`holdfast runs hang` and to `torchfrtrace`, whole processes on two cores, in turn. Both must name the
rank that stopped. PyTorch's analyser takes minutes for the largest job, so it gets that once.
Writes `benchmarks/results/runs_hang.json`, of which `render.py` makes the page.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from flight_records import write_job
from measuring import CORES, CommandFailed, Run, compared, limited, machine, run, summary

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "runs_hang.json"
BIN = Path(sys.executable).parent
PEER = BIN / "torchfrtrace"

Measured = dict[str, list[Run]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the results."""
    options = _options(arguments)
    host = machine()
    peer = PEER.exists()
    if not peer:
        print("torchfrtrace: absent")
    with tempfile.TemporaryDirectory(dir=options.work, prefix="hang-") as name:
        runs = _measure(Path(name), options, peer)
    text = json.dumps(_results(options, runs, host), indent=2) + "\n"
    options.result.parent.mkdir(exist_ok=True)
    options.result.write_text(text)
    print(f"wrote {options.result}")


def _measure(work: Path, options: argparse.Namespace, peer: bool) -> Measured:
    runs: Measured = defaultdict(list)
    large, as_json, small = work / "large", work / "json", work / "small"
    culprit = write_job(large, options.world, options.entries)
    write_job(as_json, options.world, options.entries, as_json=True)
    small_culprit = write_job(small, options.small, options.entries)
    for _ in range(options.repeats):
        runs["large"].append(_ours(large, culprit))
        runs["large_json"].append(_ours(as_json, culprit))
        runs["small"].append(_ours(small, small_culprit))
        if peer:
            runs["small_torchfrtrace"].append(_theirs(small, small_culprit))
    if peer and not options.without_large_peer:
        runs["large_torchfrtrace"].append(_theirs(large, culprit))
    return runs


def _ours(folder: Path, culprit: int) -> Run:
    measured = run([BIN / "holdfast", "--quiet", "runs", "hang", folder, "--json"])
    told = json.loads(measured.output)
    if (told["verdict"], told["missing_ranks"]) != ("missing_ranks", [culprit]):
        raise CommandFailed(f"holdfast names {told['missing_ranks']}, not {culprit}")
    return measured


def _theirs(folder: Path, culprit: int) -> Run:
    """The whole analysis; it logs every group that hangs, and the culprit must be among them."""
    script = f"exec {PEER} {folder} -p nccl_trace_rank_ 2>&1"
    measured = run(["sh", "-c", script])
    named = re.findall(r"missing ranks: \{([\d, ]+)\}", measured.output)
    if str(culprit) not in ", ".join(named).split(", "):
        raise CommandFailed(f"torchfrtrace does not name rank {culprit}")
    return measured


# --- Results -------------------------------------------------------------------------------------


def _results(options: argparse.Namespace, runs: Measured, host: dict[str, Any]) -> dict[str, Any]:
    medians = {name: statistics.median(one.seconds for one in each) for name, each in runs.items()}
    sizes = {"large": options.world, "small": options.small}
    comparisons = [
        compared(
            f"{ranks:,} ranks with {options.entries:,} entries, pickles",
            medians[name],
            "torchfrtrace",
            medians[f"{name}_torchfrtrace"],
        )
        for name, ranks in sizes.items()
        if f"{name}_torchfrtrace" in medians
    ]
    ours = [each for name, each in runs.items() if "torchfrtrace" not in name]
    peak = max(one.peak_mb for each in ours for one in each)
    return {
        "title": "Hang analysis",
        "script": "benchmarks/runs_hang.py",
        "input": (
            f"flight records of a job that hangs: {options.world:,} and {options.small:,} ranks, "
            f"{options.entries:,} entries each, in ring buffers that have wrapped; one rank has stopped, "
            "nine groups wait"
        ),
        "comparisons": comparisons,
        "limits": [
            limited(f"{options.world:,} ranks, pickles, whole process", medians["large"], "s", 15),
            limited(
                f"{options.world:,} ranks, JSON, whole process", medians["large_json"], "s", 15
            ),
            limited("largest memory, with the reading processes", round(peak), "MB"),
        ],
        "figures": {name: summary(each) for name, each in runs.items()},
        "machine": host,
        "versions": {name: version(name) for name in ("holdfast", "torch", "numpy")},
        "notes": [
            f"Whole processes on {CORES} cores, in turn; times are medians. torchfrtrace imports torch, "
            "which takes some seconds of each of its runs.",
            "torchfrtrace reads the largest job once, not five times: it takes minutes.",
            "Both name the rank that stopped; torchfrtrace lists all nine groups that wait, ours the "
            "one that the others wait for. The pickles are byte for byte as PyTorch writes them.",
        ],
    }


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--world", type=int, default=1024, help="ranks; a multiple of 8")
    parser.add_argument("--small", type=int, default=128, help="ranks of the smaller job")
    parser.add_argument("--entries", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--without-large-peer", action="store_true")
    parser.add_argument("--work", type=Path, help="where the records go (about 1.5 GB)")
    parser.add_argument("--result", type=Path, default=RESULT)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
