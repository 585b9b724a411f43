"""What `hang` found: one sentence, and the tables and chart that it rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from holdfast.answer import Answer, ColumnFormat, Figure, Finding, How, Section, Table, Unknown
from holdfast.numbers import counted
from holdfast.report import figures
from holdfast.runs.flight.divergence import Divergence
from holdfast.runs.flight.evidence import Evidence
from holdfast.runs.ranks import ranges

if TYPE_CHECKING:
    from holdfast.runs.goodput.attempts import AttemptAccount

Verdict = Literal["missing_ranks", "stuck_inside", "mismatch", "no_hang", "inconclusive"]

SOURCE = "Kokolis et al., arXiv 2410.21680v2, section 6; PyTorch, Flight Recorder for debugging stuck jobs"
MOST_POINTS = 15_000
MOST_FRAMES = 3
MOST_SET_ASIDE = 50
PLACES = {"inside": "user", "not entered": "hardware", "no dump": "system", "over": "muted"}
"""Where a member is, and the colour it has."""
HEADINGS: Mapping[Verdict, str] = {
    "missing_ranks": "Missing ranks:",
    "stuck_inside": "Stuck inside:",
    "mismatch": "Mismatch:",
    "no_hang": "No hang:",
    "inconclusive": "Inconclusive:",
}


@dataclass(frozen=True)
class HangVerdict(Answer):
    """What stopped the run."""

    verdict: Verdict
    group: str | None
    """The process group: its description, else its name. None where there is none to name."""
    sequence: int | None
    """Number of the collective in its group."""
    collective: str | None
    """For example ``all_reduce``."""
    missing_ranks: tuple[int, ...]
    """Global ranks that have not entered, and wait for nobody else."""
    unknown_ranks: tuple[int, ...]
    """Global ranks without a dump that may be to blame, or of which it cannot be told."""
    sentence: str
    """The verdict in words."""
    evidence: Evidence
    ended: AttemptAccount | None = None
    """How the recorded attempt ended; None: the dumps lie in no run's folder."""
    divergence: Divergence | None = None
    """Where one rank's order of collectives leaves that of the others."""

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Hang report"

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        facts = {**super().to_dict(), "evidence": self.evidence.to_dict()}
        del facts["ended"]
        return {**facts, "ending": None if self.ended is None else self.ended.end()}

    def findings(self) -> list[Finding]:
        """The verdict, then what to know before trusting it."""
        lost = self.evidence.lost
        notes = [f"{each[0].upper()}{each[1:]}." for each in self.evidence.remarks]
        if lost["ranks"]:
            since = lost["compared_from_sequence"]
            compared = "" if since is None else f"; compared from number {since:,} on"
            wrapped = f"{counted(lost['ranks'], 'ring buffer')} had wrapped"
            notes.append(f"{wrapped}: up to {lost['entries_most']:,} entries are lost{compared}.")
        findings = [Finding(self.sentence, "hang", HEADINGS[self.verdict])]
        if self.divergence is not None:
            findings.append(Finding(self.divergence.sentence, "hang", "Divergence:"))
        if self.ended is not None:
            findings.append(Finding(self.ended.sentence, "hang", "Recorded end:"))
        return [*findings, *(Finding(note, None, "Note:") for note in notes)]

    def unknowns(self) -> list[Unknown]:
        """Files set aside, and ranks without a dump."""
        unknowns = [
            Unknown(f"{each.file}: {each.reason}", "Dump again, or leave it out.")
            for each in self.evidence.set_aside[:MOST_SET_ASIDE]
        ]
        if absent := self.evidence.ranks_without_dump:
            remedy = "Look into their logs; a rank that was killed leaves none."
            unknowns.append(Unknown(f"Ranks without a dump: {ranges(absent)}.", remedy))
        return unknowns

    def inputs(self) -> list[tuple[str, str]]:
        """Number of dumps."""
        found = self.evidence
        dumps = f"{found.dumps:,} of {found.world_size:,} ranks"
        return [("Dumps", dumps), ("Set aside", f"{len(found.set_aside):,} files")]

    def sections(self) -> list[Section]:
        """The operations that did not end, what ranks asked for, where they are."""
        found = self.evidence
        how = How(
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
        )
        drawn = [_figure(found.operations)] if found.operations else []
        tables = [
            make(rows)
            for make, rows in (
                (_operations, found.operations),
                (_differences, found.differences),
                (_ranks, found.ranks),
            )
            if rows
        ]
        return [Section("hang", "What stopped the run?", self.sentence, drawn, tables, how)]


def _figure(operations: Sequence[Mapping[str, Any]]) -> Figure:
    """For every operation that did not end: where each member is."""
    rows: list[dict[str, Any]] = []
    names = Counter((each["group"], each["sequence"]) for each in operations)
    for each in operations:
        label = f"{each['collective']} {each['sequence']:,} of {each['group']}"
        if names[each["group"], each["sequence"]] > 1:
            label += f" ({ranges(each['group_ranks'])})"
        rows += [
            {"operation": label, "rank": rank, "place": _place(each, rank)}
            for rank in each["group_ranks"]
        ]
    values = figures.plain_rows(rows[:MOST_POINTS])
    seen = {row["place"] for row in values}
    shown = {place: name for place, name in PLACES.items() if place in seen}
    order = list(dict.fromkeys(row["operation"] for row in values))
    axis = {"tickMinStep": 1, "format": "d"}
    chart = {
        "data": {"values": values},
        "mark": {"type": "tick", "thickness": 3, "size": 16},
        "height": {"step": 28},
        "encoding": {
            "x": {"field": "rank", "type": "quantitative", "title": "Rank", "axis": axis},
            "y": {"field": "operation", "type": "nominal", "sort": order, "title": None},
            "color": figures.meanings_colour("place", shown),
            "tooltip": figures.tooltip(values, ["operation", "rank", "place"]),
        },
    }
    caption = "Each rank at the operations that did not end; the first holds up the others."
    return Figure(chart, caption, shown)


def _place(operation: Mapping[str, Any], rank: int) -> str:
    if rank in operation["unknown_ranks"]:
        return "no dump"
    if rank in operation["missing_ranks"]:
        return "not entered"
    return "inside" if rank in operation["waiting_ranks"] else "over"


def _operations(operations: Sequence[Mapping[str, Any]]) -> Table:
    columns = {
        "group": ColumnFormat("Group"),
        "group_ranks": ColumnFormat("Its ranks"),
        "collective": ColumnFormat("Operation"),
        "sequence": ColumnFormat("Number"),
        "waiting_ranks": ColumnFormat("Inside"),
        "missing_ranks": ColumnFormat("Not entered"),
        "unknown_ranks": ColumnFormat("No dump"),
        "for_s": ColumnFormat("For at least", "s", 1),
    }
    cells: dict[str, Any] = {
        name: [ranges(each[name]) if name.endswith("_ranks") else each[name] for each in operations]
        for name in columns
    }
    # Dumps that do not say when they were made often hold nothing newer than the operation itself.
    told = [seconds if seconds and seconds >= 1 else None for seconds in cells["for_s"]]
    cells["for_s"] = pa.array(told, pa.float64())
    return Table(
        pa.table(cells), columns, "One row per operation that did not end, the root first."
    )


def _differences(parts: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        {
            "ranks": ranges(each["ranks"]),
            "operation": each["operation"],
            "input": str(each["input_sizes"])[:200],
            "output": str(each["output_sizes"])[:200],
            "type": ", ".join(sorted({*each["input_dtypes"], *each["output_dtypes"]})),
            "at": each["where"],
            "stack": _stack(each["stack"]),
        }
        for each in parts
    ]
    columns = {name: ColumnFormat(name.capitalize(), detail=name == "stack") for name in rows[0]}
    caption = "One row per variant of the operation that ranks called with the same number."
    return Table(pa.Table.from_pylist(rows), columns, caption)


def _ranks(ranks: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        {
            "rank": each["rank"],
            "host": each["host"],
            "role": each["role"],
            "last": "none"
            if each["last"] is None
            else "{collective} {sequence} of {group}, {state}".format(**each["last"]),
            "at": each["where"],
            "stack": _stack(each["stack"]),
        }
        for each in ranks
    ]
    columns = {
        "rank": ColumnFormat("Rank"),
        "host": ColumnFormat("Host"),
        "role": ColumnFormat("Role"),
        "last": ColumnFormat("Last entry"),
        "at": ColumnFormat("In the program at"),
        "stack": ColumnFormat("Stack", detail=True),
    }
    return Table(pa.Table.from_pylist(rows), columns, "One row per rank, the missing ones first.")


def _stack(frames: Sequence[Mapping[str, Any]]) -> str:
    """The innermost frames; --json has all."""
    shown = [f"{each['name']} {each['filename']}:{each['line']}" for each in frames[:MOST_FRAMES]]
    return " < ".join([*shown, "..."] if len(frames) > MOST_FRAMES else shown)
