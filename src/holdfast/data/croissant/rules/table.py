"""The table of rules: what a rule is, and how one gets into the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeAlias, TypeVar

from holdfast.data.croissant.rules.clauses import Clause
from holdfast.data.croissant.rules.findings import Severity

if TYPE_CHECKING:
    from holdfast.data.croissant.rules.context import Context
    from holdfast.data.croissant.rules.data_at_hand import AtHand


class Breach(NamedTuple):
    """What a rule yields: a pointer, a sentence; its own hint and severity where the rule's do not fit."""

    at: str
    message: str
    hint: str = ""
    severity: Severity | None = None
    key: bool = False  # whether the name of the property is at fault, not its value
    offset: int | None = None  # in characters, where the pointer is not near enough
    unknown: bool = False  # whether the rule could not be checked here


Subject = TypeVar("Subject")
_Check: TypeAlias = "Callable[[Subject], Iterable[Breach]]"


@dataclass(frozen=True, slots=True)
class Rule(Generic[Subject]):
    """One rule of a table.

    Attributes:
        code: ``CR`` and three digits; stable.
        severity: of its findings, unless they say otherwise.
        title: one line: what is so in a good description.
        clause: where the standard says it.
        hint: what to do, unless a finding knows better.
        must: whether the standard demands it; then its warnings are errors in strict mode.
        check: finds what breaks it.
    """

    code: str
    severity: Severity
    title: str
    clause: Clause
    hint: str
    must: bool
    check: Callable[[Subject], Iterable[Breach]]


RULES: dict[str, Rule[Context]] = {}
"""Rules about the description, by code."""
DATA_RULES: dict[str, Rule[AtHand]] = {}
"""Rules about its data, once `on_data` is imported."""


def rule(
    code: str, severity: Severity, clause: Clause, hint: str = "", *, must: bool = False
) -> Callable[[_Check[Context]], _Check[Context]]:
    """Put a check into the table under its code; its docstring says what is so in a good description."""
    return _into(RULES, code, severity, clause, hint, must)


def data_rule(
    code: str, severity: Severity, clause: Clause, hint: str = ""
) -> Callable[[_Check[AtHand]], _Check[AtHand]]:
    """The same for a check of the data."""
    return _into(DATA_RULES, code, severity, clause, hint, False)


def _into(
    table: dict[str, Rule[Subject]],
    code: str,
    severity: Severity,
    clause: Clause,
    hint: str,
    must: bool,
) -> Callable[[_Check[Subject]], _Check[Subject]]:
    def register(check: _Check[Subject]) -> _Check[Subject]:
        if code in table:
            raise ValueError(f"two rules have the code {code}")
        title = (check.__doc__ or "").strip().removesuffix(".")
        table[code] = Rule(code, severity, title, clause, hint, must, check)
        return check

    return register
