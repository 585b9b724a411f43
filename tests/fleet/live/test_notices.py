"""Messages about changes: one each, none twice, none in quiet hours, sent by apprise."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from holdfast.errors import InputError
from holdfast.fleet.live.notices import FILE, is_quiet, send_new, sender
from holdfast.fleet.live.settings import Notices

CHANGES = {"proposed 1": "n1 should be pulled", "proposed 2": "n2 should be pulled"}
ONE = {"proposed 1": "n1 should be pulled"}
DAY = Notices("URLS", quiet="22:00-07:00", digest="08:00", timezone="Europe/Berlin")


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


class Box:
    """Takes messages, or does not."""

    def __init__(self, *, open_: bool = True) -> None:
        self.open, self.texts = open_, list[str]()

    def __call__(self, title: str, text: str) -> bool:
        if self.open:
            self.texts.append(text)
        return self.open


def test_one_message_per_change_and_none_twice(tmp_path: Path) -> None:
    wanted, box = Notices("URLS"), Box()
    for now in (0.0, 60.0, 120.0):
        send_new(tmp_path, wanted, CHANGES, box, now_s=now)
    send_new(tmp_path, wanted, {**CHANGES, "new": "n3"}, box, now_s=180.0)
    assert box.texts == ["n1 should be pulled", "n2 should be pulled", "n3"]


def test_what_could_not_be_sent_is_sent_later(tmp_path: Path) -> None:
    wanted, box = Notices("URLS"), Box(open_=False)
    assert send_new(tmp_path, wanted, CHANGES, box, now_s=0.0) == []
    box.open = True
    assert send_new(tmp_path, wanted, CHANGES, box, now_s=1.0) == ["proposed 1", "proposed 2"]


def test_a_sender_that_is_killed_sends_nothing_twice(tmp_path: Path) -> None:
    def killed(title: str, text: str) -> bool:
        raise KeyboardInterrupt

    wanted, box = Notices("URLS"), Box()
    with pytest.raises(KeyboardInterrupt):
        send_new(tmp_path, wanted, ONE, killed, now_s=0.0)
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"time_s": 1.0, "ke')  # what a killed writer leaves
    assert send_new(tmp_path, wanted, CHANGES, box, now_s=1.0) == ["proposed 2"]
    assert send_new(tmp_path, wanted, CHANGES, box, now_s=2.0) == []


@pytest.mark.parametrize(
    ("quiet", "time", "answer"),
    [
        ("22:00-07:00", "2026-01-05T21:59", False),
        ("22:00-07:00", "2026-01-05T22:00", True),
        ("22:00-07:00", "2026-01-06T00:00", True),
        ("22:00-07:00", "2026-01-06T06:59", True),
        ("22:00-07:00", "2026-01-06T07:00", False),
        ("12:00-13:30", "2026-01-05T11:59", False),
        ("12:00-13:30", "2026-01-05T13:29", True),
        ("12:00-13:30", "2026-01-05T13:30", False),
        ("", "2026-01-05T03:00", False),
    ],
)
def test_quiet_hours(quiet: str, time: str, answer: bool) -> None:
    assert is_quiet(Notices("U", quiet=quiet), datetime.fromisoformat(time)) is answer


def test_quiet_hours_keep_messages_and_the_digest_comes_once_a_day(tmp_path: Path) -> None:
    """Berlin is an hour ahead of UTC in January, two in July."""
    box = Box()

    def asked(text: str) -> list[str]:
        return send_new(tmp_path, DAY, ONE, box, now_s=at(text), digest=lambda: "all is well")

    assert asked("2026-01-05T05:59") == []  # 06:59 in Berlin
    assert asked("2026-01-05T06:00") == ["proposed 1"]
    assert asked("2026-01-05T06:59") == []
    assert asked("2026-01-05T07:00") == ["digest 2026-01-05"]
    assert asked("2026-01-05T20:59") == []
    assert asked("2026-01-06T09:00") == ["digest 2026-01-06"]
    assert asked("2026-07-06T05:59") == []
    assert asked("2026-07-06T06:00") == ["digest 2026-07-06"]
    assert box.texts.count("all is well") == 3


@contextmanager
def server(got: list[dict[str, str]]) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as made:
        thread = Thread(target=made.serve_forever)
        thread.start()
        try:
            yield made.server_port
        finally:
            made.shutdown()
            thread.join()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # apprise loads imghdr
def test_apprise_sends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("apprise")
    got: list[dict[str, str]] = []
    with server(got) as port:
        monkeypatch.setenv("URLS", f"json://127.0.0.1:{port}/a  json://127.0.0.1:{port}/b")
        send_new(tmp_path, Notices("URLS"), ONE, sender(Notices("URLS")), now_s=0.0)
    assert [each["message"] for each in got] == ["n1 should be pulled"] * 2
    monkeypatch.delenv("URLS")
    with pytest.raises(InputError) as caught:
        sender(Notices("URLS"))
    assert caught.value.code == "missing-key"
