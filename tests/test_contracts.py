"""The rules of the house that no linter checks."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import reference
import render
import run_all

REPOSITORY = Path(__file__).resolve().parents[1]
SETTINGS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
LAYERS = SETTINGS["tool"]["importlinter"]["contracts"][0]["layers"]
ROOMS = [
    room.strip()
    for line in LAYERS[LAYERS.index("why") + 1 : LAYERS.index("compare")]
    for room in line.split("|")
]
HEAVY = {
    "duckdb",
    "lifelines",
    "numba",
    "numpy",
    "pandas",
    "pyarrow",
    "scipy",
    "torch",
}


def test_the_contract_and_the_command_line_know_the_same_rooms() -> None:
    from holdfast.cli import COMMANDS as MOUNTED
    from holdfast.cli import home

    homes = {home(room) for room in MOUNTED} - {"holdfast.compare", "holdfast.why"}
    assert {module.split(".")[1] for module in homes} == set(ROOMS)
    for module in homes:
        assert importlib.import_module(module).app


def test_the_map_has_every_room_and_the_floor_every_module() -> None:
    text = (REPOSITORY / "docs" / "contributing" / "design.md").read_text(encoding="utf-8")
    rooms = re.findall(r"^\| `(\w+)/` \|", text, re.MULTILINE)
    assert sorted(rooms) == sorted(ROOMS)
    source = REPOSITORY / "src" / "holdfast"
    modules = {path.stem for path in source.glob("*.py")} | {"report"}
    floor = text[text.index("## The floor") : text.index("## Who may import whom")]
    named = set(re.findall(r"`(\w+)`(?=[^|]*\|[^|]*\|$)", floor, re.MULTILINE))
    assert named == modules - {"__init__", "cli", "why", "compare"}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_has_the_face_that_every_room_has(room: str) -> None:
    module = importlib.import_module(f"holdfast.{room}")
    assert module.__all__, "a room names its public functions"
    assert all(hasattr(module, name) for name in module.__all__)


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from holdfast.cli import main\n"
        "sys.argv = ['holdfast', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)\n"
    )
    from holdfast.cli import COMMANDS as MOUNTED

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert HEAVY.isdisjoint(done.stderr.split())
    assert all(name in done.stdout for name in MOUNTED)


@pytest.mark.parametrize("page", list(reference.PAGES))
def test_generated_pages_are_fresh(page: str) -> None:
    stored = (reference.DOCS / page).read_text(encoding="utf-8")
    assert stored == reference.PAGES[page](), "run: python tools/reference.py"


def test_the_pages_of_benchmarks_are_fresh() -> None:
    for name, text in render.pages().items():
        stored = (render.DOCS / name).read_text(encoding="utf-8")
        assert stored == text, f"{name}: run: python benchmarks/render.py"
    for path in render.DOCS.glob("*.md"):
        text = path.read_text(encoding="utf-8")
        assert render.filled(text) == text, f"{path.name}: run: python benchmarks/render.py"


def test_every_benchmark_can_be_run_by_its_room() -> None:
    scripts = run_all.scripts()
    rooms = {Path(script).stem.split("_")[0] for script in scripts}
    named = [script for room in rooms for script in run_all.scripts(room)]
    assert sorted(named) == sorted(scripts)
    assert all((REPOSITORY / script).exists() for script in named)
    with pytest.raises(SystemExit):
        run_all.scripts("nothing")


def test_every_command_and_option_says_what_it_does() -> None:
    silent = [
        line
        for room in reference.ROOMS
        for line in reference.room_page(room).splitlines()
        if line.startswith("| `") and line.rstrip("| ").endswith("`")
    ]
    assert not silent


def test_constraints_pin_every_direct_dependency() -> None:
    lines = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {_plain(line.partition("==")[0]) for line in lines if "==" in line}
    wanted = [
        *SETTINGS["project"]["dependencies"],
        *(
            line
            for extra in SETTINGS["project"]["optional-dependencies"].values()
            for line in extra
        ),
        *(line for group in SETTINGS["dependency-groups"].values() for line in group),
    ]
    names = {_plain(line) for line in wanted} - {"holdfast"}
    assert names <= pinned


def test_make_help_lists_the_targets() -> None:
    done = subprocess.run(
        ["make", "help"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    listed = {line.split()[1] for line in done.stdout.splitlines()}
    assert {"help", "demo", "test", "test-full", "lint", "bench", "docs", "release"} <= listed


def _plain(requirement: str) -> str:
    """The name of a requirement as an index spells it."""
    name = requirement.split("[")[0]
    for sign in "<>=~!; ":
        name = name.split(sign)[0]
    return name.lower().replace("_", "-").replace(".", "-")
