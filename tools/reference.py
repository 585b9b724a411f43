"""The parts of the documentation that are made from the code: commands, the store, scenarios, a picture.

    python tools/reference.py

rewrites them in `docs/`; a test fails when one is stale.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, get_origin, get_type_hints

from holdfast.cli import program
from holdfast.rooms import ROOMS, Room

DOCS = Path(__file__).resolve().parents[1] / "docs"
GENERATED = "<!-- Made by tools/reference.py; edit that, or the code it reads. -->"

STORE_PROSE = """\
# The store

`holdfast fleet ingest` writes a directory that any tool can read: `store.json` and one folder a
table, each holding Parquet files. `holdfast.fleet.open(path)` and every `holdfast fleet` command
read it; so do DuckDB, Spark and pandas.

`store.json` says which files are live. A write adds new files, syncs them, and then replaces
`store.json` by a rename: a reader sees the store before or after, never between, and files that
`store.json` does not list are the leftovers of an interrupted run. It also keeps the version of
this layout (now {version}), the sources with their fingerprints (a source that was read before is
not read again; of one that is followed, how far it was read), the time zone, whether the log has
every attempt (`duplicates_flag`), and what was inferred rather than read.

All times are seconds since 1970-01-01T00:00:00 UTC. A time that is not known (a job that never
started, an attempt that still runs) is null, never zero.

`holdfast fleet simulate` writes the same, and beside it [the truth](simulator.md#the-store-and-the-truth):
`truth.json` and `truth/attempts.parquet`, which no reader of a store looks at.
"""

CLI_PROSE = """\
# Commands

Every command prints a table for people, and with `--json` the same answer for programs (stable
keys, units in the names). Every command also takes `--html FILE` (the answer as a page, where it has
one), `--save FILE` (the whole answer, see [answers](answers.md)), `--quiet` (no progress and no
remarks) and `--verbose`. Progress goes to stderr. Exit codes: 0 done, 1 the answer is a failure (a gate
that was not met), 2 bad input or usage. `holdfast --install-completion` completes commands in the shell.

With `--json`, an error is a JSON object on stderr: `{"error": {"code": "missing-column", "path": ...,
"place": ..., "found": ..., "expected": ..., "remedy": ..., "message": ...}}`. Match `code`, which stays
the same across releases, not the message.
"""


SCENARIO_PROSE = """\
# Scenarios

A scenario says what a [simulation](simulator.md) assumes: a TOML file with the tables and keys
below. Print one of those that ship, edit it, and simulate it:

```bash
holdfast fleet simulate --preset small --print-scenario > mine.toml
holdfast fleet simulate --scenario mine.toml --days 30 -o store
```

A key that is left out has its default; a key without one must be given. Durations are texts such as
`"30s"`, `"10m"`, `"2h"` or `"7d"`. Tables in double brackets may occur several times. What makes no
sense is refused with the name of its key.
"""


def store_page() -> str:
    """`docs/store-format.md`: every table and field of `holdfast.fleet.schema`."""
    from holdfast.fleet import schema

    parts = [GENERATED, "", STORE_PROSE.format(version=schema.STORE_VERSION)]
    described = _described(inspect.getsource(schema))
    for name, table in schema.TABLES.items():
        about, notes = described[name.upper()]
        parts += [f"## {name}", "", about, "", "| field | type | meaning |", "|-|-|-|"]
        parts += [
            f"| `{field.name}` | {re.sub('(element|item): ', '', str(field.type))} "
            f"| {_cell(notes.get(field.name, ''))} |"
            for field in table
        ]
        parts.append("")
    return "\n".join(parts)


def _described(source: str) -> dict[str, tuple[str, dict[str, str]]]:
    """What the comments of the schemas say: schema -> (of the table, of each field).

    A field's comment stands behind it or on the lines before it; the comment before the first field
    is the table's.
    """
    comments = {
        token.start[0]: token.string.removeprefix("#").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    found: dict[str, tuple[str, dict[str, str]]] = {}
    for statement in ast.parse(source).body:
        if not (isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call)):
            continue
        about, notes, line = "", {}, statement.lineno
        for field in statement.value.keywords:
            before = [comments[n] for n in range(line, field.lineno) if n in comments]
            if not notes:
                about, before = " ".join(before), []
            behind = [comments[n] for n in (field.end_lineno,) if n in comments]
            notes[field.arg or ""] = " ".join(behind or before)
            line = (field.end_lineno or field.lineno) + 1
        found[ast.unparse(statement.targets[0])] = (about, notes)
    return found


def scenario_page() -> str:
    """`docs/scenario.md`: every table and key of `holdfast.fleet.simulation.scenario`."""
    from holdfast.fleet.simulation import scenario
    from holdfast.fleet.simulation.scenario_file import toml_key

    notes = _field_notes(inspect.getsource(scenario))
    parts = [GENERATED, "", SCENARIO_PROSE]
    for header, kind in _scenario_tables(scenario.Scenario, "", repeated=False):
        about = (inspect.getdoc(kind) or "").splitlines()[0]
        rows = [
            f"| `{toml_key(each.name)}` | {_kind(kind, each)} | {_default(each)} "
            f"| {_cell(notes.get((kind.__name__, each.name), ''))} |"
            for each in dataclasses.fields(kind)
            if _inner(kind, each) is None
        ]
        if rows:
            table = ["| key | type | default | meaning |", "|-|-|-|-|", *rows, ""]
            parts += [f"## {header or 'At the top'}", "", about, "", *table]
    return "\n".join(parts)


def _scenario_tables(kind: Any, path: str, *, repeated: bool) -> Iterator[tuple[str, Any]]:
    """(TOML header, dataclass) of a table and of those inside it, in the order of the file."""
    from holdfast.fleet.simulation.scenario_file import toml_key

    yield (f"`[[{path}]]`" if repeated else f"`[{path}]`") if path else "", kind
    for each in dataclasses.fields(kind):
        inner = _inner(kind, each)
        if inner is not None:
            below = f"{path}.{toml_key(each.name)}" if path else toml_key(each.name)
            yield from _scenario_tables(inner, below, repeated=str(each.type).startswith("tuple"))


def _inner(kind: Any, field: Any) -> Any:
    """The dataclass that a field is a table of; None for a plain value."""
    from holdfast.fleet.simulation.scenario_file import hints, item_of

    item = item_of(hints(kind)[field.name])
    return item if dataclasses.is_dataclass(item) else None


def _kind(kind: Any, field: Any) -> str:
    names = {
        int: "whole number",
        float: "number",
        str: "text",
        bool: "true or false",
        Mapping: "table of numbers",
        tuple[float, ...]: "list of numbers",
        tuple[str, ...]: "list of texts",
        Literal: "text",
    }
    hint = get_type_hints(kind)[field.name]
    return "duration" if field.name.endswith("_s") else names.get(hint) or names[get_origin(hint)]


def _default(field: Any) -> str:
    from holdfast.fleet.simulation.scenario_file import literal

    if field.default is dataclasses.MISSING:
        return "must be given" if field.default_factory is dataclasses.MISSING else "`{}`"
    if isinstance(field.default, tuple) and len(set(field.default)) == 1:
        return f"{len(field.default)} times `{field.default[0]:g}`"
    return f"`{literal(field.default, duration=field.name.endswith('_s'))}`"


def _field_notes(source: str) -> dict[tuple[str, str], str]:
    """(class, field) -> its comment, behind the field or on the lines before it, in one line."""
    comments, own_line = {}, set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comments[token.start[0]] = token.string.removeprefix("#").strip()
            if token.line.lstrip().startswith("#"):
                own_line.add(token.start[0])
    notes = {}
    for kind in ast.parse(source).body:
        for field in getattr(kind, "body", []):
            if isinstance(field, ast.AnnAssign):
                first = field.lineno
                while first - 1 in own_line:
                    first -= 1
                lines = range(first, (field.end_lineno or field.lineno) + 1)
                text = " ".join(comments[n] for n in lines if n in comments).replace("``", "`")
                notes[kind.name, ast.unparse(field.target)] = text + "." * (
                    text[-1:] not in ("", ".")
                )
    return notes


def cli_page() -> str:
    """`docs/cli.md`: where the commands of each room are, and those of no room."""
    parts = [GENERATED, "", CLI_PROSE, "| room | commands |", "|-|-|"]
    for room in ROOMS:
        names = [" ".join(words) for words, app in _members(room) if app.default_command]
        shown = ", ".join(f"`{name.removeprefix(f'{room.name} ')}`" for name in names)
        parts.append(f"| [`holdfast {room.name}`](cli/{_file(room)}) | {shown} |")
    parts.append("")
    for name in ("why", "diff"):
        parts += _command((name,), program()[name])
    return "\n".join(parts)


def room_page(room: Room) -> str:
    """`docs/cli/ROOM.md`: every command of a room, from its own help."""
    parts = [GENERATED, "", f"# Commands: {room.title}", ""]
    for words, app in _members(room):
        parts += _command(words, app)
    return "\n".join(parts)


def _members(room: Room) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A room's commands and groups, without those of a room inside it."""
    inner = {other.name for other in ROOMS} - {room.name}
    for name in (room.name, *room.commands):
        app = program()
        for word in name.split():
            app = app[word]
        yield from _below(tuple(name.split()), app, inner)


def _below(
    names: tuple[str, ...], app: Any, without: set[str]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    if " ".join(names) in without:
        return
    yield names, app
    if not app.default_command:
        for name in app:
            if not name.startswith("-"):
                yield from _below((*names, name), app[name], without)


def _file(room: Room) -> str:
    return f"{room.name.replace(' ', '-')}.md"


def _command(names: tuple[str, ...], app: Any) -> Iterator[str]:
    """The lines of a command, or of a group without those below it."""
    from cyclopts import Group
    from cyclopts.help import create_parameter_help_panel

    names = ("holdfast", *names)
    yield from (f"## {' '.join(names)}", "", _before_arguments(app.help), "")
    entries = []
    if app.default_command:
        arguments = app.assemble_argument_collection(parse_docstring=True)
        entries = create_parameter_help_panel(Group(), arguments, "plaintext").entries
    # What has an option's name too is shown as the option: a place in the line says less.
    options = [[x for x in e.display_labels_with_metavar if x.startswith("-")] for e in entries]
    words = [e.positional_label for e, own in zip(entries, options, strict=True) if not own]
    optional = ["[OPTIONS]"] if len(words) < len(entries) else []
    members = [name for name in app if not name.startswith("-")]
    yield from (
        "```text",
        " ".join([*names, *optional, *words, *(["COMMAND"] * bool(members))]),
        "```",
        "",
    )
    if entries:
        yield from ("| argument or option | meaning |", "|-|-|")
    for entry, own in zip(entries, options, strict=True):
        label = ", ".join(own) or entry.positional_label
        notes = [" ".join(str(entry.description.primary_renderable).split())]
        # Not in brackets beside those of the default: Markdown would take both for a link.
        notes += [f"One of {', '.join(entry.choices)}."] if entry.choices else []
        notes += [f"[default: {entry.default}]"] if entry.default is not None else []
        yield f"| `{_cell(label)}` | {_cell(' '.join(notes))} |"
    if entries:
        yield ""


def _before_arguments(docstring: str) -> str:
    return inspect.cleandoc(docstring).partition("\nArgs:")[0].rstrip()


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def word_picture() -> str:
    """What was said in `examples/transducers`, word by word, as SVG."""
    from holdfast.automata import Fst, compose, determinize, minimize, project, rmepsilon
    from holdfast.automata.drawing.pictures import to_svg
    from holdfast.automata.formats.symbol_tables import read_symbols

    folder = DOCS.parent / "examples" / "transducers"
    phones, words = (read_symbols(folder / f"{name}.txt") for name in ("phones", "words"))
    heard, lexicon, grammar = (
        Fst.from_text(
            (folder / f"{name}.txt").read_text(encoding="utf-8"),
            "tropical",
            isymbols=left,
            osymbols=right,
            acceptor=name == "heard",
        )
        for name, left, right in (
            ("heard", phones, phones),
            ("lexicon", phones, words),
            ("grammar", words, words),
        )
    )
    lattice = compose(heard, compose(lexicon, grammar))
    return to_svg(minimize(determinize(rmepsilon(project(lattice, "output")))))


def token_picture() -> str:
    """Two texts in the tokens of `examples/canaries`, as SVG."""
    from holdfast.lm import query as q

    tokenizer = q.load_tokenizer(f"gpt2:{DOCS.parent / 'examples' / 'canaries' / 'model'}")
    with TemporaryDirectory() as folder:
        path = Path(folder, "tokens.svg")
        q.draw(q.Query("The (man|woman)"), tokenizer, path)
        return path.read_text(encoding="utf-8")


PAGES = {
    "automata-words.svg": word_picture,
    "cli.md": cli_page,
    **{f"cli/{_file(room)}": partial(room_page, room) for room in ROOMS},
    "lm-query-tokens.svg": token_picture,
    "scenario.md": scenario_page,
    "store-format.md": store_page,
}


def main() -> None:
    """Rewrite the generated pages."""
    for name, page in PAGES.items():
        (DOCS / name).parent.mkdir(exist_ok=True)
        (DOCS / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
