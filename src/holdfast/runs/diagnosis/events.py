"""What was found in the logs: the lines that rules know, and the bounded memory of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from holdfast.runs.diagnosis.origins import Moment
from holdfast.runs.diagnosis.tracebacks import FirstFailure, Traceback

FIRST = 3
"""Finds that are kept of each kind, from each rank of each file; the last is kept too, all count."""


@dataclass(frozen=True)
class Event:
    """A line that a rule knows."""

    rule: int
    """Place of the rule in the rule set."""
    file: int
    """Index of the file."""
    line: int
    """Line number, from 0."""
    rank: int | None
    """The rank that wrote it; None: not known."""
    moment: Moment | None
    """When, as the line or one shortly before it says."""
    text: str
    groups: tuple[tuple[str, str], ...]
    """What the named groups of the pattern found."""
    variant: str = ""
    """What kinds are kept apart by beyond the rule: the exception's type, the XID's number."""

    def moved(self, lines: int) -> Event:
        """The same, so many lines further down."""
        return replace(self, line=self.line + lines)


_Found = TypeVar("_Found", Event, Traceback)


@dataclass
class Kept(Generic[_Found]):
    """The first finds of one kind, the last one, and how many there were."""

    first: list[_Found] = field(default_factory=list)
    last: _Found | None = None
    count: int = 0

    def add(self, found: _Found) -> None:
        """Take one more, later than those before."""
        self.count += 1
        if len(self.first) < FIRST:
            self.first.append(found)
        else:
            self.last = found

    def extend(self, later: Kept[_Found]) -> None:
        """Take those of a later part of the same file."""
        before = self.count
        for found in later.all():
            self.add(found)
        self.count = before + later.count

    def all(self) -> Iterator[_Found]:
        """Those that are kept, in their order."""
        yield from self.first
        if self.last is not None:
            yield self.last


Kind = tuple[int, int | None, str]
"""Rule, rank, variant."""


@dataclass
class Finds:
    """What one part of a file, or one file, holds."""

    events: dict[Kind, Kept[Event]] = field(default_factory=dict)
    tracebacks: dict[Kind, Kept[Traceback]] = field(default_factory=dict)
    """By the rule that knows the exception."""
    failures: list[FirstFailure] = field(default_factory=list)
    progress: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    """Lines that show progress, with their counts (steps, epochs); no counts: it ended successfully."""

    def extend(self, later: Finds, lines: int) -> None:
        """Append those of the next part, which begins after `lines` lines."""
        for kind, kept in later.events.items():
            self.events.setdefault(kind, Kept()).extend(_moved(kept, lines))
        for kind, found in later.tracebacks.items():
            self.tracebacks.setdefault(kind, Kept()).extend(_moved(found, lines))
        self.progress += [(line + lines, counts) for line, counts in later.progress]
        self.failures += [replace(each, line=each.line + lines) for each in later.failures]


def _moved(kept: Kept[_Found], lines: int) -> Kept[_Found]:
    """The same finds, so many lines further down."""
    if not lines:
        return kept
    return Kept(
        [found.moved(lines) for found in kept.first],
        None if kept.last is None else kept.last.moved(lines),
        kept.count,
    )
