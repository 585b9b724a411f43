"""The report of a run: where its time went, what interrupted it, what its restarts and waits cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.answer import (
    Answer,
    ColumnFormat,
    Finding,
    How,
    Section,
    Table,
    Unknown,
    Value,
)
from holdfast.errors import InputError
from holdfast.fleet.moments import minute, moment
from holdfast.numbers import brief, counted, duration, percent
from holdfast.runs.goodput import figures
from holdfast.runs.goodput.accounting import Breakdown, account
from holdfast.runs.goodput.figures import PARTS_IN_WORDS
from holdfast.runs.goodput.ledger import PARTS, Ledger, keep_books
from holdfast.runs.ranks import named
from holdfast.runs.recording.events import RecordedRun
from holdfast.runs.recording.reading import read_run

MOST_REASONS = 3
MOST_FINDINGS = 7
MUCH_WAIT = 0.02
"""Share of the wall time from which waiting for data gets a separate sentence."""
SHORTEST_SHARE = 0.01
"""Parts below this share of the wall time are not named in sentences."""
MOST_ROWS = 2_000
"""Rows of a table on the page; `--json` gives all."""
PAPER = (
    "ETTR: Kokolis et al., Revisiting Reliability in Large-Scale ML Research Clusters, "
    "arXiv 2410.21680v2"
)


@dataclass(frozen=True)
class RunReport(Answer):
    """The summary of a run and the breakdown behind it."""

    breakdown: Breakdown
    html: Path | None = None
    """Where the page is; None if none was asked for."""
    ledger: Ledger = field(repr=False, compare=False, kw_only=True)

    @property
    def title(self) -> str:
        """The heading of the page."""
        return f"Run report: {self.breakdown.run_id}"

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast runs report``."""
        return {
            **self.breakdown.to_dict(),
            "findings": [" ".join((each.lead, each.text)).strip() for each in self.findings()],
            "html": None if self.html is None else str(self.html),
        }

    @cached_property
    def _others(self) -> list[Section]:
        """What other parts of the room say of the same run: what hung, which ranks are slow."""
        from holdfast.runs.flight.verdict import hang_of
        from holdfast.runs.straggling.scores import stragglers

        run = self.ledger.run
        hung = hang_of(run.folder, self.breakdown)
        found = [] if hung is None else hung.sections()
        with suppress(InputError):  # nothing to compare
            found += stragglers(run).sections()[:1]
        return [
            replace(each, tables=[replace(table, detail=True) for table in each.tables])
            for each in found
        ]

    def findings(self) -> list[Finding]:
        """Three to seven sentences, the most valuable first."""
        breakdown = self.breakdown
        if breakdown.wall_s <= 0:
            return [Finding("The lifetime of the run is unknown.")]
        hung = any(each.hung for each in breakdown.attempts)
        told = [
            Finding(each.sentence, each.id, each.question)
            for each in self._others
            # Without a hang the flight records show what the others waited for, not what stopped them.
            if hung or each.id != "hang"
        ]
        unit, per_hour = breakdown.gpu_unit
        total = sum(breakdown.gpu_hours.values()) * per_hour
        lost = total - breakdown.gpu_hours["productive"] * per_hour
        so_far = " so far" if breakdown.running else ""
        text = (
            f"{duration(breakdown.parts['productive'])} of {duration(breakdown.wall_s)}{so_far} were "
            "productive. "
            f"{brief(lost)} {unit} of {brief(total)} {unit} were lost"
        )
        losses = losses_in_words(breakdown)
        text += f"; shares of the wall time: {losses}." if losses else "."
        found = [
            Finding(text, "where", f"ETTR {percent(breakdown.ettr)}:"),
            _interruptions(breakdown),
            *_losses(breakdown),
            *told,
            *_data(breakdown),
        ]
        return found[:MOST_FINDINGS]

    def sections(self) -> list[Section]:
        """The questions of the owner of a run, in the order of their value."""
        if self.breakdown.wall_s <= 0:
            return []
        breakdown = self.breakdown
        times = figures.step_times(self.ledger)
        steps = [] if times is None else [_steps(times, breakdown)]
        return [_where(breakdown), _attempts(self.ledger, breakdown), *self._others, *steps]

    def values(self) -> list[Value]:
        """ETTR and losses."""
        breakdown = self.breakdown
        lost = sum(breakdown.gpu_hours.values()) - breakdown.gpu_hours["productive"]
        return [
            Value("ettr", breakdown.ettr, better="higher", source=PAPER),
            Value("lost_gpu_hours", lost, "GPU-hours", better="lower"),
            Value("interruptions", float(breakdown.interruptions), better="lower"),
            Value("step_s_median", breakdown.work.step_s_median, "s", better="lower"),
        ]

    def inputs(self) -> list[tuple[str, str]]:
        """Run, files, lines that were not used."""
        breakdown, run = self.breakdown, self.ledger.run
        ranks = max(each.world_size for each in breakdown.attempts)
        nodes = len({node for each in breakdown.attempts for node in each.nodes})
        state = ", still running" if breakdown.running else ""
        return [
            (
                "Run",
                f"{minute(breakdown.began_s)} to {minute(breakdown.began_s + breakdown.wall_s)}{state}",
            ),
            ("Size", f"{counted(ranks, 'rank')} on {counted(nodes, 'node')}"),
            (
                "Events",
                f"{run.events.num_rows:,} of {len(run.processes):,} processes in {breakdown.folder}",
            ),
            ("Unusable lines", f"{len(breakdown.rejects):,}"),
        ]

    def unknowns(self) -> list[Unknown]:
        """Lines that could not be used, and remarks of the reader."""
        breakdown = self.breakdown
        doubts = [
            Unknown(f"{each[0].upper()}{each[1:]}.", doubt=True) for each in self.ledger.run.doubts
        ]
        gaps = [Unknown(f"{remark[0].upper()}{remark[1:]}.") for remark in breakdown.remarks]
        if breakdown.rejects:
            reasons = Counter(each.reason for each in breakdown.rejects).most_common(MOST_REASONS)
            named = "; ".join(f"{reason} ({count:,})" for reason, count in reasons)
            text = f"{counted(len(breakdown.rejects), 'line')} could not be used: {named}."
            gaps.insert(0, Unknown(text, "--json names file and line of each."))
        return doubts + gaps


def report(
    run: RecordedRun | Path | str,
    run_id: str | None = None,
    *,
    html: str | Path | None = None,
    now_s: float | None = None,
) -> RunReport:
    """Summarise a run, and write the page with every figure if asked.

    Args:
        run: what `read_run` gave, or the folder that `RunRecorder` was given.
        run_id: which run, where the folder holds several.
        html: file to write the page to.
        now_s: as `breakdown`.

    Raises:
        InputError: no such run.
    """
    recorded = run if isinstance(run, RecordedRun) else read_run(run, run_id)
    ledger = keep_books(recorded)
    breakdown = account(ledger, now_s=now_s)
    answer = RunReport(breakdown, None if html is None else Path(html), ledger=ledger)
    if html is not None:
        from holdfast.report import write

        write(answer.page(), html)
    return answer


# --- Findings ------------------------------------------------------------------------------------


def seconds(value: float | None) -> str:
    """A length from microseconds to days, ``"41.2 ms"``, ``"3 min 5 s"``."""
    if value is not None and 0 < value < 1:
        return f"{brief(1000 * value)} ms"
    return duration(value)


def listed(names: Sequence[str]) -> str:
    """``"a, b and c"``."""
    first = ", ".join(names[:-1])
    return f"{first} and {names[-1]}" if first else "".join(names)


def losses_in_words(breakdown: Breakdown) -> str:
    """The lost shares of the wall time, the largest first, small ones together; empty without any."""
    losses = [
        (breakdown.parts[part] / breakdown.wall_s, part) for part in PARTS if part != "productive"
    ]
    large = sorted((loss for loss in losses if loss[0] >= SHORTEST_SHARE), reverse=True)
    named = [f"{PARTS_IN_WORDS[part].name} {percent(share)}" for share, part in large]
    rest = sum(share for share, _ in losses if share < SHORTEST_SHARE)
    return listed([*named, f"all else {percent(rest)}"] if rest > 0 else named)


def _endings(breakdown: Breakdown, interrupted: bool) -> Counter[str]:
    """How attempts ended, each way with its number."""
    words = {"signal": "ended by a signal", "exception": "ended by an exception"}
    return Counter(
        words.get(each.ending, each.ending)
        for each in breakdown.attempts
        if each.interrupted or not interrupted
    )


def _interruptions(breakdown: Breakdown) -> Finding:
    cut = [each for each in breakdown.attempts if each.interrupted]
    if not cut:
        over = len(breakdown.attempts) - breakdown.running
        parts = [f"{counted(over, 'attempt')} finished cleanly"] if over else []
        if breakdown.running:
            # Whether it was killed since then is not known yet.
            last = f"attempt {len(breakdown.attempts)} has no end yet, its last sign of life was "
            parts.append(f"{last}{duration(breakdown.silent_s)} ago")
        lead = "No interruption so far:" if breakdown.running else "No interruption:"
        return Finding("; ".join(parts) + ".", "attempts", lead)
    times = {1: "once", 2: "twice"}
    how = [
        f"{word} {times.get(n, f'{n:,} times')}" for word, n in _endings(breakdown, True).items()
    ]
    # Parts of the ledger, none of them twice: a stall inside the initialisation belongs to that.
    after = breakdown.attempts[1:]
    costs = {
        "replayed steps": breakdown.parts["replayed"],
        "stalls": sum(min(each.stalled_s, each.parts["idle"]) for each in cut if each.hung),
        "down and queue": sum(each.parts["down"] + each.parts["queue"] for each in after),
        "initialisation": sum(each.parts["init"] for each in after),
    }
    text, total = f"({listed(how)}).", sum(costs.values())
    if total:
        named = listed([f"{name} {seconds(value)}" for name, value in costs.items() if value])
        share = percent(total / breakdown.wall_s)
        text += f" They cost {seconds(total)}, {share} of the wall time: {named}."
    text += f" {cut[-1].sentence}"
    lead = f"{counted(len(cut), 'interruption')} in {counted(len(breakdown.attempts), 'attempt')}"
    return Finding(text, "attempts", lead)


def _losses(breakdown: Breakdown) -> Iterator[Finding]:
    """The last attempt with a loss that is not a number, or with ranks that no longer agree."""
    for lost in breakdown.losses_not_finite[-1:]:
        step = "a step" if lost.first_step is None else f"step {lost.first_step:,}"
        text = (
            f"of {named(lost.ranks)} is NaN or infinite in attempt {lost.attempt:,}, for the first time "
            f"in {step}; {counted(lost.steps, 'step')} of any rank are so."
        )
        yield Finding(text, "attempts", "The loss")
    for each in breakdown.disagreements[-1:]:
        yield Finding(each.sentence, "attempts", "Corruption:")


def _data(breakdown: Breakdown) -> Iterator[Finding]:
    wait = breakdown.parts["data_wait"]
    if wait < MUCH_WAIT * breakdown.wall_s:
        return
    training = wait + breakdown.parts["productive"] + breakdown.parts["replayed"]
    shares = f"{percent(wait / breakdown.wall_s)} of the wall time and {percent(wait / training)}"
    yield Finding(
        f"took {seconds(wait)}, {shares} of the time of training.", "steps", "Waiting for data"
    )


# --- Sections ------------------------------------------------------------------------------------


def _where(breakdown: Breakdown) -> Section:
    unit, per_hour = breakdown.gpu_unit
    ordered = sorted(PARTS, key=lambda part: -breakdown.parts[part])
    rows = {
        "part": [PARTS_IN_WORDS[part].name for part in ordered],
        "seconds": [breakdown.parts[part] for part in ordered],
        "share": [breakdown.parts[part] / breakdown.wall_s for part in ordered],
        "gpu_time": [breakdown.gpu_hours[part] * per_hour for part in ordered],
    }
    columns = {
        "part": ColumnFormat("Part"),
        "seconds": ColumnFormat("Wall time", "s", digits=1),
        "share": ColumnFormat("Share", "%", digits=1),
        "gpu_time": ColumnFormat("Accelerators", unit, digits=2),
    }
    named = losses_in_words(breakdown)
    text = f"{percent(breakdown.ettr)} of {duration(breakdown.wall_s)} was productive"
    caption = "One row per part, the largest first; the shares sum to 100 %."
    how = How(
        [
            "wall time = last sign of life - first submission (or first process)",
            "every moment of every rank belongs to the innermost span open in it",
            "parts of an attempt: the mean over its ranks; ETTR = productive / wall time",
        ],
        {words.name: words.meaning for words in PARTS_IN_WORDS.values()},
        PAPER,
        "A step is replayed if its number had been completed before, by any rank. The first run of a "
        "step counts as productive although a restart may throw it away: of all the runs of a step "
        "one counts. Waiting for other ranks inside a step is part of the step. Time down and in the "
        "queue counts the accelerators that the next attempt had, held or not.",
    )
    return Section(
        "where",
        "Where did the time go?",
        f"{text}; {named}." if named else f"{text}.",
        [figures.waterfall(breakdown)],
        [Table(pa.table(rows), columns, caption=caption, detail=True)],
        how,
    )


def _attempts(ledger: Ledger, breakdown: Breakdown) -> Section:
    shown = breakdown.attempts[:MOST_ROWS]
    whole = {name: [getattr(each, name) for each in shown] for name in ("attempt", "ranks")}
    steps = ("first_rank_gone", "resumed_from", "last_step", "replayed_steps")
    columns: dict[str, Any] = {
        "attempt": whole["attempt"],
        "began": [moment(breakdown.began_s + each.begin_s) for each in shown],
        "lived_s": [each.end_s - each.begin_s for each in shown],
        "ended": [each.ending for each in shown],
        "ranks": whole["ranks"],
        "nodes": [len(each.nodes) for each in shown],
        **{name: pa.array([getattr(each, name) for each in shown], pa.int64()) for name in steps},
        "stalled_s": [each.stalled_s for each in shown],
        **{part: [each.parts[part] for each in shown] for part in PARTS},
    }
    formats = {
        "attempt": ColumnFormat("Attempt"),
        "began": ColumnFormat("Began"),
        "lived_s": ColumnFormat("Lived", "s", digits=1),
        "ended": ColumnFormat("Ended"),
        "first_rank_gone": ColumnFormat("First rank gone"),
        "resumed_from": ColumnFormat("Resumed from", "step"),
        "last_step": ColumnFormat("Last step"),
        "replayed_steps": ColumnFormat("Replayed", "steps"),
        "ranks": ColumnFormat("Ranks", detail=True),
        "nodes": ColumnFormat("Nodes", detail=True),
        "stalled_s": ColumnFormat("Without progress at its end", "s", digits=1, detail=True),
        **{
            part: ColumnFormat(PARTS_IN_WORDS[part].name.capitalize(), "s", digits=1, detail=True)
            for part in PARTS
        },
    }
    how = listed([f"{count:,} {word}" for word, count in _endings(breakdown, False).items()])
    text = f"{counted(len(breakdown.attempts), 'attempt')}: {how}."
    if again := sum(each.count for each in breakdown.replays):
        text += (
            f" {counted(again, 'step')} were done again, in {seconds(breakdown.parts['replayed'])}."
        )
    caption = (
        "One row per attempt, in their order. Parts are means over its ranks; down and in the queue "
        "are those before it."
    )
    formula = [
        "hung: alive for ten steps' time and for a second without any progress before its end (before "
        "the first step: ten times what starts of this run take)",
        "killed: no end was written, and others lived on or wrote theirs",
        "first: an exception of a rank's own, else the rank that was gone before the others",
    ]
    note = (
        "Alive means that a rank's heartbeats went on. A rank that writes nothing at all is gone."
    )
    return Section(
        "attempts",
        "What happened when?",
        text,
        [figures.time_line(ledger, breakdown)],
        [Table(pa.table(columns), formats, caption=caption)],
        How(formula, {"bins of the figure": f"{seconds(ledger.bin_s)} each"}, notes=note),
    )


def _steps(times: figures.StepTimes, breakdown: Breakdown) -> Section:
    longest = max(times.by_attempt.to_pylist(), key=lambda row: row["longest_s"])
    text = (
        f"A step takes {seconds(breakdown.work.step_s_median)} in the median; 1 % take more than "
        f"{seconds(breakdown.work.step_s_p99)}; the longest took {seconds(longest['longest_s'])} "
        f"(step {longest['longest_step']:,} on rank {longest['longest_rank']:,}, attempt "
        f"{longest['attempt']:,})."
    )
    columns = {
        "attempt": ColumnFormat("Attempt"),
        "steps": ColumnFormat("Steps", "over all ranks"),
        "median_s": ColumnFormat("Median", "s"),
        "p90_s": ColumnFormat("90 %", "s"),
        "p99_s": ColumnFormat("99 %", "s"),
        "longest_s": ColumnFormat("Longest", "s"),
        "longest_step": ColumnFormat("at step"),
        "longest_rank": ColumnFormat("on rank"),
    }
    caption = (
        "One row per attempt: the time that a step has for itself, without waits for data, "
        "checkpoints and evaluations that are nested in it."
    )
    return Section(
        "steps",
        "Are the steps even?",
        text,
        [figures.over_time(times, breakdown)],
        [Table(times.by_attempt.slice(0, MOST_ROWS), columns, caption=caption, detail=True)],
    )
