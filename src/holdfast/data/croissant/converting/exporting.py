"""`convert`: record sets as files of one kind, with a description that loads the same records."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.data.croissant.converting.writers import FORMATS, check, write_batches
from holdfast.data.croissant.document.model import Field, RecordSet
from holdfast.data.croissant.document.writing import write_json
from holdfast.data.croissant.evolving.migrating import migrate
from holdfast.errors import InputError
from holdfast.files import atomic_folder
from holdfast.progress import track

if TYPE_CHECKING:
    from holdfast.data.croissant.loading.dataset import Dataset

DESCRIPTION = "metadata.json"


@dataclass(frozen=True)
class Written:
    """One record set in its new file."""

    record_set: str
    path: Path
    records: int
    bytes: int


@dataclass(frozen=True)
class Converted:
    """What `convert` made.

    Attributes:
        folder: the new dataset.
        description: its Croissant file.
        written: each record set that has a file now; those with inline data stay in the description.
    """

    folder: Path
    description: Path
    written: tuple[Written, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON that programs read."""
        return asdict(self)


def convert(
    dataset: Dataset,
    out: str | Path,
    *,
    record_sets: Sequence[str] | None = None,
    form: str = "parquet",
    filters: Mapping[str, Any] | str | None = None,
) -> Converted:
    """Write record sets into one file each, and a Croissant 1.1 description beside them.

    Args:
        dataset: what is read.
        out: the new folder; it appears when everything is in it.
        record_sets: ids or names; by default every record set, those of inline data in the description.
        form: parquet, arrow, jsonl or csv.
        filters: as `Dataset.records` takes them; for every record set that has the field.

    Raises:
        InputError: the folder is there already, an unknown record set, or values that the form cannot hold.
    """
    folder = Path(out)
    if folder.exists():
        raise InputError(
            "the folder exists", code="output-exists", path=folder, remedy="choose a new folder"
        )
    wanted = _chosen(dataset, record_sets)
    names = _file_names(wanted, form)
    for records in wanted:
        if records.data is None:
            check(dataset.records(records.id).schema, folder / names[records.id])
    with atomic_folder(folder) as draft:
        written = []
        for records in wanted:
            if records.data is None:
                rows = _write(dataset, records, draft / names[records.id], filters)
                size = (draft / names[records.id]).stat().st_size
                written.append(Written(records.id, folder / names[records.id], rows, size))
        described = _describe(dataset, wanted, names, draft)
        write_json(described, draft / DESCRIPTION)
    return Converted(folder, folder / DESCRIPTION, tuple(written))


def _chosen(dataset: Dataset, record_sets: Sequence[str] | None) -> list[RecordSet]:
    if record_sets is None:
        return list(dataset.metadata.record_sets)
    return [dataset.records(name).record_set for name in record_sets]


def _file_names(record_sets: Sequence[RecordSet], form: str) -> dict[str, str]:
    """A file's name for each record set: its id, made safe and unique."""
    names: dict[str, str] = {}
    for records in record_sets:
        plain = re.sub(r"[^\w.-]+", "_", records.id).strip("._") or "records"
        stem, number = plain, 1
        while f"{stem}.{form}".casefold() in (name.casefold() for name in names.values()):
            number += 1
            stem = f"{plain}_{number}"
        names[records.id] = f"{stem}.{form}"
    return names


def _write(
    dataset: Dataset, records: RecordSet, path: Path, filters: Mapping[str, Any] | str | None
) -> int:
    import pyarrow as pa

    chosen = filters
    if isinstance(filters, Mapping):
        chosen = {name: value for name, value in filters.items() if _has(records, name)}
    loaded = dataset.records(records.id, filters=chosen or None)
    names = [_column(loaded.record_set.field(name)) for name in loaded.schema.names]
    schema = pa.schema(
        [part.with_name(name) for part, name in zip(loaded.schema, names, strict=True)]
    )
    with track(f"writing {records.id}", None, "records") as bar:

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in loaded.batches():
                yield batch.rename_columns(names)
                bar.advance(batch.num_rows)

        return write_batches(batches(), schema, path)


def _has(records: RecordSet, field: str) -> bool:
    try:
        records.field(field)
    except KeyError:
        return False
    return True


def _column(field: Field) -> str:
    """What a field's column is called in its file."""
    return field.short


def _describe(
    dataset: Dataset, record_sets: Sequence[RecordSet], files: Mapping[str, str], folder: Path
) -> dict[str, Any]:
    """The original's description, in 1.1, of the files that now hold the records."""
    described = dict(migrate(dataset.document, to="1.1").metadata)
    ids = {records.id: records for records in record_sets}
    described["distribution"] = [
        _file_object(folder / files[name]) for name, records in ids.items() if records.data is None
    ]
    described["recordSet"] = [
        given
        if ids[given["@id"]].data is not None
        else _record_set(given, ids, files[given["@id"]])
        for given in _many(described.get("recordSet"))
        if given["@id"] in ids
    ]
    return described


def _file_object(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {
        "@type": "cr:FileObject",
        "@id": path.name,
        "name": path.name,
        "contentUrl": path.name,
        "contentSize": f"{path.stat().st_size} B",
        "encodingFormat": FORMATS[path.suffix[1:]],
        "sha256": digest,
    }


def _record_set(
    given: Mapping[str, Any], chosen: Mapping[str, RecordSet], file: str
) -> dict[str, Any]:
    """A record set whose fields are columns of a file."""
    records = chosen[given["@id"]]
    fields = {field.id: field for field in records.fields}
    return {
        **given,
        "field": [
            _field(part, fields[part["@id"]], chosen, file, _column(fields[part["@id"]]), ())
            for part in _many(given.get("field"))
        ],
    }


def _field(
    given: Mapping[str, Any],
    field: Field,
    chosen: Mapping[str, RecordSet],
    file: str,
    column: str,
    inside: tuple[str, ...],
) -> dict[str, Any]:
    """A field, or a sub-field that stands inside the column's values."""
    kept = {
        name: value
        for name, value in given.items()
        if name not in ("source", "value", "references", "parentField", "subField")
    }
    if field.data_types:  # what has sub-fields need not have one
        [first, *more] = field.data_types
        kept["dataType"] = [first, *more] if more else first
    if any(_record_set_of(source.target, chosen) for source in field.references):
        kept["references"] = given["references"]
    if field.sub_fields:
        subs = {sub.id: sub for sub in field.sub_fields}
        kept["subField"] = [
            _field(part, subs[part["@id"]], chosen, file, column, (*inside, subs[part["@id"]].key))
            for part in _many(given.get("subField"))
        ]
        return kept
    kept["source"] = {"fileObject": {"@id": file}, "extract": {"column": column}}
    if inside:
        path = "$" + "".join(f"[{json.dumps(name)}]" for name in inside)
        kept["source"]["transform"] = {"jsonPath": path}
    return kept


def _record_set_of(field: str, chosen: Mapping[str, RecordSet]) -> RecordSet | None:
    """The chosen record set that has a field of this id."""
    for records in chosen.values():
        if any(part.id == field for part in records.fields):
            return records
    return None


def _many(value: Any) -> list[Any]:
    """One or many, as a list."""
    return value if isinstance(value, list) else [] if value is None else [value]
