"""CR5xx: enumerations, splits, types of machine learning, responsible AI, provenance, use."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.data.croissant.document.model import Field, RecordSet
from holdfast.data.croissant.rules.clauses import (
    CATEGORICAL,
    SPLITS,
)
from holdfast.data.croissant.rules.context import Context
from holdfast.data.croissant.rules.findings import WARNING
from holdfast.data.croissant.rules.table import Breach, rule
from holdfast.data.croissant.rules.wording import quoted


@rule("CR501", WARNING, CATEGORICAL, "Give key, the field that tells the items apart.", must=True)
def enumeration_without_key(context: Context) -> Iterator[Breach]:
    """An enumeration has a key."""
    for records in _enumerations(context, "sc:Enumeration"):
        if context.lacks(records, "cr:key"):
            yield Breach(records.at, f"the enumeration {quoted(records.id)} has no key")


@rule(
    "CR502",
    WARNING,
    CATEGORICAL,
    "Give a field called name, or one with equivalentProperty sc:name.",
    must=True,
)
def enumeration_without_name(context: Context) -> Iterator[Breach]:
    """An enumeration has a field for the name of its items."""
    for records in _enumerations(context, "sc:Enumeration"):
        if records.fields and not any(_is_name(field) for field in records.fields):
            message = f"the enumeration {quoted(records.id)} has no field called name"
            yield Breach(records.at, message)


@rule("CR503", WARNING, SPLITS, "Give key, the field that names the split.", must=True)
def split_without_key(context: Context) -> Iterator[Breach]:
    """A record set of splits has a key."""
    for records in _enumerations(context, "cr:Split"):
        if context.lacks(records, "cr:key"):
            yield Breach(records.at, f"the splits {quoted(records.id)} have no key")


def _enumerations(context: Context, data_type: str) -> Iterator[RecordSet]:
    for records in context.metadata.record_sets:
        is_enumeration = data_type == "sc:Enumeration" and records.is_enumeration
        if is_enumeration or data_type in records.data_types:
            yield records


def _is_name(field: Field) -> bool:
    names = {field.short.rpartition("/")[2], field.id.rpartition("/")[2]}
    return "name" in names or "sc:name" in (*field.data_types, *field.equivalent_properties)
