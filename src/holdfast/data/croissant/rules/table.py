"""The table of rules: what a rule is, and how one gets into the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias


class Severity(StrEnum):
    """How much a finding matters."""

    ERROR = "error"  # the description breaks the standard, or its data cannot be loaded as it says
    WARNING = "warning"  # it loads, but a user will stumble
    NOTE = "note"  # worth knowing


ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, at one place.

    Attributes:
        code: the rule's, such as ``CR104``; stable.
        severity: error, warning or note.
        message: one sentence: what was found and what was expected.
        pointer: RFC 6901 pointer into the document.
        line: from 1.
        column: in characters, from 1.
        hint: what to do.
    """

    code: str
    severity: Severity
    message: str
    pointer: str
    line: int
    column: int
    hint: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The JSON that programs read; the list it stands in says how much it matters."""
        return {
            "code": self.code,
            "pointer": self.pointer,
            "line": self.line,
            "column": self.column,
            "message": self.message,
            "hint": self.hint,
        }


STANDARD = "https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html"
JSON = "RFC 8259, The JavaScript Object Notation"


class Clause(NamedTuple):
    """A section of a standard, and its address."""

    section: str
    url: str


def clause_of(section: str) -> Clause:
    """A section of Croissant 1.1, whose anchor is made of its heading as the site makes it; or `JSON`."""
    if section == JSON:
        return Clause(section, "https://www.rfc-editor.org/rfc/rfc8259")
    words = "".join(letter for letter in section.lower() if letter.isalnum() or letter in " -")
    return Clause(section, f"{STANDARD}#{words.replace(' ', '-')}")


class Breach(NamedTuple):
    """What a rule yields: a pointer, a sentence; its own hint and severity where the rule's do not fit."""

    at: str
    message: str
    hint: str = ""
    severity: Severity | None = None
    key: bool = False  # whether the name of the property is at fault, not its value
    offset: int | None = None  # in characters, where the pointer is not near enough
    unknown: bool = False  # whether the rule could not be checked here


Check: TypeAlias = Callable[[Any], Iterable[Breach]]
"""A check of a `Context`; those of the data are of an `AtHand`."""


@dataclass(frozen=True, slots=True)
class Rule:
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
    check: Check


RULES: dict[str, Rule] = {}
"""Rules about the description, by code."""
DATA_RULES: dict[str, Rule] = {}
"""Rules about its data (CR9xx), once `on_data` is imported."""


def rule(
    code: str, severity: Severity, section: str, hint: str = "", *, must: bool = False
) -> Callable[[Check], Check]:
    """Put a check into the table of its code; its docstring says what is so in a good description."""

    def register(check: Check) -> Check:
        table = DATA_RULES if code.startswith("CR9") else RULES
        if code in table:
            raise ValueError(f"two rules have the code {code}")
        title = (check.__doc__ or "").strip().removesuffix(".")
        table[code] = Rule(code, severity, title, clause_of(section), hint, must, check)
        return check

    return register
