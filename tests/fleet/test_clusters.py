"""Two clusters that name their nodes, jobs and partitions alike stay apart."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from logs import COLUMNS, Attempt, Log, stamp

import holdfast.fleet as fleet
from holdfast.errors import InputError, StoreError
from holdfast.fleet import FleetLog
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.console import evidence
from holdfast.fleet.gaps import doubts, unlike_clusters

DAY = 86_400
NODES = tuple(f"n{i}" for i in range(1, 11))


def attempts() -> list[Attempt]:
    """Ten nodes, two days each; n1 fails four times a day."""
    quiet = [Attempt(i, (node,), 0, 2 * DAY) for i, node in enumerate(NODES[1:], start=1)]
    step = DAY // 4
    failing = [Attempt(100 + i, ("n1",), i * step, (i + 1) * step, "NODE_FAIL") for i in range(8)]
    return [*quiet, *failing]


def write(folder: Path, *, outages: str = "") -> list[Path]:
    """The same jobs on both clusters; only alpha's n1 fails, and beta's takes it for a preemption."""
    alpha = attempts()
    beta = [replace(each, state="COMPLETED") for each in alpha]
    alpha.append(Attempt(200, ("n2",), 0, 600, "PREEMPTED", qos="low", priority=1))
    beta.append(Attempt(300, ("n2",), 600, 700, qos="high", priority=9, submit=500))
    rows = [
        {**each.fields(), "Cluster": name}
        for name, own in (("alpha", alpha), ("beta", beta))
        for each in own
    ]
    lines = ["|".join(COLUMNS), *("|".join(row[name] for name in COLUMNS) for row in rows)]
    (folder / "sacct.psv").write_text("\n".join(lines) + "\n")
    if not outages:
        return [folder / "sacct.psv"]
    down = f"n1|{stamp(DAY)}|{stamp(DAY + 60)}|DOWN|why|root(0)\n"
    header = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
    (folder / "events.txt").write_text(header + f"{outages}|{down}")
    return [folder / "sacct.psv", folder / "events.txt"]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> FleetLog:
    folder = tmp_path_factory.mktemp("both")
    fleet.ingest(write(folder, outages="beta"), folder / "store")
    return fleet.open(folder / "store")


def test_nodes_are_those_of_each_cluster(both: FleetLog) -> None:
    assert both.count("nodes") == 20
    found = fleet.lemons(both)
    days = {row["node"]: row["node_days"] for row in found.nodes.to_pylist()}
    assert days["alpha:n1"] == pytest.approx(2, rel=1e-3)
    assert days["beta:n1"] == pytest.approx(2, rel=1e-3)
    assert found.lemons == ["alpha:n1"]


def test_a_lemon_is_one_beside_its_own_cluster(tmp_path: Path) -> None:
    """Every node of beta fails as often as alpha's one bad node."""
    logs = {
        "alpha": {f"n{k:02d}": {3: range(0, 40, 3)}.get(k, range(k, 40, 40)) for k in range(20)},
        "beta": {f"n{k:02d}": range(k % 3, 40, 3) for k in range(8)},
    }
    for cluster, nodes in logs.items():
        log = Log(
            [
                Attempt(
                    100 * place + day,
                    (node,),
                    DAY * day,
                    DAY * day + 3600 * (1 + (place + day) % 20),
                    "NODE_FAIL" if day in days else "COMPLETED",
                )
                for place, (node, days) in enumerate(nodes.items(), 1)
                for day in range(40)
            ]
        )
        [path] = log.write(tmp_path / cluster)
        path.write_text(path.read_text().replace("|c|", f"|{cluster}|"))
        for store in (cluster, "both"):
            fleet.ingest([path], tmp_path / f"store-{store}")
    lemons = {name: fleet.lemons(tmp_path / f"store-{name}").lemons for name in (*logs, "both")}
    assert lemons == {"alpha": ["n03"], "beta": [], "both": ["alpha:n03"]}


def test_evidence_and_preemptors_are_of_the_same_cluster(both: FleetLog) -> None:
    (failed,) = fleet.attribute(both, "alpha:103").attempts
    assert failed["failed_nodes"] == []  # the outage at its end is beta's
    victims = both.arrow(fleet.preemptions(both)).to_pandas()
    assert list(victims["preemptor_key"].isna()) == [True]


def check(folder: Path, node: str) -> Path:
    event = {"time": "2026-01-05T06:00:00Z", "node": node, "check": "check nvlink"}
    (folder / f"{node}.jsonl").write_text(json.dumps(event) + "\n")
    return folder / f"{node}.jsonl"


def test_a_source_without_a_cluster_needs_one(tmp_path: Path) -> None:
    log, events = write(tmp_path)[0], check(tmp_path, "n1")
    with pytest.raises(InputError) as error:
        fleet.ingest([log, events], tmp_path / "store")
    assert error.value.code == "unknown-cluster"
    fleet.ingest([events], tmp_path / "before")
    with pytest.raises(InputError) as error:  # what was ingested before the second cluster came
        fleet.ingest([log], tmp_path / "before")
    assert error.value.code == "unknown-cluster"
    fleet.ingest([log], tmp_path / "store")
    fleet.ingest([events], tmp_path / "store", cluster="alpha")
    opened = fleet.open(tmp_path / "store")
    assert [row["node"] for row in opened.rows(opened.table("health"))] == ["alpha:n1"]
    assert [
        (each["state"], len(each["causes"]))
        for name in ("alpha:100", "beta:100")
        for each in fleet.attribute(opened, name).attempts
    ] == [("NODE_FAIL", 1), ("COMPLETED", 0)]


def test_health_events_that_name_their_cluster(tmp_path: Path) -> None:
    log, events = write(tmp_path)[0], check(tmp_path, "n1")
    named = [json.loads(line) | {"cluster": "alpha"} for line in events.read_text().splitlines()]
    events.write_text("\n".join(map(json.dumps, named)) + "\n")
    fleet.ingest([log, events], tmp_path / "store")
    opened = fleet.open(tmp_path / "store")
    assert {row["node"] for row in opened.rows(f"SELECT node FROM {opened.table('health')}")} == {
        "alpha:n1"
    }


def test_a_scenario_is_of_one_cluster(both: FleetLog) -> None:
    with pytest.raises(InputError) as error:
        fleet.calibrate(both)
    assert error.value.code == "conflict"


def test_a_job_is_its_cluster_and_its_id(both: FleetLog) -> None:
    with pytest.raises(InputError) as error:
        fleet.attribute(both, "103")
    assert error.value.code == "conflict"
    assert error.value.found == "alpha:103, beta:103"
    assert fleet.attribute(both, "300").job_id == "beta:300"  # only one cluster has it
    for name, state in (("alpha:103", "NODE_FAIL"), ("beta:103", "COMPLETED")):
        assert [row["state"] for row in fleet.attribute(both, name).attempts] == [state]
    for name in ("4711", "gamma:103"):
        with pytest.raises(InputError) as error:
            fleet.attribute(both, name)
        assert error.value.code == "no-match"
    analysis = Analysis(both)
    assert analysis.goodput.costliest_job in {f"alpha:{100 + i}" for i in range(8)}
    page = evidence.job(analysis, "beta:103")
    assert page is not None
    assert page.title == "Job beta:103"
    assert evidence.job(analysis, "103") is None
    (table,) = evidence.find_jobs(analysis, "103").tables
    assert table.data["job_id"].to_pylist() == ["alpha:103", "beta:103"]


def test_nodes_of_one_cluster_only_tell_it(tmp_path: Path) -> None:
    extra = replace(attempts()[0], job=999, nodes=("gpu7",)).fields()
    log = write(tmp_path)[0]
    text = log.read_text() + "|".join({**extra, "Cluster": "beta"}[name] for name in COLUMNS) + "\n"
    log.write_text(text)
    fleet.ingest([log, check(tmp_path, "gpu7")], tmp_path / "store")
    opened = fleet.open(tmp_path / "store")
    assert [row["node"] for row in opened.rows(opened.table("health"))] == ["beta:gpu7"]


def test_a_store_of_version_1_is_refused(tmp_path: Path) -> None:
    store = Log(attempts=attempts()).store(tmp_path)
    facts = json.loads((store / "store.json").read_text())
    (store / "store.json").write_text(json.dumps({**facts, "version": 1}))
    with pytest.raises(StoreError) as caught:
        fleet.open(store)
    assert caught.value.code == "older-version"


@pytest.mark.parametrize("failures", [4, 14])
def test_clusters_that_do_not_fail_alike_are_a_doubt(failures: int, tmp_path: Path) -> None:
    """Equal node-days; all failures in one cluster: by chance with 2 in 2^n."""
    own = [
        Attempt(
            job,
            (f"m{job}",),
            600 * job,
            600 * job + DAY,
            "NODE_FAIL" if job < failures else "COMPLETED",
        )
        for job in range(20)
    ]
    rows = [
        {**replace(each, state=state or each.state).fields(), "Cluster": name}
        for name, state in (("alpha", ""), ("beta", "COMPLETED"))
        for each in own
    ]
    lines = ["|".join(COLUMNS), *("|".join(row[name] for name in COLUMNS) for row in rows)]
    (tmp_path / "sacct.psv").write_text("\n".join(lines) + "\n")
    fleet.ingest([tmp_path / "sacct.psv"], tmp_path / "store")
    log = fleet.open(tmp_path / "store")
    unlike = 2 * 2 * 0.5**failures < 0.01  # either cluster may be tested
    rates = {"alpha": pytest.approx(1000 * failures / 20), "beta": 0}
    assert unlike_clusters(log) == (rates if unlike else {})
    assert any("alpha" in each.text for each in doubts(log)) == unlike
    assert (Analysis(log).trend.failures == 0) == (unlike or not failures)
