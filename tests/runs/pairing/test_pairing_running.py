"""Real commands: outcomes, time limits, what is left behind, resuming, interruption."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from simulated_pairs import names

from holdfast.errors import InputError
from holdfast.runs.pairing import execution
from holdfast.runs.pairing.execution import TAIL_CHARACTERS, Execution, execute
from holdfast.runs.pairing.outcomes import outcome_of
from holdfast.runs.pairing.plan import plan_pairs
from holdfast.runs.pairing.records import PairTest, line_of, read_results
from holdfast.runs.pairing.running import run_pairs

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "pairtest"
STAND_IN = f"sh {EXAMPLES / 'stand-in.sh'}"
AB = [PairTest(1, "r1-0001", ("a", "b"))]
LONG = "5m"


def ends(pid: int) -> bool:
    """A process is gone, or about to be: it was killed, and dies without being waited for."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], 60)[0])
    finally:
        os.close(process)


@pytest.mark.parametrize(
    ("command", "outcome", "code", "tail"),
    [
        ("echo {a} {b}", "passed", 0, "a b\n"),
        ("echo bad >&2; exit 3 # {nodes}", "failed", 3, "bad\n"),
        ("kill -KILL $$ # {nodes}", "failed", 137, ""),
        ("exit 75 # {nodes}", "not_run", 75, ""),
        (
            "echo 'srun: error: Unable to allocate resources: Invalid node name'; exit 1 # {nodes}",
            "not_run",
            1,
            None,
        ),
        (r"printf 'x\377\000y' # {nodes}", "passed", 0, "x\ufffd\0y"),
        ("cat # {nodes}", "passed", 0, ""),
    ],
)
def test_outcomes(command: str, outcome: str, code: int, tail: str | None, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    run_pairs(AB, command, path, not_run_codes=[75])
    (row,) = read_results(path)
    assert (row.outcome, row.exit_code, row.timed_out) == (outcome, code, False)
    assert row.nodes == ("a", "b")
    assert row.seconds is not None
    assert row.started_at is not None
    assert row.template == command
    if tail is not None:
        assert row.output_tail == tail


LIMIT_S = 1800.0


@pytest.fixture
def limit_passes_when(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """The time limit `LIMIT_S` is over once a file is there: on a slow machine no sooner, else no later."""
    in_time = execution._in_time

    def passes(file: Path) -> None:
        def waited(process: Any, timeout_s: float, stopped: threading.Event) -> int | None:
            while not (file.exists() or process.poll() is not None):
                time.sleep(0.01)
            return in_time(process, 0, stopped)

        monkeypatch.setattr(execution, "_in_time", waited)

    return passes


def test_a_hang_is_stopped_with_all_its_children(
    tmp_path: Path, limit_passes_when: Callable[[Path], None]
) -> None:
    """Also a child that ignores SIGTERM."""
    path = tmp_path / "r.jsonl"
    pids, fifo, hangs = tmp_path / "pids", tmp_path / "fifo", tmp_path / "hangs"
    os.mkfifo(fifo)
    command = (
        f"(trap '' TERM; sh -c 'echo $PPID >> {pids}; echo $$ >> {pids}; "
        f"echo up > {fifo}; exec sleep 1000') & "
        f"read up < {fifo}; echo started; touch {hangs}; wait; : {{nodes}}"
    )
    limit_passes_when(hangs)
    run_pairs(AB, command, path, timeout_s=LIMIT_S, grace_s=0.2)
    (row,) = read_results(path)
    assert (row.outcome, row.exit_code, row.timed_out) == ("timed_out", None, True)
    assert row.output_tail == "started\n"
    written = [int(line) for line in pids.read_text().split()]
    assert len(written) == 2
    assert all(map(ends, written))


def test_a_hang_is_asked_to_end_before_it_is_made_to(
    tmp_path: Path, limit_passes_when: Callable[[Path], None]
) -> None:
    path, hangs = tmp_path / "r.jsonl", tmp_path / "hangs"
    command = (
        f"trap 'echo farewell; exit 1' TERM; echo up; touch {hangs}; sleep 1000 & wait; : {{nodes}}"
    )
    limit_passes_when(hangs)
    run_pairs(AB, command, path, timeout_s=LIMIT_S, grace_s=120)
    (row,) = read_results(path)
    assert (row.outcome, row.output_tail) == ("timed_out", "up\nfarewell\n")


def test_a_child_left_behind_ends_with_its_test_and_holds_nothing_up(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    run_pairs(AB, f"sleep 1000 & echo $! > {pid}; : {{nodes}}", tmp_path / "r.jsonl")
    assert ends(int(pid.read_text()))
    # One that leaves the group keeps the pipe open; the test is over all the same.
    command = (
        f"setsid sh -c 'echo $$ > {pid}; exec sleep 1000' & echo on; until [ -s {pid} ]; do :; done"
    )
    pid.unlink()
    done = run_pairs(AB, f"{command}; : {{nodes}}", None)
    try:
        assert done.verdict.names("good") == ["a", "b"]
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


def test_output_is_kept_in_part_and_in_full(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    command = "head -c 3000000 /dev/zero | tr '\\0' x; echo end # {nodes}"
    run_pairs(AB, command, path, output_dir=tmp_path / "out" / "put")
    (row,) = read_results(path)
    assert len(row.output_tail) == TAIL_CHARACTERS
    assert row.output_tail.endswith("xxend\n")
    kept = (tmp_path / "out" / "put" / "r1-0001.1.txt").read_bytes()
    assert kept == b"x" * 3_000_000 + b"end\n"


def test_a_command_that_is_stopped_leaves_nothing_running(tmp_path: Path) -> None:
    pid, stopped = tmp_path / "pid", threading.Event()
    command = f"echo $$ > {pid}; exec sleep 1000"
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(execute, command, 1000, stopped=stopped)
        while not (pid.exists() and pid.read_text()):
            time.sleep(0.01)
        stopped.set()
        assert done.result().exit_code is None
    assert ends(int(pid.read_text()))


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("no-such-command-anywhere {nodes}", 127),
        ("/etc/passwd {nodes}", 126),
        ("echo 'slurmstepd: error: execve(): x: No such file or directory'; exit 2 # {nodes}", 2),
    ],
)
def test_a_command_that_cannot_be_run_condemns_nobody(
    command: str, code: int, tmp_path: Path
) -> None:
    path = tmp_path / "r.jsonl"
    with pytest.raises(InputError, match=f"exit code {code}"):
        run_pairs(plan_pairs(names(8)).tests, command, path, jobs=1)
    assert len(read_results(path)) == 0


def test_a_program_missing_on_one_node_only_is_its_fault(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    tests = plan_pairs(names(4)).tests
    run_pairs(tests, "test {nodes} = node1,node2 || exit 127", path, jobs=1)
    assert [row.outcome for row in read_results(path)] == ["passed", "failed"]


def test_all_rounds(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    command = f'FAULTY="node3 node8" CUT="node5+node6" {STAND_IN} {{a}} {{b}}'
    done = run_pairs(plan_pairs(names(13)).tests, command, path, rounds=None, jobs=4)
    verdict = done.verdict
    assert verdict.names("faulty") == ["node8", "node3"] or verdict.names("faulty") == [
        "node3",
        "node8",
    ]
    assert [set(link.nodes) for link in verdict.bad_links] == [{"node5", "node6"}]
    assert len(verdict.names("good")) == 11
    assert done.rounds == 4
    assert done.ran == len(read_results(path))


def test_a_run_is_resumed_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    tests = plan_pairs(names(9)).tests
    command = f"FAULTY=node3 {STAND_IN} {{a}} {{b}}"
    run_pairs(tests, command, path)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]) + lines[2][:25])  # killed while it wrote the third
    done = run_pairs(tests, command, path)
    assert (done.ran, done.known) == (len(lines) - 2, 2)
    found = read_results(path)
    assert len(found.set_aside) == 1
    assert sorted(row.test for row in found) == sorted(json.loads(line)["test"] for line in lines)
    again = run_pairs(tests, command, path)
    assert (again.ran, again.known) == (0, len(lines))
    assert again.verdict.set_aside == 1


def test_results_of_something_else_are_not_taken_for_these(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    run_pairs(AB, "true {nodes}", path)
    with pytest.raises(InputError, match="another command"):
        run_pairs(AB, "false {nodes}", path)
    with pytest.raises(InputError, match="of other nodes"):
        run_pairs([PairTest(1, "r1-0001", ("a", "c"))], "true {nodes}", path)
    assert len(read_results(path)) == 1


def test_a_node_is_in_one_running_test_at_a_time(tmp_path: Path) -> None:
    """A directory per node is a lock: a second test of the node would fail to make it."""
    tests = [
        PairTest(1, f"t{first}-{second}", (f"n{first}", f"n{second}"))
        for first in range(5)
        for second in range(first)
    ]
    lock = f"cd {tmp_path} && mkdir {{a}}.lock {{b}}.lock && echo on && rmdir {{a}}.lock {{b}}.lock"
    done = run_pairs(tests, lock, None, jobs=10)
    assert done.ran == 10
    assert all(node.failed == 0 and node.passed == 4 for node in done.verdict.nodes)


def test_tests_run_side_by_side(tmp_path: Path) -> None:
    """Two tests that wait for each other: one after the other they would hang."""
    one, two = tmp_path / "one", tmp_path / "two"
    os.mkfifo(one)
    os.mkfifo(two)
    tests = [PairTest(1, "one", ("a", "b")), PairTest(1, "two", ("c", "d"))]
    command = (
        f"case {{nodes}} in a,b) echo > {one}; cat {two};; c,d) cat {one}; echo > {two};; esac"
    )
    done = run_pairs(tests, command, None, jobs=2, timeout_s=120)
    assert len(done.verdict.names("good")) == 4


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_keeps_what_is_known_and_leaves_nothing_running(
    number: signal.Signals, tmp_path: Path
) -> None:
    fifo, path, pid = tmp_path / "fifo", tmp_path / "r.jsonl", tmp_path / "pid"
    os.mkfifo(fifo)
    plan = tmp_path / "plan.jsonl"
    tests = [PairTest(1, "quick", ("a", "b")), PairTest(1, "slow", ("c", "d"))]
    plan.write_text("".join(map(line_of, tests)), encoding="utf-8")
    command = f"test {{nodes}} = a,b && exit; echo $$ > {pid}; echo up > {fifo}; exec sleep 1000"
    holdfast = [sys.executable, "-c", "from holdfast.cli import main; main()", "runs", "pairtest"]
    running = subprocess.Popen(
        [*holdfast, "run", plan, "--command", command, "-o", path, "--jobs", "1"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert fifo.read_text() == "up\n"  # the quick one is over, the slow one runs
    running.send_signal(number)
    _, said = running.communicate()
    assert running.returncode == (130 if number == signal.SIGINT else 143)
    if number == signal.SIGINT:
        assert "resume" in said
    assert ends(int(pid.read_text()))
    assert [row.test for row in read_results(path)] == ["quick"]


def test_in_a_thread_and_inside_an_event_loop() -> None:
    """As in a notebook, where a loop runs already."""

    async def notebook() -> int:
        return run_pairs(AB, "true {nodes}").ran

    assert asyncio.run(notebook()) == 1
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(run_pairs(AB, "true {nodes}").ran))
    thread.start()
    thread.join()
    assert found == [1]


@pytest.mark.parametrize(
    "wrong", [{"jobs": 0}, {"timeout_s": 0.0}, {"results": "/no/such/folder/r"}]
)
def test_impossible_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        run_pairs(AB, "true {nodes}", **wrong)  # type: ignore[arg-type]


@pytest.mark.full
def test_a_real_all_gather_finds_the_node_that_hangs_and_the_one_that_lies(tmp_path: Path) -> None:
    """Two gloo processes a test over loopback: node2 never enters, node5 sends wrong numbers."""
    script = EXAMPLES / "all_gather.py"
    command = (
        f"{sys.executable} {script} --local {{nodes}} --elements 1000 --hang node2 --wrong node5"
    )
    path = tmp_path / "r.jsonl"
    done = run_pairs(plan_pairs(names(6)).tests, command, path, rounds=None, jobs=1, timeout_s=45)
    assert set(done.verdict.names("faulty")) == {"node2", "node5"}
    assert len(done.verdict.names("good")) == 4
    hung = {row.nodes for row in read_results(path) if row.timed_out}
    assert all("node2" in nodes for nodes in hung)
    assert len(hung) == 2
    lied = [row for row in read_results(path) if "wrong values" in row.output_tail]
    assert all("node5" in row.nodes for row in lied)


def _ended(code: int | None, printed: str) -> Execution:
    return Execution(code, 1.0, "2026-11-20T10:00:00Z", printed)


@pytest.mark.parametrize(
    ("code", "printed", "outcome"),
    [
        (1, "srun: error: Unable to create step for job 7: Requested node is down", "not_run"),
        (1, "srun: error: Node failure on node7\nsrun: Force Terminated job 7", "failed"),
        (None, "srun: job 7 queued and waiting for resources\n", "not_run"),
        (
            None,
            "srun: job 7 queued and waiting for resources\nsrun: job 7 has been allocated resources\n",
            "timed_out",
        ),
        (0, "srun: error: Unable to create step, retrying", "passed"),
        (143, "srun: error: node7: task 3: Terminated", "failed"),
    ],
)
def test_what_slurm_says_of_a_step(code: int | None, printed: str, outcome: str) -> None:
    assert outcome_of(_ended(code, printed)) == outcome
