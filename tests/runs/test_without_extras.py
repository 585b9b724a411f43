"""What needs no torch works where there is none, nor drain3 nor a trainer's library."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).resolve().parents[2] / "examples" / "training-run" / "recorded"
ABSENT = """
import sys
from importlib.machinery import PathFinder

class Bare:
    # Finds what is installed, but for the extras.
    find_distributions = staticmethod(PathFinder.find_distributions)

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {"torch", "drain3", "transformers", "lightning"}:
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


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (("report", RUN / "events"), "ettr"),
        (("hang", RUN / "events"), "verdict"),
        (("stragglers", RUN / "events"), "ranks"),
        (("diagnose", RUN / "logs"), "cause"),
    ],
    ids=lambda part: part[0] if isinstance(part, tuple) else "",
)
def test_commands_answer(command: tuple[str, Path], key: str) -> None:
    code = "from holdfast.cli import main\nmain(['runs', *sys.argv[1:], '--json'])\n"
    assert json.loads(bare(code, *command))[key]


def test_a_recorder_records(tmp_path: Path) -> None:
    code = (
        "from holdfast.runs import RunRecorder, breakdown\n"
        "with RunRecorder(sys.argv[1], 'bare', hang_after_s=60) as recorder:\n"
        "    with recorder.step(1):\n        pass\n"
        "print(breakdown(sys.argv[1]).to_dict()['steps'])\n"
    )
    assert bare(code, tmp_path).strip() == "1"
