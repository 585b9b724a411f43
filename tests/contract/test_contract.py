"""What holds however the product is built: commands, exit codes, JSON, files.

The cases are data (`cases/`), what they gave is recorded (`expected/`); `product.py` says how both are
written.
After a change that is meant, record anew and read the difference:

    python tests/contract/record.py [ROOM | ROOM/CASE | python]...
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import ModuleType

import pytest


def _beside(name: str) -> ModuleType:
    """A module of this folder, which is on no path."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


product = _beside("product")
documents = _beside("documents")
ROOMS = {name: product.Room(name) for name in product.rooms()}
CASES = [(room.name, case) for room in ROOMS.values() for case in room.cases]


@pytest.fixture(scope="session", autouse=True)
def _folders(tmp_path_factory: pytest.TempPathFactory) -> None:
    for room in ROOMS.values():
        room.folder = tmp_path_factory.mktemp(room.name) / "room"


@pytest.mark.parametrize(("name", "case"), CASES, ids=[f"{name}-{case}" for name, case in CASES])
def test_a_command_line(name: str, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    room = ROOMS[name]
    answers = documents.Watch(monkeypatch)
    outcome = room.outcome(case)
    assert not answers.faults
    found = list(product.differences(room.expected[case], outcome, room.cases[case].rel))
    assert not found, "\n".join(found[:20])


def test_serve_answers_until_it_is_interrupted() -> None:
    room = ROOMS["fleet"]
    room.outcome("ingest-with-reject")
    command = [*product.PROGRAM, "fleet", "serve", "tiny", "--port", "0"]
    with subprocess.Popen(command, cwd=room.folder, stderr=subprocess.PIPE, text=True) as run:
        try:
            lines = iter(run.stderr.readline, "")
            url = next(found[0] for line in lines if (found := re.search(r"http://[^\s/]+/", line)))
            with urllib.request.urlopen(f"{url}metrics", timeout=60) as answer:
                metrics = answer.read().decode()
            with urllib.request.urlopen(url, timeout=60) as answer:
                assert answer.headers["content-type"].startswith("text/html")
            run.send_signal(signal.SIGINT)
            assert run.wait(60) == 0
        finally:
            run.kill()
    named = {line.split()[2] for line in metrics.splitlines() if line.startswith("# TYPE")}
    assert named >= {
        "holdfast_node_failures",
        "holdfast_failure_rate_per_node_day",
        "holdfast_crash_loop_requeues",
    }


def test_a_reader_that_leaves_ends_the_command_quietly() -> None:
    command = [*product.PROGRAM, "fleet", "alerts"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        run.stdout.close()
        assert run.stderr.read() == b""
    assert run.returncode == 141


def test_every_command_has_a_case_that_succeeds() -> None:
    docs = product.REPOSITORY / "docs"
    pages = [path.read_text() for path in (docs / "cli.md", *(docs / "cli").glob("*.md"))]
    named = re.findall(r"^## (holdfast.*)$", "\n".join(pages), re.MULTILINE)
    commands = {name for name in named if not any(other.startswith(f"{name} ") for other in named)}
    assert len(commands) >= 60
    ran = [
        ["holdfast", *(word for word in shlex.split(case.run) if word not in ("--json", "-q"))]
        for room in ROOMS.values()
        for case in room.cases.values()
        if case.exit in (0, 1)
    ]
    # They have tests of their own: some are talked to, and on a busy machine tuning refuses a short trace.
    commands -= {"holdfast fleet serve", "holdfast speech serve", "holdfast private party"}
    commands -= {"holdfast go serve"}
    commands -= {"holdfast data pipeline tune"}
    assert not {
        name
        for name in commands
        if not any(name.split() == line[: len(name.split())] for line in ran)
    }
