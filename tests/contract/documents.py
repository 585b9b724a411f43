"""What every saved answer has: the layout of docs/answers.md, headline, figures and sections."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from holdfast import command
from holdfast.answer import Answer
from holdfast.compare import compare


class Finding(msgspec.Struct, forbid_unknown_fields=True):
    text: str
    section: str | None


class Value(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    value: float | None
    unit: str
    ci95: tuple[float | None, float | None] | None
    better: Literal["lower", "higher", ""]
    how: str
    source: str


class Table(msgspec.Struct, forbid_unknown_fields=True):
    caption: str
    columns: list[dict[str, Any]]
    rows: list[dict[str, Any]]


class Section(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    question: str
    sentence: str
    tables: list[Table]
    how: dict[str, Any] | None


class Unknown(msgspec.Struct):
    text: str
    remedy: str
    doubt: bool


class Document(msgspec.Struct, forbid_unknown_fields=True):
    schema: Literal["holdfast-answer/1"]
    holdfast: str
    title: str
    headline: str
    findings: list[Finding]
    values: list[Value]
    sections: list[Section]
    unknown: list[Unknown]
    inputs: dict[str, str]
    data: Any


def numbers(data: Any) -> bool:
    """Whether JSON has a number or a list in it, so that there is something to compare."""
    if isinstance(data, dict):
        return any(map(numbers, data.values()))
    return isinstance(data, (int, float, list))


def faults(answer: Answer) -> list[str]:
    """What the document of an answer lacks."""
    document = answer.document()
    try:
        read = msgspec.convert(document, Document, strict=False)
    except msgspec.ValidationError as error:
        return [str(error)]
    found = []
    if not read.headline.strip():
        found.append("no headline")
    if not read.sections or not all(part.question and part.id for part in read.sections):
        found.append("no sections")
    if numbers(read.data):
        if not read.values:
            found.append("no values")
        elif {row["verdict"] for row in compare(document, document).rows} != {"same"}:
            found.append("not the same as itself")
    if any(v.value is not None and not math.isfinite(v.value) for v in read.values):
        found.append("a value that is not finite")
    return found


class Watch:
    """Looks at every answer that commands of this process print."""

    def __init__(self, patch: Any) -> None:
        self.faults: list[str] = []
        self._emit: Callable[..., int] = command.emit
        patch.setattr(command, "emit", self._look)

    def _look(self, answer: Answer, common: Any) -> int:
        self.faults += faults(answer)
        return self._emit(answer, common)
