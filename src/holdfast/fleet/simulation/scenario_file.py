"""Scenarios from and to TOML, and what none may say: each complaint names the key."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

from msgspec import Meta

from holdfast.config import read_config, unknown_key
from holdfast.durations import parse_duration
from holdfast.errors import InputError

if TYPE_CHECKING:
    from holdfast.fleet.simulation.scenario import Scenario

DAY_S = 86_400.0


_FINITE = 1e300  # An infinite number, and what is none, are refused by any bound
Number = Annotated[float, Meta(ge=0, le=_FINITE)]
Positive = Annotated[float, Meta(gt=0, le=_FINITE)]
Share = Annotated[float, Meta(ge=0, le=1)]
Whole = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]


def wrong(key: str, found: object, expected: str) -> InputError:
    """The complaint about one key of a scenario."""
    return InputError(
        "invalid scenario", code="invalid-value", place=key, found=repr(found), expected=expected
    )


def toml_key(name: str) -> str:
    """The TOML key of a field: ``grace_s`` is written as ``grace``."""
    return name.removesuffix("_s")


@cache
def hints(kind: Any) -> dict[str, Any]:
    """Field -> its type, with bounds."""
    return get_type_hints(kind, include_extras=True)


def item_of(hint: Any) -> Any:
    """The type of a field, or of the items of its list, without bounds."""
    hint = get_args(hint)[0] if get_origin(hint) is tuple else hint
    hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return str if get_origin(hint) is Literal else hint


# --- From TOML, and back -------------------------------------------------------------------------


def read(kind: Any, data: Mapping[str, Any]) -> Any:
    """A dataclass from a TOML table, every key checked."""
    return fitted(kind, _by_field(kind, data, ""))


def fitted(kind: Any, values: Mapping[str, Any]) -> Any:
    """A dataclass from plain values by its fields, each within the bounds of its type."""
    try:
        return read_config(values, kind, "the scenario")
    except InputError as error:
        raise InputError(
            **vars(error) | {"place": re.sub(r"_s\b", "", error.place)} if error.place else {}
        ) from None


def _by_field(kind: Any, data: Any, place: str) -> Any:
    """A TOML value, tables with the names of their fields and durations in seconds."""
    if isinstance(data, (list, tuple)):
        return [_by_field(kind, each, f"{place}[{n}]") for n, each in enumerate(data)]
    if not isinstance(data, Mapping):
        return data
    values = {}
    names = {toml_key(name): name for name in hints(kind)} if dataclasses.is_dataclass(kind) else {}
    for key, value in data.items():
        path = f"{place}.{key}" if place else key
        name = names.get(key, key)
        if names and key not in names:
            raise unknown_key(key, names, place)
        if not names and (type(value) not in (int, float) or not 0 <= value < _FINITE):
            raise wrong(path, value, "a finite number")  # `read_config` could not name the entry
        item = item_of(hints(kind)[name]) if names else kind
        values[name] = _seconds(value, path) if name != key else _by_field(item, value, path)
    return values


def _seconds(value: Any, place: str) -> float:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        with suppress(ValueError):
            return parse_duration(value)
    raise wrong(place, value, "a duration such as 60m, 7d, 90s or 1h30m")


def plain(value: Any) -> Any:
    """What `read` makes an equal dataclass of: tables and lists by their TOML keys, times in seconds."""
    keyed = lambda pairs: {toml_key(name): part for name, part in pairs}  # noqa: E731
    return dataclasses.asdict(value, dict_factory=keyed)


def write(
    lines: list[str],
    value: Any,
    notes: Mapping[str, Sequence[str]],
    table: str = "",
    path: str = "",
) -> None:
    """Append the lines of a dataclass: its plain values first, then its tables.

    Args:
        lines: of the TOML so far.
        value: the dataclass.
        notes: key -> comments to stand above it, such as ``workload.sizes[0].hours``.
        table: the header of the dataclass.
        path: the same with the places in lists, as `notes` has it.
    """
    tables = []
    for each in dataclasses.fields(value):
        part = getattr(value, each.name)
        key = toml_key(each.name)
        name, at = (f"{above}.{key}" if above else key for above in (table, path))
        if dataclasses.is_dataclass(part):
            tables.append((f"[{name}]", name, at, part))
        elif isinstance(part, tuple) and part and dataclasses.is_dataclass(part[0]):
            items = enumerate(part)
            tables += [(f"[[{name}]]", name, f"{at}[{place}]", item) for place, item in items]
        else:
            text = literal(part, duration=each.name.endswith("_s"))
            lines += [*notes.get(at, ()), f"{key} = {text}"]
    for header, name, at, part in tables:
        lines += ["", *notes.get(at, ()), header]
        write(lines, part, notes, name, at)


def literal(value: Any, *, duration: bool = False) -> str:
    """A value as TOML writes it; a `duration` is a number of seconds."""
    if duration:
        return _spoken(value)
    if isinstance(value, Mapping):
        parts = ", ".join(f"{literal(name)} = {literal(part)}" for name, part in value.items())
        return f"{{ {parts} }}" if parts else "{}"
    # JSON but for characters that TOML escapes and JSON does not
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)


def _spoken(seconds: float) -> str:
    """The shortest TOML value that is read back as this time; odd ones as a number of seconds."""
    for unit, length in (("d", DAY_S), ("h", 3_600.0), ("m", 60.0), ("s", 1.0)):
        if seconds < 1e9 and seconds % length == 0 and (seconds or unit == "s"):
            return f'"{seconds / length:.0f}{unit}"'
    return repr(float(seconds))


# --- What cannot be simulated --------------------------------------------------------------------


def check(scenario: Scenario) -> None:
    """Refuse what cannot be simulated, by the name of its key."""
    for key, found, expected in _conflicts(scenario):
        raise wrong(key, found, expected)


Conflicts = Iterator[tuple[str, object, str]]


def _conflicts(scenario: Scenario) -> Conflicts:
    """(key, what stands there, what should) of values that are wrong beside others."""
    cluster = scenario.cluster
    repair = scenario.repair
    try:
        datetime.fromisoformat(scenario.begin)
    except ValueError:
        yield "begin", scenario.begin, "a time such as 2024-01-01T00:00:00Z"
    if cluster.names and len(set(scenario.node_names)) != cluster.nodes:
        yield "cluster.names", cluster.names, f"the names of {cluster.nodes} different nodes"
    if strangers := set(cluster.without) - set(scenario.node_names):
        yield "cluster.without", min(strangers), "a node of the cluster"
    if len(set(cluster.without)) == cluster.nodes:
        yield "cluster.without", "every node", "at least one node that is left"
    classes = [each.name for each in scenario.qos]
    if not classes or len(set(classes)) != len(classes):
        yield "qos", classes, "one or more classes of service with different names"
    for kind in ("fast", "slow"):
        low, high = (getattr(repair, f"{kind}_{end}_s") for end in ("min", "max"))
        if low > high:
            yield f"repair.{kind}_min", low, f"at most repair.{kind}_max ({high} s)"
    yield from _workload_conflicts(scenario, classes)
    yield from _failure_conflicts(scenario)


def _workload_conflicts(scenario: Scenario, classes: list[str]) -> Conflicts:
    workload = scenario.workload
    per_node = scenario.cluster.gpus_per_node
    for name, count in (("hour_weights", 24), ("day_weights", 7)):
        weights = getattr(workload, name)
        if len(weights) != count or not sum(weights) > 0:
            yield f"workload.{name}", list(weights), f"{count} numbers, not all zero"
    if not sum(size.share for size in workload.sizes) > 0:
        yield "workload.sizes", "nothing", "one or more sizes with shares above zero"
    if not workload.jobs_per_day > 0:
        yield "workload.jobs_per_day", workload.jobs_per_day, "a number above zero"
    cluster = scenario.cluster
    most = (cluster.nodes - len(set(cluster.without))) * per_node
    for place, size in enumerate(workload.sizes):
        key = f"workload.sizes[{place}]"
        if size.gpus > most:
            yield f"{key}.gpus", size.gpus, f"1 to {most}, the GPUs of the nodes in service"
        if size.gpus > per_node and size.gpus % per_node:
            yield f"{key}.gpus", size.gpus, f"a multiple of {per_node}"
        for name in sorted(set(size.qos) - set(classes)):
            yield f"{key}.qos", name, "one of the classes " + ", ".join(classes)
        if size.qos and not sum(size.qos.values()) > 0:
            yield f"{key}.qos", dict(size.qos), "shares that are not all zero"


def _failure_conflicts(scenario: Scenario) -> Conflicts:
    failures, lemons, nodes = scenario.failures, scenario.failures.lemons, scenario.cluster.nodes
    if lemons.count > nodes:
        yield "failures.lemons.count", lemons.count, f"at most {nodes}, the nodes"
    if lemons.nodes and (strangers := set(lemons.nodes) - set(scenario.node_names)):
        yield "failures.lemons.nodes", min(strangers), "a node of the cluster"
    for place, part in enumerate(failures.components):
        if part.high + part.low > 1 + 1e-9:
            yield f"failures.components[{place}].low", part.low, "high + low of at most 1"
    if failures.rate_per_node_day > 0:
        used = [part for part in failures.components if part.share > 0]
        if not used:
            yield "failures.components", "nothing", "one or more components with a share"
        elif all(part.low >= 1 for part in used):
            yield "failures.components", "drains only", "a component that ends attempts"
