"""Node-failure logs: a CSV with one outage a row, for fleets that keep no scheduler log.

============  ====================================================================================
node          node, host, hostname, nodename, node_name, nodenum
start         start, start_time, failed, failure_start, began, down, prob started ...
end           end, end_time, repaired, failure_end, fixed, up, prob fixed ...
cluster       cluster, cluster_name, system, system_id, machine
cause         cause, root_cause, reason, category, type; or LANL's columns Facilities, Hardware,
              Human Error, Network, Undetermined, Software (the one that is filled, then its text)
============  ====================================================================================

Node and start are required. Times are ISO 8601, seconds since 1970, or ``6/21/05 14:26`` (month first)
as in the failure data that LANL released. An empty end means that the outage is not over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import InputError
from holdfast.fleet.formats.batch import Batch, Format, ReadOptions
from holdfast.fleet.formats.clean import faults
from holdfast.fleet.formats.columns import Column, flat, table_of
from holdfast.fleet.formats.delimited import (
    Header,
    header_at,
    header_of,
    place_rejects,
    read_delimited,
)
from holdfast.fleet.formats.fields import is_blank
from holdfast.fleet.formats.health import ALIASES, event_times
from holdfast.fleet.formats.source import Rejects, decompressed_size, nothing_new
from holdfast.fleet.schema import NODE_OUTAGES

_NODE = ("node", "host", "hostname", "nodename", "node_name", "nodenum", "server")
_START = (
    "start",
    "start_time",
    "started",
    "failed",
    "failure_start",
    "failure_time",
    "began",
    "down",
    "prob started",
    "prob started (mm/dd/yy hh:mm)",
)
_END = (
    "end",
    "end_time",
    "ended",
    "repaired",
    "failure_end",
    "fixed",
    "restored",
    "up",
    "prob fixed",
    "prob fixed (mm/dd/yy hh:mm)",
)
_CAUSE = ("cause", "root_cause", "root cause", "failure_cause", "reason", "category", "type")
_CLUSTER = ("cluster", "cluster_name", "system", "system_id", "machine")
_LANL_CAUSES = ("Facilities", "Hardware", "Human Error", "Network", "Undetermined", "Software")
_US_FORMATS = (("%m/%d/%y %H:%M", r"^\d+/\d+/\d\d "), ("%m/%d/%Y %H:%M", r"^\d+/\d+/\d{4} "))


def _sniff(head: bytes, path: Path) -> bool:
    header = header_of(head)
    return header is not None and _is_failure_log(header)


def _is_failure_log(header: Header) -> bool:
    return (
        header.find(*_NODE) is not None
        and header.find(*_START) is not None
        and (header.find(*_END, *_CAUSE, *_LANL_CAUSES) is not None)
        and header.find(*ALIASES["check"], "JobID", "job_id", "job") is None
    )


def _read(path: Path, options: ReadOptions, offset: int) -> Iterator[Batch]:
    if nothing_new(path, offset):
        return
    header = header_at(path, options.delimiter)
    if not _is_failure_log(header):
        raise InputError(
            "this is not a log of node failures",
            code="unknown-format",
            path=path,
            place="line 1",
            found=", ".join(header.names),
            expected="columns node, start, end, cause",
            remedy="name the columns so, or describe them with --map",
        )
    rejects = Rejects(str(path))
    bad: dict[int, str] = {}
    records = 0
    for piece in read_delimited(path, header, quoted=True):
        table, reasons = _outages(header, piece, options.timezone)
        for index in pc.indices_nonzero(pc.is_valid(reasons)).to_pylist():
            bad[records + index] = reasons[index].as_py()
        records += piece.num_rows
        yield Batch({"node_outages": table})
    place_rejects(path, header, bad, records, rejects, quoted=True)
    yield Batch({"rejects": rejects.table()}, decompressed_size(path))


def _outages(header: Header, piece: pa.Table, zone: ZoneInfo) -> tuple[pa.Table, pa.Array]:
    def column(*names: str) -> pa.Array:
        name = header.find(*names)
        if name is None:
            return pa.array([""] * piece.num_rows)
        return pc.utf8_trim_whitespace(flat(piece.column(header.names.index(name))))

    cause, cluster = _cause(header, column), column(*_CLUSTER)
    return outages_table(column(*_NODE), column(*_START), column(*_END), cause, zone, cluster)


def outages_table(
    node: Column, start: Column, end: Column, cause: Column, zone: ZoneInfo, cluster: Column
) -> tuple[pa.Table, pa.Array]:
    """Node failures from a log's own columns, each of shape ``[n]``.

    Returns:
        The usable rows in `schema.NODE_OUTAGES`, and for each of the `n` records why it is not among
        them (null: it is).
    """
    start_s, end_s = (_times(value, zone) for value in (start, end))
    unread_end = pc.and_(pc.is_null(end_s), pc.invert(is_blank(end.cast(pa.string()))))
    reasons = pc.if_else(
        is_blank(node.cast(pa.string())),
        "no node",
        pc.if_else(
            pc.is_null(start_s),
            "no start time that can be read",
            pc.if_else(unread_end, "no end time that can be read", None),
        ),
    )
    cause = cause.cast(pa.string())
    table = table_of(
        NODE_OUTAGES,
        {
            "cluster": cluster.cast(pa.string()),
            "node": node.cast(pa.string()),
            "start_s": start_s,
            "end_s": end_s,
            "state": pa.array(["FAILURE"] * len(start_s), pa.string()),
            "cause": pc.if_else(is_blank(cause), pa.scalar(None, pa.string()), cause),
        },
        len(start_s),
    )
    reasons = pc.coalesce(reasons, faults(table))
    return table.filter(pc.is_null(reasons)), reasons


def _times(values: Column, zone: ZoneInfo) -> pa.Array:
    array = flat(values)
    found = event_times(array, zone)
    if pa.types.is_string(array.type):
        for form, shape in _US_FORMATS:
            fits = pc.if_else(
                pc.match_substring_regex(array, shape), array, pa.scalar(None, pa.string())
            )
            if fits.null_count < len(fits):
                local = pc.strptime(fits, format=form, unit="s", error_is_null=True)
                found = pc.coalesce(found, event_times(local, zone))
    return pc.floor(found).cast(pa.int64())


def _cause(header: Header, column: Callable[..., pa.Array]) -> pa.Array:
    if header.find(*_CAUSE) is not None:
        return column(*_CAUSE)
    cause = column()
    for name in _LANL_CAUSES:
        text = column(name)
        named = pc.binary_join_element_wise(pa.scalar(name), text, ": ")
        cause = pc.if_else(pc.and_(pc.equal(cause, ""), pc.not_equal(text, "")), named, cause)
    return cause


NODE_LOG = Format("node-log", "node failures as CSV (node, start, end, cause)", _sniff, _read)
FORMATS = (NODE_LOG,)
