"""From a scheduler's text to a report: holdfast beside pandas and slurm2sql, on four million attempts.

    python benchmarks/fleet_ingest_report.py

makes the log (`fleet_log.py`), runs every step in a fresh process on two cores, the contenders in turn,
and writes `benchmarks/results/fleet_ingest_report.json`; `render.py` makes the page of it. A full run
takes about half an hour; `--help` lists what makes it shorter.
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
        figures = _against_pandas(work, big, options.repeats)
        peer = _log(work / "accounting", options.slurm2sql_attempts, options.nodes, 1, nasty=0.0)
        figures |= _against_slurm2sql(work, peer, options.slurm2sql_repeats)
        size = round((big / "sacct.psv").stat().st_size / 1e9, 3)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(_results(options, figures, size, host), indent=2) + "\n")
    print(f"wrote {RESULT.relative_to(REPOSITORY)}")


def _against_pandas(work: Path, log: Path, repeats: int) -> dict[str, Any]:
    """Ours and pandas in turn on the same log; the answers must agree where they mean the same."""
    runs: dict[str, list[Run]] = defaultdict(list)
    parts: dict[str, list[float]] = defaultdict(list)
    store, page, kept = work / "store", work / "report.html", work / "attempts.parquet"
    for _ in range(repeats):
        shutil.rmtree(store, ignore_errors=True)
        runs["ingest"].append(run([*OURS, "ingest", log, "-o", store, "--json"]))
        runs["report"].append(run([*OURS, "report", store, "--html", page]))
        for label, target in (("pandas", [kept]), ("pandas_lean", [])):
            runs[label].append(run([sys.executable, HERE / "fleet_pandas.py", log, *target]))
            for part, seconds in json.loads(runs[label][-1].output)["seconds"].items():
                parts[f"{label}_{part}_s"].append(seconds)
    mttf = json.loads(run([*OURS, "mttf", store, "--min-gpus", "128", "--json"]).output)
    return {
        **{label: summary(measured) for label, measured in runs.items()},
        "parts": {part: round(statistics.median(values), 3) for part, values in parts.items()},
        "answers": {
            "holdfast": _counts(json.loads(runs["ingest"][-1].output)) | _rate(mttf),
            "pandas": _counts(peer := json.loads(runs["pandas"][-1].output)) | _rate(peer),
        },
        "store_mb": round(sum(f.stat().st_size for f in store.rglob("*") if f.is_file()) / 1e6),
    }


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
    return {key: answer[key] for key in wanted if key in answer}


def _rate(answer: dict[str, Any]) -> dict[str, Any]:
    return {key: answer[key] for key in ("failures", "node_days", "rate_per_1000_node_days")}


def _results(
    options: argparse.Namespace, figures: dict[str, Any], size_gb: float, host: dict[str, Any]
) -> dict[str, Any]:
    """The results file: comparisons with their ratio first, then limits, then all figures."""

    def seconds(*labels: str, of: str = "median_s") -> float:
        return sum(float(figures[label][of]) for label in labels)

    ours, ours_cpu = seconds("ingest", "report"), seconds("ingest", "report", of="cpu_s")
    ingest_mb = figures["ingest"]["peak_mb"]
    rates = figures["answers"]
    return {
        "title": "Scheduler log to report",
        "script": "benchmarks/fleet_ingest_report.py",
        "input": (
            f"{options.attempts:,} attempts ({size_gb:g} GB of sacct text), {options.events:,} health "
            f"events, {options.nodes:,} nodes, 11 months, generated with seed {SEED} by fleet_log.py; "
            f"slurm2sql at {options.slurm2sql_attempts:,} attempts, both sides"
        ),
        "comparisons": [
            compared(
                "text to report, table kept, CPU seconds",
                ours_cpu,
                "pandas",
                seconds("pandas", of="cpu_s"),
                5,
            ),
            compared("the same, wall time", ours, "pandas", seconds("pandas")),
            compared(
                "text to report, pandas reads only what it needs and keeps nothing, CPU seconds",
                ours_cpu,
                "pandas, lean",
                seconds("pandas_lean", of="cpu_s"),
            ),
            compared("the same, wall time", ours, "pandas, lean", seconds("pandas_lean")),
            compared(
                "a later report (ours from the store, pandas from the text again)",
                seconds("report"),
                "pandas, lean",
                seconds("pandas_lean"),
            ),
            compared(
                "accounting text to a table",
                seconds("ingest_accounting"),
                "slurm2sql",
                seconds("slurm2sql"),
                10,
            ),
        ],
        "limits": [
            limited("text to store", seconds("ingest"), "s", 25),
            limited("text to store, CPU seconds", seconds("ingest", of="cpu_s"), "s", 25),
            limited("memory of ingest, all processes", ingest_mb, "MB", 2048),
            limited("full report from the store", seconds("report"), "s", 6),
            limited("full report, CPU seconds", seconds("report", of="cpu_s"), "s", 6),
        ],
        "figures": figures,
        "machine": host,
        "versions": {name: version(name) for name in ("holdfast", "duckdb", "pyarrow", "pandas")}
        | {"slurm2sql": SLURM2SQL.partition("==")[2]},
        "notes": [
            f"Every step ran in a fresh process on {CORES} cores with the input in the page cache, the "
            "contenders in turn; times are medians of wall time, memory is the peak over all processes.",
            "The pandas script (benchmarks/fleet_pandas.py) answers status mix, failure rate by size with "
            "exact intervals, attribution, goodput of both orders, crash loops, lemon nodes, measured ETTR "
            "and the monthly trend; it draws no page, and skips the records whose names hold newlines or "
            "delimiters, which holdfast repairs.",
            "slurm2sql has one row per job id (the last attempt) and no analyses; it is measured on "
            "accounting without nasty names, through its own --csv-input.",
            f"Failures per 1,000 node-days above 128 GPUs: holdfast "
            f"{rates['holdfast']['rate_per_1000_node_days']:.4g}, pandas "
            f"{rates['pandas']['rate_per_1000_node_days']:.4g}.",
        ],
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--attempts", type=int, default=4_000_000)
    parser.add_argument("--nodes", type=int, default=2_000)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5, help="runs of ours and of pandas")
    parser.add_argument("--slurm2sql-attempts", type=int, default=400_000)
    parser.add_argument("--slurm2sql-repeats", type=int, default=5)
    parser.add_argument("--work", type=Path, help="where the log and the stores go (about 4 GB)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
