"""How often `diagnose` names the cause of logs that its rules were not written from.

    python benchmarks/runs_diagnose_accuracy.py [CASES]

CASES is a TOML file of excerpts: the log, the causes that would be right, the rank where one is named, and
perhaps a half and a family. Without CASES: `diagnose_unseen.toml`, and `diagnose_public.toml` by half and
family. Prints the counts with the exact 95 % interval of the share. `false_causes` name another cause than
the right one, and not only that a program raised an exception.
"""

from __future__ import annotations

import json
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scipy.stats import binomtest

from holdfast.runs.diagnosis.diagnosing import diagnose

HERE = Path(__file__).parent
FILES = (HERE / "diagnose_unseen.toml", HERE / "diagnose_public.toml")
CAUSELESS = (None, "python_exception", "rank_failed")


def accuracy(cases: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Counts over cases, and those that were judged wrongly."""
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "run.log"
        for case in cases:
            log.write_text(case["log"], encoding="utf-8")
            found = diagnose(log, processes=1)
            if found.cause not in case["causes"] or case.get("rank") not in (
                None,
                found.first_rank,
            ):
                wrong.append([case["source"], case["causes"], found.cause, found.first_rank])
    right = len(cases) - len(wrong)
    low, high = binomtest(right, len(cases)).proportion_ci(method="exact")
    return {
        "cases": len(cases),
        "right": right,
        "share": round(right / len(cases), 3),
        "interval_95": [round(low, 3), round(high, 3)],
        "false_causes": sum(each[2] not in CAUSELESS for each in wrong),
        "wrong": wrong,
    }


def by_part(path: Path) -> dict[str, dict[str, Any]]:
    """`accuracy` of a file, of its halves, and of the families in each."""
    parts = defaultdict(list)
    for case in tomllib.loads(path.read_text(encoding="utf-8"))["cases"]:
        half = case.get("half", path.stem)
        parts[half].append(case)
        if "family" in case:
            parts[f"{half}: {case['family']}"].append(case)
    return {name: accuracy(cases) for name, cases in parts.items()}


if __name__ == "__main__":
    files = [Path(each) for each in sys.argv[1:]] or FILES
    found = {name: part for path in files for name, part in by_part(path).items()}
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
