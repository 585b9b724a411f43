"""Log diagnosis: one gigabyte of a training's log, beside drain3 over the lines and grep -E of the rules.

    python benchmarks/runs_diagnose.py

The log is written from a seed by `training_log.py`. Each contender runs in a fresh process, in turn. drain3
reads a part of the log and its time is extrapolated to the whole, which its result says. Writes
`benchmarks/results/runs_diagnose.json`, of which `render.py` makes the page.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from holdfast.runs.diagnosis.rules import load
from measuring import CORES, CommandFailed, Run, compared, limited, machine, run, summary, warm
from training_log import write_log

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "runs_diagnose.json"
HOLDFAST = [Path(sys.executable).parent / "holdfast", "--quiet", "runs", "diagnose"]
SEED = 1
ALLOWED_S = 60
ALLOWED_MB = 1024

DRAIN = """
import sys, time
from drain3 import TemplateMiner
from drain3.template_miner_config import TemplateMinerConfig
config = TemplateMinerConfig()
config.profiling_enabled = False
miner = TemplateMiner(config=config)
lines = 0
with open(sys.argv[1], encoding="utf-8", errors="replace", newline="\\n") as source:
    for line in source:
        miner.add_log_message(line.strip())
        lines += 1
print(lines, len(miner.drain.clusters))
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the results."""
    options = _options(arguments)
    host = machine()
    with tempfile.TemporaryDirectory(dir=options.work, prefix="diagnose-") as name:
        folder = Path(name)
        log = folder / "run.log"
        lines = write_log(log, options.megabytes * 1_000_000, SEED)
        part = folder / "part.log"
        write_log(part, options.drain_megabytes * 1_000_000, SEED)
        warm(log)
        runs, answers = _measure(folder, log, part, options)
        size = log.stat().st_size
    answers |= {"lines": lines, "bytes": size}
    text = json.dumps(_results(options, runs, answers, host), indent=2) + "\n"
    options.result.parent.mkdir(exist_ok=True)
    options.result.write_text(text)
    print(f"wrote {options.result}")


def _measure(
    folder: Path, log: Path, part: Path, options: argparse.Namespace
) -> tuple[dict[str, list[Run]], dict[str, Any]]:
    runs: dict[str, list[Run]] = {}
    answers: dict[str, Any] = {}
    patterns = folder / "patterns"
    patterns.write_text("\n".join(_for_grep()) + "\n")
    for _ in range(options.repeats):
        measured = run([*HOLDFAST, log, "--json"])
        found = json.loads(measured.output)
        if (found["cause"], found["first_rank"]) != ("no_space", 37):
            raise CommandFailed(f"a wrong diagnosis: {found['sentence']}")
        answers["templates"] = len(found["unknown_templates"])
        runs.setdefault("diagnose", []).append(measured)
    for _ in range(options.peer_repeats):
        if grep := shutil.which("grep"):
            script = f'LC_ALL=C {grep} -a -c -i -E -f "$1" "$2" || true'
            runs.setdefault("grep", []).append(run(["bash", "-c", script, "-", patterns, log]))
        measured = run([sys.executable, "-c", DRAIN, part])
        answers["drain3_lines"], answers["drain3_templates"] = map(int, measured.output.split())
        runs.setdefault("drain3_on_a_part", []).append(measured)
    return runs, answers


def _for_grep() -> list[str]:
    """The rules' patterns, as far as extended regular expressions can say them."""
    translated = []
    for _, pattern in load().patterns:
        text = pattern
        for new, olds in {
            "(": ("(?:",),
            "[0-9]": ("\\d",),
            "[^ ]": ("\\S",),
            "[ ]": ("\\s",),
        }.items():
            for old in olds:
                text = text.replace(old, new)
        if "(?" not in text:
            translated.append(text)
    return translated


def _results(
    options: argparse.Namespace,
    runs: dict[str, list[Run]],
    answers: dict[str, Any],
    host: dict[str, Any],
) -> dict[str, Any]:
    """The results file: comparisons with their ratio first, then limits, then all figures."""
    medians = {name: statistics.median(each.seconds for each in got) for name, got in runs.items()}
    ours = medians["diagnose"]
    factor = answers["lines"] / answers["drain3_lines"]
    size = f"{answers['bytes'] / 1e9:.2f} GB"
    comparisons = [
        compared(
            f"{size}, cause and templates; drain3 over every line, from {options.drain_megabytes} MB",
            ours,
            "drain3 (extrapolated)",
            medians["drain3_on_a_part"] * factor,
            0,
        )
    ]
    if "grep" in medians:
        comparisons.append(
            compared(
                f"{size}, cause and templates; grep -c of {len(_for_grep())} patterns",
                ours,
                "grep -E",
                medians["grep"],
                0,
            )
        )
    peak = max(each.peak_mb for each in runs["diagnose"])
    return {
        "title": "Log diagnosis",
        "script": "benchmarks/runs_diagnose.py",
        "input": (
            f"{size} of a training's log with seed {SEED}: {answers['lines']:,} lines of 64 ranks with "
            "progress bars, NCCL's messages, generated text, retried exceptions; at its end a full disk"
        ),
        "comparisons": comparisons,
        "limits": [
            limited(f"{size} on {CORES} cores, whole process", ours, "s", ALLOWED_S),
            limited("largest memory, all processes together", round(peak), "MB", ALLOWED_MB),
            limited("megabytes a second", round(answers["bytes"] / 1e6 / ours, 1), "MB/s"),
        ],
        "figures": {name: summary(got) for name, got in runs.items()} | {"answers": answers},
        "machine": host,
        "versions": {name: version(name) for name in ("holdfast", "drain3")}
        | {"python": platform.python_version()},
        "notes": [
            f"Whole processes on {CORES} cores, in turn; times are medians. The diagnosis is checked in "
            "every run.",
            f"drain3 read {answers['drain3_lines']:,} lines with its own settings; its time is multiplied "
            f"by {factor:.1f}, the lines in the whole for each in the part. It gives templates alone.",
            "grep counts lines that match any pattern, in the C locale, without look-around: it gives no "
            "cause, no ranks, no tracebacks.",
        ],
    }


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--megabytes", type=int, default=1000, help="of the log")
    parser.add_argument("--drain-megabytes", type=int, default=50, help="of drain3's part")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peer-repeats", type=int, default=3)
    parser.add_argument("--work", type=Path, help="where the log goes")
    parser.add_argument("--result", type=Path, default=RESULT)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
