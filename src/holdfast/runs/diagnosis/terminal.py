"""How a diagnosis reads in a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from holdfast.numbers import number
from holdfast.report.terminal import table
from holdfast.runs.diagnosis.results import Diagnosis

MOST_OTHERS = 6
MOST_UNKNOWN = 5
WIDTH = 110
"""Characters of a quoted line; --json has 500."""


def diagnosed(result: Diagnosis, verbose: bool = False) -> RenderableType:
    """The cause, why, its evidence, and what no rule knows."""
    parts: list[RenderableType] = [Text(result.sentence, style="bold")]
    if result.cause is not None:
        who = " or ".join(result.domains)
        about = (
            f"{result.label or 'no symptom of the fleet'}; {who}; confidence {result.confidence}"
        )
        parts.append(Text(f"{result.cause}: {about}"))
    parts += [Text(f"  {reason}") for reason in result.why]
    if result.remedy:
        parts.append(Text(f"What to do: {result.remedy}"))
    if result.traceback is not None and result.traceback["frames"]:
        parts.append(Text(f"Raised in {result.traceback['frame']}"))
    if result.evidence:
        parts.append(_evidence(result))
    if result.cascade and verbose:
        parts.append(_others(result, len(result.cascade)))
    for each in result.earlier:
        parts.append(Text(f"Attempt {each.attempt} before it: {each.sentence}"))
    unsure = result.confidence in ("low", "none")
    if result.unknown_templates and (verbose or unsure or result.good_files):
        parts.append(_unknown(result, len(result.unknown_templates) if verbose else MOST_UNKNOWN))
        if verbose or unsure:
            parts.append(Text("The first as a rule, for a file given with --rules:"))
            parts.append(Text(result.unknown_templates[0].rule))
    parts.append(Text(_read(result)))
    parts += [Text(line) for line in _set_aside(result)]
    return Group(*parts)


def _evidence(result: Diagnosis) -> RenderableType:
    lines = [Text("Evidence:")]
    for each in result.evidence:
        lines.append(Text(f"  {each.role}: {each.file}:{each.line}"))
        lines.append(Text(f"    {_cut(each.text)}"))
    return Group(*lines)


def _others(result: Diagnosis, most: int) -> RenderableType:
    rows = [
        (
            other.cause,
            "survived" if other.survived else other.kind,
            number(other.count),
            ", ".join(map(str, other.ranks[:8])) + (" …" if len(other.ranks) > 8 else ""),
            f"{other.first.file}:{other.first.line}",
        )
        for other in result.cascade[:most]
    ]
    return table(
        {"also found": "left", "kind": "left", "lines": "right", "ranks": "left", "first": "left"},
        rows,
    )


def _unknown(result: Diagnosis, most: int) -> RenderableType:
    rows = [
        (
            number(each.score, 2),
            f"{each.failed_files:,} / {each.good_files:,}",
            number(each.count),
            _cut(each.template),
        )
        for each in result.unknown_templates[:most]
    ]
    return table(
        {
            "score": "right",
            "failed / good files": "right",
            "lines": "right",
            "no rule knows": "left",
        },
        rows,
        caption=f"ranked {result.unknown_rule}",
    )


def _read(result: Diagnosis) -> str:
    good = f" and {result.good_files:,} of good runs" if result.good_files else ""
    cut = f", {result.cut_lines:,} of them too long and cut" if result.cut_lines else ""
    more = (
        f"; of {result.unshaped_lines:,} further lines no templates were made"
        if result.unshaped_lines
        else ""
    )
    files = "file" if result.files == 1 else "files"
    return f"read: {result.files:,} {files}{good}, {result.lines:,} lines{cut}{more}"


def _set_aside(result: Diagnosis) -> Iterator[str]:
    """One line per reason, with the first file that has it."""
    reasons: dict[str, list[str]] = {}
    for each in result.set_aside:
        reasons.setdefault(each.reason, []).append(each.file)
    for reason, files in list(reasons.items())[:MOST_OTHERS]:
        more = f" and {len(files) - 1:,} more" if len(files) > 1 else ""
        yield f"set aside: {files[0]}{more}: {reason}"


def _cut(text: str) -> str:
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"
