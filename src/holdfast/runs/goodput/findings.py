"""What the owner of a run should know first, in sentences with numbers; and the row of tiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.numbers import counted, duration, percent
from holdfast.report import Finding, Section, Tile
from holdfast.runs.goodput.accounting import Breakdown
from holdfast.runs.goodput.wording import (
    endings,
    gpu_unit,
    listed,
    losses_in_words,
    rate_source,
    rate_text,
    seconds,
    seconds_between,
    share_between,
)

MOST_FINDINGS = 7
MUCH_WAIT = 0.02
"""Share of the wall time from which a part gets a separate sentence."""

WORTH_IT = 0.005
"""A share of the wall time that a change must save to be recommended."""


def findings(made: Breakdown, others: Sequence[Section] = ()) -> list[Finding]:
    """Three to seven sentences, the most valuable first.

    Args:
        made: the breakdown.
        others: sections of other parts of the room, in this order: what hung, which ranks are slow.
    """
    told = [Finding(each.sentence, each.id, each.question) for each in others]
    found = [
        *_ettr(made),
        *_interruptions(made),
        *told[:1],
        *_interval(made),
        *told[1:],
        *_expected(made),
        *_data(made),
    ]
    return found[:MOST_FINDINGS]


def _ettr(made: Breakdown) -> Iterator[Finding]:
    if made.wall_s <= 0:
        yield Finding("The lifetime of the run is unknown.")
        return
    unit = gpu_unit(made)
    total = sum(made.gpu_hours.values())
    lost = total - made.gpu_hours["productive"]
    so_far = " so far" if made.running else ""
    text = (
        f"{duration(made.parts['productive'])} of {duration(made.wall_s)}{so_far} were productive. "
        f"{unit.say(lost)} of {unit.say(total)} were lost"
    )
    if losses := losses_in_words(made):
        text += f"; shares of the wall time: {losses}"
    yield Finding(f"{text}.", "where", f"ETTR {percent(made.ettr)}:")


def _interruptions(made: Breakdown) -> Iterator[Finding]:
    cut = [each for each in made.attempts if each.interrupted]
    if not cut:
        over = len(made.attempts) - made.running
        text = "" if not over else f"{counted(over, 'attempt')} finished cleanly"
        if made.running:
            # Whether it was killed since then is not known yet.
            alive = f"attempt {len(made.attempts)} has no end yet, its last sign of life was "
            text += f"{'; ' if text else ''}{alive}{duration(made.silent_s)} ago"
        yield Finding(
            f"{text}.",
            "attempts",
            "No interruption so far:" if made.running else "No interruption:",
        )
        return
    how = endings(cut, lambda word, count: f"{word} {_times(count)}")
    costs = {
        "replayed steps": made.parts["replayed"],
        "stalls": sum(each.stalled_s for each in cut if each.hung),
        "down and queue": sum(
            each.parts["down"] + each.parts["queue"] for each in made.attempts[1:]
        ),
        "initialisation": sum(each.parts["init"] for each in made.attempts[1:]),
    }
    total = sum(costs.values())
    named = listed([f"{name} {seconds(value)}" for name, value in costs.items() if value])
    yield Finding(
        f"({how}). They cost {seconds(total)}, {percent(total / made.wall_s)} of the wall time: "
        f"{named}."
        if total
        else f"({how}).",
        "attempts",
        f"{counted(len(cut), 'interruption')} in {counted(len(made.attempts), 'attempt')}",
    )


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def _interval(made: Breakdown) -> Iterator[Finding]:
    """Measured and best checkpoint interval, and what the difference would have won."""
    held = made.expected
    if held.ettr is None:
        return
    every = seconds(made.checkpoints.interval_s) if made.checkpoints.interval_s else None
    had = f"a checkpoint every {every} of step time" if every else "no checkpoint"
    if held.best_interval_s is None:  # no failure: none would be best
        text = (
            f"The run had {had} and no failure: each checkpoint is a loss before the first failure"
        )
        if held.best_interval_low_s:
            least = seconds(held.best_interval_low_s)
            text += f"; at the upper end of the rate's interval one every {least} would be best"
        yield Finding(f"{text}.", "interval", "Checkpoints:")
        return
    one_rate = held.rate is None or held.rate.low == held.rate.high
    bounds = (
        ""
        if one_rate
        else f" {seconds_between(held.best_interval_low_s, held.best_interval_high_s)}"
    )
    steps = counted(held.best_interval_steps or 1, "step")
    if held.saved_s is None or held.saved_s < WORTH_IT * made.wall_s:
        yield Finding(
            f"The run had {had}; one every {seconds(held.best_interval_s)}{bounds} ({steps}) would be "
            f"best, which would save less than {percent(WORTH_IT)} of the wall time.",
            "interval",
            "Checkpoints:",
        )
        return
    yield Finding(
        f"(every {seconds(held.best_interval_s)}{bounds} of step time) instead of "
        f"{f'every {every}' if every else 'none'} would save about "
        f"{duration(held.saved_s)}, {gpu_unit(made).say(held.saved_gpu_hours or 0.0)}, in a run of "
        f"this length: expected ETTR {percent(held.best_interval_ettr)} instead of "
        f"{percent(held.ettr)}.",
        "interval",
        f"A checkpoint every {steps}",
    )


def _expected(made: Breakdown) -> Iterator[Finding]:
    held = made.expected
    if held.ettr is None or held.rate is None or held.with_other_losses is None:
        return
    bounds = "" if held.low == held.high else f" {share_between(held.low, held.high)}"
    yield Finding(
        f"{percent(held.ettr)}{bounds} from failures, restarts and checkpoints alone, "
        f"{percent(held.with_other_losses)} with its other losses, at {rate_text(held.rate)} "
        f"({rate_source(held.rate)}).",
        "expected",
        "The ETTR to be expected:",
    )


def _data(made: Breakdown) -> Iterator[Finding]:
    if made.wall_s <= 0:
        return
    share = made.parts["data_wait"] / made.wall_s
    if share < MUCH_WAIT:
        return
    training = made.parts["data_wait"] + made.parts["productive"] + made.parts["replayed"]
    yield Finding(
        f"took {seconds(made.parts['data_wait'])}, {percent(share)} of the wall time and "
        f"{percent(made.parts['data_wait'] / training)} of the time of training.",
        "steps",
        "Waiting for data",
    )


def tiles(made: Breakdown) -> list[Tile]:
    """At most six."""
    held = made.expected
    unit = gpu_unit(made)
    total = sum(made.gpu_hours.values())
    shown = [
        Tile(
            "ETTR",
            percent(made.ettr),
            interval=""
            if held.ettr is None
            else f"expected {percent(held.ettr)} {share_between(held.low, held.high)}",
            note=f"of {duration(made.wall_s)}",
            section_id="where",
        ),
        Tile(
            "Lost",
            unit.say(total - made.gpu_hours["productive"]).removesuffix(f" {unit.name}"),
            unit.name,
            note=f"of {unit.say(total)}",
            section_id="where",
        ),
        Tile(
            "Attempts",
            f"{len(made.attempts):,}",
            note=f"{made.interruptions:,} interrupted",
            section_id="attempts",
        ),
    ]
    replayed = sum(each.count for each in made.replays)
    shown.append(
        Tile(
            "Replayed",
            f"{replayed:,}",
            "step" if replayed == 1 else "steps",
            note=f"{seconds(made.parts['replayed'])}; {counted(made.work.steps, 'step')} done",
            section_id="attempts",
        )
    )
    if made.checkpoints.interval_s and held.ettr is not None:
        best = "never" if held.best_interval_s is None else seconds(held.best_interval_s)
        shown.append(
            Tile(
                "Checkpoint every",
                seconds(made.checkpoints.interval_s),
                note=f"best: {best} of step time",
                section_id="attempts",
            )
        )
    if made.work.step_s_median is not None:
        shown.append(
            Tile(
                "Step, median",
                seconds(made.work.step_s_median),
                note=f"99 %: {seconds(made.work.step_s_p99)}",
                section_id="steps",
            )
        )
    return shown
