"""Files of servers: exact bytes of one version whatever the network does, or an error that says why."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from email.utils import formatdate
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import numpy as np
import pytest
from data_server import DataServer
from hypothesis import given
from hypothesis import strategies as st
from range_server import RangeServer
from refusals import refused

from holdfast import remote
from holdfast.errors import InputError
from holdfast.objects import Objects, OtherFiles, is_loopback
from holdfast.remote import (
    RangesRefused,
    Response,
    Retry,
    TransientError,
    Version,
    Web,
    bare,
    is_public,
    read_span,
    retry_after,
    within,
)

DATA = np.random.default_rng(0).bytes(300_000)
QUICK: dict[str, Any] = {
    "retry_config": {
        "max_retries": 2,
        "backoff": {
            "init_backoff": timedelta(milliseconds=1),
            "max_backoff": timedelta(milliseconds=2),
            "base": 2,
        },
    }
}


@pytest.fixture
def web_server() -> Iterator[DataServer]:
    with DataServer() as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "a.bin").write_bytes(DATA)
    return tmp_path / "bucket"


@pytest.fixture
def server(folder: Path) -> Iterator[RangeServer]:
    with RangeServer(folder.parent) as running:
        yield running


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between attempts, which take no time."""
    taken: list[float] = []
    monkeypatch.setattr(remote, "time", SimpleNamespace(sleep=taken.append))
    return taken


def quick(url: str = "http://x/a") -> Retry:
    return Retry(url, sleep=lambda _: None)


# --- retries --------------------------------------------------------------------------------------


def attempts(retry: Retry, *errors: TransientError) -> InputError | None:
    """The error that ends some failures in a row, if one does."""
    for error in errors:
        try:
            retry.after(error)
        except InputError as last:
            return last
    return None


def test_pauses_grow_and_end() -> None:
    waits: list[float] = []
    retry = Retry("http://me:secret@x/a", sleep=waits.append, rng=random.Random(1))
    last = attempts(retry, *[TransientError("status 503")] * 20)
    assert last is not None
    assert (last.code, last.path) == ("network", "http://x/a")
    assert last.found == "status 503; tried 7 times"
    assert len(waits) == 6
    assert all(0.25 * 2**n <= wait <= 0.5 * 2**n for n, wait in enumerate(waits))


def test_the_server_says_how_long_to_wait() -> None:
    waits: list[float] = []
    retry = Retry("http://x/a", sleep=waits.append)
    attempts(retry, TransientError("busy", 17), TransientError("busy", 1e6))
    assert waits == [17, 300]


def test_few_failures_may_last_the_whole_timeout() -> None:
    stall = TransientError("silent", stalled=True)
    assert attempts(quick(), stall) is None
    assert attempts(quick(), stall, stall) is not None
    retry = quick()
    for _ in range(20):
        assert attempts(retry, stall) is None
        retry.progress()


def test_a_wait_that_is_ended_ends_the_attempts() -> None:
    assert attempts(Retry("http://x/a", sleep=lambda _: True), TransientError("busy")) is not None


def test_retry_after_is_seconds_or_a_date() -> None:
    assert [retry_after(text) for text in ("7", "1.5", "-3", "soon", "", None)] == [
        7,
        1.5,
        0,
        None,
        None,
        None,
    ]
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert retry_after("Wed, 21 Oct 2015 07:28:00") == 0
    later = retry_after(formatdate(4e9, usegmt=True))
    assert later is not None
    assert later > 1e9


# --- spans ----------------------------------------------------------------------------------------


class Flaky:
    """A source in memory that breaks off after so many bytes, a number for each request, and may change."""

    def __init__(self, contents: list[bytes], breaks: list[int], changes: list[int]) -> None:
        self.contents, self.breaks, self.changes = contents, breaks, changes
        self.number = self.requests = self.sent = 0

    def __call__(self, span: tuple[int, int] | None = None, **_: object) -> Response:
        self.requests += 1
        if self.requests in self.changes:
            self.number += 1
        data = self.contents[self.number % len(self.contents)]
        version = Version(len(data), f'"{self.number}"')
        start, end = within(span, len(data))
        if start >= end > 0:
            return Response("outside", version)
        return Response("part", version, start, end, chunks=partial(self.chunks, data[start:end]))

    def chunks(self, body: bytes) -> Iterable[bytes]:
        stop = self.breaks.pop() if self.breaks else len(body)
        for start in range(0, min(stop, len(body)), 7):
            self.sent += len(body[start : min(start + 7, stop)])
            yield body[start : min(start + 7, stop)]
        if stop < len(body):
            raise TransientError("cut")


@given(
    size=st.integers(0, 100),
    start=st.integers(-120, 120),
    length=st.integers(0, 120),
    breaks=st.lists(st.integers(0, 60), max_size=6),
    changes=st.sets(st.integers(2, 6), max_size=2),
)
def test_a_span_is_of_one_version_however_it_arrives(
    size: int, start: int, length: int, breaks: list[int], changes: set[int]
) -> None:
    contents = [bytes([number]) * size for number in range(3)]
    source = Flaky(contents, breaks, sorted(changes))
    span = (start, 0) if start < 0 else (start, start + length + 1)
    data, first = read_span(source, span, quick())
    low, high = within(span, size)
    assert bytes(data) in [content[low:high] for content in contents]
    assert first.version.size == size
    if not changes:
        assert source.sent == len(data), "nothing came twice"


def test_another_version_than_the_one_that_is_read_is_an_error() -> None:
    source = Flaky([b"a" * 50, b"b" * 50], [20], [2])
    with refused("changed"):
        read_span(source, (0, 50), quick(), Version(50, '"0"'))


def test_many_breaks_are_no_failure_while_bytes_arrive() -> None:
    source = Flaky([DATA[:100]], [7] * 14, [])
    assert bytes(read_span(source, (0, 100), quick())[0]) == DATA[:100]
    with refused("network"):
        read_span(Flaky([DATA[:100]], [0] * 14, []), (0, 100), quick())


def test_a_response_that_begins_elsewhere_is_not_used() -> None:
    source = Flaky([DATA[:100]], [], [])
    shifts = [10, 0]

    def shifted(span: tuple[int, int], **how: object) -> Response:
        shift = shifts.pop(0)
        return source((span[0] + shift, span[1] + shift), **how)

    assert bytes(read_span(shifted, (5, 50), quick())[0]) == DATA[5:50]
    assert not shifts


def test_bytes_that_are_gone_are_a_change() -> None:
    def outside(span: object = None, **_: object) -> Response:
        return Response("outside", Version())

    with refused("changed"):
        read_span(outside, (0, 50), quick(), Version(50))
    assert read_span(outside, (0, 50), quick())[0] == b""


def test_a_whole_file_in_place_of_a_part_is_refused() -> None:
    def whole(span: object = None, **_: object) -> Response:
        return Response("whole", Version(50), chunks=lambda: [b"a" * 50])

    assert bytes(read_span(whole, None, quick())[0]) == b"a" * 50
    assert bytes(read_span(whole, (0, 99), quick())[0]) == b"a" * 50
    for span in ((0, 10), (10, 50), (-10, 0)):
        with pytest.raises(RangesRefused):
            read_span(whole, span, quick())


# --- web servers ----------------------------------------------------------------------------------


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(TransientError, match="Connection refused"):
        Web().get("http://127.0.0.1:9/a")


@pytest.mark.parametrize("status", ["408", "425", "429", "500", "502", "503", "504"])
def test_statuses_that_pass(web_server: DataServer, status: str) -> None:
    web_server.add("/a", DATA, headers={"Retry-After": "17"}).faults.append(status)
    with pytest.raises(TransientError, match=status) as caught:
        Web().open(f"{web_server.url}/a")
    assert caught.value.wait_s == 17


@pytest.mark.parametrize(
    ("status", "code", "remedy"),
    [
        ("401", "permission", ".netrc"),
        ("403", "permission", ".netrc"),
        ("404", "not-found", "elsewhere"),
        ("410", "not-found", "elsewhere"),
        ("418", "network", "elsewhere"),
    ],
)
def test_refusals_are_explained(
    web_server: DataServer, status: str, code: str, remedy: str
) -> None:
    web_server.add("/a", DATA).faults.append(status)
    url = f"{web_server.url}/a".replace("//", "//me:secret@")
    with refused(code) as caught:
        Web(elsewhere="elsewhere").open(url)
    assert remedy in (caught.value.remedy or "")
    assert f"status {status}" in (caught.value.found or "")
    assert "secret" not in str(caught.value)


def test_netrc_logs_in(
    web_server: DataServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = web_server.add("/a", DATA)
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    for public_only in (False, True):
        monkeypatch.setattr(remote, "is_public", lambda _: True)
        Web(public_only=public_only).open(f"{web_server.url}/a").close()
    assert file.authorizations == ["Basic bWU6c2VjcmV0", ""]


def test_redirects_that_end_nowhere(web_server: DataServer) -> None:
    web_server.add("/file", redirect="file:///etc/passwd")
    web_server.add("/round", redirect=f"{web_server.url}/round")
    with refused("unsupported") as caught:
        Web().open(f"{web_server.url}/file")
    assert caught.value.found == "'file:///etc/passwd'"
    with refused("network"):
        Web().open(f"{web_server.url}/round")


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2001:4860:4860::8888", True),
        ("::ffff:8.8.8.8", True),
        ("127.0.0.1", False),
        ("0.0.0.0", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.0.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("ff0e::1", False),
        ("::ffff:127.0.0.1", False),
        ("2002:7f00:1::", False),
        ("64:ff9b::a9fe:a9fe", False),
    ],
)
def test_which_addresses_are_public(address: str, public: bool) -> None:
    assert is_public(address) is public


def test_only_public_addresses(web_server: DataServer, monkeypatch: pytest.MonkeyPatch) -> None:
    file = web_server.add("/a", DATA)
    web = Web(public_only=True)
    monkeypatch.setenv("HTTP_PROXY", web_server.url)  # would connect in our place
    for host in ("127.0.0.1", "localhost", "2130706433"):
        with refused("private-address"):
            web.open(f"http://{host}:{web_server.port}/a")
    assert file.asked == []
    # As if the first server were public, and redirected to one that is not; and as if a name led to a
    # public address first, and to a private one when it is looked up again.
    for there in (f"http://localhost:{web_server.port}/a", "/a"):
        other = web_server.add("/far", redirect=there)
        seen = iter([True, False])
        monkeypatch.setattr(remote, "is_public", lambda _, seen=seen: next(seen))
        with refused("private-address"):
            fresh = Web(public_only=True)
            fresh.open(f"{web_server.url}/far")
            fresh.close()  # the name is looked up again for a new connection
            fresh.open(f"{web_server.url}/a")
        assert len(other.asked) == 1


def test_urls_are_shown_without_passwords() -> None:
    assert bare("https://me:secret@host:1/a?b=c#d") == "https://host:1/a?b=c#d"
    with refused("invalid-value"):
        bare("http://[/")


# --- object stores --------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["truncate", "drop", "503"])
def test_what_the_network_may_do_is_repeated(
    fault: Any, server: RangeServer, pauses: list[float]
) -> None:
    server.fail("/bucket/a.bin", fault, times=2)
    data, size = Objects(f"{server.url}/bucket", QUICK).read("a.bin", (100, 200_100))
    assert (bytes(data), size) == (DATA[100:200_100], len(DATA))
    assert server.requests == 3


SPANS = {
    "part": ((100, 200_100), DATA[100:200_100]),
    "tail": ((-250_000, 0), DATA[50_000:]),
    "whole": (None, DATA),
}


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("versions", [set(), {"Last-Modified"}, {"ETag"}])
def test_a_body_that_is_cut_is_read_on(
    span: str, versions: set[str], server: RangeServer, pauses: list[float]
) -> None:
    """Only what is missing is requested again, whatever the server says of the file's version."""
    server.versions = versions
    server.fail("/bucket/a.bin", "truncate", times=2)
    asked, expected = SPANS[span]
    assert bytes(Objects(f"{server.url}/bucket", QUICK).read("a.bin", asked)[0]) == expected
    assert server.requests == 3
    assert server.bytes == len(expected), "nothing came twice"


@pytest.mark.parametrize("fault", ["shift", "short"])
def test_a_response_of_another_range_is_requested_again(
    fault: Any, server: RangeServer, pauses: list[float]
) -> None:
    server.fail(None, fault, times=2)
    data, _ = Objects(f"{server.url}/bucket", QUICK).read("a.bin", (100, 200_100))
    assert bytes(data) == DATA[100:200_100]
    assert len(pauses) == 2
    assert all(0.05 * 2**n <= pause <= 0.1 * 2**n for n, pause in enumerate(pauses))


def change_in_pauses(monkeypatch: pytest.MonkeyPatch, change: Callable[[float], object]) -> None:
    monkeypatch.setattr(remote, "time", SimpleNamespace(sleep=change))


@pytest.mark.parametrize(
    ("versions", "changed"), [({"Last-Modified"}, DATA[::-1]), (set(), DATA[1:])]
)
def test_a_file_that_changes_between_attempts_is_read_anew(
    versions: set[str],
    changed: bytes,
    server: RangeServer,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server.versions = versions

    def change(_: float) -> None:
        (folder / "a.bin").write_bytes(changed)
        os.utime(folder / "a.bin", (1e9, 1e9))

    change_in_pauses(monkeypatch, change)
    server.fail("/bucket/a.bin", "truncate", times=3)  # the new file is cut as well
    data, _ = Objects(f"{server.url}/bucket", QUICK).read("a.bin", (100, 200_100))
    assert bytes(data) == changed[100:200_100]


def test_a_file_that_never_stays_the_same_is_an_error(
    server: RangeServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.versions = {"Last-Modified"}
    times = iter(range(1, 99))
    change_in_pauses(monkeypatch, lambda _: os.utime(folder / "a.bin", (next(times) * 1e6,) * 2))
    server.fail("/bucket/a.bin", "truncate", times=99)
    with refused("network"):
        Objects(f"{server.url}/bucket", QUICK).read("a.bin", (0, 200_000))
    assert server.requests < 20


@pytest.mark.parametrize("silent", ["http", "s3", "credentials"])
def test_a_server_that_does_not_answer_is_given_up(silent: str) -> None:
    """It takes connections, and says nothing: the store, or the cloud that is asked for credentials."""
    timeouts = {"read_timeout": "50ms", "allow_http": True}
    options: dict[str, Any] = {"retry_config": {"max_retries": 0}, "client_options": timeouts}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        if silent == "credentials":
            options |= {"metadata_endpoint": url, "endpoint": url, "region": "us-east-1"}
        elif silent == "s3":
            options |= {"access_key_id": "a", "secret_access_key": "b", "endpoint": url}
        objects = Objects(url if silent == "http" else "s3://bucket", options)
        requests: list[Callable[[], object]] = [
            lambda: objects.read("a.bin", (0, 10)),
            lambda: objects.read("a.bin"),
            lambda: objects.size("a.bin"),
            lambda: objects.list(""),
        ]
        for request in requests:
            with refused("network"):
                request()


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"])
def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(
    name: str, server: RangeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for other in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, "http://127.0.0.1:1")
    for host in ("127.0.0.1", "localhost"):
        objects = Objects(f"http://{host}:{server.port}/bucket", QUICK)
        assert bytes(objects.read("a.bin", (0, 10))[0]) == DATA[:10]


def test_a_proxy_of_the_options_is_asked(server: RangeServer) -> None:
    with RangeServer(server.folder) as proxy:
        options = QUICK | {"client_options": {"proxy_url": proxy.url}}
        objects = Objects(f"{server.url}/bucket", options)
        assert bytes(objects.read("a.bin", (0, 10))[0]) == DATA[:10]
        assert (proxy.requests, server.requests) == (1, 0)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("10.0.0.1", False),
        ("localhost.example.com", False),
        ("", False),
        (None, False),
    ],
)
def test_which_hosts_are_this_machine(host: str | None, expected: bool) -> None:
    assert is_loopback(host) is expected


# --- other file systems ---------------------------------------------------------------------------


def test_other_file_systems_are_read_again_after_an_error(
    monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    files = fsspec.filesystem("memory")
    files.pipe_file("/again/a", DATA)
    errors = [ConnectionResetError("reset"), TimeoutError("late")]
    whole = type(files).cat_file

    def cat(self: Any, *args: Any, **kwargs: Any) -> Any:
        if errors:
            raise errors.pop()
        return whole(self, *args, **kwargs)

    monkeypatch.setattr(type(files), "cat_file", cat)
    other = OtherFiles("memory://again")
    assert other.read("a", (5, 10))[0] == DATA[5:10]
    assert len(pauses) == 2
    errors += [ConnectionResetError("reset")] * 99
    with refused("network"):
        other.read("a", (5, 10))
    assert len(pauses) == 2 + 6
    files.rm("/again", recursive=True)


def test_a_file_system_names_what_is_missing() -> None:
    with refused("not-found"):
        OtherFiles("memory://nothing").read("a")
    with refused("unsupported"):
        OtherFiles("nonsense://nothing").size("a")
