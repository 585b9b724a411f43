"""Public logs, and what their authors published about them: how to compute the same with `holdfast`.

The data are not kept here. `measure_public` runs the commands of the page in a folder that holds the files.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from published_figures import Figures

Reading = Callable[[Figures], float]
INTRODUCTION = (
    "Real logs that anyone can fetch, with the commands that compute the figures. The data are not part",
    "of the repository: `python tools/reproduction.py FOLDER titan alibaba` runs the commands in",
    "FOLDER/titan and FOLDER/alibaba, where the files must be.",
    "",
)


@dataclass(frozen=True)
class Step:
    """A command, and the figures that its JSON has."""

    command: str
    figures: dict[str, Reading]


@dataclass(frozen=True)
class PublicRow:
    """One figure of ours, beside the published one."""

    what: str
    published: str  # Empty: we found none
    where: str  # In which document it stands
    figure: str  # Of a step
    digits: int = 0


@dataclass(frozen=True)
class PublicLog:
    """A log that anyone can fetch."""

    title: str
    about: str
    files: tuple[str, ...]
    maps: dict[str, str]  # Name -> text of a column map
    steps: tuple[Step, ...]
    rows: tuple[PublicRow, ...]
    why: str


TITAN_MAP = """\
table = "node_outages"
skip_without = "cause"     # rows without an event are lives of GPUs, not failures

[columns]
node = "location"          # one GPU per node
start_s = "remove"
cause = "event"            # DBE or OTB

[time]
zone = "America/New_York"
"""
MACHINE = (
    "holdfast fleet mttf {0} --project 149504 --json"  # 18,688 nodes, counted as eight GPUs each
)
PAPER = "tbf.tex at 5163e32"
NOTEBOOK = "TitanGPUmodel.Rmd"


def _hours(mttf: Figures) -> float:
    """Time between failures of the whole machine."""
    return float(mttf["projections"][0]["mttf_hours"])


def _event_hours(mttf: Figures) -> float:
    """Time between events: a failure may be several."""
    return _hours(mttf) * mttf["failures"] / mttf["failed_attempts"]


def _period(store: str, begin: str, end: str, more: str = "") -> str:
    """Commands: the failures of a period as a log of their own, and their rate."""
    chosen = f'($7 && $4 >= "{begin}" && $4 < "{end}"{more})'
    first = "NR == FNR {if ($3 && (!($1 in t) || $3 < t[$1])) t[$1] = $3; next} " if more else ""
    source, head = ("gc_full.csv gc_full.csv", "FNR") if more else ("gc_full.csv", "NR")
    return (
        f"awk -F, '{first}{head} == 1 || {chosen}' {source} > {store}.csv\n"
        f"holdfast fleet ingest {store}.csv --map titan.toml --nodes 18688 -o {store} --quiet\n"
        f"{MACHINE.format(store)}"
    )


TITAN = PublicLog(
    "GPU failures of Titan",
    """\
Ostrouchov et al., "GPU Lifetimes on Titan Supercomputer: Survival Analysis and Reliability", SC20, list
the double bit errors (DBE) and the GPUs that fell off the bus (OTB) of 18,688 nodes with one GPU each,
from 2014 to 2019: `data/gc_full.csv` of [olcf/TitanGPULife](https://github.com/olcf/TitanGPULife) at
f330355. The published figures are those of the paper's text and notebook in that repository.
""",
    ("gc_full.csv",),
    {
        "titan.toml": TITAN_MAP,
        "gpus.toml": TITAN_MAP.replace('"location"          # one GPU per node', '"SN"'),
    },
    (
        Step(
            "holdfast fleet ingest gc_full.csv --map titan.toml --nodes 18688 -o titan --quiet\n"
            + MACHINE.format("titan"),
            {
                "events": lambda f: f["failed_attempts"],
                "failures": lambda f: f["failures"],
                "rate": lambda f: f["rate_per_1000_node_days"],
                "hours": _hours,
                "variance": lambda f: f["dispersion"]["variance_over_mean"],
            },
        ),
        Step(
            "holdfast fleet ingest gc_full.csv --map gpus.toml -o gpus --quiet\n"
            "holdfast fleet lemons gpus --json",
            {
                "failed_gpus": lambda f: sum(row["failures"] > 0 for row in f["nodes"]),
                "failed_again": lambda f: sum(row["failures"] > 1 for row in f["nodes"]),
            },
        ),
        Step(_period("q2015", "2015-10", "2016"), {"hours_2015q4": _event_hours}),
        Step(
            _period("q2016", "2016-10", "2017"),
            {"hours_2016q4": _event_hours, "events_2016q4": lambda f: f["failed_attempts"]},
        ),
        Step(_period("old", "2018-10", "2019", ' && t[$1] < "2016"'), {"hours_old": _event_hours}),
        Step(_period("new", "2018-10", "2019", ' && t[$1] >= "2016"'), {"hours_new": _event_hours}),
    ),
    (
        PublicRow("GPUs with a DBE or OTB", "5,190", NOTEBOOK, "failed_gpus"),
        PublicRow("... with more than one", "551", NOTEBOOK, "failed_again"),
        PublicRow("Hours between events, 2015-Q4", "7.7", PAPER, "hours_2015q4", 1),
        PublicRow("... 2016-Q4, the worst", "2.7", PAPER, "hours_2016q4", 1),
        PublicRow("Events in 2016-Q4", "813", PAPER, "events_2016q4"),
        PublicRow("Hours between events, 2018-Q4, old GPUs", "about 7.9", PAPER, "hours_old", 1),
        PublicRow("... new GPUs", "96", PAPER, "hours_new", 1),
        PublicRow("Events, all years", "", "", "events"),
        PublicRow("Failures of nodes, all years", "", "", "failures"),
        PublicRow("... per 1,000 node-days", "", "", "rate", 3),
        PublicRow("... hours between them on 18,688 nodes", "", "", "hours", 1),
        PublicRow("... per node, variance / mean", "", "", "variance", 2),
    ),
    """\
Events of one node within a minute are one failure of ours, and rows that agree in node, second and
cause are read once: so fewer GPUs have more than one, and c13-3c1s0n0, which has 106 events, all but
one of them about 40 seconds apart in one hour, does not lead the ranking. The published hours are means
between events at different moments, one fewer than the events (20 of the new GPUs); ours are the time
that the log covers, per event. In 2016-Q4 two dozen events share their second with another. We could
read no published rate per node.
""",
)
ALIBABA_MAP = """\
table = "attempts"

[columns]
job_id = "name"
state = "pod_phase"
submit_s = "creation_time"
start_s = "scheduled_time"
end_s = "deletion_time"
gpus = "num_gpu"
qos = "qos"

[values.state]
Succeeded = "COMPLETED"
Failed = "FAILED"
Running = "CANCELLED"      # deleted while it ran
Pending = "PENDING"

[time]
origin = 2022-01-01T00:00:00Z      # times are seconds after the start of the trace, which is not published
"""


def _states(name: str) -> Reading:
    """Attempts that ended in a state."""
    return lambda status: round(status["attempts"] * status["by_count"].get(name, 0.0))


ALIBABA = PublicLog(
    "Pods of Alibaba, 2023",
    """\
`csv/openb_pod_list_default.csv` of cluster-trace-gpu-v2023 in
[alibaba/clusterdata](https://github.com/alibaba/clusterdata) at 7a6c496, from Weng et al., "Beware of
Fragmentation", USENIX ATC 2023: pods of a cluster of 1,523 nodes, without the nodes that they ran on.
""",
    ("openb_pod_list_default.csv",),
    {"alibaba.toml": ALIBABA_MAP},
    (
        Step(
            "holdfast fleet ingest openb_pod_list_default.csv --map alibaba.toml -o alibaba --quiet\n"
            "holdfast fleet status alibaba --json",
            {
                "attempts": lambda f: f["attempts"],
                "gpu_hours": lambda f: f["gpu_hours"],
                **{
                    each.lower(): _states(each)
                    for each in ("FAILED", "COMPLETED", "CANCELLED", "PENDING")
                },
            },
        ),
    ),
    (
        PublicRow("Pods", "8,152", "README.md", "attempts"),
        PublicRow("GPU-hours, a shared GPU counted as one", "", "", "gpu_hours"),
        PublicRow("Pods that failed", "", "", "failed"),
        PublicRow("... succeeded", "", "", "completed"),
        PublicRow("... were deleted while they ran", "", "", "cancelled"),
        PublicRow("... never started", "", "", "pending"),
    ),
    """\
A pod whose phase is Running was deleted while it ran, so it counts as cancelled. We found no published
figure on how these pods ended. The trace names neither nodes nor causes, so it cannot show a failure of
a node: `holdfast fleet report` says "cannot tell", and `lemons` refuses it.
""",
)
PUBLIC = {"titan": TITAN, "alibaba": ALIBABA}


def public_lines(kept: Mapping[str, Figures]) -> Iterator[str]:
    """The page's section."""
    yield from ("## Public logs", "", *INTRODUCTION)
    for name, log in PUBLIC.items():
        found = kept[name]
        sums = ", ".join(f"`{file}` {digest}" for file, digest in found["sha256"].items())
        yield from (f"### {log.title}", "", *log.about.splitlines(), "")
        yield from (f"Computed on {found['date']}; SHA-256 of {sums}.", "")
        yield from ("| | published | in | ours |", "|-|-|-|-|")
        for row in log.rows:
            ours = f"{found['figures'][row.figure]:,.{row.digits}f}"
            yield f"| {row.what} | {row.published or '–'} | {row.where} | {ours} |"
        yield from ("", *log.why.splitlines(), "")
        for file, text in log.maps.items():
            yield from (f"`{file}`:", "", "```toml", *text.splitlines(), "```", "")
        yield "```sh"
        for step in log.steps:
            yield from step.command.splitlines()
        yield from ("```", "")


def measure_public(log: PublicLog, folder: Path) -> Figures:
    """Run a log's commands in the folder that holds its files; `holdfast` is that of the PATH."""
    for name, text in log.maps.items():
        (folder / name).write_text(text, encoding="utf-8")
    figures: Figures = {}
    for step in log.steps:
        said = "{}"
        for command in step.command.splitlines():
            said = subprocess.run(
                ["bash", "-c", command], cwd=folder, stdout=subprocess.PIPE, text=True, check=True
            ).stdout
        found = json.loads(said)
        figures |= {name: value(found) for name, value in step.figures.items()}
    sums = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in log.files}
    return {"figures": figures, "sha256": sums, "date": datetime.date.today().isoformat()}
