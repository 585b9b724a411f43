"""`sacctmgr show event -P`: the periods in which nodes were down or drained.

Any subset of the columns that has NodeName and TimeStart is read, with any delimiter; a reason may hold
the delimiter. Rows without a node are events of the whole cluster and are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.formats.batch import Batch, Format, ReadOptions
from holdfast.fleet.formats.clean import faults
from holdfast.fleet.formats.columns import table_of
from holdfast.fleet.formats.delimited import (
    Header,
    header_at,
    header_of,
    place_rejects,
    read_delimited,
)
from holdfast.fleet.formats.fields import is_blank, parse_time
from holdfast.fleet.formats.source import Rejects, decompressed_size, nothing_new
from holdfast.fleet.schema import NODE_OUTAGES

_NODE = ("NodeName", "Node Name")
_START = ("TimeStart", "Start")
_FREE_TEXT = "Reason"  # an administrator may write "cable reseat | ticket 4711"
_FLAGS = r"[*~#$%@+^!\-]+$"  # what Slurm appends to a node's state: "*" = does not respond ...


def _sniff(head: bytes, path: Path) -> bool:
    header = header_of(head)
    # Case matters: a home-made failure log may well say "node" and "start".
    return (
        header is not None
        and any(name in header.names for name in _NODE)
        and any(name in header.names for name in _START)
    )


def _read(path: Path, options: ReadOptions, offset: int) -> Iterator[Batch]:
    if nothing_new(path, offset):
        return
    header = header_at(path, options.delimiter)
    rejects = Rejects(str(path))
    bad: dict[int, str] = {}
    records = 0
    for piece in read_delimited(path, header, quoted=False, free_text=_FREE_TEXT):
        table, reasons = _outages(header, piece, options)
        for index in pc.indices_nonzero(pc.is_valid(reasons)).to_pylist():
            bad[records + index] = reasons[index].as_py()
        records += piece.num_rows
        yield Batch({"node_outages": table})
    place_rejects(path, header, bad, records, rejects, quoted=False, free_text=_FREE_TEXT)
    yield Batch({"rejects": rejects.table()}, decompressed_size(path))


def _outages(header: Header, piece: pa.Table, options: ReadOptions) -> tuple[pa.Table, pa.Array]:
    def column(*names: str) -> pa.Array:
        name = header.find(*names)
        if name is None:
            return pa.array([""] * piece.num_rows)
        return piece.column(header.names.index(name)).combine_chunks()

    start, end = (column(*_START), column("TimeEnd", "End"))
    node = pc.utf8_trim_whitespace(column(*_NODE))
    start_s, end_s = (parse_time(value, options.timezone) for value in (start, end))
    reasons = pc.if_else(
        pc.is_null(start_s),
        "no start time that can be read",
        pc.if_else(
            pc.and_(pc.is_null(end_s), pc.invert(is_blank(end))),
            "no end time that can be read",
            None,
        ),
    )
    of_cluster = pc.equal(node, "")
    state = pc.replace_substring_regex(column("State"), _FLAGS, "")
    table = table_of(
        NODE_OUTAGES,
        {
            "cluster": column("Cluster", "ClusterName"),
            "node": node,
            "start_s": start_s,
            "end_s": end_s,
            "state": pc.if_else(pc.equal(state, ""), "DOWN", state),
            "reason": column("Reason"),
        },
        piece.num_rows,
    )
    reasons = pc.coalesce(reasons, faults(table))
    reasons = pc.if_else(of_cluster, pa.scalar(None, pa.string()), reasons)
    return table.filter(pc.and_(pc.is_null(reasons), pc.invert(of_cluster))), reasons


SLURM_EVENTS = Format(
    "slurm-events", "node down and drain periods of `sacctmgr show event -P`", _sniff, _read
)
FORMATS = (SLURM_EVENTS,)
