"""The core alone reports on a fleet and recognizes files; what lacks an extra says which to install."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import subprocess
import sys
import tomllib
from importlib import metadata
from itertools import groupby
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from holdfast.errors import MissingExtraError

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
NAMES = {"scikit-learn": "sklearn", "spdl_core": "spdl", "pillow": "PIL"}
"""Distribution -> the name it is imported by, where that is another."""


PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def libraries(extra: str) -> set[str]:
    """What an extra installs."""
    names: set[str] = set()
    for line in EXTRAS[extra]:
        name = re.split(r"[<>=]", line)[0]
        if inner := re.match(r"holdfast\[(.*)\]", name):
            names |= {each for one in inner[1].split(",") for each in libraries(one)}
        else:
            name = name.partition("[")[0]
            names.add(NAMES.get(name, name.replace("-", "_")))
    return names


def run(lines: list[list[str]], *extras: str, folder: Path) -> list[tuple[int, str, str]]:
    """Exit code, stdout and stderr of command lines where only some extras are installed."""
    there = {name for extra in extras for name in libraries(extra)}
    absent = {name for extra in EXTRAS for name in libraries(extra)} - there
    done = subprocess.run(
        [sys.executable, "-c", CODE, json.dumps([sorted(absent), lines])],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_core_and_what_it_lacks(tmp_path: Path) -> None:
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
    found = run(lines, folder=tmp_path)
    assert [code for code, _, _ in found[:3]] == [0, 0, 0], found[:3]
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
        assert error["remedy"].startswith(f"pip install 'holdfast[{extra}]")


def check_recognition(folders: list[Path], tmp_path: Path) -> set[str]:
    """Let `why` look at folders in a core install; give the extras that it names."""
    named = set()
    answers = run([["why", str(each), "--json"] for each in folders], folder=tmp_path)
    for folder, (code, out, err) in zip(folders, answers, strict=True):
        if code:
            error = json.loads(err[err.index('{\n  "error"') :])["error"]
            assert (code, error["code"]) == (2, "unknown-format"), (folder, error)
            continue
        answer = json.loads(out)
        gaps = {each["code"] for each in answer["unknown"]}
        assert "failed" not in gaps, (folder, answer["unknown"])
        assert gaps or all(row["headline"] for row in answer["found"]), folder
        for gap in answer["unknown"]:
            if gap["code"] == "missing-extra":
                named |= set(re.findall(r"holdfast\[(.*?)\]", gap["remedy"]))
    return named


def test_the_core_recognizes_every_example(tmp_path: Path) -> None:
    folders = sorted(each for each in (REPOSITORY / "examples").iterdir() if each.is_dir())
    assert check_recognition(folders, tmp_path) == {"records", "runs"}


@pytest.mark.full
def test_the_core_recognizes_real_data(shared_data: Path, tmp_path: Path) -> None:
    named = check_recognition(sorted(shared_data.iterdir()), tmp_path)
    assert named == {"records", "croissant"}


@pytest.mark.parametrize(
    ("noted", "expected"),
    [
        (None, "holdfast[sim]"),
        ({"url": "file:///a%20b", "dir_info": {}}, "holdfast[sim] @ file:///a%20b"),
        (
            {"url": "https://x.org/h.git", "vcs_info": {"vcs": "git", "commit_id": "c"}},
            "holdfast[sim] @ git+https://x.org/h.git",
        ),
    ],
)
def test_the_remedy_installs_from_where_holdfast_came(
    noted: dict[str, object] | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Installed:
        def read_text(self, _: str) -> str | None:
            return None if noted is None else json.dumps(noted)

    monkeypatch.setattr(metadata, "distribution", lambda _: Installed())
    assert MissingExtraError("numba", "sim").remedy == f"pip install '{expected}'"
    assert Requirement(expected).extras == {"sim"}


# --- The README's own cluster ---------------------------------------------------------------------


def own_cluster() -> list[tuple[list[str], list[str]]]:
    """Extras installed so far, and the words of each command of the README's own cluster."""
    text = (REPOSITORY / "README.md").read_text()
    section = text[text.index("## Your own cluster") : text.index("## Anything else")]
    extras: list[str] = []
    found = []
    for block in re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            for part in line.split("&&"):
                words = shlex.split(part, comments=True)
                if words[:2] == ["pip", "install"]:
                    extras += re.findall(r"\[(.*)\]", words[2])
                elif words[0] == "holdfast":
                    found.append((list(extras), words[1:]))
                else:
                    assert words[0] == "sacct"
    return found


def write_log(path: Path) -> None:
    """The testbed's log as if its time were not compressed: jobs of hours."""
    with gzip.open(
        REPOSITORY / "examples" / "slurm-testbed" / "sacct_D_epoch.psv.gz", "rt"
    ) as file:
        lines = [line.split("|") for line in file.read().splitlines()]
    header = lines[0]
    first = 1_795_171_000
    for row in lines[1:]:
        for name in ("Submit", "Eligible", "Start", "End", "ElapsedRaw"):
            place = header.index(name)
            if len(row) >= len(header) and row[place].isdigit():
                since = 0 if name == "ElapsedRaw" else first
                row[place] = str(since + 240 * (int(row[place]) - since))
    path.write_text("\n".join("|".join(row) for row in lines) + "\n")


@pytest.mark.parametrize(
    "shorter",
    [["--replicas", "2", "--days", "1", "--jobs", "1"], pytest.param([], marks=pytest.mark.full)],
)
def test_the_own_cluster_of_the_readme(shorter: list[str], tmp_path: Path) -> None:
    write_log(tmp_path / "sacct.psv")
    lines = own_cluster()
    assert [words[1] for _, words in lines] == ["ingest", "report", "whatif"]
    assert lines[0][0] == []  # the core
    for extras, part in groupby(lines, key=lambda each: each[0]):
        whole = [words + shorter * (words[1] == "whatif") for _, words in part]
        for code, _, err in run(whole, *extras, folder=tmp_path):
            assert code == 0, err
    assert (tmp_path / "report.html").exists()
    assert (tmp_path / "whatif.html").exists()
