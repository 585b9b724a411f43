"""Everything that a simulation assumes about a fleet, as a TOML file that a person can read and edit.

A `Scenario` says what the cluster is, what its users submit, how the scheduler decides, what breaks,
how it is found and repaired, and how jobs save their work. Keys of the TOML are the names of the
fields; a duration is a text such as ``"2h"`` under the field's name without its ``_s``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from holdfast.config import parse_config
from holdfast.errors import InputError
from holdfast.fleet.simulation.scenario_file import (
    DAY_S,
    Count,
    Number,
    Positive,
    Share,
    Whole,
    check,
    fitted,
    read,
    write,
)

PRESETS = ("rsc1", "rsc2", "small")


@dataclass(frozen=True)
class Cluster:
    """The machines."""

    nodes: Count  # How many there are, those in `without` included
    gpus_per_node: Annotated[int, Meta(ge=1, le=64)] = 8  # At most 64
    nodes_per_rack: Count = 2  # Nodes in one rack
    # Nodes behind one switch: gangs are placed inside a pod where one has room.
    nodes_per_pod: Count = 20
    # Host list of the nodes' names, for example ``gpu[001-016]``; empty: ``node1``, ``node2`` ...
    names: str = ""
    without: tuple[str, ...] = ()  # Nodes that have been pulled: they are never in service


@dataclass(frozen=True)
class Qos:
    """A class of service."""

    name: str  # As jobs ask for it
    priority: Whole  # A larger number starts first, and preempts attempts with a smaller one


@dataclass(frozen=True)
class Size:
    """Jobs of one size."""

    gpus: Count  # Of each job; above one node, whole nodes
    share: Number  # Of all jobs; the shares of all sizes are scaled to one
    hours: Positive  # Mean productive hours that a job needs to complete
    spread: Number = 1.0  # Sigma of the lognormal distribution of those hours; 0: all alike
    # Share of the jobs by class of service; empty: the first class.
    qos: Mapping[str, Number] = field(default_factory=dict)


@dataclass(frozen=True)
class End:
    """A way in which jobs end before their work is done, for reasons of their own: a hazard."""

    # FAILED, CANCELLED, OUT_OF_MEMORY (each ends the job) or REQUEUED (the job starts again).
    state: Literal["FAILED", "CANCELLED", "OUT_OF_MEMORY", "REQUEUED"]
    scale_hours: Positive  # Weibull scale of the productive hours until it happens
    shape: Positive = 1.0  # Weibull shape; below one: most fail early


@dataclass(frozen=True)
class Workload:
    """What users submit."""

    # Mean arrivals; a Poisson process that follows the hours and the days.
    jobs_per_day: Number = 0.0
    users: Count = 100  # Users among whom the jobs are shared out
    # Relative arrivals by hour of the day, 24 numbers.
    hour_weights: tuple[Number, ...] = (1.0,) * 24
    # Relative arrivals by day of the week, Monday first, 7 numbers.
    day_weights: tuple[Number, ...] = (1.0,) * 7
    sizes: tuple[Size, ...] = ()
    ends: tuple[End, ...] = ()
    # Share of the jobs whose time limit is too short for their work: they end as TIMEOUT.
    short_limits: Share = 0.0
    # Time limits are up to this many times the time that the job needs.
    limit_factor: Annotated[float, Meta(ge=1.2, le=1e300)] = 3.0


@dataclass(frozen=True)
class Scheduler:
    """How jobs are started."""

    # ``fcfs``, or ``easy``: backfill behind one reservation.
    policy: Literal["easy", "fcfs"] = "easy"
    interval_s: Number = 30.0  # Time between passes over the queue; 0: a pass after every event
    depth: Whole = 500  # Waiting jobs that one pass looks at; 0: all
    preemption: bool = True  # Whether a waiting job may displace attempts of a lower class
    preempt_after_s: Number = 7_200.0  # An attempt is safe from preemption this long
    grace_s: Number = 600.0  # Time from the preemption signal to the kill
    requeue_delay_s: Number = 120.0  # Time until a requeued job may start again
    time_limit_s: Positive = 7 * DAY_S  # The longest limit that a job may have
    # Priority that a job gains per day of waiting, in the units of the classes' priorities.
    age_weight: Number = 0.0


@dataclass(frozen=True)
class Lemons:
    """Nodes that fail far more often than the others."""

    count: Whole = 0  # That many, chosen by the seed
    factor: Positive = 1.0  # How much more often they fail than a healthy node
    nodes: Mapping[str, Positive] = field(default_factory=dict)  # Named nodes -> their own factors


@dataclass(frozen=True)
class Component:
    """A kind of failure."""

    name: str  # What breaks
    share: Number  # Of all failures; the shares of all components are scaled to one
    check: str  # The health check that sees it
    xid: Whole = 0  # NVIDIA XID that the event carries; 0: none
    high: Share = 1.0  # Share seen by a HIGH check: the node is removed at once
    # Share seen by a LOW check: the node is drained, its jobs go on. The rest is not seen: the node
    # falls silent, and the scheduler gives it up after ``detection.heartbeat``.
    low: Share = 0.0
    # Share of the HIGH ones in which the job dies at once (FAILED); else it hangs until the check.
    crash: Share = 0.5
    permanent: Share = 0.1  # Share that takes a long repair


@dataclass(frozen=True)
class Blast:
    """A failure of something that many nodes share."""

    name: str  # What breaks
    # ``rack`` (power: the nodes of one rack), ``pod`` (a switch: those of one pod) or ``fleet`` (a
    # filesystem: all nodes).
    domain: Literal["rack", "pod", "fleet"]
    rate_per_day: Number  # Of each rack or pod, or of the fleet
    check: str  # The health check that sees it on each node
    repair_s: Number = 3_600.0  # How long each node is out of service


@dataclass(frozen=True)
class Failures:
    """What breaks."""

    # Failures that end attempts, per node and day in service: the mean of all nodes, lemons
    # included; drains by a LOW check and blasts come on top.
    rate_per_node_day: Number = 0.0
    lemons: Lemons = field(default_factory=Lemons)
    components: tuple[Component, ...] = ()
    blasts: tuple[Blast, ...] = ()


@dataclass(frozen=True)
class Detection:
    """How failures are noticed."""

    check_interval_s: Positive = 300.0  # Time between two health checks of a node
    heartbeat_s: Number = 300.0  # A silent node is given up after this time


@dataclass(frozen=True)
class Repair:
    """How long a node is out of service: uniform in one of two ranges."""

    fast_min_s: Number = 3_600.0  # The shortest of the common, automatic repairs ...
    fast_max_s: Number = 10_800.0  # ... and the longest.
    # The shortest repair of what is broken for good (`Component.permanent`) ...
    slow_min_s: Number = DAY_S
    slow_max_s: Number = 3 * DAY_S  # ... and the longest.


@dataclass(frozen=True)
class Pulls:
    """A rule that pulls nodes which fail often, for a longer repair."""

    # A node is pulled at so many failures that ended attempts ...; 0: none is
    failures: Annotated[int, Meta(ge=0, le=1000)] = 0
    within_s: Positive = 7 * DAY_S  # ... in so long a time
    repair_s: Number = 4 * 3_600.0  # Its repair takes at least so long
    # So long after it, the node's failures do not count; they are as frequent as a healthy node's ...
    horizon_s: Number = 28 * DAY_S
    fixed: Share = 1.0  # ... after this share of the pulls


@dataclass(frozen=True)
class Checkpoint:
    """How jobs save their work."""

    interval_s: Positive = 3_600.0  # Productive time between two checkpoints
    write_s: Number = 0.0  # Time that a write takes
    init_s: Number = 300.0  # Time after each start before work begins
    # ``sync``: the job waits for the write; ``async``: it works on, and the checkpoint counts once
    # it is written.
    mode: Literal["sync", "async"] = "sync"
    save_on_signal: bool = True  # Whether a preempted job writes a checkpoint in its grace period
    # Time from the end of an attempt that failed until its work goes on from copies in the memory of
    # the job's other nodes, without rollback; 0: there are no copies.
    recovery_s: Number = 0.0
    survives: Count = 1  # So many of its nodes may fail at once without a loss of all copies


@dataclass(frozen=True)
class Scenario:
    """A fleet as it is simulated."""

    name: str  # Name of the cluster in the log
    cluster: Cluster
    qos: tuple[Qos, ...]
    workload: Workload
    begin: str = "2024-01-01T00:00:00Z"  # The moment at which the simulation starts, ISO 8601
    scheduler: Scheduler = field(default_factory=Scheduler)
    failures: Failures = field(default_factory=Failures)
    detection: Detection = field(default_factory=Detection)
    repair: Repair = field(default_factory=Repair)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    pulls: Pulls = field(default_factory=Pulls)

    def __post_init__(self) -> None:
        fitted(_Unchecked, asdict(self))
        check(self)

    @cached_property
    def begin_s(self) -> int:
        """`begin` in seconds since 1970."""
        moment = datetime.fromisoformat(self.begin)
        return int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp())

    @cached_property
    def node_names(self) -> list[str]:
        """The names of the nodes, shape [nodes]."""
        if self.cluster.names:
            from holdfast.fleet.formats.hosts import hosts_of

            return hosts_of(self.cluster.names) or []
        digits = len(str(self.cluster.nodes))
        return [f"node{number:0{digits}d}" for number in range(1, self.cluster.nodes + 1)]

    def to_toml(self, notes: Mapping[str, Sequence[str]] | None = None) -> str:
        """The scenario as TOML that `scenario` reads back to an equal one; `notes` above their keys."""
        lines = []
        write(lines, self, notes or {})
        return "\n".join(lines).strip() + "\n"


@dataclass(frozen=True)
class _Unchecked(Scenario):
    """The same before it is checked."""

    def __post_init__(self) -> None:
        """Its values are checked by their types alone."""


def scenario(source: str | Path | Scenario) -> Scenario:
    """A scenario by name or from a file.

    Args:
        source: ``"rsc1"``, ``"rsc2"`` or ``"small"``, or the path of a TOML file.

    Raises:
        InputError: if there is none, or it says something impossible; the key is named.
    """
    if isinstance(source, Scenario):
        return source
    preset = str(source) in PRESETS
    shipped = resources.files("holdfast.fleet.simulation").joinpath(f"presets/{source}.toml")
    path = Path(str(shipped)) if preset else Path(source)
    try:
        loaded: Scenario = read(Scenario, parse_config(path, "the scenario"))
    except InputError as error:
        missing = {"remedy": f"presets: {', '.join(PRESETS)}"} if error.code == "not-found" else {}
        raise InputError(**vars(error) | {"path": path} | missing) from None
    return loaded


def parse(text: str) -> Scenario:
    """A scenario from TOML text.

    Raises:
        InputError: if the text is no scenario.
    """
    loaded: Scenario = read(Scenario, tomllib.loads(text))
    return loaded
