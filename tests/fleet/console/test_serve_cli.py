"""`holdfast fleet serve` from outside: what it prints, refuses and serves, and how it ends."""

from __future__ import annotations

import re
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from console_process import console
from invoking import invoke
from logs import Attempt, names

import holdfast.fleet as fleet
from holdfast.errors import InputError, MissingExtraError, StoreError
from holdfast.fleet import Assumptions
from holdfast.fleet.console import serving
from holdfast.fleet.console.serving import serve
from holdfast.fleet.console.views import alert_rules
from holdfast.fleet.store import Store

PATIENCE_S = 120.0
TOKEN = "a-token-that-is-long-enough"


def write(log: Path, *jobs: int) -> None:
    attempts = [Attempt(job, names(2), 60 * job, 60 * job + 50, "NODE_FAIL") for job in jobs]
    columns = attempts[0].fields()
    text = "" if log.exists() else "|".join(columns) + "\n"
    text += "".join("|".join(a.fields()[c] for c in columns) + "\n" for a in attempts)
    with log.open("a") as file:
        file.write(text)


def metrics(url: str) -> str:
    shown = {"Authorization": f"Bearer {TOKEN}"}
    return httpx.get(f"{url}metrics", headers=shown, timeout=PATIENCE_S).text


def failures(text: str) -> float:
    """All that /metrics counts, decided or not."""
    found = re.findall(r"^holdfast_node_failures\S*(?:\{.*\})? (\S+)$", text, re.MULTILINE)
    return sum(map(float, found))


def test_from_nothing_to_metrics_with_a_token_and_ctrl_c(tmp_path: Path) -> None:
    spool, store = tmp_path / "spool", tmp_path / "store"
    spool.mkdir()
    write(spool / "sacct.psv", 1)
    arguments = (store, "--watch", spool, "--poll", "100ms", "--host", "0.0.0.0")
    with console(*arguments, HOLDFAST_TOKEN=TOKEN) as (url, run):
        assert url.startswith("http://0.0.0.0:")
        url = url.replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(f"{url}metrics", timeout=PATIENCE_S).status_code == 401
        assert failures(metrics(url)) == 1
        write(spool / "sacct.psv", 2, 3)
        (spool / "stranger.txt").write_text("hello\n")
        deadline = time.monotonic() + PATIENCE_S
        while failures(text := metrics(url)) != 3 or "holdfast_watch_problems 1.0" not in text:
            assert time.monotonic() < deadline, text
        run.send_signal(signal.SIGINT)
        assert run.wait(PATIENCE_S) == 0
        assert run.stderr.read() == ""
    assert Store.open(store).facts["counts"]["jobs"] == 3


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write(tmp_path / "sacct.psv", 1)
    fleet.ingest([tmp_path / "sacct.psv"], tmp_path / "store")
    return tmp_path / "store"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "example.org", "192.0.2.1"])
def test_another_address_than_the_loopback_needs_a_token(store: Path, host: str) -> None:
    with pytest.raises(InputError, match="HOLDFAST_TOKEN"):
        serve(store, host=host)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"token": "short"}, "too short to be a secret"),
        ({"port": 70_000}, "invalid port"),
        ({"poll_s": 0.0}, "not above zero"),
        ({"watch": ["/no/such/folder/sacct.psv"]}, "folder not found"),
        ({"watch": ["."], "timezone": "Mars/Olympus"}, "time zone not found"),
        ({"host": "192.0.2.1", "token": TOKEN}, "cannot be bound"),
    ],
)
def test_what_makes_no_sense_is_told_before_anything_starts(
    store: Path, given: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        serve(store, **{"port": 0, **given})


def test_a_port_in_use_is_told(store: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"127.0.0.1, port {port}") as caught:
            serve(store, port=port)
    assert "choose another --port" in str(caught.value)


def test_no_store_and_nothing_to_make_it_from(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        serve(tmp_path / "store", port=0)


def test_a_folder_of_other_things_is_not_made_a_store(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.txt").write_text("dear")
    with pytest.raises(StoreError, match="not empty and is not a store"):
        serve(tmp_path / "letters", watch=[tmp_path / "log"], port=0)


@pytest.mark.parametrize("library", ["uvicorn", "prometheus_client"])
def test_a_missing_extra_is_named(
    store: Path, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=rf"{library}.*\n.*holdfast\[console\]"):
        serve(store, port=0)


def test_every_option_reaches_the_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(serving, "serve", lambda store, **rest: given.update(rest, store=store))
    monkeypatch.setenv("HOLDFAST_TOKEN", TOKEN)
    arguments = (
        f"serve {tmp_path} --host ::1 --port 9 --watch {tmp_path}/a --watch {tmp_path} --poll 5m "
        f"--live {tmp_path}/sources.toml "
        "--timezone Europe/Berlin --cluster c --check-before 45s --check-after 10s "
        "--preempt-grace 1s --preempt-slack 30s --checkpoint 60s --init 1s --write 2s "
        "--min-gpus 0 --long-run 60s --chain-by-name"
    )
    result = invoke(*arguments.split())
    assert result.exit_code == 0, result.stderr
    assert f"{tmp_path}/a is not there yet" in result.stderr
    given.pop("on_start")("http://[::1]:9/")
    assert given == {
        "store": tmp_path,
        "host": "::1",
        "port": 9,
        "token": TOKEN,
        "watch": [tmp_path / "a", tmp_path],
        "live": tmp_path / "sources.toml",
        "poll_s": 300.0,
        "timezone": "Europe/Berlin",
        "cluster": "c",
        "assumptions": Assumptions(
            check_before_s=45, check_after_s=10, preemption_grace_s=1, preemption_slack_s=30,
            checkpoint_interval_s=60, init_s=1, write_s=2, min_gpus=0, long_run_s=60,
            chain_by_name=True,
        ),
    }  # fmt: skip


def test_the_alert_rules_are_printed() -> None:
    result = invoke("alerts")
    assert result.stdout == alert_rules()
