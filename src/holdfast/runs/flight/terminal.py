"""The verdict in a terminal: the sentence, then what it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from holdfast.console import table
from holdfast.numbers import duration
from holdfast.runs.ranks import ranges

if TYPE_CHECKING:
    from holdfast.runs.flight.verdict import HangVerdict

MOST_OPERATIONS = 8
MOST_RANKS = 8
MOST_ASIDE = 5
WORDS = {
    "missing_ranks": "MISSING RANKS",
    "stuck_inside": "STUCK INSIDE",
    "mismatch": "MISMATCH",
    "no_hang": "NO HANG",
    "inconclusive": "INCONCLUSIVE",
}


def rendered(result: HangVerdict, verbose: bool = False) -> RenderableType:
    """One screen; with `verbose` the stacks, and everything that was cut."""
    found = result.evidence
    parts: list[RenderableType] = [
        Text.assemble((WORDS[result.verdict], "bold"), f"  {result.sentence}")
    ]
    if found.operations:
        parts.append(_operations(result, None if verbose else MOST_OPERATIONS))
    if found.differences:
        parts.append(_differences(result))
    if found.ranks and not found.differences:
        parts.append(_ranks(result, None if verbose else MOST_RANKS))
    if verbose:
        parts += [*_stacks("rank", found.ranks), *_stacks("ranks", found.differences)]
    parts += [Text(f"- {each}") for each in found.remarks]
    parts.append(Text(_used(result)))
    parts += [
        Text(f"  set aside: {each.file}: {each.reason}")
        for each in found.set_aside[: None if verbose else MOST_ASIDE]
    ]
    return Group(*parts)


def _operations(result: HangVerdict, most: int | None) -> RenderableType:
    operations = result.evidence.operations
    rows = [
        (
            each["group"],
            ranges(each["group_ranks"]) + ("" if each["group_complete"] else " (seen)"),
            f"{each['collective']} {each['sequence']:,}",
            ", ".join(f"{ranges(ranks)} {state}" for state, ranks in each["states"].items()),
            ranges([*each["missing_ranks"], *each["unknown_ranks"]]),
            _seconds(each["for_s"]),
        )
        for each in operations[:most]
    ]
    return table(
        {
            "group": "left",
            "its ranks": "left",
            "operation": "left",
            "inside": "left",
            "not entered": "left",
            "for at least": "right",
        },
        rows,
        title="Operations that did not complete; the first blocks the others",
        caption=_more(len(operations), most),
    )


def _differences(result: HangVerdict) -> RenderableType:
    rows = [
        (
            ranges(each["ranks"]),
            each["operation"],
            str(each["input_sizes"])[:40],
            str(each["output_sizes"])[:40],
            ", ".join(sorted({*each["input_dtypes"], *each["output_dtypes"]})),
            each["where"],
        )
        for each in result.evidence.differences
    ]
    headers = ("ranks", "called", "input", "output", "type", "at")
    return table(dict.fromkeys(headers, "left"), rows, title="Operations that differ between ranks")


def _ranks(result: HangVerdict, most: int | None) -> RenderableType:
    ranks = result.evidence.ranks
    rows = [
        (str(each["rank"]), each["host"], each["role"], _last(each["last"]), each["where"])
        for each in ranks[:most]
    ]
    return table(
        {"rank": "right", "host": "left", "role": "left", "last entry": "left", "at": "left"},
        rows,
        title="Ranks",
        caption=_more(len(ranks), most),
    )


def _last(entry: Mapping[str, Any] | None) -> str:
    if entry is None:
        return "none"
    return f"{entry['collective']} {entry['sequence']:,} of {entry['group']}, {entry['state']}"


def _stacks(key: str, parts: tuple[Mapping[str, Any], ...]) -> list[RenderableType]:
    shown: list[RenderableType] = []
    for each in parts:
        if each["stack"]:
            shown.append(Text(f"stack of {key} {each[key]}", style="bold"))
            shown += [
                Text(f"  {frame['name']}  {frame['filename']}:{frame['line']}")
                for frame in each["stack"]
            ]
    return shown


def _used(result: HangVerdict) -> str:
    found = result.evidence
    text = f"{found.dumps:,} dumps of {found.world_size:,} ranks"
    if found.ranks_without_dump:
        text += f"; without a dump: {ranges(found.ranks_without_dump)}"
    if found.lost["ranks"]:
        text += f"; {found.lost['ranks']:,} ring buffers had wrapped"
        text += f" (up to {found.lost['entries_most']:,} entries lost)"
        if found.lost["compared_from_sequence"] is not None:
            text += f", compared from number {found.lost['compared_from_sequence']:,} on"
    if found.set_aside:
        text += f"; {len(found.set_aside):,} files set aside"
    return text


def _seconds(value: float | None) -> str:
    return "" if value is None or value < 1 else duration(round(value))


def _more(count: int, most: int | None) -> str:
    return f"and {count - most:,} more (--verbose, --json)" if most and count > most else ""
