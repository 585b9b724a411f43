"""How the comparison of a scenario with its log is worded, on a page and in a terminal."""

from __future__ import annotations

from holdfast.fleet.simulation.goodness_of_fit import (
    COUNTS,
    SHARES,
    SIZES,
    SIZES_TIME,
    STATES,
    STATES_TIME,
    UTILISATION,
    WAIT_MEDIAN,
    WAIT_P90,
    WAITS,
    GoodnessOfFit,
    Row,
)
from holdfast.numbers import duration, number, percent

QUESTIONS = {
    "ends": ("Do attempts end alike?", (STATES, STATES_TIME)),
    "sizes": ("Are jobs of the same sizes?", (SIZES, SIZES_TIME)),
    "waits": ("Do they wait as long?", (WAIT_MEDIAN, WAIT_P90)),
    "counts": ("Does as much run and fail?", (COUNTS,)),
}
REMEDIES = {
    "ends": "The hazards are the same for jobs of all sizes; look at [[workload.ends]].",
    "sizes": "Sizes with few jobs scatter most; look at [[workload.sizes]].",
    "waits": (
        "Waits follow from everything else and from arrivals in bursts; a replay "
        '(workload.kind = "replay") keeps those.'
    ),
    "counts": "Look at [failures], [scheduler] and workload.jobs_per_day.",
}
VERDICTS = {"fits": "fits", "close": "close", "off": "off", "unknown": "cannot be told"}


def by_chance(figures: int) -> int:
    """So many of them lie outside with a probability of 5 %, if the scenario is right."""
    from scipy.special import bdtr

    return next(k for k in range(figures + 1) if bdtr(k, figures, 0.1) >= 0.95)


def sentence_of(fit: GoodnessOfFit, name: str) -> str:
    """The answer to one question."""
    rows = [row for row in rows_of(fit, name) if row.verdict != "unknown"]
    if not rows:
        return f"too few replicas had it to tell ({QUESTIONS[name][0].lower()})"
    off = sorted((row for row in rows if row.verdict == "off"), key=_apart, reverse=True)
    if not off:
        inside = sum(row.verdict == "fits" for row in rows)
        return f"{_topic(name)}: {inside:,} of {len(rows):,} in the simulated range, none clearly outside."
    more = f"; {len(off) - 1:,} more of {len(rows):,} are off" if len(off) > 1 else ""
    return f"{named(off[0])} {against(off[0])}{more}. {REMEDIES[name]}"


def _topic(name: str) -> str:
    return {
        "ends": "ends of attempts",
        "sizes": "sizes of jobs",
        "waits": "waits",
        "counts": "jobs, failures, preemptions and utilisation",
    }[name]


def named(row: Row) -> str:
    """What a figure is of, as a sentence begins."""
    return {
        STATES: f"{row.name} attempts:",
        STATES_TIME: f"GPU time of {row.name} attempts:",
        SIZES: f"jobs of {row.name}:",
        SIZES_TIME: f"GPU time of jobs of {row.name}:",
        WAIT_MEDIAN: f"the median wait at {row.name}:",
        WAIT_P90: f"the 90 % quantile of the wait at {row.name}:",
    }.get(row.group, f"{row.name}:")


def first_upper(text: str) -> str:
    """A text as a sentence or a title begins."""
    return text[0].upper() + text[1:]


def against(row: Row) -> str:
    """The log beside its simulations."""
    low, high = spoken(row, row.low), spoken(row, row.high)
    return (
        f"{spoken(row, row.real)} in the log, {spoken(row, row.middle)} [{low}, {high}] simulated"
    )


def spoken(row: Row, value: float) -> str:
    """A value in the unit of its group."""
    if row.group in WAITS:
        return duration(value)
    if row.group in SHARES or row.name == UTILISATION:
        return percent(value, 1)
    return number(value, 0 if value >= 10 or value == int(value) else 1)


def _apart(row: Row) -> float:
    """How far the log lies outside, in widths of the range."""
    off = row.low - row.real if row.real < row.low else row.real - row.high
    return off / max(row.high - row.low, 1e-3 if row.group in SHARES else 1.0)


def rows_of(fit: GoodnessOfFit, name: str) -> list[Row]:
    """The figures behind one of the `QUESTIONS`."""
    return [row for group in QUESTIONS[name][1] for row in fit.of(group)]
