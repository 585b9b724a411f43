"""The product as its users meet it: command lines run, what they print and write made comparable.

A case is an entry of `cases/<room>.toml`; what it gave when it was recorded stands in
`expected/<room>.json`.
Nothing here knows how the product is built: it calls `holdfast.cli.main` and reads files.

    [files]                   text files that the room's cases read, by name
    [[case]]
    name = "lemons"           unique in the room
    run = "fleet lemons store --json"
    after = ["ingest"]        cases whose files this one reads; they run before it
    exit = 0                  the exit code, 0 if not given
    out = "json"              what stdout holds: json, jsonl, csv, toml, yaml, lines, bytes; not given: json
                              after --json, and anything (a table for people) without
    writes = ["*.html"]       files it leaves, as patterns in the room's folder; a folder is a Parquet table
    types = ["*.seconds"]     values of which only the type is kept, as patterns of dotted keys
    without = ["*.ettr"]      keys that are left out
    verbatim = ["*.name"]     texts of five words and more to keep, as such patterns; others are wording
    rel = 1e-6                relative tolerance of numbers
    stdin = "..."             what it reads on standard input
    sh = "cp -r a b"          what is done to the room's folder before it
    process = true            a process of its own; else it runs in the test's

`[defaults]` holds patterns for all cases of a room.

Every room has a folder of its own, in which `examples` and `tests` are those of the repository.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import gc
import hashlib
import io
import json
import math
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
PROGRAM = (sys.executable, "-c", "from holdfast.cli import main; main()")
"""The command line as a process of its own."""
LONG_LIST = 10
"""Longer lists are kept as their length, their ends and the sums of their numbers."""
LONG_BYTES = 600
"""Longer files of bytes are kept as their length and SHA-256."""


@dataclass(frozen=True)
class Case:
    """One command line and what is looked at; see the head of this file."""

    name: str
    run: str
    after: tuple[str, ...] = ()
    exit: int = 0
    out: str = ""
    writes: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    verbatim: tuple[str, ...] = ()
    rel: float = 1e-6
    stdin: str = ""
    sh: str = ""
    process: bool = False

    @property
    def stdout(self) -> str:
        """What stdout holds."""
        return self.out or ("json" if "--json" in shlex.split(self.run) else "anything")


@dataclass
class Room:
    """The cases of a room, run in its folder; each once, when it is first asked for."""

    name: str
    folder: Path = Path()
    outcomes: dict[str, dict[str, Any]] = field(default_factory=dict)

    @cached_property
    def _document(self) -> dict[str, Any]:
        return tomllib.loads((HERE / "cases" / f"{self.name}.toml").read_text())

    @cached_property
    def cases(self) -> dict[str, Case]:
        """The room's cases by name."""
        made = []
        for row in self._document["case"]:
            for key, patterns in self._document.get("defaults", {}).items():
                row[key] = [*row.get(key, []), *patterns]
            tuples = {key: tuple(value) for key, value in row.items() if isinstance(value, list)}
            made.append(Case(**(row | tuples)))
        assert len({case.name for case in made}) == len(made), "two cases have one name"
        return {case.name: case for case in made}

    @cached_property
    def _furnished(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("examples", "tests"):
            (self.folder / name).symlink_to(REPOSITORY / name)
        for name, text in self._document.get("files", {}).items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return self.folder

    def outcome(self, name: str) -> dict[str, Any]:
        """What a case gives, run after those that it needs."""
        if name not in self.outcomes:
            case = self.cases[name]
            for needed in case.after:
                self.outcome(needed)
            self.outcomes[name] = _outcome(case, self._furnished)
        return self.outcomes[name]

    @property
    def expected_file(self) -> Path:
        """Where what the cases gave is recorded."""
        return HERE / "expected" / f"{self.name}.json"

    @cached_property
    def expected(self) -> dict[str, Any]:
        """What the cases gave when they were recorded."""
        recorded: dict[str, Any] = json.loads(self.expected_file.read_text())
        return recorded


def outline(value: Any, folder: Path) -> Any:
    """A value that a Python call gave, as it is recorded."""
    return _outline(value, Case("", ""), folder, "")


def rooms() -> list[str]:
    """The names of the rooms that have cases."""
    return sorted(path.stem for path in (HERE / "cases").glob("*.toml"))


# Running.


def _outcome(case: Case, folder: Path) -> dict[str, Any]:
    if case.sh:
        subprocess.run(["sh", "-euc", case.sh], cwd=folder, check=True)
    run = _in_a_process if case.process else _in_this_process
    code, out, err = run(shlex.split(case.run), case.stdin.encode(), folder)
    assert code == case.exit, f"exit code {code}, not {case.exit}\n{err.decode()[-3000:]}"
    made: dict[str, Any] = {}
    if case.exit == 2 and case.stdout == "json":
        assert not out, "an error prints nothing on stdout"
        error = json.loads(err[err.index(b'{\n  "error"') :])["error"]
        assert error["message"]
        made["error"] = {
            key: error[key]
            for key in ("kind", "code", "path", "place")
            if error.get(key) is not None
        }
        if error["code"] in ("invalid-input", "error", "store"):  # no more than the kind says
            del made["error"]["code"]
    elif case.stdout != "anything":
        made["out"] = _READERS[case.stdout](out)
    if case.writes:
        made["files"] = {
            _text(str(path.relative_to(folder)), folder): _file(path)
            for pattern in case.writes
            for path in sorted(folder.glob(pattern))
        }
        assert made["files"], f"{case.writes}: nothing was written"
    kept: dict[str, Any] = _outline(made, case, folder, "")
    return kept


def _in_a_process(arguments: list[str], stdin: bytes, folder: Path) -> tuple[int, bytes, bytes]:
    done = subprocess.run(
        [*PROGRAM, *arguments], input=stdin, cwd=folder, capture_output=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def _in_this_process(arguments: list[str], stdin: bytes, folder: Path) -> tuple[int, bytes, bytes]:
    from holdfast.cli import main

    given, out, err = (io.TextIOWrapper(io.BytesIO(text), "utf-8") for text in (stdin, b"", b""))
    thresholds, before = gc.get_threshold(), sys.stdin
    sys.stdin = given
    try:
        with (
            contextlib.chdir(folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            main(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    finally:
        sys.stdin = before
        gc.set_threshold(*thresholds)
    out.flush(), err.flush()
    return code, out.buffer.getvalue(), err.buffer.getvalue()  # type: ignore[attr-defined]


# Reading what was printed and written.


class _Line(str):
    """A line of a format that programs read: no wording."""

    __slots__ = ()


def _lines(text: bytes) -> list[_Line]:
    return [_Line(line) for line in text.decode().splitlines()]


def _json_lines(text: bytes) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def _table(text: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text.decode())))


def _bytes(text: bytes) -> dict[str, Any]:
    if len(text) <= LONG_BYTES:
        return {"base64": base64.b64encode(text).decode()}
    return {"bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}


def _page(text: bytes) -> dict[str, Any]:
    """A page: its sections, and that it needs no other file."""
    page = text.decode()
    assert page.lower().startswith("<!doctype html>")
    assert not re.findall(r'<(?:script|img|link)[^>]+(?:src|href)="https?:', page)
    return {"sections": re.findall(r'<section[^>]*\bid="([^"]+)"', page)}


def _drawing(text: bytes) -> dict[str, Any]:
    found = re.findall(r"<(svg|path|text|circle|ellipse|polygon)\b", text.decode())
    return {name: found.count(name) for name in sorted(set(found))}


def _parquet(text: bytes) -> dict[str, Any]:
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(io.BytesIO(text))
    return {
        "rows": table.num_rows,
        "columns": {column.name: str(column.type) for column in table.schema},
    }


def _arrow(text: bytes) -> dict[str, Any]:
    import pyarrow.ipc

    table = pyarrow.ipc.open_file(io.BytesIO(text)).read_all()
    return {
        "rows": table.num_rows,
        "columns": {
            name: str(kind)
            for name, kind in zip(table.schema.names, table.schema.types, strict=True)
        },
    }


def _yaml(text: bytes) -> Any:
    import yaml

    return yaml.safe_load(text)


_READERS: Mapping[str, Callable[[bytes], Any]] = {
    "json": json.loads,
    "jsonl": _json_lines,
    "csv": _table,
    "toml": lambda text: tomllib.loads(text.decode()),
    "yaml": _yaml,
    "lines": _lines,
    "bytes": _bytes,
}
_SUFFIXES: Mapping[str, Callable[[bytes], Any]] = {
    ".json": json.loads,
    ".sarif": json.loads,
    ".jsonl": _json_lines,
    ".csv": _table,
    ".toml": _READERS["toml"],
    ".txt": _READERS["lines"],
    ".dot": lambda text: {"arcs": text.count(b"->")},
    ".html": _page,
    ".svg": _drawing,
    ".parquet": _parquet,
    ".arrow": _arrow,
}


def _file(path: Path) -> Any:
    if path.is_dir():  # a table in several files
        parts = [_parquet(part.read_bytes()) for part in sorted(path.glob("*.parquet"))]
        return {"rows": sum(part["rows"] for part in parts), "columns": parts[0]["columns"]}
    return _SUFFIXES.get(path.suffix, _bytes)(path.read_bytes())


# What is kept of it.


def _matches(place: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(place, pattern) for pattern in patterns)


def _outline(value: Any, case: Case, folder: Path, place: str) -> Any:
    """A value as it is recorded: without machine paths, wording, and most of a long list."""
    if _matches(place, case.types):
        return f"<{_kind(value)}>"
    if isinstance(value, dict):
        return {
            _text(key, folder): _outline(part, case, folder, inside)
            for key, part in value.items()
            if not _matches(inside := f"{place}.{key}".lstrip("."), case.without)
        }
    if isinstance(value, list):
        if len(value) <= LONG_LIST:
            return [_outline(part, case, folder, place) for part in value]
        ends = [_outline(part, case, folder, place) for part in (*value[:2], value[-1])]
        kept = {"<count>": len(value), "<ends>": ends, "<sums>": _sums(value, case, place)}
        if all(isinstance(part, str) for part in value):
            whole = "\n".join(_text(part, folder) for part in value)
            kept["<sums>"] = {"sha256": hashlib.sha256(whole.encode()).hexdigest()}
        return kept
    if isinstance(value, float):
        digits = 9 if abs(value) < 1e9 else 15
        return float(f"{value:.{digits}g}") if math.isfinite(value) else str(value)
    if isinstance(value, str):
        data = isinstance(value, _Line) or len(value.split()) < 5 or _matches(place, case.verbatim)
        return _text(value, folder) if data else "<text>"
    return value if value is None or isinstance(value, (bool, int)) else str(value)


def _sums(rows: list[Any], case: Case, place: str) -> dict[str, float]:
    """Sums of the numbers in a long list, or in the columns of one of rows."""
    sums: dict[str, float] = {}
    for row in rows:
        for key, part in (row if isinstance(row, dict) else {"": row}).items():
            inside = f"{place}.{key}".strip(".")
            number = isinstance(part, (int, float)) and not isinstance(part, bool)
            if (
                number
                and math.isfinite(part)
                and not _matches(inside, (*case.types, *case.without))
            ):
                sums[key] = sums.get(key, 0) + part
    return {key: float(f"{total:.9g}") for key, total in sums.items()}


def _text(text: str, folder: Path) -> str:
    for path in (folder, folder.resolve()):
        text = text.replace(f"{path}/", "").replace(str(path), ".")
    # A dataset of records keeps its files in a folder that is named by a hash.
    return re.sub(r"records-[0-9a-f]{16}", "records-<hash>", text.replace(f"{REPOSITORY}/", ""))


def _kind(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "bool", False: "bool", None: "null"}[value]
    return {int: "number", float: "number", str: "text", list: "list", dict: "object"}[type(value)]


# Comparing.


def differences(expected: Any, actual: Any, rel: float, place: str = "") -> Iterator[str]:
    """Where a value is not what was recorded; an object may have more keys than were recorded."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key, part in expected.items():
            inside = f"{place}.{key}".lstrip(".")
            if key not in actual:
                yield f"{inside}: missing"
            else:
                yield from differences(part, actual[key], rel, inside)
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for number, (left, right) in enumerate(zip(expected, actual, strict=True)):
            yield from differences(left, right, rel, f"{place}[{number}]")
    elif isinstance(expected, float) and type(actual) in (int, float):
        # Times since 1970 in seconds are large: of them a hundredth counts.
        close = math.isclose(expected, actual, rel_tol=rel, abs_tol=1e-9)
        if not close or (abs(expected) > 1e9 and abs(expected - actual) > 0.01):
            yield f"{place}: {actual!r}, not {expected!r}"
    elif type(expected) is not type(actual) or expected != actual:
        yield f"{place}: {actual!r}, not {expected!r}"
