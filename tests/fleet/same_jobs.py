"""The same jobs as `sacct` prints them in many ways: text in any zone or in epoch seconds, JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

COLUMNS = (
    *("JobID", "JobIDRaw", "DBIndex", "Cluster", "JobName", "User", "Account", "Partition", "QOS"),
    *(
        "State",
        "ExitCode",
        "Submit",
        "Eligible",
        "Start",
        "End",
        "ElapsedRaw",
        "Timelimit",
        "NNodes",
    ),
    *("NodeList", "AllocTRES", "ReqTRES", "AllocCPUS", "Priority", "Reason", "WorkDir"),
)


@dataclass(frozen=True)
class Job:
    """One row of accounting; times in seconds since 1970."""

    raw: int
    submit: int
    start: int | None
    end: int | None
    state: str = "COMPLETED"
    index: int = 0
    nodes: tuple[str, ...] = ("n1",)
    user: str = "ada"
    name: str = "train"
    array: tuple[int, int] | None = None  # Job id of the array, task
    het: tuple[int, int] | None = None  # Job id of the heterogeneous job, component
    elapsed: int | None = None

    @property
    def printed(self) -> str:
        if self.array:
            return f"{self.array[0]}_{self.array[1]}"
        return f"{self.het[0]}+{self.het[1]}" if self.het else str(self.raw)

    @property
    def ran(self) -> int:
        if self.start is None:
            return 0
        if self.end is None:
            return self.elapsed or 60
        return self.end - self.start

    @property
    def code(self) -> str:
        return "1:0" if self.state == "FAILED" else "0:0"

    @property
    def used(self) -> tuple[str, ...]:
        return () if self.start is None else self.nodes


def text(
    jobs: Sequence[Job],
    path: Path,
    zone: str | None = "UTC",
    *,
    delimiter: str = "|",
    without: Sequence[str] = (),
) -> Path:
    """As `sacct -P -D` prints them in a zone; None: seconds since 1970 (SLURM_TIME_FORMAT=%s)."""

    def time(seconds: int | None) -> str:
        if seconds is None:
            return "Unknown"
        if zone is None:
            return str(seconds)
        return datetime.fromtimestamp(seconds, ZoneInfo(zone)).strftime("%Y-%m-%dT%H:%M:%S")

    columns = [name for name in COLUMNS if name not in without]
    lines = [delimiter.join(columns)]
    for job in jobs:
        row = {
            "JobID": job.printed,
            "JobIDRaw": job.raw,
            "DBIndex": job.index,
            "Cluster": "c",
            "JobName": job.name,
            "User": job.user,
            "Account": "lab",
            "Partition": "gpu",
            "QOS": "normal",
            "State": job.state,
            "ExitCode": job.code,
            "Submit": time(job.submit),
            "Eligible": time(job.submit),
            "Start": time(job.start),
            "End": time(job.end),
            "ElapsedRaw": job.ran,
            "Timelimit": "1-00:00:00",
            "NNodes": len(job.nodes),
            "NodeList": ",".join(job.used) or "None assigned",
            "AllocTRES": f"cpu=8,node={len(job.used)},gres/gpu={8 * len(job.used)}"
            if job.used
            else "",
            "ReqTRES": f"cpu=8,node={len(job.nodes)}",
            "AllocCPUS": 8,
            "Priority": 100,
            "Reason": "None",
            "WorkDir": "/home",
        }
        lines.append(delimiter.join(str(row[name]) for name in columns))
    path.write_text("\n".join(lines) + "\n")
    return path


def as_json(jobs: Sequence[Job], path: Path, *, index: bool = True) -> Path:
    """As `sacct --json -D` of Slurm 24.11 writes them."""

    def number(value: int | None) -> dict[str, Any]:
        return {"set": value is not None, "infinite": False, "number": value or 0}

    rows = []
    for job in jobs:
        used = job.used
        tres = [
            {"type": "cpu", "name": "", "id": 1, "count": 8},
            {"type": "node", "name": "", "id": 4, "count": len(used)},
            {"type": "gres", "name": "gpu", "id": 1001, "count": 8 * len(used)},
        ]
        task = number(job.array[1] if job.array else None)
        row: dict[str, Any] = {
            "job_id": job.raw,
            "name": job.name,
            "cluster": "c",
            "user": job.user,
            "account": "lab",
            "partition": "gpu",
            "qos": "normal",
            "working_directory": "/home",
            "priority": number(100),
            "association": {"account": "lab", "cluster": "c", "user": job.user},
            "array": {"job_id": job.array[0] if job.array else 0, "task_id": task, "task": ""},
            "het": {
                "job_id": job.het[0] if job.het else 0,
                "job_offset": number(job.het[1] if job.het else None),
            },
            "state": {"current": [job.state], "reason": "None"},
            "exit_code": {
                "status": ["SUCCESS"],
                "return_code": number(int(job.code[0])),
                "signal": {"id": number(0), "name": ""},
            },
            "time": {
                "submission": job.submit,
                "eligible": job.submit,
                "start": job.start or 0,
                "end": job.end or 0,
                "elapsed": job.ran,
                "limit": number(1440),
            },
            "nodes": ",".join(used) or "None assigned",
            "allocation_nodes": len(used),
            "tres": {
                "allocated": tres if used else [],
                "requested": [
                    {"type": "cpu", "name": "", "id": 1, "count": 8},
                    {"type": "node", "name": "", "id": 4, "count": len(job.nodes)},
                ],
            },
            "required": {"CPUs": 8},
            "steps": [],
        }
        if index:
            row["db_index"] = job.index
        rows.append(row)
    path.write_text(json.dumps({"jobs": rows, "meta": {"plugin": {"name": "slurmdbd"}}}))
    return path
