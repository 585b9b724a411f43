"""`holdfast data croissant load`, `sql`, `download` and `convert`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from holdfast.command import Answer, Count, Facts, Output, Positive, common, option
from holdfast.data.croissant.loading.rows import Rows
from holdfast.data.croissant.loading.writers import json_line
from holdfast.data.croissant.options import (
    AccessOptions,
    Description,
    FileOptions,
    Filters,
    Mapping,
    Memory,
    grouped,
    pairs,
)
from holdfast.errors import InputError
from holdfast.numbers import counted
from holdfast.progress import remark, track

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.data.croissant.loading.dataset import Dataset
    from holdfast.data.croissant.loading.lazy_table import LazyTable

_PRINTED_AT_ONCE = 8192  # records
_SHOWN = 10  # records of a table, where nothing else is said
Limit = Annotated[
    Count | None,
    option(help=f"Maximum number of records to print (default: {_SHOWN}; all as JSON)."),
]
RecordsFile = Annotated[
    Output | None,
    option(
        "--output",
        "-o",
        "--out",
        metavar="FILE",
        help="Write all records to a file instead: .parquet, .arrow, .jsonl or .csv.",
    ),
]
RecordSets = Annotated[tuple[str, ...], option("--record-set", metavar="ID")]


def load(
    description: Description,
    /,
    *,
    record_set: Annotated[str | None, option(metavar="ID")] = None,
    columns: Annotated[str | None, option(metavar="A,B")] = None,
    filters: Filters = (),
    where: Annotated[str | None, option(metavar="SQL", allow_leading_hyphen=True)] = None,
    on_misfit: Literal["error", "null", "keep"] = "error",
    limit: Limit = None,
    form: Annotated[Literal["table", "jsonl"], option("--format")] = "table",
    out: RecordsFile = None,
    explain: bool = False,
    files: FileOptions = FileOptions(),
    access: AccessOptions = AccessOptions(),
    memory: Memory = None,
) -> Answer | None:
    """Print or export the records of a record set; without --record-set, list the record sets.

    Args:
        record_set: Id or name of the record set (default: list all).
        columns: Only these fields, by id or short name.
        where: SQL condition on the records, such as "split = 'train' AND label > 3".
        on_misfit: Value that does not fit its type: fail, make it null, or keep its column as text.
        form: Output format: a table, or JSON Lines with bytes in base64 (as --json).
        explain: Print the query plan and the files it reads instead of records.
    """
    dataset = _open(description, files, access, memory)
    if record_set is None:
        from holdfast.data.croissant.loading.contents import Contents

        return Contents(dataset.metadata)
    names = (
        None if columns is None else [name for part in columns.split(",") if (name := part.strip())]
    )
    records = dataset.records(
        record_set, columns=names, filters=_conditions(filters, where), on_misfit=on_misfit
    )
    if explain:
        print(records.explain())
        return None
    answer = _deliver(records, limit, out, as_lines=form == "jsonl")
    for text in records.remarks():
        remark(text)
    if on_misfit != "error":
        becomes = "null" if on_misfit == "null" else "the column is text"
        for name, number in records.misfits().items():
            remark(
                f"{name}: {counted(number, 'value')} in its files do not fit its type: {becomes}"
            )
    return answer


def sql(
    description: Description,
    query: str,
    /,
    *,
    limit: Limit = None,
    out: RecordsFile = None,
    files: FileOptions = FileOptions(),
    access: AccessOptions = AccessOptions(),
    memory: Memory = None,
) -> Answer | None:
    """Run a SQL query over the record sets.

    Args:
        query: SQL query; record sets are tables, short field names are columns.
    """
    return _deliver(_open(description, files, access, memory).sql(query), limit, out)


def download(
    description: Description,
    /,
    *,
    record_sets: RecordSets = (),
    filters: Filters = (),
    lock: bool = False,
    update_lock: bool = False,
    mapping: Mapping = (),
    access: AccessOptions = AccessOptions(),
    parallel: Positive = 8,
) -> Answer:
    """Download the files of a dataset into the cache: parallel, resumable, verified by checksum.

    Args:
        record_sets: Fetch only the files of this record set; repeatable.
        lock: Write croissant.lock.json with the URL and checksum of each file.
        update_lock: Accept changes since the lock file was written.
        parallel: Number of parallel downloads.
    """
    from holdfast.data.croissant.files import downloading

    return downloading.download(
        description,
        record_sets=list(record_sets) or None,
        filters=_filters(filters),
        mapping=pairs(mapping, "--map"),
        lock=lock,
        update_lock=update_lock,
        parallel=parallel,
        **vars(access),
    )


def _open(
    description: str, files: FileOptions, access: AccessOptions, memory: str | None
) -> Dataset:
    from holdfast.data.croissant.loading.dataset import Dataset

    return Dataset(description, memory_limit=memory, **files.build(), **vars(access))


def _filters(given: tuple[str, ...]) -> dict[str, list[str]] | None:
    """``--filter`` as `Dataset.records` takes it: each field's values are alternatives."""
    return grouped(given, "--filter") or None


def _conditions(given: tuple[str, ...], where: str | None) -> dict[str, list[str]] | str | None:
    """``--filter`` or ``--where`` as `Dataset.records` takes it."""
    if given and where is not None:
        raise InputError(
            "--filter and --where exclude each other",
            code="conflict",
            expected="one of them",
            remedy="write all conditions in --where, joined by AND",
        )
    return _filters(given) if where is None else where


def _deliver(
    records: LazyTable, limit: int | None, out: Path | None, as_lines: bool = False
) -> Answer | None:
    """Records in a file; or on stdout, as JSON Lines in memory that does not grow, or as a table."""
    if out is not None:
        return _write(records, out)
    if as_lines or common().as_json:
        chosen = records if limit is None else records.head(limit)
        for batch in chosen.batches(_PRINTED_AT_ONCE):
            sys.stdout.writelines(f"{json_line(record)}\n" for record in batch.to_pylist())
        return None
    return Rows(records.head(_SHOWN if limit is None else limit).to_arrow())


def _write(records: LazyTable, out: Path) -> Answer:
    """All records into a file."""
    from holdfast.data.croissant.loading.writers import write_batches

    with track(f"writing {out.name}", None, "records") as bar:

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in records.batches():
                yield batch
                bar.advance(batch.num_rows)

        rows = write_batches(batches(), records.schema, out)
    remark(f"{counted(rows, 'record')} in {out}")
    return Facts({"path": str(out), "records": rows})
