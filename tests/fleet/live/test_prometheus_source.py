"""Prometheus as a source: an event at each change of a series, none twice, whoever restarts."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any

import live_stub
import pytest
from live_stub import serving
from test_following import contents

from holdfast.fleet.ingest_following import Follower
from holdfast.fleet.live import asking
from holdfast.fleet.live.asking import Trouble
from holdfast.fleet.live.prometheus import Prometheus, PrometheusSource, Rule
from holdfast.fleet.live.spool import Spool

BEGIN = 1_795_957_200  # a whole multiple of 60
RULES = (
    Rule("DCGM_FI_DEV_XID_ERRORS > 0", "xid", "Hostname", "HIGH", on="change", xid=True),
    Rule("increase(DCGM_FI_DEV_ECC_DBE_VOL_TOTAL[5m]) > 0", "ecc", "Hostname", "HIGH"),
    Rule("DCGM_FI_DEV_GPU_TEMP > 85", "gpu temperature", "Hostname", "LOW", result="warn"),
    Rule("up == 0", "node exporter", severity="HIGH"),
)


def between(*spans: tuple[int, int, float]) -> Callable[[int], float | None]:
    """A series that is there from minute to minute, both included, with a value."""

    def value(time_s: int) -> float | None:
        minute = (time_s - BEGIN) / 60
        return next((value for first, last, value in spans if first <= minute <= last), None)

    return value


SERIES = {
    RULES[0].query: [
        ({"__name__": "XID", "Hostname": "g1", "gpu": "3"}, between((5, 9, 79), (10, 12, 48))),
        ({"__name__": "XID", "Hostname": "g2", "gpu": "0"}, between((20, 200, 31))),
    ],
    RULES[1].query: [({"Hostname": "g2"}, between((7, 11, 2)))],
    RULES[2].query: [({"Hostname": "g1", "gpu": "1"}, between((3, 4, 88), (6, 7, 91)))],
    RULES[3].query: [({"instance": "g3:9100", "job": "node"}, between((15, 18, 0)))],
}
EVENTS = {
    (5, "g1", "xid", "fail", 79),
    (10, "g1", "xid", "fail", 48),
    (13, "g1", "xid", "ok", None),
    (20, "g2", "xid", "fail", 31),
    (7, "g2", "ecc", "fail", None),
    (12, "g2", "ecc", "ok", None),
    (3, "g1", "gpu temperature", "warn", None),
    (5, "g1", "gpu temperature", "ok", None),
    (6, "g1", "gpu temperature", "warn", None),
    (8, "g1", "gpu temperature", "ok", None),
    (15, "g3", "node exporter", "fail", None),
    (19, "g3", "node exporter", "ok", None),
}


def source(url: str, **changes: Any) -> Prometheus:
    return Prometheus(PrometheusSource("p", url, rule=RULES, since=600, **changes), Event(), 0.0)


class Mortal(Spool):
    """Dies instead of noting its cursor, at some call."""

    def __init__(self, folder: Path, calls: int) -> None:
        self.calls = calls
        super().__init__(folder, lambda: BEGIN)

    def commit(self, **cursor: Any) -> None:
        self.calls -= 1
        super().commit(**cursor if 1 / (self.calls + 1) else {})


def events(store: Path) -> list[tuple[Any, ...]]:
    names = ("node", "check", "result", "xid")
    rows = contents(store)["health"]
    return [((row["time_s"] - BEGIN) / 60, *(row[name] for name in names)) for row in rows]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [float(BEGIN)]
    monkeypatch.setattr(asking.time, "time", lambda: now[0])
    return now


@pytest.mark.parametrize("seed", [0, 1])
def test_each_change_is_one_event_however_it_is_asked(
    seed: int, tmp_path: Path, clock: list[float]
) -> None:
    """At odd times, by processes that mostly end after some data and before their cursor."""
    rng = random.Random(seed)
    server = live_stub.Prometheus(SERIES, BEGIN)
    with serving(server.answer) as url:
        while server.now_s < BEGIN + 30 * 60:
            server.now_s += rng.uniform(10, 400)
            server.reverse = rng.random() < 0.5
            clock[0] = server.now_s
            spool = Mortal(tmp_path / "spool", rng.randrange(8))
            with suppress(ZeroDivisionError):
                source(url, late=rng.choice([0, 30, 90])).poll(spool)
            spool.close()
        source(url, late=0).poll(Spool(tmp_path / "spool", lambda: clock[0]))
    Follower([tmp_path / "spool"], tmp_path / "store").look()
    found = events(tmp_path / "store")
    assert len(found) == len(set(found))
    assert set(found) == EVENTS


def test_a_long_absence_is_made_up_in_questions_that_prometheus_takes(
    tmp_path: Path, clock: list[float]
) -> None:
    server = live_stub.Prometheus(SERIES, BEGIN + 30 * 86_400)
    clock[0] = server.now_s
    rule = Rule("up == 0", "node exporter", severity="HIGH")
    settings = PrometheusSource("p", "", rule=(rule,), since=30 * 86_400 + 60, late=0)
    spool = Spool(tmp_path / "spool", lambda: clock[0])
    with serving(server.answer) as url:
        made = Prometheus(PrometheusSource(**{**vars(settings), "url": url}), Event(), 0.0)
        assert made.poll(spool) == ""
    spans = [(start, end) for _, start, end in server.windows]
    assert len(spans) == 5
    assert all(later[0] == earlier[1] + 60 for earlier, later in pairwise(spans))
    (file,) = spool.folder.glob("health-*")
    times = [json.loads(line)["time"] for line in file.read_bytes().splitlines()]
    assert times == [BEGIN + 15 * 60, BEGIN + 19 * 60]


@pytest.mark.parametrize(
    ("status", "body", "state"),
    [
        (400, {"status": "error", "error": "invalid parameter"}, "bad-answer"),
        (200, {"status": "error", "error": "parse error"}, "bad-answer"),
        (422, b"", "bad-answer"),
        (403, b"", "refused"),
        (200, b'{"status":"success","data":{"resu', "half-written"),
    ],
)
def test_what_goes_wrong_has_a_name(
    status: int, body: Any, state: str, tmp_path: Path, clock: list[float]
) -> None:
    with serving(lambda *_: (status, body)) as url, pytest.raises(Trouble) as caught:
        source(url).poll(Spool(tmp_path))
    assert caught.value.state == state


def test_a_bearer_token_goes_along(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROM_TOKEN", "s3cret")
    server = live_stub.Prometheus(SERIES, BEGIN)
    seen = []

    def answer(path: str, asked: dict[str, str], headers: dict[str, str]) -> live_stub.Answer:
        seen.append(headers.get("authorization"))
        return server.answer(path, asked, headers)

    with serving(answer) as url:
        source(url, token_env="PROM_TOKEN").poll(Spool(tmp_path))
    assert set(seen) == {"Bearer s3cret"}
