"""Small logs from tables of cases: the files that Slurm and health checks would write, and stores of them.

Times are seconds after `BASE`. The rows stay plain Python objects, so that a test can work out by loops
what the analyses must find.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import holdfast.fleet as fleet
from holdfast.fleet import Assumptions, FleetLog

BASE = 1_767_571_200  # Monday 2026-01-05, 00:00 UTC

COLUMNS = (
    *("JobID", "JobIDRaw", "Cluster", "JobName", "User", "Partition", "QOS", "Priority", "State"),
    *("ExitCode", "Submit", "Eligible", "Start", "End", "ElapsedRaw", "Timelimit", "NNodes"),
    *("NodeList", "AllocTRES", "SubmitLine", "WorkDir"),
)

# What the checks of random logs mean: label, severity where the log gives none, domains.
CHECKS = {
    "check nvlink": ("NVLink", "HIGH", ["hardware"]),
    "pcie aer errors": ("PCIe", "HIGH", ["hardware"]),
    "check iblink": ("InfiniBand link", "HIGH", ["hardware"]),
    "check mount": ("Filesystem mount", "HIGH", ["system", "hardware"]),
    "link flaps": ("InfiniBand link", "LOW", ["hardware"]),
    "check ethlink": ("Ethernet link", "LOW", ["system", "hardware"]),
    "nccl timeout": ("NCCL timeout or slow collective", "LOW", ["user", "system", "hardware"]),
    "xid 79": ("PCIe", "HIGH", ["system", "hardware"]),
}


@dataclass(frozen=True)
class Attempt:
    job: int
    nodes: tuple[str, ...]
    start: int | None
    end: int | None
    state: str = "COMPLETED"
    gpus: int = -1
    """-1: eight a node."""
    qos: str = "normal"
    priority: int = 1000
    submit: int | None = None
    """None: at the start."""
    eligible: int | None = None
    """None: at the submission."""
    exit_code: str = "0:0"
    limit_s: int = 7 * 86_400
    exclude: str = ""
    partition: str = "main"
    name: str = "train"
    runtime_s: int | None = None
    """None: from start to end."""

    @property
    def submitted(self) -> int:
        if self.submit is not None:
            return self.submit
        assert self.start is not None
        return self.start

    @property
    def waits_from(self) -> int:
        return self.submitted if self.eligible is None else self.eligible

    @property
    def ran_s(self) -> int:
        if self.start is None:
            return 0
        if self.runtime_s is not None:
            return self.runtime_s
        assert self.end is not None
        return self.end - self.start

    @property
    def stop(self) -> int:
        if self.end is not None:
            return self.end
        return self.submitted if self.start is None else self.start + self.ran_s

    @property
    def gpu_count(self) -> int:
        return 8 * len(self.nodes) if self.gpus < 0 else self.gpus

    @property
    def identity(self) -> tuple[str, int]:
        """(job id, submission in epoch seconds)."""
        return str(self.job), BASE + self.submitted

    def fields(self) -> dict[str, str]:
        exclude = f" --exclude={self.exclude}" if self.exclude else ""
        return {
            "JobID": str(self.job),
            "JobIDRaw": str(self.job),
            "Cluster": "c",
            "JobName": self.name,
            "User": "u",
            "Partition": self.partition,
            "QOS": self.qos,
            "Priority": str(self.priority),
            "State": self.state,
            "ExitCode": self.exit_code,
            "Submit": stamp(self.submitted),
            "Eligible": stamp(self.waits_from),
            "Start": stamp(self.start),
            "End": stamp(self.end),
            "ElapsedRaw": str(self.ran_s),
            "Timelimit": f"{self.limit_s // 86400}-{hms(self.limit_s % 86400)}",
            "NNodes": str(len(self.nodes)),
            "NodeList": ",".join(self.nodes) or "None assigned",
            "AllocTRES": f"cpu=1,gres/gpu={self.gpu_count},node={len(self.nodes)}",
            "SubmitLine": f"sbatch{exclude} job.sh",
            "WorkDir": "/home/u",
        }


@dataclass(frozen=True)
class Check:
    time: float
    node: str
    check: str
    severity: str = ""
    result: str = "fail"

    @property
    def label(self) -> str:
        return CHECKS[self.check][0]

    @property
    def rated(self) -> str:
        return self.severity or CHECKS[self.check][1]


@dataclass(frozen=True)
class Outage:
    node: str
    start: int
    end: int | None
    state: str = "DOWN*"
    reason: str = "why"


@dataclass
class Log:
    attempts: list[Attempt] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    qos: list[tuple[str, int, int, str]] = field(default_factory=list)
    """(name, priority, grace in seconds, names that it may preempt)."""
    nodes: dict[str, int] = field(default_factory=dict)
    """Inventory: node -> GPUs."""
    controller: list[tuple[float, str]] = field(default_factory=list)
    """Lines of slurmctld.log."""

    def write(self, folder: Path, columns: Sequence[str] = COLUMNS) -> list[Path]:
        """The log as files."""
        folder.mkdir(parents=True, exist_ok=True)
        texts: dict[str, str] = {}
        if self.attempts:
            lines = ["|".join(columns)]
            for each in self.attempts:
                row = each.fields()
                lines.append("|".join(row[name] for name in columns))
            texts["sacct.psv"] = "\n".join(lines) + "\n"
        if self.checks:
            texts["health.jsonl"] = "".join(
                json.dumps(
                    {
                        "time": datetime.fromtimestamp(BASE + each.time, UTC).isoformat(),
                        "node": each.node,
                        "check": each.check,
                        "severity": each.severity,
                        "result": each.result,
                        "message": "",
                    }
                )
                + "\n"
                for each in self.checks
            )
        if self.outages:
            rows = "".join(
                f"c|{each.node}|{stamp(each.start)}|{stamp(each.end)}|{each.state}|{each.reason}|root(0)\n"
                for each in self.outages
            )
            texts["events.txt"] = f"Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n{rows}"
        if self.qos:
            rows = "".join(
                f"{name}|{priority}|{hms(grace)}|{preempts}\n"
                for name, priority, grace, preempts in self.qos
            )
            texts["qos.txt"] = f"Name|Priority|GraceTime|Preempt\n{rows}"
        if self.nodes:
            texts["nodes.txt"] = "".join(
                f"NodeName={node} Arch=x86_64 CPUTot=96 Gres=gpu:h100:{gpus} State=IDLE\n\n"
                for node, gpus in self.nodes.items()
            )
        if self.controller:
            texts["slurmctld.log"] = "".join(
                f"[{datetime.fromtimestamp(BASE + time, UTC).isoformat(timespec='milliseconds')[:23]}]"
                f" {line}\n"
                for time, line in self.controller
            )
        for name, text in texts.items():
            (folder / name).write_text(text)
        return [folder / name for name in texts]

    def store(self, folder: Path, columns: Sequence[str] = COLUMNS) -> Path:
        """The log, ingested."""
        fleet.ingest(self.write(folder / "logs", columns), folder / "store")
        return folder / "store"

    def open(
        self, folder: Path, assumptions: Assumptions | None = None, since: str | None = None
    ) -> FleetLog:
        """The log, ingested and open."""
        return fleet.open(self.store(folder), assumptions=assumptions, since=since)


def stamp(time: int | None) -> str:
    """A time as sacct prints it."""
    if time is None:
        return "Unknown"
    return datetime.fromtimestamp(BASE + time, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def hms(seconds: int) -> str:
    return f"{seconds // 3600:02d}:{seconds % 3600 // 60:02d}:{seconds % 60:02d}"


def names(count: int) -> tuple[str, ...]:
    return tuple(f"n{i:03d}" for i in range(count))


def random_log(seed: int, *, jobs: int = 120, node_count: int = 10, span_s: int = 40_000) -> Log:
    """A log without rhyme or reason, dense enough that every rule of the analyses meets its edges."""
    rng = random.Random(seed)
    nodes = names(node_count)
    states = ["COMPLETED"] * 4 + ["FAILED"] * 3 + ["NODE_FAIL"] * 3 + ["PREEMPTED", "TIMEOUT"]
    log = Log(
        qos=[("high", 100, 0, "normal,low"), ("low", 1, 60, ""), ("normal", 10, 90, "low")],
        nodes=dict.fromkeys(nodes[: node_count - 2], 8),
    )
    for job in range(1, jobs + 1):
        count = rng.choice([1, 1, 1, 2, 3, 6])
        qos = "high" if job % 15 == 0 else rng.choice(["low", "low", "normal", "high"])
        submit = rng.randrange(0, span_s, rng.choice([1, 100]))
        while True:
            used = tuple(sorted(rng.sample(nodes, count)))
            start = submit + rng.choice([0, 1, 30, 400])
            end = start + rng.choice([0, 1, 59, 60, 300, 1800, 5000, 20_000])
            # Every fifteenth job loops.
            state = rng.choice(states if job % 15 else ["NODE_FAIL"] * 4 + ["COMPLETED"])
            log.attempts.append(
                Attempt(
                    job,
                    used,
                    start,
                    end,
                    state,
                    gpus=rng.choice([0, 1, 3, 8]) if count == 1 else -1,
                    qos=qos,
                    priority={"low": 10, "normal": 100, "high": 1000}[qos] + rng.randrange(9),
                    submit=submit,
                    eligible=submit + rng.choice([0, 0, 20]),
                    exit_code=rng.choice(["0:0", "15:0", "1:0"])
                    if state in ("FAILED", "COMPLETED")
                    else "0:0",
                    limit_s=rng.choice([6000, 86_400]),
                    exclude=rng.choice(["", "", "n003", "n001,n003"]),
                )
            )
            if state not in ("NODE_FAIL", "PREEMPTED") or rng.random() < 0.2:
                break
            submit = end + rng.choice([0, 1, 5]) + (end == start)
        if rng.random() < 0.05:
            log.attempts.append(
                Attempt(10_000 + job, (), None, None, "PENDING", gpus=8, submit=submit)
            )
    for attempt in log.attempts:
        for node in attempt.nodes:
            if attempt.state not in ("FAILED", "NODE_FAIL") or rng.random() < 0.6:
                continue
            assert attempt.end is not None
            for _ in range(rng.choice([1, 2, 3])):
                offset = rng.choice([-601, -600, -599.5, -20.25, -20.25, 0, 3, 299, 300, 300.5])
                log.checks.append(
                    Check(
                        attempt.end + offset,
                        node,
                        rng.choice(list(CHECKS)),
                        rng.choice(["", "", "HIGH", "LOW"]),
                        rng.choice(["fail", "fail", "fail", "warn", "ok"]),
                    )
                )
            if rng.random() < 0.5:
                begin = attempt.end + rng.choice([-11, -10, 0, 10, 11])
                state = rng.choice(["DOWN*", "DRAIN", "MAINT"])
                log.outages.append(Outage(node, begin, begin + 600, state))
    log.checks = list(dict.fromkeys(log.checks))
    log.outages = list({(o.node, o.start, o.state): o for o in log.outages}.values())
    return log
