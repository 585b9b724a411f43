"""`sacct --json` of Slurm 21.08 to 25.05, read as a stream.

The shapes differ between versions: a state is a string or a list, a number is an integer, null or
``{"set", "infinite", "number"}``, an exit code carries its signal in one of two ways. Times are
seconds since 1970.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from holdfast.errors import InputError
from holdfast.fleet.formats.batch import Batch, Format, ReadOptions
from holdfast.fleet.formats.columns import rows_table
from holdfast.fleet.formats.fields import gpus_of, state_of
from holdfast.fleet.formats.hosts import excluded_hosts, hosts_of
from holdfast.fleet.formats.sacct_repair import LINE_BREAK
from holdfast.fleet.formats.source import Rejects
from holdfast.fleet.schema import ATTEMPTS, STEPS
from holdfast.opening import open_source, unreadable

JOBS_PER_BATCH = 4_000
_FIRST_REAL_TIME_S = 365 * 86400
_SLURMDBD = re.compile(
    rb'"allocation_nodes"|"derived_exit_code"|"association"|slurmdbd|openapi\\?/dbv|data_parser'
)

Row = dict[str, Any]


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
        for job in ijson.items(source, "jobs.item"):  # floats would limit integers to 64 bits
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
    attempts: list[Row] = []
    steps: list[Row] = []
    rejects = Rejects(source)
    lines: list[int] = []
    step_lines: list[int] = []
    step_count = 0
    for place, job in enumerate(jobs, done + 1):
        reason = _unusable(job)
        if reason is None:
            try:
                attempt = _attempt(job, options)
                own = [_step(step, attempt) for step in job.get("steps") or []]
            except (TypeError, ValueError, AttributeError, KeyError, OverflowError) as error:
                reason = f"a field of an unexpected type ({error})"
        if reason is not None:
            rejects.add(place, reason, repr(job))
            continue
        step_count += len(own)
        for row in own:
            attempt["out_of_memory"] |= row["out_of_memory"]
            attempt["sigterm"] |= row["sigterm"]
            begun, start = row["start_s"], attempt["start_s"]
            if begun is not None and start is not None and begun < start:
                steps.append(row)
                step_lines.append(place)
        attempts.append(attempt)
        lines.append(place)
    tables = {
        "attempts": rows_table(ATTEMPTS, attempts),
        "steps": rows_table(STEPS, steps),
        "rejects": rejects.table(),
    }
    facts = {"unreadable_node_lists": sum(row["unreadable"] for row in attempts)}
    places = {"attempts": pa.array(lines, pa.int64()), "steps": pa.array(step_lines, pa.int64())}
    return Batch(tables, 0, step_count, facts, places)


def _unusable(job: Any) -> str | None:
    if not isinstance(job, dict) or type(job.get("job_id")) is not int:
        return "the job has no number"
    if not isinstance(job.get("time"), dict):
        return "the job has no times"
    if _state(job) is None:
        return f"the state is {(job.get('state') or {})!r}"
    return None


def _number(value: Any) -> int | None:
    """An integer, or the number of ``{"set", "infinite", "number"}``; None if unset or infinite."""
    if isinstance(value, dict):
        if not value.get("set") or value.get("infinite"):
            return None
        value = value.get("number")
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)) or value != value:
        return None
    return int(max(-(2**62), min(value, 2**62)))


def _time(value: Any) -> int | None:
    seconds = _number(value)
    return None if seconds is None or seconds < _FIRST_REAL_TIME_S else seconds


def _state(job: Any) -> str | None:
    """The base state; flags such as REQUEUED stand beside it in a list."""
    current = job.get("state")
    if isinstance(current, dict):
        current = current.get("current")
    names = current if isinstance(current, list) else [current]
    known = [state for state in (state_of(str(name)) for name in names) if state is not None]
    return known[0] if known else None


def _exit(code: Any) -> tuple[int | None, int | None]:
    """Exit code and signal."""
    if not isinstance(code, dict):
        return _number(code), None
    returned = _number(code.get("return_code"))
    signal = code.get("signal") or {}
    caught = _number(signal.get("signal_id", signal.get("id")))
    if returned is None and caught is None:
        return None, None
    return returned or 0, caught or 0


def _job_id(job: Row) -> str:
    """As `sacct` prints it: ``123``, ``123_4``, ``123_[4-9%2]``, ``123+1``."""
    array, het = job.get("array") or {}, job.get("het") or {}
    base = array.get("job_id") or 0
    if base:
        task = _number(array.get("task_id"))
        waiting = array.get("task")
        if task is not None and not waiting:
            return f"{base}_{task}"
        if waiting:
            limit = _dig(array, "limits", "max", "running", "tasks")
            return f"{base}_[{waiting}%{limit}]" if limit else f"{base}_[{waiting}]"
    if het.get("job_id"):
        return f"{het['job_id']}+{_number(het.get('job_offset')) or 0}"
    return str(job["job_id"])


def _dig(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _tres(job: Row, key: str) -> dict[str, int]:
    """Counts by TRES name, for example ``{"cpu": 64, "gres/gpu:h100": 8}``."""
    found = {}
    for item in _dig(job, "tres", key) or []:
        count = _number(item.get("count"))
        if count is not None and count >= 0:
            name = f"{item['type']}/{item['name']}" if item.get("name") else item["type"]
            found[name] = count
    return found


def _gpus(allocated: dict[str, int], requested: dict[str, int]) -> int | None:
    tres = allocated or requested
    return gpus_of(",".join(f"{name}={count}" for name, count in tres.items())) if tres else None


def _attempt(job: Row, options: ReadOptions) -> Row:
    times = job.get("time") or {}
    state = _state(job)
    code, signal = _exit(job.get("exit_code"))
    if state != "COMPLETED" and _dig(job, "exit_code", "return_code") == 0 and not signal:
        code = signal = None  # before 23.11: SUCCESS and 0 for whatever was no signal
    derived, derived_signal = _exit(job.get("derived_exit_code"))
    start = _time(times.get("start"))
    nodes = hosts_of(job.get("nodes") or "")
    allocated, requested = _tres(job, "allocated"), _tres(job, "requested")
    limit = _number(times.get("limit"))
    elapsed = _number(times.get("elapsed"))
    return {
        "cluster": job.get("cluster") or options.cluster,
        "job_id": _job_id(job),
        "job_id_raw": job["job_id"],
        "attempt": 1,
        "db_index": _number(job.get("db_index")),
        "restarts": _number(job.get("restart_cnt")),
        "name": (job.get("name") or "").replace("\r\n", "\n").replace("\n", LINE_BREAK),
        "user": job.get("user") or _dig(job, "association", "user"),
        "account": job.get("account"),
        "partition": job.get("partition"),
        "qos": job.get("qos"),
        "work_dir": job.get("working_directory"),
        "priority": _number(job.get("priority")),
        "state": state,
        "reason": _dig(job, "state", "reason"),
        "exit_code": code,
        "exit_signal": signal,
        "out_of_memory": state == "OUT_OF_MEMORY"
        or (code == 0 and signal == 125)
        or (derived == 0 and derived_signal == 125),
        "sigterm": signal == 15 or derived_signal == 15 or (code == 15 and signal == 0),
        "submit_s": _time(times.get("submission")),
        "eligible_s": _time(times.get("eligible")),
        "start_s": start,
        "end_s": _time(times.get("end")),
        "runtime_s": None if start is None else elapsed,
        "time_limit_s": None if limit is None else limit * 60,
        "node_count": allocated.get("node") or requested.get("node") or len(nodes or []),
        "nodes": nodes or [],
        "unreadable": nodes is None,
        "gpus": _gpus(allocated, requested),
        "cpus": allocated.get("cpu") or requested.get("cpu") or _dig(job, "required", "CPUs"),
        "excluded_nodes": _excluded(job.get("submit_line")),
        "failed_node": job.get("failed_node") or None,
        "recovered": False,
    }


def _excluded(line: Any) -> list[str]:
    found = excluded_hosts(pa.array([line if isinstance(line, str) else ""])) if line else None
    return [] if found is None else list(found[0].as_py())


def _step(step: Row, attempt: Row) -> Row:
    state = _state(step)
    code, signal = _exit(step.get("exit_code"))
    times = step.get("time") or {}
    nodes = step.get("nodes")
    text = nodes.get("range") if isinstance(nodes, dict) else nodes
    return {
        **{
            name: attempt[name]
            for name in ("cluster", "job_id", "job_id_raw", "db_index", "submit_s")
        },
        "start_s": _time(times.get("start")),
        "end_s": _time(times.get("end")),
        "state": state,
        "nodes": hosts_of(text or "") or [],
        "out_of_memory": state == "OUT_OF_MEMORY" or (code == 0 and signal == 125),
        "sigterm": signal == 15,
    }


FORMAT = Format(
    name="sacct-json",
    describes="output of `sacct --json`, Slurm 21.08 to 25.05",
    sniff=sniff,
    read=read,
)
