"""Loading what a Croissant description says, beside mlcroissant, polars and DuckDB.

    python benchmarks/croissant_load.py [--peers PYTHON] [--rows 1000000] [--repeats 5]

A CSV of a million rows into Arrow and into dicts, a join of ten million rows with a million under a cap of
memory, descriptions of 250 and of 1,000 fields, and one split of ten over HTTP from a server that counts.
polars and DuckDB read the file itself, without a description: they are the floor. Contenders take turns,
each in a process of its own on the same two cores; imports are outside the measured time. mlcroissant runs
once, for it takes minutes. PYTHON has mlcroissant; without it the script makes `.venv-croissant`. Writes
`benchmarks/results/croissant_load.json`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import croissant_inputs
from measuring import Run, compared, limited, machine, run, summary, warm

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "croissant_load.json"
STEPS = HERE / "croissant_load_steps.py"
VENV = HERE.parent / ".venv-croissant"
PEER = "mlcroissant==1.1.1"
JOIN_ROWS, JOIN_USERS = 10_000_000, 1_000_000
SPLITS = ("train", "validation", "test", *(f"part{number}" for number in range(7)))
SPLIT_ROWS = 200_000
FIELDS = (250, 1000)
FIELD_ROWS = 1000
MIB = 2**20

TURNS = [
    *((who, "arrow", "rows") for who in ("holdfast", "polars", "duckdb")),
    *((who, "dicts", "rows") for who in ("holdfast", "polars", "duckdb")),
    *((who, "join", "join") for who in ("holdfast", "duckdb", "polars")),
    *((who, "join_in_order", "join") for who in ("holdfast", "duckdb", "polars")),
    *(("holdfast", "fields", f"fields_{fields}") for fields in FIELDS),
]
ONCE = [
    ("mlcroissant", "arrow", "rows"),
    ("mlcroissant", "dicts", "rows"),
    ("mlcroissant", "fields", f"fields_{FIELDS[0]}"),
]


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    host = machine()
    runs: dict[str, list[Run]] = defaultdict(list)
    seconds: dict[str, list[float]] = defaultdict(list)
    rows: dict[str, int] = {}

    def measure(python: Path, who: str, step: str, where: str) -> None:
        one = run([python, STEPS, who, step, work / where])
        said = json.loads(one.output.strip().splitlines()[-1])
        name = f"{who} {step} {where}"
        runs[name].append(one)
        seconds[name].append(said["seconds"])
        rows[name] = said["rows"]

    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        python = options.peers or _environment()
        _inputs(work, options.rows)
        split = _one_split(work)
        for _ in range(options.repeats):
            for turn in TURNS:
                measure(Path(sys.executable), *turn)
        for turn in ONCE:
            measure(python, *turn)
    _agree(rows)
    result = _result(seconds, runs, rows, split, host, options)
    options.result.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    for row in result["comparisons"]:
        print(f"{row['ratio']:8.2f}  {row['what']}  (beside {row['peer']}; goal {row['target']})")
    for row in result["limits"]:
        print(f"{row['value']:10,.3f} {row['unit']:8} {row['what']}  (allowed {row['limit']})")


def _inputs(work: Path, rows: int) -> None:
    croissant_inputs.write_csv(work / "rows", croissant_inputs.table(rows))
    for fields in FIELDS:
        wide = croissant_inputs.wide_table(FIELD_ROWS, fields)
        croissant_inputs.write_csv(work / f"fields_{fields}", wide)
    croissant_inputs.write_join(work / "join", JOIN_ROWS, JOIN_USERS)
    for path in work.rglob("*.[cp]*"):
        if path.is_file():
            warm(path)


def _one_split(work: Path) -> dict[str, int]:
    """What a server on loopback sends when one split of ten is loaded, and what that split's file has."""
    sys.path.insert(0, str(HERE.parent / "tests" / "data" / "records"))
    from range_server import RangeServer

    folder = work / "splits"
    with RangeServer(folder) as server:
        sizes = croissant_inputs.write_splits(folder, server.url, SPLITS, SPLIT_ROWS)
        told = run([sys.executable, STEPS, "holdfast", "split", folder])
        assert json.loads(told.output)["rows"] == SPLIT_ROWS
        sent, requests = server.bytes, server.requests
    shutil.rmtree(folder)
    return {
        "bytes_sent": sent,
        "requests": requests,
        "bytes_of_the_split": sizes["validation"],
        "bytes_of_all_splits": sum(sizes.values()),
    }


def _agree(rows: dict[str, int]) -> None:
    """Every contender of a step must have come to the same number of rows."""
    for _, step, where in TURNS:
        counts = {name: n for name, n in rows.items() if name.endswith(f" {step} {where}")}
        if len(set(counts.values())) != 1:
            raise SystemExit(f"the contenders disagree on {step} {where}: {counts}")


def _result(
    seconds: dict[str, list[float]],
    runs: dict[str, list[Run]],
    rows: dict[str, int],
    split: dict[str, int],
    host: dict[str, str | int | float],
    options: argparse.Namespace,
) -> dict[str, Any]:
    took = {name: statistics.median(each) for name, each in seconds.items()}

    def beside(what: str, peer: str, step: str, where: str, target: float | None) -> dict[str, Any]:
        ours, theirs = took[f"holdfast {step} {where}"], took[f"{peer} {step} {where}"]
        return compared(what, ours, peer, theirs, target)

    floor = round(1 / 1.3, 2)
    table = f"CSV of {options.rows:,} rows"
    comparisons = [
        beside(f"{table} into Arrow", "mlcroissant", "arrow", "rows", 100),
        beside(f"{table} into Arrow", "polars", "arrow", "rows", floor),
        beside(f"{table} into Arrow", "duckdb", "arrow", "rows", floor),
        beside(f"{table} into dicts", "mlcroissant", "dicts", "rows", 10),
        beside(f"{table} into dicts", "polars", "dicts", "rows", None),
        beside(f"{table} into dicts", "duckdb", "dicts", "rows", None),
        *(
            beside(f"Parquet, 10M rows joined with 1M, {order}", who, step, "join", goal)
            for step, order in (("join", "in any order"), ("join_in_order", "in the first's order"))
            for who, goal in (("duckdb", floor), ("polars", None))
        ),
        beside(
            f"{FIELDS[0]} fields, {FIELD_ROWS:,} rows: checked and loaded",
            "mlcroissant",
            "fields",
            f"fields_{FIELDS[0]}",
            None,
        ),
    ]
    growth = (
        took[f"holdfast fields fields_{FIELDS[1]}"] / took[f"holdfast fields fields_{FIELDS[0]}"]
    )
    peak = {
        (who, step): max(one.peak_mb for one in runs[f"{who} {step} join"])
        for who in ("holdfast", "duckdb", "polars")
        for step in ("join", "join_in_order")
    }
    limits = [
        *(
            limited(
                f"Join of 10M x 1M rows, {order}, {who}: largest resident memory",
                peak[who, step],
                "MiB",
                1024 if who == "holdfast" else None,
            )
            for step, order in (("join", "in any order"), ("join_in_order", "in the first's order"))
            for who in ("holdfast", "duckdb", "polars")
        ),
        limited("1,000 fields beside 250: time", growth, "times", 5),
        limited(
            "One split of ten over HTTP: bytes sent beside that split's file",
            split["bytes_sent"] / split["bytes_of_the_split"],
            "times",
            1,
        ),
        limited(
            "One split of ten over HTTP: bytes sent of all splits' bytes",
            100 * split["bytes_sent"] / split["bytes_of_all_splits"],
            "%",
        ),
    ]
    return {
        "title": "Croissant: loading what a description says",
        "input": (
            f"{table} and seven columns; {JOIN_ROWS:,} x {JOIN_USERS:,} rows of Parquet; "
            f"{' and '.join(map(str, FIELDS))} fields; one split of {len(SPLITS)} over HTTP"
        ),
        "script": "benchmarks/croissant_load.py",
        "comparisons": comparisons,
        "limits": limits,
        "figures": {name: summary(each) for name, each in runs.items()}
        | {
            "seconds inside": {name: round(value, 4) for name, value in took.items()},
            "split": split,
        },
        "notes": [
            "Comparisons are of the time inside the process, imports left out; the table of steps is of "
            "whole processes.",
            "polars and DuckDB read the file without a description: they are the floor, not rivals. They "
            "guess the types of a CSV; holdfast takes them from the description.",
            "The join: holdfast and DuckDB may use 800 MiB; polars has no limit and holds the result.",
            "mlcroissant ran once a step.",
        ],
        "machine": host,
        "versions": {name: version(name) for name in ("duckdb", "polars", "pyarrow")}
        | {"mlcroissant": PEER.partition("==")[2]},
    }


def _environment() -> Path:
    """An interpreter with mlcroissant, made on first use."""
    python = VENV / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        subprocess.run(
            [python, "-m", "pip", "-q", "--disable-pip-version-check", "install", PEER, "pyarrow"],
            check=True,
        )
    return python


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Croissant loading, side by side.")
    parser.add_argument("--peers", type=Path, metavar="PYTHON")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--result", type=Path, default=RESULT)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
