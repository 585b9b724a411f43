from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import read, rejected, rows

import holdfast.fleet as fleet
from holdfast.errors import InputError
from holdfast.fleet.formats.batch import ReadOptions
from holdfast.fleet.formats.tabular import NODE_LOG

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
        ("12", start, start + 42 * 60, "FAILURE", None),
        ("13", second, None, "FAILURE", None),
    ]


@pytest.mark.parametrize(
    ("dates", "found"),
    [
        (["03/01/25 06:00", "03/14/25 06:00"], [(3, 1), (3, 14)]),
        (["03/01/2025 06:00", "14/01/2025 06:00"], [(1, 3), (1, 14)]),
        (["2025-01-03T06:00:00", "31/12/25 06:00"], [(1, 3), (12, 31)]),
        (["2025-01-03T06:00:00", "12/11/2025 06:00"], None),
        (["03/01/2025 06:00", "01/12/2025 06:00"], None),
    ],
)
def test_the_order_of_day_and_month(
    tmp_path: Path, dates: list[str], found: list[tuple[int, int]] | None
) -> None:
    """A day over 12 tells it for the whole column; without one it is asked for."""
    path = tmp_path / "failures.csv"
    path.write_text("node,failed,cause\n" + "".join(f"n1,{date},disk\n" for date in dates))
    if found is None:
        with pytest.raises(InputError) as caught:
            read(NODE_LOG, path)
        assert (caught.value.code, caught.value.place) == ("ambiguous", "columns failed")
        return
    starts = read(NODE_LOG, path)["node_outages"]["start_s"].to_pylist()
    days = [datetime.fromtimestamp(start, UTC) for start in starts]
    assert [(day.month, day.day) for day in days] == found


def test_another_file(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("time,node,check\n")
    with pytest.raises(InputError, match="node failures"):
        list(NODE_LOG.read(path, ReadOptions()))


@pytest.mark.examples(10)
@settings(max_examples=40)
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


def failure_log(path: Path, cluster: bool = False) -> Path:
    """40 failures of n1, one of each of n2 ... n9, one node a day; n1 twice in one moment."""
    day, start = 86_400, 1_767_571_200
    rows = [("a", "n1", start + day * i, "nvlink") for i in range(40)]
    rows += [("a", f"n{i}", start + day * i, "memory") for i in range(2, 10)]
    rows += [("a", "n1", start, "memory")]
    if cluster:
        rows += [("b", "n1", start + day * 5, "memory")]
    lines = [
        f"{own},{node},{time},{time + 3600},{cause}"
        if cluster
        else f"{node},{time},{time + 3600},{cause}"
        for own, node, time, cause in rows
    ]
    path.write_text(
        ("system," if cluster else "") + "node,start,end,cause\n" + "\n".join(lines) + "\n"
    )
    return path


def test_answers_of_a_failure_log(tmp_path: Path) -> None:
    log = failure_log(tmp_path / "failures.csv")
    result = fleet.ingest([log], tmp_path / "s")
    assert (result.node_outages, result.attempts) == (49, 0)
    assert result.time_range == ("2026-01-05T00:00:00Z", "2026-02-13T01:00:00Z")
    found, rate = fleet.lemons(tmp_path / "s"), fleet.mttf(tmp_path / "s")
    assert found.lemons == ["n1"]
    worst = found.nodes.to_pylist()[0]
    days = 39 + 1 / 24  # from the first failure to the last repair
    assert (worst["node"], worst["failures"]) == ("n1", 40)
    assert worst["node_days"] == pytest.approx(days - 40 / 24)
    assert rate.model.node_days_ == pytest.approx(9 * days - 48 / 24)
    assert (found.to_dict()["nodes_known"], rate.to_dict()["nodes_known"]) == (False, False)
    fleet.ingest([log], tmp_path / "t", nodes=100)
    found, rate = fleet.lemons(tmp_path / "t"), fleet.mttf(tmp_path / "t")
    assert rate.model.node_days_ == pytest.approx(100 * days - 48 / 24)
    assert (found.to_dict()["nodes_known"], rate.to_dict()["nodes_known"]) == (True, True)
    assert (found.lemons[0], found.nodes.num_rows) == ("n1", 9)
    assert found.nodes.to_pylist()[0]["q_value"] < worst["q_value"]


def test_what_failures_cost_is_unknown_without_attempts(tmp_path: Path) -> None:
    """Neither a table of zeros nor a word on causes or preemptions."""
    fleet.ingest([failure_log(tmp_path / "failures.csv")], tmp_path / "s")
    [only] = fleet.goodput(tmp_path / "s").sections()
    assert (only.id, list(only.tables), list(only.figures)) == ("loss", [], [])


def test_a_failure_log_of_two_systems(tmp_path: Path) -> None:
    fleet.ingest([failure_log(tmp_path / "failures.csv", cluster=True)], tmp_path / "s")
    found = fleet.lemons(tmp_path / "s")
    assert found.lemons == ["a:n1"]
    assert {row["node"]: row["failures"] for row in found.nodes.to_pylist()}["b:n1"] == 1


@pytest.mark.parametrize(
    ("failures", "down_days"),
    [
        # Node, day of the failure, day of the end; the log is ten days long.
        ([("a", 0, ""), ("b", 4, ""), ("c", 10, "")], 0),  # no end is stated: they were up again
        ([("a", 0, ""), ("a", 4, ""), ("a", 10, "")], 0),
        ([("a", 0, 1), ("b", 4, ""), ("c", 10, 10)], 1 + 6),  # b is still down
        ([("a", 0, 1), ("b", 4, ""), ("b", 6, 7), ("c", 10, 10)], 1 + 1),  # b was up to fail again
        ([("a", 0, 1), ("b", 4, ""), ("b", 6, ""), ("c", 10, 10)], 1 + 4),
    ],
)
def test_time_down_where_ends_are_not_stated(
    tmp_path: Path, failures: list[tuple[str, int, int | str]], down_days: float
) -> None:
    def at(day: int | str) -> str:
        return "" if day == "" else str(1_782_907_200 + 86_400 * int(day))

    lines = [f"{node},{at(start)},{at(end)},x" for node, start, end in failures]
    (tmp_path / "log.csv").write_text("\n".join(["node,start,end,cause", *lines]) + "\n")
    fleet.ingest([tmp_path / "log.csv"], tmp_path / "store", nodes=5)
    model = fleet.mttf(fleet.open(tmp_path / "store")).model
    assert model.node_days_ == pytest.approx(5 * 10 - down_days, abs=1e-3)


def test_whether_nodes_fail_alike_needs_those_that_did_not_fail(tmp_path: Path) -> None:
    """Twenty nodes that fail once each are alike among 20 or 2,000; alone they say nothing."""
    path = tmp_path / "failures.csv"
    lines = [
        f"n{day},2026-07-{day + 1:02}T12:00:00,2026-07-{day + 1:02}T13:00:00," for day in range(20)
    ]
    path.write_text("\n".join(["node,start,end,cause", *lines]) + "\n")
    answers = {}
    for nodes in (None, 20, 2000):
        fleet.ingest([path], tmp_path / f"store{nodes}", nodes=nodes, timezone="UTC")
        answers[nodes] = fleet.mttf(tmp_path / f"store{nodes}").to_dict()["dispersion"]
    assert [answers[nodes]["between"] for nodes in (None, 20, 2000)] == ["nodes"] * 3
    assert answers[None]["p_value"] is None
    assert answers[20]["p_value"] > 0.05
    assert answers[2000]["p_value"] > 0.05
