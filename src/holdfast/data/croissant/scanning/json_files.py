"""JSON and JSON Lines: records by the names of their members, or lists by JSONPaths.

Columns are read as JSON, or as text if they become a single value; the query converts them, so that a
number in the last record of a text column causes no error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile

from holdfast.data.croissant.scanning.casting import INTEGERS
from holdfast.data.croissant.scanning.columns import Column, Key, Scan, identifier
from holdfast.data.croissant.scanning.json_layouts import layout_of, options_of
from holdfast.data.croissant.scanning.json_paths import (
    Deep,
    Step,
    all_matches,
    duckdb_path,
    leading,
    steps_of,
    unique,
)
from holdfast.data.croissant.scanning.nested import element
from holdfast.data.croissant.scanning.opening import (
    Opening,
    file_columns,
    read_as,
)
from holdfast.errors import InputError
from holdfast.numbers import counted
from holdfast.tables import literal

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
    return _zipped(opening, layout, {path: steps_of(path) for path in paths})


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
    # Else DuckDB may take objects of many members, or with an unnamed one, for maps: one whole value each.
    relation = f"read_json({options}, records = true, columns = {{{listed}}})"
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


def _refuse_unfound(opening: Opening, layout: str, ways: Mapping[str, tuple[Step, ...]]) -> None:
    """Refuse paths that lead nowhere, so that no record is lost without a word.

    Every path must find something in one value at least, unless the lists it goes through are all empty;
    and what comes before the first ``[*]`` must be there: where a file is one value, in every file. (This
    is a pass over JSON that takes a twentieth of the time of the query.)

    Args:
        opening: the files.
        layout: how values stand in them.
        ways: path -> its steps.

    Raises:
        InputError: naming the path, and the first file in which it leads nowhere.
    """
    source = f"read_json_objects({options_of(opening, layout)})"
    found, lost, leads = [], [], []
    for way in ways.values():
        lead = leading(way)
        there = f"json_exists(json, {literal(duckdb_path(lead))})"
        leads.append(there if len(lead) < len(way) else "TRUE")
        found.append(_finds(way))
        # Elements of a list that is there, in none of which the rest of the path, or the next list, is.
        parts = [map(_finds, part) for part in _parts(way)]
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


def names_of(opening: Opening, kind: str) -> dict[str, str]:
    """The members of the records, with the types that DuckDB sees in them."""
    layout = layout_of(opening, kind)
    options = options_of(opening, layout)
    return {} if layout == "unstructured" else _names(opening, options)
