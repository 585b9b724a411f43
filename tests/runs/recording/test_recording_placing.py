"""One time line out of clocks that step, and attempts out of processes. Files written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from recordings import BOOT, EPOCH, alive, start, write

from holdfast.errors import InputError
from holdfast.runs import read_run
from holdfast.runs.recording.events import RecordedRun

OTHER_BOOT = BOOT.replace("7", "8")


def places(run: RecordedRun) -> list[tuple[int, int, float]]:
    """(attempt, rank, when its recorder opened in run time) of each process."""
    return [
        (process.attempt, process.rank, pytest.approx(begin + process.lived_s))
        for process, begin in zip(run.processes, run.start_s, strict=True)
    ]


def test_restarts_without_a_launcher(tmp_path: Path) -> None:
    """Two ranks, started three times; in the last the order is another."""
    for rank, opened in [(0, 100), (1, 101), (1, 120), (0, 121), (0, 140.5), (1, 140)]:
        write(tmp_path / "run", start(rank, 2, monotonic_s=opened, pid=int(opened)), alive(10))
    assert places(read_run(tmp_path)) == [
        (0, 0, 0.0),
        (0, 1, 1.0),
        (1, 0, 21.0),
        (1, 1, 20.0),
        (2, 0, 40.5),
        (2, 1, 40.0),
    ]


def test_a_rank_that_was_missing_belongs_to_the_restart(tmp_path: Path) -> None:
    """Rank 1 wrote nothing in the first attempt, and is the first to write in the second."""
    for rank, opened in [(0, 100), (1, 120), (0, 121)]:
        write(tmp_path / "run", start(rank, 2, monotonic_s=opened, pid=opened), alive(10))
    assert places(read_run(tmp_path)) == [(0, 0, 0.0), (1, 0, 21.0), (1, 1, 20.0)]


def test_a_launcher_tells_attempts_apart_that_overlap(tmp_path: Path) -> None:
    """Rank 1 of the first attempt hangs on while the second begins without it."""
    for launch, rank, opened, last in [("a", 0, 100, 5), ("a", 1, 100, 30), ("b", 0, 110, 20)]:
        first = start(rank, 2, monotonic_s=opened, pid=opened + rank, launch=launch)
        write(tmp_path / "run", first, alive(last))
    run = read_run(tmp_path)
    assert places(run) == [(0, 0, 0.0), (0, 1, 0.0), (1, 0, 10.0)]
    assert run.processes[2].lived_s == 0
    assert any("attempt 2 began 20 s before the last sign" in remark for remark in run.remarks)
    assert "attempt 2: 1 of 2 ranks never wrote" in run.remarks


def test_the_same_launch_again(tmp_path: Path) -> None:
    """`torchrun` without a run id of its own, started by hand twice."""
    for opened in (100, 200):
        for rank in (0, 1):
            first = start(
                rank, 2, monotonic_s=opened + rank, launch="torchrun-none-1-0", pid=opened
            )
            write(tmp_path / "run", first, alive(5))
    assert [attempt for attempt, _, _ in places(read_run(tmp_path))] == [0, 0, 1, 1]


def test_a_late_rank_of_the_same_launch(tmp_path: Path) -> None:
    """Rank 0 died before rank 1 had read its imports."""
    write(tmp_path / "run", start(0, 2, monotonic_s=100, launch="x"), alive(1))
    write(tmp_path / "run", start(1, 2, monotonic_s=130, launch="x", lived_s=28), alive(1))
    assert [attempt for attempt, _, _ in places(read_run(tmp_path))] == [0, 0]


def test_missing_ranks(tmp_path: Path) -> None:
    for rank in (0, 2, 9):
        write(tmp_path / "run", start(rank, 12), alive(1))
    (remark,) = read_run(tmp_path).remarks
    assert remark == "attempt 1: 1, 3-8, 10 and 11 of 12 ranks never wrote"


def test_ranks_that_disagree_on_their_number(tmp_path: Path) -> None:
    write(tmp_path / "run", start(0, 2), alive(1))
    write(tmp_path / "run", start(1, 3), alive(1))
    run = read_run(tmp_path)
    assert "attempt 1: its processes disagree on the number of ranks: 2, 3" in run.remarks


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0, -1e6])
def test_a_step_of_the_wall_clock_moves_nothing(tmp_path: Path, step_s: float) -> None:
    for index, opened in enumerate([100, 200, 300]):
        wall = EPOCH + opened + (step_s if index == 2 else 0)
        first = start(monotonic_s=opened, opened_s=wall, pid=index, submitted_s=wall - 5)
        write(tmp_path / "run", first, alive(50))
    run = read_run(tmp_path)
    assert places(run) == [(0, 0, 0.0), (1, 0, 100.0), (2, 0, 200.0)]
    assert run.origin_s == EPOCH + 100
    assert [process.submitted_s for process in run.processes] == pytest.approx(
        [EPOCH + opened - 5 for opened in (100, 200, 300)]
    )
    (remark,) = run.remarks
    assert "wall clock of n1 stepped" in remark
    assert "1 of its 3 processes" in remark


def test_a_clock_that_steps_back_over_a_reboot(tmp_path: Path) -> None:
    write(tmp_path / "run", start(monotonic_s=1000), alive(100))
    after = start(monotonic_s=20, opened_s=EPOCH + 1030, boot_id=OTHER_BOOT, lived_s=3)
    write(tmp_path / "run", after, alive(10))
    run = read_run(tmp_path)
    assert places(run) == [(0, 0, 0.0), (1, 0, 103.0)]
    assert run.start_s == pytest.approx((0.0, 100.0))
    assert any("stepped backwards over a reboot" in remark for remark in run.remarks)


def test_clocks_of_two_nodes_that_differ_a_little(tmp_path: Path) -> None:
    """The restart on another node seems to begin two seconds before the end."""
    write(tmp_path / "run", start(), alive(50))
    other = start(node="n2", boot_id=OTHER_BOOT, monotonic_s=7, opened_s=EPOCH + 148)
    write(tmp_path / "run", other, alive(10))
    run = read_run(tmp_path)
    assert places(run) == [(0, 0, 0.0), (1, 0, 50.0)]
    assert any("attempt 2 is moved by 2 s" in remark for remark in run.remarks)


@pytest.mark.parametrize(("boot", "node"), [(BOOT, "n1"), (OTHER_BOOT, "n2"), ("", "n1")])
def test_two_recorders_of_one_rank_at_once(tmp_path: Path, boot: str, node: str) -> None:
    one = write(tmp_path / "run", start(), alive(50))
    first = start(monotonic_s=130, opened_s=EPOCH + 130, boot_id=boot, node=node, pid=7)
    other = write(tmp_path / "run", first, alive(30))
    with pytest.raises(InputError, match="two recorders wrote rank 0") as caught:
        read_run(tmp_path)
    assert one.name in str(caught.value)
    assert other.name in str(caught.value)
    assert "20 s" in str(caught.value)
    assert caught.value.remedy


def test_one_recorder_after_the_other_in_one_process(tmp_path: Path) -> None:
    """The second has lived as long as the program, but its attempt begins where the first ended."""
    write(tmp_path / "run", start(lived_s=30), alive(50))
    write(tmp_path / "run", start(lived_s=90, monotonic_s=160), alive(10))
    run = read_run(tmp_path)
    assert run.start_s == pytest.approx((0.0, 80.0))
    assert run.processes[1].lived_s == pytest.approx(10.0)


def test_nodes_without_a_boot_id(tmp_path: Path) -> None:
    write(tmp_path / "run", start(boot_id=""), alive(5))
    write(tmp_path / "run", start(boot_id="", monotonic_s=3, opened_s=EPOCH + 110), alive(5))
    assert places(read_run(tmp_path)) == [(0, 0, 0.0), (1, 0, 10.0)]


def test_what_ends_a_process(tmp_path: Path) -> None:
    ends = [{"event": "end", "t": 2, "how": how, "detail": how[:3]} for how in ("signal", "clean")]
    write(tmp_path / "run", start(0, 3), ends)
    write(tmp_path / "run", start(1, 3), ends[1:])
    write(tmp_path / "run", start(2, 3), [{"event": "end", "t": 1, "how": "magic"}])
    run = read_run(tmp_path)
    assert [(process.end, process.end_detail) for process in run.processes] == [
        ("signal", "sig"),
        ("clean", "cle"),
        ("none", ""),
    ]


def test_ready(tmp_path: Path) -> None:
    step = {"event": "step", "t": 5, "seconds": 2, "step": 1}
    write(tmp_path / "run", start(0, 3), [step])
    write(tmp_path / "run", start(1, 3), [{"event": "ready", "t": 1, "resumed_from": 7}, step])
    write(tmp_path / "run", start(2, 3), alive(1))
    run = read_run(tmp_path)
    assert [(process.ready_t, process.resumed_from) for process in run.processes] == [
        (3.0, None),
        (1.0, 7),
        (None, None),
    ]
