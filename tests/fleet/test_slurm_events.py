from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import read, rejected, rows

from holdfast.fleet.formats.batch import ReadOptions
from holdfast.fleet.formats.tabular import SLURM_EVENTS


def at(clock: str) -> int:
    return int(datetime.fromisoformat(f"2026-11-20T{clock}+00:00").timestamp())


def test_the_testbed(testbed: Path) -> None:
    outages = read(SLURM_EVENTS, testbed / "sacctmgr_events.txt")["node_outages"]
    # 29 lines below the header, one of them the cluster's own.
    assert outages.num_rows == 28
    labelled = rows(outages, "node", "start_s", "end_s", "state", "reason")
    assert labelled[0] == ("node01", at("10:54:41"), at("10:55:19"), "DOWN", "Not responding")
    assert labelled[4] == ("node02", at("11:02:46"), at("11:03:29"), "DOWN", "hc: check iblink")
    assert labelled[15] == ("node07", at("10:51:40"), at("10:52:01"), "DRAIN", "firmware upgrade")
    assert {state for _, _, _, state, _ in labelled} == {"DOWN", "DRAIN"}


def test_subset_delimiter_zone_and_bad_rows(tmp_path: Path) -> None:
    path = tmp_path / "events.txt"
    path.write_text(
        "NodeName;TimeStart;TimeEnd;State\n"
        "n1;2026-07-01T12:00:00;Unknown;DRAIN$\n"
        "n2;Unknown;2026-07-01T12:00:00;DOWN\n"
        "n3;2026-07-01T12:00:00;2026-07-01T11:00:00;DOWN\n"
        "n4;2026-07-01T12:00:00;soon;DOWN\n"
        "n5;too;many;fields;here\n"
        ";2026-07-01T12:00:00;Unknown;\n"
    )
    tables = read(SLURM_EVENTS, path, ReadOptions(timezone=ZoneInfo("Europe/Berlin")))
    start = int(datetime(2026, 7, 1, 10, tzinfo=UTC).timestamp())
    assert rows(tables["node_outages"], "node", "start_s", "end_s", "state") == [
        ("n1", start, None, "DRAIN")
    ]
    assert rejected(tables) == [
        (3, "no start time that can be read"),
        (4, "it ends before it starts"),
        (5, "no end time that can be read"),
        (6, "another number of fields than the header"),
    ]


WORDS = st.text(
    st.characters(codec="utf-8", categories=["L", "N", "P", "S"], exclude_characters="|")
)
OUTAGE = st.tuples(
    st.from_regex(r"[a-z]{1,4}[0-9]{1,4}", fullmatch=True),
    st.integers(10**9, 1_790_000_000),
    st.none() | st.integers(0, 10**6),
    st.sampled_from(["DOWN", "DRAIN", "FAIL", "MAINT", "IDLE+DRAIN"]),
    WORDS,
)


@pytest.mark.examples(10)
@settings(max_examples=40)
@given(st.lists(OUTAGE, min_size=1, max_size=5))
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory, outages: list[tuple[str, int, int | None, str, str]]
) -> None:
    path = tmp_path_factory.mktemp("events") / "events.txt"
    lines = ["Cluster|NodeName|TimeStart|TimeEnd|State|Reason"]
    for node, start, length, state, reason in outages:
        stamps = [
            "Unknown" if s is None else datetime.fromtimestamp(s, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            for s in (start, None if length is None else start + length)
        ]
        lines.append("|".join(["c", node, *stamps, state + "*", reason]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    tables = read(SLURM_EVENTS, path)
    assert rejected(tables) == []
    assert rows(tables["node_outages"], "node", "start_s", "end_s", "state", "reason") == [
        (node, start, None if length is None else start + length, state, reason)
        for node, start, length, state, reason in outages
    ]


def test_a_delimiter_in_the_reason(tmp_path: Path) -> None:
    # As a real cluster printed it: `scontrol update ... reason="cable reseat | ticket 4711"`.
    path = tmp_path / "events.txt"
    path.write_text(
        "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User|Duration|TRES\n"
        "c|n7|2026-11-20T13:38:41|2026-11-20T13:39:08|DOWN|hc: check blockdev|root(0)|00:00:27|cpu=96\n"
        "c|n8|2026-11-20T13:38:13|2026-11-20T13:38:31|DRAIN|cable reseat | ticket 4711|root(0)|00:00:18|"
        "cpu=96\n"
        "c|n9|2026-11-20T13:38:13|DRAIN\n"
    )
    tables = read(SLURM_EVENTS, path)
    assert rows(tables["node_outages"], "node", "start_s", "end_s", "reason") == [
        ("n7", at("13:38:41"), at("13:39:08"), "hc: check blockdev"),
        ("n8", at("13:38:13"), at("13:38:31"), "cable reseat | ticket 4711"),
    ]
    assert [line for line, *_ in rejected(tables)] == [4]
