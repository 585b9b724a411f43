from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import read, rejected, rows

from holdfast.errors import InputError
from holdfast.fleet.formats.batch import ReadOptions
from holdfast.fleet.formats.node_log import NODE_LOG

COLUMNS = ("node", "start_s", "end_s", "state", "cause")


def test_a_plain_log(tmp_path: Path) -> None:
    path = tmp_path / "failures.csv"
    path.write_text(
        "node,start,end,cause\n"
        "n1,2026-07-01T12:00:00,2026-07-01T13:00:00,nvlink\n"
        "n2,1782907200,,\n"
        ",1782907200,,\n"
        "n3,,,\n"
        "n4,1782907200,1782907100,x\n"
        "n5,1782907200,later,x\n"
        "n6\n"
    )
    tables = read(NODE_LOG, path, ReadOptions(timezone=ZoneInfo("Europe/Berlin")))
    assert rows(tables["node_outages"], *COLUMNS) == [
        ("n1", 1782900000, 1782903600, "FAILURE", "nvlink"),
        ("n2", 1782907200, None, "FAILURE", None),
    ]
    assert rejected(tables) == [
        (4, "no node"),
        (5, "no start time that can be read"),
        (6, "it ends before it starts"),
        (7, "no end time that can be read"),
        (8, "another number of fields than the header"),
    ]


def test_in_the_style_of_the_lanl_release(tmp_path: Path) -> None:
    path = tmp_path / "lanl.csv"
    path.write_text(
        "System,nodenum,Prob Started (mm/dd/yy hh:mm),Prob Fixed (mm/dd/yy hh:mm),Down Time,"
        "Facilities,Hardware,Human Error,Network,Undetermined,Software\n"
        "20,12,6/21/05 14:26,6/21/05 15:08,42,,Memory Dimm,,,,\n"
        "20,13,6/22/2005 1:05,,,,,,,Undetermined,\n"
    )
    start = datetime(2005, 6, 21, 14, 26, tzinfo=UTC).timestamp()
    second = datetime(2005, 6, 22, 1, 5, tzinfo=UTC).timestamp()
    assert rows(read(NODE_LOG, path)["node_outages"], *COLUMNS) == [
        ("12", start, start + 42 * 60, "FAILURE", "Hardware: Memory Dimm"),
        ("13", second, None, "FAILURE", "Undetermined: Undetermined"),
    ]


def test_another_file(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("time,node,check\n")
    with pytest.raises(InputError, match="node failures"):
        list(NODE_LOG.read(path, ReadOptions(), 0))


@given(
    st.lists(
        st.tuples(
            st.from_regex(r"[a-z]{1,4}[0-9]{1,4}", fullmatch=True),
            st.integers(10**9, 1_790_000_000),
            st.none() | st.integers(0, 10**6),
            st.sampled_from(["disk, two", 'a "b"', "ib_link", ""]),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory, outages: list[tuple[str, int, int | None, str]]
) -> None:
    path = tmp_path_factory.mktemp("log") / "failures.csv"
    lines = ["host;failed;repaired;root_cause"]
    for node, start, length, cause in outages:
        quoted = '"' + cause.replace('"', '""') + '"'
        lines.append(f"{node};{start};{'' if length is None else start + length};{quoted}")
    path.write_text("\n".join(lines) + "\n")
    assert rows(read(NODE_LOG, path)["node_outages"], *COLUMNS) == [
        (node, start, None if length is None else start + length, "FAILURE", cause or None)
        for node, start, length, cause in outages
    ]
