"""What recording a training costs and a kill loses, beside logging, tensorboardX, ml-goodput-measurement.

    python benchmarks/runs_recorder.py --peers DIR

The script makes ``DIR/venv`` with tensorboardX and ml-goodput-measurement from PyPI; without --peers they
are named as absent. Every loop runs in a fresh process, the contenders in turn. Writes
`benchmarks/results/runs_recorder.json`, of which `render.py` makes the page; about seven minutes.
"""

from __future__ import annotations

import argparse
import json
import signal
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

from measuring import CORES, Run, compared, limited, machine, run, summary

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "runs_recorder.json"
STEPS = HERE / "runs_recorder_steps.py"
IN_VENV = ("tensorboardX==2.6.5", "ml-goodput-measurement==0.2.3", "tensorboard==2.21.0")
ALLOWED_US = 250  # 0.5 % of a step of 50 ms

READ = """
import sys
from holdfast.runs import read_run
found = read_run(sys.argv[1])
assert not found.rejects and not found.remarks, (found.rejects, found.remarks)
print(found.events.num_rows)
"""

COUNT_TENSORBOARD = """
import sys
from pathlib import Path
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
steps = 0
for path in Path(sys.argv[1]).glob("events.*"):
    for event in EventFileLoader(str(path)).Load():
        steps += sum(value.tag == "loss" for value in event.summary.value)
print(steps)
"""

Measured = dict[str, list[Run]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the results."""
    options = _options(arguments)
    host = machine()
    pythons = _pythons(options.peers)
    runs: Measured = defaultdict(list)
    lost: dict[str, list[int]] = defaultdict(list)
    with tempfile.TemporaryDirectory(dir=options.work, prefix="recorder-") as name:
        work = Path(name)
        for repeat in range(options.repeats):
            for contender, python in pythons.items():
                folder = work / f"{contender}-{repeat}"
                for body, steps in (("nothing", options.steps), ("work", options.work_steps)):
                    runs[f"{body}_{contender}"].append(
                        _loop(python, contender, folder / body, steps, body)
                    )
                if contender != "ml-goodput-measurement":  # its entries leave for Cloud Logging
                    lost[contender].append(
                        _killed(python, contender, folder / "killed", options.killed_after)
                    )
        _write_run(work / "big", options.ranks, options.steps_per_rank)
        for _ in range(options.repeats):
            runs["read_run"].append(run([sys.executable, "-c", READ, work / "big"]))
        size_gb = sum(file.stat().st_size for file in (work / "big").rglob("*.jsonl")) / 1e9
    result = _results(options, runs, lost, size_gb, host)
    options.result.parent.mkdir(exist_ok=True)
    options.result.write_text(json.dumps(result, indent=2) + "\n")
    print(f"wrote {options.result}")


def _pythons(peers: Path | None) -> dict[str, Path]:
    """The interpreter of each contender that can run; makes the environment of the peers."""
    ours = Path(sys.executable)
    if peers is None:
        return {"holdfast": ours, "logging": ours}
    python = peers / "venv" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", peers / "venv"], check=True)
        pip = [python, "-m", "pip", "-q", "--disable-pip-version-check", "install"]
        subprocess.run([*pip, *IN_VENV], check=True)
    return {
        "holdfast": ours,
        "logging": ours,
        "tensorboardX": python,
        "ml-goodput-measurement": python,
    }


def _loop(python: Path, contender: str, folder: Path, steps: int, body: str) -> Run:
    """A run whose seconds are those that a step takes beyond its body."""
    folder.mkdir(parents=True)
    measured = run([python, STEPS, contender, folder, str(steps), body])
    return replace(measured, seconds=json.loads(measured.output.splitlines()[-1])["seconds"])


def _killed(python: Path, contender: str, folder: Path, after: int) -> int:
    """Steps that were over when a kill came, and are not to be found afterwards."""
    folder.mkdir(parents=True)
    command = [python, STEPS, contender, folder, "0", "until-killed"]
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        over = 0
        while over < after:
            over = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        for line in process.stdout:
            over = int(line)
    return max(0, over - _recorded(python, contender, folder))


def _recorded(python: Path, contender: str, folder: Path) -> int:
    if contender == "tensorboardX":
        return int(
            run([python, "-W", "ignore", "-c", COUNT_TENSORBOARD, folder]).output.split()[-1]
        )
    return sum(
        json.loads(line)["event"] == "step"
        for path in folder.rglob("*.jsonl")
        for line in path.read_text().splitlines()
        if line.endswith("}")
    )


def _write_run(folder: Path, ranks: int, steps: int) -> None:
    """Files of a long run, as the recorder writes them."""
    (folder / "run").mkdir(parents=True)
    for rank in range(ranks):
        pid = 1000 + rank
        start = {
            "event": "start",
            "t": 0.0,
            "version": 1,
            "run_id": "run",
            "rank": rank,
            "world_size": ranks,
            "node": f"n{rank // 8}",
            "pid": pid,
            "boot_id": f"boot-{rank // 8}",
            "launch": "",
            "opened_s": 1.79e9,
            "monotonic_s": 100.0,
            "lived_s": 2.0,
            "submitted_s": None,
            "gpus": 1.0,
            "labels": {},
        }
        with (folder / "run" / f"rank-{rank:05d}-1790000000000-{pid}.jsonl").open("w") as file:
            file.write(json.dumps(start, separators=(",", ":")) + "\n")
            for number in range(1, steps + 1):
                t = 0.0505 * number
                file.write(
                    f'{{"event":"data_wait","seconds":0.001234,"t":{t:.6f}}}\n'
                    f'{{"event":"step","step":{number},"tokens":8192.0,"loss":{2 + 1 / number!r},'
                    f'"seconds":0.048123,"t":{t + 0.0482:.6f}}}\n'
                )


# --- Results -------------------------------------------------------------------------------------


def _results(
    options: argparse.Namespace,
    runs: Measured,
    lost: dict[str, list[int]],
    size_gb: float,
    host: dict[str, Any],
) -> dict[str, Any]:
    """The results file: comparisons with their ratio first, then limits, then all figures."""
    medians = {label: statistics.median(each.seconds for each in runs[label]) for label in runs}
    bodies = {
        "nothing": "1,000 steps that do nothing else",
        "work": "1,000 steps of 50 ms that empty the caches",
    }
    comparisons = [
        compared(
            f"recording {what}",
            1000 * medians[f"{body}_holdfast"],
            _called(peer),
            1000 * medians[f"{body}_{peer}"],
        )
        for body, what in bodies.items()
        for peer in ("logging", "tensorboardX", "ml-goodput-measurement")
        if f"{body}_{peer}" in medians
    ]
    rows = 2 * options.ranks * options.steps_per_rank
    spent_us = medians["work_holdfast"] * 1e6
    return {
        "title": "Recorder of a training",
        "script": "benchmarks/runs_recorder.py",
        "input": (
            f"loops of {options.steps:,} empty steps and of {options.work_steps:,} steps of 50 ms, each "
            f"with a data wait, tokens and a loss; a run of {options.ranks} ranks x "
            f"{options.steps_per_rank:,} steps ({size_gb:.1f} GB)"
        ),
        "comparisons": comparisons,
        "limits": [
            limited("recording a step of 50 ms", spent_us, "µs", ALLOWED_US),
            limited("its share of the step", spent_us / 50e3 * 100, "%", 0.5),
            *(
                limited(f"steps lost to kill -9, {peer}", max(each), "steps", 0 if ours else None)
                for peer, each in lost.items()
                for ours in [peer == "holdfast"]
            ),
            limited(f"reading {rows:,} events", medians["read_run"], "s"),
            limited("its memory", max(each.peak_mb for each in runs["read_run"]), "MB"),
        ],
        "figures": {"read_run": summary(runs["read_run"])}
        | {
            f"{label}_us": {
                "runs": len(each),
                "median": round(statistics.median(one.seconds for one in each) * 1e6, 2),
                "min": round(min(one.seconds for one in each) * 1e6, 2),
                "max": round(max(one.seconds for one in each) * 1e6, 2),
            }
            for label, each in runs.items()
            if label != "read_run"
        }
        | {"lost_to_kill": lost},
        "machine": host,
        "versions": {name: version(name) for name in ("holdfast", "pyarrow")}
        | (dict(each.split("==") for each in IN_VENV) if options.peers else {}),
        "notes": [
            f"Every loop ran in a fresh process on {CORES} cores, the contenders in turn; times are "
            "medians of what steps take beyond their bodies. Ours makes two system calls a step and keeps "
            "a thread for signs of life.",
            "logging writes the same two events as JSON through a FileHandler, which flushes each. "
            "tensorboardX gets four scalars a step, which it buffers. ml-goodput-measurement gets three "
            "entries, without tokens and loss, into a queue in memory: the part of it that needs no Cloud "
            "Logging, so its sending in the background is not in its time.",
            f"The kill comes after {options.killed_after:,} steps of a millisecond; a step counts as lost "
            "if it was over and is not in the files.",
            *([] if options.peers else ["tensorboardX and ml-goodput-measurement were absent."]),
        ],
    }


def _called(peer: str) -> str:
    return f"{peer} (nothing sent)" if peer == "ml-goodput-measurement" else peer


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--peers", type=Path, metavar="DIR")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20_000, help="of an empty loop")
    parser.add_argument("--work-steps", type=int, default=200, help="of 50 ms")
    parser.add_argument("--killed-after", type=int, default=1_500, metavar="STEPS")
    parser.add_argument("--ranks", type=int, default=64, help="of the run that is read")
    parser.add_argument("--steps-per-rank", type=int, default=100_000)
    parser.add_argument("--work", type=Path, help="where the events go (about 1.2 GB)")
    parser.add_argument("--result", type=Path, default=RESULT)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
