"""The sections of a card that show the data: what is in it, its records, joins and splits."""

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

SPLIT = "cr:Split"
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
        _table(rows),
        {name: ColumnFormat() for name in rows[0] if any(row[name] for row in rows)},
        caption="One row a file or set of files, in the description's order.",
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
        tables = [_field_table(rows, "One row a field, of all record sets.", named=True)]
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
    return Table(_table(rows), columns, caption=caption)


def _field_rows(records: RecordSet) -> Iterator[dict[str, str]]:
    for part, depth in _walk(records.fields, 0):
        yield {
            "record_set": records.id,
            "field": _INDENT * depth + part.short,
            "type": type_text(part),
            "from": source_text(part.source) if part.source else _constant(part),
            "references": ", ".join(one.target for one in part.references),
            "description": cut(part.description),
            "examples": "; ".join(examples_of(records, part)),
        }


def _walk(fields: Sequence[Field], depth: int) -> Iterator[tuple[Field, int]]:
    for part in fields:
        yield part, depth
        yield from _walk(part.sub_fields, depth + 1)
        yield from _walk(part.annotations, depth + 1)


def _constant(part: Field) -> str:
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


def joins_section(metadata: Metadata) -> Section:
    """Which field points at which."""
    rows = []
    for records, part in metadata.fields():
        linked = [("references", one.target) for one in part.references]
        if part.source is not None and part.source.kind in ("field", "record_set"):
            linked.append(("takes its values from", part.source.target))
        if part.parent_field is not None and (other := part.parent_field.references):
            linked.append(("is grouped by", other.target))
        rows += [
            {"field": part.id, "how": how, "other": other, "record_set": records.id}
            for how, other in linked
        ]
    joined = len({(row["record_set"], row["other"].rsplit("/", 1)[0]) for row in rows})
    sentence = (
        f"{counted(joined, 'pair')} of record sets {'is' if joined == 1 else 'are'} joined; "
        "records without a partner keep nulls."
        if rows
        else "They do not: no field references another."
    )
    table = Table(
        _table(rows),
        {"field": ColumnFormat(), "how": ColumnFormat(), "other": ColumnFormat("of")},
        caption="One row a link between fields.",
    )
    return Section(
        id="joins",
        question="How do tables join?",
        sentence=sentence,
        tables=[table] if rows else [],
    )


def split_sets(metadata: Metadata) -> list[RecordSet]:
    """The record sets that define splits."""
    return [records for records in metadata.record_sets if SPLIT in records.data_types]


def split_names(metadata: Metadata) -> list[str]:
    """The splits' names, as inline records state them."""
    names: dict[str, None] = {}
    for records in split_sets(metadata):
        wanted = records.key or tuple(part.id for part in records.fields[:1])
        for row in records.data or ():
            for part in records.fields:
                if part.id in wanted:
                    for name in (part.id, part.key, part.short):
                        if name in row:
                            names[str(row[name])] = None
                            break
    return list(names)


def splits_section(metadata: Metadata) -> Section:
    """The splits, and the fields that say which one a record is in."""
    defined = {records.id for records in split_sets(metadata)}
    rows = [
        {
            "record_set": records.id,
            "field": part.id,
            "split_from": source_text(part.source) if part.source else _constant(part),
        }
        for records, part in metadata.fields()
        if records.id not in defined
        and (
            SPLIT in part.data_types
            or any(one.target.rsplit("/", 1)[0] in defined for one in part.references)
        )
    ]
    names = split_names(metadata)
    if not defined and not rows:
        sentence = "The description defines no splits."
    else:
        known = (
            f"{counted(len(names), 'split')}: {', '.join(names)}"
            if names
            else "The splits are named in the data"
        )
        sentence = (
            f"{known}; {counted(len(rows), 'field says', 'fields say')} which one a record is in."
        )
    table = Table(_table(rows), caption="One row a field that tells the split.") if rows else None
    return Section(
        id="splits", question="Which splits?", sentence=sentence, tables=[table] if table else []
    )


def _table(rows: Sequence[Mapping[str, str]]) -> pa.Table:
    names = list(rows[0]) if rows else []
    return pa.table({name: pa.array([row[name] for row in rows], pa.string()) for name in names})


def cut(text: str | None, most: int = _CUT) -> str:
    """A text on one line, cut off where it is long."""
    line = " ".join((text or "").split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"
