"""What a description says, whatever version and spelling it was written in.

Every node knows where it was written: `at` is the RFC 6901 pointer of its JSON object, and
`where("cr:sha256")` the pointer of one of its properties (of the object itself where the property is
absent, so that a finding about something missing points at what lacks it).

Terms are canonical: ``sc:`` for schema.org (http and https), ``cr:`` for Croissant (also where version 0.8
wrote it, http://mlcommons.org/schema/), ``rai:``, ``dct:``, ``wd:``, ``wdt:``, ``prov:``, ``odrl:``,
``duo:``, ``geocr:``; every other IRI in full. What is called `sc:contentUrl` here may have been written
contentUrl, sc:contentUrl, schema:contentUrl or https://schema.org/contentUrl.

Ids are as written, except in version 0.8, which has none: there a resource's or record set's id is its
name, and a field's is ``recordset/field`` (``recordset/field/subfield``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from holdfast.data.croissant.document.charsets import charset_of, is_charset

Version = Literal["0.8", "1.0", "1.1"]
Kind = Literal["file_object", "file_set", "record_set", "field", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Node:
    """One JSON object of the description.

    Attributes:
        at: its RFC 6901 pointer in the document.
        written: canonical term -> pointer of its value, for all that was written in the object.
        types: canonical ``@type``s.
    """

    at: str
    written: Mapping[str, str] = field(default_factory=dict, repr=False)
    types: tuple[str, ...] = ()

    def where(self, term: str) -> str:
        """The pointer of a property; of the node where it is absent."""
        return self.written.get(term, self.at)


@dataclass(frozen=True, kw_only=True)
class Transform(Node):
    """One step from what was extracted to the value; exactly one of the attributes is meant to be set."""

    regex: str | None = None
    separator: str | None = None
    replace: str | None = None
    json_path: str | None = None
    format: str | None = None
    sampling_rate: int | None = None
    read_lines: bool = False
    un_archive: bool = False


@dataclass(frozen=True, kw_only=True)
class Extract(Node):
    """What is taken out of a resource: a column, a property of its files, or what a JSONPath finds."""

    column: str | None = None
    file_property: str | None = None  # fullpath, filename, content, lines, lineNumbers, as written
    json_path: str | None = None


@dataclass(frozen=True, kw_only=True)
class Source(Node):
    """Where values come from, whose values they are (`Field.references`), or what a resource is in.

    A container is an archive, a repository, a set of files, or a manifest of lines.

    Attributes:
        target: the id of a FileObject, FileSet, RecordSet or Field; ``""`` where none was given.
        kind: what the target is in this document, whichever property named it; "unknown" if nothing has
            the id.
        property_name: what named it: "fileObject", "fileSet", "recordSet", "field", "distribution" (0.8),
            or "@id" for a bare reference.
    """

    target: str = ""
    kind: Kind = "unknown"
    property_name: str = ""
    extract: Extract | None = None
    transforms: tuple[Transform, ...] = ()
    format: str | None = None
    sampling_rate: int | None = None


@dataclass(frozen=True, kw_only=True)
class Resource(Node):
    """A file or a set of files.

    Attributes:
        encoding: what the property `charset` or `encoding` says; also of packing, such as gzip.
    """

    id: str
    name: str | None = None
    description: str | None = None
    encoding_formats: tuple[str, ...] = ()
    encoding: str | None = None
    contained_in: tuple[Source, ...] = ()

    @property
    def charset(self) -> str | None:
        """The declared encoding of its text."""
        stated = self.encoding if self.encoding and is_charset(self.encoding) else None
        return charset_of(self.encoding_formats) or stated

    @property
    def is_media(self) -> bool:
        """Whether it is declared as images, sound or video."""
        return any(
            text.startswith(("image/", "audio/", "video/")) for text in self.encoding_formats
        )


@dataclass(frozen=True, kw_only=True)
class FileObject(Resource):
    """One file: at a URL, at a path beside the description, or inside another file."""

    content_url: str | None = None
    content_size: str | None = None  # as written, such as "117743 B"
    sha256: str | None = None
    md5: str | None = None

    @property
    def is_repository(self) -> bool:
        """Whether this names a git repository: a folder of files, which has no bytes itself."""
        return "git+https" in self.encoding_formats or "git+http" in self.encoding_formats


@dataclass(frozen=True, kw_only=True)
class FileSet(Resource):
    """Files of one kind, chosen by patterns out of a container or of the description's folder."""

    includes: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ParentField(Node):
    """A join that groups: the records of `source`'s record set that reference this record's key."""

    source: Source | None = None
    references: Source | None = None


@dataclass(frozen=True, kw_only=True)
class Field(Node):
    """One field of the records.

    Attributes:
        id: unique in the document; also the record's key in versions from 1.0.
        key: how the field is called in records: its id, or its name in version 0.8.
        short: its name without the record set's id: a column's name in SQL.
        data_types: canonical types, such as ``sc:Integer``; those of the field it takes its values from
            where it states none itself (``inherited``).
        array_shape: sizes, -1 for unknown; None where it states none.
        value: a constant, as parsed JSON; `has_value` tells null from absent.
        listed: not from the description: it stands in a repeated field, and holds a value per element.
        zoned: not from the description: the text of its times was seen to have offsets from UTC.
    """

    id: str
    key: str
    short: str
    name: str | None = None
    description: str | None = None
    data_types: tuple[str, ...] = ()
    inherited: bool = False
    source: Source | None = None
    references: tuple[Source, ...] = ()
    value: Any = None
    has_value: bool = False
    is_array: bool = False
    repeated: bool = False
    array_shape: tuple[int, ...] | None = None
    sub_fields: tuple[Field, ...] = ()
    parent_field: ParentField | None = None
    equivalent_properties: tuple[str, ...] = ()
    annotations: tuple[Field, ...] = ()
    listed: bool = False
    zoned: bool = False

    @property
    def is_list(self) -> bool:
        """Whether a record holds many values of it."""
        return self.is_array or self.repeated

    def leaves(self) -> Iterator[Field]:
        """The fields that hold values: itself, or its sub-fields' leaves."""
        if not self.sub_fields:
            yield self
        for sub in self.sub_fields:
            yield from sub.leaves()


@dataclass(frozen=True, kw_only=True)
class RecordSet(Node):
    """Records of one kind.

    Attributes:
        key: field ids that together are unique, resolved (``{"@id": "hash"}`` in record set ``images``
            means ``images/hash``, if there is no field ``hash``); as written where nothing matches.
        data: inline records as written (a single object becomes a list of one); None where there are none.
    """

    id: str
    name: str | None = None
    description: str | None = None
    fields: tuple[Field, ...] = ()
    key: tuple[str, ...] = ()
    data: tuple[Mapping[str, Any], ...] | None = None
    examples: Any = None
    data_types: tuple[str, ...] = ()
    is_enumeration: bool = False
    annotations: tuple[Field, ...] = ()

    def field(self, name: str) -> Field:
        """The top-level field of an id, key or short name.

        Raises:
            KeyError: if the record set has no such field.
        """
        return {
            called: part
            for part in reversed(self.fields)
            for called in (part.short, part.key, part.id)
        }[name]


@dataclass(frozen=True, kw_only=True)
class Metadata(Node):
    """A whole description.

    Attributes:
        version: the newest version of the format that it says it conforms to; "0.8" where it says none and
            uses the vocabulary of 0.8; "1.0" otherwise.
        properties: every other property of the dataset, canonical term -> plain JSON values as a tuple
            (a single value is a tuple of one), so that ``rai:``, ``prov:`` and the like are kept.
    """

    version: Version
    conforms_to: tuple[str, ...] = ()
    name: str | None = None
    description: str | None = None
    url: str | None = None
    licenses: tuple[Any, ...] = ()
    creators: tuple[Any, ...] = ()
    publishers: tuple[Any, ...] = ()
    keywords: tuple[str, ...] = ()
    date_published: str | None = None
    date_modified: str | None = None
    dataset_version: str | None = None
    cite_as: str | None = None
    is_live: bool = False
    file_objects: tuple[FileObject, ...] = ()
    file_sets: tuple[FileSet, ...] = ()
    record_sets: tuple[RecordSet, ...] = ()
    properties: Mapping[str, tuple[Any, ...]] = field(default_factory=dict, repr=False)

    def resource(self, identity: str) -> FileObject | FileSet:
        """The file or set of files of an id.

        Raises:
            KeyError: if there is none.
        """
        return {part.id: part for part in reversed((*self.file_objects, *self.file_sets))}[identity]

    def record_set(self, name: str) -> RecordSet:
        """The record set of an id or, failing that, a name.

        Raises:
            KeyError: if there is none.
        """
        by_name = {part.name: part for part in reversed(self.record_sets)}
        return (by_name | {part.id: part for part in reversed(self.record_sets)})[name]

    def fields(self) -> Iterator[tuple[RecordSet, Field]]:
        """Every field of every record set, sub-fields and annotations too, with its record set."""

        def below(part: Field) -> Iterator[Field]:
            yield part
            for inner in (*part.sub_fields, *part.annotations):
                yield from below(inner)

        for records in self.record_sets:
            for top in (*records.fields, *records.annotations):
                for part in below(top):
                    yield records, part
