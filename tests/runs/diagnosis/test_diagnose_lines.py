"""Who wrote a line and when; tracebacks and summaries of several lines."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.runs.diagnosis.diagnosing import diagnose
from holdfast.runs.diagnosis.origins import moment_of, rank_of_file, rank_of_line, without_prefix
from holdfast.runs.diagnosis.results import Diagnosis


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        ("[rank3]: Traceback (most recent call last):", 3),
        ("[rank12]:[E1120 17:20:55.089 X.cpp:1] [Rank 12] Watchdog", 12),
        ("[default7]:Traceback", 7),
        ("[trainer2]: step", 2),
        ("  3: step 5", 3),
        ("[E X.cpp:458] [Rank 5] Watchdog caught", 5),
        ("[PG ID 0 PG GUID 0(default_pg) Rank 6] failure detected", 6),
        ("AssertionError: Rank 11: found NaN", 11),
        ("step 3: loss", None),
        ("2026-11-20 10:00:00 INFO ready", None),
        ("[INFO] step", None),
        ("", None),
    ],
)
def test_rank_of_a_line(line: str, rank: int | None) -> None:
    assert rank_of_line(line) == rank


@pytest.mark.parametrize(
    ("path", "rank"),
    [
        ("rank_3.log", 3),
        ("rank3", 3),
        ("run/nccl-rank-00017.txt.gz", 17),
        ("log-worker-3/stdout.log", 3),
        ("job/stderr.5", 5),
        ("none_x/attempt_0/2/stderr.log", 2),
        ("task_4.out", 4),
        ("slurm-494583.out", None),
        ("train.log", None),
        ("gpu-003/kernel.log", None),
    ],
)
def test_rank_of_a_file(path: str, rank: int | None) -> None:
    assert rank_of_file(Path(path)) == rank


@pytest.mark.parametrize(
    ("line", "time", "has_year"),
    [
        ("2026-11-20 17:19:40,792 INFO", datetime(2026, 11, 20, 17, 19, 40, 792000), True),
        ("[2026-11-20T17:19:40.5+02:00] x", datetime(2026, 11, 20, 15, 19, 40, 500000), True),
        ("2026-11-20T17:19:40Z x", datetime(2026, 11, 20, 17, 19, 40), True),
        ("2026/11/20 17:19:40 x", datetime(2026, 11, 20, 17, 19, 40), True),
        ("[rank0]:[E1120 17:20:55.25 X.cpp]", datetime(2000, 11, 20, 17, 20, 55, 250000), False),
        ("[rank0]:[E321 02:07:08.5 X.cpp]", datetime(2000, 3, 21, 2, 7, 8, 500000), False),
        ("Nov  2 10:49:15 node kernel: x", datetime(2000, 11, 2, 10, 49, 15), False),
        ("[Fri Nov 20 10:49:15 2026] NVRM", datetime(2026, 11, 20, 10, 49, 15), True),
        ("CANCELLED AT 2026-11-20T10:49:15 DUE", datetime(2026, 11, 20, 10, 49, 15), True),
        ("  time      : 2026-11-20_17:19:42", datetime(2026, 11, 20, 17, 19, 42), True),
    ],
)
def test_time_of_a_line(line: str, time: datetime, has_year: bool) -> None:
    found = moment_of(line)
    assert found is not None
    assert (found.seconds, found.has_year) == (
        pytest.approx(time.replace(tzinfo=UTC).timestamp()),
        has_year,
    )


def test_no_time() -> None:
    for line in (
        "[   60.855604] NVRM: Xid",
        "2026-13-45 99:00:00",
        "E9999 10:00:00",
        "step 10:20",
        "",
    ):
        assert moment_of(line) is None


def test_a_year_is_put_in() -> None:
    found = moment_of("Feb 29 10:00:00 n kernel: x")
    assert found is not None
    assert datetime.fromtimestamp(found.in_year(2024), UTC) == datetime(2024, 2, 29, 10, tzinfo=UTC)
    assert datetime.fromtimestamp(found.in_year(2026), UTC) == datetime(2026, 3, 1, 10, tzinfo=UTC)


@given(st.text(max_size=300))
def test_any_text_has_a_rank_or_none(text: str) -> None:
    rank_of_line(text)
    moment_of(text)
    without_prefix(text)
    if "\0" not in text:
        rank_of_file(Path(text))


def diagnosed(folder: Path, text: str) -> Diagnosis:
    path = folder / "run.log"
    path.write_text(text, encoding="utf-8")
    return diagnose(path)


HEAD = "Traceback (most recent call last):\n"
OWN = '  File "/home/user/project/train.py", line 9, in step\n    model(batch)\n'
LIBRARY = '  File "/usr/lib/python3.11/site-packages/torch/nn.py", line 5, in call\n    run()\n'


def test_the_innermost_own_frame(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, f"{HEAD}{OWN}{LIBRARY}pkg.errors.Odd: why\nnot this\n")
    assert found.traceback is not None
    assert found.traceback["frame"] == "/home/user/project/train.py:9 step"
    assert len(found.traceback["frames"]) == 2
    assert (found.traceback["exception"], found.traceback["message"]) == ("Odd", "why")
    assert found.sentence.startswith("The program raised Odd in step (train.py:9): why")
    assert (found.evidence[0].line, found.traceback["line"]) == (6, 1)


def test_tracebacks_of_ranks_that_write_over_each_other(tmp_path: Path) -> None:
    lines = {
        rank: f"{HEAD}{OWN}ValueError: of {rank}\n".splitlines(keepends=True) for rank in (4, 2)
    }
    text = "".join(
        f"[rank{rank}]: {line}"
        for pair in zip(lines[4], lines[2], strict=True)
        for rank, line in zip((4, 2), pair, strict=True)
    )
    found = diagnosed(tmp_path, text)
    assert (found.first_rank, found.traceback and found.traceback["message"]) == (4, "of 4")
    assert "2 ranks show it; rank 4 is the first." in found.why


def test_a_direct_cause_comes_before_what_was_raised_from_it(tmp_path: Path) -> None:
    direct = "\nThe above exception was the direct cause of the following exception:\n\n"
    found = diagnosed(tmp_path, f"{HEAD}{OWN}KeyError: 'a'\n{direct}{HEAD}{OWN}Odd: b\n")
    assert found.traceback is not None
    assert found.traceback["exception"] == "KeyError"


def test_what_was_handled_comes_after_what_was_not(tmp_path: Path) -> None:
    handling = "\nDuring handling of the above exception, another exception occurred:\n\n"
    found = diagnosed(tmp_path, f"{HEAD}{OWN}KeyError: 'a'\n{handling}{HEAD}{OWN}Odd: b\n")
    assert found.traceback is not None
    assert found.traceback["exception"] == "Odd"


def test_an_ignored_exception_is_no_failure(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, f"Exception ignored in: <function f>\n{HEAD}{OWN}Odd: b\n")
    assert found.cause is None


def test_a_logger_before_the_head(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, f"2026-11-20 10:00:00 ERROR train: {HEAD}{OWN}Odd: b\n")
    assert (found.cause, found.time) == ("python_exception", "2026-11-20T10:00:00.000")


def test_a_traceback_that_breaks_off(tmp_path: Path) -> None:
    assert diagnosed(tmp_path, f"{HEAD}{OWN}").cause is None
    found = diagnosed(tmp_path, f"{HEAD}{OWN}{HEAD}{OWN}Odd: b\n")
    assert found.traceback is not None
    assert found.traceback["line"] == 4


def test_time_without_any_year_is_not_told(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, "Nov 20 10:00:00 n7 kernel: Kernel panic - not syncing: x\n")
    assert (found.cause, found.time) == ("kernel_panic", None)


def test_order_over_files_is_unknown_without_times(tmp_path: Path) -> None:
    for rank in (2, 1):
        (tmp_path / f"rank_{rank}.log").write_text("No space left on device\n")
    found = diagnose(tmp_path)
    assert (found.first_rank, found.order_known) == (1, False)
    assert any("not known" in reason for reason in found.why)


def test_earlier_attempts(tmp_path: Path) -> None:
    again = "[default] Worker group FAILED. 2/3 attempts left; will restart worker group\n"
    found = diagnosed(
        tmp_path,
        f"No space left on device\n{again}CUDA out of memory\n{again}Broken pipe\nstep 1\n",
    )
    assert (found.cause, found.attempts) == ("peer_lost", 3)
    assert [(each.attempt, each.cause) for each in found.earlier] == [
        (1, "no_space"),
        (2, "cuda_out_of_memory"),
    ]


@pytest.mark.parametrize(
    "before",
    [
        "2025-03-01 10:00:00.123 | ERROR    | trainer:run:55 - ",
        "2025-03-01 10:00:00,123 - trainer - ERROR - ",
        "2025-03-01 10:00:00,123 ERROR trainer: ",
        "[2025-03-01 10:00:00,123] [ERROR] ",
        "ERROR:trainer:",
    ],
)
def test_a_traceback_that_a_logger_wrote_line_by_line(before: str, tmp_path: Path) -> None:
    lines = ["Traceback (most recent call last):", '  File "/app/a.py", line 4, in f', "    g()"]
    found = diagnosed(tmp_path, "".join(f"{before}{line}\n" for line in [*lines, "KeyError: 3"]))
    assert found.traceback is not None
    assert (found.traceback["exception"], found.traceback["frame"]) == ("KeyError", "/app/a.py:4 f")
    plain = diagnosed(tmp_path, f"{before}step 5 took 3 s\n{before}no space left on device\n")
    assert plain.cause == "no_space"
