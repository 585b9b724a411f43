"""Who is let in: host names, the token, and the headers."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from logs import Attempt, Log

from holdfast.errors import InputError
from holdfast.fleet.console.access import HEADERS, is_loopback
from holdfast.fleet.console.app import create_app

TOKEN = "correct horse battery staple"
ABROAD = "http://console.example.org"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    log = Log([Attempt(1, ("node05",), 0, 3600)])
    app = create_app(log.store(tmp_path_factory.mktemp("guarded")), token=TOKEN)
    with TestClient(app, base_url=ABROAD, follow_redirects=False) as client:
        yield client


@pytest.mark.parametrize(
    ("host", "answer"),
    [
        ("127.0.0.1", True),
        ("127.0.0.1:8000", True),
        ("localhost", True),
        ("LOCALHOST:80", True),
        ("[::1]:8000", True),
        ("127.1.2.3", True),
        ("", False),
        ("console.example.org", False),
        ("127.0.0.1.example.org", False),
        ("localhost.example.org", False),
        ("192.0.2.1:8000", False),
        ("0.0.0.0", False),
        ("127.0.0.1:port", False),
        ("127.0.0.1@example.org", False),
        ("user@127.0.0.1", False),
        ("127.0.0.1/x", False),
        ("[::1", False),
    ],
)
def test_names_of_this_machine(host: str, answer: bool) -> None:
    assert is_loopback(host) is answer


@pytest.mark.parametrize("path", ["/", "/metrics", "/static/console.css", "/generation"])
def test_without_a_token_other_names_are_refused(console: TestClient, path: str) -> None:
    """A page of evil.example whose name was made to resolve to 127.0.0.1 reads nothing."""
    answer = console.get(path, headers={"Host": "evil.example"})
    assert answer.status_code == 421
    assert "answers on this machine only" in answer.text
    assert "GPU-hours" not in answer.text


def test_nothing_is_written(console: TestClient) -> None:
    assert console.post("/", content="token=x").status_code == 405


@pytest.mark.parametrize("path", ["/", "/jobs/1", "/metrics", "/generation", "/nowhere"])
def test_without_the_token_nothing_is_told(guarded: TestClient, path: str) -> None:
    answer = guarded.get(path)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Basic ")
    assert "This console needs a token." in answer.text
    assert "node05" not in answer.text


def test_the_token_in_the_header(guarded: TestClient) -> None:
    for right in (f"Bearer {TOKEN}", f"bearer  {TOKEN}", f"Basic {basic('ana:' + TOKEN)}"):
        answer = guarded.get("/nodes/node05", headers={"Authorization": right})
        assert answer.status_code == 200
    for wrong in (
        "Bearer",
        "Bearer x",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Basic {TOKEN}",
        f"Basic {basic(TOKEN)}",
        f"Basic {basic(TOKEN + ':')}",
        f"Basic {basic('ana:' + TOKEN + 'x')}",
        "Basic \xff",
        f"Digest {TOKEN}",
    ):
        answer = guarded.get("/metrics", headers={"Authorization": wrong.encode("latin-1")})
        assert answer.status_code == 401
    assert guarded.get("/", params={"token": TOKEN}).status_code == 401  # addresses are logged


def test_the_look_of_a_refusal_needs_no_token(guarded: TestClient) -> None:
    sheet = re.search(r'href="(/static/console\.css[^"]*)"', guarded.get("/").text)
    assert sheet is not None
    assert guarded.get(sheet[1]).status_code == 200


def basic(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("path", "status"),
    [("/", 200), ("/generation", 200), ("/metrics", 200), ("/nowhere", 404), ("/jobs/x", 404)],
)
def test_headers(console: TestClient, path: str, status: int) -> None:
    answer = console.get(path)
    assert answer.status_code == status
    for name, value in HEADERS.items():
        assert answer.headers[name] == value
    assert answer.headers["Cache-Control"] == "no-store"
    policy = answer.headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "http" not in policy


def test_refusals_carry_the_headers_too(guarded: TestClient, console: TestClient) -> None:
    for answer in (guarded.get("/"), console.get("/", headers={"Host": "evil.example"})):
        assert answer.headers["Content-Security-Policy"] == HEADERS["Content-Security-Policy"]
        assert answer.headers["Cache-Control"] == "no-store"


def test_files_are_kept_by_browsers(console: TestClient) -> None:
    answer = console.get("/static/page.js")
    assert "immutable" in answer.headers["Cache-Control"]
    assert answer.headers["Content-Type"].startswith("text/javascript")


@pytest.mark.parametrize("name", ["app.py", "..%2fapp.py", "%2e%2e/app.py", "", "console.css/x"])
def test_there_are_no_other_files(console: TestClient, name: str) -> None:
    assert console.get(f"/static/{name}").status_code == 404


def test_a_short_token_is_no_token(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="too short"):
        create_app(tmp_path, token="secret")
