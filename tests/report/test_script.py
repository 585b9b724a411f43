"""The script of the page, run by Node.js where there is one."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.resources import files
from typing import Any

import pytest

SCRIPT = files("holdfast.report").joinpath("page.js").read_text(encoding="utf-8")
NODE = shutil.which("node")

needs_node = pytest.mark.skipif(NODE is None, reason="Node.js is not installed")


def run(expression: str) -> Any:
    program = f"{SCRIPT}\nconsole.log(JSON.stringify({expression}));"
    assert NODE is not None
    done = subprocess.run([NODE, "-"], input=program, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@needs_node
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    ("numeric", "values", "ordered"),
    [
        (True, ["10", "9", "-1", "", "Infinity", "2.5"], ["-1", "2.5", "9", "10", "Infinity"]),
        (False, ["node10", "node2", "", "Node1"], ["Node1", "node2", "node10"]),
    ],
)
def test_sorting(numeric: bool, values: list[str], ordered: list[str], descending: bool) -> None:
    made = [f"{{value: {json.dumps(v)}, number: {v if numeric and v else 'null'}}}" for v in values]
    sort = f"[{','.join(made)}].sort((a, b) => compareCells(a, b, {json.dumps(descending)}))"
    expected = [*(reversed(ordered) if descending else ordered), ""]
    assert run(f"{sort}.map((cell) => cell.value)") == expected


@needs_node
def test_what_is_copied_is_no_formula() -> None:
    cells = ["=1", " +1", "-x", "@x", "＝1", "a\tb\nc", "plain"]
    made = ",".join(f"pasteable({{value: {json.dumps(c)}, number: null}})" for c in cells)
    assert run(f"[{made}]") == ["'=1", "' +1", "'-x", "'@x", "'＝1", "a b c", "plain"]
    assert run("pasteable({value: '-1.5', number: -1.5})") == "-1.5"


def test_the_script_sends_nothing_and_writes_no_markup() -> None:
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "fetch(", "eval(", "http"):
        assert forbidden not in SCRIPT
