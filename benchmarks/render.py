"""`benchmarks/results/*.json` -> `docs/benchmarks.md`, and a page per room behind it with every comparison.

Other pages have tables of the results between two comments, which are filled here, too:

    <!-- table of sparse_kernels: Microseconds per step of a layer -->
    <!-- end of table -->
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
DOCS = Path(__file__).resolve().parents[1] / "docs"

MARKED = re.compile(
    r"(<!-- table of (?P<result>\w+): (?P<caption>.+?) -->\n).*?(<!-- end of table -->\n)",
    re.DOTALL,
)

GENERATED = "<!-- Made by benchmarks/render.py from benchmarks/results/; edit those. -->"
HEAD = f"""\
{GENERATED}

# Benchmarks

holdfast and the best peers on the same input. A ratio above 1 means that holdfast is faster. Of each
benchmark this page has the comparison in the middle (of an even number, the lower one of the two) and the
lowest ratio; the pages behind it have every comparison, won or lost, with machine and versions.
`make bench` measures again, `make bench ROOM=carbon` one room.
"""
TITLES = {
    "automata": "Automata (fst)",
    "croissant": "Croissant descriptions",
    "curation": "Data curation",
    "federated": "Federated learning",
    "lm": "Generation and safety of language models",
    "pipeline": "Input pipelines",
    "private": "Private computation",
    "profile": "Profiles and numeric deviation",
    "query": "Regex queries",
    "records": "Progressive records",
    "sparse": "Sparse networks",
}
"""First word of a result's name -> title of its page, where it is not the word itself."""


def pages() -> dict[str, str]:
    """Name in docs/ -> text, for the results that are there."""
    rooms: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(RESULTS.glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        rooms.setdefault(path.stem.partition("_")[0], []).append(result)
    made = {"benchmarks.md": "\n".join([HEAD, *_headlines(rooms), *_limits(rooms)])}
    for room, results in rooms.items():
        head = f"{GENERATED}\n\n# Benchmarks: {title(room)}\n"
        made[f"benchmarks/{room}.md"] = "\n".join([head, *map(_section, results)])
    return made


def title(room: str) -> str:
    """Of a room's page."""
    return TITLES.get(room, room.capitalize())


def _link(room: str, result: dict[str, Any]) -> str:
    anchor = re.sub(r"[^a-z0-9 -]", "", result["title"].lower()).replace(" ", "-")
    return f"[{result['title']}](benchmarks/{room}.md#{anchor})"


def _headlines(rooms: dict[str, list[dict[str, Any]]]) -> list[str]:
    """One row per benchmark with comparisons: the one in the middle, the lowest, and how many were won."""
    lines = [
        "| benchmark | comparison in the middle | ratio | holdfast | peer | lowest | won | goals met |",
        "|-|-|-:|-:|-:|-:|-:|-:|",
    ]
    for room, results in rooms.items():
        for result in results:
            rows = sorted(result["comparisons"], key=lambda row: row["ratio"])
            if not rows:
                continue
            row = rows[(len(rows) - 1) // 2]
            won = sum(each["ratio"] > 1 for each in rows)
            aimed = [each["ratio"] >= each["target"] for each in rows if each["target"]]
            met = f"{sum(aimed)} of {len(aimed)}" if aimed else ""
            cells = [
                _link(room, result),
                row["what"],
                f"**{row['ratio']:.2f}**",
                _seconds(row["ours_s"]),
                f"{row['peer']} {_seconds(row['peer_s'])}",
                f"{rows[0]['ratio']:.2f}",
                f"{won} of {len(rows)}",
                met,
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def _limits(rooms: dict[str, list[dict[str, Any]]]) -> list[str]:
    """How many limits (of memory, accuracy, overhead) each benchmark kept."""
    lines = ["## Limits", "", "| benchmark | limits kept |", "|-|-:|"]
    for room, results in rooms.items():
        for result in results:
            kept = [_kept(row) for row in result["limits"] if row["limit"] is not None]
            if kept:
                lines.append(f"| {_link(room, result)} | {sum(kept)} of {len(kept)} |")
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
    """Rewrite the pages, and the tables of the others."""
    for name, text in pages().items():
        (DOCS / name).parent.mkdir(exist_ok=True)
        (DOCS / name).write_text(text, encoding="utf-8")
    for path in DOCS.glob("*.md"):
        text = path.read_text(encoding="utf-8")
        if filled(text) != text:
            path.write_text(filled(text), encoding="utf-8")


if __name__ == "__main__":
    main()
