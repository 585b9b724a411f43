"""The fleet report: its numbers, and that every kind of log gets sentences and a page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from logs import COLUMNS, Attempt, Check, Log

import holdfast.fleet as fleet
from conftest import TESTBED_WINDOWS
from holdfast.fleet import FleetLog
from holdfast.fleet.fleet_report import FleetReport
from holdfast.numbers import brief

HOUR = 3600
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
SECTIONS = (
    *(
        "loss",
        "lemons",
        "loops",
        "causes",
        "rate",
        "mttf",
        "ettr",
        "owners",
        "preemptions",
        "status",
    ),
)
FIGURES = {
    "loss-figure-1": ("GPU-hours lost", "Job size (GPUs)"),
    "loops-figure-1": ("Time (2026-11-20, UTC)", "Attempt"),
    "causes-figure-1": ("GPU-hours lost", "Likeliest cause"),
    "rate-figure-1": ("Failures per 1,000 node-days", "Time, one point per minute (UTC)"),
    "mttf-figure-1": ("Mean time to failure (hours), log scale", "Job size (GPUs), log scale"),
    "ettr-figure-1": ("ETTR (%)", "Job size (GPUs), log scale"),
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


def sentences(log: FleetLog) -> list[str]:
    found = fleet.report(log).findings()
    assert len(found) <= 7
    texts = [f"{each.lead} {each.text}".strip() for each in found]
    for text in texts:
        assert text.endswith("."), text
        assert not re.search(r"nan|None|∞|inf\b|\b1 [a-z]+s\b|  ", text), text
        assert not re.search(r"\d%", text), "a space stands before a percent sign"
    return texts


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
    for finding in made.findings():
        assert finding.section_id in {*SECTIONS, "unknown"}


def test_json_has_the_findings_and_the_results(testbed_log_told: FleetLog) -> None:
    made = fleet.report(testbed_log_told)
    facts = json.loads(json.dumps(made.to_dict(), allow_nan=False))
    assert made.html is None
    assert facts["html"] is None
    assert facts["findings"][0] == made.findings()[0].text
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
    assert made.analysis.goodput.costliest_job is not None
    scripts = re.findall(r"<script\b[^>]*>", html)
    assert len(scripts) == html.count("</script>")


def test_no_failures(tmp_path: Path) -> None:
    week = [Attempt(job, (f"n{job}", f"m{job}"), 0, 7 * 24 * HOUR) for job in (1, 2)]
    _, html = written(Log(week).open(tmp_path), tmp_path)
    text = body(html)
    assert "Nothing to do:" in text
    assert "∞" not in text
    assert "No failures: the rate is at most 132 per 1,000 node-days (95 %)." in text.replace(
        "\u00a0", " "
    )
    assert "MTTF at least, 95" in text
    assert "≥ 3 d 19 h" in text


@pytest.mark.quick(2)
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
    assert made.findings()
    assert not re.search(r"\bnan\b|\bNone\b|undefined", body(html))


def test_unknown_gpus(tmp_path: Path) -> None:
    columns = tuple(name for name in COLUMNS if name != "AllocTRES")
    log = Log([Attempt(1, ("n1",), 0, HOUR), Attempt(2, ("n1",), HOUR, 3 * HOUR, "NODE_FAIL")])
    _, html = written(fleet.open(log.store(tmp_path, columns)), tmp_path)
    assert "0.500 node-hours were lost" in body(html)


def test_a_log_of_node_failures(tmp_path: Path) -> None:
    source = tmp_path / "failures.csv"
    rows = [
        f"node{k % 3},2025-0{k + 1}-01T00:00:00,2025-0{k + 1}-02T00:00:00,{HOSTILE}"
        for k in range(6)
    ]
    source.write_text("\n".join(["node,start,end,cause", *rows]) + "\n")
    fleet.ingest([source], tmp_path / "store")
    _, html = written(fleet.open(tmp_path / "store"), tmp_path)
    assert re.findall(r'<section id="([a-z]+)" aria', html) == ["causes", "rate", "mttf"]
    assert html.index('id="doubts"') < html.index('id="findings"')
    assert "<img src=x" not in html
    assert "Job size (nodes), log scale" in html
    assert "Nodes that never failed are not in the log" in body(html)


def test_an_empty_window(testbed_store_told: Path, tmp_path: Path) -> None:
    _, html = written(fleet.open(testbed_store_told, since="2030-01-01"), tmp_path)
    assert "after 2030-01-01 00:00 UTC; the log ends 2026-11-20 11:04 UTC" in body(html)
    assert "<figure>" not in html


def test_hidden_attempts_come_first(testbed: Path, tmp_path: Path) -> None:
    fleet.ingest([testbed / "sacct_all.psv.gz"], tmp_path / "store")
    made = fleet.report(tmp_path / "store")
    first = made.unknowns()[0]
    assert first.doubt
    assert "--duplicates" in first.text


def test_no_failure_is_a_finding_and_an_upper_bound(tmp_path: Path) -> None:
    week = [Attempt(job, (f"n{job}", f"m{job}"), 0, 7 * 24 * HOUR) for job in (1, 2)]
    texts = sentences(Log(week).open(tmp_path))
    assert texts[0].startswith("Nothing to do: no infrastructure failure in 5,376 GPU-hours since")
    assert texts[1].startswith("Pull no node: none")
    # 3.6889 failures are the upper 95 % bound of none; 2 jobs of 2 nodes for 7 days are 28 node-days.
    assert f"at most {1000 * 3.6889 / 28:.0f} failures per 1,000 node-days" in texts[2]
    assert "runs at least 3 d 19 h between failures" in texts[2]


def test_without_health_events_no_cause_is_claimed(tmp_path: Path) -> None:
    log = Log([Attempt(1, ("n1",), 0, HOUR, "NODE_FAIL"), Attempt(2, ("n2",), 0, HOUR)])
    texts = sentences(log.open(tmp_path))
    assert "No failure has a cause: the store has no health events" in " ".join(texts)


def test_a_log_without_gpus_speaks_of_nodes(tmp_path: Path) -> None:
    log = Log(
        [
            Attempt(1, ("n1", "n2"), 0, 50 * HOUR, "NODE_FAIL", gpus=0),
            Attempt(2, ("n1", "n2"), 51 * HOUR, 99 * HOUR, gpus=0),
        ]
    )
    texts = sentences(log.open(tmp_path))
    # Two nodes for 98 hours; the failure loses half an hour of both.
    assert texts[0].startswith("1.00 node-hours were lost since 2026-01-05 00:00 UTC")
    assert "of 196;" in texts[0]
    assert any("a job on 2 nodes fails every" in text for text in texts)
    assert not any("on 16 GPUs" in text for text in texts)


def test_only_pending_attempts(tmp_path: Path) -> None:
    log = Log([Attempt(1, (), None, None, "PENDING", gpus=8, submit=0)])
    assert sentences(log.open(tmp_path))


def test_an_empty_window_names_the_end_of_the_log(tmp_path: Path) -> None:
    log = Log([Attempt(1, ("n1",), 0, HOUR)]).open(tmp_path, since="2030-01-01")
    (only,) = sentences(log)
    assert only.startswith(
        "No attempt was alive after 2030-01-01 00:00 UTC: the log ends 2026-01-05"
    )


def test_findings_of_a_log_of_node_failures(tmp_path: Path) -> None:
    rows = [
        f"node{place % 4},2025-0{1 + place}-01T00:00:00,2025-0{1 + place}-01T06:00:00,{cause}"
        for place, cause in enumerate(("disk", "disk", "memory", "disk", "gpu", "disk"))
    ]
    source = tmp_path / "failures.csv"
    source.write_text("\n".join(["node,start,end,cause", *rows]) + "\n")
    fleet.ingest([source], tmp_path / "store")
    texts = sentences(fleet.open(tmp_path / "store"))
    assert texts[0].startswith("6 node failures on 4 nodes since 2025-01-01 00:00 UTC, 1 d 12 h")
    assert "disk, 67 %" in texts[0]
    # 151.25 days from first start to last end, 4 nodes, less the 36 hours of repair.
    assert f"{brief(1000 * 6 / (4 * 151.25 - 1.5))} [" in texts[1]


def test_a_new_check_is_told(tmp_path: Path) -> None:
    day = 24 * HOUR
    attempts = [Attempt(job, ("n1",), job * day, (job + 1) * day - 60) for job in range(20)]
    attempts[15] = Attempt(15, ("n1",), 15 * day, 15 * day + HOUR, "FAILED", exit_code="1:0")
    checks = [Check(15 * day + HOUR - 30 + 60 * k, "n1", "check nvlink") for k in range(12)]
    text = " ".join(sentences(Log(attempts, checks).open(tmp_path)))
    assert "1 health check was introduced" in text
