"""What was found in the logs: the lines that rules know, and the bounded memory of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
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


_Found = TypeVar("_Found", Event, Traceback)


@dataclass
class Occurrences(Generic[_Found]):
    """The first finds of one kind, the last one, and how many there were."""

    first: list[_Found] = field(default_factory=list)
    last: _Found | None = None
    count: int = 0

    def add(self, item: _Found) -> None:
        """Take one more, later than those before."""
        self.count += 1
        if len(self.first) < FIRST:
            self.first.append(item)
        else:
            self.last = item

    def all(self) -> Iterator[_Found]:
        """Those that are kept, in their order."""
        yield from self.first
        if self.last is not None:
            yield self.last


Kind = tuple[int, int | None, str]
"""Rule, rank, variant."""


@dataclass
class Finds:
    """What one file holds."""

    events: dict[Kind, Occurrences[Event]] = field(default_factory=dict)
    tracebacks: dict[Kind, Occurrences[Traceback]] = field(default_factory=dict)
    """By the rule that knows the exception."""
    failures: list[FirstFailure] = field(default_factory=list)
    progress: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    """Lines that show progress, with their counts (steps, epochs); no counts: it ended successfully."""
