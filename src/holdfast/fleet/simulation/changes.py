"""What-if changes as text: ``checkpoint.write=30s``, ``failure_rate*0.5``, ``lemons=off``.

A change is one or more edits joined by ``;``, made in their order:

    KEY=VALUE      set            checkpoint.interval=30m   scheduler.policy=fcfs
    KEY*FACTOR     scale          failure_rate*0.5
    KEY+VALUE      add            nodes+100                 preempt_after+1h
    KEY-VALUE      subtract       checkpoint.init-2m

A key is a path of the scenario's TOML keys. A key that occurs once may stand without its table
(``grace`` for ``scheduler.grace``). A list takes the place of an item in brackets
(``workload.sizes[0].hours*2``); without one, every item is changed (``workload.sizes.hours*2``).
`BY_WORD` has further names, for what an operator does in one step but a scenario says in several keys.
"""

from __future__ import annotations

import dataclasses
import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from typing import Any, get_origin

from holdfast.durations import parse_duration
from holdfast.errors import InputError
from holdfast.fleet.simulation.scenario import Lemons, Scenario
from holdfast.fleet.simulation.scenario_file import hints, item_of, plain, read, toml_key

# Names of one or more keys that are changed alike.
SHORT = {
    "failure_rate": ("failures.rate_per_node_day",),
    "detection": ("detection.check_interval", "detection.heartbeat"),
    "repair": ("repair.fast_min", "repair.fast_max", "repair.slow_min", "repair.slow_max"),
}
RATE = "failures.rate_per_node_day"
SAME_RATE = 1e-13  # relative difference of two failure rates that are one
SWITCH = {"on": True, "true": True, "off": False, "false": False}
EXAMPLES = '"failure_rate*0.5", "checkpoint.write=30s" or "lemons=off; checkpoint.interval=30m"'

_EDIT = re.compile(r"([A-Za-z_][\w.\[\]]*+)\s*+([*+-])\s*+([^\s=].*+)", re.DOTALL)
_SET = re.compile(r"([A-Za-z_](?:[^=\s]|\s++(?!=))*+)\s*+=\s*+([*+]?)\s*+(.*+)", re.DOTALL)
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


@dataclass(frozen=True)
class Edit:
    """One step of a change."""

    key: str  # As given
    operator: str  # ``=``, ``*``, ``+`` or ``-``
    value: str


@dataclass(frozen=True)
class Leaf:
    """Where a value stands in a scenario, and what it is."""

    steps: tuple[str | int, ...]
    kind: Any  # The type of the value, or of each in a list
    duration: bool = False

    @property
    def path(self) -> str:
        """The steps as text, places of lists included."""
        return ".".join(map(str, self.steps))


def parse(text: str) -> list[Edit]:
    """The edits of a change.

    Raises:
        InputError: if the text is no change, or names a key that a scenario does not have.
    """
    edits = []
    example = f"for example {EXAMPLES}"
    for part in filter(None, map(str.strip, text.split(";"))):
        match = _SET.match(part) if "=" in part else _EDIT.match(part)
        if match is None:
            raise InputError(
                "not a change",
                code="invalid-syntax",
                found=part,
                expected=f"KEY=VALUE, KEY*FACTOR, KEY+VALUE or KEY-VALUE: {example}",
            )
        key, operator, value = match.groups()
        edits.append(Edit(key, operator or "=", value))
        known(key)
    if not edits:
        raise InputError("a change is empty", code="empty-input", expected=example)
    return edits


def apply(scenario: Scenario, change: str) -> Scenario:
    """The scenario as it is after a change.

    Raises:
        InputError: if the change is none, names something that the scenario does not have, or leads
            to an impossible scenario.
    """
    for edit in parse(change):
        try:
            scenario = applied(scenario, edit)
        except InputError as error:
            raise InputError(
                **vars(error)
                | {"problem": f"the change {change.strip()!r} cannot be made: {error.problem}"}
            ) from None
    return scenario


def keys() -> list[str]:
    """Every key that a change may name: first the short ones, then the paths of the scenario."""
    return [*BY_WORD, *SHORT, *leaves()]


# --- What a key means ----------------------------------------------------------------------------


@cache
def leaves() -> dict[str, Leaf]:
    """Path -> where it leads; for lists, the path without places."""
    paths = {}

    def walk(kind: Any, steps: tuple[str, ...]) -> None:
        for name, hint in hints(kind).items():
            path = (*steps, toml_key(name))
            item = item_of(hint)
            if dataclasses.is_dataclass(item):
                walk(item, path)
            else:
                paths[".".join(path)] = Leaf(path, item, name.endswith("_s"))

    walk(Scenario, ())
    return paths


def known(key: str) -> list[Leaf]:
    """Where a key leads; empty for the words.

    Raises:
        InputError: if there is no such key.
    """
    if key in BY_WORD or key == "cluster.nodes":
        return []
    if key in SHORT:
        return [leaves()[path] for path in SHORT[key]]
    steps = tuple(name or int(place) for name, place in _STEP.findall(key))
    names = [str(step) for step in steps if not isinstance(step, int)]
    path = ".".join(names)
    paths = leaves()
    if path in paths:
        return [replace(paths[path], steps=steps)]
    for leaf in paths.values():
        if get_origin(leaf.kind) is Mapping and path.startswith(f"{leaf.path}."):
            # The rest is the name of an entry, dots and all.
            entry = key.split(f"{leaf.steps[-1]}.", 1)[1]
            return [Leaf((*steps[: steps.index(leaf.steps[-1]) + 1], entry), float)]
    same = [each for each in paths if path and each.endswith(f".{path}")]
    if len(same) == 1:
        return [known(f"{same[0].removesuffix(path)}{key}")[0]]
    near = same or [each for each in paths if path and each.startswith(f"{path}.")]
    near = near or get_close_matches(path, keys(), 3)
    raise InputError(
        "unknown key",
        code="unknown-key",
        found=key,
        expected=" or ".join(near) or "a key of the scenario",
        remedy="holdfast fleet simulate --preset small --print-scenario shows every key; short ones: "
        + ", ".join([*BY_WORD, *SHORT]),
    )


def paths_of(change: str) -> list[str]:
    """The paths of the keys that a change sets; of the words only those that stand for one key."""
    paths = []
    for edit in parse(change):
        word = ["cluster.nodes"] if edit.key == "nodes" else []
        paths += word or [leaf.path for leaf in known(edit.key)]
    return paths


# --- Making an edit ------------------------------------------------------------------------------


def applied(scenario: Scenario, edit: Edit) -> Scenario:
    """The scenario after one edit: unless the edit is of the failure rate, healthy nodes keep theirs."""
    word = BY_WORD.get("nodes" if edit.key == "cluster.nodes" else edit.key)
    if word is not None:
        return with_same_rates(scenario, word(scenario, edit))
    data = plain(scenario)
    targets = known(edit.key)
    for leaf in targets:
        data = _set(data, leaf.steps, leaf, edit)
    # Made once, so that keys which are checked together change together.
    after = read(Scenario, data)
    touched = {leaf.steps[0] for leaf in targets} & {"failures", "repair"}
    rate_given = any(leaf.path == RATE for leaf in targets)
    return with_same_rates(scenario, after) if touched and not rate_given else after


def _set(value: Any, steps: Sequence[str | int], leaf: Leaf, edit: Edit) -> Any:
    """Plain data with what lies at the end of `steps` changed; a list without a place: in each item."""
    is_list = isinstance(value, (list, tuple))
    if steps:
        step = steps[0]
        rest = steps[1:]
        if isinstance(value, dict) and not isinstance(step, int):
            return {**value, step: _set(value.get(step, 1.0), rest, leaf, edit)}
        if not is_list:
            raise InputError("not a list", code="invalid-syntax", place=edit.key)
        if not isinstance(step, int):
            return [_set(each, steps, leaf, edit) for each in value]
        if step >= len(value):
            raise InputError(
                "the list is shorter",
                code="conflict",
                place=edit.key,
                expected=f"[0] to [{len(value) - 1}]",
            )
        return [*value[:step], _set(value[step], rest, leaf, edit), *value[step + 1 :]]
    setting = edit.operator == "="
    if leaf.kind in (str, bool) and not setting:
        raise impossible(edit, f"{edit.key}=VALUE")
    if isinstance(value, dict) and not setting:
        return {name: _set(each, (), leaf, edit) for name, each in value.items()}
    if is_list and leaf.kind is str:
        return [part.strip() for part in edit.value.split(",") if part.strip()]
    if is_list and not edit.value.startswith("["):
        return [_set(each, (), leaf, edit) for each in value]
    return value_of(leaf, edit, value)


def value_of(leaf: Leaf, edit: Edit, old: float = 0.0) -> Any:
    """The value after an edit; one of another type than its field is refused when it is read."""
    if leaf.kind is str:
        return edit.value
    if leaf.kind is bool:
        if edit.value.lower() not in SWITCH:
            raise impossible(edit, "on or off")
        return SWITCH[edit.value.lower()]
    number = leaf.kind in (int, float) and not edit.value.startswith("[")
    if number or edit.operator != "=":
        value = changed(old, edit, duration=leaf.duration)
        return round(value) if leaf.kind is int else value
    try:
        return tomllib.loads(f"value = {edit.value}")["value"]
    except tomllib.TOMLDecodeError as error:
        raise impossible(edit, "a value as TOML writes it, such as [1, 2.5]") from error


def changed(old: float, edit: Edit, *, duration: bool = False) -> float:
    """A number after an edit: a duration may be written as one."""
    text = edit.value
    operator = edit.operator
    timed = duration and operator != "*"
    try:
        value = parse_duration(text) if timed else float(text.replace("_", ""))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise impossible(edit, "a duration such as 30s, 10m or 2h" if timed else "a finite number")
    return {"=": value, "*": old * value, "+": old + value, "-": old - value}[operator]


def impossible(edit: Edit, expected: str) -> InputError:
    """The complaint about the value of an edit."""
    return InputError(
        "the value does not fit",
        code="invalid-value",
        place=edit.key,
        found=f"{edit.key}{edit.operator}{edit.value}",
        expected=expected,
    )


# --- Nodes and lemons ----------------------------------------------------------------------------


def with_same_rates(before: Scenario, after: Scenario) -> Scenario:
    """`after` with the mean failure rate at which its healthy nodes fail as often as `before`'s.

    The rate of a scenario is the mean over nodes in service: it depends on which nodes are lemons, on how
    often they fail, and on how long repairs keep them out. A change leaves each node that stays its own.
    """
    lemons = (before.failures.lemons, after.failures.lemons)
    if not any(each.count or each.nodes for each in lemons):
        return after  # the mean is that of the healthy nodes
    from holdfast.fleet.simulation.hazards import healthy_rate_per_node_day as healthy

    healthy_rate = healthy(before)
    for _ in range(100):
        now = healthy(after)
        if abs(now - healthy_rate) <= SAME_RATE * healthy_rate:
            break
        # Nearly proportional: each step leaves a small part of the error.
        rate = after.failures.rate_per_node_day * healthy_rate / now
        after = replace(after, failures=replace(after.failures, rate_per_node_day=rate))
    return after


def _with(scenario: Scenario, lemons: Lemons, **cluster: Any) -> Scenario:
    """Other lemons, or other nodes."""
    changed_cluster = replace(scenario.cluster, **cluster)
    failures = replace(scenario.failures, lemons=lemons)
    return replace(scenario, cluster=changed_cluster, failures=failures)


def _lemons(scenario: Scenario, edit: Edit) -> Scenario:
    if edit.operator == "=" and edit.value.lower() in ("off", "0", "none"):
        return _with(scenario, Lemons(factor=scenario.failures.lemons.factor))
    if edit.operator != "=" or not edit.value.isdigit():
        raise impossible(edit, "lemons=off, or a number of lemon nodes")
    return _with(scenario, replace(scenario.failures.lemons, count=int(edit.value)))


def _replace(scenario: Scenario, edit: Edit) -> Scenario:
    names = _named(scenario, edit)
    lemons = scenario.failures.lemons
    unknown = [name for name in names if name not in lemons.nodes]
    if unknown and lemons.count:
        raise InputError(
            "the seed chooses which nodes are lemons: their names are not known beforehand",
            code="conflict",
            place="failures.lemons.count",
            found=", ".join(unknown),
            expected="lemons=off, or the names of nodes under failures.lemons.nodes",
        )
    left = {name: factor for name, factor in lemons.nodes.items() if name not in names}
    return _with(scenario, replace(lemons, nodes=left))


def _pull(scenario: Scenario, edit: Edit) -> Scenario:
    """Out of service, but not out of the list: the other nodes keep their places and random numbers."""
    without = {*scenario.cluster.without, *_named(scenario, edit)}
    return _with(scenario, scenario.failures.lemons, without=tuple(sorted(without)))


def _named(scenario: Scenario, edit: Edit) -> list[str]:
    """The nodes of a host list."""
    from holdfast.fleet.formats.hosts import hosts_of

    names = hosts_of(re.sub(r"\s+", "", edit.value)) if edit.operator == "=" else None
    if not names:
        raise impossible(edit, f"{edit.key}=NODE,NODE or a host list such as node[05,09]")
    if not set(names) <= set(scenario.node_names):
        raise impossible(edit, f"nodes of the cluster, {', '.join(scenario.node_names[:2])} ...")
    return names


def _nodes(scenario: Scenario, edit: Edit) -> Scenario:
    cluster = scenario.cluster
    lemons = scenario.failures.lemons
    count = round(changed(cluster.nodes, edit))
    if not (cluster.names or cluster.without or lemons.nodes):
        return _with(scenario, lemons, nodes=count)
    old = scenario.node_names
    # Names are sorted: a name that begins with the last one keeps the places of all others.
    fresh = [f"{old[-1]}-new{index:06d}" for index in range(1, count - len(old) + 1)]
    names = [*old, *fresh][: max(count, 0)]
    left = {name: factor for name, factor in lemons.nodes.items() if name in names}
    without = tuple(name for name in cluster.without if name in names)
    lemons = replace(lemons, nodes=left)
    return _with(scenario, lemons, nodes=count, names=",".join(names), without=without)


# Changes of several keys in one step.
BY_WORD: dict[str, Callable[[Scenario, Edit], Scenario]] = {
    "lemons": _lemons,
    "replace": _replace,
    "pull": _pull,
    "nodes": _nodes,
}
