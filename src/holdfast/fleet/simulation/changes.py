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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from typing import Any, get_origin

from holdfast.durations import parse_duration
from holdfast.errors import InputError
from holdfast.fleet.simulation.scenario import Scenario
from holdfast.fleet.simulation.scenario_file import hints, item_of, plain, read, toml_key

# Names of one or more keys that are changed alike.
SHORT = {
    "failure_rate": ("failures.rate_per_node_day",),
    "detection": ("detection.check_interval", "detection.heartbeat"),
    "repair": ("repair.fast_min", "repair.fast_max", "repair.slow_min", "repair.slow_max"),
}
# Changes of several keys in one step, see `node_changes`.
WORDS = ("lemons", "replace", "pull", "nodes", "backfill")
RATE = "failures.rate_per_node_day"
SWITCH = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}
EXAMPLES = '"failure_rate*0.5", "checkpoint.write=30s" or "lemons=off; checkpoint.interval=30m"'

_EDIT = re.compile(r"\s*([A-Za-z_][\w.\[\]]*?)\s*([*+-])\s*([^\s=].*?)\s*$", re.DOTALL)
_SET = re.compile(r"\s*([A-Za-z_][^=]*?)\s*=\s*([*+]?)\s*(.*?)\s*$", re.DOTALL)
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


@dataclass(frozen=True)
class Edit:
    """One step of a change."""

    key: str  # As given
    operator: str  # ``=``, ``*``, ``+`` or ``-``
    value: str


@dataclass(frozen=True)
class Change:
    """Something that an operator could do differently."""

    text: str  # As given
    edits: tuple[Edit, ...]


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
        match = _SET.match(part) if "=" in part else _EDIT.match(part)
        if match is None:
            raise InputError(
                "not a change",
                code="invalid-syntax",
                found=part.strip(),
                expected=f"KEY=VALUE, KEY*FACTOR, KEY+VALUE or KEY-VALUE: for example {EXAMPLES}",
            )
        key, operator, value = match.groups()
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
            problem = f"the change {change.text!r} cannot be made: {error.problem}"
            raise InputError(**vars(error) | {"problem": problem}) from None
    return scenario


def keys() -> list[str]:
    """Every key that a change may name: first the short ones, then the paths of the scenario."""
    return [*WORDS, *SHORT, *leaves()]


# --- What a key means ----------------------------------------------------------------------------


@cache
def leaves() -> dict[str, Leaf]:
    """Path -> where it leads; for lists, the path without places."""
    paths: dict[str, Leaf] = {}

    def walk(kind: Any, steps: tuple[str, ...]) -> None:
        for name, hint in hints(kind).items():
            path, item = (*steps, toml_key(name)), item_of(hint)
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
        remedy=f"holdfast fleet simulate --preset small --print-scenario shows every key; short ones: "
        f"{', '.join([*WORDS, *SHORT])}",
    )


def paths_of(change: str) -> list[str]:
    """The paths of the keys that a change sets; of the words only those that stand for one key."""
    word_paths = {"nodes": "cluster.nodes", "backfill": "scheduler.policy"}
    paths = []
    for edit in parse(change).edits:
        word = [word_paths[edit.key]] if edit.key in word_paths else []
        paths += word or [leaf.path for leaf in known(edit.key)]
    return paths


# --- Making an edit ------------------------------------------------------------------------------


def applied(scenario: Scenario, edit: Edit) -> Scenario:
    """The scenario after one edit: unless the edit is of the failure rate, healthy nodes keep theirs."""
    from holdfast.fleet.simulation.node_changes import BY_WORD, with_rates_kept

    word = BY_WORD.get("nodes" if edit.key == "cluster.nodes" else edit.key)
    if word is not None:
        return with_rates_kept(scenario, word(scenario, edit))
    data, targets = plain(scenario), known(edit.key)
    for leaf in targets:
        data = _set(data, leaf.steps, leaf, edit)
    # Made once, so that keys which are checked together change together.
    after: Scenario = read(Scenario, data)
    touched = {leaf.steps[0] for leaf in targets} & {"failures", "repair"}
    rate_given = any(leaf.path == RATE for leaf in targets)
    return with_rates_kept(scenario, after) if touched and not rate_given else after


def _set(value: Any, steps: Sequence[str | int], leaf: Leaf, edit: Edit) -> Any:
    """Plain data with what lies at the end of `steps` changed; a list without a place: in each item."""
    if steps:
        step, rest = steps[0], steps[1:]
        if isinstance(value, dict) and not isinstance(step, int):
            return {**value, step: _set(value.get(step, 1.0), rest, leaf, edit)}
        if not isinstance(value, list):
            raise InputError("not a list", code="invalid-syntax", place=edit.key)
        if not isinstance(step, int):
            return [_set(each, steps, leaf, edit) for each in value]
        if step >= len(value):
            places = f"[0] to [{len(value) - 1}]"
            raise InputError(
                "the list is shorter", code="conflict", place=edit.key, expected=places
            )
        return [*value[:step], _set(value[step], rest, leaf, edit), *value[step + 1 :]]
    setting = edit.operator == "="
    if leaf.kind in (str, bool) and not setting:
        raise impossible(edit, f"{edit.key}=VALUE")
    if isinstance(value, dict) and not setting:
        return {name: _set(each, (), leaf, edit) for name, each in value.items()}
    if isinstance(value, list) and leaf.kind is str:
        return [part.strip() for part in edit.value.split(",") if part.strip()]
    if isinstance(value, list) and not edit.value.startswith("["):
        return [_set(each, (), leaf, edit) for each in value]
    if setting:
        return value_of(leaf, edit)
    number_ = changed(value, edit, duration=leaf.duration)
    return round(number_) if leaf.kind is int else number_


def value_of(leaf: Leaf, edit: Edit) -> Any:
    """What ``=`` sets; what is of another type than its field is refused when the scenario is read."""
    text = edit.value
    if leaf.kind is str:
        return text
    if leaf.kind is bool:
        return switch(edit)
    if leaf.kind in (int, float) and not text.startswith("["):
        value = changed(0.0, edit, duration=leaf.duration)
        return round(value) if leaf.kind is int else value
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError as error:
        raise impossible(edit, "a value as TOML writes it, such as [1, 2.5]") from error


def changed(old: float, edit: Edit, *, duration: bool = False) -> float:
    """A number after an edit: a duration may be written as one."""
    text, operator = edit.value, edit.operator
    if share := re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", text):
        part = float(share[1]) / 100
        if operator in "+-":
            return old * (1 + part if operator == "+" else 1 - part)
        if operator == "*" or duration:
            raise impossible(edit, f"{edit.key}+{text} or {edit.key}-{text}")
        return part
    timed = duration and operator != "*"
    try:
        value = parse_duration(text) if timed else float(text.replace("_", ""))
    except ValueError as error:
        expected = "a duration such as 30s, 10m, 2h or 7d" if timed else "a number"
        raise impossible(edit, expected) from error
    if not math.isfinite(value):
        raise impossible(edit, "a finite number")
    return {"=": value, "*": old * value, "+": old + value, "-": old - value}[operator]


def switch(edit: Edit) -> bool:
    """On or off."""
    if edit.operator != "=" or edit.value.lower() not in SWITCH:
        raise impossible(edit, "on or off")
    return SWITCH[edit.value.lower()]


def impossible(edit: Edit, expected: str) -> InputError:
    """The complaint about the value of an edit."""
    return InputError(
        "the value does not fit",
        code="invalid-value",
        place=edit.key,
        found=f"{edit.key}{edit.operator}{edit.value}",
        expected=expected,
    )
