"""`holdfast data croissant load`, `sql`, `download` and `convert`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.console import JsonOption, QuietOption, emit, remark
from holdfast.data.croissant.commands.options import (
    CacheOption,
    ColumnsOption,
    DescriptionArgument,
    FilterOption,
    MapOption,
    MemoryOption,
    OfflineOption,
    grouped,
    names_of,
    pairs,
    rows_table,
)
from holdfast.data.croissant.converting.json_lines import json_line
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
        help=f"How many records to print; by default {_SHOWN}, and all as JSON.",
        show_default=False,
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        help="Write all records instead: .parquet, .arrow, .jsonl or .csv.",
    ),
]


def load(
    description: DescriptionArgument,
    record_set: Annotated[
        str | None,
        typer.Option(
            "--record-set", metavar="ID", help="Its id or name; without it, they are listed."
        ),
    ] = None,
    columns: ColumnsOption = None,
    filters: FilterOption = None,
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            metavar="SQL",
            help="Only records for which this is true, such as \"split = 'train' AND label > 3\".",
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
            help="What to print: a table for people, or JSON Lines, bytes in base64 (as --json does).",
        ),
    ] = Printed.table,
    out: OutOption = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print the query and the files it reads instead.")
    ] = False,
    mapping: MapOption = None,
    cache: CacheOption = None,
    memory: MemoryOption = None,
    offline: OfflineOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """The records of a record set: the first of them, all as JSON Lines, or all into a file."""
    dataset = _open(description, mapping, cache, memory, offline)
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
        _write(records, out, quiet)
    else:
        _print(records, limit, as_json or form is Printed.jsonl)
    if on_misfit is OnMisfit.null and not explain:
        for name, number in records.misfits().items():
            said = f"{name}: {counted(number, 'value')} in its files do not fit its type: null"
            remark(said, quiet)


def sql(
    description: DescriptionArgument,
    query: Annotated[
        str,
        typer.Argument(
            metavar="QUERY", help="SQL; record sets are tables, their fields' short names columns."
        ),
    ],
    limit: LimitOption = None,
    out: OutOption = None,
    mapping: MapOption = None,
    cache: CacheOption = None,
    memory: MemoryOption = None,
    offline: OfflineOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """What a query over the record sets finds."""
    dataset = _open(description, mapping, cache, memory, offline)
    found = dataset.sql(query)
    if out is not None:
        _write(found, out, quiet)
    else:
        _print(found, limit, as_json)


def download(
    description: DescriptionArgument,
    record_sets: Annotated[
        list[str] | None,
        typer.Option(
            "--record-set", metavar="ID", help="Only the files behind this record set; repeatable."
        ),
    ] = None,
    filters: FilterOption = None,
    lock: Annotated[
        bool,
        typer.Option(
            "--lock", help="Write croissant.lock.json: what was fetched, by address and checksum."
        ),
    ] = False,
    update_lock: Annotated[
        bool,
        typer.Option("--update-lock", help="Accept what has changed since the lock was written."),
    ] = False,
    mapping: MapOption = None,
    cache: CacheOption = None,
    parallel: Annotated[
        int, typer.Option("--parallel", metavar="N", min=1, help="Files fetched at a time.")
    ] = 8,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Fetch a dataset's files into the cache: in parallel, resumable, proved by their checksums."""
    from holdfast.data.croissant.files import downloading

    found = downloading.download(
        description,
        record_sets=record_sets,
        filters=_filters(filters),
        mapping=pairs(mapping, "--map"),
        cache=cache,
        lock=lock,
        update_lock=update_lock,
        parallel=parallel,
    )
    emit(found, as_json, _downloaded)


def convert(
    description: DescriptionArgument,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="The new dataset's folder.")
    ],
    record_sets: Annotated[
        list[str] | None,
        typer.Option("--record-set", metavar="ID", help="Only this record set; repeatable."),
    ] = None,
    form: Annotated[
        Form, typer.Option("--to", help="What the records are written as.")
    ] = Form.parquet,
    filters: FilterOption = None,
    mapping: MapOption = None,
    cache: CacheOption = None,
    memory: MemoryOption = None,
    offline: OfflineOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write record sets into files of one kind, with a description of them that loads the same records."""
    from holdfast.data.croissant.converting import exporting

    dataset = _open(description, mapping, cache, memory, offline)
    found = exporting.convert(
        dataset, out, record_sets=record_sets, form=form.value, filters=_filters(filters)
    )
    emit(found, as_json, _converted)
    remark(f"description: {found.description}", quiet)


def _open(
    description: Path,
    mapping: list[str] | None,
    cache: Path | None,
    memory: str | None,
    offline: bool,
) -> Dataset:
    from holdfast.data.croissant.loading.dataset import Dataset

    return Dataset(
        description,
        mapping=pairs(mapping, "--map"),
        cache=cache,
        memory_limit=memory,
        offline=offline,
    )


def _filters(given: list[str] | None) -> dict[str, list[str]] | None:
    """``--filter`` as `Dataset.records` takes it: each field's values are alternatives."""
    return grouped(given, "--filter") or None


def _conditions(given: list[str] | None, where: str | None) -> dict[str, list[str]] | str | None:
    """``--filter`` or ``--where`` as `Dataset.records` takes it."""
    if given and where is not None:
        raise InputError(
            "--filter and --where are both given",
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


def _write(records: LazyTable, out: Path, quiet: bool) -> None:
    """All records into a file."""
    from holdfast.data.croissant.converting.writers import write_batches

    with track(f"writing {out.name}", None, "records") as bar:

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in records.batches():
                yield batch
                bar.advance(batch.num_rows)

        rows = write_batches(batches(), records.schema, out)
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
        {"file": "left", "size": "right", "fetched": "right", "where": "left"},
        [
            (one.resource, size(one.size), "–" if one.cached else size(one.received), one.path)
            for one in found.files
        ],
        caption=(
            f"{size(found.bytes_fetched)} fetched, {size(found.bytes_cached)} were here already"
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
