"""JSON lines as columns: Arrow's reader for clean blocks, Python's for blocks with a bad line."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.formats.source import Block, Rejects, blocks


@dataclass(frozen=True)
class Records:
    """The objects of one block."""

    columns: pa.Table
    """A column per key, nested objects flattened (``metadata.name``); shape ``[n]``."""
    lines: pa.Array
    """int64 line of each object in the source, shape ``[n]``."""
    texts: pa.Array
    """The line of each object as it stands, shape ``[n]``."""
    end: int
    """Bytes of the decompressed source up to the end of the block."""


Unwrap = Callable[[Any], Iterator[dict[str, Any]]]


def read_json_lines(
    path: Path, offset: int, rejects: Rejects, unwrap: Unwrap | None = None
) -> Iterator[Records]:
    """Read a file of one JSON object a line.

    Args:
        path: the file, compressed or not.
        offset: decompressed bytes to leave out.
        rejects: receives the lines that are no JSON object.
        unwrap: the objects in what a line holds, where it holds several.
    """
    for block in blocks(path, offset):
        lines = block.lines()
        filled = pc.not_equal(pc.utf8_trim_whitespace(lines), "")
        numbers = pc.add(pc.indices_nonzero(filled).cast(pa.int64()), block.first_line)
        texts = lines.filter(filled)
        if len(texts) == 0:
            continue
        columns = None if unwrap else _fast(block, texts)
        if columns is None:
            columns, numbers, texts = _slow(texts, numbers, rejects, unwrap or _itself)
        if columns.num_rows:
            yield Records(columns, numbers, texts, block.end)


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


def _fast(block: Block, texts: pa.Array) -> pa.Table | None:
    """The block through Arrow; None if Arrow does not see exactly one object on every line."""
    import pyarrow.json as arrow_json

    try:
        first = json.loads(texts[0].as_py())
    except ValueError:
        return None
    if not isinstance(first, dict) or len(set(first)) != len(first):
        return None
    # Declared as text, so that Arrow does not guess that they are times and lose their zone.
    known = pa.schema([(key, pa.string()) for key in first if isinstance(first[key], str)])
    try:
        table = arrow_json.read_json(
            io.BytesIO(block.data),
            read_options=arrow_json.ReadOptions(block_size=4 << 20),
            parse_options=arrow_json.ParseOptions(explicit_schema=known),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    if table.num_rows != len(texts):
        return None
    if any(pa.types.is_timestamp(kind) for kind in table.schema.types):
        return None
    while any(pa.types.is_struct(kind) for kind in table.schema.types):
        table = table.flatten()
    return table


def _itself(value: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(value, dict):
        raise TypeError("not a JSON object")
    yield value


def _slow(
    texts: pa.Array, numbers: pa.Array, rejects: Rejects, unwrap: Unwrap
) -> tuple[pa.Table, pa.Array, pa.Array]:
    """The same line by line; values become text (or stay null)."""
    rows: list[dict[str, str]] = []
    lines: list[int] = []
    said: list[str] = []
    for text, number in zip(texts.to_pylist(), numbers.to_pylist(), strict=True):
        try:
            values = list(unwrap(json.loads(text)))
            found = [dict(_flat(value)) for value in values]
        except (ValueError, RecursionError):
            rejects.add(number, "not JSON", text)
        except (TypeError, AttributeError, KeyError):
            rejects.add(number, "not a JSON object", text)
        else:
            rows += found
            lines += [number] * len(found)
            said += [text] if len(found) == 1 else [_encodable(json.dumps(v)) for v in values]
    keys = dict.fromkeys(key for row in rows for key in row)
    columns = {key: pa.array([row.get(key) for row in rows], pa.string()) for key in keys}
    table = pa.table(columns) if columns else pa.table({"": pa.nulls(len(rows), pa.string())})
    return table, pa.array(lines, pa.int64()), pa.array(said, pa.string())


def _flat(value: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, item in value.items():
        if isinstance(item, dict):
            yield from _flat(item, f"{prefix}{key}.")
        elif isinstance(item, str):
            yield prefix + key, _encodable(item)
        elif item is not None:
            yield prefix + key, _encodable(json.dumps(item))


def _encodable(text: str) -> str:
    """Without lone surrogates, which JSON can spell and Arrow cannot hold."""
    return text.encode("utf-8", errors="replace").decode()
