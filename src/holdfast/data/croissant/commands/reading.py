"""`holdfast data croissant load`, `sql`, `download` and `convert`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.console import JsonOption, QuietOption, emit, remark
from holdfast.data.croissant.commands.options import (
    ColumnsOption,
    DescriptionArgument,
    EncodingOption,
    FilterOption,
    MapOption,
    MemoryOption,
    encodings,
    grouped,
    names_of,
    pairs,
    rows_table,
    with_access,
)
from holdfast.data.croissant.converting.json_lines import json_line
from holdfast.data.croissant.fetching.access import Access
from holdfast.errors import InputError
from holdfast.numbers import counted, size
from holdfast.progress import track

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import RenderableType

    from holdfast.data.croissant.converting.exporting import Converted
    from holdfast.data.croissant.files.downloading import Downloaded
    from holdfast.data.croissant.loading.contents import Contents
    from holdfast.data.croissant.loading.dataset import Dataset
    from holdfast.data.croissant.loading.lazy_table import LazyTable


class Form(Enum):
    """What record sets are written as."""

    parquet = "parquet"
    arrow = "arrow"
    jsonl = "jsonl"
    csv = "csv"


class Printed(Enum):
    """What records are printed as."""

    table = "table"
    jsonl = "jsonl"


class OnMisfit(Enum):
    """What becomes of a value that does not fit its type."""

    error = "error"
    null = "null"


_PRINTED_AT_ONCE = 8192  # records
_SHOWN = 10  # records of a table, where nothing else is said
LimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="N",
        min=0,
        help=f"Maximum number of records to print (default: {_SHOWN}; all as JSON).",
        show_default=False,
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        help="Write all records to a file instead: .parquet, .arrow, .jsonl or .csv.",
    ),
]


@with_access
def load(
    description: DescriptionArgument,
    record_set: Annotated[
        str | None,
        typer.Option(
            "--record-set", metavar="ID", help="Id or name of the record set (default: list all)."
        ),
    ] = None,
    columns: ColumnsOption = None,
    filters: FilterOption = None,
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            metavar="SQL",
            help="SQL condition on the records, such as \"split = 'train' AND label > 3\".",
        ),
    ] = None,
    on_misfit: Annotated[
        OnMisfit,
        typer.Option("--on-misfit", help="What to do with a value that does not fit its type."),
    ] = OnMisfit.error,
    limit: LimitOption = None,
    form: Annotated[
        Printed,
        typer.Option(
            "--format",
            help="Output format: a table, or JSON Lines with bytes in base64 (as --json).",
        ),
    ] = Printed.table,
    out: OutOption = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Print the query plan and the files it reads instead of records."
        ),
    ] = False,
    mapping: MapOption = None,
    encoding: EncodingOption = None,
    access: Access = Access(),  # noqa: B008
    memory: MemoryOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Print or export the records of a record set; without --record-set, list the record sets."""
    dataset = _open(description, mapping, encoding, access, memory)
    if record_set is None:
        from holdfast.data.croissant.loading.contents import Contents

        emit(Contents(dataset.metadata), as_json, _listed)
        return
    records = dataset.records(
        record_set,
        columns=names_of(columns),
        filters=_conditions(filters, where),
        on_misfit=on_misfit.value,
    )
    if explain:
        print(records.explain())
    elif out is not None:
        _write(records, out, as_json, quiet)
    else:
        _print(records, limit, as_json or form is Printed.jsonl)
    if on_misfit is OnMisfit.null and not explain:
        for name, number in records.misfits().items():
            said = f"{name}: {counted(number, 'value')} in its files do not fit its type: null"
            remark(said, quiet)


@with_access
def sql(
    description: DescriptionArgument,
    query: Annotated[
        str,
        typer.Argument(
            metavar="QUERY",
            help="SQL query; record sets are tables, short field names are columns.",
        ),
    ],
    limit: LimitOption = None,
    out: OutOption = None,
    mapping: MapOption = None,
    encoding: EncodingOption = None,
    access: Access = Access(),  # noqa: B008
    memory: MemoryOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run a SQL query over the record sets."""
    dataset = _open(description, mapping, encoding, access, memory)
    found = dataset.sql(query)
    if out is not None:
        _write(found, out, as_json, quiet)
    else:
        _print(found, limit, as_json)


@with_access
def download(
    description: DescriptionArgument,
    record_sets: Annotated[
        list[str] | None,
        typer.Option(
            "--record-set",
            metavar="ID",
            help="Fetch only the files of this record set; repeatable.",
        ),
    ] = None,
    filters: FilterOption = None,
    lock: Annotated[
        bool,
        typer.Option(
            "--lock", help="Write croissant.lock.json with the URL and checksum of each file."
        ),
    ] = False,
    update_lock: Annotated[
        bool,
        typer.Option("--update-lock", help="Accept changes since the lock file was written."),
    ] = False,
    mapping: MapOption = None,
    access: Access = Access(),  # noqa: B008
    parallel: Annotated[
        int, typer.Option("--parallel", metavar="N", min=1, help="Number of parallel downloads.")
    ] = 8,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Download the files of a dataset into the cache: parallel, resumable, verified by checksum."""
    from holdfast.data.croissant.files import downloading

    found = downloading.download(
        description,
        record_sets=record_sets,
        filters=_filters(filters),
        mapping=pairs(mapping, "--map"),
        lock=lock,
        update_lock=update_lock,
        parallel=parallel,
        **asdict(access),
    )
    emit(found, as_json, _downloaded)


@with_access
def convert(
    description: DescriptionArgument,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the new dataset.")
    ],
    record_sets: Annotated[
        list[str] | None,
        typer.Option(
            "--record-set", metavar="ID", help="Convert only this record set; repeatable."
        ),
    ] = None,
    form: Annotated[Form, typer.Option("--to", help="File format of the records.")] = Form.parquet,
    filters: FilterOption = None,
    mapping: MapOption = None,
    encoding: EncodingOption = None,
    access: Access = Access(),  # noqa: B008
    memory: MemoryOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Convert record sets to Parquet, Arrow, JSON Lines or CSV files with a new description."""
    from holdfast.data.croissant.converting import exporting

    dataset = _open(description, mapping, encoding, access, memory)
    found = exporting.convert(
        dataset, out, record_sets=record_sets, form=form.value, filters=_filters(filters)
    )
    emit(found, as_json, _converted)
    remark(f"description: {found.description}", quiet)


def _open(
    description: str,
    mapping: list[str] | None,
    encoding: list[str] | None,
    access: Access,
    memory: str | None,
) -> Dataset:
    from holdfast.data.croissant.loading.dataset import Dataset

    return Dataset(
        description,
        mapping=pairs(mapping, "--map"),
        encoding=encodings(encoding),
        memory_limit=memory,
        **asdict(access),
    )


def _filters(given: list[str] | None) -> dict[str, list[str]] | None:
    """``--filter`` as `Dataset.records` takes it: each field's values are alternatives."""
    return grouped(given, "--filter") or None


def _conditions(given: list[str] | None, where: str | None) -> dict[str, list[str]] | str | None:
    """``--filter`` or ``--where`` as `Dataset.records` takes it."""
    if given and where is not None:
        raise InputError(
            "--filter and --where exclude each other",
            code="conflict",
            expected="one of them",
            remedy="write all conditions in --where, joined by AND",
        )
    return _filters(given) if where is None else where


def _print(records: LazyTable, limit: int | None, as_json: bool) -> None:
    """Records on stdout: JSON Lines, in memory that does not grow with them, or a table for people."""
    if as_json:
        chosen = records if limit is None else records.head(limit)
        for batch in chosen.batches(_PRINTED_AT_ONCE):
            sys.stdout.writelines(f"{json_line(record)}\n" for record in batch.to_pylist())
        return
    from rich.console import Console

    rows = records.head(_SHOWN if limit is None else limit).to_arrow()
    width = None if sys.stdout.isatty() else 160
    Console(width=width).print(rows_table(rows), markup=False, highlight=False)


def _write(records: LazyTable, out: Path, as_json: bool, quiet: bool) -> None:
    """All records into a file."""
    from holdfast.data.croissant.converting.writers import write_batches

    with track(f"writing {out.name}", None, "records") as bar:

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in records.batches():
                yield batch
                bar.advance(batch.num_rows)

        rows = write_batches(batches(), records.schema, out)
    if as_json:
        print(json.dumps({"path": str(out), "records": rows}, indent=2))
    remark(f"{counted(rows, 'record')} in {out}", quiet)


def _listed(found: Contents) -> RenderableType:
    from holdfast.console import table

    return table(
        {"record set": "left", "fields": "left", "key": "left", "inline records": "right"},
        [
            (
                one["id"],
                ", ".join(
                    f"{field['name']} {'/'.join(kind.partition(':')[2] for kind in field['types'])}"
                    + ("[]" if field["many"] else "")
                    for field in one["fields"]
                ),
                ", ".join(one["key"]) or "–",
                "–" if one["inline_records"] is None else one["inline_records"],
            )
            for one in found.to_dict()["record_sets"]
        ],
    )


def _downloaded(found: Downloaded) -> RenderableType:
    from holdfast.console import table

    return table(
        {"file": "left", "size": "right", "fetched": "right", "path": "left"},
        [
            (one.resource, size(one.size), "–" if one.cached else size(one.received), one.path)
            for one in found.files
        ],
        caption=(
            f"{size(found.bytes_fetched)} fetched, {size(found.bytes_cached)} already cached"
            + (f"; locked in {found.lock}" if found.lock else "")
        ),
    )


def _converted(found: Converted) -> RenderableType:
    from holdfast.console import table

    return table(
        {"record set": "left", "file": "left", "records": "right", "size": "right"},
        [
            (one.record_set, one.path.name, f"{one.records:,}", size(one.bytes))
            for one in found.written
        ],
        caption=f"in {found.folder}",
    )
