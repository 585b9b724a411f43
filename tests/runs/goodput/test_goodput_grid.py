"""The parts of random runs are those that looking at every moment gives."""

from __future__ import annotations

import pytest
from goodput.building import Script, recorded
from goodput.grid import parts_by_grid
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.runs.goodput.accounting import breakdown

CELL = 0.25
KINDS = ("step", "step", "step", "data_wait", "checkpoint", "evaluation", "pause")


def cells(most: int) -> st.SearchStrategy[float]:
    return st.integers(0, most).map(lambda count: count * CELL)


@st.composite
def nested(draw: st.DrawFn, script: Script, begin: float, depth: int, step: list[int]) -> float:
    """A span, with others inside; gives its end."""
    kind = draw(st.sampled_from(KINDS))
    at = begin + draw(cells(3))
    if depth < 3:
        for _ in range(draw(st.integers(0, 2))):
            at = draw(nested(script, at, depth + 1, step)) + draw(cells(2))
    end = at + draw(cells(4))
    if kind in ("checkpoint", "evaluation", "pause"):
        script.at("begin", begin, what=kind)
    number = step[0]
    step[0] += draw(st.sampled_from([1, 1, 1, 0, -3]))
    step[0] = max(step[0], 0)
    script.span(kind, begin, end, **({"step": number} if kind == "step" else {}))
    return end


@st.composite
def orderly(draw: st.DrawFn, attempt: int, rank: int, start: float) -> Script:
    """A process whose spans are nested or apart; it may end inside one."""
    script = Script(
        rank=rank,
        attempt=attempt,
        start_s=start + draw(cells(4)),
        lived_s=draw(cells(4)),
        ready=draw(st.none() | cells(6)),
        submitted_s=draw(st.none() | cells(60)),
        end=draw(st.sampled_from(["clean", "none", "signal"])),
    )
    at, step = script.ready or 0.0, [draw(st.integers(0, 8))]
    for _ in range(draw(st.integers(0, 5))):
        at = draw(nested(script, at + draw(cells(3)), 0, step))
    for _ in range(draw(st.integers(0, 2))):
        at += draw(cells(3))
        script.at("begin", at, what=draw(st.sampled_from(["checkpoint", "evaluation", "pause"])))
    script.last = max(at, script.ready or 0.0) + draw(cells(8))
    script.at("alive", script.last)
    return script


@st.composite
def damaged(draw: st.DrawFn, attempt: int, rank: int, start: float) -> Script:
    """A process whose spans lie anywhere, also before it began."""
    script = Script(
        rank=rank,
        attempt=attempt,
        start_s=start + draw(cells(10)),
        lived_s=draw(cells(2)),
        ready=draw(st.none() | cells(6)),
    )
    for _ in range(draw(st.integers(0, 6))):
        end = draw(cells(30))
        number = {"step": draw(st.integers(0, 6))}
        kind = draw(st.sampled_from(KINDS))
        length = draw(cells(40))
        script.span(kind, end - length, end, **(number if kind == "step" else {}))
    script.last = draw(st.none() | cells(30))
    if script.last is not None:
        script.last = max([script.last] + [event["t"] for event in script.events])
    return script


@st.composite
def runs(draw: st.DrawFn, process: object) -> list[Script]:
    scripts, start = [], 0.0
    for attempt in range(draw(st.integers(1, 3))):
        scripts += [
            draw(process(attempt, rank, start))  # type: ignore[operator]
            for rank in range(draw(st.integers(1, 3)))
        ]
        mine = [script for script in scripts if script.attempt == attempt]
        end = max(script.start_s + script.lived_s + (script.last or 0.0) for script in mine)
        # Now and then an attempt begins before the last sign of life of the one before.
        start = max(min(script.start_s for script in mine), end + draw(cells(12)) - 1)
    return scripts


def check(scripts: list[Script]) -> None:
    made = breakdown(recorded(scripts), now_s=0.0)
    wall, parts = parts_by_grid(scripts, CELL)
    assert made.wall_s == pytest.approx(wall, abs=1e-9)
    assert dict(made.parts) == pytest.approx(parts, abs=1e-9)
    assert sum(made.parts.values()) == pytest.approx(made.wall_s, abs=1e-9)
    assert min(made.parts.values()) >= 0


@given(runs(orderly))
@settings(max_examples=10, deadline=None)  # an example is a whole run, second by second
def test_parts_of_orderly_runs(scripts: list[Script]) -> None:
    check(scripts)


@given(runs(damaged))
@settings(max_examples=25, deadline=None)  # an example is a whole run, second by second
def test_parts_of_damaged_runs(scripts: list[Script]) -> None:
    check(scripts)
