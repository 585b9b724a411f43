"""The columns of `sacct`: which ones a store needs, and what each may hold.

What a column may hold is what tells a real record from a job name that imitates one: `--parsable2`
quotes nothing, so a name may hold the delimiter and line breaks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.fleet.formats.fields import BLANKS, duration_s, state_of

REQUIRED = ("JobID", "State")

# Columns of the store's tables, and how they are read: few distinct values, or many.
FEW_VALUES = (
    "Cluster", "User", "Account", "Partition", "QOS", "WorkDir", "State", "Reason", "ExitCode",
    "DerivedExitCode", "Timelimit", "TimelimitRaw", "NNodes", "AllocNodes", "NodeList",
    "AllocTRES", "AllocGRES", "ReqTRES", "ReqGRES", "AllocCPUS", "NCPUS", "ReqCPUS", "FailedNode",
    "Restarts",
)  # fmt: skip
MANY_VALUES = (
    "JobID", "JobIDRaw", "DBIndex", "JobName", "Priority", "Submit", "Eligible", "Start", "End",
    "Elapsed", "ElapsedRaw", "SubmitLine",
)  # fmt: skip
NEEDED = frozenset(FEW_VALUES + MANY_VALUES)

TIMES = ("Submit", "Eligible", "Start", "End")

JOB_ID = (
    r"^\d+(_(\d+|\[[^\]\n]*\]))?(\+\d+)?"
    r"(\.(batch|extern|interactive|TBD|\d+(\+\d+)?|\d+\.(batch|extern|interactive)))?$"
)
SUBMIT_LINE = r"^\s*$|^(\S*/)?(sbatch|srun|salloc|scrun|sattach|slurmrestd)(\s|$)"

KNOWN = frozenset(
    """Account AdminComment AllocCPUS AllocGRES AllocNodes AllocTRES AssocID AveCPU AveCPUFreq
    AveDiskRead AveDiskWrite AvePages AveRSS AveVMSize BlockID Cluster Comment Constraints
    ConsumedEnergy ConsumedEnergyRaw Container CPUTime CPUTimeRAW DBIndex DerivedExitCode
    Elapsed ElapsedRaw Eligible End ExitCode Extra FailedNode Flags GID Group JobID
    JobIDRaw JobName Layout Licenses MaxDiskRead MaxDiskReadNode MaxDiskReadTask
    MaxDiskWrite MaxDiskWriteNode MaxDiskWriteTask MaxPages MaxPagesNode MaxPagesTask
    MaxRSS MaxRSSNode MaxRSSTask MaxVMSize MaxVMSizeNode MaxVMSizeTask McsLabel MinCPU
    MinCPUNode MinCPUTask NCPUS NNodes NodeList NTasks Partition Planned PlannedCPU
    PlannedCPURAW Priority QOS QOSRAW QOSREQ Reason ReqCPUFreq ReqCPUFreqGov ReqCPUFreqMax
    ReqCPUFreqMin ReqCPUS ReqGRES ReqMem ReqNodes ReqReservation ReqTRES Reservation
    ReservationId Reserved ResvCPU ResvCPURAW Restarts SegmentSize SLUID Start State
    StdErr StdErrExpanded StdIn StdInExpanded StdOut StdOutExpanded Submit SubmitLine
    Suspended SystemComment SystemCPU Timelimit TimelimitRaw TotalCPU TRESUsageInAve
    TRESUsageInMax TRESUsageInMaxNode TRESUsageInMaxTask TRESUsageInMin TRESUsageInMinNode
    TRESUsageInMinTask TRESUsageInTot TRESUsageOutAve TRESUsageOutMax TRESUsageOutMaxNode
    TRESUsageOutMaxTask TRESUsageOutMin TRESUsageOutMinNode TRESUsageOutMinTask
    TRESUsageOutTot UID User UserCPU WCKey WCKeyID WorkDir""".split()  # noqa: SIM905
)
"""Every column of `sacct --helpformat`, Slurm 19.05 to 25.05."""

CANONICAL = {name.lower(): name for name in KNOWN}


@dataclass(frozen=True)
class FreeText:
    """A column in which users write what they like."""

    delimiter_cost: float
    """How unlikely the delimiter is in it."""
    newline_cost: float
    """How unlikely a line break is in it."""


FREE_TEXT = {
    "JobName": FreeText(0.1, 1.0),
    "Comment": FreeText(0.1, 1.0),
    "SubmitLine": FreeText(0.1, 1.0),
    "SystemComment": FreeText(1.0, 5.0),
    "AdminComment": FreeText(2.0, 20.0),
    "Extra": FreeText(1.0, 5.0),
    "WorkDir": FreeText(2.0, 50.0),
    "Constraints": FreeText(1.0, 50.0),
    "Container": FreeText(5.0, 50.0),
    "Reason": FreeText(20.0, 100.0),
    "WCKey": FreeText(20.0, 100.0),
    "StdErr": FreeText(2.0, 50.0),
    "StdIn": FreeText(2.0, 50.0),
    "StdOut": FreeText(2.0, 50.0),
}

_JOB_ID = re.compile(JOB_ID)
_SUBMIT_LINE = re.compile(SUBMIT_LINE)
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?([+-]\d\d:?\d\d|Z)?|\d{9,11}|-?\d{1,5}")
_INTEGER = re.compile(r"-?\d*")
_EXIT_CODE = re.compile(r"(\d+:\d+)?")
_TRES = re.compile(r"([\w/:.+-]+=[^=,|\n]*(,[\w/:.+-]+=[^=,|\n]*)*)?")
_HOSTS = re.compile(r"[A-Za-z0-9_.,\[\]-]*|None [Aa]ssigned|\(none\)")
_WORD = re.compile(r"[^\s|]*")
_LINE = re.compile(r"[^\n]*")

_INTEGERS = frozenset(
    """AllocCPUS AllocNodes AssocID CPUTimeRAW DBIndex ElapsedRaw GID NCPUS NNodes NTasks
    Priority QOSRAW ReqCPUS ReqNodes ReservationId ResvCPURAW PlannedCPURAW UID WCKeyID
    Restarts MaxDiskReadTask MaxDiskWriteTask MaxPagesTask MaxRSSTask MaxVMSizeTask
    MinCPUTask""".split()  # noqa: SIM905
)
_DURATIONS = frozenset(
    """AveCPU CPUTime Elapsed MinCPU Reserved ResvCPU Planned PlannedCPU Suspended SystemCPU
    TotalCPU UserCPU""".split()  # noqa: SIM905
)
_WORDS = frozenset(
    """User Group Cluster Partition QOS""".split()  # noqa: SIM905
)


def validator(column: str) -> Callable[[str], bool]:
    """A test of what a column without free text may hold."""
    if column == "State":
        return lambda text: "\n" not in text and state_of(text) is not None
    if column == "":  # after the trailing delimiter of `sacct --parsable`
        return lambda text: text == ""
    if column in _DURATIONS:
        return lambda text: (
            "\n" not in text
            and (text in BLANKS or text == "INVALID" or duration_s(text) is not None)
        )
    if column in ("JobID", "JobIDRaw"):
        return lambda text: _JOB_ID.match(text) is not None and not text.endswith("\n")
    pattern = _pattern(column)
    if column in TIMES or column in _INTEGERS or column in ("NodeList", *_WORDS):
        return lambda text: text in BLANKS or pattern.fullmatch(text) is not None
    return lambda text: pattern.fullmatch(text) is not None


def _pattern(column: str) -> re.Pattern[str]:
    if column in TIMES:
        return _TIME
    if column in _INTEGERS:
        return _INTEGER
    if column in ("ExitCode", "DerivedExitCode"):
        return _EXIT_CODE
    if column in ("AllocTRES", "ReqTRES") or column.startswith("TRESUsage"):
        return _TRES
    if column == "NodeList":
        return _HOSTS
    return _WORD if column in _WORDS else _LINE


def looks_submitted(text: str) -> bool:
    """Whether a `SubmitLine` is one: blank, or a command that submits."""
    return _SUBMIT_LINE.match(text) is not None
