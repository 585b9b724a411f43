"""The section of a card on splits."""

from __future__ import annotations

from holdfast.data.croissant.document.model import Metadata, RecordSet
from holdfast.data.croissant.documenting.sections import constant_text, source_text, text_table
from holdfast.numbers import counted
from holdfast.report import Section, Table

SPLIT = "cr:Split"


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
        Table(text_table(rows), caption="One row per field that tells the split.") if rows else None
    )
    return Section(
        id="splits", question="Which splits?", sentence=sentence, tables=[table] if table else []
    )
