"""The fleet page: every section and figure for a full log, a clear one for a poor log, no markup."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from logs import COLUMNS, Attempt, Check, Log

import holdfast.fleet as fleet
from conftest import TESTBED_WINDOWS
from holdfast.fleet import FleetLog
from holdfast.fleet.page import FleetReport

HOUR = 3600
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
SECTIONS = (
    *("loss", "lemons", "loops", "causes", "rate", "mttf", "ettr", "preemptions", "status"),
)
FIGURES = {
    "loss-figure-1": ("GPU-hours lost", "Job size (GPUs)"),
    "lemons-figure-1": ("Share at or below", "Count per node, log scale from 1 on"),
    "loops-figure-1": ("Time (2026-11-20, UTC)", "Attempt"),
    "causes-figure-1": ("GPU-hours lost", "Likeliest cause"),
    "rate-figure-1": ("Failures per 1,000 node-days", "Time, one bar per minute (UTC)"),
    "mttf-figure-1": ("Mean time to failure (hours), log scale", "Job size (GPUs), log scale"),
    "ettr-figure-1": ("ETTR (%)", "Job size (GPUs), log scale"),
    "status-figure-1": ("attempts", "GPU time", "Share (%)"),
}


def written(log: FleetLog, folder: Path) -> tuple[FleetReport, str]:
    made = fleet.report(log, html=folder / "report.html")
    assert made.html is not None
    return made, made.html.read_text(encoding="utf-8")


def body(html: str) -> str:
    """The text that a reader sees, without styles, scripts and drawings."""
    for tag in ("style", "script", "svg"):
        html = re.sub(rf"<{tag}\b.*?</{tag}>", " ", html, flags=re.S)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))


def test_every_section_and_figure(testbed_store_told: Path, tmp_path: Path) -> None:
    log = fleet.open(testbed_store_told, assumptions=TESTBED_WINDOWS)
    made, html = written(log, tmp_path)
    assert tuple(re.findall(r'<section id="([a-z]+)" aria', html)) == (*SECTIONS, "unknown")
    for name, texts in FIGURES.items():
        drawing = re.search(rf'id="{name}" role="img".*?</svg>', html, re.S)
        assert drawing is not None, name
        for text in texts:
            assert f">{text}<" in drawing[0], (name, text)
    assert "Fleet report: atlas</title>" in html
    assert html.count('class="tile"') == 6
    assert "check “nccl-tests” first seen (2026-11-20 10:58)" in html
    for finding in made.findings:
        assert finding.section_id in {*SECTIONS, "unknown"}


def test_json_has_the_findings_and_the_results(testbed_log_told: FleetLog) -> None:
    made = fleet.report(testbed_log_told)
    facts = json.loads(json.dumps(made.to_dict(), allow_nan=False))
    assert made.html is None
    assert facts["html"] is None
    assert facts["findings"][0].startswith(made.findings[0].lead)
    assert facts["goodput"]["failures"] == made.analysis.goodput.failures
    assert facts["lemons"] == ["node05"]


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    """Names that a user or a node chose: of jobs, checks, quality of service."""
    day = 24 * HOUR
    attempts = [
        Attempt(job, ("n1", "n2"), job * day, job * day + HOUR, "NODE_FAIL", name=HOSTILE)
        for job in range(1, 13)
    ]
    attempts += [
        Attempt(
            99, ("n1",), day * 13 + k * HOUR, day * 13 + k * HOUR + 60, "NODE_FAIL", qos=HOSTILE
        )
        for k in range(4)
    ]
    checks = [Check(each.stop - 30, "n1", HOSTILE, "HIGH") for each in attempts[6:] if each.start]
    made, html = written(Log(attempts, checks).open(tmp_path), tmp_path)
    assert "onerror" in html  # the check's name is on the page ...
    assert "<img src=x" not in html
    assert "<script>alert" not in html
    assert made.analysis.timeline_job is not None
    scripts = re.findall(r"<script\b[^>]*>", html)
    assert len(scripts) == html.count("</script>")


def test_no_failures(tmp_path: Path) -> None:
    week = [Attempt(job, ("n1", "n2"), 0, 7 * 24 * HOUR) for job in (1, 2)]
    _, html = written(Log(week).open(tmp_path), tmp_path)
    text = body(html)
    assert "Nothing to do:" in text
    assert "∞" not in text
    assert "No failures: the rate is at most 132 per 1,000 node-days (95 %)." in text.replace(
        "\u00a0", " "
    )
    assert "MTTF at least, 95" in text
    assert "≥ 3 d 19 h" in text


@pytest.mark.parametrize(
    "attempts",
    [
        pytest.param([Attempt(1, ("n1",), 0, HOUR)], id="one attempt"),
        pytest.param([Attempt(1, ("n1",), 0, HOUR, "NODE_FAIL")], id="one failure"),
        pytest.param([Attempt(1, ("n1",), 0, 0, "NODE_FAIL")], id="failed at once"),
        pytest.param([Attempt(1, ("n1",), 0, None, "RUNNING", runtime_s=60)], id="running"),
        pytest.param([Attempt(1, (), None, None, "PENDING", gpus=8, submit=0)], id="pending"),
        pytest.param([Attempt(1, ("n1", "n2"), 0, HOUR, "NODE_FAIL", gpus=0)], id="no GPUs"),
    ],
)
def test_a_poor_log_gets_a_page(attempts: list[Attempt], tmp_path: Path) -> None:
    made, html = written(Log(attempts).open(tmp_path), tmp_path)
    assert made.findings
    assert not re.search(r"\bnan\b|\bNone\b|undefined", body(html))


def test_unknown_gpus(tmp_path: Path) -> None:
    columns = tuple(name for name in COLUMNS if name != "AllocTRES")
    log = Log([Attempt(1, ("n1",), 0, HOUR), Attempt(2, ("n1",), HOUR, 3 * HOUR, "NODE_FAIL")])
    _, html = written(fleet.open(log.store(tmp_path, columns)), tmp_path)
    assert "The log records no GPUs" in body(html)


def test_a_log_of_node_failures(tmp_path: Path) -> None:
    source = tmp_path / "failures.csv"
    rows = [
        f"node{k % 3},2025-0{k + 1}-01T00:00:00,2025-0{k + 1}-02T00:00:00,{HOSTILE}"
        for k in range(6)
    ]
    source.write_text("\n".join(["node,start,end,cause", *rows]) + "\n")
    fleet.ingest([source], tmp_path / "store")
    _, html = written(fleet.open(tmp_path / "store"), tmp_path)
    assert re.findall(r'<section id="([a-z]+)" aria', html) == ["causes", "rate", "mttf", "unknown"]
    assert "<img src=x" not in html
    assert "Job size (nodes), log scale" in html
    assert "Nodes that never failed are not in the log" in body(html)


def test_an_empty_window(testbed_store_told: Path, tmp_path: Path) -> None:
    _, html = written(fleet.open(testbed_store_told, since="2030-01-01"), tmp_path)
    assert "after 2030-01-01 00:00 UTC; the log ends 2026-11-20 11:04 UTC" in body(html)
    assert "<figure>" not in html
