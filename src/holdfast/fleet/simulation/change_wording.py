"""A change in words, as a sentence needs them: "writing checkpoints in 30 s instead of 5 min"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.fleet.simulation.changes import Change, Edit, applied, known, leaves, parse
from holdfast.fleet.simulation.node_changes import named
from holdfast.fleet.simulation.scenario import Scenario
from holdfast.fleet.simulation.scenario_file import plain
from holdfast.numbers import duration, number

MOST_NAMES = 3
_GENERIC = {
    "=": "setting {key} to {value}",
    "*": "multiplying {key} by {value}",
    "+": "adding {value} to {key}",
    "-": "taking {value} from {key}",
}
_PHRASES = {
    "checkpoint.write": "writing checkpoints in {new} instead of {old}",
    "checkpoint.interval": "writing a checkpoint every {new} instead of every {old}",
    "checkpoint.init": "initialising in {new} instead of {old}",
    "scheduler.preempt_after": "preempting after {new} instead of {old}",
    "scheduler.requeue_delay": "requeueing after {new} instead of {old}",
    "failures.rate_per_node_day": ("{new} instead of {old} failures per 1,000 node-days"),
    "workload.jobs_per_day": "{new} instead of {old} jobs a day",
    "cluster.nodes": "{new} instead of {old} nodes",
    "scheduler.policy": "scheduling by {new} instead of {old}",
}


def phrase(scenario: Scenario, change: str | Change) -> str:
    """A change in words: "replacing node05 and writing checkpoints in 30 s instead of 5 min"."""
    change = parse(change) if isinstance(change, str) else change
    parts = []
    for edit in change.edits:
        after = applied(scenario, edit)
        parts.append(_phrase(scenario, after, edit))
        scenario = after
    return " and ".join(parts)


def _phrase(before: Scenario, after: Scenario, edit: Edit) -> str:
    if edit.key in ("replace", "pull"):
        names = named(before, edit)
        verb = {"replace": "replacing", "pull": "pulling"}[edit.key]
        if len(names) <= MOST_NAMES:
            return f"{verb} {_listed(names)}"
        return f"{verb} these {len(names):,} nodes"
    if edit.key == "lemons":
        count = before.failures.lemons.count + len(before.failures.lemons.nodes)
        if not (after.failures.lemons.count or after.failures.lemons.nodes):
            named_ones = list(before.failures.lemons.nodes)
            if 0 < count == len(named_ones) <= MOST_NAMES:
                return f"replacing {_listed(named_ones)}"
            return f"replacing the {f'{count:,} lemon nodes' if count != 1 else 'lemon node'}"
        return f"{edit.value} instead of {count:,} lemon nodes"
    if edit.key in ("nodes", "cluster.nodes"):
        paths = ["cluster.nodes"]
    elif edit.key == "backfill":
        paths = ["scheduler.policy"]
    else:
        paths = [leaf.path for leaf in known(edit.key)]
    template = _PHRASES.get(paths[0], "setting {key} to {new} instead of {old}")
    if len(paths) == 1 and paths[0] in leaves():
        old, new = (_shown(at(each, paths[0]), paths[0]) for each in (before, after))
        if old and new:
            return template.format(key=paths[0], new=new, old=old)
    return _GENERIC[edit.operator].format(key=edit.key, value=edit.value)


def at(scenario: Scenario, path: str) -> Any:
    """What stands at a path; None: in a list, several values do."""
    value = plain(scenario)
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _shown(value: Any, path: str) -> str | None:
    if leaves()[path].duration:
        return None if value is None else duration(value)
    if path == "failures.rate_per_node_day":
        return f"{1000 * value:.3g}"
    if isinstance(value, bool):
        return "on" if value else "off"
    return value if isinstance(value, str) else number(value) if value is not None else None


def _listed(names: Sequence[str]) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
