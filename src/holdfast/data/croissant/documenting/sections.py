"""The sections of a card that show the data: what is in it, and its records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from holdfast.data.croissant.document.model import (
    Container,
    Field,
    FileObject,
    FileSet,
    Metadata,
    RecordSet,
    Source,
    Transform,
)
from holdfast.data.croissant.documenting.drawing import drawing
from holdfast.data.croissant.documenting.layout import type_text
from holdfast.data.croissant.files.hashing import checksum_of
from holdfast.numbers import counted
from holdfast.report import ColumnFormat, Section, Table

_TABLES = 8  # beyond so many record sets, one table holds the fields of all
_ROWS = 2000
_SHOWN = 3
_CUT = 160
_INDENT = "\u2003"


def contents_section(metadata: Metadata) -> Section:
    """The picture, and the resources in a table."""
    figure = drawing(metadata)
    text = resources_text(metadata)
    sentence = (
        f"{text[0].upper()}{text[1:]}; {counted(len(metadata.record_sets), 'record set')}."
        if figure
        else "The description names no files and no records."
    )
    return Section(
        id="contents",
        question="What is in it?",
        sentence=sentence,
        figures=[figure] if figure else [],
        tables=[_resources(metadata)] if metadata.file_objects or metadata.file_sets else [],
    )


def resources_text(metadata: Metadata) -> str:
    """How many files and sets of files there are."""
    files, sets = len(metadata.file_objects), len(metadata.file_sets)
    holds = [counted(files, "file")] if files else []
    holds += [counted(sets, "set of files", "sets of files")] if sets else []
    return " and ".join(holds) or "no file"


def _resources(metadata: Metadata) -> Table:
    parts: Sequence[FileObject | FileSet] = (*metadata.file_objects, *metadata.file_sets)
    rows = [
        {
            "id": part.id,
            "kind": "file" if isinstance(part, FileObject) else "set of files",
            "format": ", ".join(part.encoding_formats),
            "size": part.content_size or "" if isinstance(part, FileObject) else "",
            "where": _where(part),
            "checksum": _checksum(part),
            "description": cut(part.description),
        }
        for part in parts[:_ROWS]
    ]
    return Table(
        text_table(rows),
        {name: ColumnFormat() for name in rows[0] if any(row[name] for row in rows)},
        caption="One row per file or set of files, in the description's order.",
    )


def _where(part: FileObject | FileSet) -> str:
    inside = _inside(part.contained_in)
    if isinstance(part, FileObject):
        return f"{part.content_url or ''}{f' in {inside}' if inside else ''}".strip()
    patterns = ", ".join(part.includes) or "every file"
    but = f" but {', '.join(part.excludes)}" if part.excludes else ""
    return f"{patterns}{but}{f' in {inside}' if inside else ' beside the description'}"


def _inside(containers: Sequence[Container]) -> str:
    names = [one.target for one in containers]
    return ", ".join(names[:_SHOWN]) + (
        f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    )


def _checksum(part: FileObject | FileSet) -> str:
    found = checksum_of(part.sha256, part.md5) if isinstance(part, FileObject) else None
    return f"{found.algorithm} {found.hex[:12]}…" if found else ""


def records_section(metadata: Metadata) -> Section:
    """The fields of each record set, with examples where the description has some."""
    every = metadata.record_sets
    fields = [sum(1 for _ in _walk(records.fields, 0)) for records in every]
    shown = [rows for records in every if (rows := list(_field_rows(records)))]
    if len(shown) <= _TABLES:
        tables = [_field_table(rows, _caption(records)) for records, rows in _with_rows(every)]
    else:
        rows = [row for part in shown for row in part][:_ROWS]
        tables = [_field_table(rows, "One row per field, of all record sets.", named=True)]
    undescribed = sum(
        not part.description for records in every for part, _ in _walk(records.fields, 0)
    )
    sentence = f"{counted(sum(fields), 'field')} in {counted(len(every), 'record set')}"
    if undescribed and sum(fields):
        sentence += f"; {undescribed:,} without a description"
    return Section(
        id="records",
        question="What does each record look like?",
        sentence=f"{sentence}." if every else "The description names no record sets.",
        tables=tables,
    )


def _with_rows(every: Sequence[RecordSet]) -> Iterator[tuple[RecordSet, list[dict[str, str]]]]:
    for records in every:
        if rows := list(_field_rows(records)):
            yield records, rows


def _caption(records: RecordSet) -> str:
    parts = [f"Record set {records.id}"]
    if records.description:
        parts.append(cut(records.description).rstrip("."))
    if records.key:
        parts.append(f"unique by {', '.join(records.key)}")
    if records.data is not None:
        parts.append(f"{counted(len(records.data), 'record')} in the description itself")
    return "; ".join(parts) + "."


def _field_table(rows: list[dict[str, str]], caption: str, *, named: bool = False) -> Table:
    columns = {
        name: ColumnFormat()
        for name in rows[0]
        if (name != "record_set" or named) and any(row[name] for row in rows)
    }
    return Table(text_table(rows), columns, caption=caption)


def _field_rows(records: RecordSet) -> Iterator[dict[str, str]]:
    for part, depth in _walk(records.fields, 0):
        yield {
            "record_set": records.id,
            "field": _INDENT * depth + part.short,
            "type": type_text(part),
            "from": source_text(part.source) if part.source else constant_text(part),
            "references": ", ".join(one.target for one in part.references),
            "description": cut(part.description),
            "examples": "; ".join(examples_of(records, part)),
        }


def _walk(fields: Sequence[Field], depth: int) -> Iterator[tuple[Field, int]]:
    for part in fields:
        yield part, depth
        yield from _walk(part.sub_fields, depth + 1)
        yield from _walk(part.annotations, depth + 1)


def constant_text(part: Field) -> str:
    """The value of a field that has the same in every record."""
    return f"always {json.dumps(part.value, ensure_ascii=False)}" if part.has_value else ""


def source_text(source: Source) -> str:
    """Where values come from, in one line: ``passengers.csv, column age, then separator ,``."""
    parts = [source.target]
    if extract := source.extract:
        if extract.column is not None:
            parts.append(f"column {extract.column}")
        if extract.file_property is not None:
            parts.append(f"each file's {extract.file_property}")
        if extract.json_path is not None:
            parts.append(f"JSONPath {extract.json_path}")
    parts += [f"then {text}" for one in source.transforms if (text := _step(one))]
    if source.format is not None:
        parts.append(f"written as {source.format}")
    return ", ".join(part for part in parts if part)


def _step(step: Transform) -> str:
    said = {
        "regex": step.regex,
        "separator": step.separator,
        "replace": step.replace,
        "JSONPath": step.json_path,
        "format": step.format,
        "sampling rate": step.sampling_rate,
    }
    done = [f"{name} {value}" for name, value in said.items() if value is not None]
    done += ["line by line"] if step.read_lines else []
    return " and ".join([*done, *(["unpacked"] if step.un_archive else [])])


def examples_of(records: RecordSet, part: Field) -> list[str]:
    """Up to three different values of a field, from inline records or examples."""
    rows: Any = records.data if records.data is not None else records.examples
    rows = rows if isinstance(rows, (list, tuple)) else [rows]
    found: dict[str, None] = {}
    for row in rows:
        for name in (part.id, part.key, part.short):
            if isinstance(row, Mapping) and name in row:
                value = row[name]
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                found[cut(text, 60)] = None
                break
        if len(found) == _SHOWN:
            break
    return list(found)


def text_table(rows: Sequence[Mapping[str, str]]) -> pa.Table:
    """Rows of texts as a table."""
    names = list(rows[0]) if rows else []
    return pa.table({name: pa.array([row[name] for row in rows], pa.string()) for name in names})


def cut(text: str | None, most: int = _CUT) -> str:
    """A text on one line, cut off where it is long."""
    line = " ".join((text or "").split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"
