"""JSON and JSON Lines: records by the names of their members, or lists by JSONPaths.

Columns are read as JSON, or as text if they become a single value; the query converts them, so that a
number in the last record of a text column causes no error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

from holdfast.data.croissant.files.members import Member
from holdfast.data.croissant.scanning.casting import INTEGERS
from holdfast.data.croissant.scanning.columns import Column, Key, Scan
from holdfast.data.croissant.scanning.json_layouts import layout_of, options_of
from holdfast.data.croissant.scanning.json_paths import (
    Deep,
    Step,
    all_matches,
    duckdb_path,
    find,
    leading,
    simple_start,
    simple_steps,
    unique,
)
from holdfast.data.croissant.scanning.nested import element
from holdfast.data.croissant.scanning.opening import (
    Opening,
    compression,
    file_columns,
    fresh,
    keep,
    read_as,
    unpacked,
)
from holdfast.data.croissant.scanning.sql_text import identifier, literal
from holdfast.errors import InputError
from holdfast.numbers import counted

_ORDER = "row_number() OVER ()"


def scan(opening: Opening, kind: str) -> Scan:
    """JSON ("json") or JSON Lines ("jsonl") files as a relation.

    Raises:
        InputError: no records with such members, JSONPaths whose lists differ in length.
    """
    layout = layout_of(opening, kind)
    paths, columns = opening.named("jsonPath"), opening.named("column")
    if columns and paths:
        raise InputError(
            f"resource {opening.resource!r} is read both by column and by JSONPath",
            code="conflict",
            found=f"the column {columns[0]!r} and the path {paths[0]!r}",
            expected="one of them in all fields of a record set that read the same files",
        )
    if columns:
        return _records(opening, layout, columns)
    steps = {path: simple_steps(path) for path in paths}
    known = {path: found for path, found in steps.items() if found is not None}
    if len(known) < len(steps):
        ways = dict.fromkeys(path for path in paths if simple_start(path))
        if ways:
            _refuse_unfound(opening, "unstructured" if layout == "array" else layout, ways)
        return _found_in_python(opening, layout, paths)
    return _zipped(opening, layout, known)


def _records(opening: Opening, layout: str, wanted: Sequence[str]) -> Scan:
    options = options_of(opening, layout)
    if layout == "unstructured":
        return _records_in_object(opening, options, wanted)
    held = _names(opening, options, wanted)
    lacking = [name for name in wanted if name not in held]
    if lacking and not _is_empty(opening, options):
        raise opening.missing(lacking[0], list(held), opening.members[0], opening.paths[0])
    if len({name.lower() for name in wanted}) < len(wanted):  # to read_json they are one
        objects = f"read_json_objects({options})"
        source = f"(SELECT {unique('json', [wanted[:1]])} AS json, file_index FROM {objects})"
        found: dict[Key, Column] = {("column", name): _member("json", name) for name in wanted}
        return _with_files(opening, source, found, "file_index")
    types = {name: _read_type(opening, name) for name in wanted}
    listed = ", ".join(f"{literal(name)}: {literal(kind)}" for name, kind in types.items())
    relation = f"read_json({options}, columns = {{{listed}}})"
    made: dict[Key, Column] = {
        ("column", name): Column(identifier(name), kind) for name, kind in types.items()
    }
    opened = _with_files(opening, relation, made, "file_index")
    opened.remarks = partial(_remarks, opening, layout, {name: (name,) for name in wanted})
    return opened


def _remarks(opening: Opening, layout: str, ways: Mapping[str, tuple[Step, ...]]) -> list[str]:
    """What no record of a file has, though records of other files do: null there (or misspelt)."""
    if len(opening.members) < 2:
        return []
    query = (
        f"SELECT file_index, {', '.join(f'bool_or({_finds(way)})' for way in ways.values())} "
        f"FROM read_json_objects({options_of(opening, layout)}) GROUP BY ALL ORDER BY ALL"
    )
    lacking: dict[str, list[int]] = {}
    with read_as("JSON", opening):
        for place, *found in opening.connection.execute(query).fetchall():
            for name, there in zip(ways, found, strict=True):
                if not there:
                    lacking.setdefault(name, []).append(place)
    return [
        f"{name!r} is in no record of {counted(len(places), 'file')}, such as "
        f"{opening.members[places[0]].fullpath}: null there"
        for name, places in lacking.items()
    ]


def _is_empty(opening: Opening, options: str) -> bool:
    """Whether there is no record, so that none lacks anything."""
    found = opening.connection.execute(f"SELECT 1 FROM read_json_objects({options}) LIMIT 1")
    return not found.fetchall()


def _read_type(opening: Opening, name: str) -> str:
    known = opening.types.get(("column", name), "JSON")
    # The type of an integer's text tells whether it was rounded, see `casting`.
    return "JSON" if known in ("JSON", *INTEGERS) or element(known) or "(" in known else "VARCHAR"


def _with_files(opening: Opening, relation: str, made: dict[Key, Column], index: str) -> Scan:
    made |= file_columns(opening.members, index)
    if opening.numbered:
        inner = f"SELECT *, {index} AS croissant_file, {_ORDER} AS croissant_row FROM {relation}"
        first = "min(croissant_row) OVER (PARTITION BY croissant_file)"
        relation = f"(SELECT *, croissant_row - {first} AS croissant_line FROM ({inner}))"
        made |= file_columns(opening.members, "croissant_file")
        made["fileProperty", "lineNumbers"] = Column("croissant_line", "BIGINT")
        return Scan(relation, made, opening.members, order="croissant_row")
    return Scan(relation, made, opening.members, order=_ORDER)


def _names(opening: Opening, options: str, wanted: Sequence[str] = ()) -> dict[str, str]:
    """The members of the first thousands of records with their types; wanted ones also of later records."""
    with read_as("JSON", opening):
        found = opening.connection.execute(
            f"DESCRIBE SELECT * FROM read_json({options}, sample_size = 20480, "
            "union_by_name = true, convert_strings_to_integers = false, auto_detect = true)"
        ).fetchall()
        # Records that are not objects come as one column `json`, which is a member of none.
        held = {row[0]: row[1] for row in found if row[0] != "json" or len(found) > 1}
        for name in (*wanted, *(["json"] if not held else [])):
            # Also where two names differ in nothing but case: one has another name in DuckDB.
            if (
                name not in held
                and opening.connection.execute(
                    f"SELECT 1 FROM read_json_objects({options}) "
                    f"WHERE json_exists(json, {literal(duckdb_path([name]))}) LIMIT 1"
                ).fetchall()
            ):
                held[name] = "JSON"
    return held


def _records_in_object(opening: Opening, options: str, wanted: Sequence[str]) -> Scan:
    """The records in the one array of an object that has them, as COCO's files do; or the object itself."""
    arrays = _arrays(opening, options)
    needed = set(wanted)
    fitting = [name for name, keys in arrays.items() if name and needed <= keys]
    objects = f"read_json_objects({options})"
    source = f"(SELECT {unique('json', [wanted[:1]])} AS json, file_index FROM {objects})"
    if needed <= arrays.get("", set()) and not fitting:
        relation, record, index = source, "json", "file_index"
    elif len(fitting) == 1:
        _refuse_unfound(opening, "unstructured", {fitting[0]: (fitting[0], None)})
        path = literal(duckdb_path([fitting[0], None]))
        relation = (
            f"(SELECT unnest(json_extract(json, {path})) AS record, "
            f"file_index AS croissant_file FROM {source})"
        )
        record, index = "record", "croissant_file"
    else:
        lists = {name: keys for name, keys in arrays.items() if name}
        closest = max(lists.items(), key=lambda part: len(needed & part[1]), default=("", set()))
        lacking = ", ".join(repr(name) for name in wanted if name not in closest[1])
        raise InputError(
            f"{opening.members[0].fullpath} has no single list of records with the columns that are wanted",
            code="conflict" if fitting else "missing-column",
            path=opening.members[0].fullpath,
            found=(
                f"the lists {', '.join(map(repr, fitting))} all have them"
                if fitting
                else f"the lists {', '.join(map(repr, lists)) or '(none)'}; {closest[0]!r} lacks {lacking}"
            ),
            expected=", ".join(map(repr, wanted)),
            remedy="name the list by JSONPaths, such as $.annotations[*].id",
        )
    if record == "record":
        relation = (
            f"(SELECT {unique('record', [wanted[:1]])} AS record, croissant_file FROM {relation})"
        )
    made: dict[Key, Column] = {("column", name): _member(record, name) for name in wanted}
    opened = _with_files(opening, relation, made, index)
    if record == "record":
        ways = {name: (fitting[0], None, name) for name in wanted}
        opened.remarks = partial(_remarks, opening, "unstructured", ways)
    return opened


def _member(record: str, name: str) -> Column:
    return Column(f"json_extract({record}, {literal(duckdb_path([name]))})", "JSON")


def _arrays(opening: Opening, options: str) -> dict[str, set[str]]:
    """Lists in the first file's object: name -> members of the first record; "" -> the object's own."""
    with read_as("JSON", opening):
        rows = opening.connection.execute(
            "WITH whole AS MATERIALIZED (SELECT json, json_keys(json) AS names "
            f"FROM read_json_objects({options}) LIMIT 1), "
            "parts AS (SELECT unnest(names) AS name, json FROM whole) "
            "SELECT name, json_keys(json_extract(json, '$.\"' || replace(name, '\"', '\\\"') || '\"[0]')) "
            "FROM parts"
        ).fetchall()
    return {"": {name for name, _ in rows}} | {name: set(keys) for name, keys in rows if keys}


def _zipped(opening: Opening, layout: str, steps: dict[str, tuple[Step, ...]]) -> Scan:
    """Matches of the paths as columns, one record per position in the lists of matches.

    Paths that are equal up to their last ``[*]`` are read record by record: a missing value is null, and
    the columns stay aligned. Paths without ``[*]`` and ``..`` make one record per value. The path of a
    list field may continue after ``[*]``: all its matches within a record form the list.
    """
    if layout == "array" and all(
        way and (way[0] is None or isinstance(way[0], Deep)) for way in steps.values()
    ):
        # Element by element: an array of any length is never in memory as a whole.
        steps = {path: way[1:] if way[0] is None else way for path, way in steps.items()}
    elif layout == "array":
        layout = "unstructured"
    _refuse_unfound(opening, layout, steps)
    single = [way for path, way in steps.items() if ("jsonPath", path) not in opening.lists]
    stems = {_stem(way) for way in single or steps.values()}
    stem = stems.pop() if len(stems) == 1 else None
    made: dict[Key, Column] = {}
    together = stem is not None and all(way[: len(stem)] == stem for way in steps.values())
    whole = [stem] if together and stem else steps.values()
    values = f"read_json_objects({options_of(opening, layout)})"
    source = f"(SELECT {unique('json', whole)} AS json, file_index FROM {values})"
    if together and stem is not None:
        record = f"unnest({all_matches('json', stem)})" if stem else "json"
        relation = f"(SELECT {record} AS record, file_index AS croissant_file FROM {source})"
        if stem:
            inner = unique("record", [way[len(stem) :] for way in steps.values()])
            relation = f"(SELECT {inner} AS record, croissant_file FROM {relation})"
        for path, way in steps.items():
            made["jsonPath", path] = Column(_in_record(way[len(stem) :]), "JSON")
        opened = _with_files(opening, relation, made, "croissant_file")
        if stem or layout != "unstructured":  # else each file is one record
            opened.remarks = partial(_remarks, opening, layout, steps)
        return opened
    lists = ", ".join(
        f"{all_matches('json', way)} AS l{place}" for place, way in enumerate(steps.values())
    )
    names = list(steps)
    unnested = ["unnest(l0) AS j0"]
    for place in range(1, len(names)):
        # A cast that fails, so that the query does where the lists do not match.
        wrong = (
            f"{literal(f'{names[0]} finds ')} || len(l0) || "
            f"{literal(f' values, {names[place]} finds ')} || len(l{place})"
        )
        unnested.append(
            f"unnest(CASE WHEN len(l0) = len(l{place}) THEN l{place} "
            f"ELSE CAST({wrong} AS JSON[]) END) AS j{place}"
        )
    relation = (
        f"(SELECT {', '.join(unnested)}, file_index AS croissant_file "
        f"FROM (SELECT {lists}, file_index FROM {source}))"
    )
    for place, path in enumerate(names):
        made["jsonPath", path] = Column(f"j{place}", "JSON")
    return _with_files(opening, relation, made, "croissant_file")


def _refuse_unfound(
    opening: Opening, layout: str, ways: Mapping[str, tuple[Step, ...] | None]
) -> None:
    """Refuse paths that lead nowhere, so that no record is lost without a word.

    Every path must find something in one value at least, unless the lists it goes through are all empty;
    and what comes before the first ``[*]`` must be there: where a file is one value, in every file. (This
    is a pass over JSON that takes a twentieth of the time of the query.)

    Args:
        opening: the files.
        layout: how values stand in them.
        ways: path -> its steps; None for a path that is not simple, whose beginning alone is looked at.

    Raises:
        InputError: naming the path, and the first file in which it leads nowhere.
    """
    source = f"read_json_objects({options_of(opening, layout)})"
    found, lost, leads = [], [], []
    for path, way in ways.items():
        lead = leading(way if way is not None else simple_start(path))
        there = f"json_exists(json, {literal(duckdb_path(lead))})"
        leads.append(there if way is None or len(lead) < len(way) else "TRUE")
        found.append(there if way is None else _finds(way))
        # Elements of a list that is there, in none of which the rest of the path, or the next list, is.
        parts = [("TRUE", there)] if way is None else [map(_finds, part) for part in _parts(way)]
        lost.append(" OR ".join(f"(bool_or({a}) AND NOT bool_or({b}))" for a, b in parts))
    with read_as("JSON", opening):
        if layout != "unstructured":  # the first record that has everything will do
            every = " AND ".join(found)
            query = f"SELECT 1 FROM {source} WHERE {every} LIMIT 1"
            if opening.connection.execute(query).fetchall():
                return
        absent = "min(file_index) FILTER (NOT {0})"
        if layout != "unstructured":
            absent = "CASE WHEN bool_or({0}) THEN NULL ELSE 0 END"
        tests = [
            f"{nowhere}, {absent.format(lead)}" for nowhere, lead in zip(lost, leads, strict=True)
        ]
        # HAVING: no row if there are no values.
        query = f"SELECT {', '.join(tests)} FROM {source} HAVING count(*) > 0"
        row = next(iter(opening.connection.execute(query).fetchall()), ())
    for path, (nowhere, lacking) in zip(ways, zip(*[iter(row)] * 2, strict=True), strict=False):
        if lacking is not None or nowhere:
            raise InputError(
                "a JSONPath leads nowhere",
                code="missing-key",
                path=opening.members[lacking or 0].fullpath,
                place=f"JSONPath {path!r}",
                found="no such member" if lacking is not None else "no value in any record",
                expected="something at the path; a list there may be empty",
                remedy="correct the path, or what the files hold",
            )


def _parts(way: tuple[Step, ...]) -> Iterator[tuple[tuple[Step, ...], tuple[Step, ...]]]:
    """Steps to the elements of each list, and from there to the next list, or to the end."""
    above: tuple[Step, ...] = ()
    for end in (*(n for n, step in enumerate(way) if step is None), len(way)):
        if len(above) < end:  # lists in lists
            yield above, way[:end]
        above = way[: end + 1]


def _finds(way: tuple[Step, ...]) -> str:
    """Whether steps find something in the value `json`."""
    if not way:
        return "TRUE"
    many = any(step is None or isinstance(step, Deep) for step in way)
    path = literal(duckdb_path(way))
    if not many:
        return f"json_exists(json, {path})"
    # DuckDB's own [*] is faster, but knows no members of objects.
    quick = f"len(json_extract(json, {path})) > 0"
    return f"CASE WHEN {quick} THEN TRUE ELSE len({all_matches('json', way)}) > 0 END"


def _in_record(steps: tuple[Step, ...]) -> str:
    """What steps find in a record: one value, or the list of all where there may be several."""
    if any(step is None or isinstance(step, Deep) for step in steps):
        return f"to_json({all_matches('record', steps)})"
    return f"json_extract(record, {literal(duckdb_path(steps))})" if steps else "record"


def _stem(steps: tuple[Step, ...]) -> tuple[Step, ...] | None:
    """The steps up to the last ``[*]``, after which there are only members and places; None with ``..``."""
    if any(isinstance(step, Deep) for step in steps):
        return None
    tail = list(takewhile(lambda step: step is not None, reversed(steps)))
    return steps[: len(steps) - len(tail)]


def _found_in_python(opening: Opening, layout: str, paths: Sequence[str]) -> Scan:
    """What any JSONPaths find, a file at a time (a line of JSON Lines), in a table that can spill."""
    import pyarrow as pa

    name = fresh("found")
    schema = pa.schema(
        [("member", pa.int64())] + [(f"j{place}", pa.string()) for place in range(len(paths))]
    )

    def batches() -> Iterator[pa.RecordBatch]:
        for place, (path, member) in enumerate(zip(opening.paths, opening.members, strict=True)):
            for number, value in enumerate(_values(path, member, layout), 1):
                found = [find(way, value) for way in paths]
                _same_lengths(paths, found, member, number if layout != "unstructured" else None)
                columns: list[Any] = [
                    pa.array([json.dumps(part) for part in column], pa.string()) for column in found
                ]
                places = pa.repeat(pa.scalar(place, pa.int64()), len(columns[0]))
                yield pa.record_batch([places, *columns], schema=schema)

    keep(opening, name, pa.RecordBatchReader.from_batches(schema, batches()))
    made: dict[Key, Column] = {
        ("jsonPath", path): Column(f"CAST(j{place} AS JSON)", "JSON")
        for place, path in enumerate(paths)
    }
    opened = _with_files(opening, name, made, "member")
    opened.closers.append(partial(opening.connection.execute, f"DROP TABLE IF EXISTS {name}"))
    return opened


def _values(path: Path, member: Member, layout: str) -> Iterator[Any]:
    with unpacked(path, compression(path, member)) as file:
        texts_of = file if layout == "newline_delimited" else [file.read()]
        for number, text in enumerate(texts_of, 1):
            if not text.strip():
                continue
            try:
                yield json.loads(text, object_pairs_hook=_each_once)
            except ValueError as error:
                raise InputError(
                    f"{member.fullpath} is not valid JSON",
                    code="duplicate" if isinstance(error, _Twice) else "damaged",
                    path=member.fullpath,
                    place=f"line {number}" if layout == "newline_delimited" else None,
                    found=str(error),
                ) from error


class _Twice(ValueError):
    """An object has two members of one name."""


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _Twice(f"a key twice: {twice!r}")
    return made


def _same_lengths(
    paths: Sequence[str], found: Sequence[Sequence[Any]], member: Member, line: int | None
) -> None:
    for path, values in zip(paths, found, strict=True):
        if len(values) != len(found[0]):
            raise InputError(
                f"the JSONPaths of a record set find different numbers of values in {member.fullpath}",
                code="conflict",
                path=member.fullpath,
                place=None if line is None else f"value {line}",
                found=f"{paths[0]!r} finds {len(found[0])}, {path!r} finds {len(values)}",
                expected="as many of each: they are the fields of the same records",
                remedy="share all up to the last [*] among the paths, or describe two record sets",
            )


def names_of(opening: Opening, kind: str) -> dict[str, str]:
    """The members of the records, with the types that DuckDB sees in them."""
    layout = layout_of(opening, kind)
    options = options_of(opening, layout)
    return {} if layout == "unstructured" else _names(opening, options)
