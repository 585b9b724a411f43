"""How stragglers read in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from holdfast.console import table
from holdfast.numbers import brief, number, percent
from holdfast.runs.straggling.wording import (
    habit,
    remarks,
    sentence,
    shared_sentence,
    spell_sentence,
)

if TYPE_CHECKING:
    from holdfast.runs.straggling.scores import Stragglers

MOST_ROWS = 10
MOST_SPELLS = 3
MOST_SHARED = 3


def stragglers(found: Stragglers, verbose: bool = False) -> RenderableType:
    """The verdict, the slowest ranks, spells, what they share, stages, and what could not be told."""
    parts: list[RenderableType] = [Text(sentence(found))]
    if found.known:
        parts.append(_ranks(found, verbose))
        spells = found.spells.found[: None if verbose else MOST_SPELLS]
        parts += [Text(f"for a while: {spell_sentence(spell)}") for spell in spells]
        if hidden := len(found.spells.found) - len(spells):
            parts.append(Text(f"and {hidden:,} more spells (--verbose)"))
        shown = found.shared[: None if verbose else MOST_SHARED]
        parts += [Text(f"shared: {shared_sentence(each)}") for each in shown]
    parts += [Text(remark) for remark in remarks(found)]
    return Group(*parts)


def _ranks(found: Stragglers, verbose: bool) -> RenderableType:
    rows = found.ranks.to_pylist()
    shown = rows[: None if verbose else MOST_ROWS]
    hidden = len(rows) - len(shown)
    return table(
        {
            "rank": "right",
            "node": "left",
            "slow": "left",
            "late (ms)": "right",
            "late (%)": "right",
            "score": "right",
            "steps late (%)": "right",
            "cost (GPU-hours)": "right",
        },
        [_cells(row, found) for row in shown],
        caption="late: in its typical step, over the step's median, % of a step"
        + (f"; {hidden:,} more ranks (--verbose, --json)" if hidden else ""),
    )


def _cells(row: dict[str, Any], found: Stragglers) -> tuple[str, ...]:
    return (
        str(row["rank"]),
        row["node"],
        habit(row, found),
        number(1000 * row["delay_s"], 2),
        number(100 * row["slowdown"], 1),
        number(row["score"], 2),
        percent(row["late_share"]).removesuffix(" %"),
        brief(row["cost_gpu_hours"]),
    )
