"""The examples of the README and of docs/ are run, and what they show is what comes out."""

from __future__ import annotations

import doctest
import importlib
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

import examples
from examples import DOCS, FENCE, NOT_RUN, PAGES, REPOSITORY
from holdfast.cli import main as holdfast
from holdfast.cli import program


def _name(page: Path) -> str:
    """A page as the navigation names it."""
    return page.relative_to(DOCS).as_posix() if DOCS in page.parents else page.name


SHELL = set("|&;<>*?$`#")  # characters that ask for a shell
QUOTED = re.compile(r"""'[^']*'|"[^"$`]*\"""")  # where they do not
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, value in examples.TERMINAL.items():
        monkeypatch.setenv(name, value)
    # The workers take all processors already: a pool of processes would cost its start.
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    return examples.workplace(tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_examples_print_what_they_show(
    page: Path, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = page.read_text(encoding="utf-8")
    session: dict[str, object] = {"__name__": "__main__"}
    for block in FENCE.finditer(text):
        line = text[: block.start()].count("\n") + 1
        where = f"{page.name}, line {line}"
        if block[1] == "console":
            for command, expected in examples.commands(block[2]):
                _check_command(command, expected, workplace, where, capsys)
        elif block[1] == "python" and page.name != "new-room.md":  # its files have their own test
            _check_python(block[2], session, where)


def test_every_page_is_reachable() -> None:
    navigation = (REPOSITORY / "zensical.toml").read_text(encoding="utf-8")
    missing = [_name(page) for page in PAGES[1:] if f'"{_name(page)}"' not in navigation]
    assert not missing


def test_files_that_pages_show_are_as_they_show_them() -> None:
    shown = [
        (page.name, name, text)
        for page in PAGES
        if page.name != "new-room.md"  # its files are made by the test that follows it
        for name, text in re.findall(
            r'^```\w+ title="([^"]+)"\n(.*?)^```$',
            page.read_text(encoding="utf-8"),
            re.MULTILINE | re.DOTALL,
        )
    ]
    assert shown
    for page, name, text in shown:
        assert (REPOSITORY / name).read_text(encoding="utf-8") == text, (page, name)


def test_links_between_pages_lead_somewhere() -> None:
    broken = [
        f"{page.name}: {target}"
        for page in [*PAGES, REPOSITORY / "CONTRIBUTING.md"]
        for target in re.findall(
            r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", FENCE.sub("", page.read_text(encoding="utf-8"))
        )
        if not (page.parent / target).exists()
    ]
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_tables_render_as_tables(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    # (first line, line behind) of what a reader sees as a table, and of code, where a pipe is a pipe.
    spans = [token.map for token in tokens if token.type in ("table_open", "fence") and token.map]
    covered = {line for first, behind in spans for line in range(first, behind)}
    lines = text.splitlines()
    assert not [n + 1 for n, line in enumerate(lines) if line[:1] == "|" and n not in covered]


def test_the_readme_names_the_commands_without_json() -> None:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    flags = dict(_commands((), program()))
    exceptions = re.search(r"`--json` \(all but (.*?),\s+which", text, re.DOTALL)
    assert exceptions
    named = set(re.findall(r"`([a-z ]+)`", exceptions[1]))
    assert named == {name for name, options in flags.items() if "--json" not in options}


def _commands(words: tuple[str, ...], app: Any) -> Iterator[tuple[str, set[str]]]:
    """Command -> its options, as far as they matter here."""
    if app.default_command is not None:
        answers = app.default_command.__annotations__["return"] != "None"
        yield " ".join(words), {"--json"} if answers else set()
        return
    for name in app:
        if not name.startswith("-"):
            yield from _commands((*words, name), app[name])


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


@pytest.mark.parametrize(
    "room",
    [
        *(
            "automata",
            "data.croissant",
            "data.curation",
            "data.pipeline",
            "data.records",
            "federated",
            "fleet",
            "go",
        ),
        *("lm.generate", "lm.query"),
        *("private.bandits", "private.mpc", "profile.numerics", "runs", "sparse"),
        *("speech.recognize", "speech.speak"),
    ],
)
def test_every_public_name_is_documented(room: str) -> None:
    public = set(importlib.import_module(f"holdfast.{room}").__all__)
    page = REPOSITORY / "docs" / f"{room.replace('.', '-')}-api.md"
    text = page.read_text(encoding="utf-8")
    shown = set(re.findall(rf"^::: holdfast\.{re.escape(room)}\.(\w+)$", text, re.MULTILINE))
    assert shown == public


def test_readme_is_short() -> None:
    assert len(PAGES[0].read_text(encoding="utf-8").splitlines()) < 150


def _check_command(
    command: str, expected: str, folder: Path, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if command.startswith(NOT_RUN):
        return
    assert command.startswith("holdfast "), f"{where}: only holdfast's own commands are run"
    if set(QUOTED.sub("", command)) & SHELL:
        done = examples.run(command, folder)
        code, out, err = done.returncode, done.stdout, done.stderr
    else:  # in this process: starting Python and its libraries takes longer than most commands
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            holdfast(shlex.split(command)[1:])
        code = ended.value.code
        out, err = capsys.readouterr()
    assert code == 0, f"{where}: {command}\n{out}{err}"
    if expected.strip():
        _check_output(out, expected, f"{where}: {command}")


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
