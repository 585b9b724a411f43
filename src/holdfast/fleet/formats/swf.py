"""Standard Workload Format of the Parallel Workloads Archive (version 2.2): jobs without node names.

18 numbers a line, -1 for unknown; header comments ``; Key: value``. Times are relative to the header's
UnixStartTime. A job that was checkpointed or swapped out has a summary line and then one line per partial
execution; these are left out.

======  ==================================  ==========
status  meaning                             state here
======  ==================================  ==========
0       failed                              FAILED
1       completed                           COMPLETED
2 to 4  partial execution                   left out
5       cancelled                           CANCELLED
-1      unknown                             UNKNOWN
======  ==================================  ==========

The number of nodes follows from MaxProcs/MaxNodes, the number of GPUs from `ReadOptions.gpus_per_node`.
Source: https://www.cs.huji.ac.il/labs/parallel/workload/swf.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import InputError
from holdfast.fleet.formats.batch import Batch, Format, ReadOptions
from holdfast.fleet.formats.columns import table_of
from holdfast.fleet.formats.source import Block, Rejects, blocks
from holdfast.fleet.schema import ATTEMPTS

FIELDS = 18
_HEADER = re.compile(r"^;\s*([A-Za-z]+)\s*:\s*(.*?)\s*$")
_KEYS = {"Version", "Computer", "Installation", "UnixStartTime", "MaxProcs", "MaxNodes", "MaxJobs"}
_NUMBERS = r"^\s*(?:-?\d+(?:\.\d+)?\s+){17}-?\d+(?:\.\d+)?\s*$"
_STATES = {0: "FAILED", 1: "COMPLETED", 5: "CANCELLED"}
_PARTIAL = (2, 3, 4)

# Columns of a record, by the format's own order.
_ID, _SUBMIT, _WAIT, _RUN, _PROCS = 0, 1, 2, 3, 4
_ASKED_PROCS, _ASKED_TIME, _STATUS, _USER, _GROUP, _PROGRAM = 7, 8, 10, 11, 12, 13
_QUEUE, _PARTITION = 14, 15

Numbers = np.ndarray[Any, np.dtype[np.float64]]


def _sniff(head: bytes, path: Path) -> bool:
    lines = [line for line in head.decode(errors="replace").splitlines() if line.strip()]
    if not lines or not (lines[0].startswith(";") or re.match(_NUMBERS, lines[0])):
        return False
    headers = [match[1] for line in lines if (match := _HEADER.match(line))]
    data = [line for line in lines[:-1] or lines if not line.startswith(";")]
    return bool(_KEYS & set(headers)) or any(re.match(_NUMBERS, line) for line in data[:20])


def _read(path: Path, options: ReadOptions) -> Iterator[Batch]:
    rejects = Rejects(str(path))
    header: dict[str, str] = {}
    pieces: list[Numbers] = [np.empty((0, FIELDS + 1))]
    end = 0
    for block in blocks(path):
        pieces.append(_numbers(block, header, rejects))
        end = block.end
    start = _start(header, path)
    records = np.concatenate(pieces)
    attempts = records[~np.isin(records[:, _STATUS], _PARTIAL)]
    table = _attempts(attempts, attempts[:, _SUBMIT] + start, header, options)
    facts = {"format_version": header.get("Version"), "computer": header.get("Computer")}
    lines = {"attempts": pa.array(attempts[:, FIELDS].astype(np.int64))}
    yield Batch({"attempts": table, "rejects": rejects.table()}, end, facts=facts, lines=lines)


def _numbers(block: Block, header: dict[str, str], rejects: Rejects) -> Numbers:
    """Records of a block and their lines, shape ``[n, 19]``; the header's lines go into `header`."""
    lines = block.lines()
    comment = pc.starts_with(lines, ";")
    for text in lines.filter(comment).to_pylist():
        if match := _HEADER.match(text):
            header.setdefault(match[1], match[2])
    good = pc.match_substring_regex(lines, _NUMBERS)
    blank = pc.equal(pc.utf8_trim_whitespace(lines), "")
    reasons = pc.if_else(
        pc.or_(good, pc.or_(comment, blank)), pa.scalar(None, pa.string()), "not 18 numbers"
    )
    places = pa.array(np.arange(block.first_line, block.first_line + len(lines)))
    rejects.add_all(reasons, places, lines)
    words = pc.ascii_split_whitespace(pc.ascii_trim_whitespace(lines.filter(good)))
    values: Numbers = pc.list_flatten(words).cast(pa.float64()).to_numpy(zero_copy_only=False)
    line = places.filter(good).to_numpy().astype(np.float64)
    return np.column_stack([values.reshape(-1, FIELDS), line])


def _start(header: dict[str, str], path: Path) -> int:
    text = header.get("UnixStartTime", "")
    if not re.match(r"^[1-9]\d{0,11}\b", text):
        raise InputError(
            "the log does not say when it starts",
            code="missing-column",
            path=path,
            place="header",
            found=f"UnixStartTime: {text}" if text else "no UnixStartTime",
            expected="a line such as '; UnixStartTime: 833184074' (seconds since 1970)",
            remedy="add the line",
        )
    return int(text.split()[0])


def _attempts(
    records: Numbers, submit: Numbers, header: dict[str, str], options: ReadOptions
) -> pa.Table:
    wait, run = records[:, _WAIT], records[:, _RUN]
    procs = np.where(records[:, _PROCS] > 0, records[:, _PROCS], records[:, _ASKED_PROCS])
    started = (wait >= 0) & (run >= 0) & ~((records[:, _STATUS] == 5) & (run == 0))
    nodes = np.ceil(procs / _procs_per_node(header))
    gpus = nodes * (options.gpus_per_node or 0)
    job = np.clip(records[:, _ID], -1, 2**62).astype(np.int64)
    states = [_STATES.get(int(status), "UNKNOWN") for status in records[:, _STATUS]]
    columns = {
        "cluster": pa.array([options.cluster] * len(records), pa.string()),
        "job_id": pa.array(job).cast(pa.string()),
        "job_id_raw": pa.array(job),
        "attempt": pa.array(np.ones(len(records), np.int32)),  # ingest numbers them
        "name": _label(records[:, _PROGRAM]),
        "user": _label(records[:, _USER]),
        "account": _label(records[:, _GROUP]),
        "qos": _label(records[:, _QUEUE]),
        "partition": _label(records[:, _PARTITION]),
        "state": pa.array(states, pa.string()),
        "submit_s": _whole(submit, submit > 0),
        "eligible_s": _whole(submit, submit > 0),
        "start_s": _whole(submit + wait, started),
        "end_s": _whole(submit + wait + run, started),
        "runtime_s": _whole(run, started),
        "time_limit_s": _whole(records[:, _ASKED_TIME], records[:, _ASKED_TIME] > 0),
        "node_count": _whole(nodes, procs > 0),
        "cpus": _whole(procs, procs > 0),
        "gpus": _whole(gpus, (procs > 0) & (options.gpus_per_node is not None)),
    }
    return table_of(ATTEMPTS, columns, len(records))


def _procs_per_node(header: dict[str, str]) -> int:
    counts = []
    for key in ("MaxProcs", "MaxNodes"):
        match = re.match(r"\d+", header.get(key, ""))
        counts.append(int(match[0]) if match else 0)
    return max(counts[0] // counts[1], 1) if counts[0] and counts[1] else 1


def _whole(values: Numbers, known: np.ndarray[Any, np.dtype[np.bool_]]) -> pa.Array:
    # No number of a log is near 2^62: a larger one becomes it, and `clean` rejects the row.
    bounded = np.clip(np.where(known, values, 0), -(2**62), 2**62)
    return pa.array(np.floor(bounded).astype(np.int64), mask=~known)


def _label(values: Numbers) -> pa.Array:
    return _whole(values, values >= 0).cast(pa.string())


SWF = Format("swf", "Standard Workload Format of the Parallel Workloads Archive", _sniff, _read)
