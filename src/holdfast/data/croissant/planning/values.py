"""From what stands in a table to a field's value: the steps of the fields on the way, and its type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.data.croissant.document.model import Field, RecordSet, Source
from holdfast.data.croissant.document.vocabulary import format_of
from holdfast.data.croissant.planning.origins import CIRCULAR, Fields, Origin, Step, field_leaves
from holdfast.data.croissant.scanning.columns import Column, Key, extract_key
from holdfast.data.croissant.scanning.transforms import reads_content, value_sql
from holdfast.data.croissant.scanning.types import arrow_type, data_type, scalar_type, value_format
from holdfast.errors import InputError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_TEXT_FORMATS = ("csv", "tsv", "text")


def apply(column: Column, steps: Sequence[Step]) -> Column:
    """A column after the steps of the fields on the way to a value, first to last."""
    for field, source in steps:
        if not _passes(field, source):
            column = value_sql(column, field, source)
    return column


def as_text(field: Field) -> Field:
    """A field whose values stay as its source and transforms give them, as text."""
    plain = replace(field, data_types=("sc:Text",), inherited=False, array_shape=None)
    return replace(plain, is_array=False, repeated=False)


def apply_to(
    connection: duckdb.DuckDBPyConnection, relation: str, column: Column, steps: Sequence[Step]
) -> Column:
    """`apply`, once the first value has shown whether text of sc:DateTime has offsets from UTC.

    With offsets, all become instants in UTC; without, all stay as they are written. A value of the other
    kind then fits no more.

    Args:
        connection: looks at the values.
        relation: where `column` stands.
        column: what stands in the table.
        steps: first to last.
    """
    plain = apply(column, steps)
    if plain.late or all(data_type(field) != "sc:DateTime" for field, _ in steps):
        return plain
    zoned = apply(column, [(replace(field, zoned=True), source) for field, source in steps])
    if zoned.sql == plain.sql:
        return plain
    # In lists, for a value that is missing fits both. What both share must not be computed outside of TRY.
    connection.execute("SET disabled_optimizers = 'common_subexpressions'")
    query = f"SELECT TRY([{plain.sql}]) IS NULL AS one, TRY([{zoned.sql}]) IS NULL AS other FROM {relation}"
    rows = connection.execute(f"SELECT one FROM ({query}) WHERE one <> other LIMIT 1").fetchall()
    return zoned if rows and rows[0][0] else plain


def reads_bytes(origin: Origin) -> bool:
    """Whether a value is computed from a file's bytes, which must then be read before the query.

    Also true for some origins that are not a file's bytes, where it does not matter.
    """
    steps = list(origin.steps)
    if origin.table.kind == "resource":
        field, source = steps.pop(0)
        if reads_content(field, source):
            return True
        kind = scalar_type(field)
    else:
        kind = scalar_type(origin.field) if origin.field is not None else ""
    return any(
        not _passes(field, source) and (bool(source.transforms) or scalar_type(field) != kind)
        for field, source in steps
    )


def list_keys(origins: Iterable[Origin]) -> set[Key]:
    """What is taken out of a resource for fields that are lists, and for no others."""
    is_list: dict[Key, bool] = {}
    for origin in origins:
        key = extract_key(origin.source.extract)
        is_list[key] = is_list.get(key, True) and origin.is_list
    return {key for key, listed in is_list.items() if listed}


def _passes(field: Field, source: Source) -> bool:
    """Whether a field takes another field's values as they are, type and all."""
    plain = not source.transforms and source.format is None
    return (
        plain
        and source.kind in ("field", "record_set")
        and (field.inherited or not field.data_types or bool(field.sub_fields))
    )


def declared_type(
    fields: Fields, records: RecordSet, field: Field, trail: tuple[str, ...] = ()
) -> pa.DataType:
    """The Arrow type that a field declares, or takes over from the field that its values come from.

    Raises:
        InputError: fields that take their values from one another in a circle.
    """
    import pyarrow as pa

    if field.parent_field is not None:
        return pa.list_(_struct(fields, records, field, trail))
    if field.sub_fields:
        made = _struct(fields, records, field, trail)
        return pa.list_(made) if field.is_list else made
    leaf = next(field_leaves(field))
    return _leaf_type(fields, fields.origin(records, leaf), trail)


def comes_as_declared(
    fields: Fields, records: RecordSet, outputs: Iterable[Field], trail: tuple[str, ...] = ()
) -> bool:
    """Whether every value has its declared type, whatever the files contain.

    True for text (CSV, lines) except times, for names and bytes of files, and for data in the description
    itself; a typed file may contain a finer date, or lists that were not declared.
    """
    for field in outputs:
        if field.parent_field is not None:
            return False
        for leaf in field_leaves(field):
            origin = fields.origin(records, leaf)
            if any(
                data_type(one) == "sc:DateTime" and not value_format(one) for one, _ in origin.steps
            ):
                return False  # with or without a zone
            if origin.table.kind == "records" and origin.field is not None:
                owner, target = fields.find(origin.field.id)
                if not comes_as_declared(fields, owner, [target], onwards(trail, target)):
                    return False
            elif origin.table.kind == "resource" and not _is_text(fields, origin):
                return False
    return True


def onwards(trail: tuple[str, ...], field: Field) -> tuple[str, ...]:
    """A way along sources, and the next field on it.

    Raises:
        InputError: it was there before.
    """
    if field.id in trail:
        raise InputError(
            "fields take their values from one another in a circle",
            code=CIRCULAR,
            found=" -> ".join((*trail, field.id)),
        )
    return (*trail, field.id)


def _is_text(fields: Fields, origin: Origin) -> bool:
    source = origin.source
    if any(step.json_path or step.separator or step.read_lines for step in source.transforms):
        return False
    if extract_key(source.extract)[0] == "fileProperty":
        return True
    formats = fields.metadata.resource(origin.table.id).encoding_formats
    return any(format_of(name) in _TEXT_FORMATS for name in formats)


def _struct(
    fields: Fields, records: RecordSet, field: Field, trail: tuple[str, ...]
) -> pa.DataType:
    import pyarrow as pa

    return pa.struct(
        [pa.field(sub.key, declared_type(fields, records, sub, trail)) for sub in field.sub_fields]
    )


def _leaf_type(fields: Fields, origin: Origin, trail: tuple[str, ...]) -> pa.DataType:
    for field, source in reversed(origin.steps):
        if not _passes(field, source):
            return arrow_type(field)
    assert origin.field is not None
    owner, target = fields.find(origin.field.id)
    return declared_type(fields, owner, target, onwards(trail, target))
