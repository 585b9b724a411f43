"""Lines that no rule knows: which of them tell something, and the rule that one could become."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.runs.diagnosis.scanning import KnownShape, Scan
from holdfast.runs.diagnosis.templates import WILD, ShapeLine, Template, installed, mine

MOST_LISTED = 20
MOST_MINED = 1_000
"""Shapes of which templates are made: those that are the most telling by themselves."""
MOST_COMPARED = 4_000
"""Shapes of good runs that are held against the templates: those with the most lines."""

_SEVERE = (
    (4.0, r"\b(?:fatal|panic|segfault|abort(?:ed|ing)?|corrupt\w*|uncorrect\w*|critical)\b"),
    (
        3.0,
        r"(?:error|exception)\b|\bfail(?:ed|ure|s|ing)?\b|\b(?:killed|crash\w*|died|dead)\b",
    ),
    (
        2.0,
        r"\b(?:timed?[ -]?out|timeout|refused|denied|unreachable|lost|broken|invalid|unable|cannot"
        r"|can't|could not|mismatch|missing|exceeded|overflow)\b",
    ),
    (
        1.0,
        r"\b(?:warn(?:ing)?|retry\w*|stuck|hang|slow|skip\w*|not found|unexpected)\b",
    ),
)
_PARTS = (
    *(
        "fatal",
        "panic",
        "segfault",
        "abort",
        "corrupt",
        "uncorrect",
        "critical",
        "error",
        "exception",
    ),
    *(
        "fail",
        "killed",
        "crash",
        "died",
        "dead",
        "time",
        "refused",
        "denied",
        "unreachable",
        "lost",
    ),
    *(
        "broken",
        "invalid",
        "unable",
        "can",
        "could not",
        "mismatch",
        "missing",
        "exceeded",
        "overflow",
    ),
    *("warn", "retry", "stuck", "hang", "slow", "skip", "not found", "unexpected"),
)
"""Every text that `_SEVERE` matches contains one of them."""
_SEPARATES = 0.5
"""Standard errors from no difference; one failed file against one good one has 0.95."""
_LATE = 0.9
"""A template first seen in the last tenth of its file is late."""


@dataclass(frozen=True)
class UnknownTemplate:
    """A line template that no rule matches."""

    template: str
    score: float
    """Ranking score; see `unknown_templates`."""
    log_odds: float | None
    """Log odds that a file with it belongs to a failed run; None without good runs."""
    failed_files: int
    good_files: int
    count: int
    """Number of lines in all files."""
    file: str
    line: int
    """Line number of the first one, from 1."""
    example: str
    rule: str
    """A draft rule for it, to be pasted into a rule file and edited."""


def unknown_templates(scan: Scan) -> tuple[list[UnknownTemplate], str]:
    """Templates of lines in failed runs that no rule knows, the most telling first.

    With good runs the rank is the log-odds that a file with the template is a failed run's, divided
    by its standard error: ``log((f+½)/(F-f+½)) - log((g+½)/(G-g+½))`` with f of F failed and g of G
    good files that have it (Haldane's correction). Files count, not lines: a loop that repeats a
    message says it once. Words of trouble settle ties. Without good runs: words of trouble, that it
    is rare, and that it begins late in its file.

    Returns:
        At most `MOST_LISTED` templates, and a sentence on how they are ranked.
    """
    good = {index for index, file in enumerate(scan.files) if file.log.good}
    failed = len(scan.files) - len(good)
    suspects, others = _suspects(scan, good)
    scored = [_scored(template, scan, good, failed) for template in mine(suspects, others)]
    scored = [each for each in scored if each.score > (_SEPARATES if good else 0)]
    scored.sort(key=lambda each: (-each.score, each.file, each.line))
    how = (
        "by how much they separate failed from good files (log-odds over its standard error), then by words"
        if good
        else "by words of trouble, rarity and lateness: good runs (--good) would tell more"
    )
    if not installed():
        how += "; drain3 is not installed (the extra logs), so similar lines are not joined"
    return scored[:MOST_LISTED], how


def _suspects(scan: Scan, good: set[int]) -> tuple[list[ShapeLine], list[ShapeLine]]:
    """Shapes that no rule knows: those that may tell something, and the rest, for comparison."""
    unknown = [
        shape
        for shape in scan.shapes.values()
        if not shape.matched and not shape.quoted and shape.example.strip()
    ]
    failed = len(scan.files) - len(good)

    def telling(shape: KnownShape) -> float:
        words = severity(shape.example.decode("utf-8", "replace"))
        if not good:
            return words
        odds, error = separation(
            len(shape.files - good), failed, len(shape.files & good), len(good)
        )
        return odds / error + words / 100

    told = [(telling(shape), shape) for shape in unknown if shape.files - good]
    told = [(much, shape) for much, shape in told if much > 0]
    told.sort(key=lambda pair: (-pair[0], pair[1].file, pair[1].first))
    chosen = [shape for _, shape in told[:MOST_MINED]]
    taken = {id(shape) for shape in chosen}
    rest = [shape for shape in unknown if id(shape) not in taken] if good else []
    rest.sort(key=lambda shape: (-shape.count, shape.file, shape.first))
    chosen.sort(key=lambda shape: (shape.file, shape.first))
    return [*map(_line, chosen)], [*map(_line, rest[:MOST_COMPARED])]


def _line(shape: KnownShape) -> ShapeLine:
    return ShapeLine(
        shape.example.decode("utf-8", "replace"),
        shape.count,
        frozenset(shape.files),
        shape.file,
        shape.first,
    )


def _scored(template: Template, scan: Scan, good: set[int], failed: int) -> UnknownTemplate:
    in_failed, in_good = len(template.files - good), len(template.files & good)
    words = severity(template.text)
    home = scan.files[template.file]
    log_odds = None
    if good:
        log_odds, error = separation(in_failed, failed, in_good, len(good))
        score = log_odds / error + words / 100
    else:
        late = template.first >= _LATE * max(1, home.feeds)
        total = max(1, sum(file.lines for file in scan.files))
        rare = -math.log10(template.count / total) / 10 if words else 0.0
        score = words + (0.5 if late and words else 0.0) + min(rare, 0.5)
    return UnknownTemplate(
        template.text,
        round(score, 4),
        None if log_odds is None else round(log_odds, 4),
        in_failed,
        in_good,
        template.count,
        home.log.name,
        template.first + 1,
        template.example.strip(),
        suggested_rule(template.text),
    )


def separation(failed_with: int, failed: int, good_with: int, good: int) -> tuple[float, float]:
    """Log-odds ratio with ½ added to every cell, and its standard error (Haldane, Woolf)."""
    cells = (
        failed_with + 0.5,
        failed - failed_with + 0.5,
        good_with + 0.5,
        good - good_with + 0.5,
    )
    odds = math.log(cells[0] / cells[1]) - math.log(cells[2] / cells[3])
    return odds, math.sqrt(sum(1 / cell for cell in cells))


def severity(text: str) -> float:
    """How much a line's words speak of trouble, 0 to 4."""
    lower = text.lower()
    if not any(part in lower for part in _PARTS):  # most lines: spare them the patterns
        return 0.0
    return next((weight for weight, words in _SEVERE if re.search(words, text, re.IGNORECASE)), 0.0)


def suggested_rule(template: str) -> str:
    """A rule in TOML that knows the template's lines."""
    words = re.findall(r"[A-Za-z]{3,}", template.replace(WILD, " "))
    name = "_".join(word.lower() for word in words[:4]) or "unnamed"
    pattern = r"\S+".join(_escaped(part) for part in _longest(template.split(WILD)))
    cause = (
        " ".join(template.replace(WILD, "…").split())
        .strip("… ")[:160]
        .replace("{", "(")
        .replace("}", ")")
    )
    return "\n".join(
        [
            "[[rules]]",
            f'id = "{name}"',
            'kind = "root"',
            f"patterns = [{_toml(pattern)}]",
            f"cause = {_toml(cause)}",
            'domains = ["user", "system", "hardware"]',
        ]
    )


def _longest(parts: Sequence[str]) -> Sequence[str]:
    """Up to eight neighbouring parts around the longest one: enough to know the line by."""
    middle = max(range(len(parts)), key=lambda place: len(parts[place]))
    chosen = list(parts[max(0, middle - 4) : middle + 4])
    while len(chosen) > 1 and not chosen[0].strip():
        chosen.pop(0)
    while len(chosen) > 1 and not chosen[-1].strip():
        chosen.pop()
    chosen[0], chosen[-1] = chosen[0].lstrip(), chosen[-1].rstrip()
    return chosen


def _escaped(part: str) -> str:
    """As a pattern in which blanks may be of any width."""
    return r"\s+".join(re.escape(word) for word in re.split(r"\s+", part))


def _toml(text: str) -> str:
    """A basic TOML string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    escaped = "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in escaped)
    return f'"{escaped}"'
