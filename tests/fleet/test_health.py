from __future__ import annotations

import csv
import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import read, rejected, rows

from holdfast.errors import InputError
from holdfast.fleet.formats.batch import Format, ReadOptions
from holdfast.fleet.formats.source import BLOCK_BYTES
from holdfast.fleet.formats.tabular import HEALTH_CSV as CSV
from holdfast.fleet.formats.tabular import HEALTH_JSON as JSON_LINES

COLUMNS = ("node", "check", "severity", "result", "message", "xid")


def test_the_testbed(testbed: Path) -> None:
    tables = read(JSON_LINES, testbed / "health_events.jsonl")
    events = tables["health"]
    assert events.num_rows == 59
    assert rejected(tables) == []
    first = datetime(2026, 11, 20, 10, 49, 24, 370000, tzinfo=UTC).timestamp()
    assert events.column("time_s")[0].as_py() == pytest.approx(first, abs=1e-6)
    found = rows(events, *COLUMNS)
    assert found[0] == (
        "node10",
        "link flaps",
        "LOW",
        "warn",
        "mlx5_0: 2 flaps in the last hour",
        None,
    )
    # Labelled by hand: the four "xid errors" name their XID in the message only.
    assert sorted(row[5] for row in found if row[5] is not None) == [48, 74, 79, 79]
    assert {row[1] for row in found if row[5] is not None} == {"xid errors"}


TIMES = [
    ("2026-07-01T12:00:00.5", "UTC", 1782907200.5),
    ("2026-07-01 12:00:00", "Europe/Berlin", 1782900000.0),
    ("2026-07-01T12:00:00Z", "Europe/Berlin", 1782907200.0),
    ("2026-07-01T12:00:00+02:00", "UTC", 1782900000.0),
    (1782907200, "Europe/Berlin", 1782907200.0),
    (1782907200.25, "UTC", 1782907200.25),
    (1782907200250, "UTC", 1782907200.25),
    ("1782907200.25", "UTC", 1782907200.25),
    ("1782907200250000", "UTC", 1782907200.25),
    (0, "UTC", None),
    ("1969-12-31T23:59:59", "UTC", None),
    ("yesterday", "UTC", None),
    (None, "UTC", None),
]


@pytest.mark.parametrize(("time", "zone", "expected"), TIMES)
@pytest.mark.parametrize("known", [JSON_LINES, CSV], ids=lambda known: known.name)
def test_times(
    tmp_path: Path, known: Format, time: object, zone: str, expected: float | None
) -> None:
    path = tmp_path / "events"
    if known is JSON_LINES:
        path.write_text(json.dumps({"time": time, "node": "n1", "check": "c"}) + "\n")
    else:
        path.write_text(f"time,node,check\n{'' if time is None else time},n1,c\n")
    tables = read(known, path, ReadOptions(timezone=ZoneInfo(zone)))
    found = tables["health"].column("time_s").to_pylist()
    if expected is None:
        assert found == []
        line = 1 if known is JSON_LINES else 2
        assert rejected(tables) == [(line, "no time that can be read")]
    else:
        assert found == [pytest.approx(expected, abs=1e-6)]


@pytest.mark.parametrize(
    ("severity", "result", "expected"),
    [
        ("HIGH", "fail", ("HIGH", "fail")),
        ("critical", "CRITICAL", ("HIGH", "fail")),
        ("Warning", "WARN", ("LOW", "warn")),
        ("info", "ok", ("LOW", "ok")),
        ("", "", ("", "fail")),
        ("P1", "passed", ("HIGH", "ok")),
        ("strange", "0", ("", "ok")),
        ("", "1", ("", "warn")),
        ("", "2", ("", "fail")),
        ("", "3", ("", "warn")),
    ],
)
def test_severity_and_result(
    tmp_path: Path, severity: str, result: str, expected: tuple[str, str]
) -> None:
    path = tmp_path / "events.csv"
    path.write_text(
        f"timestamp,host,check_name,level,status\n1782907200,n1,c,{severity},{result}\n"
    )
    assert rows(read(CSV, path)["health"], "severity", "result") == [expected]


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ({"result": True}, "ok"),
        ({"result": False}, "fail"),
        ({"passed": True}, "ok"),
        ({"passed": 1}, "ok"),
        ({"ok": 0}, "fail"),
        ({"healthy": 0.0}, "fail"),
        ({"success": "1"}, "ok"),
        ({"result": 0}, "ok"),
        ({"ok": None, "rc": 2}, "fail"),
        ({"healthy": False}, "fail"),
        ({"state": "OK"}, "ok"),
        ({"rc": 0}, "ok"),
        ({"rc": 2}, "fail"),
    ],
    ids=str,
)
def test_outcome_of_a_check_that_reports_each_run(
    tmp_path: Path, outcome: dict[str, object], expected: str
) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(json.dumps({"time": 1782907200, "node": "n1", "check": "c", **outcome}) + "\n")
    assert rows(read(JSON_LINES, path)["health"], "result") == [(expected,)]


def test_tickets_with_other_column_names(tmp_path: Path) -> None:
    path = tmp_path / "tickets.csv"
    path.write_text(
        "Opened;Host;Check;Summary\n"
        '2026-07-01T12:00:00Z;n1;ticket;"slow; two\nlines"\n'
        ";n2;ticket;no time\n"
        "2026-07-01T12:00:00Z;;ticket;no node\n"
        "2026-07-01T12:00:00Z;n3;;no check\n"
        "2026-07-01T12:00:00Z;n4;ticket;one;too many\n"
    )
    tables = read(CSV, path)
    assert rows(tables["health"], *COLUMNS) == [
        ("n1", "ticket", "", "fail", "slow; two\nlines", None)
    ]
    assert rejected(tables) == [
        (4, "no time that can be read"),
        (5, "no node"),
        (6, "no check"),
        (7, "another number of fields than the header"),
    ]


def test_bad_lines_do_not_harm_the_good_ones(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(
        b'\xef\xbb\xbf{"time": 1782907200, "node": "n1", "check": "a"}\r\n'
        b"\n"
        b'{"time": "2026-07-01T12:00:00Z", "host": "n2", "check": "b", "xid": 79, "extra": {"x": [1]}}\n'
        b'{"time": 1782907200, "node": "n3", "check": "c"\n'
        b"[1, 2]\n"
        b'{"time": 1782907200, "node": "n\xff4", "check": "d", "message": "\\ud800"}\n'
        b'{"time": 1782907200, "node": "n5"}'
    )
    tables = read(JSON_LINES, path)
    assert rows(tables["health"], "node", "check", "xid") == [
        ("n1", "a", None),
        ("n2", "b", 79),
        ("n\ufffd4", "d", None),
    ]
    assert rejected(tables) == [
        (4, "not JSON"),
        (5, "not a JSON object"),
        (7, "no check"),
    ]


def test_a_long_log_is_read_in_blocks(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    line = '{"time": 1782907200, "node": "n1", "check": "c", "message": "' + "x" * 4000 + '"}\n'
    count = 2 * BLOCK_BYTES // len(line)
    path.write_text(line * count + "broken\n")
    batches = list(JSON_LINES.read(path, ReadOptions()))
    assert len(batches) > 1
    assert sum(batch.tables["health"].num_rows for batch in batches) == count


@pytest.mark.parametrize("text", ["time,node,check", "time,node,check\n"])
def test_a_header_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "events.csv"
    path.write_text(text)
    assert rejected(read(CSV, path)) == []


def test_an_open_quote_swallows_nothing_silently(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text('time,node,check\n1782907200,n1,a\n1782907200,n1,"b\n1782907200,n2,c\n')
    tables = read(CSV, path)
    assert rows(tables["health"], "node", "check") == [("n1", "a")]
    assert rejected(tables) == [(3, "a line break in check (an open quote?)")]


@pytest.mark.parametrize("known", [JSON_LINES, CSV], ids=lambda known: known.name)
def test_a_compressed_file_that_was_cut_off(tmp_path: Path, known: Format) -> None:
    plain = "time,node,check\n1782907200,n1,c\n"
    if known is JSON_LINES:
        plain = '{"time": 1782907200, "node": "n1", "check": "c"}\n'
    path = tmp_path / "events.gz"
    path.write_bytes(gzip.compress(plain.encode() * 100_000))
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(InputError, match="cannot be read"):
        read(known, path)


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\x00"), max_size=30)
EVENT = st.fixed_dictionaries(
    {
        "time": st.integers(10**9, 1_790_000_000),
        "node": st.from_regex(r"[a-z]{1,5}[0-9]{0,3}", fullmatch=True).filter(
            lambda name: name not in ("none", "null", "unknown")
        ),
        "check": st.sampled_from(["ib link", "check, quoted", 'a "b" c', "xid errors"]),
        "severity": st.sampled_from(["HIGH", "LOW", ""]),
        "result": st.sampled_from(["fail", "warn", "ok"]),
        "message": TEXT.filter(lambda text: "xid" not in text.lower()),
        "xid": st.none() | st.integers(1, 9999),
    }
)


@pytest.mark.examples(10)
@pytest.mark.parametrize("known", [JSON_LINES, CSV], ids=lambda known: known.name)
@settings(max_examples=40)
@given(events=st.lists(EVENT, min_size=1, max_size=6))
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory, known: Format, events: list[dict[str, object]]
) -> None:
    path = tmp_path_factory.mktemp("health") / "events"
    with path.open("w", encoding="utf-8", newline="") as file:
        if known is CSV:
            writer = csv.DictWriter(file, events[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(events)
        else:
            file.writelines(json.dumps(event, ensure_ascii=False) + "\n" for event in events)
    tables = read(known, path)
    assert rejected(tables) == []
    assert rows(tables["health"], "time_s", *COLUMNS) == [
        tuple(event[name] for name in ("time", *COLUMNS)) for event in events
    ]


@pytest.mark.examples(10)
@settings(max_examples=40)
@given(events=st.lists(EVENT, min_size=1, max_size=6))
def test_a_broken_line_changes_no_other(
    tmp_path_factory: pytest.TempPathFactory, events: list[dict[str, object]]
) -> None:
    folder = tmp_path_factory.mktemp("health")
    lines = [json.dumps(event) + "\n" for event in events]
    (folder / "clean").write_text("".join(lines))
    (folder / "broken").write_text("".join([*lines, "{\n"]))
    clean, broken = (read(JSON_LINES, folder / name) for name in ("clean", "broken"))
    assert clean["health"].equals(broken["health"])
    assert rejected(broken) == [(len(lines) + 1, "not JSON")]
