"""Nodes whose clocks differ: attempts, figures and alarms are those of the run with one clock."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from recordings import EPOCH, start, write

from holdfast.runs import read_run
from holdfast.runs.goodput.accounting import breakdown
from holdfast.runs.goodput.report import report
from holdfast.runs.watching.watcher import replay

NODES = ("n0", "n1", "n2", "n3")


def run_of(
    folder: Path,
    clocks_s: dict[str, float],
    attempts: list[list[str]],
    launches: list[str] | None = None,
) -> None:
    """A synchronous training, two ranks per node; each attempt makes 20 steps, 10 of them again.

    Args:
        folder: of the run.
        clocks_s: node -> by how much its clock is ahead.
        attempts: the nodes of each attempt.
        launches: the launcher's id of each attempt.
    """
    noise = random.Random(5)
    begin = 1000.0
    for number, nodes in enumerate(attempts):
        ends, at = [], 3.0
        for _ in range(20):
            at += 1 + noise.random()
            ends.append(at)
        first_step = 10 * number
        for place, node in enumerate(nodes):
            for local in (0, 1):
                rank = 2 * place + local
                jitter = noise.random() / 100
                opened = begin + jitter
                events: list[dict[str, Any]] = [
                    {"event": "ready", "t": 3.0, "resumed_from": first_step or None}
                ]
                for step, (before, end) in enumerate(zip([3.0, *ends], ends, strict=False)):
                    step_event = {"event": "step", "step": first_step + step + 1}
                    step_event |= {"t": end - jitter, "seconds": end - before - jitter}
                    events.append(step_event)
                if number == len(attempts) - 1:
                    events.append({"event": "end", "t": at, "how": "clean", "detail": ""})
                head = start(
                    rank,
                    2 * len(nodes),
                    node=node,
                    boot_id=f"boot-{node}",
                    monotonic_s=opened - 500 * NODES.index(node),
                    opened_s=EPOCH + opened + clocks_s.get(node, 0.0),
                    launch=launches[number] if launches else f"torchrun-x-29500-{number}",
                    submitted_s=EPOCH + 990,
                    pid=100 * number + rank,
                )
                write(folder / "run", head, events)
        begin += at + 15


def figures(folder: Path) -> dict[str, Any]:
    told = breakdown(folder, now_s=EPOCH + 1e6).to_dict()
    watched = replay(folder)
    return {
        name: told[name] for name in ("attempts", "wall_s", "parts", "ettr", "attempt_table")
    } | {"watch": (watched.attempts, watched.opened, watched.run_time_s)}


def flat(value: Any) -> Any:
    """Nested figures as a list that can be compared with a tolerance."""
    if isinstance(value, dict):
        return [each for key in sorted(value) for each in flat(value[key])]
    if isinstance(value, (list, tuple)):
        return [each for one in value for each in flat(one)]
    return [value]


TWO = [["n0", "n1"], ["n0", "n1"]]
THREE = [["n0", "n1", "n2"], ["n0", "n1", "n2"]]
MOVED = [["n0", "n1"], ["n0", "n2"], ["n2", "n3"]]
SKEWS = {
    "an hour": ({"n1": 3600.0}, TWO, {"n1": 3600.0}),
    "half a minute": ({"n1": 30.0}, TWO, {"n1": 30.0}),
    "five seconds behind": ({"n1": -5.0}, TWO, {"n1": -5.0}),
    "year 2001": ({"n1": 1e9 - EPOCH}, TWO, {"n1": 1e9 - EPOCH}),
    "of three, the first": ({"n0": 3600.0}, THREE, {"n0": 3600.0}),
    "three clocks": ({"n1": -40.0, "n2": 7000.0}, THREE, {"n1": -40.0, "n2": 7000.0}),
    "a restart elsewhere": (
        {"n1": 500.0, "n2": -90.0},
        MOVED,
        {"n1": 500.0, "n2": -90.0},
    ),
    "little": ({"n1": 0.2}, TWO, {}),
}


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", SKEWS)
def test_clocks_that_differ_change_no_figure(tmp_path: Path, name: str) -> None:
    clocks, attempts, remarked = SKEWS[name]
    run_of(tmp_path / "true", {}, attempts)
    run_of(tmp_path / "skewed", clocks, attempts)
    expected = figures(tmp_path / "true")
    assert expected["attempts"] == len(attempts)
    found = flat(figures(tmp_path / "skewed"))
    for one, other in zip(found, flat(expected), strict=True):
        assert one == (pytest.approx(other, abs=1e-3) if isinstance(other, float) else other)
    told = breakdown(tmp_path / "skewed")
    assert told.clocks_s == {node: pytest.approx(by, abs=0.1) for node, by in remarked.items()}
    assert sum("clock of" in each for each in told.remarks) == len(remarked)


def test_a_launch_that_comes_again_under_its_name(tmp_path: Path) -> None:
    """torchrun without an id: two launches, which are two attempts however their clocks differ."""
    same = ["torchrun-none-29500-0"] * 2
    run_of(tmp_path / "true", {}, TWO, same)
    run_of(tmp_path / "skewed", {"n1": 3600.0}, TWO, same)
    expected, found = breakdown(tmp_path / "true"), breakdown(tmp_path / "skewed")
    assert len(found.attempts) == len(expected.attempts) == 2
    assert found.wall_s == pytest.approx(expected.wall_s, abs=1e-3)


def test_without_a_shared_step_the_starts_of_one_launch_are_compared(tmp_path: Path) -> None:
    for rank, ahead in ((0, 0.0), (1, 7200.0)):
        head = start(rank, 2, node=f"n{rank}", boot_id=f"b{rank}", launch="slurm-7-0-0")
        write(tmp_path / "run", head | {"opened_s": EPOCH + 100 + ahead})
    run = read_run(tmp_path)
    assert [process.attempt for process in run.processes] == [0, 0]
    assert run.clocks_s == {"n1": pytest.approx(7200.0)}


def test_a_restart_on_a_node_whose_clock_is_behind_comes_second(tmp_path: Path) -> None:
    """Nothing compares the clocks of the two nodes; the restart's number tells the order."""
    for attempt, ahead in ((0, 0.0), (1, -3600.0)):
        head = start(
            node=f"n{attempt}", boot_id=f"b{attempt}", launch=f"slurm-7-0-{attempt}", pid=attempt
        )
        events = [{"event": "step", "step": 1, "t": 50.0, "seconds": 1.0}]
        write(tmp_path / "run", head | {"opened_s": EPOCH + 200 * attempt + ahead}, events)
    run = read_run(tmp_path)
    assert [process.node for process in run.processes] == ["n0", "n1"]
    assert run.start_s[1] >= 50
    assert any("moved" in each for each in run.remarks)


@pytest.mark.parametrize("name", ["an hour", "five seconds behind", "of three, the first"])
def test_without_a_launcher_shared_steps_place_the_nodes(tmp_path: Path, name: str) -> None:
    clocks, attempts, _ = SKEWS[name]
    run_of(tmp_path / "true", {}, attempts)
    run_of(tmp_path / "skewed", clocks, attempts, [""] * len(attempts))
    expected, found = breakdown(tmp_path / "true"), breakdown(tmp_path / "skewed")
    assert len(found.attempts) == len(attempts)
    assert found.wall_s == pytest.approx(expected.wall_s, abs=1e-3)
    assert dict(found.parts) == pytest.approx(dict(expected.parts), abs=1e-3)


def test_half_runs_that_nothing_places_are_doubted_first(tmp_path: Path) -> None:
    """Neither a launcher nor steps: two nodes an hour apart look like two attempts, and must say so."""
    for clock_s, doubts in [(0.0, 0), (3600.0, 1)]:
        folder = tmp_path / str(clock_s)
        for rank in (0, 1):
            head = start(rank, 2, node=f"n{rank}", boot_id=f"b{rank}")
            head["opened_s"] = EPOCH + 100 + rank * clock_s
            write(folder / "run", head, [{"event": "ready", "t": 3.0, "resumed_from": None}])
        assert len(read_run(folder).doubts) == doubts
        assert [each.doubt for each in report(folder).unknowns()][:1] == [bool(doubts)]


def test_steps_that_are_not_shared_place_nothing(tmp_path: Path) -> None:
    """Ranks 0 and 1 trained, and later others of the same run, in steps of other lengths."""
    noise = random.Random(7)
    for rank in range(4):
        ends, at = [], 3.0
        for _ in range(20):
            at += 1 + noise.random()
            ends.append(at)
        head = start(rank, 4, node=f"n{rank // 2}", boot_id=f"b{rank // 2}")
        head |= {"opened_s": EPOCH + 100 + 3600 * (rank // 2)}
        steps = [
            {"event": "step", "step": n, "t": end, "seconds": 0.5} for n, end in enumerate(ends, 1)
        ]
        write(tmp_path / "run", head, steps)
    run = read_run(tmp_path)
    assert [process.attempt for process in run.processes] == [0, 0, 1, 1]
    assert len(run.doubts) == 1
