"""Columns that a log lacks: what they would answer is refused or unknown, never a false all-clear."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from invoking import invoke
from logs import BASE, COLUMNS, Attempt, Log, random_log

import holdfast.fleet as fleet
from holdfast.errors import InputError
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.fleet_report import FleetReport


@pytest.mark.parametrize("absent", [("Start",), ("End",), ("Start", "End"), ("State",), ("JobID",)])
def test_sacct_without_times_or_states(tmp_path: Path, absent: tuple[str, ...]) -> None:
    columns = [name for name in COLUMNS if name not in absent]
    with pytest.raises(InputError) as error:
        random_log(5, jobs=4).store(tmp_path, columns)
    assert error.value.code == "missing-column"
    assert all(name in str(error.value.problem) for name in absent)


def test_sacct_without_a_header(tmp_path: Path) -> None:
    rows = ["|".join(each.fields().values()) for each in random_log(5, jobs=10).attempts]
    log = tmp_path / "log.psv"
    log.write_text("\n".join(rows) + "\n")
    with pytest.raises(InputError) as error:
        fleet.ingest([log], tmp_path / "s")
    assert (error.value.code, error.value.place) == ("missing-header", "line 1")


def test_a_column_map_without_times(tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text('[columns]\njob_id="j"\nstate="s"\nsubmit_s="t"\n')
    (tmp_path / "log.csv").write_text("j,s,t\n1,NODE_FAIL,1767571200\n")
    with pytest.raises(InputError) as error:
        fleet.ingest([tmp_path / "log.csv"], tmp_path / "s", column_map=tmp_path / "map.toml")
    assert error.value.code == "missing-column"


def test_json_without_times(tmp_path: Path) -> None:
    job = {"job_id": 1, "state": {"current": ["NODE_FAIL"]}, "association": {}}
    (tmp_path / "log.json").write_text(json.dumps({"jobs": [job]}))
    with pytest.raises(InputError) as error:
        fleet.ingest([tmp_path / "log.json"], tmp_path / "s")
    assert error.value.code == "too-many-rejects"


def test_a_mapped_end_follows_from_the_runtime(tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text(
        '[columns]\njob_id="j"\nstate="s"\nstart_s="t"\nruntime_s="r"\n'
    )
    rows = f"1,NODE_FAIL,{BASE},60\n2,RUNNING,{BASE},60\n"
    (tmp_path / "log.csv").write_text("j,s,t,r\n" + rows)
    fleet.ingest([tmp_path / "log.csv"], tmp_path / "s", column_map=tmp_path / "map.toml")
    assert fleet.goodput(tmp_path / "s").failures == 1


@pytest.mark.parametrize("nodes", ["n[001", "n[1-999999999]"])
def test_a_node_list_that_cannot_be_read_is_told(tmp_path: Path, nodes: str) -> None:
    rows = [each.fields() for each in random_log(5, jobs=10).attempts]
    rows[1]["NodeList"] = nodes
    log = tmp_path / "log.psv"
    log.write_text("\n".join(["|".join(COLUMNS), *("|".join(row.values()) for row in rows)]) + "\n")
    fleet.ingest([log], tmp_path / "s")
    found = FleetReport(Analysis(fleet.open(tmp_path / "s"))).unknowns()
    assert any("1 node list" in each.text for each in found)


def test_nodes_that_are_unknown(tmp_path: Path) -> None:
    absent = ("NodeList", "AllocTRES", "QOS", "Timelimit")
    store = random_log(5, jobs=25).store(tmp_path, [name for name in COLUMNS if name not in absent])
    with pytest.raises(InputError) as error:
        fleet.lemons(store)
    assert error.value.code == "missing-column"
    assert invoke("lemons", store).exit_code != 0
    found = fleet.report(store, html=tmp_path / "page.html").to_dict()
    assert (found["nodes_known"], found["lemons"]) == (False, None)
    assert not any("Pull no node" in finding for finding in found["findings"])
    for name in absent:
        assert any(name in sentence for sentence in found["unknown"])
    assert not any("Submit" in sentence for sentence in found["unknown"])


def test_without_nodes_and_failures_the_missing_column_is_named(tmp_path: Path) -> None:
    path = tmp_path / "sacct.psv"
    times = "2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-02T00:00:00"
    path.write_text(f"JobID|State|Submit|Start|End\n1|COMPLETED|{times}\n")
    with pytest.raises(InputError) as error:
        fleet.mttf(path)
    assert error.value.code == "missing-column"


@pytest.mark.parametrize("state", ["RUNNING", "SUSPENDED", "COMPLETING"])
def test_what_runs_without_an_elapsed_time_runs_until_the_log_ends(
    tmp_path: Path, state: str
) -> None:
    log = Log(
        [
            Attempt(1, tuple(f"n{k}" for k in range(20)), 0, None, state, runtime_s=0),
            Attempt(2, tuple(f"m{k}" for k in range(20)), 9 * 86_400, 10 * 86_400, "NODE_FAIL"),
            Attempt(3, ("n0",), None, None, "PENDING", submit=0),
        ]
    )
    columns = [name for name in COLUMNS if name != "ElapsedRaw"]
    opened = fleet.open(log.store(tmp_path, columns))
    assert fleet.status(opened).node_hours == 220 * 24
    assert fleet.mttf(opened).model.node_days_ == 220
    assert opened.untimed == 1
    told = [each.text for each in fleet.report(opened).unknowns()]
    assert any(text.startswith("1 running attempt ") for text in told)
