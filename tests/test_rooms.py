"""One list of rooms: help, README, docs/, its navigation, extras and `why` have the same order."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import COMMANDS, main, program
from holdfast.rooms import ROOMS, Room, lacking
from holdfast.why import KINDS

REPOSITORY = Path(__file__).resolve().parents[1]
README = (REPOSITORY / "README.md").read_text()
INDEX = (REPOSITORY / "docs" / "index.md").read_text()
NAVIGATION = tomllib.loads((REPOSITORY / "zensical.toml").read_text())["project"]["nav"]
EXTRAS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]


def pages(part: Any) -> list[str]:
    """The pages of the navigation, in its order."""
    if isinstance(part, str):
        return [part]
    parts = part.values() if isinstance(part, dict) else part
    return [page for each in parts for page in pages(each)]


def commands(words: str) -> list[str]:
    """The names below a room's own."""
    app = program()
    for word in words.split():
        app = app[word]
    return [name for name in app if not name.startswith("-")]


def test_the_first_words_are_those_of_the_rooms() -> None:
    words = list(dict.fromkeys(room.word for room in ROOMS))
    assert list(COMMANDS) == [*words, "why", "diff"]
    for room in ROOMS:
        app = program()
        for word in (*room.name.split(),):
            app = app[word]


def test_other_words_for_a_room_lead_to_it(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for line in (["fst", "info"], ["automata", "info"], ["--quiet", "automata", "info"]):
        with pytest.raises(SystemExit) as ended:
            main([*line, "--help"])
        assert not ended.value.code
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] == shown[2]
    assert "automata" not in COMMANDS
    assert not {other for room in ROOMS for other in room.also} & set(COMMANDS)


def test_every_group_lists_its_rooms_in_their_order() -> None:
    for word in ("data", "lm"):
        named = [room.name.removeprefix(f"{word} ") for room in ROOMS if room.word == word]
        assert commands(word)[: len(named)] == named


def test_the_readme_lists_the_rooms_by_person() -> None:
    row = r"^\| `([a-z ]+)` \[([^\]]+)\]\(docs/([^)]+)\) \|.*\| `(\w+)`, [\d,]+ MB \|$"
    found = re.findall(row, README, re.MULTILINE)
    assert found == [(room.name, room.title, room.page, room.extra) for room in ROOMS]
    people = list(dict.fromkeys(room.person for room in ROOMS))
    assert re.findall(r"^### (.*)$", README, re.MULTILINE) == people
    for room in ROOMS:
        heading = README.rindex("### ", 0, README.index(f"| `{room.name}` ["))
        assert README[heading:].startswith(f"### {room.person}\n"), room.name


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_the_readme_names_commands_that_exist(room: Room) -> None:
    line = next(line for line in README.splitlines() if line.startswith(f"| `{room.name}` ["))
    cell = line.split(" | ")[1]
    known = {*commands(room.name), *room.commands}
    words = set(re.findall(r"`([a-z -]+)`", cell.replace("(extra `console`)", "")))
    assert words <= known
    if room.name != "fst":  # it has too many for a row
        assert known - {"numerics"} == words


def test_the_index_lists_the_rooms() -> None:
    found = re.findall(
        r"^\| \[([^\]]+)\]\(([^)]+)\) \|.*\| `holdfast (.+?)` \|$", INDEX, re.MULTILINE
    )
    assert [(title, page) for title, page, _ in found] == [
        (room.title, room.page) for room in ROOMS
    ]
    for (_, _, command), room in zip(found, ROOMS, strict=True):
        assert command == room.name or command.startswith(f"{room.name} ")


def test_the_navigation_has_their_pages_in_this_order() -> None:
    order = [page for page in pages(NAVIGATION) if page in {room.page for room in ROOMS}]
    assert order == [room.page for room in ROOMS]


def test_a_page_starts_with_the_name_of_its_room() -> None:
    for room in ROOMS:
        assert (REPOSITORY / "docs" / room.page).read_text().startswith(f"# {room.title}"), room


def test_what_why_recognizes_is_read_by_a_room() -> None:
    words = {room.word for room in ROOMS} | {"diff"}
    assert {kind.room for kind in KINDS} <= words


def test_every_extra_is_in_the_readme_with_its_size() -> None:
    sizes = set(re.findall(r"`(\w+)`,? [\d,]+ MB", README))
    assert sizes | {"all"} == set(EXTRAS)
    assert {room.extra for room in ROOMS} <= set(EXTRAS)


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ("fleet whatif store", "sim"),
        ("data records info x", "records"),
        ("data croissant load records", "croissant"),
        ("data", "pipeline"),
        ("lm generate --model x", "hf"),
        ("lm train-exits", "hf"),
        ("lm audit bias", "lm"),
        ("profile numerics spikes", "profile"),
        ("fst info x", "automata"),
        ("why store", None),
    ],
)
def test_a_missing_library_names_the_extra_of_its_room(words: str, extra: str | None) -> None:
    error = lacking(ModuleNotFoundError(name="numba.core"), words.split())
    assert (error and error.extra) == extra


def test_a_fault_of_the_house_is_no_missing_extra() -> None:
    assert lacking(ModuleNotFoundError(name="holdfast.nothing"), ["fleet", "report"]) is None
    assert lacking(ImportError("cannot import name"), ["fleet", "report"]) is None
