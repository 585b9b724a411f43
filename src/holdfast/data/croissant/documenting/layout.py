"""Where the resources, record sets and fields of a description stand in its picture.

Two columns: resources on the left, each under what contains it; record sets with their fields on the
right. A line runs from a resource to what takes its values from it. `y` counts rows from 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from holdfast.data.croissant.document.model import Field, FileObject, FileSet, Metadata, RecordSet
from holdfast.numbers import counted

MOST_ROWS = 110
_GROUPED = 4  # files that play the same part are drawn one by one up to here

Line = Literal["values", "reference"]


@dataclass
class Box:
    """One row of the picture."""

    id: str
    label: str
    kind: Literal["file", "set", "records", "field", "more"]
    y: float
    depth: int = 0
    note: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Link:
    """A line between two rows; both on the right where records are joined."""

    start: Box
    end: Box
    what: Line


@dataclass
class Layout:
    """The picture: rows of both columns, and lines."""

    left: list[Box] = field(default_factory=list)
    right: list[Box] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    hidden: int = 0
    """Fields that no row shows."""

    @property
    def rows(self) -> int:
        """How many rows the picture is high."""
        return int(max((box.y for box in (*self.left, *self.right)), default=0)) + 1


def lay_out(metadata: Metadata) -> Layout:
    """Place everything; beyond `MOST_ROWS` rows, the last fields of large record sets are left out."""
    made = Layout()
    boxes = _place_records(metadata, made)
    origins = _origins(metadata, boxes)
    _place_resources(metadata, made, origins, boxes)
    for part, targets in origins.items():
        start = boxes.get(part)
        made.links += [Link(start, box, "values") for box in targets if start is not None]
    made.links += _joins(metadata, boxes)
    return made


def _place_records(metadata: Metadata, made: Layout) -> dict[str, Box]:
    wanted = [list(_rows(records.fields, 0)) for records in metadata.record_sets]
    room = max(MOST_ROWS - 2 * len(wanted), len(wanted))
    most = max((len(rows) for rows in wanted), default=0)
    while most > 3 and sum(min(len(rows), most) for rows in wanted) > room:
        most -= 1
    boxes: dict[str, Box] = {}
    y = 0.0
    for records, rows in zip(metadata.record_sets, wanted, strict=True):
        head = Box(records.id, records.name or records.id, "records", y, note=_record_note(records))
        head.hint = records.description or ""
        made.right.append(head)
        boxes[records.id] = head
        for index, (part, depth) in enumerate(rows):
            y += 1
            if index >= most - 1 and len(rows) > most:
                rest = len(rows) - index
                made.hidden += rest
                more = Box(f"{records.id}//more", f"and {rest} more", "more", y)
                made.right.append(more)
                boxes |= {one.id: more for one, _ in rows[index:]}
                break
            box = Box(
                part.id, part.short, "field", y, depth, type_text(part), part.description or ""
            )
            made.right.append(box)
            boxes[part.id] = box
        y += 1.6
    return boxes


def _rows(fields: Sequence[Field], depth: int) -> Iterator[tuple[Field, int]]:
    for part in fields:
        yield part, depth
        yield from _rows(part.sub_fields, depth + 1)


def _record_note(records: RecordSet) -> str:
    if "cr:Split" in records.data_types:
        return "splits"
    if records.is_enumeration or "sc:Enumeration" in records.data_types:
        return "enumeration"
    return counted(len(records.data), "row") if records.data is not None else ""


def type_text(part: Field) -> str:
    """A field's type as a reader knows it: ``Integer``, ``Text list``, ``Label``."""
    names = [name.rsplit("/", 1)[-1].split(":")[-1] for name in part.data_types]
    text = ", ".join(names) or ("group" if part.sub_fields else "")
    if part.array_shape and any(size >= 0 for size in part.array_shape):
        shape = " × ".join("?" if size < 0 else f"{size:,}" for size in part.array_shape)
        return f"{text} [{shape}]"
    return f"{text} list".strip() if part.is_list else text


def _origins(metadata: Metadata, boxes: dict[str, Box]) -> dict[str, list[Box]]:
    """Resource -> the rows that it gives values to; a record set from one resource is one row."""
    found: dict[str, list[Box]] = defaultdict(list)
    resources = {part.id for part in metadata.file_objects}
    resources |= {part.id for part in metadata.file_sets}
    for records in metadata.record_sets:
        leaves = [leaf for part in records.fields for leaf in part.leaves()]
        given = {leaf.id: leaf.source.target for leaf in leaves if leaf.source is not None}
        if len(set(given.values())) == 1 and (only := next(iter(given.values()))) in resources:
            found[only].append(boxes[records.id])
            continue
        for leaf, target in given.items():
            if target in resources and boxes[leaf] not in found[target]:
                found[target].append(boxes[leaf])
    return dict(found)


def _joins(metadata: Metadata, boxes: dict[str, Box]) -> Iterator[Link]:
    seen = set()
    for _, part in metadata.fields():
        sources = [(one, "reference") for one in part.references]
        if part.source is not None and part.source.kind in ("field", "record_set"):
            sources.append((part.source, "values"))
        for source, what in sources:
            start, end = boxes.get(source.target), boxes.get(part.id)
            if start is None or end is None or start is end:
                continue
            link: Line = "reference" if what == "reference" else "values"
            if (start.id, end.id, link) not in seen:
                seen.add((start.id, end.id, link))
                yield Link(start, end, link)


def _place_resources(
    metadata: Metadata, made: Layout, origins: dict[str, list[Box]], boxes: dict[str, Box]
) -> None:
    parts: dict[str, FileObject | FileSet] = {part.id: part for part in metadata.file_objects}
    parts |= {part.id: part for part in metadata.file_sets}
    below: dict[str, list[str]] = defaultdict(list)
    roots = []
    for identity, part in parts.items():
        inside = [one.target for one in part.contained_in if one.target in parts]
        if inside and not _circles(identity, parts):
            below[inside[0]].append(identity)
        else:
            roots.append(identity)

    def first(identity: str) -> float:
        """The highest row that it, or what it contains, gives values to."""
        own = [box.y for box in origins.get(identity, [])]
        return min([*own, *map(first, below[identity])], default=float("inf"))

    y = 0.0
    for group in _alike(sorted(roots, key=first), origins, parts):
        start = first(group[0])
        y = max(y, start if start != float("inf") else y)
        y = _place(group, 0, y, parts, below, origins, made, boxes) + 0.4
    if len(made.left) > MOST_ROWS:
        rest = made.left[MOST_ROWS - 1 :]
        more = Box(f"{rest[0].id}//more", f"and {len(rest):,} more", "file", rest[0].y)
        made.left[MOST_ROWS - 1 :] = [more]
        boxes |= {
            identity: more for identity, box in boxes.items() if any(box is one for one in rest)
        }


def _circles(identity: str, parts: dict[str, FileObject | FileSet]) -> bool:
    """Whether it is contained in itself, by its first containers."""
    seen = {identity}
    inside = parts[identity].contained_in
    while inside and inside[0].target in parts:
        if inside[0].target in seen:
            return True
        seen.add(inside[0].target)
        inside = parts[inside[0].target].contained_in
    return False


def _alike(
    wanted: Sequence[str],
    origins: dict[str, list[Box]],
    parts: dict[str, FileObject | FileSet],
) -> list[list[str]]:
    """The resources, those that play the same part together if they are many."""
    holds: dict[str, list[str]] = defaultdict(list)
    for identity, part in parts.items():
        for container in part.contained_in:
            holds[container.target].append(identity)
    same: dict[object, list[str]] = defaultdict(list)
    for one in wanted:
        if one not in origins:
            same[type(parts[one]), parts[one].encoding_formats, tuple(holds[one])].append(one)
    member = {one: group for group in same.values() if len(group) > _GROUPED for one in group}
    return [member.get(one, [one]) for one in wanted if member.get(one, [one])[0] == one]


def _rest(first: str, last: str) -> str:
    """What the last name has that the first does not begin with."""
    same = next(
        (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first)
    )
    return last[same:]


def _place(
    group: list[str],
    depth: int,
    y: float,
    parts: dict[str, FileObject | FileSet],
    below: dict[str, list[str]],
    origins: dict[str, list[Box]],
    made: Layout,
    boxes: dict[str, Box],
) -> float:
    part = parts[group[0]]
    what = "file" if isinstance(part, FileObject) else "set of files"
    label = part.name or part.id
    if len(group) > 1:
        last = parts[group[-1]].name or group[-1]
        label = f"{label} … {_rest(label, last)}"
        note = counted(len(group), what, "sets of files" if what != "file" else None)
    else:
        others = len(part.contained_in) - 1
        note = f"of {others + 1} containers" if others > 0 else ""
        if isinstance(part, FileSet):
            note = ", ".join((*part.includes[:2], *([note] if note else [])))
    kind: Literal["file", "set"] = "file" if what == "file" else "set"
    box = Box(group[0], label, kind, y, depth, note, part.description or "")
    made.left.append(box)
    boxes |= dict.fromkeys(group, box)
    y += 1
    inside = [inner for one in group for inner in below[one]]
    for inner in _alike(inside, origins, parts):
        y = _place(inner, depth + 1, y, parts, below, origins, made, boxes)
    return y
