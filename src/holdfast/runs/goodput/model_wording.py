"""What the expected ETTR and the best interval of a run say, in sentences."""

from __future__ import annotations

from holdfast.numbers import counted, duration, percent
from holdfast.runs.goodput.accounting import Breakdown
from holdfast.runs.goodput.wording import gpu_unit, seconds, seconds_between

WORTH_IT = 0.005
"""A share of the wall time that a change must save to be recommended."""


def interval_sentence(made: Breakdown) -> str:
    """Measured and best interval, and what the difference would have won."""
    held = made.expected
    if held.ettr is None or held.rate is None:
        return "Unknown: no step was completed."
    had = (
        f"The run had a checkpoint every {seconds(made.checkpoints.interval_s)} of step time"
        if made.checkpoints.interval_s
        else "The run had no checkpoint"
    )
    if held.best_interval_s is None or held.saved_s is None:
        text = (
            f"{had} and no failure, so each of them was a loss, as always before the first failure"
        )
        if held.best_interval_low_s:
            text += (
                f"; at the upper end of the rate's interval one every "
                f"{seconds(held.best_interval_low_s)} would be best"
            )
        return f"{text}."
    bounds = seconds_between(held.best_interval_low_s, held.best_interval_high_s)
    if held.rate.low == held.rate.high:
        bounds = ""
    steps = counted(held.best_interval_steps or 1, "step")
    best = (
        f"one every {seconds(held.best_interval_s)} {bounds}".rstrip() + f" ({steps}) would be best"
    )
    if not worth_it(made):
        return f"{had}; {best}, which would save less than {percent(WORTH_IT)} of the wall time."
    return (
        f"{had}; {best}: expected ETTR {percent(held.best_interval_ettr)} instead of "
        f"{percent(held.ettr)}, {duration(held.saved_s)} or "
        f"{gpu_unit(made).say(held.saved_gpu_hours or 0.0)} saved in a run of this length."
    )


def worth_it(made: Breakdown) -> bool:
    """Whether the best interval saves enough to be recommended."""
    saved = made.expected.saved_s
    return saved is not None and made.wall_s > 0 and saved >= WORTH_IT * made.wall_s
