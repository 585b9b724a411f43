"""What-if changes as text: ``checkpoint.write=30s``, ``failure_rate*0.5``, ``lemons=off``.

A change is one or more edits joined by ``;``, made in their order:

    KEY=VALUE      set            checkpoint.interval=30m   scheduler.policy=fcfs
    KEY*FACTOR     scale          failure_rate*0.5
    KEY+VALUE      add            nodes+100                 preempt_after+1h      failure_rate+10%
    KEY-VALUE      subtract       checkpoint.init-2m        failure_rate-25%

A key is a path of the scenario's TOML keys. A key that occurs once may stand without its table
(``grace`` for ``scheduler.grace``). A list takes the place of an item in brackets
(``workload.sizes[0].hours*2``); without one, every item is changed (``workload.sizes.hours*2``).
`WORDS` has further names, for what an operator does in one step but a scenario says in several keys.
"""

from __future__ import annotations

import dataclasses
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from holdfast.errors import InputError
from holdfast.fleet.simulation.scenario import Lemons, Scenario, toml_key

SHORT = {
    "failure_rate": ("failures.rate_per_node_day",),
    "checkpoint_interval": ("checkpoint.interval",),
    "checkpoint_write": ("checkpoint.write",),
    "detection": ("detection.check_interval", "detection.heartbeat"),
    "repair": ("repair.fast_min", "repair.fast_max", "repair.slow_min", "repair.slow_max"),
}
"""Names of one or more keys that are changed alike."""
WORDS = {
    "lemons": "lemons=off: every lemon node is replaced by a healthy one; lemons=3: there are three",
    "replace": "replace=node05,node09: these nodes are replaced by healthy ones",
    "pull": "pull=node05,node09: these nodes leave, and nothing takes their place",
    "nodes": "nodes+100: healthy nodes join; nodes-4: the last four leave",
    "backfill": "backfill=off: scheduler.policy is fcfs; on: easy",
}
"""Changes that touch several keys. Nodes that stay keep their failure rates: the rate of the
scenario, a mean over all nodes, follows."""
EXAMPLES = '"failure_rate*0.5", "checkpoint.write=30s" or "lemons=off; checkpoint.interval=30m"'

_EDIT = re.compile(r"\s*([A-Za-z_][\w.\[\]]*?)\s*([*+-])\s*([^\s=].*?)\s*$", re.DOTALL)
_SET = re.compile(r"\s*([A-Za-z_][^=]*?)\s*=\s*([*+-]?)\s*(.*?)\s*$", re.DOTALL)
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


@dataclass(frozen=True)
class Edit:
    """One step of a change."""

    key: str
    """As given."""
    operator: str
    """``=``, ``*``, ``+`` or ``-``."""
    value: str


@dataclass(frozen=True)
class Change:
    """Something that an operator could do differently."""

    text: str
    """As given."""
    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class Leaf:
    """Where a value stands in a scenario, and what it is."""

    steps: tuple[str | int, ...]
    kind: Any
    duration: bool


def parse(text: str) -> Change:
    """A change from its text.

    Raises:
        InputError: if the text is no change, or names a key that a scenario does not have.
    """
    parts = [part for part in text.split(";") if part.strip()]
    if not parts:
        raise InputError("a change is empty", expected=f"for example {EXAMPLES}")
    edits = []
    for part in parts:
        found = _SET.match(part) if "=" in part else _EDIT.match(part)
        if found is None:
            raise InputError(
                "this is no change",
                found=part.strip(),
                expected=f"KEY=VALUE, KEY*FACTOR, KEY+VALUE or KEY-VALUE: for example {EXAMPLES}",
            )
        key, operator, value = found.groups()
        edits.append(Edit(key, operator or "=", value))
        known(key)
    return Change(text.strip(), tuple(edits))


def apply(scenario: Scenario, change: str | Change) -> Scenario:
    """The scenario as it is after a change.

    Raises:
        InputError: if the change is none, names something that the scenario does not have, or leads
            to an impossible scenario.
    """
    change = parse(change) if isinstance(change, str) else change
    for edit in change.edits:
        try:
            scenario = applied(scenario, edit)
        except InputError as error:
            raise InputError(
                f"the change {change.text!r} cannot be made: {error.problem}",
                place=error.place,
                found=error.found,
                expected=error.expected,
                remedy=error.remedy,
            ) from None
    return scenario


def keys() -> list[str]:
    """Every key that a change may name: first the short ones, then the paths of the scenario."""
    return [*WORDS, *SHORT, *leaves()]


# --- What a key means ----------------------------------------------------------------------------


@cache
def leaves() -> dict[str, Leaf]:
    """Path -> where it leads; for lists, the path without places."""
    found: dict[str, Leaf] = {}

    def walk(kind: Any, steps: tuple[str | int, ...]) -> None:
        types = get_type_hints(kind)
        for each in dataclasses.fields(kind):
            inner = types[each.name]
            path = (*steps, toml_key(each.name))
            item = get_args(inner)[0] if get_origin(inner) is tuple else inner
            if dataclasses.is_dataclass(item):
                walk(item, path)
            else:
                found[".".join(map(str, path))] = Leaf(path, item, each.name.endswith("_s"))

    walk(Scenario, ())
    return found


def known(key: str) -> list[Leaf]:
    """Where a key leads; empty for the words.

    Raises:
        InputError: if there is no such key.
    """
    if key in WORDS or key == "cluster.nodes":
        return []
    if key in SHORT:
        return [leaves()[path] for path in SHORT[key]]
    steps = tuple(name or int(place) for name, place in _STEP.findall(key))
    names = [str(step) for step in steps if not isinstance(step, int)]
    path = ".".join(names)
    paths = leaves()
    if path in paths:
        return [replace(paths[path], steps=steps)]
    parent = next((paths[p] for p in _mappings() if path.startswith(f"{p}.")), None)
    if parent is not None:  # the rest is the name of an entry, dots and all
        entry = key.split(f"{parent.steps[-1]}.", 1)[1]
        before = steps[: steps.index(parent.steps[-1]) + 1]
        return [Leaf((*before, entry), float, False)]
    same = [each for each in paths if path and each.endswith(f".{path}")]
    if len(same) == 1:
        return [known(f"{same[0].removesuffix(path)}{key}")[0]]
    raise InputError(
        "no such key",
        found=key,
        expected=_choices(path, same),
        remedy="keys: " + ", ".join(keys()),
    )


def _mappings() -> list[str]:
    return [path for path, leaf in leaves().items() if get_origin(leaf.kind) is Mapping]


def _choices(path: str, same: Sequence[str]) -> str:
    if same:
        return " or ".join(same)
    inside = [each for each in leaves() if path and each.startswith(f"{path}.")]
    if inside:
        return "one key of the table: " + ", ".join(inside)
    last = {each.rsplit(".", 1)[-1]: each for each in keys()}
    close = get_close_matches(path, keys(), 3, 0.6)
    close += [last[each] for each in get_close_matches(path.rsplit(".", 1)[-1], last, 3, 0.7)]
    near = list(dict.fromkeys(close))[:3]
    return (" or ".join(near) + "?") if near else "a key of the scenario"


# --- Making an edit ------------------------------------------------------------------------------


def applied(scenario: Scenario, edit: Edit) -> Scenario:
    """The scenario after one edit."""
    word = _WORDS.get("nodes" if edit.key == "cluster.nodes" else edit.key)
    if word is not None:
        return word(scenario, edit)
    for top, leaves in _by_table(known(edit.key)).items():
        part: Any = getattr(scenario, field_of(scenario, top))
        for leaf in leaves:
            new = _new_value(leaf, edit)
            part = _edited(part, leaf.steps[1:], new, edit.key) if leaf.steps[1:] else new(part)
        # The scenario is made once a table, so that keys which are checked together change together.
        scenario = replace(scenario, **{field_of(scenario, top): part})
    return scenario


def _by_table(leaves: Iterable[Leaf]) -> dict[str, list[Leaf]]:
    tables: dict[str, list[Leaf]] = {}
    for leaf in leaves:
        tables.setdefault(str(leaf.steps[0]), []).append(leaf)
    return tables


def field_of(value: Any, key: str) -> str:
    """The dataclass field behind a TOML key."""
    return next(each.name for each in dataclasses.fields(value) if toml_key(each.name) == key)


def _edited(value: Any, steps: Sequence[str | int], new: Callable[[Any], Any], key: str) -> Any:
    """`value` with what lies at the end of `steps` replaced."""
    if isinstance(value, tuple):
        places: Iterable[int] = range(len(value))
        if steps and isinstance(steps[0], int):
            if steps[0] >= len(value):
                raise InputError(
                    "the list is shorter", place=key, expected=f"[0] to [{len(value) - 1}]"
                )
            places, steps = [steps[0]], steps[1:]
        elif not steps:
            return new(value)
        items = list(value)
        for place in places:
            items[place] = _edited(items[place], steps, new, key)
        return tuple(items)
    if not steps:
        return new(value)
    step = steps[0]
    if isinstance(step, int):
        raise InputError("this is no list", place=key)
    if isinstance(value, Mapping):
        return {**value, step: new(value.get(step, 1.0))}
    name = field_of(value, step)
    return replace(value, **{name: _edited(getattr(value, name), steps[1:], new, key)})


def _new_value(leaf: Leaf, edit: Edit) -> Callable[[Any], Any]:
    """Old value -> new value."""

    def new(old: Any) -> Any:
        if isinstance(old, tuple):
            if edit.operator == "=" and edit.value.startswith("["):
                return _list(edit)
            return tuple(new(each) for each in old)
        if get_origin(leaf.kind) is Mapping:
            if edit.operator == "=":
                raise _impossible(edit, f"one entry: {edit.key}.NAME={edit.value}")
            return {name: new_number(each) for name, each in old.items()}
        if leaf.kind is bool:
            return _switch(edit)
        if leaf.kind is str:
            if edit.operator != "=":
                raise _impossible(edit, f"{edit.key}=TEXT")
            return edit.value
        return new_number(old)

    def new_number(old: float) -> float:
        value = changed(old, edit, duration=leaf.duration)
        return round(value) if leaf.kind is int else value

    return new


def changed(old: float, edit: Edit, *, duration: bool = False) -> float:
    """A number after an edit: a duration may be written as one."""
    text = edit.value
    share = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", text)
    if share is not None:
        part = float(share[1]) / 100
        if edit.operator == "=" and not duration:
            return part
        if edit.operator in "+-":
            return old * (1 + part if edit.operator == "+" else 1 - part)
        raise _impossible(edit, f"{edit.key}+{text} or {edit.key}-{text}")
    value = _number(edit, duration=duration and edit.operator != "*")
    return {"=": value, "*": old * value, "+": old + value, "-": old - value}[edit.operator]


def _number(edit: Edit, *, duration: bool) -> float:
    if duration:
        import typer

        from holdfast.console import duration as seconds

        try:
            return seconds(edit.value)
        except typer.BadParameter as error:
            raise _impossible(edit, "a duration such as 30s, 10m, 2h or 7d") from error
    try:
        value = float(edit.value.replace("_", ""))
    except ValueError as error:
        raise _impossible(edit, "a number") from error
    if not math.isfinite(value):
        raise _impossible(edit, "a finite number")
    return value


def _list(edit: Edit) -> tuple[float, ...]:
    try:
        values = tomllib.loads(f"list = {edit.value}")["list"]
        return tuple(float(each) for each in values)
    except (tomllib.TOMLDecodeError, TypeError, ValueError) as error:
        raise _impossible(edit, "a list of numbers such as [1, 2.5]") from error


def _switch(edit: Edit) -> bool:
    words = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}
    if edit.operator != "=" or edit.value.lower() not in words:
        raise _impossible(edit, "on or off")
    return words[edit.value.lower()]


def _impossible(edit: Edit, expected: str) -> InputError:
    found = f"{edit.key}{edit.operator}{edit.value}"
    return InputError("the value does not fit", place=edit.key, found=found, expected=expected)


# --- Lemons and nodes ----------------------------------------------------------------------------


def healthy_rate(scenario: Scenario) -> float:
    """Failures per node and day of a node that is no lemon; `rate_per_node_day` is the mean of all."""
    lemons, nodes = scenario.failures.lemons, len(working(scenario))
    named = {name: factor for name, factor in lemons.nodes.items() if name in working(scenario)}
    extra = sum(factor - 1 for factor in named.values()) + lemons.count * (lemons.factor - 1)
    return scenario.failures.rate_per_node_day * nodes / (nodes + extra)


def working(scenario: Scenario) -> dict[str, int]:
    """The nodes that are in the cluster, name -> index."""
    return {name: index for index, name in enumerate(scenario.node_names)}


def _with_lemons(scenario: Scenario, lemons: Lemons, **cluster: Any) -> Scenario:
    """Other lemons, or other nodes, where each healthy node keeps its failure rate."""
    rate = healthy_rate(scenario)
    # Made with the rate as it stands, and set right after: the mean is over the new nodes.
    failures = replace(scenario.failures, lemons=lemons, rate_per_node_day=rate)
    made = replace(scenario, cluster=replace(scenario.cluster, **cluster), failures=failures)
    per_healthy = rate / healthy_rate(made) if rate else 1.0
    return replace(made, failures=replace(failures, rate_per_node_day=rate * per_healthy))


def _lemons(scenario: Scenario, edit: Edit) -> Scenario:
    if edit.operator == "=" and edit.value.lower() in ("off", "0", "none"):
        return _with_lemons(scenario, Lemons(factor=scenario.failures.lemons.factor))
    if edit.operator != "=" or not edit.value.isdigit():
        raise _impossible(edit, "lemons=off, or a number of lemon nodes")
    return _with_lemons(scenario, replace(scenario.failures.lemons, count=int(edit.value)))


def _replace(scenario: Scenario, edit: Edit) -> Scenario:
    names, lemons = named(scenario, edit), scenario.failures.lemons
    unknown = [name for name in names if name not in lemons.nodes]
    if unknown and lemons.count:
        raise InputError(
            "the seed chooses which nodes are lemons: their names are not known beforehand",
            place="failures.lemons.count",
            found=", ".join(unknown),
            expected="lemons=off, or the names of nodes under failures.lemons.nodes",
        )
    left = {name: factor for name, factor in lemons.nodes.items() if name not in names}
    return _with_lemons(scenario, replace(lemons, nodes=left))


def _pull(scenario: Scenario, edit: Edit) -> Scenario:
    raise InputError(
        "nodes cannot leave one by one yet",
        found=edit.value,
        expected=f"replace={edit.value}, which puts healthy nodes in their place",
    )


def named(scenario: Scenario, edit: Edit) -> list[str]:
    """The nodes of a host list."""
    from holdfast.fleet.formats.hosts import hosts_of

    names = hosts_of(re.sub(r"\s+", "", edit.value)) if edit.operator == "=" else None
    if not names:
        raise _impossible(edit, f"{edit.key}=NODE,NODE or a host list such as node[05,09]")
    known = working(scenario)
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, 3) or [*list(known)[:2], "..."]
            raise InputError("no such node", place=edit.key, found=name, expected=", ".join(near))
    return names


def _nodes(scenario: Scenario, edit: Edit) -> Scenario:
    cluster = scenario.cluster
    count = round(changed(cluster.nodes, edit))
    if not cluster.names and not scenario.failures.lemons.nodes:
        return _with_lemons(scenario, scenario.failures.lemons, nodes=count)
    old = scenario.node_names
    # Names are sorted: a name that begins with the last one keeps the places of all others.
    fresh = [f"{old[-1]}-new{index:06d}" for index in range(1, count - len(old) + 1)]
    names = [*old, *fresh][: max(count, 0)]
    lemons = scenario.failures.lemons
    left = {name: factor for name, factor in lemons.nodes.items() if name in names}
    return _with_lemons(scenario, replace(lemons, nodes=left), nodes=count, names=",".join(names))


def _backfill(scenario: Scenario, edit: Edit) -> Scenario:
    policy = "easy" if _switch(edit) else "fcfs"
    return replace(scenario, scheduler=replace(scenario.scheduler, policy=policy))


_WORDS: dict[str, Callable[[Scenario, Edit], Scenario]] = {
    "lemons": _lemons,
    "replace": _replace,
    "pull": _pull,
    "nodes": _nodes,
    "backfill": _backfill,
}
