"""`docs/croissant-rules.md`: every rule that a description is held against, from the tables of the code.

    python tools/croissant_rules.py

rewrites it; a test fails when it is stale.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from holdfast.data.croissant.rules import checking, on_data  # noqa: F401  # they fill the tables
from holdfast.data.croissant.rules.table import DATA_RULES, RULES, Rule

PAGE = Path(__file__).resolve().parents[1] / "docs" / "croissant-rules.md"

HEAD = """\
<!-- Made by tools/croissant_rules.py from the rules in src/holdfast/data/croissant/rules; edit those. -->

# Rules for Croissant descriptions

`holdfast data croissant validate` holds a description against these rules. An **error** breaks the
standard or keeps the data from being loaded; a **warning** loads, but a user will stumble; a **note** is
worth knowing. With `--strict`, warnings of rules that stand for a demand of the standard (marked \\*) are
errors. A finding may be milder than its rule where a description is of an old version, or a value is an
evident placeholder.
"""

# The first three or four letters of the codes -> what they are about, in the order of the page.
SECTIONS = {
    "CR00": "The text",
    "CR01": "Context, properties and values",
    "CR02": "Ids and references",
    "CR1": "The dataset",
    "CR2": "Files and sets of files",
    "CR30": "Record sets",
    "CR31": "Records in the description",
    "CR32": "Fields",
    "CR33": "Values and shapes of fields",
    "CR4": "Sources, joins and transforms",
    "CR5": "Enumerations, splits, responsible AI, conditions of use",
}


def page() -> str:
    """The page for the rules that there are."""
    parts = [HEAD]
    for start, title in SECTIONS.items():
        rules = [rule for code, rule in sorted(RULES.items()) if code.startswith(start)]
        parts += _section(title, rules)
    if DATA_RULES:
        parts += _section(
            "The data (with `--data`)", [rule for _, rule in sorted(DATA_RULES.items())]
        )
    return "\n".join(parts)


def _section(title: str, rules: Iterable[Rule]) -> list[str]:
    lines = [
        f"## {title}",
        "",
        "| code | a good description | otherwise | what to do | standard |",
        "|-|-|-|-|-|",
    ]
    for rule in rules:
        severity = rule.severity.value + (r" \*" if rule.must else "")
        clause = f"[{_cell(rule.clause.section)}]({rule.clause.url})"
        lines.append(
            f'| <span id="{rule.code.lower()}">{rule.code}</span> | {_cell(rule.title)} | {severity} '
            f"| {_cell(rule.hint)} | {clause} |"
        )
    return [*lines, ""]


def _cell(text: str) -> str:
    """Text of a table's cell, its Markdown and HTML signs as they are."""
    signs = {"|": "\\|", "*": "\\*", "<": "&lt;", ">": "&gt;"}
    return "".join(signs.get(sign, sign) for sign in text)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
