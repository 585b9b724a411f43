"""Where each value comes from: a table, what is taken out of it, and the steps from there to the value."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from holdfast.data.croissant.document.model import Field, Metadata, RecordSet, Source, Transform
from holdfast.errors import InputError

Step = tuple[Field, Source]
"""Transforms, format and type that one field's source adds: arguments of `value_sql`."""


@dataclass(frozen=True)
class TableKey:
    """What rows are taken from.

    Attributes:
        kind: a resource's rows, another record set's records, the record set's own inline data, or none:
            a constant.
        id: of the resource or the record set.
    """

    kind: Literal["resource", "records", "data", "constant"]
    id: str


CIRCULAR = "circular"
"""The code of errors about values that are taken from one another in a circle."""
CONSTANT = TableKey("constant", "")
_NOWHERE = Source(at="")


@dataclass(frozen=True)
class Origin:
    """Where one field's values come from.

    Attributes:
        table: whose rows hold them.
        source: what reads a resource; its extract names the column.
        field: the field of the other record set, or of the inline data.
        steps: from what stands there to the value, first to last.
        value: the constant.
    """

    table: TableKey
    source: Source = _NOWHERE
    field: Field | None = None
    steps: tuple[Step, ...] = ()
    value: Any = None

    @property
    def is_list(self) -> bool:
        """Whether what a resource holds becomes a list."""
        return bool(self.steps) and self.steps[0][0].is_list


class Fields:
    """Finds fields by id, and where their values come from."""

    def __init__(self, metadata: Metadata) -> None:
        self.metadata = metadata

    @cached_property
    def _owners(self) -> dict[str, tuple[RecordSet, Field]]:
        return {part.id: (owner, part) for owner, part in self.metadata.fields()}

    def find(self, identity: str) -> tuple[RecordSet, Field]:
        """The field of an id, with its record set.

        Raises:
            InputError: if there is none.
        """
        if identity in self._owners:
            return self._owners[identity]
        raise InputError(
            "a source names a field that the description does not have",
            code="unknown-name",
            found=repr(identity),
            expected=nearest(identity, self._owners) or "the @id of a field",
        )

    def record_set(self, identity: str) -> RecordSet:
        """The record set of an id or name.

        Raises:
            InputError: if there is none.
        """
        try:
            return self.metadata.record_set(identity)
        except KeyError as error:
            known = [part.id for part in self.metadata.record_sets]
            raise InputError(
                "the description has no such record set",
                code="unknown-name",
                found=repr(identity),
                expected=nearest(identity, known) or f"one of {', '.join(known) or '(none)'}",
            ) from error

    def origin(self, records: RecordSet, field: Field, seen: tuple[str, ...] = ()) -> Origin:
        """Where the values of one field of `records` come from.

        Raises:
            InputError: a field without a source, a source that names nothing, or a circle of sources.
        """
        if field.has_value:
            return Origin(CONSTANT, steps=((field, Source(at=field.at)),), value=field.value)
        source = field.source
        if source is None and records.data is not None:
            step = (field, Source(at=field.at))
            return Origin(TableKey("data", records.id), field=field, steps=(step,))
        if source is None and field.references:
            source = field.references[0]  # references alone serve as the source
        if source is None:
            raise InputError(
                f"the field {field.id!r} says nothing about where its values come from",
                code="missing-key",
                expected="a source, a value, or a record set with data",
                remedy="give the field a source, or choose other columns",
            )
        if source.kind in ("file_object", "file_set"):
            table = TableKey("resource", source.target)
            return Origin(table, source=source, steps=((field, source),))
        if source.kind == "field":
            owner, target = self.find(source.target)
        elif source.kind == "record_set":
            owner = self.record_set(source.target)
            target = _named_by_extract(owner, field, source)
        else:
            raise InputError(
                f"the source of {field.id!r} names nothing that the description has",
                code="unknown-name",
                found=repr(source.target),
                expected="the @id of a file, a set of files, a record set or a field",
            )
        step = (_listed_like(field, target, source), source)
        if owner.id == records.id and not _references_itself(records):
            if field.id in seen:
                raise InputError(
                    "fields take their values from one another in a circle",
                    code=CIRCULAR,
                    found=" -> ".join((*seen, field.id)),
                )
            below = self.origin(records, target, (*seen, field.id))
            return replace(below, steps=(*below.steps, step))
        return Origin(TableKey("records", owner.id), field=target, steps=(step,))

    def below(self, origin: Origin, seen: tuple[str, ...] = ()) -> Origin | None:
        """The same values straight from the resource that another record set is a plain view of.

        None where that record set joins tables, holds data, or is not a view of one resource.
        """
        if origin.table.kind != "records" or origin.field is None or origin.field.id in seen:
            return None
        owner = self.record_set(origin.table.id)
        tables = {self.origin(owner, leaf).table for leaf in leaves(owner) if _is_read(leaf)}
        if len(tables - {CONSTANT}) != 1 or any(part.parent_field for part in owner.fields):
            return None
        inner = self.origin(owner, origin.field)
        if inner.table.kind == "records":
            deeper = self.below(inner, (*seen, origin.field.id))
            if deeper is None:
                return None
            inner = deeper
        return replace(inner, steps=(*inner.steps, *origin.steps))


def leaves(records: RecordSet) -> Iterator[Field]:
    """The fields of a record set that hold values, each with the source it reads, groups left out.

    A sub-field without a source takes the part with its name from its parent's value.
    """
    for top in records.fields:
        yield from field_leaves(top)


def field_leaves(
    field: Field, under: Source | None = None, in_list: bool = False
) -> Iterator[Field]:
    """The leaves of one field; under a repeated parent, each is a list."""
    if field.parent_field is not None:
        return
    source = field.source or under
    if not field.sub_fields:
        if field.source is None and under is not None and not field.has_value:
            part = Transform(at=field.at, json_path=field.short.rsplit("/", 1)[-1])
            field = replace(field, source=replace(under, transforms=(*under.transforms, part)))
        yield _in_list(field) if in_list else field
        return
    for sub in field.sub_fields:
        yield from field_leaves(sub, source, in_list or field.is_list)


def _in_list(field: Field) -> Field:
    sizes = (-1, *(field.array_shape or (-1,))) if field.is_list else field.array_shape
    return replace(field, listed=True, repeated=True, array_shape=sizes)


def _listed_like(field: Field, target: Field, source: Source) -> Field:
    """The field, holding lists where it takes lists as they are and does not say so itself."""
    if field.is_list or not target.is_list or source.transforms:
        return field
    return replace(
        field,
        is_array=target.is_array,
        repeated=target.repeated,
        array_shape=target.array_shape,
    )


def nearest(name: str, known: Any) -> str:
    """``did you mean 'x'?`` for the known name that looks most like one, or nothing."""
    close = difflib.get_close_matches(name, [str(part) for part in known], n=1)
    return f"{close[0]!r}, perhaps" if close else ""


def _is_read(field: Field) -> bool:
    return field.has_value or field.source is not None or bool(field.references)


def _references_itself(records: RecordSet) -> bool:
    own = {part.id for part in records.fields}
    return any(ref.target in own for part in records.fields for ref in part.references)


def _named_by_extract(owner: RecordSet, field: Field, source: Source) -> Field:
    """The field of a record set that ``extract.column`` names, by id, key or short name."""
    name = source.extract.column if source.extract is not None else None
    try:
        return owner.field(name or field.short)
    except KeyError as error:
        raise InputError(
            f"the source of {field.id!r} does not say which field of {owner.id!r} it takes",
            code="unknown-name",
            found=repr(name) if name else f"a record set without a field {field.short!r}",
            expected=f"one of {', '.join(part.short for part in owner.fields)}",
            remedy='name the field itself: {"field": {"@id": "..."}}',
        ) from error
