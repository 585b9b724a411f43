"""Fields with sub-fields: structs, and lists of structs zipped from lists of one length."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from holdfast.data.croissant.document.model import Field
from holdfast.data.croissant.scanning.columns import Column
from holdfast.data.croissant.scanning.sql_text import identifier, literal


def nested(field: Field, value: Callable[[Field], Column], in_list: bool = False) -> Column:
    """A field's value, put together from its leaves.

    Args:
        field: a leaf, a field with sub-fields, or a group (whose value is one column).
        value: the column of a leaf or a group.
        in_list: it stands in a repeated field already, so that its leaves hold a list each.
    """
    if not field.sub_fields or field.parent_field is not None:
        return value(field)
    if not field.is_list or in_list:
        parts = [(sub.key, nested(sub, value, in_list)) for sub in field.sub_fields]
        return _struct(parts)
    lists = [(leaf, value(leaf)) for leaf in _value_leaves(field)]
    first = lists[0][1].sql
    lengths = f"greatest({', '.join(f'len({column.sql})' for _, column in lists)})"
    uneven = " OR ".join(f"len({column.sql}) <> {lengths}" for _, column in lists)
    message = literal(f"the parts of the repeated field {field.id!r} are not equally long")

    def item(leaf: Field) -> Column:
        column = next(column for other, column in lists if other.id == leaf.id)
        return Column(f"({column.sql})[i]", column.type.rpartition("[")[0])

    parts = [(sub.key, nested(sub, item, True)) for sub in field.sub_fields]
    made = _struct(parts)
    check = (
        f"CASE WHEN {uneven} THEN error({message}) ELSE {lengths} END"
        if len(lists) > 1
        else f"len({first})"
    )
    sql = f"list_transform(range(1, {check} + 1), lambda i: {made.sql})"
    missing = " AND ".join(f"{column.sql} IS NULL" for _, column in lists)
    return Column(f"CASE WHEN {missing} THEN NULL ELSE {sql} END", f"{made.type}[]")


def _struct(parts: list[tuple[str, Column]]) -> Column:
    values = ", ".join(f"{identifier(key)} := {column.sql}" for key, column in parts)
    types = ", ".join(f"{identifier(key)} {column.type}" for key, column in parts)
    return Column(f"struct_pack({values})", f"STRUCT({types})")


def _value_leaves(field: Field) -> Iterator[Field]:
    for sub in field.sub_fields:
        if sub.sub_fields and sub.parent_field is None:
            yield from _value_leaves(sub)
        else:
            yield sub
