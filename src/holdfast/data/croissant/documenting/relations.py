"""The sections of a card that relate records: joins and splits."""

from __future__ import annotations

from holdfast.data.croissant.document.model import Metadata, RecordSet
from holdfast.data.croissant.documenting.sections import constant_text, source_text, text_table
from holdfast.numbers import counted
from holdfast.report import ColumnFormat, Section, Table

SPLIT = "cr:Split"


def joins_section(metadata: Metadata) -> Section:
    """Which field points at which."""
    rows = []
    for records, part in metadata.fields():
        linked = [("references", one.target) for one in part.references]
        if part.source is not None and part.source.kind in ("field", "record_set"):
            linked.append(("takes its values from", part.source.target))
        if part.parent_field is not None and (other := part.parent_field.references):
            linked.append(("is grouped by", other.target))
        rows += [
            {"field": part.id, "how": how, "other": other, "record_set": records.id}
            for how, other in linked
        ]
    joined = len({(row["record_set"], row["other"].rsplit("/", 1)[0]) for row in rows})
    sentence = (
        f"{counted(joined, 'pair')} of record sets {'is' if joined == 1 else 'are'} joined; "
        "records without a partner keep nulls."
        if rows
        else "They do not: no field references another."
    )
    table = Table(
        text_table(rows),
        {"field": ColumnFormat(), "how": ColumnFormat(), "other": ColumnFormat("of")},
        caption="One row a link between fields.",
    )
    return Section(
        id="joins",
        question="How do tables join?",
        sentence=sentence,
        tables=[table] if rows else [],
    )


def split_sets(metadata: Metadata) -> list[RecordSet]:
    """The record sets that define splits."""
    return [records for records in metadata.record_sets if SPLIT in records.data_types]


def split_names(metadata: Metadata) -> list[str]:
    """The splits' names, as inline records state them."""
    names: dict[str, None] = {}
    for records in split_sets(metadata):
        wanted = records.key or tuple(part.id for part in records.fields[:1])
        for row in records.data or ():
            for part in records.fields:
                if part.id in wanted:
                    for name in (part.id, part.key, part.short):
                        if name in row:
                            names[str(row[name])] = None
                            break
    return list(names)


def splits_section(metadata: Metadata) -> Section:
    """The splits, and the fields that say which one a record is in."""
    defined = {records.id for records in split_sets(metadata)}
    rows = [
        {
            "record_set": records.id,
            "field": part.id,
            "split_from": source_text(part.source) if part.source else constant_text(part),
        }
        for records, part in metadata.fields()
        if records.id not in defined
        and (
            SPLIT in part.data_types
            or any(one.target.rsplit("/", 1)[0] in defined for one in part.references)
        )
    ]
    names = split_names(metadata)
    if not defined and not rows:
        sentence = "The description defines no splits."
    else:
        known = (
            f"{counted(len(names), 'split')}: {', '.join(names)}"
            if names
            else "The splits are named in the data"
        )
        sentence = (
            f"{known}; {counted(len(rows), 'field says', 'fields say')} which one a record is in."
        )
    table = (
        Table(text_table(rows), caption="One row a field that tells the split.") if rows else None
    )
    return Section(
        id="splits", question="Which splits?", sentence=sentence, tables=[table] if table else []
    )
