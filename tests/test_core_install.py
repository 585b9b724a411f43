"""The core alone reports on a fleet; a command of another room says which extra to install."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
EVENTS = REPOSITORY / "examples" / "training-run" / "recorded" / "events" / "bytes"
CODE = """
import contextlib, io, json, sys
from importlib.machinery import PathFinder

class Core:
    find_distributions = staticmethod(PathFinder.find_distributions)

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in absent:
            return PathFinder.find_spec(name, path, target)

absent, lines = json.loads(sys.argv[1])
sys.meta_path[:] = [Core() if finder is PathFinder else finder for finder in sys.meta_path]
from holdfast.cli import main
for line in lines:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(line)
        except SystemExit as ended:
            code = ended.code
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""
NAMES = {
    "google-crc32c": "google_crc32c",
    "jsonpath-ng": "jsonpath_ng",
    "prometheus-client": "prometheus_client",
}


def test_the_core_and_what_it_lacks(tmp_path: Path) -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = [line for lines in settings["optional-dependencies"].values() for line in lines]
    names = {re.split(r"[\[<>=]", line)[0] for line in extras} - {"holdfast"}
    absent = sorted(NAMES.get(name, name) for name in names)
    store, machine = str(tmp_path / "store"), tmp_path / "machine.txt"
    machine.write_text("0 1 1 2 0.5\n1\n")
    lines = [
        ["fleet", "ingest", str(REPOSITORY / "examples" / "slurm-testbed"), "-o", store],
        ["fleet", "report", store, "--html", str(tmp_path / "page.html"), "--json"],
        ["why", store],
        [
            "fleet",
            "simulate",
            "--preset",
            "small",
            "--days",
            "1",
            "-o",
            str(tmp_path / "s"),
            "--json",
        ],
        ["fst", "compose", str(machine), str(machine), "-o", str(tmp_path / "out"), "--json"],
        ["lm", "query", "count", "--regex", "a", "--json"],
        ["data", "records", "info", str(tmp_path), "--json"],
        ["runs", "report", str(EVENTS), "--json"],
        ["sparse", "bench", "--json"],
        ["profile", "ops", "suite:clip-text", "--json"],
        ["private", "run", "--local", "2", "script.py", "--json"],
    ]
    done = subprocess.run(
        [sys.executable, "-c", CODE, json.dumps([absent, lines])],
        capture_output=True,
        text=True,
        check=True,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [code for code, _, _ in found[:3]] == [0, 0, 0], done.stderr
    assert json.loads(found[1][1])["mttf"]["failures"] > 0
    assert (tmp_path / "page.html").exists()
    for (code, out, err), extra in zip(
        found[3:],
        ["sim", "automata", "lm", "records", "runs", "sparse", "profile", "private"],
        strict=True,
    ):
        assert (code, out) == (2, "")
        error = json.loads(err[err.index('{\n  "error"') :])["error"]
        assert (error["code"], error["extra"]) == ("missing-extra", extra)
