"""Two clusters that name their nodes, jobs and partitions alike stay apart."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from logs import COLUMNS, Attempt, Check, Log, Outage, stamp

import holdfast.fleet as fleet
from holdfast.errors import InputError, StoreError
from holdfast.fleet import FleetLog
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.console import evidence
from holdfast.fleet.gaps import doubts, unlike_clusters
from holdfast.fleet.live.actions import actions
from holdfast.fleet.live.judge import judge
from holdfast.fleet.live.rules import Rule, RuleFile

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


def test_each_cluster_is_judged_as_if_it_were_alone(tmp_path: Path) -> None:
    """Two clusters with lemons, checks and repairs of their own; one log is three times as long."""
    rng = random.Random(3)
    rules = RuleFile(
        (
            Rule("often", failures=2, within=5 * DAY),
            Rule("check", check="check nvlink", repair=7200.0),
            Rule("lemons", lemon_fdr=0.05),
        ),
        horizon=6 * DAY,
    )
    for cluster, days, share, hours in (("long", 63, 0.01, 4), ("short", 21, 0.04, 11)):
        log = Log()
        for k, node in enumerate(NODES):
            bad = 0.5 if k in (2, 5) else share
            for day in range(days):
                fails = rng.random() < bad
                begin, end = DAY * day, DAY * day + 3600 * (hours if fails else 2 * hours)
                state = "NODE_FAIL" if fails else "COMPLETED"
                log.attempts.append(Attempt(1000 * k + day + 1, (node,), begin, end, state))
                if fails and rng.random() < 0.6:
                    log.outages.append(Outage(node, end, end + 900 * hours))
                elif rng.random() < 0.05:
                    log.outages.append(Outage(node, end + 60, end + 4000, "DRAIN", "repair"))
                if rng.random() < 0.03:
                    log.checks.append(Check(end - 60, node, "check nvlink"))
        # What nobody follows: the log of its jobs is over
        log.checks.append(Check(DAY * (days + 9), NODES[3], "check nvlink"))
        paths = log.write(tmp_path / cluster)
        for path in paths:
            path.write_text(
                path.read_text().replace("|c|", f"|{cluster}|").replace("\nc|", f"\n{cluster}|")
            )
        for store in (cluster, "both"):
            fleet.ingest(paths, tmp_path / f"store-{store}", cluster=cluster)

    def told(store: str, prefix: str) -> list[dict[str, Any]]:
        opened = fleet.open(tmp_path / f"store-{store}")
        judged = judge(opened, rules)
        # p- and q-values, and the signals at the end of the log, are those of the whole store.
        kept = ["node", "failures", "failures_avoided_per_month"]
        kept += ["shrunk_rate", "shrunk_rate_low", "shrunk_rate_high", "usual_rate"]
        pulls = [vars(each) | {"id": ""} for each in actions(opened).proposals]
        rows = [
            *({**row, "pulled": str(row["pulled"])} for row in judged.rules),
            *judged.actions,
            *fleet.lemons(opened).nodes.select(kept).to_pylist(),
            *({**row, "evidence": "", "command": "", "state": ""} for row in pulls),
        ]
        whole = f"{prefix}:" if store == "both" else ""
        mine = [
            row
            for row in rows
            if not whole or row.get("cluster", row.get("node", "").partition(":")[0]) == prefix
        ]
        return [
            {
                name: value.replace(whole, "") if isinstance(value, str) else value
                for name, value in row.items()
                if name != "cluster"
            }
            for row in mine
        ]

    for cluster in ("long", "short"):
        alone, beside = told(cluster, cluster), told("both", cluster)
        assert len(alone) == len(beside) > len(NODES) + len(rules.rule)
        for one, other in zip(alone, beside, strict=True):
            assert list(one) == list(other)
            for name, value in one.items():
                expected = pytest.approx(value, rel=1e-6) if not isinstance(value, str) else value
                assert other[name] == expected, (cluster, one, name)
