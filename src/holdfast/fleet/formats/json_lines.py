"""JSON lines as columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.formats.source import Block, Records, Rejects, blocks
from holdfast.fleet.schema import Row

Unwrap = Callable[[Any], Iterator[Row]]
_LOOK = 20  # Lines that tell the format
_ANYTHING = msgspec.json.Decoder()


def read_json_lines(
    path: Path, rejects: Rejects, unwrap: Unwrap | None = None
) -> Iterator[Records]:
    """Read a file of one JSON object a line.

    Args:
        path: the file, compressed or not.
        rejects: receives the lines that are not a JSON object.
        unwrap: the objects in what a line holds, where it holds several or nests them.
    """
    for block in blocks(path):
        usable = list(json_objects(*_filled(block), rejects, unwrap))
        columns = _columns([row for row, _, _ in usable])
        lines = pa.array([line for _, line, _ in usable], pa.int64())
        texts = pa.array([text for _, _, text in usable], pa.string())
        yield Records(columns, lines, lambda texts=texts: texts, block.end)


def filled_lines(path: Path) -> Iterator[tuple[pa.Array, pa.Array]]:
    """The lines of each block of a file that are not blank, and their numbers."""
    yield from map(_filled, blocks(path))


def _filled(block: Block) -> tuple[pa.Array, pa.Array]:
    texts = block.lines()
    filled = pc.not_equal(pc.utf8_trim_whitespace(texts), "")
    lines = pc.add(pc.indices_nonzero(filled).cast(pa.int64()), block.first_line)
    return texts.filter(filled), lines


def json_objects(
    texts: pa.Array, lines: pa.Array, rejects: Rejects, unwrap: Unwrap | None = None
) -> Iterator[tuple[Row, int, str]]:
    """The objects on lines, one by one, with line and text of each."""
    for text, line in zip(texts.to_pylist(), lines.to_pylist(), strict=True):
        try:
            rows = list((unwrap or _itself)(parsed(text)))
        except (ValueError, RecursionError):
            rejects.add(line, "not JSON", text)
        except (TypeError, AttributeError, KeyError):
            rejects.add(line, "not a JSON object", text)
        else:
            own = [text] if len(rows) == 1 else [_encodable(json.dumps(row)) for row in rows]
            yield from zip(rows, [line] * len(rows), own, strict=True)


def first_objects(head: bytes) -> list[Row]:
    """The JSON objects on the first lines, as far as they are complete; [] if a line is none."""
    objects = []
    lines = [line for line in head.removeprefix(b"\xef\xbb\xbf").splitlines() if line.strip()]
    for line in lines[:_LOOK]:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            objects.append(value)
    return objects if 2 * len(objects) >= min(len(lines), _LOOK) else []


def parsed(text: str) -> Any:
    """A JSON text, also with the lone surrogates and NaN that strict readers refuse.

    Raises:
        ValueError: if it is not JSON.
    """
    try:
        return _ANYTHING.decode(text)
    except msgspec.DecodeError:  # it refuses lone surrogates and NaN, which other programs write
        return json.loads(text)


def flatten(value: Row, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The pairs of nested objects, keys joined by dots (``metadata.name``)."""
    for key, item in value.items():
        if isinstance(item, dict):
            yield from flatten(item, f"{prefix}{key}.")
        else:
            yield prefix + key, item


def _itself(value: Any) -> Iterator[Row]:
    if not isinstance(value, dict):
        raise TypeError("not a JSON object")
    yield value


def _columns(rows: list[Row]) -> pa.Table:
    """A column per key, of numbers or strings; of JSON text where the rows differ."""
    keys = set().union(*rows)
    if not keys:
        return pa.table({"": pa.nulls(len(rows), pa.string())})
    try:
        return pa.Table.from_batches([pa.RecordBatch.from_struct_array(pa.array(rows))])
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        texts = {key: [_text(row.get(key)) for row in rows] for key in sorted(keys)}
        return pa.table({_encodable(key): pa.array(own, pa.string()) for key, own in texts.items()})


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return _encodable(value if isinstance(value, str) else json.dumps(value))


def _encodable(text: str) -> str:
    """Without lone surrogates, which JSON can spell and Arrow cannot hold."""
    return text.encode("utf-8", errors="replace").decode()
