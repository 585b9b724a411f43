"""What every format reader yields, and what ingest tells it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa

from holdfast.errors import InputError
from holdfast.fleet.formats.clean import clean
from holdfast.fleet.formats.columns import Column, with_cluster


@dataclass(frozen=True)
class ReadOptions:
    """What a reader may need to know beyond the file itself."""

    timezone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))
    """Zone of times that are written without one (sacct prints local time)."""
    cluster: str = ""
    """Cluster name for formats that do not carry one."""
    delimiter: str | None = None
    """Field delimiter of sacct text; None: detect."""
    columns: str | None = None
    """Columns of sacct text without a header, as given to `sacct --format`."""
    column_map: Path | None = None
    """TOML map from the columns of a CSV or Parquet file to the schema."""
    gpus_per_node: int | None = None
    """GPUs of a node, for formats (SWF) that count processors or nodes only."""
    start: int = 0
    """Bytes of a growing log of lines that were read before."""
    end: int | None = None
    """Bytes up to which it is read now; None: all."""


@dataclass(frozen=True)
class Batch:
    """A piece of a source, read: rows in the schemas of `holdfast.fleet.schema`."""

    tables: Mapping[str, pa.Table]
    """Name in `schema.TABLES` (or "steps") -> rows. The column `key` may be left out; ingest fills it."""
    offset: int = 0
    """Bytes of the decompressed source consumed so far."""
    steps: int = 0
    """sacct step records in this piece (they are not jobs)."""
    facts: Mapping[str, object] = field(default_factory=dict)
    """What the reader noticed about the source, for `store.json` (columns, version, time zone ...)."""
    lines: Mapping[str, Column] = field(default_factory=dict)
    """Table -> 1-based line of each of its rows in the source, where the reader knows it."""


@dataclass(frozen=True)
class Format:
    """One input format: how to recognise it and how to read it."""

    name: str
    """As the user writes it after ``--format``."""
    describes: str
    """One line for the help text and for errors."""
    sniff: Callable[[bytes, Path], bool]
    """(first 64 KiB of the decompressed source, path) -> is it this format?"""
    read: Callable[[Path, ReadOptions], Iterator[Batch]]
    """(path, options) -> batches, in order, as the file has them."""

    def batches(self, path: Path, options: ReadOptions) -> Iterator[Batch]:
        """What `read` gives, with impossible rows among the rejects (`clean`)."""
        for batch in self.read(path, options):
            columns = batch.facts.get("columns")
            if isinstance(columns, list):
                _require_times(path, columns)
            tables = clean(batch.tables, batch.lines, path)
            tables = {name: with_cluster(table, options.cluster) for name, table in tables.items()}
            yield replace(batch, tables=tables)


def _require_times(path: Path, columns: list[str]) -> None:
    """Refuse a log of `sacct` whose attempts have no times: it would show no failure at all."""
    missing = [name for name in ("Start", "End") if name not in columns]
    if missing:
        raise InputError(
            f"missing column: {' and '.join(missing)}; without it no failure rate is known",
            code="missing-column",
            path=path,
            place="header",
            found=", ".join(columns[:12]),
            expected="at least JobID, State, Submit, Start, End, NodeList",
            remedy="export again with `sacct -a -D -P --format=ALL`",
        )
