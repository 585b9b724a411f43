"""`holdfast ledger` on a store of four million attempts, beside a pandas script of the same parts.

    python benchmarks/ledger.py

makes the log of `fleet_ingest_report.py` with outages of nodes beside it, ingests it, runs both contenders
in fresh processes on two cores in turn, compares their parts by value, and writes
`benchmarks/results/ledger.json`; `render.py` makes the page of it. `--store FOLDER` measures a store that
is there.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from fleet_log import write_log
from measuring import CORES, Run, compared, limited, machine, run, summary, warm

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "ledger.json"
BIN = Path(sys.executable).parent
OURS = [BIN / "holdfast", "--quiet"]
SEED = 1
BEGIN, END = np.datetime64("2025-01-01T00:00:00"), np.datetime64("2025-11-30T00:00:00")
EXACT = ("capacity", "allocated", "out_of_service", "idle", "idle_while_waiting")
"""Parts that both define alike; the others differ in which attempts count as failed or preempted."""


def main() -> None:
    """Measure, and write the results."""
    options = _options()
    host = machine()
    with tempfile.TemporaryDirectory(dir=options.work, prefix="ledger-") as name:
        store = options.store or _store(Path(name), options)
        for file in store.rglob("*.parquet"):
            warm(file)
        ours: list[Run] = []
        theirs: list[Run] = []
        for _ in range(options.repeats):
            ours.append(run([*OURS, "ledger", store, "--json"]))
            theirs.append(run([sys.executable, HERE / "ledger_pandas.py", store]))
    answers = _compared(json.loads(ours[-1].output), json.loads(theirs[-1].output))
    figures = {"ledger": summary(ours), "pandas": summary(theirs)}
    results = _results(options, figures, answers, host)
    for each in results["limits"]:
        if each["limit"] is None:
            continue
        verdict = "met" if each["value"] <= each["limit"] else "missed"
        print(f"{verdict}: {each['what']}: {each['value']:g} of {each['limit']:g} {each['unit']}")
    RESULT.write_text(json.dumps(results, indent=2) + "\n")
    print(f"wrote {RESULT}")


def _store(work: Path, options: argparse.Namespace) -> Path:
    log, store = work / "log", work / "store"
    write_log(log, options.attempts, options.nodes, options.events, SEED)
    write_outages(log / "sacctmgr_events.txt", options.nodes)
    run([*OURS, "fleet", "ingest", log, "-o", store, "--json"])
    return store


def write_outages(path: Path, nodes: int) -> None:
    """Ten outages per node on average, at any time, of three hours in the median, as Slurm lists them."""
    rng = np.random.default_rng(SEED)
    count = 10 * nodes
    node = rng.integers(nodes, size=count)
    start = BEGIN + rng.integers((END - BEGIN).astype(int), size=count)
    hours = rng.lognormal(np.log(3), 1, size=count)
    end = np.minimum(start + (3600 * hours).astype(int) + 1, END)
    lines = ["NodeName|TimeStart|TimeEnd|State|Reason|User"]
    lines += [
        f"node{one + 1:04}|{low}|{high}|DOWN*|Not responding|root(0)"
        for one, low, high in zip(node, start, end, strict=True)
        if low < high
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _compared(ours: dict[str, Any], theirs: dict[str, float]) -> dict[str, list[float]]:
    """Part -> (ours, that of pandas).

    Raises:
        SystemExit: naming the first part of `EXACT` that differs by more than one in a million.
    """
    mine = {part: each["hours"] for part, each in ours["parts"].items()}
    mine |= {name: ours[name] for name in ("capacity", "allocated")}
    pairs = {
        part: [round(mine[part], 2), round(theirs[part], 2)] for part in theirs if part in mine
    }
    for part in EXACT:
        if not np.isclose(mine[part], theirs[part], rtol=1e-6, atol=0.01):
            raise SystemExit(f"the answers differ: {part}: {mine[part]} and {theirs[part]}")
    return pairs


def _results(
    options: argparse.Namespace,
    figures: dict[str, Any],
    answers: dict[str, list[float]],
    host: dict[str, Any],
) -> dict[str, Any]:
    ours, theirs = figures["ledger"], figures["pandas"]
    rows = [
        {"part, GPU-hours": part.replace("_", " "), "holdfast": mine, "pandas": other}
        for part, (mine, other) in answers.items()
    ]
    return {
        "title": "Ledger",
        "script": "benchmarks/ledger.py",
        "input": (
            f"a store of {options.attempts:,} attempts, {options.events:,} health events, "
            f"{10 * options.nodes:,} outages, {options.nodes:,} nodes, 11 months, generated with seed "
            f"{SEED}"
        ),
        "comparisons": [
            compared("parts of a store, wall time", ours["median_s"], "pandas", theirs["median_s"]),
            compared("the same, CPU seconds", ours["cpu_s"], "pandas", theirs["cpu_s"]),
        ],
        "limits": [
            limited("ledger --json, wall time", ours["median_s"], "s", 30),
            limited("ledger --json, CPU seconds", ours["cpu_s"], "s"),
            limited("memory, all processes", ours["peak_mb"] * 2**20 / 1e9, "GB", 2),
        ],
        "figures": figures,
        "tables": [{"caption": "Parts by both", "rows": rows}],
        "machine": host,
        "versions": {name: version(name) for name in ("holdfast", "duckdb", "pyarrow", "pandas")},
        "notes": [
            f"Every run in a fresh process on {CORES} cores with the store in the page cache, in turn; "
            "times are medians, memory is the peak over all processes.",
            "The pandas script (benchmarks/ledger_pandas.py) reads the needed columns of the same store "
            "and gives the parts alone: no intervals, no changes, no records of runs. The parts of "
            "machines are equal by value; it counts only the state PREEMPTED as a preemption, so losses "
            "differ.",
        ],
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--attempts", type=int, default=4_000_000)
    parser.add_argument("--nodes", type=int, default=2_000)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--store", type=Path, help="a store that was made of this log")
    parser.add_argument("--work", type=Path, help="where the log and the store go (about 2 GB)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
