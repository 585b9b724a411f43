"""Match the parts of the older description with those of the newer one, also if their ids changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from holdfast.data.croissant.document.model import (
    Field,
    FileObject,
    FileSet,
    Metadata,
    RecordSet,
    Source,
    Transform,
)
from holdfast.data.croissant.files.hashing import checksum_of

Names = Mapping[str, str]
"""Ids of the older description -> ids of the newer, where they differ; empty for the newer one's parts."""


class _Identified(Protocol):
    @property
    def id(self) -> str: ...


Part = TypeVar("Part", bound=_Identified)


@dataclass(frozen=True)
class Pairing(Generic[Part]):
    """Parts of one kind: those in both descriptions, and those in one alone."""

    both: list[tuple[Part, Part]]
    removed: list[Part]
    added: list[Part]

    @property
    def names(self) -> dict[str, str]:
        """The ids that changed."""
        return {old.id: new.id for old, new in self.both if old.id != new.id}


@dataclass
class Matches:
    """The parts of two descriptions, paired."""

    files: Pairing[FileObject]
    file_sets: Pairing[FileSet]
    record_sets: Pairing[RecordSet]
    names: dict[str, str] = field(default_factory=dict)


def match(old: Metadata, new: Metadata) -> Matches:
    """Pair files by id, checksum and address; sets of files and record sets by id."""
    files = pair(old.file_objects, new.file_objects, [_checksum, _address])
    names = files.names
    file_sets = pair(old.file_sets, new.file_sets)
    record_sets = pair(old.record_sets, new.record_sets)
    for before, after in record_sets.both:
        names |= _field_names(before.fields, after.fields, names)
        names |= _field_names(before.annotations, after.annotations, names)
    return Matches(files, file_sets, record_sets, names)


def pair(
    old: Sequence[Part],
    new: Sequence[Part],
    signatures: Sequence[Callable[[Part, Names], Hashable]] = (),
    names: Names | None = None,
) -> Pairing[Part]:
    """Pair parts by id, and the rest by each signature in turn where it is unique on both sides.

    Args:
        old: the older parts.
        new: the newer parts.
        signatures: what identifies a part apart from its id; false values identify nothing.
        names: ids that are known to have changed.
    """
    names = names or {}
    right = {part.id: part for part in new}
    both: dict[str, tuple[Part, Part]] = {}  # by the newer id
    gone = list(old)
    for part in old:
        known = names.get(part.id, part.id)
        if known in right and known not in both:
            both[known] = part, right[known]
            gone.remove(part)
    for signature in signatures:
        lefts = _unique(gone, signature, names)
        rights = _unique((part for part in new if part.id not in both), signature, {})
        for value in lefts.keys() & rights.keys():
            both[rights[value].id] = lefts[value], rights[value]
            gone.remove(lefts[value])
    added = [part for part in new if part.id not in both]
    return Pairing([both[part.id] for part in new if part.id in both], gone, added)


def pair_fields(old: Sequence[Field], new: Sequence[Field], names: Names) -> Pairing[Field]:
    """Pair fields by id, and the rest by short name."""
    return pair(old, new, [lambda part, _: part.short], names)


def source_value(source: Source | None, names: Names) -> dict[str, Any] | None:
    """Where values come from, as plain JSON with the newer description's ids."""
    if source is None or not source.target:
        return None
    extract = source.extract
    value = {
        "from": names.get(source.target, source.target),
        "column": extract and extract.column,
        "fileProperty": extract and extract.file_property,
        "jsonPath": extract and extract.json_path,
        "transform": [transform_value(one) for one in source.transforms] or None,
        "format": source.format,
        "samplingRate": source.sampling_rate,
    }
    return {key: part for key, part in value.items() if part is not None}


def transform_value(step: Transform) -> dict[str, Any]:
    """One step as plain JSON."""
    value = {
        "regex": step.regex,
        "separator": step.separator,
        "replace": step.replace,
        "jsonPath": step.json_path,
        "format": step.format,
        "samplingRate": step.sampling_rate,
        "readLines": step.read_lines or None,
        "unArchive": step.un_archive or None,
    }
    return {key: part for key, part in value.items() if part is not None}


def containers(part: FileObject | FileSet, names: Names) -> list[str]:
    """The ids of what it is contained in, as the newer description has them, in order of the alphabet."""
    return sorted({names.get(one.target, one.target) for one in part.contained_in})


def _unique(
    parts: Iterable[Part], signature: Callable[[Part, Names], Hashable], names: Names
) -> dict[Hashable, Part]:
    signed = [(signature(part, names), part) for part in parts]
    counts = Counter(value for value, _ in signed)
    return {value: part for value, part in signed if value and counts[value] == 1}


def _checksum(part: FileObject, names: Names) -> Hashable:
    return checksum_of(part.sha256, part.md5)


def _address(part: FileObject, names: Names) -> Hashable:
    return part.content_url and (part.content_url, tuple(containers(part, names)))


def _field_names(old: Sequence[Field], new: Sequence[Field], names: Names) -> dict[str, str]:
    pairs = pair_fields(old, new, names)
    found = pairs.names
    for before, after in pairs.both:
        found |= _field_names(before.sub_fields, after.sub_fields, names)
        found |= _field_names(before.annotations, after.annotations, names)
    return found
