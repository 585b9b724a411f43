"""A server that is killed at any moment loses no event and doubles none."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import live_stub
import pytest
from console_process import console
from live_stub import serving
from test_following import contents

import holdfast.fleet as fleet
from holdfast.fleet.ingest_following import Follower
from holdfast.fleet.live.sources import Sources, read_sources

BEGIN = 1_795_957_200  # a whole multiple of 60
XID = "DCGM_FI_DEV_XID_ERRORS > 0"


def xid(gpu: int) -> Callable[[int], float | None]:
    """Another XID in each span of 10 minutes, the last 3 of which are quiet."""

    def value(time_s: int) -> float | None:
        span, at = divmod(time_s - BEGIN, 600)
        return 13.0 + (span * 7 + gpu) % 80 if 0 <= at < 420 else None

    return value


def events(end_s: float) -> set[tuple[int, str, str, int | None]]:
    """Time, node, result and XID of the changes from BEGIN to a time."""
    found: set[tuple[int, str, str, int | None]] = set()
    for start in range(BEGIN, int(end_s) + 1, 600):
        for gpu in range(3):
            value = xid(gpu)(start)
            assert value is not None
            found.add((start, f"n{gpu}", "fail", int(value)))
            if start + 420 <= end_s:
                found.add((start + 420, f"n{gpu}", "ok", None))
    return found


@dataclass
class Killer:
    """Kills a process a moment after it has asked so many questions."""

    rng: random.Random
    kills: int
    pid: int = 0
    left: int = 0
    done: threading.Event = field(default_factory=threading.Event)

    def aim(self, pid: int) -> None:
        self.left, self.pid = self.rng.randint(2, 14), pid

    def asked(self, _: int) -> None:
        self.left -= 1
        if self.left == 0 and self.pid:
            threading.Timer(self.rng.uniform(0, 0.3), os.kill, (self.pid, signal.SIGKILL)).start()


@contextmanager
def sources(folder: Path, killer: Killer, jobs: int) -> Iterator[tuple[live_stub.Slurm, Path]]:
    """A Slurm and a Prometheus whose time goes on with each poll, and the file that names them."""
    cluster = live_stub.Slurm(BEGIN, jobs=jobs, step_s=30.0, asked=killer.asked)
    series = [({"Hostname": f"n{gpu}"}, xid(gpu)) for gpu in range(3)]
    metrics = live_stub.Prometheus({XID: series}, BEGIN + 60.0, 30.0, asked=killer.asked)
    file = folder / "sources.toml"
    with serving(cluster.answer) as slurm, serving(metrics.answer) as prometheus:
        file.write_text(
            f'[[slurm]]\nname = "s"\nurl = "{slurm}"\nsince = "1h"\noverlap = "10m"\nevery = 0.05\n'
            f'[[prometheus]]\nname = "p"\nurl = "{prometheus}"\nlate = 0\nsince = "2m"\nevery = 0.05\n'
            f'[[prometheus.rule]]\nquery = "{XID}"\ncheck = "xid"\nnode = "Hostname"\n'
            'on = "change"\nxid = true\nseverity = "HIGH"\n'
        )
        yield cluster, file
        # What is left, and what was: in this process, which nobody kills.
        cluster.now_s, metrics.now_s = cluster.end_s + 600.0, cluster.end_s + 600.0
        made = Sources(folder / "store", read_sources(file), first_s=0.0)
        follower = Follower([made.folder], folder / "store")
        for _ in range(2):  # an outage is written when a second poll finds it
            made.poll()
            follower.look()
        made.close()
    check(folder, cluster, metrics.now_s)


def check(folder: Path, cluster: live_stub.Slurm, end_s: float) -> None:
    """The store has each attempt, outage and event once."""
    whole = folder / "sacct.json"
    whole.write_text(json.dumps({"meta": {"openapi/dbv0.0.38": 1}, "jobs": cluster.within()}))
    fleet.ingest([whole], folder / "bulk")
    live = contents(folder / "store")
    assert live["attempts"] == contents(folder / "bulk")["attempts"]
    assert live["rejects"] == []
    told = [(row["time_s"], row["node"], row["result"], row["xid"]) for row in live["health"]]
    assert len(told) == len(set(told))
    assert set(told) == events(end_s)
    outages = [(row["node"], row["start_s"]) for row in live["node_outages"]]
    assert len(outages) == len(set(outages))
    assert set(outages) <= {(node, since) for node, since, _ in cluster.outages()}


def feed(store: Path, file: Path) -> None:
    """What a server does, without its pages, until it is killed."""
    made = Sources(store, read_sources(file), first_s=0.0)
    follower = Follower([made.folder], store)
    made.start()
    while True:
        follower.look()


def test_three_kills(tmp_path: Path) -> None:
    killer = Killer(random.Random(1), 3)
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["live_stub", "holdfast.fleet.live.sources"])
    with sources(tmp_path, killer, jobs=24):
        for _ in range(killer.kills):
            run = processes.Process(
                target=feed, args=(tmp_path / "store", tmp_path / "sources.toml")
            )
            run.start()
            assert run.pid is not None
            killer.aim(run.pid)
            run.join()
            assert run.exitcode == -signal.SIGKILL


@pytest.mark.full
def test_fifty_kills_of_the_server(tmp_path: Path) -> None:
    killer = Killer(random.Random(2), 50)
    with sources(tmp_path, killer, jobs=200) as (_, file):
        for _ in range(killer.kills):
            with console(tmp_path / "store", "--live", file, "--poll", "0.05s") as (_, run):
                killer.aim(run.pid)
                assert run.wait() == -signal.SIGKILL
