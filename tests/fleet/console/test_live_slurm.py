"""The live path against a real Slurm: a node's slurmd is killed, and the console shows what it cost.

Sixteen virtual nodes on this machine, exported as a cron job of an operator would: `sacct` appended to
one log, the node events and the inventory as files of their own, health checks as JSON lines.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from console_process import console
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.full

SCRIPT = Path(__file__).resolve().parents[4] / "shared" / "testbed" / "slurm_testbed.sh"
PROGRAMS = (
    "slurmctld",
    "slurmd",
    "slurmdbd",
    "munged",
    "mariadbd",
    "mariadb-install-db",
    "sacctmgr",
)
USER = "hflive"
NODES, GPUS, JOB_NODES = 16, 8, 4
POLL_S = 60.0  # as by default
CHECKPOINT_S = 60.0
PATIENCE_S = 240.0
WINDOWS = (  # time is compressed
    *("--check-before", "45s", "--check-after", "10s", "--preempt-slack", "30s"),
    *(
        "--checkpoint",
        f"{CHECKPOINT_S:.0f}s",
        "--init",
        "1s",
        "--long-run",
        "60s",
        "--min-gpus",
        "0",
    ),
)
COLUMNS = (
    "JobID,JobIDRaw,Cluster,JobName,User,Account,Partition,QOS,Priority,State,Reason,ExitCode,"
    "DerivedExitCode,Submit,Eligible,Start,End,ElapsedRaw,Timelimit,NNodes,NodeList,AllocTRES,ReqTRES,"
    "DBIndex,SubmitLine,WorkDir"
)


def until(what: str, done: Any) -> Any:
    """Ask again until there is an answer."""
    pause, deadline = threading.Event(), time.monotonic() + PATIENCE_S
    while not (answer := done()):
        assert time.monotonic() < deadline, f"{what} did not happen"
        pause.wait(0.3)
    return answer


@dataclass(frozen=True)
class Slurm:
    """A running testbed."""

    script: Path
    environment: dict[str, str]

    def run(self, *command: str) -> str:
        """What a command of a client prints."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, (command, done.stderr)
        return done.stdout

    def testbed(self, *arguments: str) -> str:
        return self.run(str(self.script), *arguments)

    def attempts(self, job: str) -> list[dict[str, str]]:
        """Every attempt of a job, as accounting has them."""
        columns = "State,NodeList,ElapsedRaw,Start,End"
        text = self.run("sacct", "-D", "-X", "-n", "-P", "-j", job, f"--format={columns}")
        return [
            dict(zip(columns.split(","), line.split("|"), strict=True))
            for line in text.splitlines()
        ]


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    if not SCRIPT.is_file():
        pytest.skip(f"no testbed at {SCRIPT.parent}")
    if os.geteuid() != 0:
        pytest.skip("jobs of several users need root")
    path = os.environ["PATH"].partition(os.pathsep)[2]  # without what keeps Slurm from other tests
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        pytest.skip(f"Slurm is not installed: {', '.join(missing)} missing")
    # Not below pytest's own folder, into which the jobs' user may not look.
    folder = Path(tempfile.mkdtemp(prefix="holdfast-live-", dir="/var/tmp"))
    folder.chmod(0o755)
    script = Path(shutil.copy(SCRIPT, folder))
    environment = {
        **os.environ,
        "PATH": path,
        "TB_DIR": str(folder / "tb"),
        "TB_PORT": "18100",
        "TB_PREFIX": "live",
        "TB_USERS": USER,
        "TB_CLUSTER": "livetest",
        "TB_NODES": str(NODES),
        "TB_GPUS": str(GPUS),
        "TZ": "UTC",
        "SLURM_CONF": str(folder / "tb" / "etc" / "slurm.conf"),
    }
    running = Slurm(script, environment)
    try:
        started = subprocess.run(
            [script, "start"], env=environment, capture_output=True, text=True, check=False,
            timeout=300,
        )  # fmt: skip
        assert started.returncode == 0, started.stderr
        yield running
    finally:
        subprocess.run([script, "clean"], env=environment, capture_output=True, check=False)
        shutil.rmtree(folder, ignore_errors=True)


class Cron:
    """What an operator's cron job does every minute, here whenever it is told to."""

    def __init__(self, slurm: Slurm, spool: Path) -> None:
        self.slurm, self.spool = slurm, spool
        self.since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")

    def export(self) -> None:
        start = f"Start={self.since}"
        events = "Format=Cluster,NodeName,TimeStart,TimeEnd,State,Reason,User"
        self._whole("events.txt", self.slurm.run("sacctmgr", "-P", "show", "event", start, events))
        self._whole("nodes.txt", self.slurm.run("scontrol", "show", "node"))
        log = self.slurm.run(
            "sacct", "-a", "-D", "-P", "-S", self.since, f"--format={COLUMNS}"
        )  # with its header, every time
        with (self.spool / "sacct.psv").open("a") as file:
            file.write(log)

    def check_fired(self, node: str, check: str, message: str) -> None:
        event = {
            "time": datetime.now(UTC).isoformat(),
            "node": node,
            "check": check,
            "severity": "HIGH",
            "result": "fail",
            "message": message,
        }
        with (self.spool / "health.jsonl").open("a") as file:
            file.write(json.dumps(event) + "\n")

    def _whole(self, name: str, text: str) -> None:
        hidden = self.spool / f".{name}"
        hidden.write_text(text)
        hidden.rename(self.spool / name)


def metrics(url: str) -> dict[tuple[str, ...], float]:
    """(metric, labels' values) -> value."""
    text = httpx.get(f"{url}/metrics", timeout=PATIENCE_S).text
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


FAILURES = ("holdfast_node_failures", "PCIe", "hardware")
LOST = ("holdfast_goodput_lost_gpu_hours", "first")
POLLED = ("holdfast_watch_last_poll_timestamp_seconds",)


def test_a_killed_node_is_on_the_console_within_one_poll(slurm: Slurm, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    cron = Cron(slurm, spool)
    job = slurm.run(
        *("sbatch", "--parsable", f"--uid={USER}", f"--nodes={JOB_NODES}", "--requeue"),
        *(f"--gpus-per-node={GPUS}", "--time=30", "--job-name=big", "--chdir=/tmp"),
        *("--output=/dev/null", "--wrap=srun sleep 1500"),
    ).strip()
    until("the job's start", lambda: slurm.attempts(job)[:1] and _runs(slurm.attempts(job)[0]))
    cron.export()
    watched = ("--watch", spool, "--poll", f"{POLL_S:g}s", *WINDOWS)
    with console(tmp_path / "store", *watched) as (address, _):
        url = address.rstrip("/")
        before = metrics(url)
        assert before["holdfast_store_attempts",] >= 1
        assert before.get(FAILURES, 0) == 0
        assert before[LOST] == 0
        until("a while on the nodes", lambda: int(slurm.attempts(job)[0]["ElapsedRaw"]) >= 5)
        victim = slurm.run("scontrol", "show", "hostnames", slurm.attempts(job)[0]["NodeList"])
        node = victim.split()[1]
        cron.check_fired(node, "pcie aer errors", "uncorrectable PCIe error on 0000:4b:00.0")
        slurm.testbed("node-crash", node)
        failed = until(
            "NODE_FAIL in accounting",
            lambda: [a for a in slurm.attempts(job) if a["State"] == "NODE_FAIL"],
        )[0]
        cron.export()
        exported = time.time()

        polls: set[float] = set()

        def shown() -> dict[tuple[str, ...], float] | None:
            now = metrics(url)
            if now[POLLED] > exported:
                polls.add(now[POLLED])
            return now if now.get(FAILURES) else None

        after = until("the failure on the console", shown)
        visible = time.time() - exported
        print(f"\nvisible {visible:.1f} s after the export, {len(polls)} poll(s) of {POLL_S:g} s")
        assert len(polls) == 1

        # The failure, its cause, and the lost GPU-time: GPUs x min(runtime, half an interval).
        elapsed = int(failed["ElapsedRaw"])
        lost = JOB_NODES * GPUS * min(elapsed, CHECKPOINT_S / 2) / 3600
        assert after[FAILURES] == 1
        assert math.isclose(after[LOST], lost, rel_tol=1e-6)
        assert after["holdfast_unattributed_share",] == 0
        assert after["holdfast_watch_problems",] == 0

        page = httpx.get(f"{url}/jobs/{job}", timeout=PATIENCE_S)
        assert page.status_code == 200
        for text in ("NODE_FAIL", node, "pcie aer errors"):
            assert text in page.text
        summary = httpx.get(f"{url}/", timeout=PATIENCE_S).text
        assert "1 infrastructure failure" in summary
        assert "PCIe" in summary
        evidence = httpx.get(f"{url}/nodes/{node}", timeout=PATIENCE_S)
        assert evidence.status_code == 200
        assert "pcie aer errors" in evidence.text


def _runs(attempt: dict[str, str]) -> bool:
    return attempt["State"] == "RUNNING"


def test_an_operator_drains_a_node_in_a_browser(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is made up; the cluster, the browser and what they do are real."""
    from logs import Attempt, Log
    from playwright.sync_api import sync_playwright

    from holdfast.fleet.live import journal

    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, slurm.environment[name])
    monkeypatch.setenv("ADA", "a secret of sixteen or more")
    nodes = [f"live{number:02d}" for number in range(1, NODES + 1)]
    bad, day = nodes[2], 86_400
    log = Log(nodes=dict.fromkeys(nodes, GPUS))
    for number in range(60 * NODES):
        at, node = divmod(number, NODES)
        state = "NODE_FAIL" if nodes[node] == bad and at % 2 else "COMPLETED"
        begin = at * day
        log.attempts.append(Attempt(number + 1, (nodes[node],), begin, begin + day - 60, state))
    store = log.store(tmp_path)
    actions = tmp_path / "actions.toml"
    actions.write_text('[[people]]\nname = "ada"\nrole = "operator"\ntoken = "ADA"\n')

    def state() -> str:
        return slurm.run("sinfo", "--noheader", "--nodes", bad, "--format=%T %E").strip()

    assert state().startswith("idle")
    with console(store, "--actions", actions) as (url, _), sync_playwright() as playwright:
        address = url.rstrip("/")
        sandbox = ["--headless", "--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=sandbox)
        signed_in = {"username": "ada", "password": os.environ["ADA"]}
        page = browser.new_page(http_credentials=signed_in)
        page.goto(f"{address}/actions")
        page.get_by_label(f"{bad}: why").fill("it fails every other day")
        page.get_by_role("button", name="Approve").click()
        page.get_by_role("button", name="Undo").wait_for()
        # Slurm shows the reason up to its first 20 characters or so here
        assert state().startswith("drained holdfast")
        page.get_by_label(f"{bad}: why").fill("the wrong node")
        page.get_by_role("button", name="Undo").click()
        page.get_by_role("button", name="Approve").wait_for()
        assert state().startswith("idle")
        browser.close()
    steps = [(step.event, step.who, step.why) for step in journal.entries(store)[1:4]]
    why = "it fails every other day"
    assert steps == [
        ("approved", "ada", why),
        ("drained", "ada", why),
        ("undone", "ada", "the wrong node"),
    ]
