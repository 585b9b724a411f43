"""From a folder of data to its description."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.data.croissant.describing.description import Description, Json, Note
from holdfast.data.croissant.describing.distribution import Distribution
from holdfast.data.croissant.describing.file_names import add_files, find_named
from holdfast.data.croissant.describing.media import (
    Media,
    add_media,
    find_media,
)
from holdfast.data.croissant.describing.naming import Ids, slug
from holdfast.data.croissant.describing.places import MEDIA, Kind, Place
from holdfast.data.croissant.describing.record_sets import RecordSets
from holdfast.data.croissant.describing.relations import find_key, find_references
from holdfast.data.croissant.describing.shapes import Table
from holdfast.data.croissant.describing.table_records import (
    add_fields,
    add_key,
    add_references,
)
from holdfast.data.croissant.describing.tables import Tables
from holdfast.data.croissant.describing.walking import Files
from holdfast.data.croissant.document.vocabulary import RECOMMENDED_CONTEXT
from holdfast.errors import InputError
from holdfast.numbers import counted
from holdfast.progress import track

# The standard's own, but for https: there are readers that know schema.org by that address alone.
_CONTEXT = {**RECOMMENDED_CONTEXT, "@vocab": "https://schema.org/", "sc": "https://schema.org/"}
_CONFORMS_TO = "http://mlcommons.org/croissant/1.1"
# What the standard demands and no data file says.
_NEEDED = {
    "license": "license",
    "url": "web page of the dataset",
    "creator": "creators",
    "datePublished": "publication date",
}
_LICENSES = {
    name.lower(): name
    for name in (
        *("CC-BY-4.0", "CC-BY-SA-4.0", "CC-BY-NC-4.0", "CC-BY-ND-4.0", "CC-BY-NC-SA-4.0"),
        *("CC-BY-NC-ND-4.0", "CC-BY-3.0", "CC-BY-SA-3.0", "CC0-1.0", "PDDL-1.0", "ODC-By-1.0"),
        *("ODbL-1.0", "CDLA-Permissive-1.0", "CDLA-Permissive-2.0", "CDLA-Sharing-1.0"),
        *("Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "MPL-2.0", "Unlicense"),
        *("GPL-2.0-only", "GPL-3.0-only", "GPL-3.0-or-later", "AGPL-3.0-only", "LGPL-3.0-only"),
    )
}


def describe(
    folder: str | Path,
    *,
    name: str | None = None,
    description: str | None = None,
    license: str | Sequence[str] | None = None,
    url: str | None = None,
    creators: Sequence[str | Mapping[str, Any]] = (),
    date_published: str | datetime.date | None = None,
    cite_as: str | None = None,
    keywords: Sequence[str] = (),
    version: str = "1.0.0",
    checksums: bool = True,
    sample_rows: int | None = None,
    encoding: str | None = None,
) -> Description:
    """Describe data in Croissant 1.1: files, columns and their types, keys, references, splits, labels.

    Fields that cannot be inferred from the data or from files beside them are left out, and noted. The same
    folder gives the same description.

    Args:
        folder: a folder of data, one data file, or an archive.
        name: name of the dataset (default: the folder's name).
        description: description of the dataset.
        license: an SPDX id, a URL, or several.
        url: the dataset's page.
        creators: people, by name; organisations as ``{"@type": "Organization", "name": ...}``.
        date_published: date in ISO 8601.
        cite_as: how to cite it.
        keywords: keywords for search.
        version: version of the data.
        checksums: hash every file that has a separate entry.
        sample_rows: read only this many rows of each table. Types may then not hold for the other rows, and
            keys and references are not detected.
        encoding: encoding of CSV, TSV and text files that are not UTF-8, such as ``"latin-1"``.

    Raises:
        InputError: if there is nothing to describe, or the encoding is unknown.
    """
    if sample_rows is not None and sample_rows < 1:
        raise InputError(
            "invalid sample_rows",
            code="out-of-range",
            found=f"sample_rows={sample_rows}",
            expected="1 or more",
        )
    target = Path(folder)
    with Files(target, encoding) as files:
        ids = Ids()
        distribution = Distribution(files, ids)
        record_sets, notes = _record_sets(files, distribution, ids, sample_rows)
        for place in files.loose:
            distribution.file(place)
        if checksums:
            distribution.hash_files()
    given = {
        "license": _licenses(license),
        "url": url,
        "creator": [_creator(each) for each in creators],
        "datePublished": str(date_published) if date_published else None,
        "keywords": list(keywords),
        "citeAs": cite_as,
    }
    named = target.resolve().name or "dataset"
    metadata: Json = {
        "@context": dict(_CONTEXT),
        "@type": "sc:Dataset",
        "name": name or named,
        "description": description or _summary(files, record_sets),
        "conformsTo": _CONFORMS_TO,
        **{key: value for key, value in given.items() if value},
        "version": version,
        "distribution": distribution.to_list(),
    }
    if record_sets:
        metadata["recordSet"] = record_sets
    about = [
        Note("", "unknown", f"no {key}: add the {what}")
        for key, what in _NEEDED.items()
        if not given[key]
    ]
    standing = "croissant.json" if target.is_dir() else f"{target.name}.croissant.json"
    return Description(
        files.folder,
        metadata,
        (*about, *files.notes, *notes, *distribution.notes),
        files.folder / standing,
    )


def _record_sets(
    files: Files, distribution: Distribution, ids: Ids, sample_rows: int | None
) -> tuple[list[Json], list[Note]]:
    """Every record set that the files give, and what is to be known about them."""
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET preserve_insertion_order = true")
        reader = Tables(connection, files, sample_rows)
        read = _read(reader, [place for place in files.places if place.kind is Kind.TABLE])
        media, notes = find_media(files, alone=not read)
        groups = [*(each.group for each in media), *(table.group for table in read)]
        records = RecordSets(distribution, ids, groups)
        named_media = [
            (_take(ids, each.group.name, f"{each.group.name}_files"), each) for each in media
        ]
        tables = {
            _take(ids, table.name, f"{table.group.name}_{table.name}"): table for table in read
        }
        keys = {name: key for name, table in tables.items() if (key := find_key(connection, table))}
        found = {}
        for name in tables:
            found[name], said = find_references(connection, name, tables, keys)
            notes += [Note(name, "unknown", text) for text in said]
        named = {}
        for name, table in tables.items():
            named[name], said = find_named(connection, table, named_media)
            notes += [Note(name, "unknown", text) for text in said]
    called = [one for columns in named.values() for one in columns.values()]
    for name, each in named_media:
        forms = {one.form: one.regex for one in called if one.record_set == name}
        add_media(records, name, each, forms)
    made = {
        name: add_fields(records, name, table, reader.encoding(table.group.places[0]))
        for name, table in tables.items()
    }
    for name, written in made.items():
        add_key(records, written, keys.get(name, ()))
        add_references(records, written, found[name])
        add_files(records, written, named[name])
    notes += [*reader.notes, *records.notes, *_undescribed(files, read, media)]
    return records.to_list(), notes


def _read(reader: Tables, places: Sequence[Place]) -> list[Table]:
    read = []
    with track("reading tables", len(places), "files") as bar:
        for table in reader.read(places):
            read.append(table)
            bar.advance(len(table.group.places))
    return read


def _take(ids: Ids, *wishes: str) -> str:
    return ids.take(*map(slug, wishes))


def _undescribed(files: Files, read: Sequence[Table], media: Sequence[Media]) -> list[Note]:
    """Notes about files that no record set takes anything from."""
    used = {place for table in read for place in table.group.places}
    used |= {place for each in media for place in each.group.places}
    notes = [
        Note(place.path, "skipped", "described as a file only")
        for place in files.loose
        if place not in used and place.kind is not Kind.ARCHIVE
    ]
    inside = Counter(place.archive for place in files.packed if place not in used)
    notes += [
        Note(archive, "skipped", f"{counted(count, 'file')} in it without a record set")
        for archive, count in sorted(inside.items())
    ]
    return notes


def _summary(files: Files, record_sets: Sequence[Json]) -> str:
    """What is there, where nobody says what it is."""
    kinds = Counter(place.kind for place in files.places)
    counted = [
        f"{kinds[kind]:,} {kind.value} file{'s' if kinds[kind] > 1 else ''}"
        for kind in (Kind.TABLE, *MEDIA, Kind.TEXT)
        if kinds[kind]
    ]
    named = [each["name"] for each in record_sets if each.get("dataType") != "cr:Split"]
    records = f" Records: {', '.join(named)}." if named else ""
    return f"{', '.join(counted) or 'Files'}.{records}"


def _licenses(given: str | Sequence[str] | None) -> Any:
    """Common SPDX ids, in any case, as their URLs; other text as it is."""
    if given is None or isinstance(given, str):
        name = _LICENSES.get((given or "").strip().lower())
        return f"https://spdx.org/licenses/{name}.html" if name else given
    return [_licenses(each) for each in given]


def _creator(given: str | Mapping[str, Any]) -> Json:
    return {"@type": "Person", "name": given} if isinstance(given, str) else dict(given)
