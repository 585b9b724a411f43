"""The fleet simulator: eleven months of RSC-1, beside CQSim, AccaSim and AIReSim, Monte Carlo, replicas.

    python benchmarks/fleet_simulate.py --peers DIR

DIR holds checkouts of the peers, ``CQSim`` (github.com/SPEAR-UIC/CQSim) and ``airesim``
(github.com/karthikp-ubc/airesim); the script makes ``DIR/venv`` with AccaSim and SimPy from PyPI. A peer
that is not there is named as absent. Every step runs in a fresh process, the contenders in turn. Start
times must be equal before times are compared. Writes `benchmarks/results/fleet_simulate.json`, of which
`render.py` makes the page; a full run takes about half an hour.
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
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fleet_simulate_steps import batch_workload
from measuring import CORES, CommandFailed, Run, compared, limited, machine, run, summary
from swf_workload import write_swf

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent
RESULT = HERE / "results" / "fleet_simulate.json"
HOLDFAST = [Path(sys.executable).parent / "holdfast", "--quiet", "fleet"]
IN_VENV = ("accasim==1.1.3", "simpy==4.1.2")
SEED = 1
RATE_PER_NODE_DAY = 6.5e-3
GANG = {"rate_per_node_day": 1e-3, "productive_days": 256, "init_s": 1200, "repair_s": 7200}
"""The job of AIReSim's paper: 256 days, 20 minutes of recovery; all servers alike, short repairs."""

Measured = dict[str, list[Run]]
Answers = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the results."""
    options = _options(arguments)
    host = machine()
    absent = _absent(options.peers)
    for name in sorted(absent):
        print(f"{name}: absent")
    with tempfile.TemporaryDirectory(dir=options.work, prefix="simulate-") as name:
        work = Path(name)
        _step("history", preset=options.preset, days=0.1, seed=SEED)  # compiles what is not yet
        runs, answers = _measure(work, options, absent)
    text = json.dumps(_results(options, runs, answers, absent, host), indent=2) + "\n"
    options.result.parent.mkdir(exist_ok=True)
    options.result.write_text(text)
    print(f"wrote {options.result}")


def _measure(work: Path, options: argparse.Namespace, absent: set[str]) -> tuple[Measured, Answers]:
    runs: Measured = defaultdict(list)
    answers: Answers = {}
    for _ in range(options.repeats):
        _histories(work, options, runs, answers)
    for policy in ("easy", "fcfs"):
        for _ in range(options.repeats):
            _batches(work, options, policy, runs, absent)
    for nodes in options.gang_nodes:
        for _ in range(options.repeats):
            _gangs(options, nodes, runs, answers, absent)
    month = {
        "replicas": options.replicas,
        "nodes": 2000,
        "rate_per_node_day": RATE_PER_NODE_DAY,
    }
    for _ in range(options.repeats):
        measured, answers["monte_carlo"] = _step("monte_carlo", **month)
        runs["monte_carlo"].append(measured)
        for processes in (1, 2):
            measured, _ = _step(
                "replicas",
                preset=options.preset,
                days=options.replica_days,
                count=options.replica_count,
                processes=processes,
            )
            runs[f"replicas_on_{processes}"].append(measured)
    return runs, answers


# --- Steps ---------------------------------------------------------------------------------------


def _step(name: str, **arguments: Any) -> tuple[Run, Answers]:
    """One of our steps: the run with the seconds that it reports, and its answer."""
    return _told(
        run([sys.executable, HERE / "fleet_simulate_steps.py", name, json.dumps(arguments)])
    )


def _told(measured: Run) -> tuple[Run, Answers]:
    answer = json.loads(measured.output.splitlines()[-1])
    return replace(measured, seconds=answer["seconds"]), answer


def _histories(work: Path, options: argparse.Namespace, runs: Measured, answers: Answers) -> None:
    """Months of a cluster, in memory and as a store; whole processes, and the simulation alone."""
    arguments = {"preset": options.preset, "days": options.days, "seed": SEED}
    command = [sys.executable, HERE / "fleet_simulate_steps.py", "history", json.dumps(arguments)]
    whole = run(command)
    runs["history"].append(whole)
    alone, answers["history"] = _told(whole)
    runs["history_simulation_alone"].append(alone)
    store = work / "store"
    shutil.rmtree(store, ignore_errors=True)
    given = ["--preset", options.preset, "--days", str(options.days), "--seed", str(SEED)]
    written = run([*HOLDFAST, "simulate", *given, "-o", store, "--json"])
    runs["history_with_store"].append(written)
    answers["store_mb"] = sum(f.stat().st_size for f in store.rglob("*") if f.is_file()) / 1e6


def _batches(
    work: Path, options: argparse.Namespace, policy: str, runs: Measured, absent: set[str]
) -> None:
    """The same batch workload, and the same start times."""
    shape = {
        "jobs": options.jobs,
        "processors": options.processors,
        "load": {"easy": options.easy_load, "fcfs": options.fcfs_load}[policy],
        "seed": SEED,
    }
    folders = {name: work / f"{policy}-{name}" for name in ("holdfast", "CQSim", "AccaSim")}
    for folder in folders.values():
        folder.mkdir(exist_ok=True)
    own = folders["holdfast"] / "starts.csv"
    measured, _ = _step("batch", policy=policy, starts=str(own), **shape)
    runs[f"{policy}_holdfast"].append(measured)
    swf = work / f"{policy}.swf"
    if not swf.exists():
        write_swf(batch_workload(*shape.values()), swf)
    commands = {
        "CQSim": [sys.executable, HERE / "fleet_cqsim.py", options.peers / "CQSim", swf],
        "AccaSim": [
            options.peers / "venv/bin/python",
            "-W",
            "ignore",
            HERE / "fleet_accasim.py",
            swf,
        ],
    }
    rest = {"CQSim": [policy], "AccaSim": [str(options.processors)]}
    for peer, command in commands.items():
        if peer in absent or (peer, policy) == ("AccaSim", "easy"):
            continue
        measured, _ = _told(run([*command, folders[peer], *rest[peer]]))
        runs[f"{policy}_{peer}"].append(measured)
        _same_starts(own, folders[peer] / "starts.csv", peer)


def _same_starts(ours: Path, theirs: Path, peer: str) -> None:
    def read(path: Path) -> dict[str, str]:
        return dict(line.split(",") for line in path.read_text().splitlines())

    if read(ours) != read(theirs):
        raise CommandFailed(f"{peer} has another schedule; its speed cannot be compared")


def _gangs(
    options: argparse.Namespace, nodes: int, runs: Measured, answers: Answers, absent: set[str]
) -> None:
    """One long training job; each simulator with its own model of the restarts."""
    job = {**GANG, "nodes": nodes, "spare": max(16, nodes // 64), "runs": options.gang_runs}
    label = f"gang_of_{nodes}"
    measured, answers[f"{label}_holdfast"] = _step("gang", **job)
    runs[f"{label}_holdfast"].append(measured)
    if "AIReSim" in absent:
        return
    script = [options.peers / "venv/bin/python", HERE / "fleet_airesim.py"]
    measured, answers[f"{label}_AIReSim"] = _told(
        run([*script, options.peers / "airesim", json.dumps(job)])
    )
    runs[f"{label}_AIReSim"].append(measured)


def _absent(peers: Path) -> set[str]:
    """Peers that cannot run; makes the environment of those that need one."""
    absent = set()
    if not (peers / "CQSim" / "src" / "cqsim_main.py").exists():
        absent.add("CQSim")
    if not (peers / "airesim" / "airesim" / "simulator.py").exists():
        absent.add("AIReSim")
    if not peers.is_dir():
        return {*absent, "AccaSim"}
    venv = peers / "venv"
    if not (venv / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        pip = [venv / "bin" / "python", "-m", "pip", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", *IN_VENV], check=True)
    return absent


# --- Results -------------------------------------------------------------------------------------


def _results(
    options: argparse.Namespace,
    runs: Measured,
    answers: Answers,
    absent: set[str],
    host: dict[str, Any],
) -> dict[str, Any]:
    """The results file: comparisons with their ratio first, then limits, then all figures."""
    medians = {
        label: statistics.median(run.seconds for run in each) for label, each in runs.items()
    }
    history = answers["history"]
    named = {
        "easy": f"EASY backfill, {options.jobs:,} jobs, the same start times",
        "fcfs": f"first come, first served, {options.jobs:,} jobs, the same start times",
    }
    rows = [
        (what, f"{policy}_holdfast", peer, f"{policy}_{peer}", 100)
        for policy, what in named.items()
        for peer in ("CQSim", "AccaSim")
    ]
    rows += [
        (
            f"one job on {nodes:,} servers for 256 days, with its failures",
            f"gang_of_{nodes}_holdfast",
            "AIReSim",
            f"gang_of_{nodes}_AIReSim",
            50,
        )
        for nodes in options.gang_nodes
    ]
    comparisons = [
        compared(what, medians[ours], peer, medians[theirs], target)
        for what, ours, peer, theirs, target in rows
        if theirs in medians
    ]
    comparisons.append(
        compared(
            f"{options.replica_count} replicas of {options.replica_days:g} days on two processes",
            medians["replicas_on_2"],
            "on one",
            medians["replicas_on_1"],
            1.9,
        )
    )
    peak = max(
        max(each.peak_mb for each in runs[label]) for label in ("history", "history_with_store")
    )
    speed = history["events"] / medians["history_simulation_alone"]
    length = f"{options.days:g} days of {options.preset}"
    return {
        "title": "Fleet simulator",
        "script": "benchmarks/fleet_simulate.py",
        "input": (
            f"{length} with seed {SEED}: {history['jobs']:,} jobs, {history['attempts']:,} "
            f"attempts, {history['events']:,} events; batch workloads on {options.processors} "
            f"processors with loads {options.easy_load:g} (EASY) and {options.fcfs_load:g} (FCFS)"
        ),
        "comparisons": comparisons,
        "limits": [
            limited(f"{length}, whole process", medians["history"], "s", 20),
            limited(f"{length}, whole process, store written", medians["history_with_store"], "s"),
            limited("largest memory of both", round(peak), "MB", 1536),
            limited("events a second, with scheduling", round(speed), "1/s", 500_000)
            | {"least": True},
            limited(
                f"{options.replicas:,} Monte Carlo runs of a month on 2,000 nodes",
                medians["monte_carlo"],
                "s",
                1,
            ),
        ],
        "figures": {label: summary(each) for label, each in runs.items()} | {"answers": answers},
        "machine": host,
        "versions": {name: version(name) for name in ("holdfast", "numba", "numpy")}
        | {
            package: number
            for package, _, number in (each.partition("==") for each in IN_VENV)
            if {"accasim": "AccaSim", "simpy": "AIReSim"}[package] not in absent
        },
        "notes": _notes(options, medians, answers, absent),
    }


def _notes(
    options: argparse.Namespace, medians: dict[str, float], answers: Answers, absent: set[str]
) -> list[str]:
    events = 3 * options.jobs
    speeds = [
        f"{label.replace('_', ' ')} {events / seconds:,.0f}"
        for label, seconds in medians.items()
        if label.startswith(("easy_", "fcfs_"))
    ]
    gangs = [
        f"{label.replace('_', ' ')}: {each['failures']:.0f} failures, done after {each['days']:.1f} "
        f"days, {each['events'] / medians[label]:,.0f} of its events a second"
        for label, each in answers.items()
        if label.startswith("gang_")
    ]
    notes = [
        f"Every step ran in a fresh process on {CORES} cores, the contenders in turn; times are medians. "
        "Peers and ours are timed without the start of the interpreter, the loading of code and the "
        "preparation of input; histories also as whole processes.",
        "A batch job is three events for everyone (submission, start, end). Events a second: "
        + "; ".join(speeds)
        + ".",
        "Batch limits are runtimes and times are fine, because CQSim plans backfill with runtimes and "
        "makes a pass after each event. AccaSim's EASY ignores its own reservation and is not compared. "
        "Ours places jobs on single nodes; CQSim counts processors, AccaSim has one large node.",
        "AIReSim has its own model: one job, failures only while it computes, warm standbys. Ours is the "
        "full simulator with one job, which also fails while it recovers. "
        + "; ".join(gangs)
        + ".",
    ]
    if absent:
        notes.append(f"Absent, not compared: {', '.join(sorted(absent))}.")
    return notes


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peers", type=Path, default=REPOSITORY / ".peers", metavar="DIR")
    parser.add_argument("--preset", default="rsc1")
    parser.add_argument("--days", type=float, default=335)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=20_000, help="of a batch workload")
    parser.add_argument("--processors", type=int, default=128)
    parser.add_argument("--easy-load", type=float, default=0.85)
    parser.add_argument(
        "--fcfs-load", type=float, default=0.4, help="above 0.5 its queue has no end"
    )
    parser.add_argument("--gang-nodes", type=int, nargs="*", default=[256, 4096])
    parser.add_argument("--gang-runs", type=int, default=3, help="seeds of a gang in one process")
    parser.add_argument("--replicas", type=int, default=1_000, help="of the Monte Carlo")
    parser.add_argument("--replica-count", type=int, default=12)
    parser.add_argument("--replica-days", type=float, default=40)
    parser.add_argument("--work", type=Path, help="where the stores go (about 1 GB)")
    parser.add_argument("--result", type=Path, default=RESULT)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
