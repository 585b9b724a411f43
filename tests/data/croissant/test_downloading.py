"""A description's files are downloaded, locked, and held against the lock."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from data_server import DataServer
from described_files import refused

from holdfast.data.croissant.files.downloading import Downloaded, download
from holdfast.data.croissant.files.lock import lock_path, read_lock

TRAIN, TEST = b"id,label\n1,cat\n2,dog\n", b"id,label\n3,cat\n"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def server() -> Iterator[DataServer]:
    with DataServer() as running:
        running.add("/train.csv", TRAIN, etag='"t"')
        running.add("/test.csv", TEST, etag='"e"')
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as made:
            made.writestr("a.txt", "a")
            made.writestr("b.txt", "b" * 100_000)
        running.add("/pack.zip", packed.getvalue(), etag='"z"')
        yield running


def described(server: DataServer, folder: Path, **changes: Any) -> Path:
    """A description of two tables, of which one has a checksum, a zip, and a local file."""
    (folder / "local.csv").write_bytes(b"x\n1\n")

    def table(name: str, resource: str) -> dict[str, Any]:
        return {
            "@type": "cr:RecordSet",
            "@id": name,
            "field": [
                {
                    "@type": "cr:Field",
                    "@id": f"{name}/id",
                    "dataType": "sc:Integer",
                    "source": {"fileObject": {"@id": resource}, "extract": {"column": "id"}},
                }
            ],
        }

    def file(name: str, kind: str = "text/csv", **more: Any) -> dict[str, Any]:
        return {
            "@type": "cr:FileObject",
            "@id": name,
            "contentUrl": f"{server.url}/{name}",
            "encodingFormat": kind,
            **more,
        }

    told = {
        "@context": {
            "@vocab": "https://schema.org/",
            "cr": "http://mlcommons.org/croissant/",
            "sc": "https://schema.org/",
            "dct": "http://purl.org/dc/terms/",
            "conformsTo": "dct:conformsTo",
            "column": "cr:column",
            "extract": "cr:extract",
            "field": "cr:field",
            "fileObject": "cr:fileObject",
            "recordSet": "cr:recordSet",
            "source": "cr:source",
            "includes": "cr:includes",
            "containedIn": "cr:containedIn",
            "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
        },
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": "two tables",
        "description": "d",
        "url": "https://example.org",
        "distribution": [
            file("train.csv", sha256=sha(TRAIN)),
            file("test.csv"),
            file("pack.zip", "application/zip"),
            {
                "@type": "cr:FileSet",
                "@id": "texts",
                "containedIn": {"@id": "pack.zip"},
                "encodingFormat": "text/plain",
                "includes": "*.txt",
            },
            {
                "@type": "cr:FileObject",
                "@id": "local",
                "contentUrl": "local.csv",
                "encodingFormat": "text/csv",
            },
        ],
        "recordSet": [table("train", "train.csv"), table("test", "test.csv")],
        **changes,
    }
    path = folder / "croissant.json"
    path.write_text(json.dumps(told))
    return path


def names(found: Downloaded) -> list[str]:
    return [file.resource for file in found.files]


def test_all_files(server: DataServer, tmp_path: Path) -> None:
    path = described(server, tmp_path)
    found = download(path, cache=tmp_path / "cache")
    assert names(found) == ["train.csv", "test.csv", "pack.zip", "local"]
    remote = [server.files[f"/{name}"].data for name in names(found)[:3]]
    assert [file.path.read_bytes() for file in found.files[:3]] == remote
    assert found.bytes_fetched == sum(map(len, remote))
    assert found.bytes_cached == len(b"x\n1\n")
    again = download(path, cache=tmp_path / "cache")
    assert again.bytes_fetched == 0
    assert again.bytes_cached == found.bytes_fetched + found.bytes_cached
    told = json.loads(json.dumps(again.to_dict()))
    assert set(told) == {"files", "bytes_fetched", "bytes_cached", "seconds", "lock"}
    assert told["files"][0]["sha256"] == sha(TRAIN)
    assert not lock_path(path).exists()


def test_only_some(server: DataServer, tmp_path: Path) -> None:
    path = described(server, tmp_path)
    cache = tmp_path / "cache"
    assert names(download(path, cache=cache, record_sets=["test"])) == ["test.csv"]
    assert server.files["/train.csv"].sent == server.files["/pack.zip"].sent == 0
    assert names(download(path, cache=cache, resources=["local", "train.csv"])) == [
        "local",
        "train.csv",
    ]
    filtered = download(path, cache=cache, record_sets=["train"], filters={"id": 1})
    assert names(filtered) == ["train.csv"]
    with refused("conflict"):
        download(path, cache=cache, resources=["local"], record_sets=["test"])
    with refused("unknown-name"):
        download(path, cache=cache, resources=["nothing"])


def test_a_file_in_an_archive_brings_the_archive(server: DataServer, tmp_path: Path) -> None:
    path = described(server, tmp_path)
    found = download(path, cache=tmp_path / "cache", resources=["texts"])
    assert [file.path.read_bytes() for file in found.files] == [server.files["/pack.zip"].data]


def test_a_mapped_file_is_not_fetched(server: DataServer, tmp_path: Path) -> None:
    path = described(server, tmp_path)
    copy = tmp_path / "copy.csv"
    copy.write_bytes(TRAIN)
    found = download(path, cache=tmp_path / "cache", mapping={"train.csv": copy})
    assert found.files[0].path == copy
    assert server.files["/train.csv"].sent == 0


# -- the lock --------------------------------------------------------------------------------------


def test_the_lock_says_what_was_fetched(server: DataServer, tmp_path: Path) -> None:
    path = described(server, tmp_path)
    found = download(path, cache=tmp_path / "cache", lock=True)
    assert found.lock == tmp_path / "croissant.lock.json"
    lock = read_lock(found.lock)
    assert lock is not None
    assert lock.description == sha(path.read_bytes())
    entry = lock.files[f"{server.url}/test.csv"]
    assert (entry.resource, entry.sha256, entry.size, entry.etag) == (
        "test.csv",
        sha(TEST),
        len(TEST),
        '"e"',
    )
    assert entry.final_url == f"{server.url}/test.csv"
    assert entry.time is not None
    text = found.lock.read_bytes()
    # Another machine gets the same bytes, and writes the same lock but for nothing.
    assert download(path, cache=tmp_path / "other", lock=True).bytes_fetched == found.bytes_fetched
    assert found.lock.read_bytes() == text


def test_what_changed_upstream_is_named(server: DataServer, tmp_path: Path) -> None:
    path = described(server, tmp_path)
    download(path, cache=tmp_path / "cache", lock=True)
    served = server.files["/test.csv"]
    served.data, served.etag = TEST.replace(b"cat", b"cow"), '"2"'
    # Who has the file that was locked does not notice; who has not gets no other.
    assert download(path, cache=tmp_path / "cache").bytes_fetched == 0
    with refused("checksum") as caught:
        download(path, cache=tmp_path / "other")
    assert f"{server.url}/test.csv" in str(caught.value)
    assert "--update-lock" in (caught.value.remedy or "")
    renewed = download(path, cache=tmp_path / "other", update_lock=True)
    assert renewed.lock is not None
    lock = read_lock(renewed.lock)
    assert lock is not None
    assert lock.files[f"{server.url}/test.csv"].sha256 == sha(served.data)
    assert download(path, cache=tmp_path / "third").files[1].path.read_bytes() == served.data


def test_a_changed_description_is_named(server: DataServer, tmp_path: Path) -> None:
    path = described(server, tmp_path)
    download(path, cache=tmp_path / "cache", lock=True)
    described(server, tmp_path, name="renamed")
    with refused("changed"):
        download(path, cache=tmp_path / "cache")
    download(path, cache=tmp_path / "cache", update_lock=True)
    download(path, cache=tmp_path / "cache")


def test_a_lock_grows(server: DataServer, tmp_path: Path) -> None:
    path = described(server, tmp_path)
    download(path, cache=tmp_path / "cache", record_sets=["test"], lock=True)
    first = read_lock(lock_path(path))
    download(path, cache=tmp_path / "cache", lock=True)
    both = read_lock(lock_path(path))
    assert first is not None
    assert both is not None
    assert set(first.files) < set(both.files)
    assert first.files.items() <= both.files.items()


@pytest.mark.parametrize(
    ("text", "problem"),
    [("{", "damaged"), ("[]", "damaged"), ('{"format": 2}', "unsupported"), ("{}", "damaged")],
)
def test_a_damaged_lock(server: DataServer, tmp_path: Path, text: str, problem: str) -> None:
    path = described(server, tmp_path)
    lock_path(path).write_text(text)
    with refused(problem):
        download(path, cache=tmp_path / "cache")
    download(path, cache=tmp_path / "cache", update_lock=True)
    download(path, cache=tmp_path / "cache")
