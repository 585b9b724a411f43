"""Sections on stragglers: one for the report of a run, and those of a page of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.errors import InputError
from holdfast.numbers import counted, percent
from holdfast.report import ColumnFormat, How, Section, Table
from holdfast.runs.straggling import wording

if TYPE_CHECKING:
    from holdfast.runs.recording.events import RecordedRun
    from holdfast.runs.straggling.scores import Stragglers

MOST_ROWS = 500
"""Maximum rows of a table on the page; `--json` contains all."""
SOURCE = (
    "Jiang et al., MegaScale: Scaling Large Language Model Training to More Than 10,000 GPUs, "
    "arXiv 2402.15627, section 5 (heat map of the ranks' own times)"
)


def section(run: RecordedRun) -> Section | None:
    """Which ranks are slow? None where a run has nothing to compare."""
    from holdfast.runs.straggling.scores import stragglers

    try:
        found = stragglers(run)
    except InputError:
        return None
    return slow_ranks(found, alone=True)


def slow_ranks(found: Stragglers, *, alone: bool = False) -> Section:
    """Which ranks are slow?

    Args:
        found: what is known.
        alone: this is the only section on it, so that its sentence tells all.
    """
    from holdfast.runs.straggling import figures

    question = "Which ranks are slow?"
    if not found.known:
        return Section(
            "stragglers", question, f"{wording.UNKNOWN} To know: {wording.UNKNOWN_REMEDY}."
        )
    line = figures.timeline(found)
    return Section(
        "stragglers",
        question,
        " ".join([wording.sentence(found), *(_more(found) if alone else [])]),
        [figures.heat_map(found), *([] if line is None else [line])],
        [_rank_table(found)],
        _how(found),
    )


def _more(found: Stragglers) -> list[str]:
    """What else the reader of one section must know."""
    said = [f"{wording.first_upper(wording.shared_sentence(each))}." for each in found.shared[:2]]
    if found.matrix.base == "data_wait":
        said.append(wording.DATA_ONLY)
    return said


def _rank_table(found: Stragglers) -> Table:
    rows = found.ranks.slice(0, MOST_ROWS).to_pylist()
    shown = [
        {
            "rank": row["rank"],
            "node": row["node"],
            "slow": wording.habit(row, found),
            "delay_ms": 1000 * row["delay_s"],
            "slowdown": row["slowdown"],
            "late_share": row["late_share"],
            "score": row["score"],
            "q_value": row["q_value"],
            "data_share": row["data_share"],
            "cost": row["cost_gpu_hours"],
            "recoverable": row["recoverable_gpu_hours"],
        }
        for row in rows
    ]
    columns = {
        "rank": ColumnFormat("Rank", right=True),
        "node": ColumnFormat("Node"),
        "slow": ColumnFormat("Slow"),
        "delay_ms": ColumnFormat("Late in its typical step", "ms"),
        "slowdown": ColumnFormat("of a step", "%", digits=1),
        "late_share": ColumnFormat("Late in steps", "%", digits=0),
        "score": ColumnFormat("Score", digits=2),
        "q_value": ColumnFormat("q-value", digits=4, detail=True),
        "data_share": ColumnFormat("Late for data", "%", digits=0, detail=True),
        "cost": ColumnFormat("Cost", "GPU-hours"),
        "recoverable": ColumnFormat("Recoverable", "GPU-hours", detail=True),
    }
    if all(row["data_share"] is None for row in rows):
        del columns["data_share"]
    if not any(row["node"] for row in rows):
        del columns["node"]
    hidden = found.ranks.num_rows - len(rows)
    return Table(
        pa.Table.from_pylist(shown),
        columns,
        caption="One row per rank, persistently slow ones first, then by cost."
        + (f" {hidden:,} more with --json." if hidden else ""),
    )


def _how(found: Stragglers) -> How:
    peers = f" of the same {found.matrix.peers}" if found.matrix.peers else ""
    own = {
        "own": "own time of a rank = the step less waiting for others, plus waiting for data",
        "data_wait": "compared: each rank's waiting for data",
        "unknown": "",
    }[found.matrix.base]
    return How(
        [
            own,
            f"delay = own time - median over the ranks{peers} in that step",
            "score = median over steps of delay / max(1.4826 MAD over ranks, noise from step to step)",
            "late: delay above the least slowdown",
            "persistent: late in most steps; late, far behind or the slowest in more steps than chance "
            "gives (Poisson-binomial, Benjamini-Hochberg); typical delay beyond 3 x 1.4826 MAD",
            "cost = sum over steps of (max - median) x GPUs, given to the slowest rank of the step",
            "recoverable = the same with (max - second slowest)",
        ],
        {
            "steps that all ranks share": int(found.matrix.steps.size),
            "steps left out": found.matrix.steps_not_shared,
            "usual step": wording.short(found.delays.usual_s),
            "least slowdown": percent(found.least_slowdown),
            "runs of equal ranks with a false alarm, at most": percent(found.false_alarm_rate),
            "steps taken together, as neighbours are not independent": found.block,
            "steps in a row that make a spell": found.spells.least_length,
        },
        SOURCE,
        [
            "A slow network is not a slow rank: in a collective everybody waits. A pair test finds it.",
            "Own times hold what happens before a rank is ready. What it does inside a collective "
            "(its own reductions) counts as waiting.",
        ],
    )


def spell_section(found: Stragglers) -> Section | None:
    """Who was slow for a while?"""
    if not found.spells.found:
        return None
    nodes = {rank: each.get("node", "") for rank, each in zip(
        found.matrix.ranks.tolist(), found.matrix.labels, strict=True)}  # fmt: skip
    rows = [
        {
            "rank": spell.rank,
            "node": nodes[spell.rank],
            "attempt": spell.attempt + 1,
            "first_step": spell.first_step,
            "last_step": spell.last_step,
            "steps": spell.steps,
            "delay_ms": 1000 * spell.delay_s,
            "ongoing": spell.ongoing,
            "cost": spell.cost_gpu_hours,
        }
        for spell in found.spells.found[:MOST_ROWS]
    ]
    worst = wording.spell_sentence(found.spells.found[0])
    return Section(
        "spells",
        "Which ranks were slow for a while?",
        f"{counted(len(found.spells.found), 'spell')}, the costliest: {worst}.",
        tables=[
            Table(
                pa.Table.from_pylist(rows),
                {
                    "rank": ColumnFormat("Rank", right=True),
                    "node": ColumnFormat("Node"),
                    "attempt": ColumnFormat("Attempt"),
                    "first_step": ColumnFormat("From step"),
                    "last_step": ColumnFormat("To step"),
                    "steps": ColumnFormat("Shared steps"),
                    "delay_ms": ColumnFormat("Late, mean", "ms"),
                    "ongoing": ColumnFormat("To the end"),
                    "cost": ColumnFormat("Cost", "GPU-hours"),
                },
                caption="One row per spell: steps in a row, far behind in each; the costliest first.",
            )
        ],
        how=How(
            "n = least steps in a row with ranks x steps x p^n <= false alarm rate",
            {"n": found.spells.least_length},
            notes="p is the share of cells in which a rank is far behind (z > 3), at least 0.00135.",
        ),
    )


def shared_section(found: Stragglers) -> Section | None:
    """What do the slow ranks share?"""
    if not found.shared:
        return None
    rows = [vars(each) for each in found.shared[:MOST_ROWS]]
    return Section(
        "shared",
        "What do the slow ranks share?",
        f"{wording.first_upper(wording.shared_sentence(found.shared[0]))}.",
        tables=[
            Table(
                pa.Table.from_pylist(rows),
                {
                    "label": ColumnFormat("Label"),
                    "value": ColumnFormat("Value"),
                    "slow": ColumnFormat("Slow ranks"),
                    "ranks": ColumnFormat("Ranks"),
                    "p_value": ColumnFormat("p-value", digits=5),
                    "q_value": ColumnFormat("q-value", digits=5, detail=True),
                },
                caption="One row per label that slow ranks carry more often than chance gives.",
            )
        ],
        how=How(
            "p = P(X >= slow ranks with the label), X hypergeometric (Fisher, one-sided)",
            {"false discovery rate": "5 %"},
            "Benjamini and Hochberg 1995",
            "Tested are the ranks that are persistently slow, alone or as a group.",
        ),
    )
