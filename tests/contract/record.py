"""Record anew what the cases of the contract give: all, those of the rooms named, or `ROOM/CASE` alone.

Run it after a change that is meant, never to make a test pass: the difference in `expected/` is what users
and their programs will see.

    python tests/contract/record.py fleet runs lm/search-exact python
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import product
import test_public_names


def record(name: str, only: set[str], folder: Path) -> None:
    """Run a room's cases and write what they gave."""
    room = product.Room(name, folder)
    kept = room.expected if room.expected_file.exists() else {}
    made = {}
    for case in room.cases:
        if only and case not in only:
            made[case] = kept[case]
            continue
        try:
            made[case] = room.outcome(case)
        except AssertionError as error:
            sys.exit(f"{name}/{case} cannot be recorded: {error}")
    # A case a line: a change of one is a change of one line.
    lines = (f" {json.dumps(case)}: {json.dumps(value)}" for case, value in made.items())
    room.expected_file.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def record_python() -> None:
    """Make the Python calls and write what they gave."""
    made = {"names": test_public_names.names(), "calls": {}}
    for name in test_public_names.CALLS:
        with tempfile.TemporaryDirectory() as folder:
            made["calls"][name] = test_public_names.calls(name, Path(folder))
    test_public_names.EXPECTED.write_text(json.dumps(made, indent=1) + "\n")


def main(asked: list[str]) -> None:
    """Record what was asked for."""
    if not asked or "python" in asked:
        record_python()
    wanted: dict[str, set[str]] = {}
    for name in asked or product.rooms():
        if name == "python":
            continue
        room, _, case = name.partition("/")
        wanted.setdefault(room, set()).update([case] if case else [])
    for room, cases in wanted.items():
        with tempfile.TemporaryDirectory() as folder:
            record(room, cases, Path(folder) / "room")


if __name__ == "__main__":
    main(sys.argv[1:])
