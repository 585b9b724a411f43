"""An outline as SQL: one SELECT over opened scans, with what must be read after it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import duckdb

from holdfast.data.croissant.document.model import Field, Metadata
from holdfast.data.croissant.files.members import Member
from holdfast.data.croissant.files.resources import Resources
from holdfast.data.croissant.planning.constants import constant, inline_table
from holdfast.data.croissant.planning.origins import CONSTANT, Origin, field_leaves
from holdfast.data.croissant.planning.plan import GroupPart, Outline, Part, link_label
from holdfast.data.croissant.planning.selecting import (
    comparable,
    condition_sql,
    equal,
    expect_columns,
    indented,
    nested,
    selected,
)
from holdfast.data.croissant.planning.values import (
    apply,
    apply_to,
    as_text,
    list_keys,
    reads_bytes,
)
from holdfast.data.croissant.scanning.columns import (
    CONTENT,
    Column,
    Key,
    Scan,
    extract_key,
    identifier,
)
from holdfast.data.croissant.scanning.nested import element
from holdfast.data.croissant.scanning.scans import open_scan
from holdfast.data.croissant.scanning.types import duckdb_type

LATE = "holdfast late "
"""The name of the one member of a struct that stands for bytes still to be read, with a number."""


@dataclass
class Selected:
    """A SELECT.

    Attributes:
        sql: its text.
        columns: its columns ``c0``, ``c1``, ..., one for each wanted field.
        orders: its further columns by whose values its rows have their order, first to last.
    """

    sql: str
    columns: list[Column]
    orders: list[str]


@dataclass
class Assembler:
    """Opens scans on one connection and writes SQL over them; closes them in the end.

    Attributes:
        connection: the one that will run the SQL: scans may leave tables on it.
        resources: the files.
        metadata: the description.
        lenient: values that do not fit are null.
        text_fields: ids of fields whose values stay text, as the source has them.
        late: for each late column, the files among which its numbers choose.
        parts: for each scan, what is read (raw and value) under which field's name, to explain failures.
    """

    connection: duckdb.DuckDBPyConnection
    resources: Resources
    metadata: Metadata
    lenient: bool = False
    text_fields: Collection[str] = ()
    late: list[list[Member]] = field(default_factory=list)
    parts: list[tuple[Scan, Mapping[str, tuple[Column, Column]]]] = field(default_factory=list)
    _followed: list[tuple[str, str, str, str]] = field(default_factory=list, repr=False)
    _applied: dict[str, dict[str, Column]] = field(default_factory=dict, repr=False)
    _stack: ExitStack = field(default_factory=ExitStack, repr=False)

    def close(self) -> None:
        """Give back the scans."""
        self._stack.close()

    def remarks(self) -> list[str]:
        """What a reader should know of the columns behind the SQL that was written."""
        remarks = [text for scan, _ in self.parts for text in scan.remarks()]
        remarks += [
            f"{name}: no record has anything at its JSONPath {path!r}: null there"
            for name, path, found, there in self._followed
            if self._any(there) and not self._any(found)
        ]
        return list(dict.fromkeys(remarks))

    def _any(self, rows: str) -> bool:
        return bool(self.connection.execute(f"SELECT 1 FROM {rows} LIMIT 1").fetchall())

    def _follows(self, relation: str, origin: Origin, raw: Column, value: Column) -> None:
        """Note what tells whether an origin's JSONPath leads anywhere."""
        match = f"TRY({value.sql})"
        found = f"list_count({match}) > 0" if element(value.type) else f"{match} IS NOT NULL"
        name, source = origin.steps[-1][0].id, origin.source
        for path in (step.json_path for step in source.transforms if step.json_path):
            there = f"{relation} WHERE {raw.sql} IS NOT NULL"
            self._followed.append((name, path, f"{relation} WHERE {found}", there))

    def misfits(self) -> dict[str, int]:
        """Field id -> how many values of the tables behind the SQL that was written do not fit it."""
        counts: dict[str, int] = {}
        for relation, columns in self._applied.items():
            tests = [f"count_if(TRY([{column.sql}]) IS NULL)" for column in columns.values()]
            expect_columns(self.connection, len(tests), tried=True)
            query = f"SELECT {', '.join(tests)} FROM {relation}"
            [row] = self.connection.execute(query).fetchall()
            for name, number in zip(columns, row, strict=True):
                counts[name] = counts.get(name, 0) + number
        return {name: number for name, number in counts.items() if number}

    def _apply(self, relation: str, column: Column, origin: Origin) -> Column:
        """The value of an origin, of what stands in a relation."""
        steps = [
            (as_text(step) if step.id in self.text_fields else step, by)
            for step, by in origin.steps
        ]
        value = apply_to(self.connection, relation, column, steps)
        if not self.lenient or value.late or value.sql == column.sql:
            return value
        self._applied.setdefault(relation, {})[origin.steps[-1][0].id] = value
        return replace(value, sql=f"TRY({value.sql})")

    def query(self, outline: Outline, *, ordered: bool, names: Sequence[str]) -> str:
        """The whole query.

        DuckDB keeps the order of a scan through filters, but not through a join: a hash join with two
        threads, or one that spills, gives its rows in the order of its work, whichever side was built.
        So joined records are sorted by their place in the first table. The sort spills like the join.

        Args:
            outline: what is needed.
            ordered: records come in the order of the first table's rows.
            names: what the columns are called, in the order of the wanted fields.
        """
        select = self.select(outline, ordered and outline.joins)
        expect_columns(self.connection, len(select.columns), tried=self.lenient)
        columns = ", ".join(f"c{i} AS {identifier(name)}" for i, name in enumerate(names))
        text = f"SELECT {columns}\nFROM (\n{indented(select.sql)}\n)"
        return f"{text}\nORDER BY {', '.join(select.orders)}" if select.orders else text

    def select(
        self, outline: Outline, sort: bool, early: Collection[str] = frozenset()
    ) -> Selected:
        """The records of an outline, unsorted.

        Args:
            outline: what is needed.
            sort: give the columns to sort them by.
            early: ids of wanted fields whose bytes something computes with.
        """
        early = _looked_into(outline, early)
        sources: list[str] = []
        values: dict[str, Column] = {}
        orders: list[str] = []
        for part in outline.parts:
            text, columns, order = self._table(part, sort, early)
            for label, column in zip(part.needs, columns, strict=True):
                values[label] = Column(part.column(label), column.type, column.late)
            orders += [f"{part.alias}.{name}" for name in order]
            table = f"(\n{indented(text)}\n) AS {part.alias}"
            on = " AND ".join(
                equal(values[link_label(link, "left")], values[link_label(link, "right")])
                for link in part.links
            )
            sources.append(f"LEFT JOIN {table} ON {on}" if part.links else table)
        for group in outline.groups.values():
            text, column = self._grouped(group)
            key = self._value(group.key, f"{group.field.id} of", values)
            belong = f"{comparable(key.sql, key.type)} = {group.alias}.key"
            sources.append(f"LEFT JOIN (\n{indented(text)}\n) AS {group.alias} ON {belong}")
            values[group.field.id] = column

        def value(leaf: Field) -> Column:
            if leaf.id in outline.groups:
                return values[leaf.id]
            return self._value(outline.shape.origins[leaf.id], leaf.id, values)

        columns = [nested(part, value) for part in outline.outputs]
        chosen = [f"{column.sql} AS c{i}" for i, column in enumerate(columns)]
        chosen += [f"{order} AS o{i}" for i, order in enumerate(orders)]
        text = f"SELECT {', '.join(chosen) or 'NULL AS none'}"
        if sources:
            text += "\nFROM " + "\n".join(sources)
        tests = [condition_sql(condition, value) for condition in outline.rest]
        if tests:
            text += f"\nWHERE {' AND '.join(tests)}"
        return Selected(text, columns, [f"o{i}" for i in range(len(orders))])

    def _table(
        self, part: Part, sort: bool, early: Collection[str]
    ) -> tuple[str, list[Column], list[str]]:
        """One part as SELECT, its columns ``v0``, ..., and the names of those that order its rows."""
        computed = {
            label for label, origin in part.needs.items() if label in early or reads_bytes(origin)
        }
        if part.inner is not None:
            fields = [part.needs[label].field for label in computed]
            made = self.select(part.inner, sort, {field.id for field in fields if field})
            held = {
                wanted.id: replace(column, sql=f"c{i}")
                for i, (wanted, column) in enumerate(
                    zip(part.inner.outputs, made.columns, strict=True)
                )
            }
            relation = f"(\n{indented(made.sql)}\n)"
            columns = [
                self._apply(relation, held[origin.field.id], origin)
                for origin in part.needs.values()
                if origin.field is not None
            ]
            return selected(relation, columns, made.orders, []), columns, made.orders
        if part.key.kind == "data":
            return self._inline(part, sort)
        content = {
            label
            for label, origin in part.needs.items()
            if extract_key(origin.source.extract) == CONTENT
        }
        return self._resource(part, sort, bool(computed & content))

    def _inline(self, part: Part, sort: bool) -> tuple[str, list[Column], list[str]]:
        relation, raw = inline_table(
            part.data, [origin.field for origin in part.needs.values() if origin.field]
        )
        columns = [
            self._apply(relation, column, origin)
            for column, origin in zip(raw, part.needs.values(), strict=True)
        ]
        return self._rows(part, relation, columns, "n" if sort else None)

    def _resource(self, part: Part, sort: bool, early: bool) -> tuple[str, list[Column], list[str]]:
        if not part.members:
            nulls = [
                apply(Column("NULL::VARCHAR", "VARCHAR"), origin.steps)
                for origin in part.needs.values()
            ]
            nulls = [Column(f"NULL::{column.type}", column.type) for column in nulls]
            text = selected("(SELECT 1 WHERE FALSE)", nulls, ["0 AS o0"] if sort else [], [])
            return text, nulls, ["o0"] if sort else []
        resource = self.metadata.resource(part.key.id)
        extracts = [origin.source.extract for origin in part.needs.values()]
        scan = open_scan(
            self.connection,
            self.resources,
            part.key.id,
            resource.encoding_formats,
            extracts,
            part.members,
            types=_types(part),
            lists=list_keys(part.needs.values()),
            early=early,
        )
        self._stack.callback(scan.close)
        columns, read = [], {}
        for label, origin in part.needs.items():
            raw = scan.columns[extract_key(origin.source.extract)]
            value = self._apply(scan.relation, raw, origin)
            read[label] = (raw, value)
            if not value.late:
                self._follows(scan.relation, origin, raw, value)
            columns.append(self._late(value, scan) if value.late else value)
        self.parts.append((scan, read))
        return self._rows(part, scan.relation, columns, (scan.order or "0") if sort else None)

    def _value(self, origin: Origin, label: str, values: Mapping[str, Column]) -> Column:
        if origin.table == CONSTANT:
            return self._apply("(SELECT 1)", constant(origin.value), origin)
        return values[label]

    def _late(self, column: Column, scan: Scan) -> Column:
        """A column of bytes that are read after the query: a struct that says which file."""
        if not self.late or self.late[-1] is not scan.members:
            self.late.append(scan.members)
        number = len(self.late) - 1
        name = identifier(f"{LATE}{number} {column.type}")
        return Column(f"struct_pack({name} := {column.sql})", column.type, late=True)

    def _rows(
        self, part: Part, relation: str, columns: list[Column], order: str | None
    ) -> tuple[str, list[Column], list[str]]:
        labels = list(part.needs)

        def value(leaf: Field) -> Column:
            return columns[labels.index(leaf.id)]

        tests = [condition_sql(condition, value) for condition in part.conditions]
        orders = [] if order is None else [f"{order} AS o0"]
        return selected(relation, columns, orders, tests), columns, ["o0"] if orders else []

    def _grouped(self, group: GroupPart) -> tuple[str, Column]:
        """The rows of a group as one list for each value by which they belong."""
        inner = self.select(group.inner, True)
        key, *subs = inner.columns
        names = [sub.key for sub in group.inner.outputs[1:]]
        packed = ", ".join(f"{identifier(name)} := c{i + 1}" for i, name in enumerate(names))
        types = ", ".join(
            f"{identifier(name)} {sub.type}" for name, sub in zip(names, subs, strict=True)
        )
        text = (
            f"SELECT {comparable('c0', key.type)} AS key, "
            f"list(struct_pack({packed}) ORDER BY {', '.join(inner.orders)}) AS rows\n"
            f"FROM (\n{indented(inner.sql)}\n)\nWHERE c0 IS NOT NULL\nGROUP BY 1"
        )
        return text, Column(f"coalesce({group.alias}.rows, [])", f"STRUCT({types})[]")


def _looked_into(outline: Outline, wanted: Collection[str]) -> set[str]:
    """What the query itself looks into: wanted fields that somebody computes with, tests and keys."""
    uses = [use for part in outline.parts for one in part.conditions for use in one.uses]
    uses += [use for condition in outline.rest for use in condition.uses]
    fields = [field for field in outline.outputs if field.id in wanted]
    fields += [use.field for use in uses]
    labels = {leaf.id for field in fields for leaf in field_leaves(field)}
    links = [link for part in outline.parts for link in part.links]
    labels |= {link_label(link, side) for link in links for side in ("left", "right")}
    return labels | {f"{group.field.id} of" for group in outline.groups.values()}


def _types(part: Part) -> dict[Key, str]:
    """What each column is declared as, where nothing is to be done to it first."""
    types: dict[Key, set[str]] = {}
    for origin in part.needs.values():
        field, source = origin.steps[0]
        plain = not source.transforms and source.format is None and len(origin.steps) == 1
        kind = duckdb_type(field) if plain and not field.is_list else ""
        types.setdefault(extract_key(source.extract), set()).add(kind)
    return {key: kinds.pop() for key, kinds in types.items() if len(kinds) == 1 and "" not in kinds}
