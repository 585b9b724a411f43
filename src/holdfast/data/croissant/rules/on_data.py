"""Rules about the data: what the files hold must be what the description says they hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from holdfast.data.croissant.document.model import FileObject, RecordSet
from holdfast.data.croissant.document.reading import Document
from holdfast.data.croissant.fetching.access import Access
from holdfast.data.croissant.files.hashing import WrongChecksum, parse_size
from holdfast.data.croissant.loading.dataset import Dataset
from holdfast.data.croissant.loading.lazy_table import LazyTable
from holdfast.data.croissant.planning.selecting import comparable, equal
from holdfast.data.croissant.rules.data_at_hand import AtHand, Resource
from holdfast.data.croissant.rules.table import (
    DATA_RULES,
    ERROR,
    NOTE,
    WARNING,
    Breach,
    Finding,
    rule,
)
from holdfast.data.croissant.rules.value_tests import Odd
from holdfast.data.croissant.rules.wording import did_you_mean, quoted
from holdfast.data.croissant.scanning.columns import Column, identifier
from holdfast.data.croissant.scanning.encodings import no_media, text_kind
from holdfast.data.croissant.scanning.opening import compression, unpacked
from holdfast.errors import InputError
from holdfast.numbers import counted

SHOWN = 3
"""Values that a message gives as examples."""
UNCHECKED = "CR905"
"""The code of what could not be checked."""
_UNREACHABLE = ("offline", "network")
"""Codes of errors that say nothing about a file, only that it could not be looked at."""


def check(
    document: Document,
    how: Literal["sample", "full"],
    static: Sequence[Finding],
    mapping: Mapping[str, str | Path] | None,
    access: Access,
    encoding: str | Mapping[str, str] | None = None,
) -> Iterator[tuple[str, Breach]]:
    """What the rules about data find, each with its rule's code.

    Args:
        document: the description.
        how: "sample" looks at the first records of what is on this machine; "full" fetches and reads all.
        static: what is wrong with the description itself.
        mapping: id of a FileObject -> a local file or folder to be taken instead of its URL.
        access: the cache, and how the network may be used.
        encoding: of text files, as `Dataset` takes it.

    Raises:
        InputError: a mapping that names nothing.
    """
    access = replace(access, offline=access.offline or how == "sample")
    with Dataset(document, mapping=mapping, encoding=encoding, **asdict(access)) as dataset:
        at_hand = AtHand(dataset, how == "full", static, tuple(mapping or ()))
        for one in DATA_RULES.values():
            for breach in one.check(at_hand):
                yield UNCHECKED if breach.unknown else one.code, breach


@rule("CR901", ERROR, "FileObject", "Put the file there, or correct what names it.")
def files_can_be_read(at_hand: AtHand) -> Iterator[Breach]:
    """Every file that is named is there and can be read."""
    for part, error in _unread(at_hand):
        if error.code in _UNREACHABLE:
            yield _not_checked(_named_at(part), error)
        elif not isinstance(error, WrongChecksum):
            yield Breach(_named_at(part), _told(error), _remedy(error))


@rule("CR902", ERROR, "Checksums", "Fetch the file again, or state its new checksum.")
def checksums_hold(at_hand: AtHand) -> Iterator[Breach]:
    """Every file has the checksum that is stated."""
    for part, error in _unread(at_hand):
        if isinstance(error, WrongChecksum):
            stated = next(
                (term for term in ("sc:sha256", "cr:md5", "sc:md5") if term in part.written), ""
            )
            yield Breach(part.where(stated), _told(error))


@rule("CR903", WARNING, "FileObject", "State the number of bytes that the file has.")
def sizes_hold(at_hand: AtHand) -> Iterator[Breach]:
    """Every file has the size that is stated."""
    for part in at_hand.dataset.metadata.file_objects:
        if (stated := parse_size(part.content_size)) is None:
            continue
        # A size in kB or MB is rounded, and may mean 1,000 or 1,024.
        near = 0 if stated.exact else 0.1 * stated.bytes
        for member in at_hand.members(part.id):
            found = member.size
            if found is None:
                found = at_hand.dataset.resources.paths([member])[0].stat().st_size
            if abs(found - stated.bytes) > near:
                message = f"the file has {found:,} bytes, not {quoted(part.content_size)}"
                yield Breach(part.where("sc:contentSize"), message)


@rule("CR904", ERROR, "FileSet", "Compare the patterns with the names of the files.")
def file_sets_find_files(at_hand: AtHand) -> Iterator[Breach]:
    """Every FileSet's patterns find a file."""
    for part in at_hand.dataset.metadata.file_sets:
        if at_hand.read.get(part.id) == []:
            patterns = ", ".join(map(quoted, part.includes))
            yield Breach(part.where("cr:includes"), f"no file matches {patterns}")


@rule(UNCHECKED, NOTE, "FileObject", "Check with --data full, or fetch it first.")
def all_is_checked(at_hand: AtHand) -> Iterator[Breach]:
    """Everything could be checked (a sample looks at files that are on this machine)."""
    for part in at_hand.dataset.metadata.file_objects:
        if at_hand.read.get(part.id, ()) is None and not part.contained_in:
            yield Breach(
                part.where("sc:contentUrl"), "this file was not checked: it must be fetched"
            )


@rule("CR906", WARNING, "FileObject", "Declare UTF-8, or leave the charset out.")
def texts_are_not_utf8(at_hand: AtHand) -> Iterator[Breach]:
    """A text that is valid UTF-8 is not declared to be in another encoding."""
    warned = set()
    for part, encoding, member, path in at_hand.foreign_texts():
        with suppress(InputError), unpacked(path, compression(path, member)) as file:
            if part.id not in warned and text_kind(file, member) == "utf-8":
                warned.add(part.id)
                message = f"{quoted(member.fullpath)} is declared {encoding} but is valid UTF-8"
                yield Breach(part.where("sc:encodingFormat"), message)


@rule("CR911", ERROR, "Extract", "Name a column that the table has.")
def columns_exist(at_hand: AtHand) -> Iterator[Breach]:
    """Every column that a field takes is in the table."""
    unread = set()
    for records in at_hand.record_sets:
        for field, origin in at_hand.read_fields(records):
            extract, table = origin.source.extract, origin.table.id
            if extract is None or extract.column is None:
                continue
            try:
                columns = at_hand.columns(table)
            except InputError as error:
                at_hand.broken.add(records.id)
                if table not in unread:
                    yield Breach(field.where("cr:source"), _told(error), _remedy(error))
                unread.add(table)
                continue
            if columns and not _has(columns, extract.column):
                at_hand.broken.add(records.id)
                lacks = f"the table {quoted(table)} has no column {quoted(extract.column)}"
                hint = did_you_mean(extract.column, columns)
                yield Breach(extract.where("cr:column"), f"{lacks}; it has {_some(columns)}", hint)


@rule("CR912", ERROR, "DataType", "Declare the type that every value has.")
def values_fit(at_hand: AtHand) -> Iterator[Breach]:
    """Every value fits its field's type."""
    for field, misfits, _ in at_hand.tested:
        if misfits:
            said = f"do not fit {' and '.join(field.data_types)}"
            yield Breach(field.where("cr:dataType"), _counted(misfits, said))


def _counted(odd: Odd, said: str) -> str:
    """How many values something is said of, with an example."""
    of = counted(odd.of, "value")
    return f"{odd.number:,} of {of} {said}, such as {quoted(odd.example)}"


@rule(
    "CR913",
    WARNING,
    "Transform",
    "Change the expression so that it finds something in every value.",
)
def patterns_match(at_hand: AtHand) -> Iterator[Breach]:
    """Every value matches its field's regular expression, or has something at its JSONPath."""
    for field, _, unmatched in at_hand.tested:
        steps = field.source.transforms if field.source else ()
        paths = [(step, "cr:jsonPath", step.json_path) for step in steps if step.json_path]
        regexes = [(step, "cr:regex", step.regex) for step in steps if step.regex is not None]
        does = "hold nothing at" if paths else "do not match"
        for step, key, written in [*paths, *regexes][:1]:
            if unmatched:
                message = _counted(unmatched, f"{does} {quoted(written)}")
                yield Breach(step.where(key), f"{message}; they become null")


@rule("CR914", ERROR, "RecordSet", "Correct the files, or what is said of them.")
def record_sets_load(at_hand: AtHand) -> Iterator[Breach]:
    """Every record set can be loaded."""
    for records in at_hand.record_sets:
        if records.id in at_hand.broken or not records.fields:
            continue
        try:
            rows = at_hand.number_of_records(records)
        except InputError as error:
            at_hand.broken.add(records.id)
            yield Breach(records.at, _told(error), _remedy(error))
        else:
            if not rows:
                hint = "Look whether these are the files that were meant."
                yield Breach(records.at, "there are no records", hint, WARNING)


@rule("CR915", WARNING, "Extract", "Correct the files, or what is said of them.")
def columns_are_clear(at_hand: AtHand) -> Iterator[Breach]:
    """Every column is there once, and in every file."""
    for records in at_hand.record_sets:
        if records.fields and records.id not in at_hand.broken:
            with suppress(InputError):  # reported by CR914
                for text in at_hand.dataset.records(records.id).remarks():
                    yield Breach(records.at, text)


@rule("CR921", ERROR, "RecordSet", "Choose fields that together are unique.")
def keys_are_unique(at_hand: AtHand) -> Iterator[Breach]:
    """No two records have the same key, and none lacks it."""
    for records in at_hand.record_sets:
        ids = {field.id for field in records.fields}
        if records.key and records.id not in at_hand.broken and ids.issuperset(records.key):
            at = records.where("cr:key")
            try:
                yield from _of_keys(at_hand, records, at)
            except InputError as error:
                yield _not_checked(at, error)


def _of_keys(at_hand: AtHand, records: RecordSet, at: str) -> Iterator[Breach]:
    """What is wrong with the keys of a record set."""
    keys = at_hand.dataset.records(records.id, columns=records.key, ordered=False)
    if at_hand.rows is not None:
        keys = keys.head(at_hand.rows)
    columns = list(map(identifier, keys.short_names()))
    names, lacks = ", ".join(columns), " OR ".join(f"{name} IS NULL" for name in columns)
    [[missing]] = [
        row.values() for row in _rows(keys.sql(f"SELECT count_if({lacks}) FROM records"))
    ]
    if missing:
        yield Breach(at, f"{counted(missing, 'record')} without a whole key")
    query = (
        f"SELECT {names}, count(*) AS n FROM records WHERE NOT ({lacks}) GROUP BY ALL HAVING n > 1"
    )
    repeated = _rows(keys.sql(f"{query} ORDER BY n DESC, {names} LIMIT {SHOWN}"))
    if repeated:
        shown = "; ".join(_key(row) + f" {row['n']} times" for row in repeated)
        yield Breach(at, f"the key is not unique: {shown}")


def _not_checked(at: str, error: InputError) -> Breach:
    """That a rule could not be checked, and why."""
    return Breach(at, f"not checked: {_told(error)}", _remedy(error), WARNING, unknown=True)


@rule("CR931", ERROR, "Joins", "Complete the table that is referenced, or drop the reference.")
def references_exist(at_hand: AtHand) -> Iterator[Breach]:
    """Every value of a field that references another one is among the other's values."""
    for records, field in at_hand.sound_fields():
        if not field.references or field.source is None:
            continue
        try:
            here, there = at_hand.values(records, field), at_hand.referenced_values(records, field)
            query = _orphans(here, there)
            [found] = _rows(at_hand.dataset.query(query, {"records": here, "known": there}))
        except InputError as error:
            yield _not_checked(field.where("cr:references"), error)
        else:
            if found["places"]:
                places = counted(found["places"], "element" if field.is_list else "record")
                values, target = counted(found["orphans"], "value"), field.references[0].target
                shown = ", ".join(map(quoted, found["shown"]))
                said = f"{places} with {values} that {quoted(target)} does not have"
                yield Breach(field.where("cr:references"), f"{said}, such as {shown}")


def _orphans(here: LazyTable, there: LazyTable) -> str:
    """The query for values of one table, also those in lists, that a join finds nowhere in another."""
    ours, theirs = (
        "unnest(v, recursive := true)" if pa.types.is_nested(table.schema.types[0]) else "v"
        for table in (here, there)
    )
    one, other = (
        Column(f"{name}.v", table.duckdb_types()[0].partition("[")[0])
        for name, table in (("here", here), ("there", there))
    )
    return f"""
        SELECT
            CAST(sum(n) AS BIGINT) AS places,
            count(*) AS orphans,
            list(v ORDER BY n DESC, v)[:{SHOWN}] AS shown
        FROM (
            SELECT v, count(*) AS n
            FROM (SELECT {ours} AS v FROM records) AS here
            WHERE {comparable(one.sql, one.type)} IS NOT NULL AND NOT EXISTS (
                FROM (SELECT {theirs} AS v FROM known) AS there WHERE {equal(one, other)}
            )
            GROUP BY v
        )"""


@rule("CR941", ERROR, "DataType", "Fetch the file again, or remove it.")
def media_are_not_text(at_hand: AtHand) -> Iterator[Breach]:
    """No image, sound or video is empty or a text, such as an error page in HTML."""
    for part in at_hand.dataset.metadata.file_sets:
        members = at_hand.members(part.id)[: at_hand.rows] if part.is_media else []
        wrong = []
        with suppress(InputError):  # damaged: reported by CR914
            for member, data in zip(members, at_hand.dataset.resources.read(members), strict=True):
                if found := no_media(data):
                    wrong.append(f"{quoted(member.fullpath)} is {found}")
        if wrong:
            message = (
                f"{len(wrong):,} of {counted(len(members), 'file')}: {', '.join(wrong[:SHOWN])}"
            )
            yield Breach(part.where("sc:encodingFormat"), message)


def _unread(at_hand: AtHand) -> Iterator[tuple[Resource, InputError]]:
    """Resources that cannot be read; of those that are read through another such one, only the first."""
    failed = {name for name, found in at_hand.read.items() if isinstance(found, InputError)}
    for part in at_hand.resources:
        error = at_hand.read[part.id]
        inside = any(container.target in failed for container in part.contained_in)
        if isinstance(error, InputError) and not inside:
            yield part, error


def _named_at(part: Resource) -> str:
    """Where a resource says which files it means."""
    return part.where("sc:contentUrl" if isinstance(part, FileObject) else "cr:includes")


def _told(error: InputError) -> str:
    """An error as one sentence."""
    said = ", in ".join(part for part in (error.problem, error.path, error.place) if part)
    found = f"; found: {error.found}" if error.found else ""
    return said + found + (f"; expected: {error.expected}" if error.expected else "")


def _remedy(error: InputError) -> str:
    """What to do about an error, as a sentence; ``""`` where it does not say."""
    remedy = error.remedy or ""
    return remedy and f"{remedy[0].upper()}{remedy[1:].rstrip('.')}."


def _has(columns: Mapping[str, str], name: str) -> bool:
    """Whether a table has a column (blanks around its name aside), or one that the name leads into."""
    return name.strip() in map(str.strip, columns) or any(
        name.startswith((f"{column}.", f"{column}/")) for column in columns
    )


def _some(names: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - 8} more" if len(listed) > 8 else ""
    return ", ".join(map(quoted, listed[:8])) + more


def _rows(table: LazyTable) -> list[dict[str, Any]]:
    return list(table.rows())


def _key(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {quoted(value)}" for name, value in row.items() if name != "n")
