"""The ablation of examples/go: what a point of Elo costs by each change of a small training on 6x6.

    python benchmarks/go_ablation.py FOLDER

FOLDER keeps the trainings; a call that was interrupted resumes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from holdfast.go import train
from holdfast.go.ablation import Ablation
from holdfast.go.elo import elo_text, interval_text
from measuring import machine

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "go_ablation.json"
CONFIG = HERE.parent / "examples" / "go" / "ablation-6x6.toml"


def price(row: dict[str, Any]) -> str:
    """Elo per core-hour in words."""
    if row["elo_per_core_hour"] is None:
        return "no price"
    ends = row["elo_per_core_hour_low"], row["elo_per_core_hour_high"]
    return f"{row['elo_per_core_hour']:+,.0f} ({interval_text(ends)})"


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, play, and write the answer."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    host = machine()
    found = train(CONFIG, options.folder)
    assert isinstance(found, Ablation)
    rows = [
        {
            "change": row["name"],
            "core-seconds (above the base)": f"{row['core_s']:,.0f} ({row['extra_s']:+,.0f})",
            "won, lost, drawn": f"{row['wins']}, {row['losses']}, {row['draws']}",
            "Elo above the base": elo_text(row["elo"], (row["low"], row["high"])),
            "Elo per core-hour": price(row),
        }
        for row in (one.row for one in found.changes)
    ]
    cheapest = found.cheapest.name if found.cheapest else "cannot tell"
    result = {
        "title": "Go: ablation",
        "script": "benchmarks/go_ablation.py",
        "input": "`examples/go/ablation-6x6.toml`: `holdfast go train` on 6x6, and changes of it",
        "comparisons": [],
        "limits": [],
        "figures": {},
        "tables": [
            {
                "caption": "Each change's network against the base's, 32 simulations a move "
                f"(base: {found.base_core_s:,.0f} core-seconds)",
                "rows": rows,
            }
        ],
        "machine": host,
        "versions": {name: version(name) for name in ("holdfast", "numba", "numpy", "torch")},
        "notes": [
            f"Cheapest next point: {cheapest}. One training per change; the intervals are those of the "
            "games alone. Core-seconds of search, inference and training, without waiting."
        ],
        "answer": found.to_dict(),
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
