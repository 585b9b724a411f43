"""The root command: rooms on demand, shared options on either side, exit codes, messages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from types import ModuleType

import pytest

from holdfast import cli, progress
from holdfast.answer import Answer
from holdfast.command import common
from holdfast.command import room as group
from holdfast.errors import HoldfastError, InputError

HEAVY = (
    "duckdb",
    "lifelines",
    "numba",
    "numpy",
    "pandas",
    "pyarrow",
    "scipy",
)


room = group("dummy", "A room for tests.")


@dataclass(frozen=True)
class Options(Answer):
    wait: float
    quiet: bool

    def rendered(self, _: bool) -> str:
        return f"wait {self.wait}"


@room.command
def show(*, wait: float = 60.0) -> Options:
    """Show the options."""
    return Options(wait, common().quiet)


@room.command
def fail(kind: str, /) -> int:
    """Fail in the way asked for."""
    if kind == "input":
        raise InputError(
            "not a log", code="unknown-format", path="x.txt", place="line 3", found="a", remedy="b"
        )
    if kind == "other":
        raise HoldfastError("the disk is full")
    if kind == "gate":
        return 1
    if kind == "interrupt":
        raise KeyboardInterrupt
    if kind == "pipe":
        raise BrokenPipeError
    raise RuntimeError("a bug")


@pytest.fixture(autouse=True)
def dummy_room(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("holdfast_dummy_room")
    module.app = room  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "holdfast_dummy_room", module)
    monkeypatch.setitem(cli.COMMANDS, "dummy", "A room for tests.")
    monkeypatch.setitem(cli._HOMES, "dummy", "holdfast_dummy_room")
    monkeypatch.setattr(progress, "_quiet", False)


def run(*arguments: str) -> int:
    return cli._run(list(arguments))


def test_help_lists_the_rooms(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    with_flag = capsys.readouterr().out
    assert re.search(r"^│ *fleet +What failures cost", with_flag, re.MULTILINE)
    assert "A room for tests." in with_flag
    assert run() == 0
    assert capsys.readouterr().out == with_flag


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out.startswith("holdfast 0.")


def test_help_of_a_room(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("dummy", "--help") == 0
    output = capsys.readouterr().out
    assert "Usage: holdfast dummy" in output
    assert "A room for tests." in output
    assert "Show the options." in output


@pytest.mark.parametrize("line", ["--json --quiet dummy show", "dummy show --json -q"])
def test_shared_options_on_either_side(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*line.split()) == 0
    assert json.loads(capsys.readouterr().out) == {"wait": 60.0, "quiet": True}
    assert progress._quiet


def test_without_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("dummy", "show", "--wait", "5400") == 0
    assert capsys.readouterr().out == "wait 5400.0\n"
    assert not progress._quiet


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("dummy fail input", 2),
        ("dummy fail other", 2),
        ("dummy fail gate", 1),
        ("dummy fail interrupt", 130),
        ("dummy fail pipe", 141),
        ("dummy show --wait never", 2),
        ("dummy show --nonsense", 2),
        ("dummy", 2),
        ("nonsense", 2),
    ],
)
def test_exit_codes(line: str, code: int) -> None:
    assert run(*line.split()) == code


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(RuntimeError, match="a bug"):
        run("dummy", "fail", "bug")


def test_messages_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    run("dummy", "fail", "input")
    assert capsys.readouterr().err == "error: x.txt, line 3: not a log\n  found: a\n  remedy: b\n"
    run("dummy", "fail", "interrupt")
    said = capsys.readouterr().err
    assert "--help" in said
    assert "again" not in said  # most commands start over
    run("dummy", "show", "--wait", "never")
    assert "--wait" in capsys.readouterr().err
    run("dumy")
    assert 'Did you mean "dummy"?' in capsys.readouterr().err


def test_messages_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("dummy", "fail", "input", "--json") == 2
    output = capsys.readouterr()
    assert output.out == ""
    error = json.loads(output.err)["error"]
    assert (error["kind"], error["code"]) == ("InputError", "unknown-format")
    assert (error["path"], error["place"]) == ("x.txt", "line 3")
    run("--json", "dummy", "show", "--wait", "never")
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "usage"


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "from holdfast.cli import main\n"
        "try:\n    main(['--help'])\n"
        "except SystemExit as end:\n    assert end.code == 0\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr == "[]\n"


def test_a_closed_pipe_is_no_traceback() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-c", "from holdfast.cli import main; main(['--help'])"]
    done = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (141, "")


def test_completion_knows_the_rooms(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", "/bin/bash")
    assert run("--show-completion") == 0
    script = capsys.readouterr().out
    assert "complete -F _holdfast holdfast" in script
    assert all(name in script for name in ("fleet", "shortestpath", "croissant", "dummy"))
