"""Every page of the console, its answers where something is missing, and hostile names."""

from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from logs import Attempt, Check, Log, Outage

import holdfast.fleet as fleet
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.console import evidence
from holdfast.fleet.console.app import create_app
from holdfast.fleet.console.views import PAGES, PLACES

HOUR = 3600
DAY = 24 * HOUR
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>'\"&{{7*7}}"
VOID = {"meta", "link", "img", "br", "hr", "input"}


class Reader(HTMLParser):
    """Collects ids, links and labels; fails on tags that do not nest."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.labels: list[str] = []
        self.inputs: list[dict[str, str | None]] = []
        self.inline: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids += [given["id"] or ""] if "id" in given else []
        self.links += [given["href"] or ""] if "href" in given and tag == "a" else []
        self.labels += [given["for"] or ""] if tag == "label" else []
        if tag in ("input", "textarea") and given.get("type") != "hidden":
            self.inputs.append(given)
        self.inline += [name for name in given if name.startswith("on") or name == "style"]
        if tag == "script" and "src" not in given and given.get("type") != "application/json":
            self.inline.append("script")
        self.inline += ["style"] if tag == "style" else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("script", "style"):
            self.text += data


def read(client: TestClient, path: str, status: int = 200) -> Reader:
    answer = client.get(path)
    assert answer.status_code == status, (path, answer.text[:500])
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    reader = Reader()
    reader.feed(answer.text)
    reader.close()
    assert not reader.open
    reader.text = re.sub(r"\s+", " ", reader.text.replace("\u00a0", " "))
    return reader


EVERY = [*PAGES, "/nodes/node05", "/jobs/93", "/jobs?q=train", "/jobs/none", "/nowhere"]


@pytest.mark.parametrize("path", EVERY)
def test_pages_are_whole_and_hold_nothing_that_the_policy_forbids(
    console: TestClient, path: str
) -> None:
    reader = read(console, path, 404 if path in ("/jobs/none", "/nowhere") else 200)
    assert len(reader.ids) == len(set(reader.ids))
    assert not reader.inline
    for given in reader.inputs:
        assert given.get("aria-label") or given["id"] in reader.labels
    for link in reader.links:
        assert not link or link.startswith(("/", "#", "data:text/csv")), link


def test_every_link_of_the_summary_leads_somewhere(console: TestClient) -> None:
    found = read(console, "/")
    pages: dict[str, Reader] = {}
    for link in {link for link in found.links if link.startswith("/")}:
        path, _, anchor = link.partition("#")
        page = pages.setdefault(path, read(console, path))
        assert not anchor or anchor in page.ids, link


def test_each_section_of_the_report_has_a_place(console: TestClient) -> None:
    pages = {path: read(console, path) for path in PAGES}
    for section, address in PLACES.items():
        path, _, anchor = address.partition("#")
        assert anchor == section
        assert section in pages[path].ids


def test_the_summary(console: TestClient) -> None:
    text = read(console, "/summary").text
    assert "8.94 GPU-hours were lost since 2026-11-20 10:49" in text
    assert "What we could not tell" in text


def test_the_nodes_are_links_to_their_evidence(console: TestClient) -> None:
    links = [link for link in read(console, "/nodes").links if link.startswith("/nodes/")]
    assert len(links) == len(set(links)) == 16
    for link in links[::5]:
        assert "Is it a lemon?" in read(console, link).text


def test_the_evidence_on_a_node(console: TestClient, testbed_analysis: Analysis) -> None:
    text = read(console, "/nodes/node05").text
    row = next(r for r in testbed_analysis.lemons.nodes.to_pylist() if r["node"] == "node05")
    assert "node05 is a lemon at a false discovery rate of 5 % (q = 0.019)" in text
    assert f"{row['failures']:.2f} failures to blame on it" in text
    assert "jobs that exclude it" in text
    assert "6 outages; all are over." in text
    assert "pcie aer errors" in text
    found = evidence.node(testbed_analysis, "node05")
    assert found is not None
    failures = next(s for s in found.sections if s.id == "failures").tables[0].data
    assert failures.num_rows >= row["failures"]
    assert "93" in failures["job_id"].to_pylist()


def test_a_job(console: TestClient, testbed_analysis: Analysis) -> None:
    reader = read(console, "/jobs/93")
    assert "10 attempts, 9 ended by the infrastructure" in reader.text
    assert "pretrain-main" in reader.text
    assert "InfiniBand link" in reader.text
    assert "XIDs" in reader.text
    attributed = fleet.attribute(testbed_analysis.log, "93").attempts
    named = {f"/nodes/{cause['node']}" for each in attributed for cause in each["causes"]}
    assert named <= set(reader.links)


@pytest.mark.parametrize(
    ("words", "found"),
    [("93", "/jobs/93"), ("306", "/jobs/306_4"), ("chen", "/jobs/93"), ("PRETRAIN", "/jobs/93")],
)
def test_a_search_finds_ids_arrays_users_and_names(
    console: TestClient, words: str, found: str
) -> None:
    assert found in read(console, f"/jobs?q={words}").links


def test_a_search_for_a_node_finds_its_jobs(
    console: TestClient, testbed_analysis: Analysis
) -> None:
    log = testbed_analysis.log
    ran = {
        row["job_id"]
        for row in log.rows(
            f"SELECT job_id FROM {log.attempts} WHERE list_contains(nodes, 'node16')"
        )
    }
    reader = read(console, "/jobs?q=node16")
    assert f"{len(ran):,} jobs match" in reader.text


@pytest.mark.parametrize("path", ["/nodes/{}", "/jobs/{}"])
@pytest.mark.parametrize(
    "name", ["none", "x' OR '1'='1", "../../etc/passwd", HOSTILE, "1e9", "٣", "-1", "%00", " "]
)
def test_what_is_not_there_gets_a_page_that_says_so(
    console: TestClient, path: str, name: str
) -> None:
    answer = console.get(path.format(quote(name, safe="")))
    assert answer.status_code == 404
    assert "<script>alert" not in answer.text
    assert "<img" not in answer.text
    assert "Traceback" not in answer.text


def test_an_unknown_job_says_what_to_do(console: TestClient) -> None:
    reader = read(console, "/jobs/12345", 404)
    assert "The log has no job “12345”." in reader.text
    assert "/jobs?q=12345" in reader.links


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
def test_pages_are_read_only(console: TestClient, method: str) -> None:
    assert console.request(method, "/").status_code == 405


def test_a_probe_may_ask_with_head(console: TestClient) -> None:
    assert console.head("/").status_code == 200


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    """Names that a user or a node chose: of jobs, checks, reasons."""
    attempts = [
        Attempt(job, ("n1", "n2"), job * DAY, job * DAY + HOUR, "NODE_FAIL", name=HOSTILE)
        for job in range(1, 13)
    ]
    checks = [Check(each.stop - 30, "n1", HOSTILE, "HIGH") for each in attempts[6:]]
    outages = [Outage("n1", each.stop, each.stop + HOUR) for each in attempts]
    app = create_app(Log(attempts, checks, outages).store(tmp_path))
    with TestClient(app, base_url="http://localhost") as client:
        for path in ("/", "/nodes", "/nodes/n1", "/jobs/7", f"/jobs?q={quote(HOSTILE)}"):
            reader = read(client, path)
            assert not reader.inline
        html = client.get("/jobs/7").text
        assert "onerror" in html
        assert "<img" not in html


@pytest.fixture
def broken(tmp_path: Path) -> TestClient:
    store = Log([Attempt(1, ("n1",), 0, HOUR)]).store(tmp_path)
    return TestClient(create_app(store, patience_s=60), base_url="http://localhost")


@pytest.mark.parametrize("path", [*PAGES, "/nodes/n1", "/jobs/1", "/metrics"])
def test_a_store_that_is_not_there(tmp_path: Path, path: str) -> None:
    client = TestClient(create_app(tmp_path / "none"), base_url="http://localhost")
    answer = client.get(path)
    assert answer.status_code == 503
    assert "does not exist" in answer.text
    assert "holdfast fleet ingest" in answer.text


def test_a_store_that_breaks_and_is_mended(broken: TestClient, tmp_path: Path) -> None:
    (manifest,) = tmp_path.rglob("store.json")
    good = manifest.read_bytes()
    assert broken.get("/").status_code == 200
    manifest.write_bytes(b"{")
    answer = broken.get("/")
    assert answer.status_code == 503
    assert "the store&#39;s list of tables cannot be read" in answer.text
    assert "Traceback" not in answer.text
    assert broken.get("/generation").json()["generation"] == "none"
    shutil.rmtree(manifest.parent / "attempts")
    manifest.write_bytes(good)
    assert "a file of the store is missing" in broken.get("/").text


def test_a_fault_of_the_console_shows_no_traceback(
    console: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.fleet.console import pages

    def fault(*_: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(pages, "jobs", fault)
    client = TestClient(console.app, base_url="http://localhost", raise_server_exceptions=False)
    answer = client.get("/jobs")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "The console made a mistake" in answer.text


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "attempts",
    [
        pytest.param([Attempt(1, (), None, None, "PENDING", gpus=8, submit=0)], id="pending"),
        pytest.param([Attempt(1, ("n1", "n2"), 0, HOUR, "NODE_FAIL", gpus=0)], id="no GPUs"),
    ],
)
def test_a_poor_log_gets_pages(attempts: list[Attempt], tmp_path: Path) -> None:
    client = TestClient(create_app(Log(attempts).store(tmp_path)), base_url="http://localhost")
    for path in ("/", "/rate", "/nodes", "/jobs", "/jobs/1", "/ettr"):
        answer = client.get(path)
        assert answer.status_code == 200, path
        assert not re.search(r">(nan|None|undefined|inf)\b", answer.text), path


def test_a_log_of_node_failures(tmp_path: Path) -> None:
    source = tmp_path / "failures.csv"
    rows = [
        f"node{k % 3},2025-0{k + 1}-01T00:00:00,2025-0{k + 1}-02T00:00:00,gpu" for k in range(6)
    ]
    source.write_text("\n".join(["node,start,end,cause", *rows]) + "\n")
    fleet.ingest([source], tmp_path / "store")
    client = TestClient(create_app(tmp_path / "store"), base_url="http://localhost")
    for path in PAGES:
        assert client.get(path).status_code == 200, path
    assert "2 outages; all are over." in read(client, "/nodes/node1").text
