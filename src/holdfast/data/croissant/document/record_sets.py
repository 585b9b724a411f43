"""The record sets and fields of a description."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from holdfast.data.croissant.document.identities import Identities
from holdfast.data.croissant.document.model import Field, ParentField, RecordSet, Source
from holdfast.data.croissant.document.plain_values import flag, place, shape, text, text_of, types
from holdfast.data.croissant.document.sources import source
from holdfast.data.croissant.document.terms import Thing


class RecordSets:
    """Builds them.

    Args:
        identities: what ids mean in the description.
    """

    def __init__(self, identities: Identities) -> None:
        self._identities = identities
        self._fields: dict[str, Field] = {}  # by id, sub-fields too

    def build(self) -> tuple[RecordSet, ...]:
        """Every record set, in order."""
        record_sets = [self._record_set(thing) for thing in self._identities.record_sets]
        return tuple(
            replace(
                records,
                fields=tuple(self._inheriting(part) for part in records.fields),
                annotations=tuple(self._inheriting(part) for part in records.annotations),
            )
            for records in record_sets
        )

    def _record_set(self, thing: Thing) -> RecordSet:
        identity = self._identities.of(thing)
        fields = self._parts(thing, "cr:field", identity, identity)
        data_types = types(thing, "cr:dataType")
        examples = thing.entry("cr:examples")
        return RecordSet(
            **place(thing),
            id=identity,
            name=text(thing, "sc:name"),
            description=text(thing, "sc:description"),
            fields=fields,
            key=self._key(thing, identity, fields),
            data=_data(thing),
            examples=examples.values[0].value if examples else None,
            data_types=data_types,
            is_enumeration="sc:Enumeration" in data_types or flag(thing, "cr:isEnumeration"),
            annotations=self._parts(thing, "cr:annotation", identity, identity),
        )

    def _key(self, thing: Thing, identity: str, fields: tuple[Field, ...]) -> tuple[str, ...]:
        """The ids of the key's fields; as written where nothing matches."""
        keys = []
        for value in thing.values("cr:key"):
            name = text_of(value)
            if not name:
                continue
            local = next((part.id for part in fields if part.id == f"{identity}/{name}"), None)
            whole, kind = self._identities.find(name, "field", thing.context)
            if kind != "field" or (local and self._identities.legacy):
                whole = local or next(
                    (part.id for part in fields if name in (part.short, part.name)), name
                )
            keys.append(whole)
        return tuple(keys)

    def _parts(self, thing: Thing, term: str, record_set: str, parent: str) -> tuple[Field, ...]:
        """The fields, sub-fields or annotations of a node."""
        inner = self._identities.parts.get(f"{thing.at}|{term}", ())
        parts = [self._field(part, record_set, parent) for part in inner]
        times = Counter(part.short for part in parts)
        return tuple(
            replace(part, short=part.id) if times[part.short] > 1 else part for part in parts
        )

    def _field(self, thing: Thing, record_set: str, parent: str) -> Field:
        identity = self._identities.of(thing)
        name = text(thing, "sc:name")
        short = identity.removeprefix(f"{parent}/")
        if short == identity:
            short = identity.removeprefix(f"{record_set}/")
        legacy_key = name if self._identities.legacy else None
        value = thing.entry("cr:value")
        data_types = types(thing, "cr:dataType")
        field = Field(
            **place(thing),
            id=identity,
            key=legacy_key or identity,
            short=short,
            name=name,
            description=text(thing, "sc:description"),
            data_types=data_types,
            source=self._source(thing, "cr:source"),
            references=self._sources(thing, "cr:references"),
            value=value.values[0].value if value and value.values else None,
            has_value=value is not None,
            is_array=flag(thing, "cr:isArray"),
            repeated=flag(thing, "cr:repeated"),
            array_shape=shape(thing, "cr:arrayShape"),
            sub_fields=self._parts(thing, "cr:subField", record_set, identity),
            parent_field=self._parent_field(thing),
            equivalent_properties=types(thing, "cr:equivalentProperty"),
            annotations=self._parts(thing, "cr:annotation", record_set, identity),
        )
        self._fields.setdefault(identity, field)
        return field

    def _source(self, thing: Thing, term: str) -> Source | None:
        found = next(iter(self._sources(thing, term)), None)
        said = text(thing, "cr:format") if term == "cr:source" else None
        return replace(found, format=said) if found and said and found.format is None else found

    def _sources(self, thing: Thing, term: str) -> tuple[Source, ...]:
        found = (source(value, thing, self._identities) for value in thing.values(term))
        return tuple(one for one in found if one is not None)

    def _parent_field(self, thing: Thing) -> ParentField | None:
        for value in thing.values("cr:parentField"):
            inner = value.thing
            if inner is not None and (inner.entry("cr:source") or inner.entry("cr:references")):
                return ParentField(
                    **place(inner),
                    source=self._source(inner, "cr:source"),
                    references=next(iter(self._sources(inner, "cr:references")), None),
                )
            return ParentField(at=value.at, references=source(value, thing, self._identities))
        return None

    def _inheriting(self, field: Field) -> Field:
        """A field with the data types of those that it takes its values from, where it states none."""
        inherited = () if field.data_types or field.sub_fields else self._types_from(field)
        subs = tuple(self._inheriting(part) for part in field.sub_fields)
        annotations = tuple(self._inheriting(part) for part in field.annotations)
        if not inherited and not subs and not annotations:
            return field
        return replace(
            field,
            data_types=inherited or field.data_types,
            inherited=bool(inherited),
            sub_fields=subs,
            annotations=annotations,
        )

    def _types_from(self, field: Field) -> tuple[str, ...]:
        seen = {field.id}
        while True:
            origins = (*((field.source,) if field.source else ()), *field.references)
            origin = next((one.target for one in origins if one.kind == "field"), None)
            if origin is None or origin in seen or origin not in self._fields:
                return ()
            seen.add(origin)
            field = self._fields[origin]
            if field.data_types:
                return field.data_types


def _data(thing: Thing) -> tuple[Mapping[str, Any], ...] | None:
    """The inline records; a single object is one record, a text holds JSON."""
    entry = thing.entry("cr:data")
    if entry is None or entry.raw is None:
        return None
    value = entry.values[0].value
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    records = value if isinstance(value, list) else [value]
    return tuple(record for record in records if isinstance(record, dict))
