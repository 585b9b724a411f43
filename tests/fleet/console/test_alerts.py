"""The shipped alert rules: well-formed, over metrics that exist, and firing when they should."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from logs import Attempt, Log, names
from prometheus_client.parser import text_string_to_metric_families

from holdfast.fleet.analysis import Analysis
from holdfast.fleet.console.metrics import exposition, measure
from holdfast.fleet.console.views import alert_rules
from holdfast.fleet.console.watching import WatchStatus
from holdfast.fleet.live.sources import SourceState

METRIC = re.compile(r"\bholdfast_\w+")


@pytest.fixture(scope="module")
def rules() -> dict[str, dict[str, Any]]:
    (group,) = yaml.safe_load(alert_rules())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


@pytest.fixture(scope="module")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Every metric that an exporter can emit, with its labels: of a log that has some of each."""
    nodes = names(17)
    log = Log(nodes=dict.fromkeys(nodes, 8))
    for hour in range(0, 40, 4):
        log.attempts.append(Attempt(1, nodes, 3600 * hour, 3600 * hour + 9000, "NODE_FAIL"))
    log.attempts.append(Attempt(1, nodes, 3600 * 50, 3600 * 60))
    measures = measure(Analysis(log.open(tmp_path_factory.mktemp("alerts"))))
    source = SourceState("alpha", "slurm", "ok", 0.0, 1.0)
    text = exposition(measures, WatchStatus(0.0), [source])
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_each_rule_says_what_and_how_grave(rules: dict[str, dict[str, Any]]) -> None:
    assert {"HoldfastCrashLoop", "HoldfastNewLemon"} <= rules.keys()
    for rule in rules.values():
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["annotations"]["description"].endswith((".", "?"))


def test_rules_speak_of_metrics_that_exist(
    rules: dict[str, dict[str, Any]], emitted: dict[str, set[str]]
) -> None:
    for rule in rules.values():
        named = set(METRIC.findall(str(rule)))
        assert named, rule["alert"]
        assert named <= emitted.keys(), rule["alert"]
        for metric, selector in re.findall(r"(holdfast_\w+)\{(\w+)=", rule["expr"]):
            assert selector in emitted[metric]
        labels = set().union(*(emitted[name] for name in METRIC.findall(rule["expr"])))
        assert set(re.findall(r"\$labels\.(\w+)", str(rule))) <= labels


def series(name: str, values: str) -> dict[str, str]:
    return {"series": name, "values": values}


CASES: list[tuple[str, list[dict[str, str]], str, list[dict[str, str]]]] = [
    # (alert, series with a sample a minute, when, labels of the alerts that fire then)
    (
        "HoldfastCrashLoop",
        [series('holdfast_crash_loop_requeues{job_id="93"}', "3 4")],
        "1m",
        [{"severity": "critical", "job_id": "93"}],
    ),
    (
        "HoldfastNewLemon",
        [
            series('holdfast_lemon{node="old"}', "1x2000"),
            series('holdfast_lemon{node="new"}', "0x1900 1x100"),
            series('holdfast_lemon{node="well"}', "0x2000"),
        ],
        "1950m",
        [{"severity": "warning", "node": "new"}],
    ),
    *(
        (
            "HoldfastFailuresUnattributed",
            [
                series("holdfast_recent_failures", f"{failures}x90"),
                series("holdfast_recent_unattributed_failures", f"{none}x90"),
            ],
            "80m",
            [{"severity": "warning"}] if fires else [],
        )
        for failures, none, fires in [
            (19, 19, False),
            (20, 11, True),
            (20, 10, False),
            (0, 0, False),
        ]
    ),
    (
        "HoldfastLogStale",
        [series('holdfast_store_last_event_timestamp_seconds{table="attempts"}', "0x1500")],
        "1480m",
        [{"severity": "warning", "table": "attempts"}],
    ),
]


def promtool() -> str:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("no promtool (Debian package prometheus)")
    return tool


def test_promtool_takes_the_file(tmp_path: Path) -> None:
    tool = promtool()
    (tmp_path / "alerts.yaml").write_text(alert_rules())
    subprocess.run([tool, "check", "rules", str(tmp_path / "alerts.yaml")], check=True)


def test_alerts_fire_and_keep_silent(tmp_path: Path) -> None:
    tool = promtool()
    rules = yaml.safe_load(alert_rules())
    for rule in rules["groups"][0]["rules"]:
        del rule["annotations"]  # for people; their words would be compared
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump(rules))
    tests = [
        {
            "interval": "1m",
            "input_series": given,
            "alert_rule_test": [
                {
                    "eval_time": moment,
                    "alertname": name,
                    "exp_alerts": [{"exp_labels": labels} for labels in expected],
                }
            ],
        }
        for name, given, moment, expected in CASES
    ]
    text = yaml.safe_dump({"rule_files": ["alerts.yaml"], "tests": tests})
    (tmp_path / "tests.yaml").write_text(text)
    run = subprocess.run(
        [tool, "test", "rules", "tests.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
