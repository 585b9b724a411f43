"""`sacct` run by `ingest`, and the commands that would drain lemon nodes."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest
from invoking import invoke
from logs import Attempt, Log

DAY = 86_400


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log, and a `sacct` first on the path that prints it and notes how it was called."""
    days = [Attempt(i, (f"n{i}",), 0, 9 * DAY) for i in range(2, 12)]
    failing = [
        Attempt(100 + i, ("n1",), i * DAY // 2, (i + 1) * DAY // 2, "NODE_FAIL") for i in range(18)
    ]
    files = Log([*days, *failing]).write(tmp_path)
    files[0].rename(tmp_path / "log.psv")
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "sacct"
    script.write_text(f'#!/bin/sh\necho "$TZ $*" > {tmp_path}/called\ncat {tmp_path}/log.psv\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return tmp_path


def test_sacct_is_run(cluster: Path) -> None:
    direct = invoke("ingest", cluster / "log.psv", "-o", cluster / "a", "--json")
    live = invoke("ingest", "--sacct", "now-7d", "-o", cluster / "b", "--json")
    assert (direct.exit_code, live.exit_code) == (0, 0), live.exception
    first, second = json.loads(direct.stdout), json.loads(live.stdout)
    assert first["attempts"] == second["attempts"] == 28
    assert first["time_range"] == second["time_range"]
    called = (cluster / "called").read_text().split()
    assert called[0] == "UTC"
    assert "--starttime=now-7days" in called
    assert "--duplicates" in called


def test_a_sacct_that_fails(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = cluster / "bin" / "sacct"
    script.write_text("#!/bin/sh\necho 'slurm_persist_conn_open: refused' >&2\nexit 1\n")
    failed = invoke("ingest", "--sacct", "now-7d", "-o", cluster / "s").exception
    assert failed is not None
    assert failed.code == "unavailable"
    assert "refused" in str(failed)
    script.unlink()
    monkeypatch.setenv("PATH", str(script.parent))
    missing = invoke("ingest", "--sacct", "now-7d", "-o", cluster / "s").exception
    assert missing is not None
    assert missing.code == "not-found"
    assert not (cluster / "s").exists()


def test_the_commands_that_would_drain(cluster: Path) -> None:
    invoke("ingest", cluster / "log.psv", "-o", cluster / "s")
    lines = invoke("lemons", cluster / "s", "--commands").stdout.splitlines()
    slurm = shlex.split(lines[1])
    assert slurm[:4] == ["scontrol", "update", "nodename=n1", "state=drain"]
    assert slurm[4].startswith("reason=holdfast: 18.0 failures in 9.000 node-days, q = ")
    assert lines[3:] == ["kubectl cordon n1"]
    assert slurm[4].isascii()
