"""How a run report names its parts and its numbers, so that page, terminal and findings say it alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from holdfast.numbers import brief, counted, duration, number, percent
from holdfast.runs.goodput.accounting import Breakdown
from holdfast.runs.goodput.attempts import AttemptAccount
from holdfast.runs.goodput.failure_rate import FailureRate
from holdfast.runs.goodput.ledger import PARTS

HOURS_A_DAY = 24
SHORTEST_SHARE = 0.01
"""Parts below this share of the wall time are not named in sentences."""


@dataclass(frozen=True)
class PartWords:
    """A part of the wall time, in words."""

    name: str
    colour: str
    """A name in `holdfast.report.theme.COLOURS`."""
    meaning: str


PARTS_IN_WORDS: Mapping[str, PartWords] = {
    "productive": PartWords(
        "productive steps", "good", "steps done for the first time, without what is nested in them"
    ),
    "replayed": PartWords(
        "replayed steps", "hardware", "steps done again after a restart from an older checkpoint"
    ),
    "data_wait": PartWords("waiting for data", "user", "the training waited for its next batch"),
    "checkpoint": PartWords(
        "checkpoints", "system", "the part of a checkpoint that stops the training"
    ),
    "init": PartWords(
        "initialisation", "sky", "from the start of a process until it can make a step"
    ),
    "evaluation": PartWords("evaluation", "purple", "evaluations of the model"),
    "idle": PartWords(
        "idle or hung",
        "unattributed",
        "nothing of the above: hangs, pauses, steps cut off, ranks that ended before the others",
    ),
    "down": PartWords("down", "first", "between two attempts, outside of any known queue"),
    "queue": PartWords("in the queue", "yellow", "submitted and not yet started"),
}

ENDINGS = {
    "clean": "ended well",
    "exception": "exception",
    "signal": "signal",
    "killed": "killed",
    "running": "still runs",
}


def ending(attempt: AttemptAccount) -> str:
    """How an attempt ended, in a word or two."""
    return "hung" if attempt.hung else ENDINGS[attempt.ended]


def endings(attempts: Iterable[AttemptAccount], each: Callable[[str, int], str]) -> str:
    """How several attempts ended, each way with its number: "2 killed and 1 hung"."""
    tally: dict[str, int] = {}
    for attempt in attempts:
        word = ending(attempt)
        word = {"signal": "ended by a signal", "exception": "ended by an exception"}.get(word, word)
        tally[word] = tally.get(word, 0) + 1
    return listed([each(word, count) for word, count in tally.items()])


@dataclass(frozen=True)
class GpuUnit:
    """Accelerator time in the unit that suits a run."""

    name: str
    per_hour: float

    def say(self, hours: float) -> str:
        """``"3.2 GPU-hours"``."""
        return f"{brief(hours * self.per_hour)} {self.name}"


def gpu_unit(made: Breakdown) -> GpuUnit:
    """Hours, or minutes for a run of less than ten."""
    total = sum(made.gpu_hours.values())
    return GpuUnit("GPU-hours", 1.0) if total >= 10 else GpuUnit("GPU-minutes", 60.0)


def seconds(value: float | None) -> str:
    """A length from microseconds to days, ``"41.2 ms"``, ``"3 min 5 s"``."""
    if value is not None and 0 < value < 1:
        return f"{brief(1000 * value)} ms"
    return duration(value)


def seconds_between(low: float | None, high: float | None) -> str:
    """``"[12.1 s, 40 s]"``; without an upper end ``"[12.1 s, ∞)"``."""
    return f"[{seconds(low)}, {'∞)' if high is None else seconds(high) + ']'}"


def share_between(low: float | None, high: float | None) -> str:
    """``"[71 %, 88 %]"``."""
    return f"[{percent(low)}, {percent(high)}]"


def rate_text(rate: FailureRate) -> str:
    """The failure rate with its interval, a node-day, or a node-hour where nodes fail all the time."""
    per_hour = rate.per_node_day >= HOURS_A_DAY
    scale, unit = (1 / HOURS_A_DAY, "node-hour") if per_hour else (1.0, "node-day")
    text = brief_rate(scale * rate.per_node_day)
    if rate.high > rate.low:
        text += f" [{brief_rate(scale * rate.low)}, {brief_rate(scale * rate.high)}]"
    return f"{text} failures per {unit}"


def brief_rate(value: float) -> str:
    """A rate, which may be far below one."""
    return brief(value) if value >= 1 or value == 0 else number(value)


def rate_source(rate: FailureRate) -> str:
    """Where the failure rate is from."""
    if rate.source == "given":
        return "given"
    where = "the fleet's log" if rate.source == "fleet" else "this run"
    return (
        f"{counted(rate.failures or 0, 'failure')} in {number(rate.node_days)} node-days of {where}"
    )


def listed(names: Sequence[str]) -> str:
    """``"a, b and c"``."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def losses_in_words(made: Breakdown) -> str:
    """The lost shares of the wall time, the largest first, small ones together; empty without any."""
    losses = sorted(
        ((made.parts[part] / made.wall_s, part) for part in PARTS if part != "productive"),
        reverse=True,
    )
    named = [
        f"{PARTS_IN_WORDS[part].name} {percent(share)}"
        for share, part in losses
        if share >= SHORTEST_SHARE
    ]
    rest = sum(share for share, _ in losses if share < SHORTEST_SHARE)
    return listed([*named, f"all else {percent(rest)}"] if rest > 0 else named)
