"""A live source against a real slurmrestd: while jobs run and nodes fail, then beside `sacct --json`.

Debian's Slurm 22.05 on this machine, six virtual nodes; slurmrestd runs as the jobs' user, as it refuses
root, and is asked with a token of `scontrol token`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from test_following import contents

import holdfast.fleet as fleet
from holdfast.fleet.ingest_following import Follower
from holdfast.fleet.live.slurm import SlurmSource
from holdfast.fleet.live.sources import Settings, Sources

pytestmark = pytest.mark.full

SCRIPT = Path(__file__).resolve().parents[4] / "shared" / "testbed" / "slurm_testbed.sh"
PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "slurmrestd", "munged", "mariadbd", "scontrol")
USER = "hfrest"
PORT = 18_300
PATIENCE_S = 240.0
JWT = "AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key=$ETC/jwt.key\n"


@dataclass(frozen=True)
class Slurm:
    """A running testbed with a slurmrestd."""

    script: Path
    environment: dict[str, str]

    def run(self, *command: str, user: str | None = None) -> str:
        """What a command of a client prints."""
        done = subprocess.run(
            command, env=self.environment, user=user, capture_output=True, text=True, check=False,
            timeout=60, cwd=f"/home/{user}" if user else None,
        )  # fmt: skip
        assert done.returncode == 0, (command, done.stderr)
        return done.stdout.strip()

    def submit(self, name: str, script: str, *options: str) -> None:
        """A job of the user's, requeued if its node fails."""
        self.run(
            "sbatch", "--requeue", "-t", "5", "-J", name, *options, "--wrap", script, user=USER
        )

    def nodes_of(self, job: str) -> list[str]:
        """The nodes of a job that runs; [] while it does not."""
        nodes = self.run("squeue", "-h", "-t", "R", "-n", job, "-o", "%N")
        return self.run("scontrol", "show", "hostnames", nodes).split() if nodes else []


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    if not SCRIPT.is_file() or os.geteuid() != 0:
        pytest.skip("no testbed, or not root")
    path = os.environ["PATH"].partition(os.pathsep)[2]  # without what keeps Slurm from other tests
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    folder = Path(tempfile.mkdtemp(prefix="holdfast-rest-", dir="/var/tmp"))
    folder.chmod(0o755)
    script = folder / SCRIPT.name
    text = SCRIPT.read_text().replace("DebugLevel=info\n", f"DebugLevel=info\n{JWT}")
    text = text.replace("CredType=cred/munge\n", f"CredType=cred/munge\n{JWT}")
    key = 'head -c 32 /dev/urandom >"$ETC/jwt.key"; chmod 600 "$ETC/jwt.key"'
    script.write_text(text.replace("write_config; make_users", f"write_config; {key}; make_users"))
    script.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": path,
        "TB_DIR": str(folder / "tb"),
        "TB_PORT": str(PORT),
        "TB_PREFIX": "rest",
        "TB_USERS": USER,
        "TB_CLUSTER": "resttest",
        "TB_NODES": "6",
        "TZ": "UTC",
        "SLURM_CONF": str(folder / "tb" / "etc" / "slurm.conf"),
    }
    running = Slurm(script, environment)
    rest = None
    try:
        started = subprocess.run(
            [script, "start"], env=environment, capture_output=True, text=True, check=False,
            timeout=300,
        )  # fmt: skip
        assert started.returncode == 0, started.stderr
        owner = pwd.getpwnam(USER)
        rest = subprocess.Popen(
            ["slurmrestd", "-a", "rest_auth/jwt", f"127.0.0.1:{PORT + 950}"],
            env={**environment, "SLURM_JWT": "daemon"}, user=owner.pw_uid, group=owner.pw_gid,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        yield running
    finally:
        if rest is not None:
            rest.kill()
            rest.wait()
        subprocess.run([script, "clean"], env=environment, capture_output=True, check=False)
        shutil.rmtree(folder, ignore_errors=True)


def settings(slurm: Slurm, folder: Path) -> Settings:
    token = folder / "token"
    said = slurm.run("scontrol", "token", "username=root", "lifespan=3600")
    token.write_text(said.partition("=")[2])
    url = f"http://127.0.0.1:{PORT + 950}"
    source = SlurmSource("rest", url, token_file=str(token), since=3600, overlap=600)
    return Settings(slurm=(source,))


def test_the_live_store_equals_sacct_of_the_same_period(slurm: Slurm, tmp_path: Path) -> None:
    store = tmp_path / "store"
    made = Sources(store, settings(slurm, tmp_path))
    follower = Follower([made.folder], store)
    pause = threading.Event()

    def until(what: str, done: Callable[[], object]) -> None:
        """Poll until something has happened."""
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < deadline, what
            made.poll()
            assert made.states()[0].state == "ok", made.states()
            pause.wait(1.0)
        follower.look()

    slurm.submit("long", "srun sleep 40", "-N2", "--gres=gpu:8")
    slurm.submit("array", "sleep 5", "--array=1-4%2", "--gres=gpu:1")
    slurm.submit("bad", "sleep 2; exit 3", "--gres=gpu:1")
    slurm.submit("again", "srun sleep 25", "-N1", "--gres=gpu:1")
    until("the long job runs", lambda: slurm.nodes_of("long"))
    lost = slurm.nodes_of("long")[0]
    slurm.run(str(slurm.script), "node-off", lost)
    drained = next(
        f"rest0{n}" for n in range(6, 0, -1) if f"rest0{n}" not in slurm.nodes_of("long")
    )
    slurm.run("scontrol", "update", f"nodename={drained}", "state=drain", "reason=ticket | cable")

    def states() -> str:
        return slurm.run("sacct", "-a", "-D", "-X", "-n", "-P", "--format=JobName,State")

    until("the node's failure is told", lambda: "long|NODE_FAIL" in states())
    made.poll()  # while it is down: what begins and ends between two polls is not seen
    slurm.run(str(slurm.script), "node-start", lost)
    slurm.run("scontrol", "update", f"nodename={drained}", "state=resume")
    until("all jobs are over", lambda: not slurm.run("squeue", "-h"))
    until(
        "all nodes are back", lambda: slurm.run("sinfo", "-h", "-N", "-t", "idle").count("\n") >= 5
    )
    made.poll()
    made.poll()
    follower.look()
    made.close()

    bulk = tmp_path / "sacct.json"
    bulk.write_text(slurm.run("sacct", "--json", "-a", "-D", "-S", "now-1hours"))
    events = tmp_path / "events.psv"
    events.write_text(slurm.run("sacctmgr", "show", "event", "-P", "start=now-1hours") + "\n")
    fleet.ingest([bulk, events], tmp_path / "bulk")
    live, whole = contents(store), contents(tmp_path / "bulk")
    assert live["attempts"] == whole["attempts"]
    assert len(live["attempts"]) >= 8
    assert {row["state"] for row in live["attempts"]} >= {"NODE_FAIL", "FAILED", "COMPLETED"}

    def began(rows: list[dict[str, object]]) -> set[tuple[object, ...]]:
        return {(row["node"], row["start_s"], row["state"], row["reason"]) for row in rows}

    assert began(live["node_outages"]) == began(whole["node_outages"])
    assert {row[0] for row in began(live["node_outages"])} == {lost, drained}
    assert all(row["end_s"] is not None for row in live["node_outages"])


def test_an_expired_token_is_refused_and_a_new_one_is_taken(slurm: Slurm, tmp_path: Path) -> None:
    made = Sources(tmp_path / "store", settings(slurm, tmp_path), first_s=0.0)
    token = tmp_path / "token"
    valid = token.read_text()
    token.write_text(
        slurm.run("scontrol", "token", "username=root", "lifespan=1").partition("=")[2]
    )
    threading.Event().wait(2.5)
    made.poll()
    assert made.states()[0].state == "refused"
    token.write_text(valid)
    made.poll()
    assert made.states()[0].state == "ok"
    made.close()
