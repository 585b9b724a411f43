"""What is wrong with a description, where, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


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
