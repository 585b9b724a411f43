"""The pass over the lines: independent of how files are read, equal to a slow one, afraid of no bytes."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.runs.diagnosis.diagnosing import diagnose
from holdfast.runs.diagnosis.reading import LINE_BYTES, blocks, find_logs
from holdfast.runs.diagnosis.rules import load
from holdfast.runs.diagnosis.scanning import Scan, scan_all

RULES = load()
LINES = (
    "step 12 | loss 0.31 | lr 1e-4",
    "[rank3]: step 12 | loss 0.31",
    "2026-11-20 10:00:01,500 INFO step 12",
    "OSError: [Errno 28] No space left on device",
    "[rank1]: OSError: [Errno 28] No space left on device: '/scratch/3'",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB.",
    "[rank2]:[E1120 10:00:05.000000000 X.cpp:1] [Rank 2] Watchdog caught collective operation timeout: W",
    "Traceback (most recent call last):",
    '  File "/home/user/train.py", line 3, in main',
    "    raise ValueError('CUDA out of memory')",
    "ValueError: bad",
    "[rank1]: Traceback (most recent call last):",
    '[rank1]:   File "/home/user/train.py", line 3, in main',
    "[rank1]:     compute()",
    "[rank1]: KeyError: 'x'",
    "During handling of the above exception, another exception occurred:",
    "",
    "\x1b[31mBroken pipe\x1b[0m",
    "0x7f3a deadbeef dead bad face",
    "Root Cause (first observed failure):",
    "  rank      : 2 (local_rank: 2)",
    "  exitcode  : -9 (pid: 4242)",
    "  traceback : Signal 9 (SIGKILL) received by PID 4242",
    "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.",
    "50%|█████     | 50/100 [00:01<00:01, 49.2it/s]",
)
ENDS = ("\n", "\n", "\n", "\r\n", "\r")


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    lines = draw(st.lists(st.tuples(st.sampled_from(LINES), st.sampled_from(ENDS)), max_size=60))
    return "".join(line + end for line, end in lines).encode()


def scanned(path: Path, chunk: int = 1 << 22, processes: int = 1) -> Scan:
    logs, aside = find_logs([path])
    assert not aside
    return scan_all(RULES, logs, processes=processes, chunk=chunk)


def facts(scan: Scan) -> object:
    """Everything that a pass found."""
    return (
        [
            (
                file.finds.events,
                file.finds.tracebacks,
                file.finds.failures,
                (file.feeds, file.lines, file.bytes_read, file.cut),
            )
            for file in scan.files
        ],
        scan.shapes,
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(texts(), st.integers(1, 300))
def test_chunks_change_nothing(text: bytes, chunk: int) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.log"
        path.write_bytes(text or b"\n")
        assert facts(scanned(path, chunk)) == facts(scanned(path))


def test_processes_change_nothing(tmp_path: Path) -> None:
    for rank in range(5):  # the first is the longest, and ready last
        text = "".join(f"{line}\n" for _ in range(5 - rank) for line in LINES[rank:])
        (tmp_path / f"rank_{rank}.log").write_text(text)
    assert facts(scanned(tmp_path, processes=2)) == facts(scanned(tmp_path))


def slow_counts(text: bytes) -> Counter[str]:
    """How often each rule knows a line, by trying every pattern on every line."""
    counts: Counter[str] = Counter()
    last: dict[str, str] = {}
    for raw in re.split(r"\r\n|\n|\r", text.decode()):
        line = re.sub(r"\x1b\[[0-9;]*m", "", raw)
        found = re.match(r"\[rank\d+\]:? ?", line)
        launcher = found[0] if found else ""
        body = line[len(launcher) :]
        before = last.get(launcher, "") if launcher else last.get("any", "")
        if launcher:
            last[launcher] = body
        last["any"] = line
        is_frame = re.match(r'\s{2,}File "', body) is not None
        is_code = body.startswith("    ") and re.match(r'\s{2,}File "', before) is not None
        if is_frame or is_code:
            continue
        for rule in RULES.rules:
            if any(re.search(pattern, body, re.IGNORECASE | re.ASCII) for pattern in rule.patterns):
                counts[rule.id] += 1
                break
    return counts


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(texts())
def test_counts_are_those_of_trying_every_rule_on_every_line(text: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.log"
        path.write_bytes(text or b"\n")
        scan = scanned(path)
    counts: Counter[str] = Counter()
    for (rule, _, _), kept in scan.files[0].finds.events.items():
        if RULES.rules[rule].patterns:
            counts[RULES.rules[rule].id] += kept.count
    assert counts == slow_counts(text)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=2000), st.integers(1, 500))
def test_any_bytes_are_read_or_set_aside(data: bytes, chunk: int) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.log"
        path.write_bytes(data)
        if not find_logs([path])[0]:
            with pytest.raises(InputError, match="no log to read"):
                diagnose(path)
            return
        found = diagnose(path, chunk_bytes=chunk)
    if not data.startswith((b"\x1f\x8b", b"\xff\xfe", b"\xfe\xff")):
        assert (found.size_bytes, found.lines) == (len(data), data.count(b"\n"))


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300).filter(bool), st.integers(1, 50))
def test_blocks_give_the_lines(data: bytes, chunk: int) -> None:
    data = data.replace(b"\x1b", b"")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.log"
        path.write_bytes(data)
        logs, _ = find_logs([path])
        if not logs:
            return
        lines: list[bytes] = []
        numbers: list[int] = []
        feeds = 0
        for block in blocks(logs[0], chunk=chunk):
            lines += block.lines
            numbers += block.numbers[: len(block.lines)]
            feeds += block.feeds
    expected = re.split(rb"\r\n|\n|\r", data)
    if not expected[-1]:
        expected.pop()
    assert lines == expected
    assert feeds == data.count(b"\n")
    ends = list(re.finditer(rb"\r\n|\n|\r", data))
    starts = [0, *(found.end() for found in ends)]
    assert numbers == [data[:start].count(b"\n") for start in starts[: len(lines)]]


def test_a_gigantic_line_is_cut_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(b"x" * (3 * LINE_BYTES) + b" CUDA out of memory\nNo space left on device\n")
    for chunk in (1000, LINE_BYTES, 1 << 22):
        found = diagnose(path, chunk_bytes=chunk)
        assert (found.cause, found.evidence[0].line) == ("no_space", 2)
        assert (found.cut_lines, found.lines) == (1, 2)


def test_memory_does_not_grow_with_a_line(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(b"y" * (1 << 24))
    logs, _ = find_logs([path])
    held = [sum(map(len, block.lines)) for block in blocks(logs[0])]
    assert held == [LINE_BYTES]


def test_progress_bars_share_a_line_number(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(
        "start\n" + "".join(f"{n}%|███ | {n}/100\r" for n in range(100)) + "\nBroken pipe\n"
    )
    found = diagnose(path)
    assert (found.cause, found.evidence[0].line, found.lines) == ("peer_lost", 3, 3)


def test_packed_logs(tmp_path: Path) -> None:
    path = tmp_path / "run.log.gz"
    path.write_bytes(gzip.compress(b"step 1\n" * 5000 + b"No space left on device\n"))
    assert diagnose(path).cause == "no_space"
    path.write_bytes(path.read_bytes()[:-20])  # an upload that broke off
    broken = diagnose(path)
    assert [each.reason.startswith("breaks off") for each in broken.set_aside] == [True]


def test_a_log_in_utf_16(tmp_path: Path) -> None:
    """As PowerShell redirects it."""
    path = tmp_path / "run.log"
    path.write_text("step 1\nNo space left on device\n", encoding="utf-16")
    found = diagnose(path)
    assert (found.cause, found.evidence[0].line, found.lines) == ("no_space", 2, 2)


def test_what_is_no_text_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "core.log").write_bytes(bytes(range(256)) * 400)
    (tmp_path / "empty.log").touch()
    (tmp_path / "run.log").write_bytes(b"\0\0\xff\xfe Broken pipe \x00\n" * 3)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "job.out").write_text("Broken pipe\n")
    (tmp_path / "model.pt").write_bytes(b"PK\3\4")
    found = diagnose(tmp_path)
    assert (found.cause, found.files) == ("peer_lost", 2)
    assert {(Path(each.file).name, each.reason) for each in found.set_aside} == {
        ("core.log", "binary, not text"),
        ("empty.log", "empty"),
    }


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="log not found"):
        diagnose(tmp_path / "absent.log")
    with pytest.raises(InputError, match="no log to read"):
        diagnose(tmp_path)


def test_a_log_given_twice_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text("Broken pipe\n")
    found = diagnose([path, tmp_path], good=path)
    assert (found.files, found.good_files) == (1, 0)
