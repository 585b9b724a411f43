"""Members of remote archives and repositories: what is listed and read, and how few bytes travel for it."""

from __future__ import annotations

import gzip
import io
import json
import random
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from data_server import DataServer
from described_files import container, file, files, refused, resources, sha256, tree
from range_server import RangeServer

from holdfast.errors import HoldfastError

IMAGES = {
    f"{split}/{number:03d}.jpg": random.Random(f"{split}{number}").randbytes(20_000)
    for split in ("train", "val", "test")
    for number in range(100)
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    with zipfile.ZipFile(folder / "images.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in IMAGES.items():
            archive.writestr(name, data)
    for split in ("train", "val", "test"):
        with tarfile.open(folder / f"{split}.tar", "w") as tar:
            for name, data in IMAGES.items():
                if name.startswith(split):
                    info = tarfile.TarInfo(name)
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
    (folder / "lists").mkdir()
    (folder / "lists" / "all.gz").write_bytes(gzip.compress(b"lists/a.csv\nb.csv\n"))
    (folder / "lists" / "a.csv").write_bytes(b"a")
    (folder / "lists" / "b.csv").write_bytes(b"b")
    (folder / "page.zip").write_bytes(b"<!doctype html><html><title>Sign in</title></html>")
    return folder


@pytest.fixture
def server(served: Path) -> Iterator[RangeServer]:
    with RangeServer(served) as server:
        yield server


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "description"
    folder.mkdir()
    return folder


def test_of_a_remote_zip_only_what_is_asked_for_travels(
    server: RangeServer, served: Path, here: Path
) -> None:
    size = (served / "images.zip").stat().st_size
    parts = (
        file("zip", f"{server.url}/images.zip?download=1", "application/zip"),
        files("val", "val/*.jpg", inside=["zip"]),
        file("one", "test/007.jpg", "image/jpeg", inside=["zip"]),
    )
    with resources(here, *parts) as opened:
        members = opened.members("val")
        listed = server.bytes
        assert listed < 600_000 < size / 5
        (one,) = opened.members("one")
        assert server.bytes == listed
        assert next(opened.read([one])) == IMAGES["test/007.jpg"]
        assert server.bytes - listed < 20_000 + 300_000
        server.reset()
        expected = [IMAGES[member.fullpath] for member in members]
        assert list(opened.read(members)) == expected
        assert server.bytes < 100 * 20_000 + 600_000
        assert server.requests < 20
        server.reset()
        # In any order, and unpacked into the cache, where they stay until the end.
        opened.fetch(members)
        assert server.bytes < 100 * 20_000 + 600_000
        server.reset()
        backwards = members[::-1]
        assert [path.read_bytes() for path in opened.paths(backwards)] == expected[::-1]
        assert list(opened.read(backwards)) == expected[::-1]
        assert server.bytes == 0
    assert list(tree(here)) == []


def test_most_of_a_zip_is_fetched_whole_and_kept(
    server: RangeServer, served: Path, here: Path
) -> None:
    data = (served / "images.zip").read_bytes()
    parts = (
        file("zip", f"{server.url}/images.zip", "application/zip", sha256=sha256(data)),
        files("all", inside=["zip"], excludes=["test/*"]),
    )
    with resources(here, *parts) as opened:
        members = opened.members("all")
        opened.fetch(members)
        server.reset()
        assert list(opened.read(members)) == [IMAGES[member.fullpath] for member in members]
        assert server.bytes == 0
    with resources(here, *parts, offline=True) as opened:
        assert opened.members("all") == members
        assert list(opened.read(members)) == [IMAGES[member.fullpath] for member in members]
    assert server.requests == 0
    wrong = file("zip", f"{server.url}/images.zip", "application/zip", sha256=sha256(b"x"))
    with resources(here, wrong, parts[1]) as opened, pytest.raises(HoldfastError):
        opened.fetch(opened.members("all"))


def test_a_server_without_ranges(server: RangeServer, here: Path) -> None:
    server.fail(None, "ignore-range", times=1e9)
    parts = (
        file("zip", f"{server.url}/images.zip", "application/zip"),
        files("val", "val/*", inside=["zip"]),
    )
    with resources(here, *parts) as opened:
        members = opened.members("val")
        assert list(opened.read(members)) == [IMAGES[member.fullpath] for member in members]


def test_one_split_fetches_only_its_archive(server: RangeServer, served: Path, here: Path) -> None:
    tars = [
        file(split, f"{server.url}/{split}.tar", "application/x-tar")
        for split in ("train", "val", "test")
    ]
    with resources(here, *tars, files("images", inside=["val"])) as opened:
        members = opened.members("images")
        assert list(opened.read(members)) == [IMAGES[member.fullpath] for member in members]
        assert set(server.bytes_of) == {"/val.tar"}
        assert server.bytes == (served / "val.tar").stat().st_size
        assert {member.owner for member in members} == {"val"}


def test_a_remote_manifest_and_its_files(server: RangeServer, here: Path) -> None:
    with resources(
        here,
        file("list", f"{server.url}/lists/all.gz", "application/gzip"),
        files("rows", "*.csv", inside=[container("list", un_archive=True, read_lines=True)]),
    ) as opened:
        members = opened.members("rows")
        assert set(server.bytes_of) == {"/lists/all.gz"}
        assert {m.location: m.fullpath for m in members} == {
            f"{server.url}/lists/b.csv": "b.csv",
            f"{server.url}/lists/a.csv": "lists/a.csv",
        }
        assert sorted(opened.read(members)) == [b"a", b"b"]
        assert sorted(path.read_bytes() for path in opened.paths(members)) == [b"a", b"b"]


def test_many_remote_files_are_fetched_side_by_side(server: RangeServer, here: Path) -> None:
    server.latency_s = 0.01
    parts = [file(name, f"{server.url}/lists/{name}.csv") for name in "ab"]
    with resources(here, *parts, files("both", inside=["a", "b"])) as opened:
        members = opened.members("both")
        assert server.requests == 0
        opened.fetch(members)
        assert list(opened.read(members)) == [b"a", b"b"]


def test_hostile_remote_zips(server: RangeServer, here: Path, served: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("good.csv", "x")
        archive.writestr("../evil.csv", "x")
    (served / "evil.zip").write_bytes(out.getvalue())
    for name, said in (("evil", "leads out"), ("page", "web page"), ("none", "404")):
        with (
            resources(
                here,
                file("zip", f"{server.url}/{name}.zip", "application/zip"),
                files("all", inside=["zip"]),
            ) as opened,
            pytest.raises(HoldfastError) as caught,
        ):
            opened.members("all")
        assert said.lower() in str(caught.value).lower()


def test_offline(server: RangeServer, here: Path) -> None:
    parts = (
        file("zip", f"{server.url}/images.zip", "application/zip"),
        files("all", inside=["zip"]),
    )
    with resources(here, *parts, offline=True) as opened, pytest.raises(HoldfastError):
        opened.members("all")
    assert server.requests == 0


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[DataServer]:
    """A dataset of the hub with two files."""
    contents = {"default/train/0.parquet": b"parquet", "README.md": b"read me"}
    with DataServer() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        listing = [
            {"type": "file", "path": path, "size": len(data)} for path, data in contents.items()
        ]
        server.add("/api/datasets/org/data/tree/main?recursive=true", json.dumps(listing).encode())
        for path, data in contents.items():
            server.add(f"/datasets/org/data/resolve/main/{path}", data)
        yield server


@pytest.mark.usefixtures("hub")
def test_files_of_a_repository(here: Path) -> None:
    url = "https://huggingface.co/datasets/org/data"
    parts = (
        file("repo", url, "git+https", sha256="https://example.org"),
        files("parquet", "default/*/*.parquet", inside=["repo"]),
        files("all", inside=["repo"]),
        file("readme", "README.md", inside=["repo"]),
    )
    with resources(here, *parts) as opened:
        members = opened.members("parquet")
        assert [member.fullpath for member in members] == ["default/train/0.parquet"]
        assert list(opened.read(members)) == [b"parquet"]
        assert [m.fullpath for m in opened.members("all")] == [
            "README.md",
            "default/train/0.parquet",
        ]
        assert opened.path(opened.members("readme")[0]).read_bytes() == b"read me"
        with refused("invalid-value"):
            opened.members("repo")
    with resources(here, *parts, offline=True) as opened:
        assert opened.members("parquet") == members
