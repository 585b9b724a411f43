"""`benchmarks/results/*.json` -> `docs/benchmarks.md`: every comparison, won or lost.

Other pages have tables of the results between two comments, which are filled here, too:

    <!-- table of sparse_kernels: Microseconds per step of a layer -->
    <!-- end of table -->
"""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"

MARKED = re.compile(
    r"(<!-- table of (?P<result>\w+): (?P<caption>.+?) -->\n).*?(<!-- end of table -->\n)",
    re.DOTALL,
)

HEAD = """\
<!-- Made by benchmarks/render.py from benchmarks/results/; edit those. -->

# Benchmarks

holdfast and the best peers on the same input. A ratio above 1 means that holdfast is faster; lost
comparisons are listed like won ones. `make bench` measures again.
"""


def page() -> str:
    """The page for the results that are there."""
    results = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))
    ]
    return "\n".join([HEAD, *_summary(results), *map(_section, results)])


def _summary(results: list[dict[str, Any]]) -> list[str]:
    """One row per benchmark: how its comparisons went, and how many of its goals and limits were met."""
    lines = [
        "| benchmark | comparisons won | median ratio | goals met | limits kept |",
        "|-|-:|-:|-:|-:|",
    ]
    for result in results:
        ratios = [row["ratio"] for row in result["comparisons"]]
        aimed = [row["ratio"] >= row["target"] for row in result["comparisons"] if row["target"]]
        limits = [_kept(row) for row in result["limits"] if row["limit"] is not None]
        won = f"{sum(ratio > 1 for ratio in ratios)} of {len(ratios)}" if ratios else ""
        median = f"{statistics.median(ratios):.2f}" if ratios else ""
        goals, kept = (
            f"{sum(marks)} of {len(marks)}" if marks else "" for marks in (aimed, limits)
        )
        lines.append(f"| {result['title']} | {won} | {median} | {goals} | {kept} |")
    return [*lines, ""]


def _seconds(value: float) -> str:
    """Two decimals, and milliseconds where they would say nothing."""
    return f"{value:.2f} s" if value >= 0.1 else f"{value * 1e3:.1f} ms"


def _section(result: dict[str, Any]) -> str:
    lines = [
        f"## {result['title']}",
        "",
        f"{result['input']}. Script: `{result['script']}`.",
        "",
        "| comparison | ratio | goal | holdfast | peer |",
        "|-|-:|-:|-:|-:|",
    ]
    for row in result["comparisons"]:
        goal = f"{row['target']:g}" if row["target"] else ""
        lines.append(
            f"| {row['what']} | **{row['ratio']:.2f}** | {goal} | {_seconds(row['ours_s'])} "
            f"| {row['peer']} {_seconds(row['peer_s'])} |"
        )
    lines += ["", "| limit | measured | allowed | |", "|-|-:|-:|-|"]
    lines += map(_limit, result["limits"])
    lines += ["", "| step | median | range | runs | peak memory |", "|-|-:|-:|-:|-:|"]
    for name, row in result["figures"].items():
        if isinstance(row, dict) and "median_s" in row:
            lines.append(
                f"| {name.replace('_', ' ')} | {_seconds(row['median_s'])} | {_seconds(row['min_s'])} to "
                f"{_seconds(row['max_s'])} | {row['runs']} | {row['peak_mb']:,} MB |"
            )
    lines += [line for table in result.get("tables", ()) for line in _table(table)]
    lines += ["", *(f"- {note}" for note in result["notes"])]
    lines += [f"- {_machine(result)}", ""]
    return "\n".join(lines)


def _machine(result: dict[str, Any]) -> str:
    """What it was measured on, with which versions."""
    machine = result["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    return (
        f"Machine: {machine['processor']}, {machine['cores_used']} cores used, "
        f"{machine['memory_gb']} GB, {machine['system']}, load {machine['load_before']} before, "
        f"Python {machine['python']}; {versions}."
    )


def filled(text: str) -> str:
    """A page whose marked tables are those of the results, each with its machine.

    Raises:
        KeyError: if the results have no such table.
    """

    def table(match: re.Match[str]) -> str:
        path = RESULTS / f"{match['result']}.json"
        result = json.loads(path.read_text(encoding="utf-8"))
        tables = {each["caption"]: each for each in result.get("tables", ())}
        lines = _table(tables[match["caption"]])[2:]
        return match[1] + "\n".join([*lines, "", _machine(result), "", match[4]])

    return MARKED.sub(table, text)


def _table(table: dict[str, Any]) -> list[str]:
    """A table of its own: a caption, and rows with the same keys."""
    head = list(table["rows"][0])
    cells = [
        [_cell(value) if isinstance(value, float) else str(value) for value in row.values()]
        for row in table["rows"]
    ]
    marks = ["-:" if isinstance(value, float) else "-" for value in table["rows"][0].values()]
    lines = [f"| {' | '.join(row)} |" for row in (head, *cells)]
    return ["", f"{table['caption']}:", "", lines[0], f"|{'|'.join(marks)}|", *lines[1:]]


def _cell(value: float) -> str:
    """Three significant digits, large numbers whole."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _limit(row: dict[str, Any]) -> str:
    """A row of the table of limits; without a limit, the measured value alone."""
    start = f"| {row['what']} | {row['value']:,.10g} {row['unit']} |"
    if row["limit"] is None:
        return f"{start} | |"
    allowed = f"{'at least ' if row.get('least') else ''}{row['limit']:,g} {row['unit']}"
    return f"{start} {allowed} | {'kept' if _kept(row) else '**missed**'} |"


def _kept(row: dict[str, Any]) -> bool:
    kept = row["value"] >= row["limit"] if row.get("least") else row["value"] <= row["limit"]
    return bool(kept)


def main() -> None:
    """Rewrite the page, and the tables of the others."""
    PAGE.write_text(page(), encoding="utf-8")
    for path in PAGE.parent.glob("*.md"):
        text = path.read_text(encoding="utf-8")
        if filled(text) != text:
            path.write_text(filled(text), encoding="utf-8")


if __name__ == "__main__":
    main()
