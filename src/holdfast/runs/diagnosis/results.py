"""What a diagnosis says: the cause, its evidence, everything else that was found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from holdfast.answer import Answer, ColumnFormat, Finding, How, Section, Table, Unknown
from holdfast.numbers import counted
from holdfast.runs.diagnosis.reading import SetAside
from holdfast.runs.diagnosis.templates import UnknownTemplate
from holdfast.runs.ranks import ranges

if TYPE_CHECKING:
    from holdfast.runs.goodput.attempts import AttemptAccount

MOST_ASIDE = 6
"""Reasons for which files were set aside."""
WIDTH = 110
"""Characters of a quoted line; --json has 500."""
SOURCE = "Hu et al., arXiv 2403.07648, section 6.1"


@dataclass(frozen=True)
class Evidence:
    """A line that shows something."""

    file: str
    line: int
    """From 1, as an editor counts."""
    text: str
    role: Literal["cause", "cascade", "summary"]


@dataclass(frozen=True)
class Other:
    """What else was found: consequences, other trouble, what was survived."""

    cause: str
    """The rule's id."""
    kind: str
    count: int
    ranks: tuple[int, ...]
    """Ranks that are known to have it, at most the first hundred."""
    file: str
    """Where the first line is."""
    line: int
    text: str
    survived: bool


@dataclass(frozen=True)
class EarlierAttempt:
    """What ended an attempt before the last."""

    attempt: int
    """From 1."""
    cause: str
    sentence: str
    file: str
    line: int


@dataclass(frozen=True, kw_only=True)
class Diagnosis(Answer):
    """The cause of a failure, as far as its logs tell."""

    cause: str | None
    """Id of the rule; None: no rule knows anything in these logs."""
    sentence: str
    """The cause for people, with rank and place; or that nothing is known."""
    kind: str | None = None
    symptom: str | None = None
    """Id in the fleet's taxonomy; None: it has none for this."""
    label: str | None = None
    """The symptom's name for people."""
    domains: tuple[str, ...] = ()
    """Who may be at fault: user, system, hardware."""
    remedy: str
    confidence: Literal["high", "medium", "low", "none"] = "none"
    why: tuple[str, ...] = ()
    """The reasons for the choice."""
    first_rank: int | None = None
    """The rank that shows the cause; None: not known."""
    host: str = ""
    time: str | None = None
    """When, in ISO 8601; None: the logs do not say."""
    traceback: Mapping[str, Any] | None = None
    """Exception, message, innermost own frame and all frames, where the cause is an exception."""
    order_known: bool = True
    """Whether times (or a single file) tell what came first."""
    evidence: tuple[Evidence, ...] = ()
    """The cause's line first."""
    cascade: tuple[Other, ...] = ()
    """Everything else that rules know, first come first."""
    attempts: int
    earlier: tuple[EarlierAttempt, ...] = ()
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
    set_aside: tuple[SetAside, ...] = ()
    ended: AttemptAccount | None = None
    """How the recorded attempt ended; None: there are no events beside the logs."""

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Log diagnosis"

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast runs diagnose``."""
        facts = super().to_dict()
        facts["bytes"] = facts.pop("size_bytes")
        del facts["ended"]
        ending = None if self.ended is None else self.ended.end()
        return {**facts, "host": self.host or None, "ending": ending}

    def findings(self) -> list[Finding]:
        """The cause, how sure it is and why, what to do."""
        findings = [Finding(self.sentence, "cause", f"{self.cause}:" if self.cause else "")]
        if self.cause is not None:
            domains = " or ".join(self.domains)
            label = self.label or "no symptom of the fleet"
            why = " ".join([f"{label}; {domains}.", *self.why])
            findings.append(Finding(why, "cause", f"Confidence {self.confidence}:"))
        if self.traceback is not None and self.traceback["frames"]:
            findings.append(Finding(f"{self.traceback['frame']}.", "cause", "Raised in"))
        if self.remedy:
            findings.append(Finding(self.remedy, None, "What to do:"))
        if self.ended is not None and self.ended.sentence != self.sentence:
            findings.append(Finding(self.ended.sentence, None, "Recorded end:"))
        earlier = ((f"Attempt {each.attempt} before it:", each.sentence) for each in self.earlier)
        return [*findings, *(Finding(sentence, "cause", lead) for lead, sentence in earlier)]

    def inputs(self) -> list[tuple[str, str]]:
        """What was read."""
        rows = [("Logs", f"{counted(self.files, 'file')}, {counted(self.lines, 'line')}")]
        return [*rows, ("Logs of good runs", f"{self.good_files:,}")] if self.good_files else rows

    def unknowns(self) -> list[Unknown]:
        """What was not read: one entry per reason, with the first file that has it."""
        reasons: dict[str, list[str]] = {}
        for each in self.set_aside:
            reasons.setdefault(each.reason, []).append(each.file)
        unknowns = []
        for reason, files in list(reasons.items())[:MOST_ASIDE]:
            more = f" and {len(files) - 1:,} more" if len(files) > 1 else ""
            unknowns.append(Unknown(f"Set aside: {files[0]}{more}: {reason}."))
        if self.cut_lines:
            unknowns.append(Unknown(f"{counted(self.cut_lines, 'line')} were too long and cut."))
        if self.unshaped_lines:
            text = f"No templates were made of {counted(self.unshaped_lines, 'further line')}."
            unknowns.append(Unknown(text))
        return unknowns

    def sections(self) -> list[Section]:
        """The lines that show the cause, what else rules know, what no rule knows."""
        how = How(
            [
                "each rule has a weight; what stands around a line corrects it",
                "the heaviest line of the last attempt is the cause, of equals the earliest",
            ],
            {"time": self.time or "not known", "host": self.host or "not known"},
            SOURCE,
        )
        shown = [*self._evidence(), *self._others()]
        parts = [Section("cause", "What stopped the run?", self.sentence, (), shown, how)]
        if self.unknown_templates:
            text = f"Ranked {self.unknown_rule}."
            rows = list(self._unknown())
            parts.append(Section("unknown", "Which lines does no rule know?", text, (), rows))
        return parts

    def _evidence(self) -> Iterator[Table]:
        rows = [
            {"role": each.role, "line": f"{each.file}:{each.line}\n{_cut(each.text)}"}
            for each in self.evidence
        ]
        if rows:
            columns = {"role": ColumnFormat("Evidence"), "line": ColumnFormat("Line")}
            yield Table(pa.Table.from_pylist(rows), columns, "The cause's line first.")

    def _others(self) -> Iterator[Table]:
        rows = [
            {
                "cause": each.cause,
                "kind": "survived" if each.survived else each.kind,
                "lines": each.count,
                "ranks": ranges(each.ranks),
                "first": f"{each.file}:{each.line}",
            }
            for each in self.cascade
        ]
        if rows:
            columns = {name: ColumnFormat(name.capitalize()) for name in rows[0]}
            columns["cause"] = ColumnFormat("Also found")
            yield Table(pa.Table.from_pylist(rows), columns, "First come first.", detail=True)

    def _unknown(self) -> Iterator[Table]:
        """The templates, and the first of them as a rule where rules did not tell enough."""
        unsure = self.confidence in ("low", "none")
        rows = [
            {
                "score": each.score,
                "failed_files": each.failed_files,
                "good_files": each.good_files,
                "lines": each.count,
                "template": _cut(each.template),
            }
            for each in self.unknown_templates
        ]
        columns = {
            "score": ColumnFormat("Score", digits=2),
            "failed_files": ColumnFormat("Failed files"),
            "good_files": ColumnFormat("Good files"),
            "lines": ColumnFormat("Lines"),
            "template": ColumnFormat("No rule knows"),
        }
        hidden = not unsure and not self.good_files
        yield Table(pa.Table.from_pylist(rows), columns, "The most telling first.", detail=hidden)
        draft: Sequence[str] = self.unknown_templates[0].rule.splitlines()
        label = {"rule": ColumnFormat("The first as a rule, for a file given with --rules")}
        yield Table(pa.table({"rule": draft}), label, detail=not unsure)


def _cut(text: str) -> str:
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"
