"""`sacct --json` and slurmrestd of Slurm 21.08 to 25.11, read as a stream.

The shapes differ between versions: a state is a string or a list, a number is an integer, null or
``{"set", "infinite", "number"}`` (or what C has for them), an exit code carries its signal in one of two
ways. Times are seconds since 1970.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from holdfast.errors import InputError
from holdfast.fleet.formats.batch import Batch, Format, ReadOptions
from holdfast.fleet.formats.columns import values_of
from holdfast.fleet.formats.fields import state_of
from holdfast.fleet.formats.sacct_repair import LINE_BREAK
from holdfast.fleet.formats.sacct_text import converted
from holdfast.fleet.formats.source import Rejects
from holdfast.fleet.schema import Row
from holdfast.opening import open_source, unreadable

JOBS_PER_BATCH = 4_000
_FIRST_REAL_TIME_S = 365 * 86400
_SLURMDBD = re.compile(
    rb'"allocation_nodes"|"derived_exit_code"|"association"|slurmdbd|openapi\\?/dbv|data_parser'
)

UNSET = {2**bits - less for bits in (32, 64) for less in (1, 2)}  # INFINITE, NO_VAL of slurm.h


def sniff(head: bytes, _: Path) -> bool:
    """Whether the source is JSON with the jobs of slurmdbd (not those of squeue or scontrol)."""
    return (
        head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
        and b'"job_state"' not in head
        and re.search(rb'"jobs"\s*:\s*\[', head) is not None
        and (_SLURMDBD.search(head) or re.search(rb'"jobs"\s*:\s*\[\s*\]', head)) is not None
    )


def read(path: Path, options: ReadOptions) -> Iterator[Batch]:
    """Batches of 4,000 jobs, in order; rejects and rows have the place of their job for a line.

    Raises:
        InputError: if the file cannot be read, or is not JSON or cut off.
    """
    with open_source(path) as source:
        jobs = _jobs(source, path)
        done = 0
        while chunk := list(islice(jobs, JOBS_PER_BATCH)):
            yield _batch(chunk, done, options, str(path))
            done += len(chunk)


def _jobs(source: BinaryIO, path: Path) -> Iterator[Any]:
    import ijson

    seen = 0
    try:
        # A spool has one answer a line; floats would limit integers to 64 bits.
        for job in ijson.items(source, "jobs.item", multiple_values=True):
            seen += 1
            yield job
    except ijson.JSONError as error:
        raise InputError(
            "the JSON is broken or cut off",
            code="invalid-syntax",
            path=path,
            place=f"after job {seen}",
            found=str(error).splitlines()[0],
            expected="the whole output of `sacct --json`",
            remedy="write the file again; a partial copy or a full disk cuts it off",
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error


def _batch(jobs: list[Any], done: int, options: ReadOptions, source: str) -> Batch:
    """The jobs as the rows that `sacct --parsable2` prints, steps below their job."""
    rows = []
    lines = []
    rejects = Rejects(source)
    for place, job in enumerate(jobs, done + 1):
        reason = _unusable(job)
        if reason is None:
            try:
                own = rows_of(job)
                rows += own
                lines += [place] * len(own)
            except (TypeError, ValueError, AttributeError, KeyError, OverflowError) as error:
                reason = f"a field of an unexpected type ({error})"
        if reason is not None:
            rejects.add(place, reason, repr(job))
    names = _attempt({"job_id": 0, "time": {}})  # also where there is no job
    columns = {name: values_of([row.get(name) for row in rows], pa.string()) for name in names}
    batch = converted(pa.table(columns), np.array(lines, np.int64), options)
    return replace(batch, tables={**batch.tables, "rejects": rejects.table()})


def _unusable(job: Any) -> str | None:
    if not isinstance(job, dict) or type(job.get("job_id")) is not int:
        return "the job has no number"
    if not isinstance(job.get("time"), dict):
        return "the job has no times"
    if _state(job) is None:
        return f"the state is {(job.get('state') or {})!r}"
    return None


def rows_of(job: Row) -> list[Row]:
    """A job and its steps as the rows that `sacct --parsable2` prints.

    Raises:
        TypeError, ValueError, AttributeError, KeyError, OverflowError: for a job of another shape.
    """
    return [_attempt(job), *(_step(step, job) for step in job.get("steps") or [])]


def number_of(value: Any) -> int | None:
    """An integer, or the number of ``{"set", "infinite", "number"}``; None if unset or infinite."""
    if isinstance(value, dict):
        if not value.get("set") or value.get("infinite"):
            return None
        value = value.get("number")
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)) or value != value:
        return None
    return int(max(-(2**62), min(value, 2**62)))


def _time(value: Any) -> int | None:
    seconds = number_of(value)
    if seconds is None or seconds < _FIRST_REAL_TIME_S or seconds in UNSET:
        return None
    return min(seconds, 10**11)  # what is later is impossible, and still written as a time


def _state(job: Any) -> str | None:
    """The base state; flags such as REQUEUED stand beside it in a list."""
    current = job.get("state")
    if isinstance(current, dict):
        current = current.get("current")
    names = current if isinstance(current, list) else [current]
    known = [state for state in (state_of(str(name)) for name in names) if state is not None]
    return known[0] if known else None


def _exit(code: Any) -> str | None:
    """``code:signal``."""
    if not isinstance(code, dict):
        return None if number_of(code) is None else f"{number_of(code)}:0"
    returned = number_of(code.get("return_code"))
    signal = code.get("signal") or {}
    caught = number_of(signal.get("signal_id", signal.get("id")))
    return None if returned is None and caught is None else f"{returned or 0}:{caught or 0}"


def _job_id(job: Row) -> str:
    """As `sacct` prints it: ``123``, ``123_4``, ``123_[4-9%2]``, ``123+1``."""
    array = job.get("array") or {}
    het = job.get("het") or {}
    base = array.get("job_id") or 0
    if base:
        task = number_of(array.get("task_id"))
        waiting = array.get("task")
        if task is not None and not waiting:
            return f"{base}_{task}"
        if waiting:
            limit = _dig(array, "limits", "max", "running", "tasks")
            return f"{base}_[{waiting}%{limit}]" if limit else f"{base}_[{waiting}]"
    if het.get("job_id"):
        return f"{het['job_id']}+{number_of(het.get('job_offset')) or 0}"
    return str(job["job_id"])


def _dig(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _tres(job: Row, key: str) -> dict[str, int]:
    """Counts by TRES name, for example ``{"cpu": 64, "gres/gpu:h100": 8}``."""
    resources = {}
    for item in _dig(job, "tres", key) or []:
        count = number_of(item.get("count"))
        if count is not None and count >= 0:
            name = f"{item['type']}/{item['name']}" if item.get("name") else item["type"]
            resources[name] = count
    return resources


def _attempt(job: Row) -> Row:
    times, state, code = job["time"], _state(job), _exit(job.get("exit_code"))
    if code == "0:0" and state != "COMPLETED" and _dig(job, "exit_code", "return_code") == 0:
        code = None  # before 23.11: SUCCESS and 0 for whatever was no signal
    allocated = _tres(job, "allocated")
    requested = _tres(job, "requested")
    return {
        "JobID": _job_id(job),
        "JobIDRaw": min(job["job_id"], 2**63 - 1),
        "JobName": (job.get("name") or "").replace("\r\n", "\n").replace("\n", LINE_BREAK),
        "Cluster": job.get("cluster") or _dig(job, "association", "cluster"),
        "User": job.get("user") or _dig(job, "association", "user"),
        "Account": job.get("account"),
        "Partition": job.get("partition"),
        "QOS": job.get("qos"),
        "WorkDir": job.get("working_directory"),
        "DBIndex": number_of(job.get("db_index")),
        "Restarts": number_of(job.get("restart_cnt")),
        "Priority": number_of(job.get("priority")),
        "State": state,
        "Reason": _dig(job, "state", "reason"),
        "ExitCode": code,
        "DerivedExitCode": _exit(job.get("derived_exit_code")),
        "Submit": _time(times.get("submission")),
        "Eligible": _time(times.get("eligible")),
        "Start": _time(times.get("start")),
        "End": _time(times.get("end")),
        "ElapsedRaw": number_of(times.get("elapsed")),
        "TimelimitRaw": number_of(times.get("limit")),
        "NNodes": allocated.get("node") or requested.get("node"),
        "NodeList": job.get("nodes") or "",
        "AllocTRES": _printed(allocated),
        "ReqTRES": _printed(requested),
        "AllocCPUS": allocated.get("cpu"),
        "ReqCPUS": requested.get("cpu") or number_of(_dig(job, "required", "CPUs")),
        "FailedNode": job.get("failed_node"),
        "SubmitLine": job.get("submit_line"),
    }


def _printed(tres: dict[str, int]) -> str:
    return ",".join(f"{name}={count}" for name, count in tres.items())


def _step(step: Row, job: Row) -> Row:
    times = step.get("time") or {}
    nodes = step.get("nodes")
    return {
        "JobID": f"{_job_id(job)}.0",
        "JobIDRaw": job["job_id"],
        "State": _state(step),
        "ExitCode": _exit(step.get("exit_code")),
        "Start": _time(times.get("start")),
        "End": _time(times.get("end")),
        "NodeList": (nodes.get("range") if isinstance(nodes, dict) else nodes) or "",
    }


FORMAT = Format(
    name="sacct-json",
    describes="output of `sacct --json`, Slurm 21.08 to 25.11",
    sniff=sniff,
    read=read,
)
