"""What changed in records that stand in the description itself."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.data.croissant.document.model import Field, RecordSet
from holdfast.data.croissant.evolving.changes import DOUBT, GONE, MORE, SAME, Change, GroupName
from holdfast.data.croissant.evolving.matching import Names
from holdfast.numbers import counted

_SHOWN = 5


def compare_rows(
    old: RecordSet, new: RecordSet, names: Names, group: GroupName
) -> Iterator[Change]:
    """Records added, removed and reordered; an edited one is removed and added."""
    if old.data is None and new.data is None:
        return
    places: dict[str, Any] = {
        "subject": new.id,
        "old_at": old.where("cr:data"),
        "new_at": new.where("cr:data"),
    }
    if old.data is None or new.data is None:
        now = "inline" if old.data is None else "no longer inline"
        yield Change(
            kind="records-moved",
            group=group,
            bump="major",
            certain=False,
            message=f"record set {new.id}: its records are {now}",
            reason=DOUBT,
            **places,
        )
        return
    before = _rows(old.data, old.fields, names)
    after = _rows(new.data, new.fields, {})
    # An added or removed field is a separate change, not an edit of every record.
    shared = {key for row in before for key in row} & {key for row in after for key in row}
    wanted = shared if before and after else {key for row in (*before, *after) for key in row}
    left, right = (
        [{k: v for k, v in row.items() if k in wanted} for row in rows] for rows in (before, after)
    )
    gone, come = _less(left, right), _less(right, left)
    if gone:
        yield Change(
            kind="records-removed",
            group=group,
            bump="major",
            message=f"record set {new.id}: {counted(len(gone), 'record')} removed",
            reason=GONE,
            old=gone[:_SHOWN],
            **places,
        )
    if come:
        closed = "sc:Enumeration" in new.data_types or new.is_enumeration or group == "splits"
        yield Change(
            kind="records-added",
            group=group,
            bump="minor" if closed else "major",
            certain=closed,
            message=f"record set {new.id}: {counted(len(come), 'record')} added",
            reason=MORE if closed else "existing data can no longer be read without them",
            new=come[:_SHOWN],
            **places,
        )
    if not (gone or come) and left != right:
        yield Change(
            kind="records-reordered",
            group=group,
            bump="patch",
            message=f"record set {new.id}: its records are in a different order",
            reason=SAME,
            **places,
        )


def compare_examples(old: RecordSet, new: RecordSet, names: Names) -> Iterator[Change]:
    """Examples say nothing about the data that was not so before."""
    shown = [_examples(old, names), _examples(new, {})]
    if shown[0] != shown[1]:
        yield Change(
            kind="examples-changed",
            group="record sets",
            bump="patch",
            subject=new.id,
            message=f"record set {new.id}: its examples changed",
            reason=SAME,
            old_at=old.where("cr:examples"),
            new_at=new.where("cr:examples"),
        )


def _examples(part: RecordSet, names: Names) -> Any:
    rows = part.examples if isinstance(part.examples, list) else [part.examples]
    if all(isinstance(row, Mapping) and "@id" not in row for row in rows):
        return _rows(rows, part.fields, names)
    return rows


def _rows(
    rows: Sequence[Mapping[str, Any]], fields: Sequence[Field], names: Names
) -> list[dict[str, Any]]:
    """Records whose keys are ids of fields, as the newer description has them."""
    ids: dict[str, Field] = {}
    for one in fields:
        for name in (one.short, one.name, one.key, one.id):
            if name:
                ids[name] = one
    made = []
    for row in rows:
        plain = {}
        for key, value in row.items():
            part = ids.get(key)
            plain[key if part is None else names.get(part.id, part.id)] = _nested(
                value, part, names
            )
        made.append(plain)
    return made


def _nested(value: Any, part: Field | None, names: Names) -> Any:
    if part is None or not part.sub_fields:
        return value
    if isinstance(value, Mapping):
        return _rows([value], part.sub_fields, names)[0]
    if isinstance(value, list) and all(isinstance(one, Mapping) for one in value):
        return _rows(value, part.sub_fields, names)
    return value


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _less(rows: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that the others do not hold, as often as they do not."""
    left = Counter(map(_text, others))
    found = []
    for row in rows:
        text = _text(row)
        if left[text]:
            left[text] -= 1
        else:
            found.append(row)
    return found
