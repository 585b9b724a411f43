"""Files are fetched whole and proved, whatever the network does, and nothing else is ever served."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fetching_process
import numpy as np
import pytest
from data_server import DataServer
from described_files import refused
from range_server import RangeServer

from holdfast import remote
from holdfast.data.croissant.fetching import downloads, file_requests
from holdfast.data.croissant.fetching.access import Access
from holdfast.data.croissant.fetching.fetcher import Fetcher
from holdfast.data.croissant.fetching.file_requests import FileRequest
from holdfast.data.croissant.files.hashing import Checksum
from holdfast.errors import InputError, LimitError
from holdfast.remote import Version

DATA = np.random.default_rng(1).bytes(1_000_000)
SHA = hashlib.sha256(DATA).hexdigest()
PIECE = 100_000


@pytest.fixture
def server() -> Iterator[DataServer]:
    with DataServer() as running:
        yield running


class Waits(list[float]):
    """Stands for waiting: remembers for how long, and returns at once."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def fetcher(tmp_path: Path, **how: Any) -> Fetcher:
    settings = {"piece": PIECE, "wait": Waits(), "parallel": 3} | how
    reach = {
        name: settings.pop(name)
        for name in ("offline", "timeout", "public_only")
        if name in settings
    }
    return Fetcher(Access(tmp_path / "cache", **reach), **settings)


def left(tmp_path: Path) -> list[str]:
    """What is in the cache beside whole files and what URLs gave."""
    cache = tmp_path / "cache"
    kept = ("files", "urls", "md5")
    return sorted(
        path.relative_to(cache).as_posix()
        for path in cache.rglob("*")
        if path.is_file() and path.relative_to(cache).parts[0] not in kept
    )


@pytest.mark.quick(24)
@pytest.mark.parametrize("checksum", [True, False], ids=["checksum", "none"])
@pytest.mark.parametrize(
    "how",
    [
        {"etag": '"1"'},
        {"modified": "Mon, 01 Jan 2024 00:00:00 GMT"},
        {},
        {"etag": 'W/"1"'},
        {"ranges": False},
        {"ranges": False, "unsized": True},
        {"unsized": True, "etag": '"1"'},
        {"packed": True, "etag": '"1"'},
        {"packed": True, "ranges": False, "unsized": True},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "faults", [[], ["drop"], ["503"], ["drop", "drop", "429", "drop"]], ids=str
)
def test_any_server_and_its_faults(
    server: DataServer, tmp_path: Path, how: dict[str, Any], faults: list[str], checksum: bool
) -> None:
    file = server.add("/a.bin", DATA, **how)
    file.faults.extend(faults)
    want = FileRequest(url=f"{server.url}/a.bin", sha256=SHA if checksum else None)
    with fetcher(tmp_path) as running:
        (got,) = running.fetch_all([want])
        assert got.path.read_bytes() == DATA
        assert (got.sha256, got.size, got.cached) == (SHA, len(DATA), False)
        assert got.path.stat().st_mode & 0o777 == 0o444
        assert left(tmp_path) == []
        sent = file.sent
        assert running.fetch([want]) == [got.path]
        assert file.sent == sent
        assert running.history == [got]


@pytest.mark.parametrize("kind", ["truncate", "short", "shift", "drop", "503", "ignore-range"])
def test_the_faults_of_the_other_server(tmp_path: Path, kind: Any) -> None:
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "a.bin").write_bytes(DATA)
    with RangeServer(tmp_path / "served") as server, fetcher(tmp_path) as running:
        server.fail("/a.bin", kind, times=4)
        (path,) = running.fetch([FileRequest(url=f"{server.url}/a.bin", sha256=SHA)])
        assert path.read_bytes() == DATA


@pytest.mark.parametrize("fault", ["short", "shift", "more"])
def test_ranges_other_than_asked(server: DataServer, tmp_path: Path, fault: str) -> None:
    file = server.add("/a.bin", DATA, etag='"1"')
    file.faults.extend([None, fault, fault, None, fault])
    (path,) = fetcher(tmp_path).fetch([FileRequest(url=f"{server.url}/a.bin")])
    assert path.read_bytes() == DATA


@pytest.mark.parametrize("how", [{}, {"ranges": False}, {"unsized": True}], ids=str)
def test_an_empty_file(server: DataServer, tmp_path: Path, how: dict[str, Any]) -> None:
    server.add("/empty", b"", **how)
    (path,) = fetcher(tmp_path).fetch([FileRequest(url=f"{server.url}/empty")])
    assert path.read_bytes() == b""


def test_bytes_come_once_over_kept_connections(server: DataServer, tmp_path: Path) -> None:
    file = server.add("/a.bin", DATA, etag='"1"')
    fetcher(tmp_path).fetch([FileRequest(url=f"{server.url}/a.bin")])
    assert file.sent == len(DATA)
    ranges = sorted(int(span[6:].partition("-")[0]) for span, _ in file.asked)
    assert ranges == list(range(0, len(DATA), PIECE))


def test_files_are_asked_for_at_once(server: DataServer, tmp_path: Path) -> None:
    barrier = threading.Barrier(3)
    for number in range(6):
        server.add(f"/{number}", bytes([number]) * 10, barrier=barrier)
    wants = [FileRequest(url=f"{server.url}/{number}") for number in range(6)]
    paths = fetcher(tmp_path).fetch(wants)
    assert [path.read_bytes()[:1] for path in paths] == [bytes([number]) for number in range(6)]
    assert not barrier.broken


def test_the_same_content_is_fetched_once(server: DataServer, tmp_path: Path) -> None:
    first, second = server.add("/a", DATA), server.add("/b", DATA)
    wants = [FileRequest(url=f"{server.url}/{name}", sha256=SHA) for name in "abab"]
    assert len(set(fetcher(tmp_path).fetch(wants))) == 1
    assert first.sent + second.sent == len(DATA)


# -- pauses between requests -----------------------------------------------------------------------


# -- what a server refuses -------------------------------------------------------------------------


def test_a_token_goes_to_the_hub_alone(
    server: DataServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with DataServer() as other:
        target = other.add("/a", DATA)
        hub = server.add(
            "/a", redirect=f"{other.url.replace('127.0.0.1', 'localhost')}/a?key=signed"
        )
        gated = server.add("/gated", DATA)
        gated.faults.append("403")
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        (got,) = fetcher(tmp_path).fetch_all([FileRequest(url=f"{server.url}/a")])
        assert hub.authorizations[0] == "Bearer hf_secret"
        assert target.authorizations == [""] * len(target.authorizations)
        assert got.final_url == f"http://localhost:{other.port}/a"
        with pytest.raises(InputError, match="HF_TOKEN") as caught:
            fetcher(tmp_path).fetch([FileRequest(url=f"{server.url}/gated")])
        assert "hf_secret" not in str(caught.value)
    everything = b"".join(path.read_bytes() for path in (tmp_path / "cache" / "urls").iterdir())
    assert b"signed" not in everything
    assert b"hf_secret" not in everything


@pytest.mark.parametrize("url", ["http://", "http://[/", "nothing://x/y"])
def test_urls_that_are_none(tmp_path: Path, url: str) -> None:
    with pytest.raises(InputError):
        fetcher(tmp_path).fetch([FileRequest(url=url)])


# -- what is not the file --------------------------------------------------------------------------

PAGE = b"\xef\xbb\xbf\n <!DOCTYPE html><html><body>Log in</body></html>"


@pytest.mark.parametrize("content_type", ["text/html; charset=utf-8", "application/octet-stream"])
@pytest.mark.parametrize("sha256", [SHA, None])
def test_a_login_page_is_told_from_data(
    server: DataServer, tmp_path: Path, content_type: str, sha256: str | None
) -> None:
    server.add("/a.csv", PAGE, content_type=content_type)
    want = FileRequest(
        url=f"{server.url}/a.csv", sha256=sha256, formats=("text/csv",), resource="the-csv"
    )
    with refused("not-data") as caught:
        fetcher(tmp_path).fetch([want])
    assert caught.value.place == "file 'the-csv'"
    assert caught.value.expected == "text/csv"
    assert fetcher(tmp_path).cached_path(want) is None


def test_pages_that_are_meant_and_data_that_is_called_a_page(
    server: DataServer, tmp_path: Path
) -> None:
    server.add("/a.html", PAGE, content_type="text/html")
    server.add("/b", PAGE, content_type="text/html")
    server.add("/c.csv", b"a,b\n1,2\n", content_type="text/html")
    wants = [
        FileRequest(url=f"{server.url}/a.html"),
        FileRequest(url=f"{server.url}/b", formats=("text/html",)),
        FileRequest(url=f"{server.url}/c.csv", formats=("text/csv",)),
    ]
    assert [path.read_bytes() for path in fetcher(tmp_path).fetch(wants)] == [
        PAGE,
        PAGE,
        b"a,b\n1,2\n",
    ]
    described = FileRequest(
        url=f"{server.url}/b",
        sha256=hashlib.sha256(PAGE).hexdigest(),
        formats=("text/csv",),
    )
    assert fetcher(tmp_path).fetch([described])  # the checksum decides


@pytest.mark.parametrize("sha256", ["0" * 64, "0" * 32])
def test_another_file_is_quarantined(server: DataServer, tmp_path: Path, sha256: str) -> None:
    file = server.add("/a.bin", DATA, etag='"1"')
    want = FileRequest(url=f"{server.url}/a.bin", sha256=sha256, resource="images")
    with refused("checksum") as caught:
        fetcher(tmp_path).fetch([want])
    digest = SHA if len(sha256) == 64 else hashlib.md5(DATA).hexdigest()
    assert digest in (caught.value.found or "")
    assert sha256 in (caught.value.expected or "")
    assert caught.value.place == "file 'images'"
    quarantined, why = left(tmp_path)[::-1][1], left(tmp_path)[::-1][0]
    assert (tmp_path / "cache" / quarantined).read_bytes() == DATA
    assert quarantined in str(caught.value)
    assert json.loads((tmp_path / "cache" / why).read_bytes())["url"] == want.url
    assert fetcher(tmp_path).cached_path(want) is None
    assert file.sent == len(DATA)  # nothing was resumed: once is enough
    with refused("offline"):
        fetcher(tmp_path, offline=True).fetch([want])


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "a.bin").write_bytes(DATA)
    with RangeServer(tmp_path / "served") as server:
        server.fail("/a.bin", "flip")
        want = FileRequest(url=f"{server.url}/a.bin", sha256=SHA)
        with refused("checksum"):
            fetcher(tmp_path).fetch([want])
        assert fetcher(tmp_path).fetch([want])[0].read_bytes() == DATA


def test_an_md5_finds_its_file_again(server: DataServer, tmp_path: Path) -> None:
    file = server.add("/a", DATA)
    for stated in (
        {"md5": hashlib.md5(DATA).hexdigest()},
        {"sha256": hashlib.md5(DATA).hexdigest()},
    ):
        want = FileRequest(url=f"{server.url}/a", **stated)
        assert fetcher(tmp_path).fetch([want])[0].read_bytes() == DATA
    assert file.sent == len(DATA)


@pytest.mark.parametrize("how", [{}, {"unsized": True, "ranges": False}], ids=str)
def test_a_size_is_checked(server: DataServer, tmp_path: Path, how: dict[str, Any]) -> None:
    server.add("/a", DATA, **how)
    with refused("conflict"):
        fetcher(tmp_path).fetch([FileRequest(url=f"{server.url}/a", size=5)])
    assert left(tmp_path) == []
    assert fetcher(tmp_path).fetch([FileRequest(url=f"{server.url}/a", size=len(DATA))])


def test_a_packed_file_is_kept_as_it_is(server: DataServer, tmp_path: Path) -> None:
    """Some servers declare a .gz as the packed form of something else."""
    packed = b"\x1f\x8b" + DATA
    server.add("/a.csv.gz", packed, headers={"Content-Encoding": "gzip"}, etag='"1"')
    (path,) = fetcher(tmp_path).fetch([FileRequest(url=f"{server.url}/a.csv.gz")])
    assert path.read_bytes() == packed


# -- what is in the cache already ------------------------------------------------------------------


def test_files_without_a_checksum_are_asked_for_again(server: DataServer, tmp_path: Path) -> None:
    file = server.add("/a", DATA, etag='"1"')
    dated = server.add("/b", DATA[:50], modified="Mon, 01 Jan 2024 00:00:00 GMT")
    wants = [FileRequest(url=f"{server.url}/{name}") for name in "ab"]
    fetcher(tmp_path).fetch(wants)
    again = fetcher(tmp_path).fetch_all(wants)
    assert [got.cached for got in again] == [True, True]
    assert (file.asked[-1][1], dated.asked[-1][1]) == (304, 304)
    assert (file.sent, dated.sent) == (len(DATA), 50)
    file.data, file.etag = DATA[::-1], '"2"'
    (changed, same) = fetcher(tmp_path).fetch_all(wants)
    assert (changed.cached, same.cached) == (False, True)
    assert changed.path.read_bytes() == DATA[::-1]
    offline = fetcher(tmp_path, offline=True).fetch(wants)
    assert offline == [changed.path, same.path]


def test_offline_says_what_is_missing(tmp_path: Path) -> None:
    with refused("offline"):
        fetcher(tmp_path, offline=True).fetch([FileRequest(url="http://127.0.0.1:9/a", sha256=SHA)])


def test_the_lock_goes_first(server: DataServer, tmp_path: Path) -> None:
    server.add("/a", DATA)
    url = f"{server.url}/a"
    with refused("checksum") as caught:
        fetcher(tmp_path, locked={url: "0" * 64}).fetch([FileRequest(url=url)])
    assert "--update-lock" in str(caught.value)
    with refused("conflict"):
        fetcher(tmp_path, locked={url: "0" * 64}).fetch([FileRequest(url=url, sha256=SHA)])
    (got,) = fetcher(tmp_path, locked={url: SHA}).fetch_all([FileRequest(url=url)])
    assert got.sha256 == SHA


# -- resuming --------------------------------------------------------------------------------------


def killed_in_the_middle(server: DataServer, tmp_path: Path, sha256: str, hold: int) -> None:
    """Run a process that fetches /a, and kill it when it asks for bytes behind `hold`."""
    file = server.files["/a"]
    file.hold = hold
    arguments = [str(tmp_path / "cache"), f"{server.url}/a", sha256, str(PIECE)]
    process = subprocess.Popen([sys.executable, fetching_process.__file__, *arguments])
    assert file.held.wait(60)
    process.send_signal(signal.SIGKILL)
    process.wait()
    file.hold = None
    file.release.set()


@pytest.mark.parametrize("sha256", [SHA, ""], ids=["checksum", "validator"])
def test_a_killed_process_is_gone_on_with(server: DataServer, tmp_path: Path, sha256: str) -> None:
    file = server.add("/a", DATA, etag='"1"')
    killed_in_the_middle(server, tmp_path, sha256, 5 * PIECE)
    assert file.sent == 5 * PIECE
    want = FileRequest(url=f"{server.url}/a", sha256=sha256 or None)
    assert fetcher(tmp_path).cached_path(want) is None
    (got,) = fetcher(tmp_path).fetch_all([want])
    assert got.path.read_bytes() == DATA
    assert file.sent == len(DATA)  # only the rest came
    assert got.received == len(DATA) - 5 * PIECE
    assert left(tmp_path) == []


@pytest.mark.parametrize("judges", [True, False])
@pytest.mark.parametrize("sha256", [True, False], ids=["checksum", "validator"])
def test_a_file_that_changed_is_begun_anew(
    server: DataServer, tmp_path: Path, sha256: bool, judges: bool
) -> None:
    other = DATA[::-1]
    digest = hashlib.sha256(other).hexdigest() if sha256 else ""
    file = server.add("/a", DATA, etag='"1"', judges=judges)
    killed_in_the_middle(server, tmp_path, digest, 5 * PIECE)
    file.data, file.etag, file.sent = other, '"2"', 0
    (got,) = fetcher(tmp_path).fetch_all(
        [FileRequest(url=f"{server.url}/a", sha256=digest or None)]
    )
    assert got.path.read_bytes() == other


def test_a_draft_of_something_else_is_not_trusted(server: DataServer, tmp_path: Path) -> None:
    """No validator, same size: only the checksum tells that the first half is of another file."""
    file = server.add("/a", DATA[::-1])
    killed_in_the_middle(server, tmp_path, SHA, 5 * PIECE)
    file.data = DATA
    (got,) = fetcher(tmp_path).fetch_all([FileRequest(url=f"{server.url}/a", sha256=SHA)])
    assert got.path.read_bytes() == DATA
    assert left(tmp_path) == []


def test_without_checksum_and_validator_nothing_is_gone_on_with(
    server: DataServer, tmp_path: Path
) -> None:
    file = server.add("/a", DATA[::-1])
    running = fetcher(tmp_path)
    file.faults.extend(["drop"] * 8)
    with pytest.raises(InputError):
        running.fetch([FileRequest(url=f"{server.url}/a")])
    assert left(tmp_path) == []
    file.data = DATA
    assert running.fetch([FileRequest(url=f"{server.url}/a")])[0].read_bytes() == DATA


@pytest.mark.parametrize("other", [DATA[::-1], DATA[:1000]], ids=["other", "shorter"])
def test_a_file_that_changes_while_it_is_fetched(
    server: DataServer, tmp_path: Path, other: bytes
) -> None:
    file = server.add("/a", DATA, etag='"1"')

    def change(served: Any) -> None:
        if len(served.asked) == 4:
            served.data, served.etag = other, '"2"'

    file.on_request = change
    (path,) = fetcher(tmp_path).fetch([FileRequest(url=f"{server.url}/a")])
    assert path.read_bytes() == other


def test_a_complete_draft_without_a_checksum_is_fetched_again(
    server: DataServer, tmp_path: Path
) -> None:
    """It was complete when its process was killed; the file may have changed since."""
    server.add("/a", DATA[::-1], etag='"2"')
    url = f"{server.url}/a"
    running = fetcher(tmp_path)
    draft = running.cache.draft(file_requests.key_of(url, None), url, "sha256")
    draft.begin(Version(len(DATA), '"1"'))
    draft.append(DATA)
    draft.save()
    draft.file.close()
    assert running.fetch([FileRequest(url=url)])[0].read_bytes() == DATA[::-1]


def test_a_file_that_never_stops_changing_comes_whole(server: DataServer, tmp_path: Path) -> None:
    file = server.add("/a", DATA, etag='"1"')

    def change(served: Any) -> None:
        served.etag = f'"{len(served.asked)}"'

    file.on_request = change
    (path,) = fetcher(tmp_path, parallel=1).fetch([FileRequest(url=f"{server.url}/a")])
    assert path.read_bytes() == DATA


def test_an_error_keeps_what_came_of_others(server: DataServer, tmp_path: Path) -> None:
    slow = server.add("/a", DATA, etag='"1"', hold=5 * PIECE)
    missing = server.add("/b", DATA)
    missing.faults.append("404")
    missing.on_request = lambda _: slow.held.wait(30)  # so that there is something to keep
    # The missing one first: else both threads might wait for pieces of the other.
    wants = [FileRequest(url=f"{server.url}/b"), FileRequest(url=f"{server.url}/a", sha256=SHA)]
    with refused("not-found"):
        fetcher(tmp_path, parallel=2).fetch(wants)
    slow.hold, sent = None, slow.sent
    slow.release.set()
    fetcher(tmp_path).fetch(wants[1:])
    assert slow.sent <= len(DATA) + 2 * PIECE  # those that were under way
    assert sent >= 3 * PIECE


def test_ctrl_c_keeps_what_came(server: DataServer, tmp_path: Path) -> None:
    file = server.add("/a", DATA, etag='"1"', hold=5 * PIECE)
    arguments = [str(tmp_path / "cache"), f"{server.url}/a", SHA, str(PIECE)]
    process = subprocess.Popen(
        [sys.executable, fetching_process.__file__, *arguments], stderr=subprocess.PIPE
    )
    assert file.held.wait(60)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert b"KeyboardInterrupt" in errors
    file.hold = None
    file.release.set()
    fetcher(tmp_path).fetch([FileRequest(url=f"{server.url}/a", sha256=SHA)])
    assert file.sent == len(DATA)


# -- several at once -------------------------------------------------------------------------------


@pytest.mark.parametrize("sha256", [SHA, ""], ids=["checksum", "none"])
@pytest.mark.parametrize("etag", ['"1"', None])
def test_two_processes_fetch_one_file_once(
    server: DataServer, tmp_path: Path, sha256: str, etag: str | None
) -> None:
    file = server.add("/a", DATA, etag=etag)
    first = threading.Event()

    def wait_for_the_other(served: Any) -> None:
        first.set()
        started.wait(60)

    started = threading.Event()
    file.on_request = wait_for_the_other
    arguments = [str(tmp_path / "cache"), f"{server.url}/a", sha256, str(len(DATA))]
    command = [sys.executable, fetching_process.__file__, *arguments]
    one = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert first.wait(60)

    class Seen(Fetcher):
        """Lets the other go on when the file was found to be with somebody else."""

    running = Seen(Access(tmp_path / "cache"), piece=len(DATA), parallel=1)
    claim = running.cache.claim

    def claimed(key: str) -> Any:
        got = claim(key)
        if got is None:
            started.set()
        return got

    running.cache.claim = claimed  # type: ignore[method-assign]
    (got,) = running.fetch_all([FileRequest(url=f"{server.url}/a", sha256=sha256 or None)])
    out, _ = one.communicate(timeout=60)
    assert got.path.read_bytes() == DATA
    assert got.cached
    assert out.split()[0] == str(len(DATA)).encode()
    assert file.sent == len(DATA)


def test_a_dead_process_holds_nothing(server: DataServer, tmp_path: Path) -> None:
    server.add("/a", DATA, etag='"1"')
    killed_in_the_middle(server, tmp_path, SHA, 5 * PIECE)
    running = fetcher(tmp_path)
    assert [name for name in left(tmp_path) if name.endswith(".lock")]
    claim = running.cache.claim(f"sha256-{SHA}")
    assert claim is not None
    assert running.cache.claim(f"sha256-{SHA}") is None
    claim.close()
    claim.close()
    again = running.cache.claim(f"sha256-{SHA}")
    assert again is not None
    again.close()


def test_one_fetcher_serves_many_threads(server: DataServer, tmp_path: Path) -> None:
    file = server.add("/a", DATA, etag='"1"')
    running = fetcher(tmp_path)
    found: list[Path] = []
    threads = [
        threading.Thread(
            target=lambda: found.extend(
                running.fetch([FileRequest(url=f"{server.url}/a", sha256=SHA)])
            )
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1
    assert file.sent == len(DATA)


def test_a_cache_that_cannot_be_written(server: DataServer, tmp_path: Path) -> None:
    server.add("/a", DATA)
    (tmp_path / "file").write_text("")
    with pytest.raises(Exception, match="cannot use the cache"):
        Fetcher(Access(tmp_path / "file" / "cache")).fetch([FileRequest(url=f"{server.url}/a")])


def test_progress_counts_every_byte_once(
    server: DataServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Bar:
        total = 0.0
        lock = threading.Lock()

        def advance(self, amount: float) -> None:
            with self.lock:
                self.total += amount

        def describe(self, text: str) -> None:
            pass

    for number, how in enumerate(({"etag": '"1"'}, {"ranges": False}, {"packed": True}, {})):
        file = server.add(f"/{number}", DATA, **how)
        file.faults.extend(["drop", None, "drop"])
        bar = Bar()
        want = FileRequest(url=f"{server.url}/{number}", about=3)
        downloads.download(fetcher(tmp_path), [want], bar)
        assert bar.total == len(DATA)


def test_checksum_reads_well() -> None:
    assert str(Checksum("sha256", SHA)) == f"sha256 {SHA}"


def test_one_url_with_two_checksums(server: DataServer, tmp_path: Path) -> None:
    """Both are noted as what the URL gave; one of them is wrong."""
    server.add("/a", DATA, etag='"1"')
    url = f"{server.url}/a"
    stated = [None, SHA, hashlib.md5(DATA).hexdigest()]
    paths = fetcher(tmp_path).fetch([FileRequest(url=url, sha256=text) for text in stated])
    assert len(set(paths)) == 1


def test_an_error_leaves_nothing_claimed(server: DataServer, tmp_path: Path) -> None:
    """What was fetched beside a file that failed is there, or can be fetched, at once."""
    wants = []
    for number in range(6):
        server.add(f"/{number}", DATA[: 1000 + number], etag='"1"')
        wants.append(
            FileRequest(url=f"{server.url}/{number}", sha256="0" * 64 if number == 3 else None)
        )
    for _ in range(5):
        with refused("checksum"):
            fetcher(tmp_path).fetch(wants)
        assert len(fetcher(tmp_path).fetch(wants[:3] + wants[4:])) == 5


def test_a_file_that_cannot_be_begun_is_free_again(tmp_path: Path) -> None:
    running = fetcher(tmp_path)
    for _ in range(2):
        with refused("unsupported"):
            running.fetch([FileRequest(url="nothing://x/y", sha256=SHA)])
        claim = running.cache.claim(f"sha256-{SHA}")
        assert claim is not None
        claim.close()


# -- limits ----------------------------------------------------------------------------------------


def endless(server: DataServer, size: int, **how: Any) -> FileRequest:
    server.add("/endless", b"x" * size, **how)
    return FileRequest(url=f"{server.url}/endless")


@pytest.mark.parametrize("how", [{}, {"ranges": False}, {"ranges": False, "unsized": True}])
def test_far_more_than_is_stated_is_refused(
    server: DataServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]
) -> None:
    monkeypatch.setattr(file_requests, "_ALWAYS", 1000)
    want = endless(server, 4001, **how)
    for size in ({"about": 1000}, {"size": 1000}, {"most": 4000}):
        with refused("too-large", "conflict"):
            fetcher(tmp_path).fetch([replace(want, **size)])
        assert left(tmp_path) == []
    for size in ({"about": 1001}, {"most": 4001}, {}):  # rounded sizes, and none
        shutil.rmtree(tmp_path / "cache")
        (path,) = fetcher(tmp_path).fetch([replace(want, **size)])
        assert path.stat().st_size == 4001


def test_a_packed_body_is_measured_unpacked(
    server: DataServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_requests, "_ALWAYS", 1000)
    want = endless(server, 1 << 20, packed=True)
    with refused("too-large"):
        fetcher(tmp_path).fetch([replace(want, about=1000)])


def test_neither_a_size_nor_an_end(
    server: DataServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    want = endless(server, 5000, ranges=False, unsized=True)
    monkeypatch.setattr(downloads, "MOST_UNSIZED", 4999)
    with refused("too-large"):
        fetcher(tmp_path).fetch([want])
    monkeypatch.setattr(downloads, "MOST_UNSIZED", 5000)
    monkeypatch.setattr(downloads, "_ROOM_EVERY", 1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    with pytest.raises(LimitError):
        fetcher(tmp_path).fetch([want])


@pytest.mark.parametrize("ranges", [True, False])
def test_a_server_that_falls_silent(server: DataServer, tmp_path: Path, ranges: bool) -> None:
    """Each try costs the whole timeout, so there are two; one is made up for by what comes after."""
    file = server.add("/a", DATA, ranges=ranges, etag='"1"')
    file.faults += ["stall"] * 3
    waits = Waits()
    with refused("network"):
        fetcher(tmp_path, timeout=0.05, wait=waits, parallel=1, piece=2 * len(DATA)).fetch(
            [FileRequest(url=f"{server.url}/a")]
        )
    assert len(file.asked) == 2 + ranges  # a part that came before the silence is progress
    file.faults.clear()
    file.release.set()
    (path,) = fetcher(tmp_path).fetch([FileRequest(url=f"{server.url}/a")])
    assert path.read_bytes() == DATA


def test_a_timeout_is_a_positive_number() -> None:
    for seconds in (0, -1, math.inf, math.nan):
        with refused("out-of-range"):
            Access(timeout=seconds)


# -- public addresses ------------------------------------------------------------------------------


def test_only_public_addresses(
    server: DataServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = server.add("/a", DATA)
    server.add("/there", redirect=f"{server.url}/a")
    monkeypatch.setenv("HTTP_PROXY", server.url)  # would connect in our place
    named = server.url.replace("127.0.0.1", "localhost")
    decimal = server.url.replace("127.0.0.1", "2130706433")
    for url in (
        f"{server.url}/a",
        f"{named}/a",
        f"{decimal}/a",
        "s3://bucket/a",
        "ftp://127.0.0.1/a",
    ):
        with refused("private-address"):
            fetcher(tmp_path, public_only=True).fetch([FileRequest(url=url)])
    assert file.asked == []
    # As if the first server were public, and redirected to one that is not.
    seen = iter([True, False])
    monkeypatch.setattr(remote, "is_public", lambda _: next(seen))
    other = server.add("/far", redirect=f"{named}/a")
    with refused("private-address"):
        fetcher(tmp_path, public_only=True).fetch([FileRequest(url=f"{server.url}/far")])
    assert len(other.asked) == 1
    assert file.asked == []
