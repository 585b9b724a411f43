"""`slurmctld.log`: who preempted whom and which node failed, which accounting does not keep.

====================================================================  ===============
line                                                                  event
====================================================================  ===============
setting N sec preemption grace time for JobId=A to reclaim ... for B  preempt
preempted JobId=A has been requeued to reclaim resources for JobId=B  preempt_requeue
preempted JobId=A has been killed/cancelled to reclaim ...            preempt_kill
preempted JobId=A had to be killed                                    preempt_kill
requeue job JobId=A due to failure of node N                          node_fail
Killing JobId=A on failed node N                                      node_fail
Batch JobId=A missing from batch node N (it rebooted)                 node_fail
====================================================================  ===============

Only the first needs debug output; times are local unless the log's format carries a zone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.formats.batch import Batch, Format, ReadOptions
from holdfast.fleet.formats.columns import table_of, with_cluster
from holdfast.fleet.formats.fields import parse_instant, parse_integer
from holdfast.fleet.formats.source import Rejects, blocks
from holdfast.fleet.schema import CONTROLLER_EVENTS

_TIME = r"^\[?(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?)\]? "
_JOB = r"JobId=(?P<{0}>[0-9][0-9_+*]*|Invalid)(?:\((?P<{0}_raw>\d+)\))?"
_EVENTS = (  # event, words of its line, the line; the first that fits counts
    ("preempt", "preemption grace time for", "preemption grace time for {}"),
    ("node_fail", "missing from batch node", r"Batch {} missing from batch node (?P<node>\S+)"),
    ("preempt_requeue", "has been requeued to reclaim", "preempted {} has been requeued"),
    ("preempt_kill", "preempted JobId=", "preempted {} (?:had to|has been)"),
    ("node_fail", "due to failure of node", r"requeue job {} due to failure of node (?P<node>\S+)"),
    ("node_fail", "on failed node", r"Killing {} on failed node (?P<node>\S+)"),
)
_FOR = "reclaim resources for " + _JOB.format("preemptor")
_VERSION = re.compile(rb"slurmctld version (\S+) started(?: on cluster (\S+))?")
_STAMP = re.compile(rb"^\[?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", re.MULTILINE)
_SPEECH = re.compile(
    rb"slurmctld|_slurm_rpc_|sched(?:/backfill)?: |reclaim resources|due to failure of node"
    rb"|on failed node|missing from batch node"
)


def _sniff(head: bytes, path: Path) -> bool:
    lines = head.splitlines()[:50]
    stamped = sum(bool(_STAMP.match(line)) for line in lines)
    return bool(lines) and 2 * stamped > len(lines) and bool(_SPEECH.search(head))


def _read(path: Path, options: ReadOptions) -> Iterator[Batch]:
    rejects = Rejects(str(path))
    cluster = ""  # named when the controller starts
    for block in blocks(path):
        facts: dict[str, object] = {"local_times": 1}
        if started := _VERSION.search(block.data):
            facts["slurm_version"] = started[1].decode()
            if started[2]:
                facts["cluster"] = cluster = started[2].decode()
        lines = block.lines()
        said = pc.match_substring_regex(
            lines, "preempt|failure of node|on failed node|from batch node"
        )
        numbers = pc.add(pc.indices_nonzero(said).cast(pa.int64()), block.first_line)
        table = _events(lines.filter(said), numbers, options, rejects)
        table = with_cluster(table, cluster)
        yield Batch(
            {"controller_events": table, "rejects": rejects.table()}, block.end, facts=facts
        )


def _events(lines: pa.Array, numbers: pa.Array, options: ReadOptions, rejects: Rejects) -> pa.Table:
    tables = []
    left = pa.array([True] * len(lines), pa.bool_())
    for event, words, pattern in _EVENTS:
        mine = pc.and_(left, pc.match_substring(lines, words))
        left = pc.and_(left, pc.invert(mine))
        chosen = lines.filter(mine)
        places = numbers.filter(mine)
        parts = pc.extract_regex(chosen, _TIME + ".*" + pattern.format(_JOB.format("job")))
        target = pc.extract_regex(chosen, _FOR)
        job = _group(parts, "job")
        by = _group(target, "preemptor")
        by = pc.if_else(pc.equal(by, "Invalid"), None, by)
        times = parse_instant(pc.struct_field(parts, "time"), options.timezone)
        reasons = pc.if_else(
            pc.or_(pc.is_null(times), pc.is_null(job)), f"not a whole line of {event}", None
        )
        rejects.add_all(reasons, places, chosen.to_pylist())
        columns = {
            "time_s": times,
            "event": pa.array([event] * len(chosen), pa.string()),
            "job_id": job,
            "job_id_raw": _raw(job, _group(parts, "job_raw")),
            "preemptor": by,
            "preemptor_raw": _raw(by, _group(target, "preemptor_raw")),
        }
        if "(?P<node>" in pattern:
            columns["node"] = _group(parts, "node")
        table = table_of(CONTROLLER_EVENTS, columns)
        tables.append(table.filter(pc.is_null(reasons)))
    return pa.concat_tables(tables).sort_by("time_s")


def _group(parts: pa.Array, name: str) -> pa.Array:
    """A named group of a match; null where the line does not match or the group took no part."""
    values = pc.struct_field(parts, name)
    return pc.if_else(pc.equal(values, ""), None, values)


def _raw(job: pa.Array, in_brackets: pa.Array) -> pa.Array:
    """The controller's number: in brackets behind an array task or het component, else the id."""
    return pc.coalesce(parse_integer(in_brackets), parse_integer(job))


SLURMCTLD = Format("slurmctld", "the controller's log (preemptions, node failures)", _sniff, _read)
