from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import Attempt, Log
from reading import read, rejected, rows

import holdfast.fleet as fleet
from holdfast.fleet.formats.batch import ReadOptions
from holdfast.fleet.formats.xid import XID, host_of_file
from holdfast.fleet.ingest_following import Follower

SAID = "Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."
TEN_49 = datetime(2026, 11, 20, 10, 49, 15, tzinfo=UTC).timestamp()

# How the same event reads in each place where the kernel's messages are kept.
LINES = [
    f"[Fri Nov 20 10:49:15 2026] NVRM: {SAID}",
    f"node05: [Fri Nov 20 10:49:15 2026] NVRM: {SAID}",
    f"2026-11-20T10:49:15,000000+00:00 NVRM: {SAID}",
    f"Nov 20 10:49:15 node05 kernel: NVRM: {SAID}",
    f"Nov 20 10:49:15 node05 kernel: [123456.789012] NVRM: {SAID}",
    f"<4>Nov 20 10:49:15 node05 kernel: NVRM: {SAID}",
    f"2026-11-20T10:49:15+0000 node05 kernel: NVRM: {SAID}",
    f"2026-11-20T12:49:15.000000+02:00 node05 kernel: NVRM: {SAID}",
    f"Fri 2026-11-20 10:49:15 UTC node05 kernel: NVRM: {SAID}",
]


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    os.utime(path, (TEN_49 + 3600, TEN_49 + 3600))
    return path


@pytest.mark.parametrize("line", LINES)
def test_every_place(tmp_path: Path, line: str) -> None:
    path = write(tmp_path / "dmesg-node05.log", line + "\n")
    tables = read(XID, path)
    assert rejected(tables) == []
    assert rows(
        tables["health"], "time_s", "node", "check", "severity", "result", "message", "xid"
    ) == [(TEN_49, "node05", "xid 79", "", "fail", SAID, 79)]


def test_what_was_guessed_is_said(tmp_path: Path) -> None:
    def inferred(name: str, line: str) -> object:
        path = write(tmp_path / name, line + "\n")
        return [batch.facts.get("inferred") for batch in XID.read(path, ReadOptions())]

    assert inferred("a.log", LINES[1]) == [None]
    assert "file's name" in str(inferred("dmesg-node05.log", LINES[0]))
    assert "no year" in str(inferred("b.log", LINES[3]))


def test_a_missing_year_is_the_last_that_fits(tmp_path: Path) -> None:
    lines = [
        "Nov 20 10:49:15 n1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, x",
        "Nov 23 10:49:15 n1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, x",
        "Feb 29 10:49:15 n1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, x",
    ]
    path = write(tmp_path / "kern.log", "\n".join(lines) + "\n")
    times = read(XID, path)["health"].column("time_s").to_pylist()
    days = [datetime.fromtimestamp(time, UTC).date().isoformat() for time in times]
    assert days == ["2026-11-20", "2025-11-23", "2024-02-29"]


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("name", ["a-kern.log", "z-kern.log"])
def test_the_jobs_tell_a_missing_year(tmp_path: Path, name: str, before: bool) -> None:
    """A copy of an old kernel log has the time of the copy: its events belong to the jobs of their year."""
    jobs = Log([Attempt(1, ("n1",), 0, 3600, "NODE_FAIL")])  # ends on 2026-01-05 at 01:00
    files = jobs.write(tmp_path / "logs")
    text = "Jan 05 00:59:50 n1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, x\n"
    kernel = write(tmp_path / "logs" / name, text)
    os.utime(kernel, (TEN_49 + 400 * 86_400,) * 2)
    store = tmp_path / "store"
    if before:
        fleet.ingest(files, store)
        files = []
    told = fleet.ingest(sorted([*files, kernel]), store)
    assert any("2026" in each for each in told.inferred)
    watched = tmp_path / "watched"
    Follower([tmp_path / "logs"], watched).look()
    for each in (store, watched):
        [cause] = fleet.attribute(each, "1").attempts[0]["causes"]
        assert cause["offset_s"] == -10


def test_local_time(tmp_path: Path) -> None:
    path = write(tmp_path / "node05.dmesg", LINES[0] + "\n")
    tables = read(XID, path, ReadOptions(timezone=ZoneInfo("Europe/Berlin")))
    assert tables["health"].column("time_s").to_pylist() == [TEN_49 - 3600]


def test_other_lines_pass_and_bad_ones_are_set_aside(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    path = write(
        folder / "messages",
        "Nov 20 10:49:15 node05 kernel: usb 1-1: new device\n"
        "Nov 20 10:49:15 node05 sshd[7]: hello\n"
        "Nov 20 10:49:15 node05 kernel: NVRM: Xid (PCI:00\n"
        "[  123.456] NVRM: Xid (PCI:0000:3b:00): 48, DBE\n"
        "once NVRM: Xid (PCI:0000:3b:00): 48, DBE\n"
        "Nov 31 10:49:15 node05 kernel: NVRM: Xid (PCI:0000:3b:00): 48, DBE\n"
        "[Fri Nov 20 10:49:15 2026] NVRM: Xid (PCI:0000:3b:00): 48, DBE\n"
        "Nov 20 10:49:15 node05 kernel: NVRM: Xid (0000:3b:00): 48, DBE\n",
    )
    tables = read(XID, path)
    assert rows(tables["health"], "xid", "message") == [(48, "Xid (0000:3b:00): 48, DBE")]
    assert [line for line, _ in rejected(tables)] == [3, 4, 5, 6, 7]
    assert "dmesg -T" in rejected(tables)[1][1]


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("dmesg-node05.log", "node05"),
        ("node05.dmesg.gz", "node05"),
        ("gpu-node-17_kern.log.1", "gpu-node-17"),
        ("kern.log", None),
        ("a.b.log", None),
    ],
)
def test_host_of_file(tmp_path: Path, name: str, host: str | None) -> None:
    folder = tmp_path / "logs"
    assert host_of_file(folder / name) == host
    assert host_of_file(tmp_path / "node07" / "dmesg.txt") == "node07"


@pytest.mark.examples(10)
@settings(max_examples=40)
@given(
    st.integers(10**9, 1_790_000_000),
    st.from_regex(r"[a-z][a-z0-9\-]{0,8}[0-9]", fullmatch=True),
    st.integers(1, 999),
    st.text(st.characters(codec="ascii", categories=["L", "N", "P", "Zs"]), max_size=30),
)
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory, time: int, host: str, xid: int, text: str
) -> None:
    stamp = datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%S+0000")
    said = f"Xid (PCI:0000:0a:00): {xid}, {text}"
    path = tmp_path_factory.mktemp("xid") / "journal.txt"
    path.write_text(f"{stamp} {host} kernel: NVRM: {said}\n")
    table = read(XID, path)["health"]
    assert rows(table, "time_s", "node", "xid", "message") == [(time, host, xid, said)]
