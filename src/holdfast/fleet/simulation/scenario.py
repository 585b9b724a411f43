"""Everything that a simulation assumes about a fleet, as a TOML file that a person can read and edit.

A `Scenario` says what the cluster is, what its users submit, how the scheduler decides, what breaks,
how it is found and repaired, and how jobs save their work. Keys of the TOML are the names of the
fields; a duration is a text such as ``"2h"`` under the field's name without its ``_s``.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from holdfast.errors import InputError

PRESETS = ("rsc1", "rsc2", "small")
ENDS = ("FAILED", "CANCELLED", "OUT_OF_MEMORY", "REQUEUED")
DAY_S = 86_400.0


@dataclass(frozen=True)
class Cluster:
    """The machines."""

    nodes: int
    """How many there are, those in `without` included."""
    gpus_per_node: int = 8
    """At most 64."""
    nodes_per_rack: int = 2
    """Nodes in one rack."""
    nodes_per_pod: int = 20
    """Nodes behind one switch: gangs are placed inside a pod where one has room."""
    names: str = ""
    """Host list of the nodes' names, for example ``gpu[001-016]``; empty: ``node1``, ``node2`` ..."""
    without: tuple[str, ...] = ()
    """Nodes that have been pulled: they are never in service."""


@dataclass(frozen=True)
class Qos:
    """A class of service."""

    name: str
    """As jobs ask for it."""
    priority: int
    """A larger number starts first, and preempts attempts with a smaller one."""


@dataclass(frozen=True)
class Size:
    """Jobs of one size."""

    gpus: int
    """Of each job; above one node, whole nodes."""
    share: float
    """Of all jobs; the shares of all sizes are scaled to one."""
    hours: float
    """Mean productive hours that a job needs to complete."""
    spread: float = 1.0
    """Sigma of the lognormal distribution of those hours; 0: all alike."""
    qos: Mapping[str, float] = field(default_factory=dict)
    """Share of the jobs by class of service; empty: the first class."""


@dataclass(frozen=True)
class End:
    """A way in which jobs end before their work is done, for reasons of their own: a hazard."""

    state: str
    """FAILED, CANCELLED, OUT_OF_MEMORY (each ends the job) or REQUEUED (the job starts again)."""
    scale_hours: float
    """Weibull scale of the productive hours until it happens."""
    shape: float = 1.0
    """Weibull shape; below one: most fail early."""


@dataclass(frozen=True)
class Workload:
    """What users submit."""

    kind: str = "synthetic"
    """``synthetic``, or ``replay`` of the jobs of a log."""
    jobs_per_day: float = 0.0
    """Mean arrivals; a Poisson process that follows the hours and the days."""
    users: int = 100
    """Users among whom the jobs are shared out."""
    hour_weights: tuple[float, ...] = (1.0,) * 24
    """Relative arrivals by hour of the day, 24 numbers."""
    day_weights: tuple[float, ...] = (1.0,) * 7
    """Relative arrivals by day of the week, Monday first, 7 numbers."""
    sizes: tuple[Size, ...] = ()
    ends: tuple[End, ...] = ()
    short_limits: float = 0.0
    """Share of the jobs whose time limit is too short for their work: they end as TIMEOUT."""
    limit_factor: float = 3.0
    """Time limits are up to this many times the time that the job needs."""
    log: str = ""
    """For ``replay``: the store whose jobs arrive again."""


@dataclass(frozen=True)
class Scheduler:
    """How jobs are started."""

    policy: str = "easy"
    """``fcfs``, or ``easy``: backfill behind one reservation."""
    interval_s: float = 30.0
    """Time between passes over the queue; 0: a pass after every event."""
    depth: int = 500
    """Waiting jobs that one pass looks at; 0: all."""
    preemption: bool = True
    """Whether a waiting job may displace attempts of a lower class."""
    preempt_after_s: float = 7_200.0
    """An attempt is safe from preemption this long."""
    grace_s: float = 600.0
    """Time from the preemption signal to the kill."""
    requeue_delay_s: float = 120.0
    """Time until a requeued job may start again."""
    time_limit_s: float = 7 * DAY_S
    """The longest limit that a job may have."""
    age_weight: float = 0.0
    """Priority that a job gains per day of waiting, in the units of the classes' priorities."""


@dataclass(frozen=True)
class Lemons:
    """Nodes that fail far more often than the others."""

    count: int = 0
    """That many, chosen by the seed."""
    factor: float = 1.0
    """How much more often they fail than a healthy node."""
    nodes: Mapping[str, float] = field(default_factory=dict)
    """Named nodes -> their own factors."""


@dataclass(frozen=True)
class Component:
    """A kind of failure."""

    name: str
    """What breaks."""
    share: float
    """Of all failures; the shares of all components are scaled to one."""
    check: str
    """The health check that sees it."""
    xid: int = 0
    """NVIDIA XID that the event carries; 0: none."""
    high: float = 1.0
    """Share seen by a HIGH check: the node is removed at once."""
    low: float = 0.0
    """Share seen by a LOW check: the node is drained, its jobs go on. The rest is not seen: the
    node falls silent, and the scheduler gives it up after ``detection.heartbeat``."""
    crash: float = 0.5
    """Share of the HIGH ones in which the job dies at once (FAILED); else it hangs until the check."""
    permanent: float = 0.1
    """Share that takes a long repair."""


@dataclass(frozen=True)
class Blast:
    """A failure of something that many nodes share."""

    name: str
    """What breaks."""
    domain: str
    """``rack`` (power: the nodes of one rack), ``pod`` (a switch: those of one pod) or ``fleet`` (a
    filesystem: all nodes)."""
    rate_per_day: float
    """Of each rack or pod, or of the fleet."""
    check: str
    """The health check that sees it on each node."""
    repair_s: float = 3_600.0
    """How long each node is out of service."""


@dataclass(frozen=True)
class Failures:
    """What breaks."""

    rate_per_node_day: float = 0.0
    """Failures that end attempts, per node and day in service: the mean of all nodes, lemons included;
    drains by a LOW check and blasts come on top."""
    shape: float = 1.0
    """Weibull shape of the time between failures of a node; 1: exponential."""
    lemons: Lemons = field(default_factory=Lemons)
    components: tuple[Component, ...] = ()
    blasts: tuple[Blast, ...] = ()


@dataclass(frozen=True)
class Detection:
    """How failures are noticed."""

    check_interval_s: float = 300.0
    """Time between two health checks of a node."""
    heartbeat_s: float = 300.0
    """A silent node is given up after this time."""


@dataclass(frozen=True)
class Repair:
    """How long a node is out of service: uniform in one of two ranges."""

    fast_min_s: float = 3_600.0
    """The shortest of the common, automatic repairs ..."""
    fast_max_s: float = 10_800.0
    """... and the longest."""
    slow_min_s: float = DAY_S
    """The shortest repair of what is broken for good (`Component.permanent`) ..."""
    slow_max_s: float = 3 * DAY_S
    """... and the longest."""


@dataclass(frozen=True)
class Checkpoint:
    """How jobs save their work."""

    interval_s: float = 3_600.0
    """Productive time between two checkpoints."""
    write_s: float = 0.0
    """Time that a write takes."""
    init_s: float = 300.0
    """Time after each start before work begins."""
    mode: str = "sync"
    """``sync``: the job waits for the write; ``async``: it works on, and the checkpoint counts once
    it is written."""
    save_on_signal: bool = True
    """Whether a preempted job writes a checkpoint in its grace period."""


@dataclass(frozen=True)
class Scenario:
    """A fleet as it is simulated."""

    name: str
    """Name of the cluster in the log."""
    cluster: Cluster
    qos: tuple[Qos, ...]
    workload: Workload
    begin: str = "2024-01-01T00:00:00Z"
    """The moment at which the simulation starts, ISO 8601."""
    scheduler: Scheduler = field(default_factory=Scheduler)
    failures: Failures = field(default_factory=Failures)
    detection: Detection = field(default_factory=Detection)
    repair: Repair = field(default_factory=Repair)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)

    def __post_init__(self) -> None:
        _check(self)

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

    def to_toml(self) -> str:
        """The scenario as TOML that `scenario` reads back to an equal one."""
        lines: list[str] = []
        _write(lines, "", self)
        return "\n".join(lines).strip() + "\n"


def scenario(source: str | Path | Scenario) -> Scenario:
    """A scenario by name or from a file.

    Args:
        source: ``"rsc1"``, ``"rsc2"`` or ``"small"``, or the path of a TOML file.

    Raises:
        InputError: if there is none, or it says something impossible; the key is named.
    """
    if isinstance(source, Scenario):
        return source
    if str(source) in PRESETS:
        file = resources.files("holdfast.fleet.simulation").joinpath(f"presets/{source}.toml")
        return parse(file.read_text(encoding="utf-8"), path=None)
    path = Path(source)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            "the scenario cannot be read",
            path=path,
            found=str(error),
            expected=f"a TOML file, or one of the presets {', '.join(PRESETS)}",
        ) from error
    return parse(text, path=path)


def parse(text: str, *, path: Path | None = None) -> Scenario:
    """A scenario from TOML text; `path` is named in complaints.

    Raises:
        InputError: if the text is no scenario.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError("this is not TOML", path=path, found=str(error)) from error
    try:
        made: Scenario = _read(Scenario, data, "")
    except InputError as error:
        raise InputError(
            error.problem,
            path=path,
            place=error.place,
            found=error.found,
            expected=error.expected,
            remedy=error.remedy,
        ) from None
    return made


# --- From and to TOML ----------------------------------------------------------------------------


def wrong(key: str, found: object, expected: str) -> InputError:
    """The complaint about one key of a scenario."""
    return InputError(
        "the scenario says something impossible",
        place=key,
        found=repr(found),
        expected=expected,
    )


def toml_key(name: str) -> str:
    """The TOML key of a field: ``grace_s`` is written as ``grace``."""
    return name.removesuffix("_s")


def _read(kind: Any, data: object, place: str) -> Any:
    """A dataclass from a TOML table, every key checked."""
    if not isinstance(data, dict):
        raise wrong(place, data, "a table")
    types = get_type_hints(kind)
    names = {toml_key(each.name): each for each in dataclasses.fields(kind)}
    values: dict[str, Any] = {}
    for key, value in data.items():
        where = f"{place}.{key}" if place else key
        if key not in names:
            raise wrong(where, key, "one of the keys " + ", ".join(names))
        name = names[key].name
        values[name] = _value(types[name], value, where, duration=name.endswith("_s"))
    for key, each in names.items():
        needed = each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
        if needed and each.name not in values:
            raise wrong(f"{place}.{key}" if place else key, None, "this key")
    return kind(**values)


def _value(kind: Any, value: object, place: str, *, duration: bool) -> Any:
    if dataclasses.is_dataclass(kind):
        return _read(kind, value, place)
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise wrong(place, value, "a list")
        inner = get_args(kind)[0]
        return tuple(
            _value(inner, each, f"{place}[{i}]", duration=False) for i, each in enumerate(value)
        )
    if get_origin(kind) is Mapping:
        if not isinstance(value, dict):
            raise wrong(place, value, "a table of numbers")
        return {k: _value(float, v, f"{place}.{k}", duration=False) for k, v in value.items()}
    if duration and isinstance(value, str):
        return _duration(value, place)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise wrong(place, value, "a finite number")
        return float(value)
    if kind in (int, str, bool) and type(value) is kind:
        return value
    names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
    raise wrong(place, value, 'a duration such as "10m"' if duration else names[kind])


def _duration(text: str, place: str) -> float:
    import typer

    from holdfast.console import duration

    try:
        return duration(text)
    except typer.BadParameter as error:
        raise wrong(place, text, 'a duration such as "10m", "2h" or "7d"') from error


def _write(lines: list[str], place: str, value: Any) -> None:
    """Append a dataclass: its plain values first, then its tables."""
    tables = []
    for each in dataclasses.fields(value):
        part, key = getattr(value, each.name), toml_key(each.name)
        name = f"{place}.{key}" if place else key
        if dataclasses.is_dataclass(part):
            tables.append((f"[{name}]", name, part))
        elif isinstance(part, tuple) and part and dataclasses.is_dataclass(part[0]):
            tables.extend((f"[[{name}]]", name, item) for item in part)
        else:
            lines.append(f"{key} = {_literal(part, duration=each.name.endswith('_s'))}")
    for header, name, part in tables:
        lines += ["", header]
        _write(lines, name, part)


def _literal(value: Any, *, duration: bool) -> str:
    if duration:
        return _spoken(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
    if isinstance(value, tuple):
        return "[" + ", ".join(_literal(each, duration=False) for each in value) + "]"
    if isinstance(value, Mapping):
        parts = (f"{_literal(k, duration=False)} = {v!r}" for k, v in value.items())
        return "{ " + ", ".join(parts) + " }" if value else "{}"
    return repr(value)


def _spoken(seconds: float) -> str:
    """The shortest TOML value that is read back as this time; odd ones as a number of seconds."""
    for unit, length in (("d", DAY_S), ("h", 3_600.0), ("m", 60.0), ("s", 1.0)):
        if seconds < 1e9 and seconds % length == 0 and (seconds or unit == "s"):
            return f'"{seconds / length:.0f}{unit}"'
    return repr(float(seconds))


# --- What is impossible --------------------------------------------------------------------------


def _check(made: Scenario) -> None:
    """Refuse what cannot be simulated, by the name of its key."""
    _check_numbers(made, "")
    cluster, workload, scheduler = made.cluster, made.workload, made.scheduler
    try:
        datetime.fromisoformat(made.begin)
    except ValueError as error:
        raise wrong("begin", made.begin, "a time such as 2024-01-01T00:00:00Z") from error
    for name in ("nodes", "gpus_per_node", "nodes_per_rack", "nodes_per_pod"):
        if getattr(cluster, name) < 1:
            raise wrong(f"cluster.{name}", getattr(cluster, name), "1 or more")
    if cluster.gpus_per_node > 64:
        raise wrong("cluster.gpus_per_node", cluster.gpus_per_node, "at most 64")
    if cluster.names and len(set(made.node_names)) != cluster.nodes:
        raise wrong("cluster.names", cluster.names, f"the names of {cluster.nodes} different nodes")
    if strangers := set(cluster.without) - set(made.node_names):
        raise wrong("cluster.without", min(strangers), "a node of the cluster")
    if len(set(cluster.without)) == cluster.nodes:
        raise wrong("cluster.without", "every node", "at least one node that is left")
    classes = [each.name for each in made.qos]
    if not classes or len(set(classes)) != len(classes):
        raise wrong("qos", classes, "one or more classes of service with different names")
    _check_choice("scheduler.policy", scheduler.policy, ("easy", "fcfs"))
    _check_choice("checkpoint.mode", made.checkpoint.mode, ("sync", "async"))
    if made.checkpoint.interval_s <= 0:
        raise wrong("checkpoint.interval", made.checkpoint.interval_s, "a time above zero")
    if scheduler.time_limit_s <= 0:
        raise wrong("scheduler.time_limit", scheduler.time_limit_s, "a time above zero")
    if made.detection.check_interval_s <= 0:
        raise wrong(
            "detection.check_interval", made.detection.check_interval_s, "a time above zero"
        )
    for kind in ("fast", "slow"):
        low, high = (getattr(made.repair, f"{kind}_{end}_s") for end in ("min", "max"))
        if low > high:
            raise wrong(f"repair.{kind}_min", low, f"at most repair.{kind}_max ({high} s)")
    _check_workload(workload, cluster, classes)
    _check_failures(made.failures, made)


def _check_workload(workload: Workload, cluster: Cluster, classes: list[str]) -> None:
    _check_choice("workload.kind", workload.kind, ("synthetic", "replay"))
    for name, count in (("hour_weights", 24), ("day_weights", 7)):
        weights = getattr(workload, name)
        if len(weights) != count or not sum(weights) > 0:
            raise wrong(f"workload.{name}", list(weights), f"{count} numbers, not all zero")
    if workload.users < 1:
        raise wrong("workload.users", workload.users, "1 or more")
    if workload.limit_factor < 1.2:
        raise wrong("workload.limit_factor", workload.limit_factor, "1.2 or more")
    if workload.short_limits > 1:
        raise wrong("workload.short_limits", workload.short_limits, "a share of at most 1")
    if workload.kind == "synthetic":
        if not workload.sizes or not sum(size.share for size in workload.sizes) > 0:
            raise wrong("workload.sizes", "nothing", "one or more sizes with shares above zero")
        if not workload.jobs_per_day > 0:
            raise wrong("workload.jobs_per_day", workload.jobs_per_day, "a number above zero")
    most = cluster.nodes * cluster.gpus_per_node
    for place, size in enumerate(workload.sizes):
        key = f"workload.sizes[{place}]"
        if not 1 <= size.gpus <= most:
            raise wrong(f"{key}.gpus", size.gpus, f"1 to {most}, the GPUs of the cluster")
        if size.gpus > cluster.gpus_per_node and size.gpus % cluster.gpus_per_node:
            raise wrong(f"{key}.gpus", size.gpus, f"a multiple of {cluster.gpus_per_node}")
        if not size.hours > 0:
            raise wrong(f"{key}.hours", size.hours, "a number above zero")
        for name in size.qos:
            if name not in classes:
                raise wrong(f"{key}.qos", name, "one of the classes " + ", ".join(classes))
        if size.qos and not sum(size.qos.values()) > 0:
            raise wrong(f"{key}.qos", dict(size.qos), "shares that are not all zero")
    for place, end in enumerate(workload.ends):
        _check_choice(f"workload.ends[{place}].state", end.state, ENDS)
        for name in ("scale_hours", "shape"):
            if not getattr(end, name) > 0:
                raise wrong(f"workload.ends[{place}].{name}", getattr(end, name), "above zero")


def _check_failures(failures: Failures, made: Scenario) -> None:
    lemons = failures.lemons
    if not failures.shape > 0:
        raise wrong("failures.shape", failures.shape, "a number above zero")
    if lemons.count > made.cluster.nodes:
        raise wrong(
            "failures.lemons.count", lemons.count, f"at most {made.cluster.nodes}, the nodes"
        )
    if not lemons.factor > 0:
        raise wrong("failures.lemons.factor", lemons.factor, "a number above zero")
    if lemons.nodes:
        known = set(made.node_names)
        for name, factor in lemons.nodes.items():
            if name not in known:
                raise wrong("failures.lemons.nodes", name, "a node of the cluster")
            if not factor > 0:
                raise wrong(f"failures.lemons.nodes.{name}", factor, "a number above zero")
    if failures.rate_per_node_day > 0 and not sum(c.share for c in failures.components) > 0:
        raise wrong("failures.components", "nothing", "one or more components with a share")
    for place, part in enumerate(failures.components):
        for name in ("high", "low", "crash", "permanent"):
            if getattr(part, name) > 1:
                raise wrong(
                    f"failures.components[{place}].{name}", getattr(part, name), "at most 1"
                )
        if part.high + part.low > 1 + 1e-9:
            raise wrong(f"failures.components[{place}].low", part.low, "high + low of at most 1")
    if failures.rate_per_node_day > 0 and all(
        part.low >= 1 for part in failures.components if part.share > 0
    ):
        raise wrong("failures.components", "drains only", "a component that ends attempts")
    for place, blast in enumerate(failures.blasts):
        _check_choice(f"failures.blasts[{place}].domain", blast.domain, ("rack", "pod", "fleet"))


def _check_choice(key: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise wrong(key, value, " or ".join(choices))


def _check_numbers(value: Any, place: str) -> None:
    """No number of a scenario is negative, or not a number."""
    if dataclasses.is_dataclass(value):
        for each in dataclasses.fields(value):
            key = toml_key(each.name)
            _check_numbers(getattr(value, each.name), f"{place}.{key}" if place else key)
    elif isinstance(value, Mapping):
        for name, part in value.items():
            _check_numbers(part, f"{place}.{name}")
    elif isinstance(value, tuple):
        for number, part in enumerate(value):
            _check_numbers(part, f"{place}[{number}]")
    elif isinstance(value, int | float) and not (math.isfinite(value) and value >= 0):
        raise wrong(place, value, "a finite number, zero or more")
