"""The examples of the README and of docs/ are run, and what they show is what comes out."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Commands of an example that need a cluster, the network or minutes; all others must be holdfast's.
NOT_RUN = ("sacct ", "scontrol ", "sacctmgr ", "git ", "make ", "pip ", "cd ")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh folder with the examples in it, as a reader has after a clone."""
    shutil.copytree(REPOSITORY / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_print_what_they_show(page: Path, workplace: Path) -> None:
    text = page.read_text(encoding="utf-8")
    session: dict[str, object] = {"__name__": "__main__"}
    for block in FENCE.finditer(text):
        line = text[: block.start()].count("\n") + 1
        where = f"{page.name}, line {line}"
        if block[1] == "console":
            for command, expected in _commands(block[2]):
                _check_command(command, expected, where)
        elif block[1] == "python":
            _check_python(block[2], session, where)


def test_every_page_is_reachable() -> None:
    navigation = (REPOSITORY / "zensical.toml").read_text(encoding="utf-8")
    missing = [page.name for page in PAGES[1:] if f'"{page.name}"' not in navigation]
    assert not missing


def test_links_between_pages_lead_somewhere() -> None:
    broken = [
        f"{page.name}: {target}"
        for page in [*PAGES, REPOSITORY / "CONTRIBUTING.md"]
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert not broken


def test_every_format_has_an_example_that_it_recognises(tmp_path: Path) -> None:
    from holdfast.fleet.formats import FORMATS, recognise

    page = (REPOSITORY / "docs" / "fleet-formats.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^### `([\w-]+)`\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL))
    assert set(sections) == {known.name for known in FORMATS}
    for name, text in sections.items():
        example = FENCE.search(text)
        if name == "mapped":  # any table: nothing to recognise
            continue
        assert example, name
        sample = tmp_path / f"{name}.sample"
        sample.write_text(example[2], encoding="utf-8")
        found = recognise(sample)
        assert found is not None, name
        assert found.name == name


def test_readme_is_short() -> None:
    assert len(PAGES[0].read_text(encoding="utf-8").splitlines()) < 150


def _commands(block: str) -> list[tuple[str, str]]:
    """(command, what it prints) of a console block; a command may end in a backslash."""
    found: list[tuple[str, str]] = []
    for part in re.split(r"^\$ ", block.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        found.append((command.strip(), expected))
    return found


def _check_command(command: str, expected: str, where: str) -> None:
    if command.startswith(NOT_RUN):
        return
    assert command.startswith("holdfast "), f"{where}: only holdfast's own commands are run"
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "TERM": "dumb",
    }
    done = subprocess.run(
        ["bash", "-c", command],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{where}: {command}\n{done.stdout}{done.stderr}"
    if expected.strip():
        _check_output(done.stdout, expected, f"{where}: {command}")


def _check_python(source: str, session: dict[str, object], where: str) -> None:
    if ">>>" not in source:
        exec(compile(source, where, "exec"), session)
        return
    example = doctest.DocTestParser().get_doctest(source, session, where, where, 0)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    runner.run(example, out=report.append, clear_globs=False)
    session.update(example.globs)
    assert not runner.failures, f"{where}\n{''.join(report)}"


def _check_output(got: str, expected: str, where: str) -> None:
    example = doctest.Example(where, expected)
    checker = doctest.OutputChecker()
    assert checker.check_output(expected, got, FLAGS), (
        f"{where}\n{checker.output_difference(example, got, FLAGS)}"
    )
