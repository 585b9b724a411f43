"""What needs no torch works where there is none, nor a trainer's library."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

RUN = Path(__file__).resolve().parents[2] / "examples" / "training-run" / "recorded"
ABSENT = """
import sys
from importlib.machinery import PathFinder

class Bare:
    # Finds what is installed, but for the extras.
    find_distributions = staticmethod(PathFinder.find_distributions)

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {"torch", "transformers", "lightning"}:
            return PathFinder.find_spec(name, path, target)

sys.meta_path[:] = [Bare() if finder is PathFinder else finder for finder in sys.meta_path]
"""


def bare(code: str, *arguments: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", ABSENT + code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_commands_answer() -> None:
    keys = {"report": "ettr", "hang": "verdict", "stragglers": "ranks", "diagnose": "cause"}
    code = """
from holdfast.cli import main
for command in sys.argv[2:]:
    folder = sys.argv[1] + ("/logs" if command == "diagnose" else "/events")
    try:
        main(["runs", command, folder, "--json"])
    except SystemExit as end:
        assert not end.code, (command, end.code)
    print("\\0", end="")
"""
    answers = bare(code, RUN, *keys).split("\0")[:-1]
    for answer, key in zip(answers, keys.values(), strict=True):
        assert json.loads(answer)[key]


def test_a_recorder_records(tmp_path: Path) -> None:
    code = (
        "from holdfast.runs import RunRecorder, breakdown\n"
        "with RunRecorder(sys.argv[1], 'bare', hang_after_s=60) as recorder:\n"
        "    with recorder.step(1):\n        pass\n"
        "print(breakdown(sys.argv[1]).to_dict()['steps'])\n"
    )
    assert bare(code, tmp_path).strip() == "1"
