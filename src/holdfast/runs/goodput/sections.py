"""The sections of a run report that show what happened: parts, attempts, steps, rolling ETTR."""

from __future__ import annotations

import pyarrow as pa

from holdfast.fleet.moments import moment
from holdfast.numbers import counted, duration, percent
from holdfast.report import ColumnFormat, How, Section, Table
from holdfast.runs.goodput import figures, step_figures
from holdfast.runs.goodput.accounting import Breakdown
from holdfast.runs.goodput.ledger import PARTS, Ledger
from holdfast.runs.goodput.step_figures import StepTimes
from holdfast.runs.goodput.wording import (
    PARTS_IN_WORDS,
    ending,
    endings,
    gpu_unit,
    listed,
    losses_in_words,
    seconds,
)

MOST_ROWS = 2_000
"""Rows of a table on the page; `--json` gives all."""
ROLLING_ROWS = 40
PAPER = (
    "ETTR: Kokolis et al., Revisiting Reliability in Large-Scale ML Research Clusters, "
    "arXiv 2410.21680v2"
)


def where(made: Breakdown) -> Section:
    """Where did the time go?"""
    unit = gpu_unit(made)
    ordered = sorted(PARTS, key=lambda part: -made.parts[part])
    rows = [
        {
            "part": PARTS_IN_WORDS[part].name,
            "seconds": made.parts[part],
            "share": made.parts[part] / made.wall_s,
            "gpu_time": made.gpu_hours[part] * unit.per_hour,
        }
        for part in ordered
    ]
    return Section(
        "where",
        "Where did the time go?",
        parts_sentence(made),
        [figures.waterfall(made)],
        [
            Table(
                pa.Table.from_pylist(rows),
                {
                    "part": ColumnFormat("Part"),
                    "seconds": ColumnFormat("Wall time", "s", digits=1),
                    "share": ColumnFormat("Share", "%", digits=1),
                    "gpu_time": ColumnFormat("Accelerators", unit.name, digits=2),
                },
                caption="One row per part, the largest first; the shares sum to 100 %.",
            )
        ],
        How(
            [
                "wall time = last sign of life - first submission (or first process)",
                "every moment of every rank belongs to the innermost span open in it",
                "parts of an attempt: the mean over its ranks; ETTR = productive / wall time",
            ],
            {
                **{words.name: words.meaning for words in PARTS_IN_WORDS.values()},
                "accelerators of an attempt": listed(
                    sorted({f"{each.gpus:g}" for each in made.attempts})
                ),
            },
            PAPER,
            "A step is replayed if its number had been completed before, by any rank. The first run of "
            "a step counts as productive although a restart may throw it away: of all the runs of a "
            "step one counts. Waiting for other ranks inside a step is part of the step. Time down and in "
            "the queue counts the accelerators that the next attempt had, held or not.",
        ),
    )


def parts_sentence(made: Breakdown) -> str:
    """The shares of the wall time, productive first."""
    named = losses_in_words(made)
    text = f"{percent(made.ettr)} of {duration(made.wall_s)} was productive"
    return f"{text}; {named}." if named else f"{text}."


def attempts(ledger: Ledger, made: Breakdown) -> Section:
    """What happened when?"""
    rows = [
        {
            "attempt": each.attempt,
            "began": moment(made.began_s + each.begin_s),
            "lived_s": each.end_s - each.begin_s,
            "ended": ending(each),
            "first_rank_gone": each.first_rank_gone,
            "ranks": each.ranks,
            "nodes": len(each.nodes),
            "resumed_from": each.resumed_from,
            "last_step": each.last_step,
            "replayed_steps": each.replayed_steps,
            "stalled_s": each.stalled_s,
            **{f"{part}_s": each.parts[part] for part in PARTS},
        }
        for each in made.attempts
    ]
    schema_names = {
        "attempt": ColumnFormat("Attempt"),
        "began": ColumnFormat("Began"),
        "lived_s": ColumnFormat("Lived", "s", digits=1),
        "ended": ColumnFormat("Ended"),
        "first_rank_gone": ColumnFormat("First rank gone"),
        "ranks": ColumnFormat("Ranks"),
        "nodes": ColumnFormat("Nodes"),
        "resumed_from": ColumnFormat("Resumed from", "step"),
        "last_step": ColumnFormat("Last step"),
        "replayed_steps": ColumnFormat("Replayed", "steps"),
        "stalled_s": ColumnFormat("Without progress at its end", "s", digits=1),
        **{
            f"{part}_s": ColumnFormat(
                PARTS_IN_WORDS[part].name[0].upper() + PARTS_IN_WORDS[part].name[1:], "s", digits=1
            )
            for part in PARTS
        },
    }
    table = pa.Table.from_pylist(rows[:MOST_ROWS])
    for name in ("first_rank_gone", "resumed_from", "last_step"):
        place = table.column_names.index(name)
        table = table.set_column(place, name, table[name].cast(pa.int64()))
    return Section(
        "attempts",
        "What happened when?",
        attempts_sentence(made),
        [figures.time_line(ledger, made)],
        [
            Table(
                table,
                schema_names,
                caption="One row per attempt, in their order. Parts are means over its ranks; down and "
                "in the queue are those before it.",
            )
        ],
        How(
            [
                "hung: alive for ten steps' time and for a second without any progress before its end",
                "how it ended: by the end of the rank that fell silent first",
            ],
            {"bins of the figure": f"{seconds(ledger.bin_s)} each"},
            notes="Alive means that a rank's heartbeats went on. A rank that writes nothing at all is "
            "gone.",
        ),
    )


def attempts_sentence(made: Breakdown) -> str:
    """How the attempts ended, and what was done twice."""
    count = len(made.attempts)
    how = endings(made.attempts, lambda word, number: f"{number:,} {word}")
    text = f"{counted(count, 'attempt')}: {how}."
    replayed = sum(each.count for each in made.replays)
    if replayed:
        text += (
            f" {counted(replayed, 'step')} were done again, in {seconds(made.parts['replayed'])}."
        )
    return text


def steps(times: StepTimes, made: Breakdown) -> Section:
    """Are the steps even?"""
    table = times.by_attempt
    return Section(
        "steps",
        "Are the steps even?",
        steps_sentence(times, made),
        [step_figures.distribution(times), step_figures.over_time(times, made)],
        [
            Table(
                table.slice(0, MOST_ROWS),
                {
                    "attempt": ColumnFormat("Attempt"),
                    "steps": ColumnFormat("Steps", "over all ranks"),
                    "median_s": ColumnFormat("Median", "s"),
                    "p90_s": ColumnFormat("90 %", "s"),
                    "p99_s": ColumnFormat("99 %", "s"),
                    "longest_s": ColumnFormat("Longest", "s"),
                    "longest_step": ColumnFormat("at step"),
                    "longest_rank": ColumnFormat("on rank"),
                },
                caption="One row per attempt: the time that a step has for itself, without waits for "
                "data, checkpoints and evaluations that are nested in it.",
            )
        ],
    )


def steps_sentence(times: StepTimes, made: Breakdown) -> str:
    """Median, tail and the longest step."""
    rows = times.by_attempt.to_pylist()
    longest = max(rows, key=lambda row: row["longest_s"])
    text = (
        f"A step takes {seconds(made.work.step_s_median)} in the median; 1 % take more than "
        f"{seconds(made.work.step_s_p99)}; the longest took {seconds(longest['longest_s'])} "
        f"(step {longest['longest_step']:,} on rank {longest['longest_rank']:,}, attempt "
        f"{longest['attempt']:,})."
    )
    data = made.parts["data_wait"] / made.wall_s
    if made.parts["data_wait"]:
        text += f" Waiting for data took {percent(data)} of the wall time."
    return text


def rolling(made: Breakdown) -> Section:
    """Did it get better?"""
    step = max(len(made.rolling.end_s) // ROLLING_ROWS, 1)
    rows = {
        "end": [moment(made.began_s + end) for end in made.rolling.end_s[::-step]],
        "ettr": list(made.rolling.ettr[::-step]),
    }
    return Section(
        "rolling",
        "Did it get better?",
        rolling_sentence(made),
        [figures.rolling(made)],
        [
            Table(
                pa.table(rows),
                {"end": ColumnFormat("Window ends"), "ettr": ColumnFormat("ETTR", "%", digits=1)},
                caption=f"One row per window of {seconds(made.rolling.window_s)}, the last first.",
            )
        ],
    )


def rolling_sentence(made: Breakdown) -> str:
    """The best, the worst and the last window."""
    values = made.rolling.ettr
    return (
        f"Over windows of {seconds(made.rolling.window_s)} the ETTR lay between "
        f"{percent(min(values))} and {percent(max(values))}; in the last one it was "
        f"{percent(values[-1])}."
    )
