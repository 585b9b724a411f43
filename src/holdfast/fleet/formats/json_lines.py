"""JSON lines as columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.formats.source import Records, Rejects, blocks

Unwrap = Callable[[Any], Iterator[dict[str, Any]]]
_DECODE = msgspec.json.Decoder().decode


def read_json_lines(
    path: Path,
    offset: int,
    rejects: Rejects,
    unwrap: Unwrap | None = None,
    end: int | None = None,
) -> Iterator[Records]:
    """Read a file of one JSON object a line.

    Args:
        path: the file, compressed or not.
        offset: decompressed bytes to leave out.
        rejects: receives the lines that are no JSON object.
        unwrap: the objects in what a line holds, where it holds several or nests them.
        end: decompressed bytes after which to stop; None: at the end.
    """
    for block in blocks(path, offset, end=end):
        texts = block.lines()
        filled = pc.not_equal(pc.utf8_trim_whitespace(texts), "")
        lines = pc.add(pc.indices_nonzero(filled).cast(pa.int64()), block.first_line).to_pylist()
        said = texts.filter(filled).to_pylist()
        rows = [_parsed(text) for text in said]
        if unwrap or not all(isinstance(row, dict) for row in rows):
            rows, lines, said = _usable(rows, lines, said, unwrap or _itself, rejects)
        keys = sorted(set().union(*rows))
        columns = {_encodable(key): _column([row.get(key) for row in rows]) for key in keys}
        table = pa.table(columns or {"": pa.nulls(len(rows), pa.string())})
        yield Records(table, pa.array(lines, pa.int64()), pa.array(said, pa.string()), block.end)


def _usable(
    values: list[Any], lines: list[int], said: list[str], unwrap: Unwrap, rejects: Rejects
) -> tuple[list[dict[str, Any]], list[int], list[str]]:
    """The objects that values hold, with line and text of each."""
    found: list[tuple[dict[str, Any], int, str]] = []
    for value, line, text in zip(values, lines, said, strict=True):
        if isinstance(value, ValueError | RecursionError):
            rejects.add(line, "not JSON", text)
            continue
        try:
            rows = list(unwrap(value))
        except (TypeError, AttributeError, KeyError):
            rejects.add(line, "not a JSON object", text)
            continue
        own = [text] if len(rows) == 1 else [_encodable(json.dumps(row)) for row in rows]
        found += zip(rows, [line] * len(rows), own, strict=True)
    return [row for row, _, _ in found], [n for _, n, _ in found], [text for _, _, text in found]


def first_objects(head: bytes, limit: int = 20) -> list[dict[str, object]]:
    """The JSON objects on the first lines, as far as they are complete; [] if a line is none."""
    found: list[dict[str, object]] = []
    lines = [line for line in head.removeprefix(b"\xef\xbb\xbf").splitlines() if line.strip()]
    for line in lines[:limit]:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found if 2 * len(found) >= min(len(lines), limit) else []


def _parsed(text: str) -> Any:
    """A JSON value; the error if it is none."""
    try:
        return _DECODE(text)
    except msgspec.DecodeError:  # it refuses lone surrogates and NaN, which other programs write
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            return error


def flatten(value: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The pairs of nested objects, keys joined by dots (``metadata.name``)."""
    for key, item in value.items():
        if isinstance(item, dict):
            yield from flatten(item, f"{prefix}{key}.")
        else:
            yield prefix + key, item


def _itself(value: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(value, dict):
        raise TypeError("not a JSON object")
    yield value


def _column(values: list[Any]) -> pa.Array:
    """As numbers or strings where all are; else as JSON text."""
    try:
        array = pa.array(values)
        if not pa.types.is_nested(array.type):
            return array
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        pass
    return pa.array([None if value is None else _text(value) for value in values], pa.string())


def _text(value: Any) -> str:
    return _encodable(value if isinstance(value, str) else json.dumps(value))


def _encodable(text: str) -> str:
    """Without lone surrogates, which JSON can spell and Arrow cannot hold."""
    return text.encode("utf-8", errors="replace").decode()
