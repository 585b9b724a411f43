"""CR5xx: enumerations, splits, types of machine learning, responsible AI, provenance, use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.data.croissant.document.model import Field, RecordSet
from holdfast.data.croissant.document.slips import escaped
from holdfast.data.croissant.rules import forms, kinds
from holdfast.data.croissant.rules.clauses import (
    BOUNDING_BOX,
    CATEGORICAL,
    PROVENANCE,
    RAI,
    SEGMENTATION_MASK,
    SPLITS,
    USE_CONDITIONS,
)
from holdfast.data.croissant.rules.context import Context, about
from holdfast.data.croissant.rules.findings import NOTE, WARNING
from holdfast.data.croissant.rules.table import Breach, rule
from holdfast.data.croissant.rules.wording import did_you_mean, quoted

_SPLITS = ("cr:TrainingSplit", "cr:TrainSplit", "cr:ValidationSplit", "cr:TestSplit")
_TIMES = ("prov:startedAtTime", "prov:endedAtTime", "prov:atTime", "prov:generatedAtTime")
_LINKS = ("prov:wasDerivedFrom", "prov:wasGeneratedBy", "prov:wasAttributedTo")
_DUO = ("duo:", "DUO_", "http://purl.obolibrary.org/obo/DUO_")


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


@rule("CR504", WARNING, SPLITS, "Write cr:TrainingSplit, cr:ValidationSplit or cr:TestSplit.")
def unknown_split(context: Context) -> Iterator[Breach]:
    """What a split is for is one of the purposes that Croissant names."""
    for records in _enumerations(context, "cr:Split"):
        for at, row in context.values(records, "cr:data"):
            for key, value in row.items() if isinstance(row, dict) else ():
                named = isinstance(value, str) and value.startswith("cr:")
                if named and value not in _SPLITS:
                    message = f"{quoted(value)} is no split that Croissant knows"
                    yield Breach(f"{at}/{escaped(key)}", message, did_you_mean(value, _SPLITS))


def _enumerations(context: Context, data_type: str) -> Iterator[RecordSet]:
    for records in context.metadata.record_sets:
        is_enumeration = data_type == "sc:Enumeration" and records.is_enumeration
        if is_enumeration or data_type in records.data_types:
            yield records


def _is_name(field: Field) -> bool:
    names = {field.short.rpartition("/")[2], field.id.rpartition("/")[2]}
    return "name" in names or "sc:name" in (*field.data_types, *field.equivalent_properties)


@rule("CR511", WARNING, BOUNDING_BOX, 'Write "arrayShape": "4" (or "-1,4" for several boxes).')
def box_shape(context: Context) -> Iterator[Breach]:
    """A bounding box is four numbers."""
    for field in context.all_fields:
        sizes = field.array_shape or (-1,)
        if "cr:BoundingBox" in field.data_types and sizes[-1] not in (4, -1):
            shape = ",".join(map(str, sizes))
            message = f"a bounding box has the arrayShape {quoted(shape)}"
            yield Breach(field.where("cr:arrayShape"), message)


@rule(
    "CR512",
    WARNING,
    SEGMENTATION_MASK,
    "Add sc:GeoShape for polygons, or sc:ImageObject for masks as images.",
)
def mask_type(context: Context) -> Iterator[Breach]:
    """A segmentation mask says whether it is polygons or an image."""
    for field in context.all_fields:
        known = "sc:GeoShape" in field.data_types or kinds.kind(field.data_types)
        if "cr:SegmentationMask" in field.data_types and not known and not field.sub_fields:
            yield about(field, "is a mask of no known representation", "cr:dataType")


@rule("CR521", NOTE, RAI, 'Add "http://mlcommons.org/croissant/RAI/1.0" to conformsTo.')
def rai_not_declared(context: Context) -> Iterator[Breach]:
    """A description with responsible-AI properties says that it conforms to Croissant RAI."""
    used = [term for term in context.metadata.properties if term.startswith("rai:")]
    declared = any("/RAI/" in version for version in context.metadata.conforms_to)
    if used and not declared and not context.old:
        at = context.metadata.where(used[0])
        yield Breach(at, f"{used[0]} is used, and conformsTo does not name Croissant RAI", key=True)


@rule("CR522", WARNING, RAI, "Write it like 2020-01-01/2022-12-31.")
def rai_timeframe(context: Context) -> Iterator[Breach]:
    """The time frame of the collection is made of dates of ISO 8601."""
    term = "rai:dataCollectionTimeframe"
    for at, value in context.values(context.metadata, term):
        if isinstance(value, str) and (wrong := forms.interval(value)):
            yield Breach(at, f"{quoted(value)} {wrong}")


@rule("CR531", WARNING, PROVENANCE, "Write it like 2024-05-31T12:00:00Z.")
def provenance_time(context: Context) -> Iterator[Breach]:
    """Times in statements of provenance are of ISO 8601."""
    for term, at, value in context.statements("prov:"):
        if term in _TIMES and isinstance(value, str) and (wrong := forms.date(value)):
            yield Breach(at, f"{term} {quoted(value)} {wrong}")


@rule("CR532", WARNING, PROVENANCE, "Give an object with a type and a label, or the @id of one.")
def provenance_text(context: Context) -> Iterator[Breach]:
    """Who or what the data come from is named by an object or an address, not in prose."""
    for term, at, value in context.statements("prov:"):
        if (
            term in _LINKS
            and isinstance(value, str)
            and (" " in value.strip() or not value.strip())
        ):
            yield Breach(at, f"{term} {quoted(value)} is neither an object nor an address")


@rule(
    "CR541", WARNING, USE_CONDITIONS, "Give odrl:permission, odrl:prohibition or odrl:obligation."
)
def empty_offer(context: Context) -> Iterator[Breach]:
    """An offer says what is permitted, forbidden or owed."""
    policies = {"odrl:Offer", "odrl:Policy", "odrl:Agreement", "odrl:Set"}
    wanted = ("odrl:permission", "odrl:prohibition", "odrl:obligation")
    for thing in context.things.values():
        if policies & set(thing.types) and context.lacks(thing, *wanted):
            yield Breach(thing.at, "the offer states no permission, prohibition or obligation")


@rule("CR542", WARNING, USE_CONDITIONS, "Write DUO_ and seven digits, as the ontology does.")
def duo_code(context: Context) -> Iterator[Breach]:
    """A term of DUO has seven digits."""
    for at, value in _codes(context):
        tail = value.replace("duo:", "DUO_").rpartition("DUO_")[2]
        if not (len(tail) == 7 and tail.isdecimal()):
            yield Breach(at, f"{quoted(value)} is no term of DUO")


def _codes(context: Context) -> Iterator[tuple[str, str]]:
    """Every text below usageInfo that begins like a term of DUO."""
    ahead: list[tuple[str, Any]] = list(context.values(context.metadata, "sc:usageInfo"))
    while ahead:
        at, value = ahead.pop()
        if isinstance(value, dict):
            ahead += [(f"{at}/{escaped(key)}", item) for key, item in value.items()]
        elif isinstance(value, list):
            ahead += [(f"{at}/{place}", item) for place, item in enumerate(value)]
        elif isinstance(value, str) and value.startswith(_DUO):
            yield at, value
