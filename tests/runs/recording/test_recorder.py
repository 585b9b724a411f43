"""What the recorder writes, and that it never stops a training."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from holdfast.errors import InputError
from holdfast.runs import RunRecorder
from holdfast.runs.recording.eventfile import EventFile
from holdfast.runs.recording.identity import launch_of_process, lived_s, rank_of_process
from holdfast.runs.recording.pulse import Pulse


@pytest.fixture(autouse=True)
def outside_of_launchers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("SLURM_", "TORCHELASTIC_")) or name in ("RANK", "WORLD_SIZE"):
            monkeypatch.delenv(name)


def lines(recorder: RunRecorder) -> list[dict[str, Any]]:
    (path,) = recorder.folder.glob("*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def without_beats(recorder: RunRecorder) -> list[dict[str, Any]]:
    return [line for line in lines(recorder) if line["event"] != "alive"]


def test_a_loop_reads_as_it_ran(tmp_path: Path) -> None:
    with RunRecorder(tmp_path, "run", labels={"rack": 7}) as recorder:
        recorder.ready(resumed_from=4)
        with recorder.data_wait():
            pass
        with recorder.step(5, tokens=2048) as step:
            step.loss = 2.5
            step.samples = 8
            step.sync_s = 0.0
        with recorder.checkpoint(5):
            pass
        recorder.published(5, background_s=1.5, size_bytes=10)
        with recorder.evaluation(5):
            pass
        with recorder.pause("lunch"):
            pass
    written = without_beats(recorder)
    assert [line["event"] for line in written] == [
        "start",
        "ready",
        "data_wait",
        "step",
        "begin",
        "checkpoint",
        "published",
        "begin",
        "evaluation",
        "begin",
        "pause",
        "end",
    ]
    assert written[0]["run_id"] == "run"
    assert written[0]["labels"] == {"rack": "7"}
    assert written[1]["resumed_from"] == 4
    step = written[3]
    assert (step["step"], step["tokens"], step["samples"], step["loss"]) == (5, 2048, 8, 2.5)
    assert 0 <= step["sync_s"] <= step["seconds"] <= step["t"]
    assert [line["what"] for line in written if line["event"] == "begin"] == [
        "checkpoint",
        "evaluation",
        "pause",
    ]
    assert written[6] | {"t": 0} == {
        "event": "published",
        "step": 5,
        "background_s": 1.5,
        "bytes": 10,
        "t": 0,
    }
    assert written[10]["reason"] == "lunch"
    assert written[-1]["how"] == "clean"
    times = [line["t"] for line in written if line["event"] != "begin"]
    assert times == sorted(times)


def test_nested_spans_tell_their_inner_time(tmp_path: Path) -> None:
    with RunRecorder(tmp_path, "run") as recorder:
        with recorder.step(1):
            with recorder.checkpoint(1), recorder.pause("disk"):
                pass
            with recorder.evaluation(1):
                pass
        with recorder.step(2):
            pass
    spans = {
        (line["event"], line.get("step")): line for line in lines(recorder) if "seconds" in line
    }
    pause, checkpoint = spans["pause", None], spans["checkpoint", 1]
    first, evaluation = spans["step", 1], spans["evaluation", 1]
    assert checkpoint["inner_s"] == pause["seconds"]
    assert first["inner_s"] == pytest.approx(
        checkpoint["seconds"] + evaluation["seconds"], abs=2e-6
    )
    assert "inner_s" not in pause
    assert "inner_s" not in spans["step", 2]
    assert first["inner_s"] <= first["seconds"]


def test_the_first_step_ends_the_initialisation(tmp_path: Path) -> None:
    with RunRecorder(tmp_path, "run") as recorder:
        with recorder.step(1):
            pass
        with recorder.step(2):
            pass
    written = without_beats(recorder)
    assert [line["event"] for line in written] == ["start", "ready", "step", "step", "end"]
    assert written[1]["t"] == pytest.approx(written[2]["t"] - written[2]["seconds"], abs=2e-6)


def test_a_step_that_failed_is_not_a_step(tmp_path: Path) -> None:
    recorder = RunRecorder(tmp_path, "run")
    with pytest.raises(ZeroDivisionError), recorder, recorder.step(3):
        1 / 0  # noqa: B018
    written = without_beats(recorder)
    assert [line["event"] for line in written] == ["start", "ready", "pause", "end"]
    assert written[2]["reason"] == "step 3 failed: ZeroDivisionError: division by zero"
    assert (written[-1]["how"], written[-1]["detail"]) == (
        "exception",
        "ZeroDivisionError: division by zero",
    )


@pytest.mark.parametrize(
    ("error", "how", "detail"),
    [
        (SystemExit(0), "clean", ""),
        (SystemExit(), "clean", ""),
        (SystemExit(3), "exception", "SystemExit: 3"),
        (KeyboardInterrupt(), "signal", "SIGINT"),
        (RuntimeError("no \udc80 text"), "exception", "RuntimeError: no ? text"),
    ],
)
def test_how_it_ended(tmp_path: Path, error: BaseException, how: str, detail: str) -> None:
    recorder = RunRecorder(tmp_path, "run")
    with pytest.raises(type(error)), recorder:
        raise error
    last = without_beats(recorder)[-1]
    assert (last["how"], last["detail"]) == (how, detail)


def test_closed_once_and_then_silent(tmp_path: Path) -> None:
    recorder = RunRecorder(tmp_path, "run")
    recorder.close()
    recorder.close()
    with recorder.step(1):
        pass
    assert [line["event"] for line in without_beats(recorder)] == ["start", "end"]


@pytest.mark.parametrize(
    ("loss", "written"),
    [
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3.0),
        (np.array([1.25]).reshape(()), 1.25),
        (7, 7.0),
    ],
)
def test_losses(tmp_path: Path, loss: Any, written: object) -> None:
    with RunRecorder(tmp_path, "run") as recorder, recorder.step(np.int64(1)) as step:
        step.loss = loss
        step.grad_norm = loss
    (line,) = (line for line in lines(recorder) if line["event"] == "step")
    assert line["loss"] == line["grad_norm"] == written
    assert line["step"] == 1


def test_a_torch_scalar(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with RunRecorder(tmp_path, "run") as recorder, recorder.step(torch.tensor(4)) as step:
        step.loss = torch.tensor(0.5, requires_grad=True).detach()
    (line,) = (line for line in lines(recorder) if line["event"] == "step")
    assert (line["step"], line["loss"]) == (4, 0.5)


def test_what_is_no_number_is_left_out_and_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RunRecorder(tmp_path, "run") as recorder:
        for number in (1, 2):
            with recorder.step(number) as step:
                step.loss = "low"  # type: ignore[assignment]
                step.tokens = math.nan
    assert [line.get("loss") for line in lines(recorder) if line["event"] == "step"] == [None, None]
    assert capsys.readouterr().err.count("not recorded") == 1


def test_spans_of_other_threads_stay_out_of_the_nesting(tmp_path: Path) -> None:
    inside, done = threading.Event(), threading.Event()

    def prefetch() -> None:
        with recorder.data_wait():
            inside.set()
            done.wait()
        recorder.published(1)

    with RunRecorder(tmp_path, "run") as recorder:
        thread = threading.Thread(target=prefetch, name="prefetch")
        thread.start()
        with recorder.step(1):
            inside.wait()
            with recorder.checkpoint(1):
                done.set()
                thread.join()
    written = {line["event"]: line for line in lines(recorder)}
    assert written["data_wait"]["thread"] == "prefetch"
    assert "thread" not in written["published"]
    assert written["step"]["inner_s"] == written["checkpoint"]["seconds"]
    assert "inner_s" not in written["checkpoint"]


def test_spans_left_in_the_wrong_order_harm_nobody(tmp_path: Path) -> None:
    with RunRecorder(tmp_path, "run") as recorder:
        outer, inner = recorder.step(1), recorder.data_wait()
        outer.__enter__()
        inner.__enter__()
        outer.__exit__(None, None, None)
        inner.__exit__(None, None, None)
        with recorder.step(2):
            pass
    for line in lines(recorder):
        assert 0 <= line.get("inner_s", 0) <= line.get("seconds", 0)


def test_many_threads_write_whole_lines(tmp_path: Path) -> None:
    with RunRecorder(tmp_path, "run") as recorder:
        threads = [
            threading.Thread(target=lambda: [recorder.published(n) for n in range(200)])
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sum(line["event"] == "published" for line in lines(recorder)) == 1600


# --- Opening -------------------------------------------------------------------------------------


@pytest.mark.parametrize("run_id", ["", ".", "..", "a/b", "../x", "-x", "a b", "é", "x" * 129, 7])
def test_run_ids_that_cannot_name_a_folder(tmp_path: Path, run_id: Any) -> None:
    with pytest.raises(InputError, match="invalid run id"):
        RunRecorder(tmp_path, run_id)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        {"rank": 1},
        {"rank": -1},
        {"rank": 4, "world_size": 4},
        {"heartbeat_s": 0},
        {"heartbeat_s": math.nan},
        {"hang_after_s": -1},
        {"gpus": -1},
        {"submitted_s": 12.0},
        {"submitted_s": math.inf},
    ],
)
def test_impossible_arguments(tmp_path: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        RunRecorder(tmp_path, "run", **({"world_size": 1} | arguments))


def test_a_second_live_recorder_of_a_rank_is_refused(tmp_path: Path) -> None:
    with RunRecorder(tmp_path, "run", rank=0, world_size=2):
        with pytest.raises(
            InputError, match=f"rank 0 .* live process[^$]*process {os.getpid()} on "
        ):
            RunRecorder(tmp_path, "run", rank=0, world_size=2)
        RunRecorder(tmp_path, "run", rank=1, world_size=2).close()
        RunRecorder(tmp_path, "other", rank=0, world_size=2).close()
    RunRecorder(tmp_path, "run", rank=0, world_size=2).close()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write events"):
        RunRecorder(tmp_path / "file", "run")


def test_a_full_disk_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", no_space)
        with pytest.raises(InputError, match="first event"):
            RunRecorder(tmp_path, "run")
    RunRecorder(tmp_path, "run").close()  # the lock was given back


def test_a_full_disk_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One event is cut, two find no room at all; the others are whole."""
    from holdfast.runs import read_run

    room = iter([20, 0, 0])
    really_write = os.write

    def write(file: int, data: bytes) -> int:
        left = next(room, None)
        if left is None:
            return really_write(file, data)
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        return really_write(file, data[:left])

    with RunRecorder(tmp_path, "run", heartbeat_s=1e6) as recorder:
        recorder.ready()
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", write)
            for number in (1, 2, 3, 4):
                with recorder.step(number):
                    pass
    told = capsys.readouterr().err
    assert told.count("an event is lost (no room for all of it); the training continues") == 1
    assert "3 events could not be written" in told
    run = read_run(tmp_path)
    assert [step for step in run.events["step"].to_pylist() if step] == [4]
    assert [reject.text for reject in run.rejects] == ['{"event":"step","ste']
    assert any("3 events could not be written" in remark for remark in run.remarks)


# --- Who it is -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, (0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "8", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, (3, 8)),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, (1, 2)),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "9", "SLURM_STEP_NUM_TASKS": "2"}, (1, 2)),
        ({"RANK": "2"}, (2, 3)),
    ],
)
def test_rank_from_the_environment(environment: dict[str, str], expected: tuple[int, int]) -> None:
    assert rank_of_process(None, None, environment) == expected
    assert rank_of_process(5, 6, environment) == (5, 6)


def test_a_rank_that_is_no_number() -> None:
    with pytest.raises(InputError, match="RANK"):
        rank_of_process(None, None, {"RANK": "first"})


def test_launches() -> None:
    torchrun = {
        "TORCHELASTIC_RUN_ID": "a b",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RESTART_COUNT": "2",
        "SLURM_JOB_ID": "7",
    }
    assert launch_of_process(torchrun) == "torchrun-a_b-29500-2"
    slurm = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_RESTART_COUNT": "1"}
    assert launch_of_process(slurm) == "slurm-7-0-1"
    assert launch_of_process({}) == ""


def test_how_long_this_process_has_lived() -> None:
    code = "from holdfast.runs.recording.identity import lived_s; print(lived_s())"
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    )
    assert 0 < float(output.stdout) < lived_s()


def test_a_training_loads_nothing_large(tmp_path: Path) -> None:
    code = (
        "import sys; from holdfast.runs import RunRecorder\n"
        "with RunRecorder(sys.argv[1], 'run') as recorder:\n"
        "    with recorder.step(1) as step: step.loss = 1.0\n"
        "print({'numpy', 'pyarrow', 'pandas', 'torch', 'rich', 'cyclopts'} & set(sys.modules))"
    )
    output = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, check=True)
    assert output.stdout == b"set()\n"


# --- Beats and hangs -----------------------------------------------------------------------------


@pytest.fixture
def beats_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread beside the training does nothing; only the test calls `_beat`."""
    monkeypatch.setattr(Pulse, "run", lambda pulse: None)


@pytest.mark.usefixtures("beats_by_hand")
def test_beats_only_while_nothing_else_happens(tmp_path: Path) -> None:
    with RunRecorder(tmp_path, "run", heartbeat_s=1000) as recorder:
        recorder._last_line_at -= 400
        assert 500 < recorder._beat() <= 600
        recorder._last_line_at -= 700
        assert recorder._beat() == 1000
        recorder.ready()
        assert 900 < recorder._beat() <= 1000
    assert [line["event"] for line in lines(recorder)] == ["start", "alive", "ready", "end"]


def test_the_thread_beats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beats = threading.Semaphore(0)

    class Counted(EventFile):
        def write(self, event: dict[str, Any]) -> None:
            super().write(event)
            if event["event"] == "alive":
                beats.release()

    monkeypatch.setattr("holdfast.runs.recording.recorder.EventFile", Counted)
    with RunRecorder(tmp_path, "run", heartbeat_s=0.001) as recorder:
        assert all(beats.acquire(timeout=60) for _ in range(3))
    assert sum(line["event"] == "alive" for line in lines(recorder)) >= 3


@pytest.fixture
def dumped(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The paths of flight records, which are written as empty files."""
    paths: list[Path] = []

    def dump(path: Path) -> None:
        paths.append(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    dumping = ModuleType("holdfast.runs.flight.dumping")
    dumping.dump_flight_record = dump  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "holdfast.runs.flight.dumping", dumping)
    return paths


def fall_silent(recorder: RunRecorder) -> None:
    recorder._last_event_at -= 150
    for _ in range(2):
        recorder._beat()
        if recorder._dumping is not None:
            recorder._dumping.join()


@pytest.mark.usefixtures("beats_by_hand")
def test_one_flight_record_per_silence_deleted_by_progress(
    tmp_path: Path, dumped: list[Path]
) -> None:
    with RunRecorder(
        tmp_path, "run", rank=3, world_size=4, heartbeat_s=1000, hang_after_s=100
    ) as recorder:
        fall_silent(recorder)
        assert dumped == []  # the initialisation may take its time
        recorder.ready()
        assert 0 < recorder._beat() <= 100
        for silence in (1, 2):
            fall_silent(recorder)
            assert len(dumped) == silence
            assert dumped[-1].exists()
            with recorder.step(silence):
                pass
            assert not dumped[-1].exists()
        fall_silent(recorder)
        with suppress(RuntimeError), recorder.step(3):
            raise RuntimeError("Timed out waiting for the other ranks")
    assert dumped[-1].exists()  # neither a failed step nor the end is progress


@pytest.mark.usefixtures("beats_by_hand")
def test_progress_during_a_dump_withdraws_it(
    tmp_path: Path, dumped: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunRecorder(tmp_path, "run", heartbeat_s=1000, hang_after_s=100) as recorder:
        recorder.ready()
        dumping = sys.modules["holdfast.runs.flight.dumping"]
        dump = dumping.dump_flight_record

        def slow(path: Path) -> None:
            dump(path)
            recorder.ready()

        monkeypatch.setattr(dumping, "dump_flight_record", slow)
        recorder._last_event_at -= 150
        recorder._beat()
        recorder._dumping.join()  # type: ignore[union-attr]
    assert len(dumped) == 1
    assert not dumped[0].exists()


@pytest.mark.usefixtures("beats_by_hand")
@pytest.mark.parametrize("launcher", [{}, {"TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": "29500"}])
def test_each_attempt_has_its_own_folder_of_records(
    tmp_path: Path,
    dumped: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    launcher: dict[str, str],
) -> None:
    """The launcher's ids may be missing, or be the same after a restart: the start of rank 0 is not."""
    for name, value in launcher.items():
        monkeypatch.setenv(name, value)
    now = time.time()
    for attempt in (0, 1):
        monkeypatch.setattr(time, "time", lambda start=now + 60 * attempt: start)
        recorders = [
            RunRecorder(tmp_path, "run", rank=rank, world_size=2, hang_after_s=100)
            for rank in (0, 1)
        ]
        for recorder in recorders:
            recorder.ready()
        for recorder in reversed(recorders):
            fall_silent(recorder)
            recorder.close()
    folders = [path.parent for path in dumped]
    assert folders[0] == folders[1] != folders[2] == folders[3]
    assert all(path.exists() for path in dumped)


@pytest.mark.usefixtures("beats_by_hand")
def test_the_heart_beats_while_a_dump_takes_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    dumping = ModuleType("holdfast.runs.flight.dumping")
    dumping.dump_flight_record = lambda path: go_on.wait()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "holdfast.runs.flight.dumping", dumping)
    with RunRecorder(tmp_path, "run", heartbeat_s=1000, hang_after_s=100) as recorder:
        recorder.ready()
        recorder._last_event_at -= 150
        recorder._beat()
        for _ in range(3):
            recorder._last_line_at -= 1500
            recorder._beat()
        go_on.set()
    assert sum(line["event"] == "alive" for line in lines(recorder)) == 3


@pytest.mark.usefixtures("beats_by_hand")
def test_a_dump_that_fails_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(path: Path) -> None:
        raise RuntimeError("no torch")

    dumping = ModuleType("holdfast.runs.flight.dumping")
    dumping.dump_flight_record = fail  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "holdfast.runs.flight.dumping", dumping)
    with RunRecorder(tmp_path, "run", heartbeat_s=1000, hang_after_s=100) as recorder:
        recorder.ready()
        recorder._last_event_at -= 150
        recorder._beat()
        recorder._dumping.join()  # type: ignore[union-attr]
    assert "no flight record of rank 0: no torch" in capsys.readouterr().err
