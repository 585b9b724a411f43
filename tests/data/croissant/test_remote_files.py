"""Remote files are read in place: the right bytes, and few of them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_server import DataServer
from described_files import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from range_server import RangeServer

from holdfast.data.croissant.fetching.access import Access
from holdfast.data.croissant.fetching.fetcher import Fetcher
from holdfast.data.croissant.fetching.file_requests import FileRequest
from holdfast.data.croissant.fetching.remote import RemoteFile
from holdfast.remote import RangesRefused

DATA = np.random.default_rng(2).bytes(1_000_000)


@pytest.fixture(scope="module")
def server() -> Iterator[DataServer]:
    with DataServer() as running:
        yield running


def opened(server: DataServer, tmp_path: Path, path: str, block: int = 1 << 12) -> RemoteFile:
    fetcher = Fetcher(Access(tmp_path / "cache"), wait=lambda _: None)
    return RemoteFile(server.url + path, fetcher, block)


READS = st.lists(
    st.tuples(st.sampled_from(["read", 0, 1, 2]), st.integers(-3000, 3000)), max_size=20
)


@settings(max_examples=60)
@given(size=st.integers(0, 5000), block=st.integers(1, 2000), reads=READS)
def test_it_reads_as_a_file_does(
    server: DataServer,
    tmp_path_factory: pytest.TempPathFactory,
    size: int,
    block: int,
    reads: list[tuple[Any, int]],
) -> None:
    served = server.add("/model", DATA[:size], etag='"1"')
    with opened(server, tmp_path_factory.getbasetemp(), "/model", block) as remote:
        local = io.BytesIO(served.data)
        assert remote.size == size
        for what, number in reads:
            if what == "read":
                assert remote.read(number if number >= 0 else -1) == local.read(max(-1, number))
            else:
                base = {0: 0, 1: local.tell(), 2: size}[what]
                if base + number < 0:
                    with pytest.raises(ValueError, match="no place"):
                        remote.seek(number, what)
                else:
                    assert remote.seek(number, what) == local.seek(number, what)
            assert remote.tell() == local.tell()
        assert served.sent <= size + block * len(reads) * 4


def test_one_member_of_a_zip_costs_little_more_than_its_bytes(
    server: DataServer, tmp_path: Path
) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as made:
        for number in range(10):
            made.writestr(f"{number}.bin", DATA[number * 100_000 : (number + 1) * 100_000])
    served = server.add("/a.zip", packed.getvalue(), etag='"1"')
    with opened(server, tmp_path, "/a.zip") as remote, zipfile.ZipFile(remote) as archive:
        assert archive.read("7.bin") == DATA[700_000:800_000]
        assert served.sent < 300_000


def test_one_column_of_parquet(server: DataServer, tmp_path: Path) -> None:
    columns = np.random.default_rng(3).random((4, 20_000))
    table = pa.table({f"c{number}": column for number, column in enumerate(columns)})
    sink = io.BytesIO()
    pq.write_table(table, sink)
    served = server.add("/a.parquet", sink.getvalue())
    with opened(server, tmp_path, "/a.parquet") as remote:
        assert pq.read_table(remote, columns=["c2"]).equals(table.select(["c2"]))
    assert served.sent < len(sink.getvalue()) * 0.4


def test_reading_on_takes_ever_fewer_requests(server: DataServer, tmp_path: Path) -> None:
    served = server.add("/a", DATA)
    with opened(server, tmp_path, "/a", 1000) as remote:
        pieces = [remote.read(500) for _ in range(2001)]
    assert b"".join(pieces) == DATA
    assert len(served.asked) < 15
    assert served.sent == len(DATA)


@pytest.mark.parametrize(
    "how", [{"ranges": False}, {"unsized": True, "ranges": False}, {"packed": True}], ids=str
)
def test_servers_without_ranges_say_so(
    server: DataServer, tmp_path: Path, how: dict[str, Any]
) -> None:
    server.add("/a", DATA, **how)
    with pytest.raises(RangesRefused):
        opened(server, tmp_path, "/a")


def test_a_small_file_that_came_whole(server: DataServer, tmp_path: Path) -> None:
    server.add("/a", DATA[:99], ranges=False)
    with opened(server, tmp_path, "/a") as remote:
        assert remote.read() == DATA[:99]


@pytest.mark.parametrize("judges", [True, False])
def test_a_file_that_changes_is_not_mixed(server: DataServer, tmp_path: Path, judges: bool) -> None:
    served = server.add("/a", DATA, etag='"1"', judges=judges)
    with opened(server, tmp_path, "/a") as remote:
        served.etag = '"2"'
        with refused("changed"):
            remote.read(10)


@pytest.mark.parametrize("kind", ["truncate", "short", "shift", "drop", "503"])
def test_faults_are_asked_for_again(tmp_path: Path, kind: Any) -> None:
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "a").write_bytes(DATA)
    with RangeServer(tmp_path / "served") as server:
        server.fail("/a", kind, times=2)
        fetcher = Fetcher(Access(tmp_path / "cache"), wait=lambda _: None)
        with RemoteFile(f"{server.url}/a", fetcher) as remote:
            server.fail("/a", kind, times=3)
            assert remote.read() == DATA


def test_a_missing_file(server: DataServer, tmp_path: Path) -> None:
    with refused("not-found"):
        opened(server, tmp_path, "/not-there")


# -- object stores and other schemes ---------------------------------------------------------------


def test_fsspec_schemes(tmp_path: Path) -> None:
    fsspec.filesystem("memory").pipe_file("/croissant/a.bin", DATA)
    url = "memory://croissant/a.bin"
    fetcher = Fetcher(Access(tmp_path / "cache"), piece=100_000, wait=lambda _: None)
    assert fetcher.fetch([FileRequest(url=url)])[0].read_bytes() == DATA
    with RemoteFile(url, fetcher) as remote:
        remote.seek(-10, 2)
        assert remote.read() == DATA[-10:]
        remote.seek(500_000)
        assert remote.read(10) == DATA[500_000:500_010]
    with refused("not-found"):
        fetcher.fetch([FileRequest(url="memory://croissant/none")])
    secret = tmp_path / "secret"
    secret.write_text("ours")
    for scheme in ("local", "git", "dir"):
        with refused("unsupported"):
            fetcher.fetch([FileRequest(url=f"{scheme}://{secret}")])


def test_objects_of_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "served" / "bucket").mkdir(parents=True)
    (tmp_path / "served" / "bucket" / "a b.bin").write_bytes(DATA)
    (tmp_path / "served" / "bucket" / "empty").write_bytes(b"")
    with RangeServer(tmp_path / "served") as server:
        for name, value in {
            "AWS_ENDPOINT_URL": server.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_SKIP_SIGNATURE": "true",
            "AWS_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
            monkeypatch.delenv(name, raising=False)
        fetcher = Fetcher(Access(tmp_path / "cache"), piece=100_000, wait=lambda _: None)
        wants = [FileRequest(url="s3://bucket/a%20b.bin"), FileRequest(url="s3://bucket/empty")]
        assert [path.read_bytes() for path in fetcher.fetch(wants)] == [DATA, b""]
        assert server.bytes == len(DATA)
        again = Fetcher(Access(tmp_path / "cache"), wait=lambda _: None).fetch_all(wants)
        assert [file.cached for file in again] == [True, True]
        assert server.bytes == len(DATA)
        with RemoteFile(wants[0].url, fetcher) as remote:
            remote.seek(-10, 2)
            assert remote.read() == DATA[-10:]
        with refused("not-found"):
            fetcher.fetch([FileRequest(url="s3://bucket/none")])
