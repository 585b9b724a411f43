"""From a scheduler's text to a report: holdfast beside a lean DuckDB script, pandas and slurm2sql.

    python benchmarks/fleet_ingest_report.py

makes a log of four million attempts (`fleet_log.py`), runs every step in a fresh process on two cores, the
contenders in turn, compares their answers by value, and writes
`benchmarks/results/fleet_ingest_report.json`; `render.py` makes the page of it. A full run takes about half
an hour; with `--repeats 1 --lean`, without pandas and slurm2sql, some minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from fleet_log import write_log
from measuring import CORES, Run, compared, limited, machine, run, summary, warm

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent
RESULT = HERE / "results" / "fleet_ingest_report.json"
BIN = Path(sys.executable).parent
SLURM2SQL = "slurm2sql==0.9.9"
SEED = 1


def main() -> None:
    """Measure, and write the results."""
    options = _options()
    host = machine()
    with tempfile.TemporaryDirectory(dir=options.work, prefix="fleet-") as name:
        work = Path(name)
        big = _log(work / "big", options.attempts, options.nodes, options.events)
        figures = _against_scripts(work, big, options.repeats, options.lean)
        clean = _log(work / "clean", options.slurm2sql_attempts, options.nodes, 100_000, nasty=0.0)
        figures["answers"] |= _answers_compared(work, clean)
        if not options.lean:
            figures |= _against_slurm2sql(work, clean, options.slurm2sql_repeats)
        size = round((big / "sacct.psv").stat().st_size / 1e9, 3)
    RESULT.parent.mkdir(exist_ok=True)
    results = _results(options, figures, size, host)
    for each in results["limits"]:
        if each["limit"] is not None:
            verdict = "met" if each["value"] <= each["limit"] else "missed"
            print(
                f"{verdict}: {each['what']}: {each['value']:g} of {each['limit']:g} {each['unit']}"
            )
    RESULT.write_text(json.dumps(results, indent=2) + "\n")
    print(f"wrote {RESULT.relative_to(REPOSITORY)}")


def _against_scripts(work: Path, log: Path, repeats: int, lean: bool) -> dict[str, Any]:
    """Ours, the lean script and pandas in turn on the same log."""
    runs: dict[str, list[Run]] = defaultdict(list)
    parts: dict[str, list[float]] = defaultdict(list)
    store, page, kept = work / "store", work / "report.html", work / "attempts.parquet"
    small, testbed = work / "small", REPOSITORY / "examples" / "slurm-testbed"
    run([*OURS, "ingest", testbed, "-o", small, "--json"])
    for _ in range(repeats):
        shutil.rmtree(store, ignore_errors=True)
        runs["ingest"].append(run([*OURS, "ingest", log, "-o", store, "--json"]))
        runs["report_json"].append(run([*OURS, "report", store, "--json"]))
        runs["duckdb_lean"].append(run([sys.executable, HERE / "fleet_duckdb.py", log]))
        runs["small_report"].append(run([*OURS, "report", small, "--html", page]))
        runs["report"].append(run([*OURS, "report", store, "--html", page]))
        if lean:
            continue
        for label, target in (("pandas", [kept]), ("pandas_lean", [])):
            runs[label].append(run([sys.executable, HERE / "fleet_pandas.py", log, *target]))
            for part, seconds in json.loads(runs[label][-1].output)["seconds"].items():
                parts[f"{label}_{part}_s"].append(seconds)
    mttf = json.loads(run([*OURS, "mttf", store, "--min-gpus", "128", "--json"]).output)
    answers = {"holdfast": _counts(json.loads(runs["ingest"][-1].output)) | _rate(mttf)}
    for label in [name for name in ("duckdb_lean", "pandas") if name in runs]:
        peer = json.loads(runs[label][-1].output)
        answers[label] = _counts(peer) | _rate(peer)
    return {
        **{label: summary(measured) for label, measured in runs.items()},
        "parts": {part: round(statistics.median(values), 3) for part, values in parts.items()},
        "answers": answers,
        "store_mb": round(sum(f.stat().st_size for f in store.rglob("*") if f.is_file()) / 1e6),
    }


def _answers_compared(work: Path, log: Path) -> dict[str, Any]:
    """The lean script's answers and ours, on a log whose every line the script can read.

    Raises:
        SystemExit: naming the first answer that differs by more than one in a million; of the failures
            of nodes, more than one node in a hundred (a failure without a sign may join another's).
    """
    store = work / "clean-store"
    run([*OURS, "ingest", log, "-o", store, "--json"])
    ours, nodes, lean = (
        json.loads(run(command).output)
        for command in (
            [*OURS, "report", store, "--json"],
            [*OURS, "lemons", store, "--json"],
            [sys.executable, HERE / "fleet_duckdb.py", log],
        )
    )
    goodput, status = ours["goodput"], ours["status"]
    pairs = {
        "attempts": (status["attempts"], lean["attempts"]),
        "gpu_hours": (goodput["total"], lean["gpu_hours"]),
        "failures": (goodput["failures"], lean["failures"]),
        "lost_first_order": (goodput["lost_first_order"], lean["lost_first_order"]),
        "rate": (ours["mttf"]["rate_per_1000_node_days"], lean["rate_per_1000_node_days"]),
        "unattributed": (
            sum(row["failures"] for row in goodput["by_cause"] if row["cause"] == "unattributed"),
            lean["unattributed"],
        ),
    }
    for row in lean["status"]:
        for share in ("by_count", "by_gpu_time"):
            pairs[f"{row['state']} {share}"] = status[share][row["state"]], row[share]
    for row, own in zip(lean["by_size"], goodput["by_job_size"], strict=True):
        for name, ours_name in (("gpu_hours",) * 2, ("failures",) * 2, ("lost", "first_order")):
            pairs[f"{row['gpus_max']} GPUs {name}"] = own[ours_name], row[name]
    own_nodes = {row["node"]: row for row in nodes["nodes"]}
    for row in lean["nodes"]:
        own = own_nodes.pop(row["node"])
        # Ours adds the half second in which a node was up before it failed.
        up_days = own["node_days"] - own["failures"] * 0.5 / 86_400
        pairs[f"{row['node']} node_days"] = up_days, row["node_days"]
    for what, (own, other) in pairs.items():
        if not math.isclose(own, other, rel_tol=1e-6, abs_tol=1e-9):
            raise SystemExit(f"the answers differ: {what}: {own} and {other}")
    failures = {row["node"]: row["failures"] for row in nodes["nodes"]}
    same = sum(math.isclose(failures[r["node"]], r["failures"]) for r in lean["nodes"])
    if own_nodes or same < 0.99 * len(failures):
        raise SystemExit(f"the failures of {len(failures) - same} nodes differ")
    return {"equal_by_value": len(pairs), "nodes": len(failures), "nodes_of_equal_failures": same}


def _against_slurm2sql(work: Path, log: Path, repeats: int) -> dict[str, Any]:
    """Accounting text into a store, and into slurm2sql's SQLite, at a size that it does in minutes."""
    program = _slurm2sql(REPOSITORY / ".venv-slurm2sql")
    table = work / "accounting.csv"
    # It reads from sacct or from a CSV file; the columns are those of our input, without nasty names.
    pd.read_csv(log / "sacct.psv", sep="|", dtype=str, keep_default_na=False).to_csv(
        table, index=False
    )
    warm(table)
    ours, theirs = [], []
    store, database = work / "accounting-store", work / "accounting.db"
    for _ in range(repeats):
        shutil.rmtree(store, ignore_errors=True)
        ours.append(run([*OURS, "ingest", log / "sacct.psv", "-o", store, "--json"]))
        # A job id is unique in its table: --update keeps the last attempt instead of failing.
        database.unlink(missing_ok=True)
        theirs.append(run([program, database, "--quiet", "--update", "--csv-input", table]))
    return {"ingest_accounting": summary(ours), "slurm2sql": summary(theirs)}


OURS = [BIN / "holdfast", "--quiet", "fleet"]


def _log(folder: Path, attempts: int, nodes: int, events: int, nasty: float = 0.0005) -> Path:
    write_log(folder, attempts, nodes, events, SEED, nasty_share=nasty)
    for file in folder.iterdir():
        warm(file)
    return folder


def _slurm2sql(venv: Path) -> Path:
    """Its own environment: it shares nothing with ours."""
    if not (venv / "bin" / "slurm2sql").exists():
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        pip = [venv / "bin" / "python", "-m", "pip", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", SLURM2SQL], check=True)
    return venv / "bin" / "slurm2sql"


def _counts(answer: dict[str, Any]) -> dict[str, Any]:
    wanted = ("attempts", "jobs", "rejected", "nodes", "health_events", "duplicates_flag")
    return {key: answer[key] for key in wanted if isinstance(answer.get(key), int | str)}


def _rate(answer: dict[str, Any]) -> dict[str, Any]:
    return {key: answer[key] for key in ("node_days", "rate_per_1000_node_days")}


def _results(
    options: argparse.Namespace, figures: dict[str, Any], size_gb: float, host: dict[str, Any]
) -> dict[str, Any]:
    """The results file: comparisons with their ratio first, then limits, then all figures."""

    def seconds(*labels: str, of: str = "median_s") -> float:
        return sum(float(figures[label][of]) for label in labels)

    def cpu(*labels: str) -> float:
        return seconds(*labels, of="cpu_s")

    lean = "DuckDB, lean"
    comparisons = [
        compared(
            "text to headline figures, CPU seconds",
            cpu("ingest", "report_json"),
            lean,
            cpu("duckdb_lean"),
            round(1 / 1.5, 3),
        ),
        compared(
            "the same, wall time", seconds("ingest", "report_json"), lean, seconds("duckdb_lean")
        ),
        compared(
            "later headline figures (ours from the store, the script from the text again), CPU seconds",
            cpu("report_json"),
            lean,
            cpu("duckdb_lean"),
        ),
    ]
    if not options.lean:
        both, what = ("ingest", "report"), "pandas reads only what it needs and keeps nothing"
        comparisons += [
            compared(
                "text to report, table kept, CPU seconds", cpu(*both), "pandas", cpu("pandas"), 5
            ),
            compared("the same, wall time", seconds(*both), "pandas", seconds("pandas")),
            compared(
                f"text to report, {what}, CPU seconds",
                cpu(*both),
                "pandas, lean",
                cpu("pandas_lean"),
            ),
            compared("the same, wall time", seconds(*both), "pandas, lean", seconds("pandas_lean")),
            compared(
                "accounting text to a table",
                seconds("ingest_accounting"),
                "slurm2sql",
                seconds("slurm2sql"),
                10,
            ),
        ]
    memory = {label: figures[label]["peak_mb"] for label in ("ingest", "report_json")}
    ratio = cpu("ingest", "report_json") / cpu("duckdb_lean")
    answers = figures["answers"]
    return {
        "title": "Scheduler log to report",
        "script": "benchmarks/fleet_ingest_report.py",
        "input": (
            f"{options.attempts:,} attempts ({size_gb:g} GB of sacct text), {options.events:,} health "
            f"events, {options.nodes:,} nodes, 11 months, generated with seed {SEED} by fleet_log.py; "
            f"answers compared, and slurm2sql, at {options.slurm2sql_attempts:,} attempts"
        ),
        "comparisons": comparisons,
        "limits": [
            limited("ingest + report --json, CPU seconds of the lean script", ratio, "times", 1.5),
            limited("text to store", seconds("ingest"), "s", 25),
            limited("text to store, CPU seconds", cpu("ingest"), "s", 25),
            limited("memory of ingest, all processes", memory["ingest"], "MB", 2048),
            limited("headline figures from the store, CPU seconds", cpu("report_json"), "s"),
            limited("full report from the store", seconds("report"), "s", 6),
            limited("full report, CPU seconds", cpu("report"), "s", 6),
            # 1.2 GB; resident memory is counted in MiB
            limited("memory of the report", memory["report_json"] * 2**20 / 1e9, "GB", 1.2),
            limited(
                "report of 611 attempts with its page, CPU seconds", cpu("small_report"), "s", 2
            ),
        ],
        "figures": figures,
        "machine": host,
        "versions": {name: version(name) for name in ("holdfast", "duckdb", "pyarrow", "pandas")}
        | {"slurm2sql": SLURM2SQL.partition("==")[2]},
        "notes": [
            f"Every step ran in a fresh process on {CORES} cores with the input in the page cache, the "
            "contenders in turn; times are medians of wall time, memory is the peak over all processes.",
            "The lean DuckDB script (benchmarks/fleet_duckdb.py) answers status mix, GPU-hours lost in "
            "first order, failures and their rate by size, and exposure and failures of each node; it "
            "keeps nothing. On a log without names that need care "
            f"{answers['equal_by_value']:,} answers are equal; the failures of "
            f"{answers['nodes_of_equal_failures']:,} of {answers['nodes']:,} nodes are (it does not merge "
            "failures without a sign with those beside them).",
            "The pandas script (benchmarks/fleet_pandas.py) answers status mix, failure rate by size with "
            "exact intervals, attribution, goodput of both orders, crash loops, lemon nodes, measured ETTR "
            "and the monthly trend; it draws no page, and skips the records whose names hold newlines or "
            "delimiters, which holdfast repairs.",
            "slurm2sql has one row per job id (the last attempt) and no analyses; it is measured on "
            "accounting without nasty names, through its own --csv-input.",
            "Failures per 1,000 node-days above 128 GPUs: "
            + ", ".join(
                f"{label} {each['rate_per_1000_node_days']:.4g}"
                for label, each in answers.items()
                if isinstance(each, dict)
            )
            + ".",
        ],
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--attempts", type=int, default=4_000_000)
    parser.add_argument("--nodes", type=int, default=2_000)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5, help="runs of ours and of pandas")
    parser.add_argument("--lean", action="store_true", help="leave out pandas and slurm2sql")
    parser.add_argument("--slurm2sql-attempts", type=int, default=400_000)
    parser.add_argument("--slurm2sql-repeats", type=int, default=5)
    parser.add_argument("--work", type=Path, help="where the log and the stores go (about 4 GB)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
