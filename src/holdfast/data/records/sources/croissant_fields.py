"""Choose the description, the record set, and its fields for the image, the label and the columns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.data.records.sources.columns import LABEL, MOST_CLASSES
from holdfast.data.records.sources.example import Options
from holdfast.errors import InputError

if TYPE_CHECKING:
    from holdfast.data.croissant.document.model import Field, Metadata, RecordSet

NAMES = ("croissant.json", "metadata.json")
"""File names of a description in a folder."""
_BEGINNING = 65536  # of a file, in which a description says its @context
_IMAGE = "sc:ImageObject"
_LABEL = "cr:Label"
_NAME = "name"


def description_at(path: Path) -> Path | None:
    """The Croissant description that a file is, or that a folder holds; None if there is none.

    A file is one if it is a schema.org Dataset in JSON-LD that has record sets or says that it conforms to
    Croissant. Of a folder, only files of the usual `NAMES` are looked at; if both are one: the folder.
    """
    if path.is_dir():
        found = [path / name for name in NAMES if _is_description(path / name)]
        return found[0] if len(found) == 1 else path if found else None
    return path if path.suffix in (".json", ".jsonld") and _is_description(path) else None


def _is_description(path: Path) -> bool:
    from holdfast.data.croissant import read_metadata

    try:
        with path.open("rb") as file:  # other JSON may be large
            if b"@context" not in file.read(_BEGINNING).replace(b"\0", b""):
                return False
        metadata = read_metadata(path)
    except (OSError, InputError):
        return False
    says = any("mlcommons.org/croissant" in one for one in metadata.conforms_to)
    return "sc:Dataset" in metadata.types and (says or bool(metadata.record_sets))


def chosen(metadata: Metadata, options: Options, path: Path) -> tuple[RecordSet, Field]:
    """The record set of the images, and its field that holds them.

    Raises:
        InputError: if there is none, or several could be it.
    """
    if options.record_set is not None:
        records = _record_set(metadata, options.record_set, path)
        return records, _image(records, options, path)
    able = [records for records in metadata.record_sets if _images(records, options)]
    if len(able) == 1:
        return able[0], _image(able[0], options, path)
    if able:
        raise InputError(
            "several record sets of this description have images",
            code="conflict",
            path=path,
            found=", ".join(records.id for records in able),
            expected="one",
            remedy="name it with record_set= (--record-set)",
        )
    if options.image is not None:
        problem = f"no record set has a field {options.image!r}"
    else:
        problem = f"no record set of this description has an image: a field of dataType {_IMAGE}"
    raise InputError(
        problem,
        code="no-data",
        path=path,
        found="; ".join(_described(records) for records in metadata.record_sets) or "no record set",
        remedy="name the field of the image with image= (--image); or read the files without their "
        "description: format=folder or webdataset",
    )


def _record_set(metadata: Metadata, name: str, path: Path) -> RecordSet:
    try:
        return metadata.record_set(name)
    except KeyError:
        raise InputError(
            "the description does not have this record set",
            code="unknown-name",
            path=path,
            found=name,
            expected=", ".join(records.id for records in metadata.record_sets) or "none",
        ) from None


def _image(records: RecordSet, options: Options, path: Path) -> Field:
    found = _images(records, options)
    if len(found) == 1:
        return found[0]
    raise InputError(
        "the records have several images" if found else "the records have no image",
        code="conflict",
        path=path,
        place=records.id,
        found=_described(records),
        expected=f"one field of dataType {_IMAGE}" if options.image is None else options.image,
        remedy="name the field with image= (--image)",
    )


def _images(records: RecordSet, options: Options) -> list[Field]:
    """The fields that may be the image: the one that was named, or all that are declared as one."""
    if options.image is not None:
        return [field for field in records.fields if _is_called(field, options.image)]
    dropped = _named(records, options.drop)
    found: list[Field] = []
    for field in records.fields:
        able = _IMAGE in field.data_types and not field.is_list and field not in dropped
        if able and not any(_is_same(field, other) for other in found):
            found.append(field)
    return found


def _is_same(one: Field, two: Field) -> bool:
    """Whether two fields take one field's values: a table may name its files in two columns."""
    return (
        one.source is not None
        and two.source is not None
        and one.source.kind == two.source.kind == "field"
        and one.source.target == two.source.target
        and not (one.source.transforms or two.source.transforms)
    )


def _described(records: RecordSet) -> str:
    fields = []
    for field in records.fields:
        kind = ", ".join(field.data_types) or "no type"
        fields.append(f"{field.short} ({'list of ' if field.is_list else ''}{kind})")
    return f"{records.id}: {', '.join(fields) or 'no field'}"


def columns_of(records: RecordSet, image: Field, options: Options) -> list[Field]:
    """The fields that become columns: all besides the image and those that are left out."""
    dropped = _named(records, options.drop)
    images = [field for field in records.fields if field is image or _is_same(field, image)]
    return [field for field in records.fields if field not in images and field not in dropped]


def label_of(fields: list[Field], options: Options) -> str | None:
    """The field that becomes the label: the one named, else `label` (then None), else the `cr:Label`."""
    if options.label is not None:
        return _short(fields, options.label)
    if any(field.short == LABEL for field in fields):
        return None
    found = [field.short for field in fields if _LABEL in field.data_types and not field.is_list]
    return found[0] if len(found) == 1 else None


def class_names(metadata: Metadata, fields: list[Field], label: str) -> list[str]:
    """What the numbers 0, 1, 2 ... of a label mean, if it references classes that the description lists.

    Args:
        metadata: the description.
        fields: that become columns.
        label: short name of the one that becomes the label.
    """
    targets = {each.target for field in fields if field.short == label for each in field.references}
    for classes in metadata.record_sets:
        number = next((field for field in classes.fields if field.id in targets), None)
        named = [field for field in classes.fields if _NAME in (field.short, *_meanings(field))]
        if number is None or not classes.data or len(named) != 1 or number is named[0]:
            continue
        rows = [(row.get(number.key), row.get(named[0].key)) for row in classes.data]
        names = {n: text for n, text in rows if type(n) is int and isinstance(text, str)}
        if sorted(names) == list(range(len(rows))) and len(rows) <= MOST_CLASSES:
            return [names[place] for place in range(len(rows))]
    return []


def _meanings(field: Field) -> list[str]:
    return [term.rpartition(":")[2] for term in field.equivalent_properties]


def by_short_names(fields: list[Field], options: Options) -> Options:
    """What the user said of columns, under the short names that they will have."""
    return replace(
        options,
        label=label_of(fields, options),
        id=None if options.id is None else _short(fields, options.id),
        drop=frozenset(_short(fields, name) for name in options.drop),
    )


def _short(fields: list[Field], name: str) -> str:
    return next((field.short for field in fields if _is_called(field, name)), name)


def _named(records: RecordSet, names: frozenset[str]) -> list[Field]:
    return [field for field in records.fields if any(_is_called(field, name) for name in names)]


def _is_called(field: Field, name: str) -> bool:
    return name in (field.id, field.key, field.short)
