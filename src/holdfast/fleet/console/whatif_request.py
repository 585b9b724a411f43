"""What a reader asks of a what-if: the fields of the form, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.errors import InputError

MOST_CHANGES = 20
LONGEST_CHANGE = 200
MOST_REPLICAS = 200
MOST_DAYS = 3660.0
OWN = ("kind", "log")
"""Keys of the workload that say where its jobs come from."""


@dataclass(frozen=True)
class Request:
    """What is asked."""

    changes: tuple[str, ...]
    given: tuple[str, ...]
    """Changes that hold before and after: what is true of the fleet and not in its log."""
    replicas: int
    days: float | None
    """Simulated time; None: as long as the log, and long enough for large runs."""
    seed: int

    @classmethod
    def from_form(cls, form: Mapping[str, str]) -> Request:
        """The request of a form: changes and given (one a line), replicas, days, seed.

        Raises:
            InputError: naming the field that makes no sense.
        """
        changes = _lines(form, "changes")
        if not changes:
            raise _refused("no-data", "changes", "", "one change a line, such as lemons=off")
        return cls(
            changes,
            _lines(form, "given"),
            int(_number(form, "replicas", 2, MOST_REPLICAS)),
            _number(form, "days", 0.01, MOST_DAYS) if form.get("days", "").strip() else None,
            int(_number(form, "seed", 0, 2**31 - 1)),
        )


def _refused(code: str, place: str, found: str, expected: str) -> InputError:
    return InputError(
        f"invalid {place}", code=code, place=place, found=found[:LONGEST_CHANGE], expected=expected
    )


def _lines(form: Mapping[str, str], name: str) -> tuple[str, ...]:
    """The changes in a field of several lines, each once."""
    from holdfast.fleet.simulation.changes import known, parse

    lines = [line.strip() for line in form.get(name, "").splitlines()]
    changes = tuple(dict.fromkeys(line for line in lines if line))
    if len(changes) > MOST_CHANGES:
        raise _refused("too-many-changes", name, str(len(changes)), f"at most {MOST_CHANGES}")
    for change in changes:
        if len(change) > LONGEST_CHANGE or not change.isprintable():
            limit = f"one short line, at most {LONGEST_CHANGE} characters"
            raise _refused("invalid-syntax", name, ascii(change), limit)
        leaves = [leaf.steps for edit in parse(change).edits for leaf in known(edit.key)]
        if any(steps[0] == "workload" and steps[1] in OWN for steps in leaves):
            # The console reads its own store only; the command line may replay any.
            raise _refused("conflict", name, change, "the console's own log")
    return changes


def _number(form: Mapping[str, str], name: str, least: float, most: float) -> float:
    text = form.get(name, "").strip()
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most or (name != "days" and not value.is_integer()):
        kind = "a number" if name == "days" else "a whole number"
        raise _refused("invalid-value", name, text, f"{kind} from {least:g} to {most:,.0f}")
    return value
