"""`sacctmgr show qos -P`: priorities, grace times and who may preempt whom."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.formats.batch import Batch, Format, ReadOptions
from holdfast.fleet.formats.columns import by_distinct, table_of
from holdfast.fleet.formats.delimited import header_at, header_of, place_rejects, read_delimited
from holdfast.fleet.formats.fields import is_blank, parse_duration, parse_integer
from holdfast.fleet.formats.source import Rejects, decompressed_size, nothing_new
from holdfast.fleet.schema import QOS


def _sniff(head: bytes, path: Path) -> bool:
    header = header_of(head)
    return (
        header is not None
        and {"Name", "Priority"} <= set(header.names)
        and bool({"GraceTime", "Preempt"} & set(header.names))
    )


def _read(path: Path, options: ReadOptions, offset: int) -> Iterator[Batch]:
    if nothing_new(path, offset):
        return
    header = header_at(path, options.delimiter)
    rejects = Rejects(str(path))
    bad: dict[int, str] = {}
    records = 0
    for piece in read_delimited(path, header, quoted=False):
        empty = pa.array([""] * piece.num_rows)
        columns = {
            name: piece.column(header.names.index(name)) if name in header.names else empty
            for name in ("Name", "Priority", "GraceTime", "Preempt")
        }
        nameless = is_blank(columns["Name"])
        for index in pc.indices_nonzero(nameless).to_pylist():
            bad[records + index] = "no name"
        records += piece.num_rows
        table = table_of(
            QOS,
            {
                "qos": columns["Name"],
                "priority": parse_integer(columns["Priority"]),
                "grace_s": parse_duration(columns["GraceTime"]),
                "preempts": by_distinct(columns["Preempt"], _names, pa.list_(pa.string())),
            },
            piece.num_rows,
        )
        yield Batch({"qos": table.filter(pc.invert(nameless))})
    place_rejects(path, header, bad, records, rejects, quoted=False)
    yield Batch({"rejects": rejects.table()}, decompressed_size(path))


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


SLURM_QOS = Format("slurm-qos", "qualities of service of `sacctmgr show qos -P`", _sniff, _read)
FORMATS = (SLURM_QOS,)
