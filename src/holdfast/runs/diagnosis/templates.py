"""Templates of lines that no rule knows: which tell something, and the rule that one could become."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from holdfast.runs.diagnosis.origins import without_prefix
from holdfast.runs.diagnosis.scanning import Scan
from holdfast.runs.diagnosis.shapes import Shape

WILD = "<*>"
MOST_WORDS = 24
"""Words of a line that its template has."""
MOST_LISTED = 20
_MASKS = (
    re.compile(r"\b\d{4}-\d\d-\d\d[T _]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"),
    re.compile(r"\b0x[0-9a-fA-F]{1,16}\b"),
    re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"),
    re.compile(r"\b(?=[a-f]{0,40}\d)[0-9a-f]{7,64}\b"),
    re.compile(r"[-+]?\b\d[\d.,:]*(?:[eE][-+]?\d{1,3})?(?!\w)"),
    re.compile(r"\d{1,20}"),
)
_SEVERE = tuple(
    (weight, re.compile(words, re.IGNORECASE))
    for weight, words in (
        (4.0, r"\b(?:fatal|panic|segfault|abort(?:ed|ing)?|corrupt\w*|uncorrect\w*|critical)\b"),
        (
            3.0,
            r"(?:error|exception)\b|\bfail(?:ed|ure|s|ing)?\b|\b(?:killed|crash\w*|died|dead)\b",
        ),
        (
            2.0,
            r"\b(?:timed?[ -]?out|timeout|refused|denied|unreachable|lost|broken|invalid|unable"
            r"|cannot|can't|could not|mismatch|missing|exceeded|overflow)\b",
        ),
        (1.0, r"\b(?:warn(?:ing)?|retry\w*|stuck|hang|slow|skip\w*|not found|unexpected)\b"),
    )
)
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
    alike: dict[str, list[Shape]] = {}
    for shape in scan.shapes.values():
        if not shape.known and not shape.quoted:
            alike.setdefault(masked(shape.example.decode("utf-8", "replace")), []).append(shape)
    scored = [
        _scored(template, shapes, scan, good)
        for template, shapes in alike.items()
        if template.replace(WILD, "").strip(" .,:;|/%[](){}-=#*^~")  # not numbers and marks alone
        and any(shape.files - good for shape in shapes)
    ]
    scored = [each for each in scored if each.score > (_SEPARATES if good else 0)]
    scored.sort(key=lambda each: (-each.score, each.file, each.line))
    how = (
        "by how much they separate failed from good files (log-odds over its standard error), then by words"
        if good
        else "by words of trouble, rarity and lateness: good runs (--good) would tell more"
    )
    return scored[:MOST_LISTED], how


def masked(text: str) -> str:
    """The line with numbers, addresses and times replaced, without its rank."""
    text = without_prefix(text).strip()
    for mask in _MASKS:
        text = mask.sub(WILD, text)
    return " ".join(text.split()[:MOST_WORDS])


def _scored(template: str, shapes: list[Shape], scan: Scan, good: set[int]) -> UnknownTemplate:
    first = min(shapes, key=lambda shape: (shape.file in good, shape.file, shape.first))
    files, count = set[int]().union(*(s.files for s in shapes)), sum(s.count for s in shapes)
    failed, in_failed, in_good = len(scan.files) - len(good), len(files - good), len(files & good)
    words, home, log_odds = severity(template), scan.files[first.file], None
    if good:
        log_odds, error = separation(in_failed, failed, in_good, len(good))
        score = log_odds / error + words / 100
    else:
        late = first.first >= _LATE * max(1, home.feeds)
        share = count / max(1, sum(file.lines for file in scan.files))
        score = words and words + 0.5 * late + min(-math.log10(share) / 10, 0.5)
    return UnknownTemplate(
        template,
        round(score, 4),
        None if log_odds is None else round(log_odds, 4),
        in_failed,
        in_good,
        count,
        home.log.name,
        first.first + 1,
        first.example.decode("utf-8", "replace").strip(),
        suggested_rule(template),
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
    return next((weight for weight, words in _SEVERE if words.search(text)), 0.0)


def suggested_rule(template: str) -> str:
    """A rule in TOML that knows the template's lines."""
    words = re.findall(r"[A-Za-z]{3,}", template.replace(WILD, " "))
    name = "_".join(word.lower() for word in words[:4]) or "unnamed"
    # The end that is the same in all its lines begins and ends the pattern.
    parts = template.strip("<*> ").split(WILD)
    pattern = r"\S+".join(
        r"\s+".join(re.escape(word) for word in re.split(r"\s+", part)) for part in parts
    )
    cause = template.replace(WILD, "…").strip("… ")[:160].replace("{", "(").replace("}", ")")
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


def _toml(text: str) -> str:
    """A basic TOML string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    escaped = "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in escaped)
    return f'"{escaped}"'
