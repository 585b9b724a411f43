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
            raise InputError(
                "there is no change to try",
                code="no-data",
                place="changes",
                expected="one a line, such as lemons=off",
            )
        return cls(
            changes,
            _lines(form, "given"),
            int(_number(form, "replicas", 2, MOST_REPLICAS)),
            _number(form, "days", 0.01, MOST_DAYS) if form.get("days", "").strip() else None,
            int(_number(form, "seed", 0, 2**31 - 1)),
        )


def _lines(form: Mapping[str, str], name: str) -> tuple[str, ...]:
    """The changes in a field of several lines, each once."""
    lines = [line.strip() for line in form.get(name, "").splitlines()]
    changes = tuple(dict.fromkeys(line for line in lines if line))
    if len(changes) > MOST_CHANGES:
        raise InputError(
            "too many changes",
            code="too-many-changes",
            place=name,
            found=str(len(changes)),
            expected=f"at most {MOST_CHANGES}",
        )
    for change in changes:
        _check(change, name)
    return changes


def _check(change: str, place: str) -> None:
    if len(change) > LONGEST_CHANGE or not change.isprintable():
        raise InputError(
            "a change must be one short line",
            code="invalid-syntax",
            place=place,
            found=ascii(change[:LONGEST_CHANGE]),
            expected=f"at most {LONGEST_CHANGE} characters",
        )
    from holdfast.fleet.simulation.changes import known, parse

    for edit in parse(change).edits:
        # The console reads its own store only; the command line may replay any.
        if any(leaf.steps[0] == "workload" and leaf.steps[1] in OWN for leaf in known(edit.key)):
            raise InputError(
                "the console does not read another log",
                code="conflict",
                place=place,
                found=change,
                remedy="use `holdfast fleet whatif` on the command line",
            )


def _number(form: Mapping[str, str], name: str, least: float, most: float) -> float:
    text = form.get(name, "").strip()
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most or (name != "days" and not value.is_integer()):
        kind = "a number" if name == "days" else "a whole number"
        raise InputError(
            f"invalid {name}",
            code="invalid-value",
            place=name,
            found=text[:40],
            expected=f"{kind} from {least:g} to {most:,.0f}",
        )
    return value
