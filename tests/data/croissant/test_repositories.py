"""Repositories are listed without their bytes, and single files of them are fetched."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from data_server import DataServer
from described_files import refused

from holdfast.data.croissant.document.model import FileObject
from holdfast.data.croissant.fetching.access import Access
from holdfast.data.croissant.fetching.fetcher import Fetcher
from holdfast.data.croissant.fetching.file_requests import FileRequest
from holdfast.data.croissant.fetching.hub import HubDataset, hub_dataset, list_repository
from holdfast.errors import InputError

BIG = b"parquet" * 1000
SMALL = b"read me"


def repository(url: str) -> FileObject:
    return FileObject(
        at="/distribution/0", id="repo", content_url=url, encoding_formats=("git+https",)
    )


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[DataServer]:
    with DataServer() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


def fetcher(tmp_path: Path, **reach: Any) -> Fetcher:
    return Fetcher(Access(tmp_path / "cache", **reach), wait=lambda _: None)


@pytest.mark.parametrize(
    ("url", "name", "revision", "folder"),
    [
        ("https://huggingface.co/datasets/mnist", "mnist", "main", ""),
        ("https://huggingface.co/datasets/ylecun/mnist/", "ylecun/mnist", "main", ""),
        (
            "https://huggingface.co/datasets/mnist/tree/refs%2Fconvert%2Fparquet",
            "mnist",
            "refs/convert/parquet",
            "",
        ),
        (
            "https://huggingface.co/datasets/a/b/tree/refs%2Fconvert%2Fparquet/x/y",
            "a/b",
            "refs/convert/parquet",
            "x/y",
        ),
        ("https://hf.co/datasets/a/b/tree/v1.0", "a/b", "v1.0", ""),
    ],
)
def test_urls_of_the_hub(url: str, name: str, revision: str, folder: str) -> None:
    assert hub_dataset(url) == HubDataset(name, revision, folder)


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/openai/gpt-3",
        "https://huggingface.co/openai/gpt",
        "https://huggingface.co.evil.org/datasets/a/b",
        "https://huggingface.co/datasets/a/b/blob/main/x.csv",
    ],
)
def test_other_urls(url: str) -> None:
    assert hub_dataset(url) is None


def serve_dataset(hub: DataServer) -> dict[str, Any]:
    """Two pages of a listing as the hub sends them, and the files."""
    listing = "/api/datasets/org/data/tree/refs%2Fconvert%2Fparquet"
    lfs = {"oid": hashlib.sha256(BIG).hexdigest(), "size": len(BIG), "pointerSize": 130}
    first = [
        {"type": "directory", "oid": "1" * 40, "size": 0, "path": "train"},
        {"type": "file", "oid": "2" * 40, "size": 130, "path": "train/0 a.parquet", "lfs": lfs},
    ]
    second = [{"type": "file", "oid": "3" * 40, "size": len(SMALL), "path": "README.md"}]
    link = f'<{hub.url}{listing}?recursive=true&cursor=abc>; rel="next"'
    return {
        "first": hub.add(
            f"{listing}?recursive=true", json.dumps(first).encode(), headers={"Link": link}
        ),
        "second": hub.add(f"{listing}?recursive=true&cursor=abc", json.dumps(second).encode()),
        "big": hub.add(
            "/datasets/org/data/resolve/refs%2Fconvert%2Fparquet/train/0%20a.parquet", BIG
        ),
        "small": hub.add("/datasets/org/data/resolve/refs%2Fconvert%2Fparquet/README.md", SMALL),
    }


URL = "https://huggingface.co/datasets/org/data/tree/refs%2Fconvert%2Fparquet"


def test_the_hub_lists_in_pages_and_single_files_are_fetched(
    hub: DataServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    served = serve_dataset(hub)
    served["first"].faults.extend(["503", "429"])
    running = fetcher(tmp_path)
    files = list_repository(repository(URL), running)
    assert [(file.path, file.size, file.sha256) for file in files] == [
        ("README.md", len(SMALL), None),
        ("train/0 a.parquet", len(BIG), hashlib.sha256(BIG).hexdigest()),
    ]
    big = files[1]
    (path,) = running.fetch([FileRequest(url=str(big.location), sha256=big.sha256, size=big.size)])
    assert path.read_bytes() == BIG
    assert (served["big"].sent, served["small"].sent) == (len(BIG), 0)
    assert {*served["second"].authorizations, *served["big"].authorizations} == {"Bearer hf_secret"}
    asked = len(served["first"].asked)
    assert list_repository(repository(URL), fetcher(tmp_path, offline=True)) == files
    assert len(served["first"].asked) == asked


def test_a_file_of_the_hub_that_changed_since_it_was_listed(
    hub: DataServer, tmp_path: Path
) -> None:
    served = serve_dataset(hub)
    running = fetcher(tmp_path)
    small, big = list_repository(repository(URL), running)
    served["big"].data = BIG + b"!"
    served["small"].data = SMALL + b"!"
    for file, problem in ((big, "checksum"), (small, "conflict")):
        with refused(problem):
            running.fetch([FileRequest(url=str(file.location), sha256=file.sha256, size=file.size)])


def test_the_hub_refuses(hub: DataServer, tmp_path: Path) -> None:
    with refused("not-found"):
        list_repository(repository("https://huggingface.co/datasets/org/none"), fetcher(tmp_path))
    with refused("offline"):
        list_repository(repository(URL), fetcher(tmp_path, offline=True))
    listing = hub.add("/api/datasets/org/odd/tree/main", b"<html>")
    with pytest.raises(InputError, match="not valid JSON; tried 7 times"):
        list_repository(repository("https://huggingface.co/datasets/org/odd"), fetcher(tmp_path))
    listing.data = b"[]"
    for link in (
        f"<{hub.url}/api/datasets/org/odd/tree/main?recursive=true>",
        "<http://127.0.0.1:9/>",
    ):
        listing.headers["Link"] = f'{link}; rel="next"'
        with refused("network"):
            list_repository(
                repository("https://huggingface.co/datasets/org/odd"), fetcher(tmp_path)
            )


def test_other_repositories_are_refused(tmp_path: Path) -> None:
    url = "https://me:secret@github.com/openai/gpt-3"
    with refused("unsupported") as caught:
        list_repository(repository(url), fetcher(tmp_path))
    assert "secret" not in str(caught.value)
