"""The hang as a section of a report page, and as a separate page."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.errors import InputError
from holdfast.numbers import counted
from holdfast.report import ColumnFormat, Figure, Finding, How, Page, Section, Table, Unknown
from holdfast.report.theme import colour
from holdfast.runs.flight.verdict import HangVerdict, hang
from holdfast.runs.ranks import ranges

SOURCE = "Kokolis et al., arXiv 2410.21680v2, section 6; PyTorch, Flight Recorder for debugging stuck jobs"
MOST_POINTS = 15_000
MOST_FRAMES = 3
PLACES = {"inside": "user", "not entered": "hardware", "no dump": "system", "over": "muted"}
"""Where a member is, and the colour it has."""
HEADINGS = {
    "missing_ranks": "Missing ranks:",
    "stuck_inside": "Stuck inside:",
    "mismatch": "Mismatch:",
    "no_hang": "No hang:",
    "inconclusive": "Inconclusive:",
}


def section(folder: str | Path) -> Section | None:
    """What stopped the run, if its folder holds flight records.

    Args:
        folder: of a recorded run; records lie in ``flight/<launch>/`` below it.

    Returns:
        The section; None where no record can be read.
    """
    records = sorted(each for each in Path(folder).rglob("flight") if each.is_dir())
    if not records:
        return None
    try:
        return section_of(hang(*records))
    except InputError:
        return None


def section_of(result: HangVerdict) -> Section:
    """The section of one verdict."""
    found = result.evidence
    return Section(
        "hang",
        "What stopped the run?",
        result.sentence,
        [] if not found.operations else [_figure(result)],
        [each for each in (_operations(result), _differences(result), _ranks(result)) if each],
        How(
            [
                "per group: the first collective that some members entered and others did not",
                "a missing rank that waits in another group leads there; the end of that path counts",
                "entered by all, not completed: network or device; asked for different things: the program",
            ],
            {
                "dumps used": f"{found.dumps:,} of {found.world_size:,} ranks",
                "files set aside": f"{len(found.set_aside):,}",
                "ring buffers that had wrapped": f"{found.lost['ranks']:,}",
            },
            SOURCE,
            list(found.remarks),
        ),
    )


def page(result: HangVerdict, places: str) -> Page:
    """A page for one verdict."""
    found = result.evidence
    unknowns = [
        Unknown(f"{each.file}: {each.reason}", "Dump again, or leave it out.")
        for each in found.set_aside[:50]
    ]
    if found.ranks_without_dump:
        unknowns.append(
            Unknown(
                f"Ranks without a dump: {ranges(found.ranks_without_dump)}.",
                "Look into their logs; a rank that was killed leaves none.",
            )
        )
    notes = [f"{each[0].upper()}{each[1:]}." for each in found.remarks]
    if found.lost["ranks"]:
        since = found.lost["compared_from_sequence"]
        compared = "" if since is None else f"; compared from number {since:,} on"
        notes.append(
            f"{counted(found.lost['ranks'], 'ring buffer')} had wrapped: up to "
            f"{found.lost['entries_most']:,} entries are lost{compared}."
        )
    return Page(
        title="Hang report",
        subtitle=f"{found.dumps:,} flight recorder dumps of {found.world_size:,} ranks",
        inputs=[("Dumps", places), ("Set aside", f"{len(found.set_aside):,} files")],
        findings=[
            Finding(result.sentence, "hang", HEADINGS[result.verdict]),
            *(Finding(note, None, "Note:") for note in notes),
        ],
        sections=[section_of(result)],
        unknowns=unknowns,
    )


def _figure(result: HangVerdict) -> Figure:
    """For every operation that did not end: where each member is."""
    rows: list[dict[str, Any]] = []
    operations = result.evidence.operations
    names = Counter((each["group"], each["sequence"]) for each in operations)
    for each in operations:
        label = f"{each['collective']} {each['sequence']:,} of {each['group']}"
        if names[each["group"], each["sequence"]] > 1:
            label += f" ({ranges(each['group_ranks'])})"
        places: dict[str, list[int]] = defaultdict(list)
        for rank in each["group_ranks"]:
            places[_place(each, rank)].append(rank)
        rows += [
            {"operation": label, "rank": rank, "place": place}
            for place, ranks in places.items()
            for rank in ranks
        ]
    rows = rows[:MOST_POINTS]
    order = [*dict.fromkeys(str(row["operation"]) for row in rows)]
    shown = {place: PLACES[place] for place in PLACES if any(row["place"] == place for row in rows)}
    chart = {
        "data": {"values": rows},
        "mark": {"type": "tick", "thickness": 3, "size": 16},
        "height": {"step": 28},
        "encoding": {
            "x": {
                "field": "rank",
                "type": "quantitative",
                "title": "Rank",
                "axis": {"tickMinStep": 1, "format": "d"},
            },
            "y": {"field": "operation", "type": "nominal", "sort": order, "title": None},
            "color": {
                "field": "place",
                "type": "nominal",
                "legend": None,
                "scale": {
                    "domain": list(shown),
                    "range": [colour(each) for each in shown.values()],
                },
            },
            "tooltip": [
                {"field": "operation", "type": "nominal"},
                {"field": "rank", "type": "quantitative"},
                {"field": "place", "type": "nominal"},
            ],
        },
    }
    caption = "Each rank at the operations that did not end; the first holds up the others."
    return Figure(chart, caption, shown)


def _place(operation: Any, rank: int) -> str:
    if rank in operation["unknown_ranks"]:
        return "no dump"
    if rank in operation["missing_ranks"]:
        return "not entered"
    return "inside" if rank in operation["waiting_ranks"] else "over"


def _operations(result: HangVerdict) -> Table | None:
    operations = result.evidence.operations
    if not operations:
        return None
    cells = pa.table(
        {
            "group": [each["group"] for each in operations],
            "group_ranks": [ranges(each["group_ranks"]) for each in operations],
            "collective": [each["collective"] for each in operations],
            "sequence": [each["sequence"] for each in operations],
            "inside": [ranges(each["waiting_ranks"]) for each in operations],
            "missing": [ranges(each["missing_ranks"]) for each in operations],
            "unknown": [ranges(each["unknown_ranks"]) for each in operations],
            "for_s": pa.array([_known(each["for_s"]) for each in operations], pa.float64()),
        }
    )
    columns = {
        "group": ColumnFormat("Group"),
        "group_ranks": ColumnFormat("Its ranks"),
        "collective": ColumnFormat("Operation"),
        "sequence": ColumnFormat("Number"),
        "inside": ColumnFormat("Inside"),
        "missing": ColumnFormat("Not entered"),
        "unknown": ColumnFormat("No dump"),
        "for_s": ColumnFormat("For at least", "s", 1),
    }
    return Table(cells, columns, "One row per operation that did not end, the root first.")


def _known(seconds: float | None) -> float | None:
    """Dumps that do not say when they were made often hold nothing newer than the operation itself."""
    return seconds if seconds and seconds >= 1 else None


def _differences(result: HangVerdict) -> Table | None:
    parts = result.evidence.differences
    if not parts:
        return None
    cells = pa.table(
        {
            "ranks": [ranges(each["ranks"]) for each in parts],
            "operation": [each["operation"] for each in parts],
            "input": [str(each["input_sizes"])[:200] for each in parts],
            "output": [str(each["output_sizes"])[:200] for each in parts],
            "type": [
                ", ".join(sorted({*each["input_dtypes"], *each["output_dtypes"]})) for each in parts
            ],
            "at": [each["where"] for each in parts],
            "stack": [_stack(each["stack"]) for each in parts],
        }
    )
    names = cells.column_names
    return Table(
        cells,
        {name: ColumnFormat(name.capitalize(), detail=name == "stack") for name in names},
        caption="One row per variant of the operation that ranks called with the same number.",
    )


def _ranks(result: HangVerdict) -> Table | None:
    ranks = result.evidence.ranks
    if not ranks:
        return None
    last = [each["last"] for each in ranks]
    cells = pa.table(
        {
            "rank": [each["rank"] for each in ranks],
            "host": [each["host"] for each in ranks],
            "role": [each["role"] for each in ranks],
            "last": [
                f"{each['collective']} {each['sequence']} of {each['group']}, {each['state']}"
                if each
                else "none"
                for each in last
            ],
            "at": [each["where"] for each in ranks],
            "stack": [_stack(each["stack"]) for each in ranks],
        }
    )
    columns = {
        "rank": ColumnFormat("Rank"),
        "host": ColumnFormat("Host"),
        "role": ColumnFormat("Role"),
        "last": ColumnFormat("Last entry"),
        "at": ColumnFormat("In the program at"),
        "stack": ColumnFormat("Stack", detail=True),
    }
    return Table(cells, columns, "One row per rank, the missing ones first.")


def _stack(frames: Any) -> str:
    """The innermost frames; --json has all."""
    shown = [f"{each['name']} {each['filename']}:{each['line']}" for each in frames[:MOST_FRAMES]]
    return " < ".join([*shown, "..."] if len(frames) > MOST_FRAMES else shown)
