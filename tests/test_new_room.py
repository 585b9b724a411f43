"""docs/contributing/new-room.md, followed to the letter in a scratch copy of the repository."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
RECIPE = REPOSITORY / "docs" / "contributing" / "new-room.md"
HOLDFAST = "from holdfast.cli import main; main()"
FILES = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
LINES = re.compile(
    r"^<!-- (?P<path>[^,\n]+), before(?P<how>| every| the block of): (?P<line>.+?) -->\n\n"
    r"```\w+\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def insert(text: str, before: str, new: str, how: str) -> str:
    """A text with new lines before the one that starts as given."""
    lines = text.splitlines(keepends=True)
    places = [n for n, line in enumerate(lines) if line.lstrip().startswith(before.lstrip())]
    assert places, before
    for place in reversed(places if how == " every" else places[:1]):
        lines.insert(place - (how == " the block of"), new)
    return "".join(lines)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The repository with the room."""
    for name in ("README.md", "pyproject.toml", "zensical.toml"):
        shutil.copy(REPOSITORY / name, tmp_path)
    for name in ("docs", "src", "tools"):
        shutil.copytree(
            REPOSITORY / name,
            tmp_path / name,
            ignore=shutil.ignore_patterns("__pycache__", "*.nb?"),
        )
    (tmp_path / "tests").mkdir()
    shutil.copy(REPOSITORY / "tests" / "test_rooms.py", tmp_path / "tests")
    recipe = RECIPE.read_text()
    for path, text in FILES.findall(recipe):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    for step in LINES.finditer(recipe):
        file = tmp_path / step["path"]
        file.write_text(insert(file.read_text(), step["line"], step["text"], step["how"]))
    return tmp_path


@pytest.mark.full
def test_the_recipe_makes_a_room_that_the_house_accepts(copy: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(copy / "src")}

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "tests/test_rooms.py",
        "tests/tally",
    )
    run("-c", "from importlinter.cli import lint_imports_command; lint_imports_command()")
    run("tools/weigh.py", "--strict", "src/holdfast/tally")
    (copy / "notes.txt").write_text("a\n\nb\n")
    run(
        "-c",
        HOLDFAST,
        "tally",
        "count",
        "notes.txt",
        "--save",
        "answer.json",
        "--html",
        "page.html",
    )
    saved = json.loads((copy / "answer.json").read_text())
    assert {each["name"]: each["value"] for each in saved["values"]} == {"lines": 3, "empty": 1}
    assert saved["headline"] == "3 lines, 1 of them empty."
    assert "diff" in run("-c", HOLDFAST, "why", "answer.json")
