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
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from holdfast.errors import InputError
from holdfast.fleet.simulation.change_values import Edit, changed, impossible, numbers, switch
from holdfast.fleet.simulation.node_changes import BY_WORD, with_rates_kept
from holdfast.fleet.simulation.scenario import Scenario
from holdfast.fleet.simulation.scenario_toml import toml_key

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
"""Changes that touch several keys."""
RATE = ("failures", "rate_per_node_day")
EXAMPLES = '"failure_rate*0.5", "checkpoint.write=30s" or "lemons=off; checkpoint.interval=30m"'

_EDIT = re.compile(r"\s*([A-Za-z_][\w.\[\]]*?)\s*([*+-])\s*([^\s=].*?)\s*$", re.DOTALL)
_SET = re.compile(r"\s*([A-Za-z_][^=]*?)\s*=\s*([*+]?)\s*(.*?)\s*$", re.DOTALL)
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


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
        raise InputError(
            "a change is empty", code="empty-input", expected=f"for example {EXAMPLES}"
        )
    edits = []
    for part in parts:
        found = _SET.match(part) if "=" in part else _EDIT.match(part)
        if found is None:
            raise InputError(
                "not a change",
                code="invalid-syntax",
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
                code=error.code,
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
        "unknown key",
        code="unknown-key",
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
    """The scenario after one edit: unless the edit is of the failure rate, healthy nodes keep theirs."""
    word = BY_WORD.get("nodes" if edit.key == "cluster.nodes" else edit.key)
    if word is not None:
        return with_rates_kept(scenario, word(scenario, edit))
    after, found = scenario, known(edit.key)
    tables = _by_table(found)
    for top, leaves_of_table in tables.items():
        name = field_of(scenario, top)
        part: Any = getattr(scenario, name)
        for leaf in leaves_of_table:
            new = _new_value(leaf, edit)
            part = _edited(part, leaf.steps[1:], new, edit.key) if leaf.steps[1:] else new(part)
        # Made once a table, so that keys which are checked together change together.
        after = replace(after, **{name: part})
    if any(leaf.steps == RATE for leaf in found) or not tables.keys() & {"failures", "repair"}:
        return after
    return with_rates_kept(scenario, after)


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
                    "the list is shorter",
                    code="conflict",
                    place=key,
                    expected=f"[0] to [{len(value) - 1}]",
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
        raise InputError("not a list", code="invalid-syntax", place=key)
    if isinstance(value, Mapping):
        return {**value, step: new(value.get(step, 1.0))}
    name = field_of(value, step)
    return replace(value, **{name: _edited(getattr(value, name), steps[1:], new, key)})


def _new_value(leaf: Leaf, edit: Edit) -> Callable[[Any], Any]:
    """Old value -> new value."""

    def new(old: Any) -> Any:
        if isinstance(old, tuple) and leaf.kind is str:
            if edit.operator != "=":
                raise impossible(edit, f"{edit.key}=TEXT,TEXT")
            return tuple(part.strip() for part in edit.value.split(",") if part.strip())
        if isinstance(old, tuple):
            if edit.operator == "=" and edit.value.startswith("["):
                return numbers(edit)
            return tuple(new(each) for each in old)
        if get_origin(leaf.kind) is Mapping:
            if edit.operator == "=":
                raise impossible(edit, f"one entry: {edit.key}.NAME={edit.value}")
            return {name: new_number(each) for name, each in old.items()}
        if leaf.kind is bool:
            return switch(edit)
        if leaf.kind is str:
            if edit.operator != "=":
                raise impossible(edit, f"{edit.key}=TEXT")
            return edit.value
        return new_number(old)

    def new_number(old: float) -> float:
        value = changed(old, edit, duration=leaf.duration)
        return round(value) if leaf.kind is int else value

    return new
