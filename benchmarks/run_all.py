"""Run every benchmark that has a result, or those of one room.

    python benchmarks/run_all.py [ROOM]

A room is the first word of a script's name: fleet, runs, carbon, query, records, ...
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def scripts(room: str | None = None) -> list[str]:
    """The scripts behind `results/`, each once.

    Raises:
        SystemExit: if no script is of the room.
    """
    results = sorted((FOLDER / "results").glob("*.json"))
    named = dict.fromkeys(json.loads(path.read_text())["script"] for path in results)
    found = [name for name in named if room is None or Path(name).stem.split("_")[0] == room]
    if not found:
        rooms = sorted({Path(name).stem.split("_")[0] for name in named})
        sys.exit(f"no benchmark of {room}; rooms: {', '.join(rooms)}")
    return found


def main(words: list[str]) -> int:
    """Run them one after the other; one that fails does not stop the others."""
    failed = []
    for script in scripts(*words):
        print(f"{script} ...", flush=True)
        if subprocess.run([sys.executable, FOLDER.parent / script], cwd=FOLDER.parent).returncode:
            failed.append(script)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
