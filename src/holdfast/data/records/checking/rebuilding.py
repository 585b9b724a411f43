"""A manifest made anew from the records that it named."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from holdfast.data.records.checking.inspecting import Inspected, scans_end
from holdfast.data.records.format.layout import Contents, LayoutError
from holdfast.data.records.format.manifest import Manifest
from holdfast.data.records.writing.settings import Settings
from holdfast.errors import InputError

_NUMBERED = re.compile(r"(?P<folder>[^/]+)/(?P<number>\d{6,})\.pcr")


class Unknowable(ValueError):
    """The records do not say what the manifest said.

    Args:
        reason: what is in the way.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def rebuild(records: Sequence[Inspected], rejected: int) -> Manifest:
    """The manifest of these records; the same that the writer made, if they are all.

    Args:
        records: every record file of the dataset's folder, inspected.
        rejected: how many images the writer set aside.

    Raises:
        Unknowable: if a record is damaged or missing, is a copy of another, or they are of more than one
            generation.
    """
    numbered = [_NUMBERED.fullmatch(record.path) for record in records]
    names = [match for match in numbered if match is not None]
    folders = sorted({match["folder"] for match in names})
    if len(names) < len(records) or not records:
        raise Unknowable("there are no records that a writer named")
    if len(folders) > 1:
        raise Unknowable(f"there is more than one generation: {', '.join(folders)}")
    ordered = sorted(
        zip((int(match["number"]) for match in names), records, strict=True),
        key=lambda pair: pair[0],
    )
    for place, (number, _) in enumerate(ordered):
        if number != place:
            raise Unknowable(f"record {place:06d} of {folders[0]} is missing")
    whole = [(record.footer, record.contents) for _, record in ordered]
    indexes = [footer for footer, _ in whole if footer is not None]
    contents = [one for _, one in whole if one is not None]
    if len(indexes) < len(records) or len(contents) < len(records):
        damaged = next(one.path for _, one in ordered if one.footer is None or one.contents is None)
        raise Unknowable(f"{damaged} is damaged, and only the manifest knew what it should be")
    first = contents[0]
    groups = scans_end(first)
    if groups is None:
        raise Unknowable(f"{ordered[0][1].path} does not say which scans its groups end with")
    for (_, record), one in zip(ordered, contents, strict=True):
        if one.settings != first.settings or not one.columns.schema.equals(first.columns.schema):
            raise Unknowable(f"{record.path} was written with other settings or columns")
    homes: dict[str, str] = {}
    for (_, record), one in zip(ordered, contents, strict=True):
        for id_ in one.ids:
            home = homes.setdefault(id_, record.path)
            if home != record.path:
                raise Unknowable(f"{record.path} and {home} both have the image {id_}")
    fields = list(first.columns.schema)
    manifest = Manifest(
        paths=tuple(record.path for _, record in ordered),
        records=tuple(indexes),
        scans_end=groups,
        schema=pa.schema(fields),
        notes=_notes(contents, rejected),
    )
    try:
        Manifest.from_bytes(manifest.to_bytes())
    except LayoutError as error:
        raise Unknowable(f"the records give no manifest: {error.reason}") from error
    return manifest


def _notes(contents: Sequence[Contents], rejected: int) -> dict[str, Any]:
    """What the writer notes about its records; nothing, if they are of another writer."""
    texts = contents[0].settings
    try:
        settings = Settings.from_texts(texts).to_dict()
    except InputError:
        return {}
    reasons: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    for one in contents:
        for reason in one.table["pcr.reason"].drop_null().to_pylist():
            reasons[reason.partition(":")[0]] += 1
        sums["images"] += len(one.table)
        sums["not_upright"] += int((one.orientations != 1).sum())
        sums["source_bytes"] += sum(one.table["pcr.source_size"].to_pylist())
        sums["stripped_bytes"] += sum(one.table["pcr.stripped_size"].to_pylist())
    return {
        "settings": settings,
        "transcoder": texts.get("transcoder"),
        "decoder": texts.get("decoder"),
        "images": sums["images"],
        "opaque": reasons.total(),
        "reasons": dict(reasons),
        "not_upright": sums["not_upright"],
        "rejected": rejected,
        "source_bytes": sums["source_bytes"],
        "stripped_bytes": sums["stripped_bytes"],
    }
