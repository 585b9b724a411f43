"""How often `diagnose` names the cause of logs that its rules were not written from.

    python benchmarks/runs_diagnose_accuracy.py [CASES]

CASES is a TOML file of excerpts (`diagnose_unseen.toml`, the default): the log, the causes that would be
right, and the rank where one is named. Prints the counts with the exact 95 % interval of the share.
"""

from __future__ import annotations

import json
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from scipy.stats import binomtest

from holdfast.runs.diagnosis.diagnosing import diagnose

UNSEEN = Path(__file__).with_name("diagnose_unseen.toml")


def accuracy(cases: Path = UNSEEN) -> dict[str, Any]:
    """Counts over the cases of a file, and those that were judged wrongly."""
    named, wrong = 0, []
    told = tomllib.loads(cases.read_text(encoding="utf-8"))["cases"]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "run.log"
        for case in told:
            log.write_text(case["log"], encoding="utf-8")
            found = diagnose(log, processes=1)
            if found.cause in case["causes"] and case.get("rank") in (None, found.first_rank):
                named += 1
            else:
                wrong.append([case["source"], case["causes"], found.cause, found.first_rank])
    low, high = binomtest(named, len(told)).proportion_ci(method="exact")
    return {
        "cases": len(told),
        "right": named,
        "share": round(named / len(told), 3),
        "interval_95": [round(low, 3), round(high, 3)],
        "wrong": wrong,
    }


if __name__ == "__main__":
    cases = Path(sys.argv[1]) if sys.argv[1:] else UNSEEN
    sys.stdout.write(json.dumps(accuracy(cases), indent=1) + "\n")
