"""How often `diagnose` names the cause of logs that its rules were not written from.

    python benchmarks/runs_diagnose_accuracy.py [FOLDER]

FOLDER holds logs and ``truth.toml`` (cause, and where known rank and exception); an empty cause marks a run
that did not fail, for which any cause is a false one.
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

from holdfast.runs.diagnosis.diagnosing import diagnose

HELD_OUT = Path(__file__).parents[1] / "tests" / "runs" / "diagnosis" / "heldout"


def accuracy(folder: Path = HELD_OUT) -> dict[str, Any]:
    """Counts over the logs of a folder, and the logs that were judged wrongly."""
    truth = tomllib.loads((folder / "truth.toml").read_text(encoding="utf-8"))
    found = {"failed": 0, "named": 0, "successful": 0, "false_causes": 0}
    wrong = {}
    for name, case in truth.items():
        result = diagnose(folder / f"{name}.log")
        cause = result.cause or ""
        kind = "failed" if case["cause"] else "successful"
        found[kind] += 1
        right = cause == case["cause"] and case.get("rank") in (None, result.first_rank)
        if "exception" in case and result.traceback is not None:
            right &= result.traceback["exception"] == case["exception"]
        found["named"] += kind == "failed" and right
        found["false_causes"] += kind == "successful" and not right
        if not right:
            wrong[name] = {"expected": case, "found": cause, "rank": result.first_rank}
    return {**found, "wrong": wrong}


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if sys.argv[1:] else HELD_OUT
    sys.stdout.write(json.dumps(accuracy(folder), indent=1) + "\n")
