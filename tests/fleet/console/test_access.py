"""Who is let in: host names, the token in its three places, other sites, and the headers."""

from __future__ import annotations

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


@pytest.fixture(autouse=True)
def _no_cookies(guarded: TestClient) -> None:
    guarded.cookies.clear()


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


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
    ],
)
def test_other_sites_change_nothing(console: TestClient, headers: dict[str, str]) -> None:
    answer = console.post("/session", headers=headers, content="token=x")
    assert answer.status_code == 403


def test_large_bodies_are_refused(console: TestClient) -> None:
    assert console.post("/session", content="x" * 100_000).status_code == 413
    assert console.post("/session", headers={"Content-Length": "-1"}).status_code == 413


@pytest.mark.parametrize("path", ["/", "/jobs/1", "/metrics", "/generation", "/nowhere"])
def test_without_the_token_nothing_is_told(guarded: TestClient, path: str) -> None:
    answer = guarded.get(path)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert "This console needs a token." in answer.text
    assert "node05" not in answer.text


def test_the_bearer_header(guarded: TestClient) -> None:
    right = {"Authorization": f"Bearer {TOKEN}"}
    answer = guarded.get("/metrics", headers=right)
    assert answer.status_code == 200
    assert "set-cookie" not in answer.headers
    for wrong in (
        "Bearer",
        "Bearer x",
        f"Basic {TOKEN}",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
    ):
        assert guarded.get("/metrics", headers={"Authorization": wrong}).status_code == 401


def test_the_token_in_the_address_becomes_a_cookie(guarded: TestClient) -> None:
    answer = guarded.get("/jobs", params={"q": "a b&c", "token": TOKEN})
    assert answer.status_code == 303
    assert answer.headers["Location"] == "/jobs?q=a+b%26c"  # without the token
    cookie = answer.headers["Set-Cookie"]
    assert re.search(r"; HttpOnly; Path=/; SameSite=lax$", cookie)
    assert TOKEN not in cookie
    assert guarded.get("/jobs", params={"q": "a b&c"}).status_code == 200
    assert guarded.get("/jobs", params={"token": "wrong"}).status_code == 200  # the cookie holds
    guarded.cookies.clear()
    assert guarded.get("/jobs", params={"token": "wrong"}).status_code == 401


def test_over_tls_the_cookie_stays_there(guarded: TestClient) -> None:
    address = f"https://console.example.org/?token={TOKEN}"
    assert "; Secure" in guarded.get(address).headers["Set-Cookie"]
    guarded.cookies.clear()
    behind = {"X-Forwarded-Proto": "https"}
    assert "; Secure" in guarded.get(f"/?token={TOKEN}", headers=behind).headers["Set-Cookie"]


def test_the_sign_in_form(guarded: TestClient) -> None:
    refused = guarded.get("/nodes/node05?x=1")
    assert 'name="next" value="/nodes/node05?x=1"' in refused.text
    form = {"token": TOKEN, "next": "/nodes/node05?x=1"}
    answer = guarded.post("/session", data=form)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/nodes/node05?x=1")
    assert guarded.get("/nodes/node05").status_code == 200
    guarded.cookies.clear()
    assert guarded.post("/session", data={**form, "token": "no"}).status_code == 401
    assert guarded.post("/session", data={}).status_code == 401


@pytest.mark.parametrize("where", ["//evil.example", "/\\evil.example", "https://evil.example", ""])
def test_the_sign_in_leads_nowhere_else(guarded: TestClient, where: str) -> None:
    answer = guarded.post("/session", data={"token": TOKEN, "next": where})
    assert answer.headers["Location"] == "/"
    guarded.cookies.clear()
    answer = guarded.get(f"http://console.example.org//evil.example?token={TOKEN}")
    assert answer.headers["Location"] == "/"


def test_a_cookie_of_another_console_is_no_key(guarded: TestClient) -> None:
    name = guarded.get("/", params={"token": TOKEN}).headers["Set-Cookie"].partition("=")[0]
    guarded.cookies.clear()
    for value in ("", "x", TOKEN, '"; drop=1'):
        assert guarded.get("/", headers={"Cookie": f"{name}={value}"}).status_code == 401


def test_the_look_of_the_sign_in_page_needs_no_token(guarded: TestClient) -> None:
    page = guarded.get("/").text
    sheet = re.search(r'href="(/static/console\.css[^"]*)"', page)
    assert sheet is not None
    assert guarded.get(sheet[1]).status_code == 200


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
