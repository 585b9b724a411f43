"""Every command: the JSON that other programs read, exit codes, and one clear message for a bad option."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from logs import Attempt, Log

from holdfast import cli
from holdfast.fleet import FleetLog
from holdfast.fleet import cli as commands

Run = Callable[..., tuple[int, str, str]]

WINDOWS = ("--check-before", "45s", "--check-after", "10s")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str | Path) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main(["fleet", *map(str, arguments)])
        captured = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return code, captured.out, captured.err

    return call


@pytest.fixture(scope="module")
def opened() -> dict[Any, FleetLog]:
    """The logs that commands opened, by what they asked for."""
    return {}


@pytest.fixture(autouse=True)
def one_log_for_all_commands(
    opened: dict[Any, FleetLog], testbed_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands that open the testbed under the same assumptions share its derived tables."""

    def shared(store: Path, *given: Any, **named: Any) -> FleetLog:
        if store != testbed_store:
            return opens(store, *given, **named)
        asked = (given, tuple(sorted(named.items())))
        if asked not in opened:
            opened[asked] = opens(store, *given, **named)
        return opened[asked]

    opens = commands.opened
    monkeypatch.setattr(commands, "opened", shared)


def strict(text: str) -> Any:
    """JSON as every program reads it: no NaN, no infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def answer(run: Run, *arguments: str | Path) -> Any:
    code, out, err = run(*arguments, "--json")
    assert (code, err) == (0, "")
    return strict(out)


def test_ingest(run: Run, testbed: Path, tmp_path: Path) -> None:
    sources = [testbed / "sacct_D_all.psv.gz", testbed / "health_events.jsonl"]
    found = answer(run, "ingest", *sources, "-o", tmp_path / "store")
    expected = {
        "attempts": 613,
        "steps_skipped": 859,
        "rejected": 0,
        "nodes": 16,
        "health_events": 59,
        "duplicates_flag": "present",
    }
    assert {name: found[name] for name in expected} == expected
    assert isinstance(found["jobs"], int)
    assert found["time_range"] == ["2026-11-20T10:49:20Z", "2026-11-20T11:04:36Z"]
    again = answer(run, "ingest", *sources, "-o", tmp_path / "store")
    assert {name: again[name] for name in expected} == expected


def test_status(run: Run, testbed_store: Path) -> None:
    found = answer(run, "status", testbed_store)
    for shares in (found["by_count"], found["by_gpu_time"]):
        assert sum(shares.values()) == pytest.approx(1)
        assert {"COMPLETED", "NODE_FAIL", "PENDING"} <= set(shares)
    assert found["by_gpu_time"]["PENDING"] == 0


def test_mttf(run: Run, testbed_store: Path) -> None:
    found = answer(
        run, "mttf", testbed_store, "--min-gpus", "0", "--project", "16384,131072", *WINDOWS
    )
    assert set(found) >= {
        *("failures", "node_days", "rate_per_1000_node_days", "ci95", "buckets", "dispersion"),
        "projections",
    }
    assert found["ci95"][0] < found["rate_per_1000_node_days"] < found["ci95"][1]
    for bucket in found["buckets"]:
        assert set(bucket) >= {
            *("gpus_min", "gpus_max", "failures", "node_days", "rate_per_1000_node_days", "ci95")
        }
    assert sum(bucket["failures"] for bucket in found["buckets"]) == found["failures"]
    assert set(found["dispersion"]) >= {"statistic", "p_value"}
    assert [projection["gpus"] for projection in found["projections"]] == [16384, 131072]
    rate = found["rate_per_1000_node_days"]
    for projection in found["projections"]:
        assert projection["mttf_hours"] == pytest.approx(24 * 8000 / rate / projection["gpus"])
        assert projection["ci95"][0] < projection["mttf_hours"] < projection["ci95"][1]


def test_mttf_of_a_log_of_node_failures(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "failures.csv"
    path.write_text(
        "node,start,end,cause\n"
        "n1,2026-01-01T00:00:00,2026-01-02T00:00:00,hardware\n"
        "n2,2026-01-11T00:00:00,2026-01-11T00:00:00,software\n"
    )
    found = answer(run, "mttf", path)
    assert found["failures"] == 2
    assert found["node_days"] == pytest.approx(2 * 10 - 1)
    assert found["buckets"] == []
    code, out, _ = run("mttf", path)
    assert code == 0
    assert "105 [12.7, 380]" in out  # 2 in 19 node-days, Garwood's interval


ETTR = ("ettr", "--nodes", "2000", "--rate", "6.5e-3", "--checkpoint", "60m", "--init", "5m")


def test_ettr(run: Run) -> None:
    found = answer(run, *ETTR)
    assert list(found) == [
        *("v2", "full", "exact", "young_checkpoint_minutes", "optimal_checkpoint_minutes"),
        *("optimal_ettr", "assumptions"),
    ]
    assert round(found["v2"], 4) == 0.6840
    assert round(found["exact"], 4) == 0.7202


def test_ettr_of_a_whole_run(run: Run) -> None:
    found = answer(
        run, "ettr", "--nodes", "128", "--rate", "6.5e-3", "--checkpoint", "60m", "--init", "5m",
        "--write", "5m", "--queue", "10m", "--productive", "7d",
    )  # fmt: skip
    assert f"{found['full']:.5f}" == "0.89800"


def test_ettr_by_simulation(run: Run) -> None:
    found = answer(run, *ETTR, "--monte-carlo")
    simulated = found["monte_carlo"]
    assert simulated["ci95"][0] < found["exact"] < simulated["ci95"][1]
    assert simulated["standard_error"] < 0.002
    code, out, _ = run(*ETTR, "--monte-carlo")
    assert code == 0
    assert "Monte Carlo" in out


@pytest.mark.parametrize("name", ["checkpoint", "rate", "write"])
def test_ettr_solved_for_one_parameter(run: Run, name: str) -> None:
    given = {"--nodes": "1000", "--rate": "2e-3", "--checkpoint": "30m", "--write": "30s"}
    given.pop(f"--{name}")
    options = [part for pair in given.items() for part in pair]
    found = answer(run, "ettr", *options, "--init", "2m", "--solve", name, "--target", "0.9")
    assert found["target"] == 0.9
    # At both ends of the range, and nowhere inside, the ETTR is the target.
    unit = "" if name == "rate" else "s"
    assert found["unit"].startswith(unit)
    for end in ("low", "high"):
        if not found[end]:
            continue
        again = {**given, f"--{name}": f"{found[end]:.9f}{unit}"}
        options = [part for pair in again.items() for part in pair]
        back = answer(run, "ettr", *options, "--init", "2m")
        assert back["exact"] == pytest.approx(0.9, abs=1e-4)


def test_goodput(run: Run, testbed_store: Path) -> None:
    found = answer(run, "goodput", testbed_store, *WINDOWS, "--preempt-slack", "30s")
    assert set(found) >= {
        *("total", "lost_first_order", "lost_second_order", "by_job_size", "by_cause"),
        "crash_loops",
    }
    assert sum(row["gpu_hours"] for row in found["by_job_size"]) == pytest.approx(found["total"])
    for rows in (found["by_job_size"], found["by_cause"]):
        assert sum(row["first_order"] for row in rows) == pytest.approx(found["lost_first_order"])
        assert sum(row["second_order"] for row in rows) == pytest.approx(found["lost_second_order"])
    (loop,) = [loop for loop in found["crash_loops"] if loop["job_id"] == "93"]
    assert loop["requeues"] == 9
    assert loop["first"] == "2026-11-20T10:51:55Z"


def test_lemons(run: Run, testbed_store: Path) -> None:
    found = answer(run, "lemons", testbed_store, *WINDOWS)
    assert [row["node"] for row in found["nodes"][:2]] == ["node05", "node16"]
    for row in found["nodes"]:
        assert set(row) >= {
            *("node", "node_days", "failures", "q_value", "shrunk_rate", "evidence")
        }
    assert set(found["nodes"][0]["evidence"]) >= {
        *("excl_jobid_count", "xid_cnt", "tickets", "out_count", "multi_node_node_fails"),
        *("single_node_node_fails", "single_node_node_failure_rate"),
    }
    assert set(found["lemons"]) <= {row["node"] for row in found["nodes"] if row["q_value"] < 0.05}


def test_attribute(run: Run, testbed_store: Path) -> None:
    found = answer(run, "attribute", testbed_store, "93", *WINDOWS)
    attempts = found["attempts"]
    assert [attempt["attempt"] for attempt in attempts] == list(range(1, 11))
    for attempt in attempts:
        assert set(attempt) >= {"state", "nodes", "end", "causes"}
        for cause in attempt["causes"]:
            assert set(cause) >= {"check", "node", "offset_s", "severity", "domains"}
            assert -45 <= cause["offset_s"] <= 10
    code, out, _ = run("attribute", testbed_store, "93", *WINDOWS)
    assert code == 0
    assert "unattributed" in out


def test_report(run: Run, testbed_store: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    found = answer(run, "report", testbed_store, *WINDOWS, "--html", page)
    assert 3 <= len(found["findings"]) <= 7
    assert found["html"] == str(page)
    assert page.read_text().startswith("<!doctype html>")
    assert found["assumptions"]["check_before_s"] == 45
    code, out, _ = run("report", testbed_store, *WINDOWS)
    assert code == 0
    assert out.startswith("1. ")


SCREENS = [
    ("report",),
    ("status",),
    ("mttf", "--min-gpus", "0", "--project", "1024,16384"),
    ("goodput",),
    ("lemons",),
    ("attribute", "93"),
]


@pytest.mark.quick(3)
@pytest.mark.parametrize("command", SCREENS, ids=[command[0] for command in SCREENS])
def test_an_answer_fits_a_screen(run: Run, testbed_store: Path, command: tuple[str, ...]) -> None:
    name, *rest = command
    places = [rest.pop()] if name == "attribute" else []
    code, out, err = run(name, testbed_store, *places, *rest)
    assert (code, err) == (0, "")
    assert 3 <= len(out.splitlines()) <= 55
    assert not {"nan", "None"} & set(out.split())
    assert out.count("─") > 20 or name == "report"


def test_a_window(run: Run, tmp_path: Path) -> None:
    """30 days before the end of the log; the first attempt is older."""
    day = 86_400
    store = Log(
        [Attempt(1, ("n1",), 0, day, "NODE_FAIL"), Attempt(2, ("n1",), 40 * day, 41 * day)]
    ).store(tmp_path)
    for since in ("30d", "2026-02-10"):
        assert answer(run, "status", store, "--since", since)["by_count"] == {"COMPLETED": 1.0}
    for since, failures in (((), 1), (("--since", "30d"), 0)):
        assert answer(run, "mttf", store, "--min-gpus", "0", *since)["failures"] == failures
    found = answer(run, "report", store, "--min-gpus", "0", "--since", "30d")
    assert found["since"] == "2026-01-16T00:00:00Z"
    assert found["goodput"]["total"] == pytest.approx(8 * 24)
    assert found["goodput"]["failures"] == found["mttf"]["failures"] == 0
    assert found["lemons"] == []


STORE = "STORE"
WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "no such store": (("status", "/no/such/store"), "does not exist"),
    "not a store": (("status", "/tmp"), "is not a fleet store"),
    "a negative duration": (("goodput", STORE, "--checkpoint", "-5m"), "duration"),
    "a duration without sense": (("goodput", STORE, "--check-before", "soon"), "duration"),
    "no checkpoint interval": (("goodput", STORE, "--checkpoint", "0"), "checkpoint interval"),
    "an unknown job": (("attribute", STORE, "4711"), "job not found: '4711'"),
    "since is no time": (("status", STORE, "--since", "nonsense"), "--since is neither"),
    "since has no unit": (("status", STORE, "--since", "30"), "--since is neither"),
    "no such source": (("ingest", "/no/such/log", "-o", "/nowhere"), "file not found"),
    "no nodes": (("ettr", "--nodes", "0", "--rate", "1e-3", "--checkpoint", "1h"), "nodes"),
    "a negative rate": (("ettr", "--nodes", "9", "--rate", "-1", "--checkpoint", "1h"), "rate"),
    "a rate that is none": (
        ("ettr", "--nodes", "9", "--rate", "inf", "--checkpoint", "1h"),
        "rate",
    ),
    "two rates": (("ettr", STORE, "--nodes", "9", "--rate", "1", "--checkpoint", "1h"), "two"),
    "nothing given": (("ettr",), "--nodes 2000 --rate 6.5e-3 --checkpoint 60m"),
    "an impossible target": (
        ("ettr", "--nodes", "9", "--rate", "1", "--solve", "checkpoint", "--target", "2"),
        "target is not an ETTR",
    ),
    "a target out of reach": (
        ("ettr", "--nodes", "9999", "--rate", "1", "--solve", "checkpoint", "--target", "0.99"),
        "0.99",
    ),
    "solve for something else": (
        ("ettr", "--nodes", "9", "--rate", "1", "--checkpoint", "1h", "--solve", "luck"),
        "cannot be solved for",
    ),
    "sizes that are none": (("mttf", STORE, "--project", "many"), "whole numbers"),
    "sizes of nothing": (("mttf", STORE, "--project", "0"), "whole numbers"),
    "nothing of that size": (("mttf", STORE, "--min-gpus", "4096"), "no attempt with more than"),
    "a false discovery rate of zero": (("lemons", STORE, "--fdr", "0"), "false discovery rate"),
    "no such taxonomy": (("goodput", STORE, "--taxonomy", "/no/t.toml"), "taxonomy"),
    "no such engine": (("status", STORE, "--engine", "abacus"), "abacus"),
    "an unknown option": (("status", STORE, "--frobnicate"), "--frobnicate"),
    "an unknown command": (("frobnicate",), "frobnicate"),
}


@pytest.mark.quick(20)
@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("as_json", [False, True])
def test_wrong_use_has_one_message_and_exit_code_2(
    run: Run, testbed_store: Path, case: str, as_json: bool
) -> None:
    arguments, says = WRONG[case]
    given = [str(testbed_store) if part == STORE else part for part in arguments]
    code, out, err = run(*given, *(["--json"] if as_json else []))
    assert code == 2
    assert out == ""
    assert "Traceback" not in err
    if as_json:
        assert says in strict(err)["error"]["message"]
    else:
        assert says in " ".join(err.split())
    assert not Path("/nowhere").exists()


def test_a_page_that_cannot_be_written(run: Run, testbed_store: Path, tmp_path: Path) -> None:
    code, out, err = run("report", testbed_store, "--html", tmp_path / "none" / "r.html")
    assert (code, out) == (2, "")
    assert "the file cannot be written" in err
