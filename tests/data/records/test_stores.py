"""Stores give exactly the bytes asked for, count them, and name what they cannot give."""

from __future__ import annotations

import gc
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

import fsspec
import numpy as np
import pytest
from range_server import Bucket, RangeServer, Seen
from refusals import refused

from holdfast import remote
from holdfast.data.records.reading import stores
from holdfast.data.records.reading.stores import CutFile, LocalStore, MissingFile, Store, open_store
from holdfast.errors import StoreError

DATA = np.random.default_rng(0).bytes(300_000)
FILES = {"a.bin": DATA, "folder/b c.bin": DATA[:1000], "folder/empty": b""}
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
def folder(tmp_path: Path) -> Path:
    for name, data in FILES.items():
        (tmp_path / "bucket" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "bucket" / name).write_bytes(data)
    return tmp_path / "bucket"


@pytest.fixture
def server(folder: Path) -> Iterator[RangeServer]:
    with RangeServer(folder.parent) as running:
        yield running


def s3(server: RangeServer) -> Store:
    return open_store(
        "s3://bucket",
        aws_endpoint=server.url,
        aws_region="us-east-1",
        aws_skip_signature=True,
        aws_virtual_hosted_style_request=False,
        **QUICK,
    )


@pytest.fixture(params=["path", "file", "http", "s3", "memory"])
def store(request: pytest.FixtureRequest, folder: Path, server: RangeServer) -> Iterator[Store]:
    if request.param == "memory":
        memory = fsspec.filesystem("memory")
        for name, data in FILES.items():
            memory.pipe_file(f"/stores/bucket/{name}", data)
    made = {
        "path": lambda: open_store(folder),
        "file": lambda: open_store(folder.as_uri()),
        "http": lambda: open_store(f"{server.url}/bucket/", **QUICK),
        "s3": lambda: s3(server),
        "memory": lambda: open_store("memory://stores/bucket"),
    }[request.param]()
    with made:
        yield made
    if request.param == "memory":
        memory.rm("/stores", recursive=True)


# --- what every store does ---------------------------------------------------------------------------


def test_every_store_gives_the_range_and_counts_it(store: Store) -> None:
    assert bytes(store.read("a.bin", 1000, 200_000)) == DATA[1000:200_000]
    assert bytes(store.read("folder/b c.bin", 0, 1000)) == DATA[:1000]
    assert bytes(store.read("a.bin", 5, 5)) == b""
    assert (store.requests, store.bytes_read) == (2, 200_000)


def test_every_store_gives_tails_and_wholes_and_sizes(store: Store) -> None:
    data, size = store.tail("a.bin", 100)
    assert (bytes(data), size) == (DATA[-100:], 300_000)
    data, size = store.tail("folder/b c.bin", 5000)
    assert (bytes(data), size) == (DATA[:1000], 1000)
    assert bytes(store.read_all("folder/b c.bin")) == DATA[:1000]
    assert (store.requests, store.bytes_read) == (3, 2100)
    assert store.size("a.bin") == 300_000
    assert store.exists("a.bin")
    assert not store.exists("b.bin")


def test_every_store_gives_several_ranges_in_the_order_asked(store: Store) -> None:
    ranges = [(500, 700), (0, 0), (100, 200), (299_990, 300_000)]
    got = store.read_many("a.bin", ranges)
    assert [bytes(data) for data in got] == [DATA[start:end] for start, end in ranges]
    assert (store.requests, store.bytes_read) == (3, 310)
    assert store.read_many("a.bin", [(7, 7)]) == [b""]
    assert store.requests == 3


def test_every_store_but_the_web_lists_its_files(store: Store) -> None:
    if store.url.startswith("http"):
        with pytest.raises(StoreError, match="does not list its files"):
            store.list()
        return
    assert store.list() == sorted(FILES)
    assert store.list("folder") == ["folder/b c.bin", "folder/empty"]


def test_every_store_says_what_is_missing(store: Store) -> None:
    for call in (
        lambda: store.read("none.bin", 0, 10),
        lambda: store.read_many("none.bin", [(0, 10)]),
        lambda: store.tail("none.bin", 10),
        lambda: store.read_all("none.bin"),
        lambda: store.size("none.bin"),
    ):
        with pytest.raises(MissingFile) as raised:
            call()
        assert raised.value.code == "not-found"
        assert raised.value.path.endswith("bucket/none.bin")


@pytest.mark.parametrize("start", [299_990, 300_000, 400_000])
def test_a_file_that_ends_before_the_range_names_it_and_gives_what_is_there(
    store: Store, start: int
) -> None:
    for call in (
        lambda: store.read("a.bin", start, start + 100),
        lambda: store.read_many("a.bin", [(start, start + 100)]),
    ):
        with pytest.raises(CutFile, match=r"bucket/a\.bin, bytes [\d,]+ to [\d,]+: ") as caught:
            call()
        assert bytes(caught.value.data) == DATA[start:]


def test_ranges_that_are_none_are_a_mistake_of_the_caller(store: Store) -> None:
    with pytest.raises(ValueError, match="no range"):
        store.read("a.bin", 10, 5)


def test_counters_are_exact_with_many_threads(store: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda n: store.read("a.bin", n, 2 * n), range(1, 201)))
    assert all(bytes(data) == DATA[n : 2 * n] for n, data in enumerate(got, 1))
    assert (store.requests, store.bytes_read) == (200, sum(range(1, 201)))


def test_a_pickled_store_reads_on_with_counters_of_its_own(store: Store) -> None:
    store.read("a.bin", 0, 10)
    copy = pickle.loads(pickle.dumps(store))
    with copy:
        assert bytes(copy.read("a.bin", 10, 30)) == DATA[10:30]
        assert (copy.requests, copy.bytes_read) == (1, 20)


def test_a_closed_store_opens_again(store: Store) -> None:
    store.read("a.bin", 0, 10)
    store.close()
    assert bytes(store.read("a.bin", 0, 10)) == DATA[:10]


# --- the server's faults ------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["http", "s3"])
def test_the_server_gets_exactly_the_requests_that_are_counted(
    where: str, server: RangeServer
) -> None:
    with open_store(f"{server.url}/bucket") if where == "http" else s3(server) as store:
        store.read("a.bin", 7, 1007)
        store.read_many("a.bin", [(0, 10), (10, 20), (50_000, 50_010)])
        store.tail("a.bin", 100)
        assert (server.requests, server.bytes) == (store.requests, store.bytes_read) == (4, 1130)
        assert Seen("GET", "/bucket/a.bin", "bytes=7-1006", 206) in server.seen
        assert Seen("GET", "/bucket/a.bin", "bytes=0-19", 206) in server.seen
        assert Seen("GET", "/bucket/a.bin", "bytes=-100", 206) in server.seen


@pytest.mark.parametrize("where", ["http", "s3"])
def test_a_server_that_ignores_ranges_is_refused_and_not_read_to_its_end(
    where: str, server: RangeServer, folder: Path
) -> None:
    size = 1 << 30
    with (folder / "large.bin").open("wb") as file:
        file.truncate(size)
    server.fail(None, "ignore-range", times=99)
    with open_store(f"{server.url}/bucket", **QUICK) if where == "http" else s3(server) as store:
        for call in (
            lambda: store.read("large.bin", 0, 1000),
            lambda: store.read("large.bin", 5, 1000),
            lambda: store.read_many("large.bin", [(0, 10), (500, 510)]),
            lambda: store.tail("large.bin", 100),
        ):
            with pytest.raises(StoreError, match=r"large\.bin") as caught:
                call()
            assert "ignores the Range header" in str(caught.value)
            assert "remedy: " in str(caught.value)
        assert store.bytes_read == 0
    assert server.bytes < size // 4  # what its socket took before the client hung up


CALLS: dict[str, Any] = {
    "read": (lambda store: store.read("a.bin", 100, 200_100), DATA[100:200_100]),
    "tail": (lambda store: store.tail("a.bin", 250_000)[0], DATA[50_000:]),
    "read_all": (lambda store: store.read_all("a.bin"), DATA),
    "read_many": (
        lambda store: b"".join(store.read_many("a.bin", [(5, 90_000), (100_000, 100_007)])),
        DATA[5:90_000] + DATA[100_000:100_007],
    ),
}


@pytest.fixture
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "time", SimpleNamespace(sleep=lambda _: None))


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.usefixtures("_no_pauses")
def test_what_came_after_a_fault_is_counted_once(call: str, server: RangeServer) -> None:
    read, expected = CALLS[call]
    with open_store(f"{server.url}/bucket", **QUICK) as store:
        server.fail("/bucket/a.bin", "truncate", times=2)
        assert bytes(read(store)) == expected
        assert store.bytes_read == len(expected)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("truncate", "body"),
        ("drop", "error sending request"),
        ("503", "503"),
        ("short", "got 1000..100"),
        ("shift", "got 1001..200"),
        ("403", "credentials"),
    ],
)
@pytest.mark.usefixtures("_no_pauses")
def test_what_does_not_end_is_an_error_that_names_file_and_range(
    fault: Any, said: str, server: RangeServer
) -> None:
    with open_store(f"{server.url}/bucket", **QUICK) as store:
        server.fail("/bucket/a.bin", fault, times=99)
        with pytest.raises(StoreError) as caught:
            store.read("a.bin", 1000, 200_000)
        message = str(caught.value)
        assert message.startswith(f"{server.url}/bucket/a.bin, bytes 1,000 to 200,000: ")
        assert said in message
        assert "Debug source" not in message
        server.heal()
        assert bytes(store.read("a.bin", 0, 10)) == DATA[:10]


def test_a_server_that_died_is_an_error(server: RangeServer) -> None:
    with open_store(f"{server.url}/bucket", **QUICK) as store:
        assert bytes(store.read("a.bin", 0, 10)) == DATA[:10]
        server.close()
        with pytest.raises(StoreError, match=r"a\.bin, bytes 0 to 10: "):
            store.read("a.bin", 0, 10)


# --- URLs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://host/folder?key=1", "invalid-value"),
        ("https:///folder", "invalid-value"),
        ("nonsense://folder", "unsupported"),
    ],
)
def test_urls_that_cannot_be(url: str, code: str) -> None:
    with refused(code):
        open_store(url).size("a")


def test_a_scheme_whose_library_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise ImportError("Please install zzz to access zzz")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    with refused("missing-extra") as caught:
        open_store("sftp://host/folder").read("a", 0, 1)
    assert "install zzz" in str(caught.value)


def test_passwords_are_not_shown() -> None:
    for url in ("http://me:secret@127.0.0.1:1/x", "sftp://me:secret@host/x"):
        store = open_store(url, **({} if url[0] == "s" else QUICK))
        assert "secret" not in repr(store)
        assert "secret" not in store.where("a")
    with pytest.raises(StoreError) as caught:
        open_store("http://me:secret@127.0.0.1:1/x", **QUICK).read("a", 0, 1)
    assert "secret" not in str(caught.value)


def test_paths_of_the_home_folder_and_relative_ones(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder.parent))
    monkeypatch.chdir(folder.parent)
    assert open_store("~/bucket").size("a.bin") == open_store("bucket").size("a.bin") == 300_000


# --- local files --------------------------------------------------------------------------------------


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_local_files_stay_open_up_to_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "MAX_OPEN_FILES", 3)
    for number in range(10):
        (tmp_path / str(number)).write_bytes(bytes([number]) * 10)
    gc.collect()  # what other tests left open is closed now, not in between
    before = descriptors()
    with open_store(tmp_path) as store:
        for _ in range(2):
            for number in range(10):
                assert store.read(str(number), 2, 4) == bytes([number]) * 2
                assert descriptors() - before <= 3
        assert descriptors() - before == 3
    assert descriptors() == before


def test_a_file_is_not_closed_under_its_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads read few files with room for one: a descriptor closed too early would give another file."""
    monkeypatch.setattr(stores, "MAX_OPEN_FILES", 1)
    for number in range(4):
        (tmp_path / str(number)).write_bytes(bytes([number]) * 5000)
    gc.collect()  # what other tests left open is closed now, not in between
    before = descriptors()
    with open_store(tmp_path) as store, ThreadPoolExecutor(8) as pool:
        numbers = [number % 4 for number in range(2000)]
        got = list(pool.map(lambda number: store.read(str(number), 0, 5000), numbers))
        assert [data[0] for data in got] == numbers
        assert all(len(set(data)) == 1 for data in got)
        assert descriptors() - before <= 1
    assert descriptors() == before


def test_a_file_that_took_anothers_place_is_seen_once_the_old_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with open_store(tmp_path) as store:
        assert store.read("a", 0, 3) == b"old"
        (tmp_path / "b").write_bytes(b"new")
        (tmp_path / "b").replace(tmp_path / "a")
        assert store.read("a", 0, 3) == b"old"
        store.forget("a")
        store.forget("never seen")
        assert store.read("a", 0, 3) == b"new"


def test_reads_larger_than_the_system_gives_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "_MAX_PREAD", 1000)
    with open_store(folder) as store:
        assert store.read("a.bin", 10, 123_456) == DATA[10:123_456]
        with pytest.raises(CutFile) as caught:
            store.read("a.bin", 290_000, 310_000)
        assert caught.value.data == DATA[290_000:]


def test_a_folder_in_the_place_of_a_file_is_a_store_error(folder: Path) -> None:
    with open_store(folder) as store, pytest.raises(StoreError, match="directory"):
        store.read("folder", 0, 10)


# --- processes ----------------------------------------------------------------------------------------


def script(code: str, store: Store) -> str:
    """What a program prints that has a pickled store at hand as `store`."""
    head = "import os, pickle, sys; store = pickle.loads(sys.stdin.buffer.read())"
    done = subprocess.run(
        [sys.executable, "-c", f"{head}\n{code}"],
        input=pickle.dumps(store),
        capture_output=True,
        timeout=60,
        check=True,
    )
    return done.stdout.decode()


FORK = """
store.read("a.bin", 0, 100)
with store._lock:  # as another thread may hold it
    child = os.fork()
if not child:
    try:
        print(bytes(store.read("a.bin", 3, 9)), store.requests, store.bytes_read, flush=True)
    except Exception as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(len(store.read("a.bin", 3, 9)), store.requests, store.bytes_read)
"""


@pytest.mark.parametrize("store", ["path", "http", "s3"], indirect=True)
def test_another_process_opens_the_store_anew(store: Store) -> None:
    told = script(
        "print(bytes(store.read('a.bin', 3, 9)), store.requests, store.bytes_read)", store
    )
    assert told == f"{DATA[3:9]} 1 6\n"


def test_a_forked_process_reads_local_files(folder: Path) -> None:
    with open_store(folder) as store:
        assert store.fork_safe
        assert script(FORK, store) == f"{DATA[3:9]} 1 6\n6 2 106\n"


def test_a_forked_process_is_told_that_it_cannot_read_object_stores(server: RangeServer) -> None:
    """Obstore's threads stay in the parent: without the guard the child would wait for ever."""
    with open_store(f"{server.url}/bucket", **QUICK) as store:
        assert not store.fork_safe
        told = script(FORK, store)
    assert "multiprocessing_context='forkserver'" in told
    assert told.endswith("\n6 2 106\n")


# --- the server itself, by another client ---------------------------------------------------------------


def raw(server: RangeServer, text: str) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(text.encode())
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while more := connection.recv(65536):
            answer += more
    return answer


@pytest.mark.parametrize(
    ("asked", "status", "body"),
    [
        ("", "200 OK", DATA[:1000]),
        ("Range: bytes=0-0\r\n", "206 Partial Content", DATA[:1]),
        ("Range: bytes=10-\r\n", "206 Partial Content", DATA[10:1000]),
        ("Range: bytes=990-5000\r\n", "206 Partial Content", DATA[990:1000]),
        ("Range: bytes=-7\r\n", "206 Partial Content", DATA[993:1000]),
        ("Range: bytes=1000-1001\r\n", "416 Range Not Satisfiable", b""),
    ],
)
def test_the_range_server_keeps_to_the_protocol(
    asked: str, status: str, body: bytes, server: RangeServer
) -> None:
    head, _, got = raw(
        server, f"GET /bucket/folder/b%20c.bin?x=1 HTTP/1.1\r\nHost: x\r\n{asked}\r\n"
    ).partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status}".encode())
    assert got == body
    assert f"Content-Length: {len(body)}".encode() in head
    assert server.bytes == len(body)


def test_the_range_server_serves_one_request_after_another_and_nothing_outside(
    server: RangeServer, folder: Path
) -> None:
    (folder.parent.parent / "secret").write_bytes(b"secret")
    get = "HTTP/1.1\r\nHost: x\r\n\r\n"
    answer = raw(
        server,
        f"HEAD /bucket/a.bin {get}GET /../secret {get}GET /%2e%2e/secret {get}"
        f"GET /bucket/folder/empty {get}",
    )
    assert answer.count(b"HTTP/1.1 ") == 4
    assert answer.count(b"404 Not Found") == 2
    assert b"Content-Length: 300000\r\n" in answer
    assert b"ETag: " in answer
    assert b"Accept-Ranges: bytes" in answer
    assert (server.heads, server.requests, server.bytes) == (1, 3, 0)


def test_the_range_server_tells_its_counters_over_http(server: RangeServer) -> None:
    raw(server, "GET /bucket/folder/b%20c.bin HTTP/1.1\r\n\r\n")
    raw(server, "HEAD /bucket/a.bin HTTP/1.1\r\n\r\n")
    with urlopen(f"{server.url}/.counters?reset") as answer:
        assert answer.read() == b'{"requests": 1, "bytes": 1000, "heads": 1}'
    with urlopen(f"{server.url}/.counters") as answer:
        assert answer.read() == b'{"requests": 0, "bytes": 0, "heads": 0}'


class Clock:
    """Time that passes only in sleeps, each late by the same; threads take turns."""

    def __init__(self, late: float) -> None:
        self.now, self.late = 100.0, late

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds + self.late


@pytest.mark.parametrize("late", [0.0, 0.0003, 0.004])
def test_the_bucket_gives_its_rate_however_late_its_sleepers_wake(
    late: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(late)
    monkeypatch.setattr("range_server.time", clock)
    bucket = Bucket(20e6)
    begun = clock.now
    for _ in range(1000):
        bucket.carry(bucket.chunk, begun)
    taken = clock.now - begun
    assert taken == pytest.approx(1000 * bucket.chunk / 20e6, rel=0.005)
    clock.now += 10  # nothing was to be sent: no credit for that
    begun = clock.now
    bucket.carry(20_000_000, begun)
    assert clock.now - begun == pytest.approx(1.0, abs=0.005)


def test_connections_share_the_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(0.0)
    monkeypatch.setattr("range_server.time", clock)
    bucket = Bucket(1e6)
    begun = clock.now
    slept: list[float] = []
    monkeypatch.setattr(clock, "sleep", slept.append)
    for _ in range(5):  # five transfers ask at the same moment
        bucket.carry(100_000, begun)
    assert slept == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])


def test_a_closed_server_leaves_no_thread_and_no_port(folder: Path) -> None:
    threads = threading.active_count()
    server = RangeServer(folder).start()
    raw(server, "GET /a.bin HTTP/1.1\r\n\r\n")
    server.close()
    assert threading.active_count() == threads
    with pytest.raises(ConnectionRefusedError):
        raw(server, "GET /a.bin HTTP/1.1\r\n\r\n")


def test_the_local_store_is_chosen_for_paths() -> None:
    assert isinstance(open_store("/tmp"), LocalStore)
    assert open_store("file:///a%20b/").where("c") == "/a b/c"
