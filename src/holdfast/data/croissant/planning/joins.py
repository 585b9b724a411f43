"""Tables of a record set, and the references along which they are joined."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from holdfast.data.croissant.document.model import Field, RecordSet, Source
from holdfast.data.croissant.planning.origins import CONSTANT, Fields, Origin, TableKey, leaves
from holdfast.data.croissant.scanning.columns import extract_key
from holdfast.errors import InputError

NOT_JOINED, AMBIGUOUS = "not-joined", "ambiguous-join"
"""The codes of errors about sources that no reference joins, or more than one."""


@dataclass(frozen=True)
class Link:
    """One reference: rows belong together where both values are equal; null equals nothing.

    Attributes:
        field: the one that references.
        left: its values.
        right: the values that it references.
        target: what it references, for people.
    """

    field: Field
    left: Origin
    right: Origin
    target: str


@dataclass(frozen=True)
class Group:
    """A field whose value is a list: the other table's rows that belong to this record.

    Attributes:
        field: it has a parentField.
        key: this record's value that those rows reference.
    """

    field: Field
    key: Origin


@dataclass
class Shape:
    """How a record set is put together.

    Attributes:
        records: the record set.
        origins: leaf field id -> where its values come from.
        anchor: the table whose rows the records follow; None where there are only constants.
        joined: the other tables in the order in which they are joined, each with its links to those
            before it.
        groups: field id -> group.
    """

    records: RecordSet
    origins: dict[str, Origin]
    anchor: TableKey | None = None
    joined: dict[TableKey, tuple[Link, ...]] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)

    def keeping(self, used: set[TableKey], fields: Fields, shrink: bool) -> list[TableKey]:
        """The tables that a query needs: those used, those between, those that could multiply records.

        Records must not depend on the columns that somebody looks at. A table that nobody looks at is
        left out only where a declared key says that it matches at most once.

        Args:
            used: tables whose columns the query uses.
            fields: the fields of the description.
            shrink: leave out every table that is not used.
        """
        tables = set(used)
        for table in reversed(self.joined):
            links = self.joined[table]
            if table not in tables and not shrink:
                holding = {self.origins[name].table for name in self._key_leaves()}
                if holding and table not in holding:
                    continue
                if not _matches_once(table, links, fields):
                    tables.add(table)
            if table in tables:
                tables |= {link.left.table for link in links}
        if self.anchor is not None:
            tables.add(self.anchor)
        return [
            table for table in (self.anchor, *self.joined) if table is not None and table in tables
        ]

    def _key_leaves(self) -> list[str]:
        keys = self.records.key
        return list(keys) if keys and all(name in self.origins for name in keys) else []


def rows_of(group: Field) -> RecordSet:
    """The rows that a field with a parentField gathers: what they belong by, then its sub-fields."""
    parent = group.parent_field
    assert parent is not None
    key = Field(id=f"{group.id} by", key="", short="", at=group.at, source=parent.source)
    return RecordSet(id=group.id, at=group.at, fields=(key, *group.sub_fields))


def shape_of(records: RecordSet, fields: Fields) -> Shape:
    """How a record set is put together.

    A record set starts at the first table that none of its references points to; from there every other
    table is reached along references, its own or those of record sets on the way. Where that does not lead
    to all of them, it starts at the first table from which it does; where there is none, references are
    followed from the first in both directions. Where a record set takes fields of another that is a plain
    view of one resource, and no reference leads there, the view gives way to the resource.

    Raises:
        InputError: sources that no reference joins, or references between which it cannot choose.
    """
    origins = {leaf.id: fields.origin(records, leaf) for leaf in leaves(records)}
    keys = {
        part.id: fields.origin(records, _key_of(part))
        for part in records.fields
        if part.parent_field is not None
    }
    shape = _joined(records, origins, keys, fields)
    if isinstance(shape, Shape):
        return shape
    plain = {name: fields.below(origin) or origin for name, origin in origins.items()}
    plain_keys = {name: fields.below(origin) or origin for name, origin in keys.items()}
    again = _joined(records, plain, plain_keys, fields)
    if isinstance(again, Shape):
        return again
    raise shape


def _joined(
    records: RecordSet, origins: dict[str, Origin], keys: dict[str, Origin], fields: Fields
) -> Shape | InputError:
    every = (*origins.values(), *keys.values())
    tables = list(dict.fromkeys(part.table for part in every if part.table != CONSTANT))
    shape = Shape(records, origins)
    for part in records.fields:
        if part.id in keys:
            shape.groups[part.id] = Group(part, keys[part.id])
    if not tables:
        return shape
    own = list(_links(records, origins, fields))
    targets = {
        right.table
        for link in own
        for right in (link.right, fields.below(link.right))
        if right is not None and right.table != link.left.table
    }
    anchors = sorted(tables, key=lambda table: table in targets)
    known = [*own, *(link for table in tables for link in _links_of(table, fields))]
    attempts = [(anchor, own) for anchor in anchors]
    attempts.append((anchors[0], [*own, *_reversed(known, fields)]))
    for shape.anchor, links in attempts:
        shape.joined = {}
        missing = [table for table in tables if table != shape.anchor]
        while missing and (reached := _reach(missing, links, shape, fields)):
            for table, chosen in reached:
                shape.joined[table] = chosen
                if table in missing:
                    missing.remove(table)
        if not missing:
            return shape
    lost = next((name for name, one in origins.items() if one.table == missing[0]), "")
    return _not_joined(anchors[0], missing[0], records, lost)


def _reversed(links: Iterable[Link], fields: Fields) -> Iterator[Link]:
    """References as seen from what they reference: each finds the rows that reference it."""
    for link in links:
        for right in (link.right, fields.below(link.right)):
            if right is not None:
                yield replace(link, left=right, right=link.left)


def _reach(
    missing: list[TableKey], own: list[Link], shape: Shape, fields: Fields
) -> list[tuple[TableKey, tuple[Link, ...]]] | None:
    """The shortest chain of joins from what is joined already to a missing table."""
    assert shape.anchor is not None
    start = [shape.anchor, *shape.joined]
    paths: dict[TableKey, list[tuple[TableKey, tuple[Link, ...]]]] = {table: [] for table in start}
    queue = list(start)
    while queue:
        table = queue.pop(0)
        # The record set's own references come before those of the record sets it takes fields from.
        leaving = _leaving(table, _links_of(table, fields), paths, fields)
        leaving |= _leaving(table, own, paths, fields)
        for target, links in leaving.items():
            step = (target, tuple(links))
            paths[target] = [*paths[table], step]
            if target in missing:
                for _, chosen in paths[target]:
                    _refuse_ambiguous(chosen)
                return paths[target]
            queue.append(target)
    return None


def _leaving(
    table: TableKey, links: Iterable[Link], reached: Collection[TableKey], fields: Fields
) -> dict[TableKey, list[Link]]:
    """The links from a table to tables that are not reached yet: record sets, and files behind them."""
    made: dict[TableKey, list[Link]] = {}
    for link in links:
        for right in (link.right, fields.below(link.right)):
            if link.left.table == table and right is not None and right.table not in reached:
                made.setdefault(right.table, []).append(replace(link, right=right))
    return made


def _links(records: RecordSet, origins: dict[str, Origin], fields: Fields) -> Iterator[Link]:
    """The references of a record set's own fields."""
    for leaf in leaves(records):
        served = leaf.source is None and records.data is None and not leaf.has_value
        for reference in leaf.references[1 if served else 0 :]:
            link = _link(leaf, origins[leaf.id], reference, fields)
            if link is None:
                continue
            # A reference to a field of this record set joins the two tables that both come from; within
            # one table, it joins the record set to itself.
            own = origins.get(link.right.field.id) if link.right.field is not None else None
            if own is not None and own.table not in (CONSTANT, link.left.table):
                link = replace(link, right=replace(own, steps=(*own.steps, *link.right.steps)))
            yield link


def _links_of(table: TableKey, fields: Fields) -> Iterator[Link]:
    """The references of another record set, as links that leave its table."""
    if table.kind != "records":
        return
    owner = fields.record_set(table.id)
    for leaf in leaves(owner):
        for reference in (
            leaf.references if leaf.source is not None or owner.data is not None else ()
        ):
            link = _link(leaf, Origin(table, field=leaf), reference, fields)
            if link is not None:
                yield link


def _link(leaf: Field, left: Origin, reference: Source, fields: Fields) -> Link | None:
    if left.table == CONSTANT:
        return None
    if reference.kind in ("file_object", "file_set"):
        right = Origin(
            TableKey("resource", reference.target), source=reference, steps=((leaf, reference),)
        )
        return Link(
            leaf, left, right, f"{reference.target} {' '.join(extract_key(reference.extract))}"
        )
    if reference.kind != "field":
        return None
    owner, target = fields.find(reference.target)
    steps = ((replace(target, source=None), reference),) if reference.transforms else ()
    return Link(
        leaf, left, Origin(TableKey("records", owner.id), field=target, steps=steps), target.id
    )


def _key_of(group: Field) -> Field:
    """A field that stands for the value by which a group's rows are found."""
    assert group.parent_field is not None
    source = group.parent_field.references
    if source is None or group.parent_field.source is None:
        raise InputError(
            f"the parentField of {group.id!r} must say what is grouped and by what",
            code="missing-key",
            place=group.at,
            expected='"source" (the rows\' own key) and "references" (the key of this record set)',
        )
    return Field(id=group.id, key=group.key, short=group.short, at=group.at, source=source)


def _matches_once(table: TableKey, links: tuple[Link, ...], fields: Fields) -> bool:
    """Whether a declared key, or the inline data, says that each row finds at most one in `table`."""
    if table.kind != "records":
        return False
    owner = fields.record_set(table.id)
    linked = {link.right.field.id for link in links if link.right.field is not None}
    if owner.key and set(owner.key) <= linked:
        return True
    if owner.data is None or len(links) != 1 or links[0].right.field is None:
        return False
    names = links[0].right.field
    values = [
        repr(next((row[name] for name in (names.id, names.key, names.short) if name in row), None))
        for row in owner.data
    ]
    return len(set(values)) == len(values)


def _refuse_ambiguous(links: tuple[Link, ...]) -> None:
    by_target: dict[str, Link] = {}
    for link in links:
        first = by_target.setdefault(link.target, link)
        if first is not link:
            raise InputError(
                f"two fields reference {link.target!r}, and nothing says which of them joins it",
                code=AMBIGUOUS,
                place=link.field.at,
                found=f"{first.field.id!r} and {link.field.id!r}",
                remedy="describe the file as two record sets, and let each field reference its own",
            )


def _not_joined(anchor: TableKey, other: TableKey, records: RecordSet, lost: str) -> InputError:
    source = next((leaf.source for leaf in leaves(records) if leaf.id == lost), None)
    return InputError(
        f"the fields of {records.id!r} come from two sources that nothing joins",
        code=NOT_JOINED,
        place=records.at if source is None else source.at,
        found=f"{anchor.id!r} and {other.id!r}",
        remedy=f'give a field that comes from {anchor.id!r} a "references" to the matching field of '
        f"{other.id!r}, or the other way round",
    )
