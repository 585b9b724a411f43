"""A description held against the table of rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from holdfast import answer
from holdfast.answer import Answer, Section, Table, Unknown, Value
from holdfast.data.croissant.document.building import build
from holdfast.data.croissant.document.reading import DescriptionSource, Document, read_anything
from holdfast.data.croissant.fetching.access import TIMEOUT_S, Access
from holdfast.data.croissant.rules import (  # noqa: F401  # each puts its rules into the table
    on_dataset,
    on_fields,
    on_ids,
    on_records,
    on_resources,
    on_sources,
    on_terms,
    on_transforms,
    on_values,
)
from holdfast.data.croissant.rules.context import Context
from holdfast.data.croissant.rules.sarif import log
from holdfast.data.croissant.rules.table import DATA_RULES, RULES, Breach, Finding, Rule, Severity
from holdfast.numbers import counted

HowMuch = Literal["sample", "full"]
_ROWS = 2000  # of a table
# What these say of a value says all: that it is empty, of another kind, or no JSON. The last one counts.
_OF_VALUES = ("CR018", "CR016", "CR001")


@dataclass(frozen=True, slots=True)
class Validation(Answer):
    """What was found in a description.

    Attributes:
        path: the description, as it was given.
        problems: by line, column and code.
        strict: whether warnings that stand for what the standard demands were made errors.
        data: how much of the data was to be read.
        log: the file of SARIF that was written, if one was.
    """

    path: Path | str
    problems: tuple[Finding, ...]
    strict: bool = False
    data: HowMuch | None = None
    log: Path | None = None

    @property
    def exit_code(self) -> int:
        """0 without errors, and if all could be checked where all was to be."""
        return int(not self.valid or (self.data == "full" and self.unknown != ()))

    @property
    def valid(self) -> bool:
        """Whether there are no errors; see `verdict`."""
        return not self.counts["error"]

    @property
    def unknown(self) -> tuple[Finding, ...]:
        """What could not be checked, such as files that are not at hand: of that, nothing is known."""
        return tuple(finding for finding in self.problems if finding.code == "CR905")

    @property
    def verdict(self) -> Literal["valid", "invalid", "unknown"]:
        """Whether there are errors; "unknown" if there are none, but not all could be checked."""
        if not self.valid:
            return "invalid"
        return "unknown" if self.unknown else "valid"

    @property
    def counts(self) -> dict[str, int]:
        """How many errors, warnings and notes there are."""
        counts = Counter(finding.severity.value for finding in self.problems)
        return {severity.value: counts[severity.value] for severity in Severity}

    def to_dict(self) -> dict[str, Any]:
        """The JSON that programs read: whether it is valid, and the findings of each severity."""
        told = {
            f"{severity.value}s": [f.to_dict() for f in self.problems if f.severity is severity]
            for severity in Severity
        }
        unknown = [finding.message for finding in self.unknown]
        made = {"path": str(self.path), "valid": self.valid, "strict": self.strict, **told}
        return {**made, "verdict": self.verdict, "unknown": unknown}

    def written(self) -> Mapping[str, Path]:
        """The file of SARIF."""
        return {} if self.log is None else {"findings as SARIF": self.log}

    def values(self) -> Sequence[Value]:
        """How many errors, warnings, notes, and things that could not be checked."""
        counts = {**self.counts, "unknown": len(self.unknown)}
        return [Value(f"{name}s", count, better="lower") for name, count in counts.items()]

    def findings(self) -> Sequence[answer.Finding]:
        """The verdict and the counts."""
        counts = ", ".join(counted(number, name) for name, number in self.counts.items())
        text = f"{counts} by the rules of the standard."
        return [answer.Finding(text, "sound", lead=f"{self.verdict.capitalize()}:")]

    def unknowns(self) -> Sequence[Unknown]:
        """What could not be checked."""
        return [Unknown(finding.message, finding.hint) for finding in self.unknown]

    def sections(self) -> Sequence[Section]:
        """What is wrong, a row each."""
        rows = [
            {
                "severity": one.severity.value,
                "code": one.code,
                "line": f"{one.line}",
                "what_is_wrong": one.message,
                "what_to_do": one.hint,
            }
            for one in self.problems[:_ROWS]
        ]
        tables = [Table(pa.Table.from_pylist(rows), caption="One row per finding.", detail=True)]
        sentence = f"{counted(len(self.problems), 'finding')}."
        question = "Is the description valid?"
        return [Section("sound", question, sentence, tables=tables if rows else ())]

    def rendered(self, _: bool) -> str:
        """Lines whose places editors and code hosts can find."""
        return self.text()

    def sarif(self) -> dict[str, Any]:
        """A log of SARIF 2.1.0, as code-scanning services read it."""
        return log(self.path, self.problems)

    def text(self) -> str:
        """One line for each finding, its hint below it, and the counts."""
        lines = []
        for finding in self.problems:
            place = f"{self.path}:{finding.line}:{finding.column}"
            pointer = finding.pointer or "/"
            lines.append(
                f"{place}: {finding.severity.value} {finding.code} {finding.message} [{pointer}]"
            )
            if finding.hint:
                lines.append(f"    {finding.hint}")
        named = [counted(number, name) for name, number in self.counts.items()]
        if self.unknown:
            named.append(f"cannot tell: {len(self.unknown)} not checked")
        return "\n".join([*lines, f"{self.path}: {', '.join(named)}"])


def validate(
    path: DescriptionSource,
    *,
    strict: bool = False,
    data: HowMuch | None = None,
    mapping: Mapping[str, str | Path] | None = None,
    cache: str | Path | None = None,
    offline: bool = False,
    timeout: float = TIMEOUT_S,
    public_only: bool = False,
    encoding: str | Mapping[str, str] | None = None,
) -> Validation:
    """Hold a description against the standard, and against its data if asked.

    All that is wrong is found in one pass, each defect once.

    Args:
        path: the description, as `open_description` takes it.
        strict: make errors of the warnings that stand for what the standard demands.
        data: also read the data: the first records of each record set ("sample"), or all ("full").
        mapping: id of a FileObject -> a local file or folder to be taken instead of its URL.
        cache: where fetched files are kept; None for the user's cache folder.
        offline: fetch nothing.
        timeout: seconds to wait for a server.
        public_only: refuse servers whose address is not public.
        encoding: of text files, as `Dataset` takes it.

    Raises:
        InputError: there is no such file, or it cannot be opened; with `data`, a mapping is wrong.
    """
    access = Access(cache, offline, timeout, public_only)
    document = read_anything(path, access)
    findings = list(_static(document, strict=strict))
    if data and document.terms.dataset is not None and document.cut is None:
        from holdfast.data.croissant.rules import on_data

        breaches = on_data.check(document, data, tuple(findings), mapping, access, encoding)
        findings += [
            _placed(document, DATA_RULES[code], breach, strict) for code, breach in breaches
        ]
    findings.sort(key=lambda finding: (finding.line, finding.column, finding.code, finding.pointer))
    return Validation(document.path, tuple(findings), strict, data)


def _static(document: Document, *, strict: bool) -> Iterator[Finding]:
    """What the rules find; the mistakes of the text alone where those cut the description short."""
    context = Context(document, build(document))
    cut = document.cut is not None
    rules = [rule for rule in RULES.values() if not cut or rule.code in on_terms.CODES]
    breaches = [(rule, breach) for rule in rules for breach in rule.check(context)]
    told = {
        at: code for code in _OF_VALUES for rule, (at, *_) in breaches if rule.code == code and at
    }
    for rule, breach in breaches:
        if breach.key or told.get(breach.at, rule.code) == rule.code or rule.code < "CR010":
            yield _placed(document, rule, breach, strict)


def _placed(document: Document, rule: Rule, breach: Breach, strict: bool) -> Finding:
    """A breach as a finding: with its line, and the severity and hint of its rule."""
    severity = breach.severity or rule.severity
    if strict and rule.must and severity is Severity.WARNING:
        severity = Severity.ERROR
    offset = breach.offset
    if offset is None:
        offset = document.offset(breach.at, key=breach.key)
    line, column = document.lines.place(offset)
    hint = breach.hint or rule.hint
    return Finding(rule.code, severity, breach.message, breach.at, line, column, hint)
