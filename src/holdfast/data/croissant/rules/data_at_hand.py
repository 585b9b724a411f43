"""The data behind a description, as rules look at it: what could be read, opened once for all of them."""

from __future__ import annotations

import codecs
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from holdfast.data.croissant.document.model import Field, FileObject, FileSet, RecordSet
from holdfast.data.croissant.fetching.access import is_remote
from holdfast.data.croissant.fetching.file_requests import FileRequest
from holdfast.data.croissant.files.members import Member
from holdfast.data.croissant.loading.dataset import Dataset
from holdfast.data.croissant.loading.records import LazyRecordSet, Selection
from holdfast.data.croissant.planning.origins import Origin, leaves
from holdfast.data.croissant.rules.table import Finding, Severity
from holdfast.data.croissant.rules.value_tests import Tested, test_values
from holdfast.data.croissant.scanning.scans import column_names
from holdfast.errors import InputError

SAMPLE = 1000
"""Records of each record set that a sample looks at."""
SAMPLE_BYTES = 64 << 20
"""Size of the largest text that a sample reads in whole."""

Resource = FileObject | FileSet


@dataclass
class AtHand:
    """A dataset's files and records, as far as they can be read.

    Attributes:
        dataset: the description, opened.
        full: look at every record, and fetch what is not here; else at the first `SAMPLE` of what is here.
        static: what is wrong with the description itself: record sets that it makes unreadable are passed
            over, for the reason has been told.
        mapped: the FileObjects that local files stand for.
        broken: record sets in which something was found that keeps them from being loaded.
    """

    dataset: Dataset
    full: bool
    static: Sequence[Finding] = ()
    mapped: Collection[str] = ()
    broken: set[str] = field(default_factory=set)
    _columns: dict[str, dict[str, str]] = field(default_factory=dict, repr=False)
    _origins: dict[str, dict[str, Origin]] = field(default_factory=dict, repr=False)
    _rows: dict[str, int] = field(default_factory=dict, repr=False)

    @property
    def rows(self) -> int | None:
        """How many records of each record set are looked at; None for all."""
        return None if self.full else SAMPLE

    @cached_property
    def resources(self) -> list[Resource]:
        """Files and sets of files, without repositories, which are folders."""
        metadata = self.dataset.metadata
        files = [part for part in metadata.file_objects if not part.is_repository]
        return [*files, *metadata.file_sets]

    @cached_property
    def read(self) -> dict[str, list[Member] | InputError | None]:
        """Resource -> its files, proved and here; why not; or None where a sample does not fetch them."""
        return {part.id: self._fetched(part) for part in self.resources}

    def _fetched(self, part: Resource) -> list[Member] | InputError | None:
        if not self.full and self._remote(part.id, ()):
            return None
        try:
            members = self.dataset.resources.members(part.id)
            self.dataset.resources.fetch(members)
        except InputError as error:
            return error
        return members

    def _remote(self, identity: str, seen: tuple[str, ...]) -> bool:
        """Whether a resource stands, inside whatever holds it, at a URL that the cache does not have."""
        try:
            part = self.dataset.metadata.resource(identity)
        except KeyError:
            return False
        if identity in self.mapped:
            return False
        if isinstance(part, FileObject) and not part.contained_in:
            return part.is_repository or (
                is_remote(part.content_url or "")
                and self.dataset.resources.fetcher.cached_path(FileRequest.of(part)) is None
            )
        return identity not in seen and any(
            self._remote(container.target, (*seen, identity)) for container in part.contained_in
        )

    def members(self, resource: str) -> list[Member]:
        """The files of a resource; none where they cannot be read."""
        found = self.read.get(resource)
        return found if isinstance(found, list) else []

    @cached_property
    def record_sets(self) -> list[RecordSet]:
        """Those that the description itself makes readable, and whose files are here."""
        broken = [one.pointer for one in self.static if one.severity is Severity.ERROR]
        return [
            records
            for records in self.dataset.metadata.record_sets
            if not any(at == records.at or at.startswith(f"{records.at}/") for at in broken)
            and all(self.members(identity) for identity in self.resources_of(records))
        ]

    def resources_of(self, records: RecordSet, seen: tuple[str, ...] = ()) -> set[str]:
        """The resources that a record set's values come from, through other record sets too."""
        resources: set[str] = set()
        for origin in (*self.origins(records).values(), *self.references(records).values()):
            if origin.table.kind == "resource":
                resources.add(origin.table.id)
            elif origin.table.kind == "records" and origin.table.id not in (*seen, records.id):
                owner = self.dataset.fields.record_set(origin.table.id)
                resources |= self.resources_of(owner, (*seen, records.id))
        return resources

    def origins(self, records: RecordSet) -> dict[str, Origin]:
        """Field id -> where its values come from, for every leaf that says so."""
        if records.id not in self._origins:
            found = self._origins[records.id] = {}
            for leaf in leaves(records):
                with suppress(InputError):
                    found[leaf.id] = self.dataset.fields.origin(records, leaf)
        return self._origins[records.id]

    def references(self, records: RecordSet) -> dict[str, Origin]:
        """Field id -> where the values stand that it references."""
        found = {}
        for leaf in leaves(records):
            if leaf.references and leaf.source is not None:
                with suppress(InputError):
                    found[leaf.id] = self.dataset.fields.origin(records, self._referenced(leaf))
        return found

    def foreign_texts(self) -> Iterator[tuple[Resource, str, Member, Path]]:
        """Files whose encoding is said not to be Unicode: resource, encoding, file, its local copy."""
        for part in self.resources:
            with suppress(InputError):  # told by the rules of files and of terms
                encoding = self.dataset.resources.encoding(part.id)
                if encoding is None or codecs.lookup(encoding).name.startswith("utf"):
                    continue
                members = self.members(part.id)
                paths = self.dataset.resources.paths(members)
                for member, path in zip(members, paths, strict=True):
                    if self.full or path.stat().st_size <= SAMPLE_BYTES:
                        yield part, encoding, member, path

    def columns(self, resource: str) -> dict[str, str]:
        """The columns of a table, with their types; none if it is not a table or its files are missing.

        Raises:
            InputError: files that do not have the declared format.
        """
        members = self.members(resource)
        if members and resource not in self._columns:
            formats = self.dataset.metadata.resource(resource).encoding_formats
            wanted = self._wanted.get(resource, ())
            with self.dataset.connect() as connection:
                self._columns[resource] = column_names(
                    connection, self.dataset.resources, resource, formats, members, wanted
                )
        return self._columns.get(resource, {})

    @cached_property
    def _wanted(self) -> dict[str, list[str]]:
        """Resource -> the columns that fields take out of it."""
        columns: dict[str, list[str]] = {}
        for records in self.dataset.metadata.record_sets:
            for _, origin in self.read_fields(records):
                extract = origin.source.extract
                if extract and extract.column is not None:
                    columns.setdefault(origin.table.id, []).append(extract.column)
        return columns

    def read_fields(self, records: RecordSet) -> list[tuple[Field, Origin]]:
        """The leaves of a record set that take their values straight from a resource."""
        origins = self.origins(records)
        found = [(leaf, origins[leaf.id]) for leaf in leaves(records) if leaf.id in origins]
        return [(leaf, origin) for leaf, origin in found if origin.table.kind == "resource"]

    def sound_fields(self) -> Iterator[tuple[RecordSet, Field]]:
        """The leaves of record sets in which nothing was found so far that keeps them from being loaded."""
        for records in self.record_sets:
            for leaf in leaves(records) if records.id not in self.broken else ():
                yield records, leaf

    @cached_property
    def tested(self) -> list[Tested]:
        """How the values of fields that come straight from a resource fit their types and patterns."""
        return [
            one
            for records in self.record_sets
            for resource in dict.fromkeys(o.table.id for _, o in self.read_fields(records))
            for one in self._test(records, resource)
        ]

    def _test(self, records: RecordSet, resource: str) -> list[Tested]:
        fields = [(leaf, o) for leaf, o in self.read_fields(records) if o.table.id == resource]
        try:
            members = self.members(resource)
            rows, tested = test_values(self.dataset, resource, members, fields, self.rows)
        except InputError:  # told by the rule of loading
            return []
        if any(one.misfits for one in tested):
            self.broken.add(records.id)
        if len(tested) == sum(1 for top in records.fields for _ in top.leaves()):
            self._rows[records.id] = rows
        return tested

    def number_of_records(self, records: RecordSet) -> int:
        """How many records there are, up to `rows`, once every value of them was read.

        Where all fields come from one resource and were tested, that is known; else they are loaded.

        Raises:
            InputError: what keeps them from being loaded.
        """
        if self.tested and records.id in self._rows:
            return self._rows[records.id]
        loaded = self.dataset.records(records.id, ordered=False)
        batches = (loaded if self.rows is None else loaded.head(self.rows)).batches()
        return sum(batch.num_rows for batch in batches)

    def values(self, records: RecordSet, field: Field) -> LazyRecordSet:
        """One field's values as records with the one column ``v``."""
        alone = replace(field, key="v", short="v", references=())
        return self._single(records, alone, self.rows)

    def referenced_values(self, records: RecordSet, field: Field) -> LazyRecordSet:
        """The values that a field references, as records with the one column ``v``; always all of them."""
        return self._single(records, self._referenced(field), None)

    def _single(self, records: RecordSet, field: Field, limit: int | None) -> LazyRecordSet:
        single = RecordSet(id=records.id, at=records.at, fields=(field,), data=records.data)
        return LazyRecordSet(self.dataset, single, Selection(ordered=False, limit=limit))

    def _referenced(self, field: Field) -> Field:
        """A field that has the values that a field references, as joins read them.

        Values of another field keep their own type. Of a field that holds lists, what they hold is
        referenced, and need not be in lists there.
        """
        source = field.references[0]
        types = field.data_types
        if source.kind == "field":
            _, target = self.dataset.fields.find(source.target)
            types = target.data_types if source.transforms else ()
        alone = replace(field, source=source, references=(), key="v", short="v", data_types=types)
        return replace(alone, is_array=False, repeated=False, array_shape=None)
