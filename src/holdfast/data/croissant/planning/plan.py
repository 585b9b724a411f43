"""What a query needs: which tables, which of their columns, rows and files; nothing is read for it.

`outline` decides; `assembling` turns an outline into SQL over opened scans.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb

from holdfast.data.croissant.document.model import Field, RecordSet
from holdfast.data.croissant.files.members import Member
from holdfast.data.croissant.files.resources import Resources
from holdfast.data.croissant.planning.filters import Condition, Use
from holdfast.data.croissant.planning.joins import Group, Link, Shape, rows_of, shape_of
from holdfast.data.croissant.planning.origins import (
    CIRCULAR,
    CONSTANT,
    Fields,
    Origin,
    TableKey,
    field_leaves,
    leaves,
)
from holdfast.data.croissant.planning.splits import possible
from holdfast.data.croissant.scanning.columns import extract_key
from holdfast.errors import InputError

Trail = tuple[tuple[str, frozenset[str]], ...]
"""The record sets being planned, outermost first, each with the fields wanted of it."""


@dataclass
class Part:
    """One table of a query.

    Attributes:
        key: what its rows are.
        alias: how the query calls it.
        needs: label -> what is taken out of it, as column ``v0``, ``v1``, ... in this order.
        links: how it is joined to the parts before it; none for the first.
        conditions: what can be asked of its rows alone.
        members: the files of a resource that can hold such rows.
        data: the records of inline data.
        inner: the outline of another record set's records.
    """

    key: TableKey
    alias: str
    needs: dict[str, Origin] = field(default_factory=dict)
    links: tuple[Link, ...] = ()
    conditions: list[Condition] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)
    data: Sequence[Mapping[str, Any]] = ()
    inner: Outline | None = None

    def column(self, label: str) -> str:
        """The expression of what `label` takes out of the table."""
        return f"{self.alias}.v{list(self.needs).index(label)}"


@dataclass
class GroupPart:
    """The rows that a group gathers.

    Attributes:
        field: the group.
        alias: how the query calls them.
        key: this record's value that they reference.
        inner: their outline: first the value by which they belong, then the sub-fields.
    """

    field: Field
    alias: str
    key: Origin
    inner: Outline


@dataclass
class Outline:
    """All that a query needs.

    Attributes:
        shape: how the record set is put together.
        outputs: the fields that it returns.
        parts: tables; the first is the one whose order the records follow.
        groups: id of a wanted field with a parentField -> its rows.
        rest: conditions on several tables, asked of the joined records.
    """

    shape: Shape
    outputs: tuple[Field, ...]
    parts: list[Part]
    groups: dict[str, GroupPart]
    rest: list[Condition]

    @property
    def joins(self) -> bool:
        """Whether rows of several tables meet, after which their order must be restored."""
        return (
            len(self.parts) > 1
            or bool(self.groups)
            or any(part.inner is not None and part.inner.joins for part in self.parts)
        )

    def part(self, table: TableKey) -> Part:
        """The part of a table."""
        return next(part for part in self.parts if part.key == table)

    def members(self) -> Iterator[Member]:
        """Every file that can hold a wanted record."""
        for part in self.parts:
            yield from part.members
            if part.inner is not None:
                yield from part.inner.members()
        for group in self.groups.values():
            yield from group.inner.members()


class Planner:
    """Plans queries over the record sets of one description.

    Args:
        connection: evaluates conditions on the names of files.
        fields: the description's fields.
        resources: lists files; None for plans that are not run, so that no file needs to be there.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection | None,
        fields: Fields,
        resources: Resources | None,
    ) -> None:
        self.connection = connection
        self.fields = fields
        self.resources = resources

    def outline(
        self,
        records: RecordSet,
        outputs: Sequence[Field],
        conditions: Sequence[Condition] = (),
        trail: Trail = (),
    ) -> Outline:
        """What a query for some fields of a record set needs.

        Raises:
            InputError: sources that nothing joins, that name nothing, or that go round in a circle.
        """
        # 1. No record set takes values from itself, however far round.
        here = (records.id, frozenset(part.id for part in outputs))
        if here in trail:
            raise InputError(
                "record sets take their values from one another in a circle",
                code=CIRCULAR,
                place=records.at,
                found=" -> ".join(name for name, _ in (*trail, here)),
            )
        # 2. The tables behind the fields, and what joins them.
        shape = shape_of(records, self.fields)
        ends = {leaf.id: leaf for leaf in leaves(records)}
        looked_at = [
            leaf
            for part in (*outputs, *(use.field for one in conditions for use in one.uses))
            for leaf in field_leaves(part)
        ]
        groups = [shape.groups[part.id] for part in outputs if part.id in shape.groups]
        used = {shape.origins[leaf.id].table for leaf in looked_at}
        used |= {group.key.table for group in groups}
        shrink = any(name == records.id for name, _ in trail)
        # 3. Of them those that are asked for, or that joins between these need.
        tables = shape.keeping(used - {CONSTANT}, self.fields, shrink)
        parts = [
            Part(table, f"t{i}", links=shape.joined.get(table, ()))
            for i, table in enumerate(tables)
        ]
        outline = Outline(shape, tuple(outputs), parts, {}, [])
        # 4. What each table must give: fields, both sides of its joins, keys of groups.
        for leaf in looked_at:
            self._need(outline, leaf.id, shape.origins[leaf.id])
        for part in parts:
            for link in part.links:
                self._need(outline, link_label(link, "left"), link.left)
                self._need(outline, link_label(link, "right"), link.right)
        for group in groups:
            self._need(outline, f"{group.field.id} of", group.key)
            outline.groups[group.field.id] = self._group(
                records, group, len(outline.groups), (*trail, here)
            )
        # 5. Rows: a table counts as many as the record set sees, whatever is asked for.
        for part in parts:
            _need_rows(part, shape)
        # 6. Conditions go as near to the files as they can, so that fewer are opened.
        for condition in conditions:
            _place_condition(outline, condition, ends)
        for part in parts:
            self._fill(part, records, (*trail, here))
        return outline

    def _need(self, outline: Outline, label: str, origin: Origin) -> None:
        if origin.table != CONSTANT:
            outline.part(origin.table).needs.setdefault(label, origin)

    def _fill(self, part: Part, records: RecordSet, trail: Trail) -> None:
        """What stands behind a part: files, inline records, or the outline of another record set."""
        if part.key.kind == "data":
            part.data = records.data or ()
        if part.key.kind == "resource" and self.resources and self.connection:
            members = self.resources.members(part.key.id)
            if not members:
                raise InputError(
                    f"the resource {part.key.id!r} has no files",
                    code="no-data",
                    expected="at least one that its patterns match",
                    remedy="put the files where the description says, or correct includes and excludes",
                )
            part.members = possible(self.connection, members, part.conditions, part.needs)
        if part.key.kind == "records":
            owner = self.fields.record_set(part.key.id)
            inner = {
                origin.field.id: origin.field for origin in part.needs.values() if origin.field
            }
            conditions = [condition for condition in part.conditions if condition.uses]
            part.inner = self.outline(owner, list(inner.values()), conditions, trail)
            part.conditions = []

    def _group(self, records: RecordSet, group: Group, number: int, trail: Trail) -> GroupPart:
        rows = rows_of(group.field)
        return GroupPart(
            group.field, f"g{number}", group.key, self.outline(rows, rows.fields, (), trail)
        )


def _need_rows(part: Part, shape: Shape) -> None:
    """Take a file in the rows that the record set sees in it, whatever is asked for.

    Its name alone would be one row, and a list in JSON alone a row for each of its elements. What nobody
    looks at costs little: the engine leaves the column out, and counts the rows.
    """
    if part.key.kind != "resource":
        return
    telling = [one for one in shape.origins.values() if one.table == part.key and _within(one)]
    single = [one for one in telling if not one.is_list]
    asked = [one for one in part.needs.values() if _within(one)]
    if telling and not any(not (single and one.is_list) for one in asked):
        part.needs[f"{part.key.id} rows"] = (single or telling)[0]


def _within(origin: Origin) -> bool:
    """Whether a value comes from within a file, so that the file has a row for each of its records."""
    kind, name = extract_key(origin.source.extract)
    return kind in ("column", "jsonPath") or name in ("lines", "lineNumbers")


def link_label(link: Link, side: str) -> str:
    """The label under which a join's value is taken out of its table."""
    return f"{link.field.id} {side} {link.target}"


def _place_condition(outline: Outline, condition: Condition, ends: dict[str, Field]) -> None:
    """Ask a condition as early as it may be asked: of one table's rows, or of the joined records."""
    shape = outline.shape
    origins = [shape.origins.get(use.field.id) for use in condition.uses]
    simple = [origin for origin in origins if origin is not None and origin.table != CONSTANT]
    tables = {origin.table for origin in simple}
    if len(simple) < len(origins) or len(tables) != 1:
        outline.rest.append(condition)
        return
    table = tables.pop()
    if table != shape.anchor:
        outline.rest.append(condition)  # a row without a partner must fail too
        if not condition.strict:
            return
    part = outline.part(table)
    uses = [
        replace(use, field=origin.field or ends[use.field.id], steps=(*origin.steps, *use.steps))
        for use, origin in zip(condition.uses, simple, strict=True)
    ]
    if table.kind != "records":  # the steps are part of the table's own column
        uses = [Use(ends[use.field.id], use.steps) for use in condition.uses]
    part.conditions.append(condition.seen_through(uses))
