"""What a diagnosis says: the cause, its evidence, everything else that was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from holdfast.runs.diagnosis.reading import SetAside
from holdfast.runs.diagnosis.unknown import UnknownTemplate


@dataclass(frozen=True)
class Evidence:
    """A line that shows something."""

    file: str
    line: int
    """From 1, as an editor counts."""
    text: str
    role: Literal["cause", "cascade", "summary"]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"file": self.file, "line": self.line, "text": self.text, "role": self.role}


@dataclass(frozen=True)
class Other:
    """What else was found: consequences, other trouble, what was survived."""

    cause: str
    """The rule's id."""
    kind: str
    count: int
    ranks: tuple[int, ...]
    """Ranks that are known to have it, at most the first hundred."""
    first: Evidence
    survived: bool

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "cause": self.cause,
            "kind": self.kind,
            "count": self.count,
            "ranks": list(self.ranks),
            "file": self.first.file,
            "line": self.first.line,
            "text": self.first.text,
            "survived": self.survived,
        }


@dataclass(frozen=True)
class EarlierAttempt:
    """What ended an attempt before the last."""

    attempt: int
    """From 1."""
    cause: str
    sentence: str
    evidence: Evidence

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "attempt": self.attempt,
            "cause": self.cause,
            "sentence": self.sentence,
            "file": self.evidence.file,
            "line": self.evidence.line,
        }


@dataclass(frozen=True)
class Diagnosis:
    """The cause of a failure, as far as its logs tell."""

    cause: str | None
    """Id of the rule; None: no rule knows anything in these logs."""
    sentence: str
    """The cause for people, with rank and place; or that nothing is known."""
    kind: str | None
    symptom: str | None
    """Id in the fleet's taxonomy; None: it has none for this."""
    label: str | None
    """The symptom's name for people."""
    domains: tuple[str, ...]
    """Who may be at fault: user, system, hardware."""
    remedy: str
    confidence: Literal["high", "medium", "low", "none"]
    why: tuple[str, ...]
    """The reasons for the choice."""
    first_rank: int | None
    """The rank that shows the cause; None: not known."""
    host: str
    time: str | None
    """When, in ISO 8601; None: the logs do not say."""
    traceback: Mapping[str, Any] | None
    """Exception, message, innermost own frame and all frames, where the cause is an exception."""
    order_known: bool
    """Whether times (or a single file) tell what came first."""
    evidence: tuple[Evidence, ...]
    """The cause's line first."""
    cascade: tuple[Other, ...]
    """Everything else that rules know, first come first."""
    attempts: int
    earlier: tuple[EarlierAttempt, ...]
    unknown_templates: tuple[UnknownTemplate, ...]
    unknown_rule: str
    """How the unknown templates are ranked."""
    files: int
    good_files: int
    lines: int
    size_bytes: int
    cut_lines: int
    """Lines of which only the start was kept."""
    unshaped_lines: int
    """Lines that were searched but of which no templates were made: too many different ones."""
    set_aside: tuple[SetAside, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast runs diagnose``."""
        return {
            "cause": self.cause,
            "sentence": self.sentence,
            "kind": self.kind,
            "symptom": self.symptom,
            "label": self.label,
            "domains": list(self.domains),
            "remedy": self.remedy,
            "confidence": self.confidence,
            "why": list(self.why),
            "first_rank": self.first_rank,
            "host": self.host or None,
            "time": self.time,
            "traceback": None if self.traceback is None else dict(self.traceback),
            "order_known": self.order_known,
            "evidence": [each.to_dict() for each in self.evidence],
            "cascade": [each.to_dict() for each in self.cascade],
            "attempts": self.attempts,
            "earlier": [each.to_dict() for each in self.earlier],
            "unknown_templates": [each.to_dict() for each in self.unknown_templates],
            "unknown_rule": self.unknown_rule,
            "files": self.files,
            "good_files": self.good_files,
            "lines": self.lines,
            "bytes": self.size_bytes,
            "cut_lines": self.cut_lines,
            "unshaped_lines": self.unshaped_lines,
            "set_aside": [each.to_dict() for each in self.set_aside],
        }
