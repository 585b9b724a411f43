"""What is said of a log without failures: an all-clear, or "cannot tell" where it could show none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from invoking import invoke
from logs import Attempt, Check, Log, names, stamp

import holdfast.fleet as fleet
from holdfast.fleet import Assumptions
from holdfast.fleet.gaps import watched_failures

HOUR, DAY = 3600, 86_400


def busy(states: Sequence[str] = (), **fields: Any) -> list[Attempt]:
    """A month of work on ten nodes, and a few attempts that ended otherwise."""
    work = [
        Attempt(100 + d, (node,), d * DAY, (d + 1) * DAY - HOUR)
        for d in range(30)
        for node in [names(10)[d % 10]]
    ]
    ended = [
        Attempt(k, (names(10)[k % 10],), k * DAY, k * DAY + 60, state, **fields)
        for k, state in enumerate(states, 1)
    ]
    return work + ended


HEALTHY = [
    Check(DAY * d, node, "check iblink", result="ok") for node in names(10) for d in (0, 7, 15, 30)
]


def verdicts(path: Path) -> dict[str, Any]:
    """Of every answer about failures."""
    rate = fleet.mttf(path).to_dict()
    report = fleet.report(path).to_dict()
    log = fleet.open(path)
    found = {
        "loss": fleet.goodput(path).verdict,
        "rate": rate["verdict"],
        "trend": report["trend"]["verdict"],
        "lemons": fleet.lemons(path).verdict if log.nodes_known else "unknown",
        "ettr": report["ettr"]["expected"] is not None,
    }
    assert (rate["ci95"] is None) == (rate["verdict"] == "unknown")
    assert report["goodput"]["verdict"] == found["loss"]
    return found


CLEAR = {"loss": "none", "rate": "measured", "trend": "unknown", "lemons": "none", "ettr": True}
BLIND = {
    "loss": "unknown",
    "rate": "unknown",
    "trend": "unknown",
    "lemons": "unknown",
    "ettr": False,
}


def test_slurm_without_failed_attempts_is_clear(tmp_path: Path) -> None:
    assert verdicts(Log(busy()).store(tmp_path)) == CLEAR


def test_failed_attempts_beside_healthy_checks_are_clear(tmp_path: Path) -> None:
    assert verdicts(Log(busy(["FAILED"] * 20), HEALTHY).store(tmp_path)) == CLEAR


def test_failed_attempts_that_nothing_could_explain(tmp_path: Path) -> None:
    assert verdicts(Log(busy(["FAILED"] * 20)).store(tmp_path)) == BLIND


@pytest.mark.parametrize(
    "checks",
    [
        [Check(3 * DAY, "n002", "check iblink", result="ok")],  # one event spans nothing
        [Check(DAY * d, "login1", "link flaps") for d in range(-800, -700, 20)],  # another year
        [each for each in HEALTHY if each.node != "n004"],
        [  # what a node said long ago
            replace(each, time=each.time - 400 * DAY) if each.node == "n004" else each
            for each in HEALTHY
        ],
        [Check(DAY * d, "login1", "check iblink", result="ok") for d in range(30)],
    ],
)
def test_checks_that_could_not_have_seen_it(tmp_path: Path, checks: list[Check]) -> None:
    log = Log(busy(["FAILED"] * 5), checks).open(tmp_path)
    assert fleet.goodput(log).verdict == "unknown"


def test_checks_that_report_failures_alone_see_what_they_span(tmp_path: Path) -> None:
    checks = [Check(DAY * d + HOUR, "n009", "link flaps") for d in range(12)]
    fleet.ingest(Log(busy(["FAILED"] * 5), checks).write(tmp_path), tmp_path / "s", timezone="UTC")
    assert fleet.goodput(tmp_path / "s").verdict == "none"


def test_the_number_that_nothing_could_have_seen(tmp_path: Path) -> None:
    checks = [each for each in HEALTHY if each.node not in ("n002", "n004")]
    log = Log(busy(["FAILED"] * 15), checks).open(tmp_path)
    assert log.ended("FAILED") - watched_failures(log) == 4


@pytest.mark.parametrize("nodes", [(), ("n0[1-",)])
def test_failures_that_name_no_node(tmp_path: Path, nodes: tuple[str, ...]) -> None:
    """Beside attempts whose nodes are known."""
    ended = [Attempt(k, nodes, k * DAY, k * DAY + 60, "NODE_FAIL", gpus=8) for k in range(1, 5)]
    log = Log([*busy(), *ended]).open(tmp_path)
    found = fleet.lemons(log)
    assert (fleet.goodput(log).failures, found.verdict) == (4, "unknown")
    assert found.blind.startswith("4 of 4 failures")
    for answer in (found, fleet.goodput(log), fleet.mttf(log), fleet.report(log)):
        # ... nor on how many nodes they ran, where the log has no count
        assert [each.doubt for each in answer.unknowns()].count(True) == (1 if nodes else 2)
    named = Attempt(9, ("n003",), 0, 60, "NODE_FAIL")
    few = fleet.lemons(Log([*busy(), *ended, named]).open(tmp_path / "more"))
    assert few.verdict == "unknown"


@pytest.mark.parametrize(("named", "verdict"), [(0, "unknown"), (14, "none")])
def test_failures_of_gangs_that_do_not_tell_which_node_failed(
    tmp_path: Path, named: int, verdict: str
) -> None:
    """A node of every failed job has a share of their blame that is below one failure."""
    gangs = [
        Attempt(k, names(10), k * DAY - HOUR, k * DAY - 60, "NODE_FAIL", gpus=80)
        for k in range(1, 14)
    ]
    alone = busy(["NODE_FAIL"] * named)[30:]
    alone = [replace(each, job=each.job + 500) for each in alone]
    found = fleet.lemons(Log([*busy(), *gangs, *alone]).open(tmp_path))
    assert found.verdict == verdict
    assert found.blind.startswith("13 of 13 failures" if named == 0 else "")


def test_checks_without_nodes_to_join_them_by(tmp_path: Path) -> None:
    from logs import COLUMNS

    columns = [name for name in COLUMNS if name != "NodeList"]
    store = Log(busy(["FAILED"] * 20), HEALTHY).store(tmp_path, columns)
    assert verdicts(store) == BLIND
    assert any(each.doubt for each in fleet.report(store).unknowns())


def test_a_scheduler_without_the_state(tmp_path: Path) -> None:
    """A table of pods: FAILED says nothing of nodes, and no state would."""
    (tmp_path / "map.toml").write_text(
        '[columns]\njob_id="p"\nstate="s"\nstart_s="a"\nend_s="b"\nnode_count="n"\n'
        '[values.state]\nFailed="FAILED"\nSucceeded="COMPLETED"\n'
    )
    rows = [
        f"{k},{'Succeeded' if k % 3 else 'Failed'},{stamp(k * HOUR)},{stamp(k * HOUR + 600)},1"
        for k in range(90)
    ]
    (tmp_path / "pods.csv").write_text("\n".join(["p,s,a,b,n", *rows]) + "\n")
    fleet.ingest([tmp_path / "pods.csv"], tmp_path / "s", column_map=tmp_path / "map.toml")
    assert verdicts(tmp_path / "s") == BLIND


def test_failures_at_an_unknown_time(tmp_path: Path) -> None:
    lost = Attempt(7, ("n001",), None, None, "NODE_FAIL", submit=DAY)
    store = Log([*busy(), lost]).store(tmp_path)
    assert verdicts(store) == BLIND
    doubts = [each for each in fleet.mttf(store).unknowns() if each.doubt]
    assert [each.remedy for each in doubts if "runaway" in each.remedy]


def test_a_log_with_failures(tmp_path: Path) -> None:
    found = verdicts(Log(busy(["NODE_FAIL"] * 8)).store(tmp_path))
    assert found == CLEAR | {"loss": "failures", "trend": "falls"}


def test_too_few_failures_to_tell_nodes_apart(tmp_path: Path) -> None:
    assert fleet.lemons(Log(busy(["NODE_FAIL"])).open(tmp_path)).verdict == "unknown"


def test_an_outage_log_that_marks_no_failure(tmp_path: Path) -> None:
    from logs import Outage

    store = Log(outages=[Outage("n1", 0, DAY), Outage("n2", 5 * DAY, 6 * DAY)]).store(tmp_path)
    assert fleet.mttf(store).to_dict()["verdict"] == "unknown"
    assert fleet.report(store).sections()


@pytest.mark.parametrize(
    ("requeues", "verdict"), [((), "unknown"), ((1, 2, 3), "looped"), ((20,), "none")]
)
def test_whether_a_job_looped(tmp_path: Path, requeues: tuple[int, ...], verdict: str) -> None:
    again = [
        Attempt(
            500, ("n001",), (d + 40) * HOUR * 25, (d + 40) * HOUR * 25 + 60, "NODE_FAIL", submit=d
        )
        for d in requeues
    ]
    log = Log([*busy(["NODE_FAIL"]), *again])
    log.attempts += [Attempt(500, ("n001",), 80 * DAY, 81 * DAY, submit=99)] * bool(again)
    window = Assumptions(crash_loop_window_s=10 * DAY)
    assert fleet.goodput(log.open(tmp_path, window)).to_dict()["loops_verdict"] == verdict


@pytest.mark.quick(1)
@pytest.mark.parametrize("command", ["report", "mttf", "goodput", "lemons"])
def test_doubts_come_first_everywhere(tmp_path: Path, command: str) -> None:
    lost = Attempt(7, ("n001",), None, None, "NODE_FAIL", submit=DAY)
    store = Log([*busy(["NODE_FAIL"] * 3), lost]).store(tmp_path)
    facts = json.loads(invoke(command, store, "--json").stdout)
    assert next(iter(facts)) == "doubts"
    (doubt,) = facts["doubts"]
    text = " ".join(invoke(command, store).stdout.split())
    assert " ".join(doubt.split())[:60] in text[: text.index("1. ") if "1. " in text else None]
    page = tmp_path / "page.html"
    invoke(command, store, "--html", page)
    html = page.read_text()
    assert html.index('id="doubts"') < html.index('id="findings"')
    clean = Log(busy(["NODE_FAIL"] * 3)).store(tmp_path / "clean")
    assert "doubts" not in json.loads(invoke(command, clean, "--json").stdout)


@pytest.mark.parametrize(("zone", "sure"), [(None, False), ("UTC", True)])
def test_a_zone_that_nothing_confirms(tmp_path: Path, zone: str | None, sure: bool) -> None:
    """FAILED attempts, and failed checks at other times: one clock, or two?"""
    checks = [Check(DAY * d + 7 * HOUR, "n003", "check iblink") for d in range(8)]
    sources = Log(busy(["FAILED"] * 5), checks).write(tmp_path / "logs")
    fleet.ingest(sources, tmp_path / "s", timezone=zone)
    assert (fleet.goodput(tmp_path / "s").verdict == "none") == sure
    assert any(each.doubt for each in fleet.report(tmp_path / "s").unknowns()) != sure


def test_nothing_ran_in_the_window(tmp_path: Path) -> None:
    log = Log([Attempt(j, ("n1",), 0, 3600, "NODE_FAIL") for j in range(3)])
    after = fleet.open(log.open(tmp_path).store, since="2090-01-01")
    assert fleet.goodput(after).to_dict()["verdict"] == "unknown"
    assert fleet.lemons(after).to_dict()["verdict"] == "unknown"


EVERY_DAY = [(DAY * d + 60, node) for node in names(10) for d in range(30)]


@pytest.mark.parametrize(
    ("result", "where", "named"),
    [
        ("fail", EVERY_DAY, "check iblink"),
        ("nominal", EVERY_DAY, "nominal"),
        ("1", EVERY_DAY, "check iblink"),  # a warning, if it is an exit code
        ("", EVERY_DAY, "check iblink"),  # "result": null of a healthy run is no outcome either
        ("nominal", EVERY_DAY[:5], "nominal"),
        ("ok", EVERY_DAY, None),
        ("fail", [each for each in EVERY_DAY if each[0] < 2 * DAY], None),  # a file system is down
        ("fail", [each for each in EVERY_DAY if each[1] == "n003"], None),  # a node that is bad
        ("not ok", EVERY_DAY[:5], None),
    ],
)
def test_an_outcome_that_may_be_misread_is_a_doubt(
    tmp_path: Path, result: str, where: list[tuple[int, str]], named: str | None
) -> None:
    checks = [Check(time, node, "check iblink", result=result) for time, node in where]
    log = Log(busy(["FAILED"]), checks).open(tmp_path)
    said = [each.text for each in fleet.mttf(log).unknowns() if each.doubt]
    assert any("outcome" in text for text in said) == (named is not None)
    assert named is None or any(named in text for text in said)
