"""Repositories are listed without their bytes, and single files of them are fetched."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from data_server import DataServer
from described_files import refused

from holdfast.data.croissant.document.model import FileObject
from holdfast.data.croissant.fetching.access import Access
from holdfast.data.croissant.fetching.fetcher import Fetcher
from holdfast.data.croissant.fetching.hub import HubDataset, hub_dataset
from holdfast.data.croissant.fetching.repositories import list_repository
from holdfast.data.croissant.fetching.wanted import Wanted
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
    (path,) = running.fetch([Wanted(url=str(big.location), sha256=big.sha256, size=big.size)])
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
            running.fetch([Wanted(url=str(file.location), sha256=file.sha256, size=file.size)])


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


# -- any other repository --------------------------------------------------------------------------


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main"]
    command = ["git", *identity, "-c", "commit.gpgsign=false", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A repository with a history, a pointer of Git LFS, a symbolic link, and a hook."""
    folder = tmp_path / "work"
    (folder / "data").mkdir(parents=True)
    git(folder, "init", "--quiet")
    (folder / "data" / "a.csv").write_bytes(b"old")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "old")
    git(folder, "tag", "-a", "v1", "-m", "v1")
    (folder / "data" / "a.csv").write_bytes(b"a,b\r\n1,2\n")
    oid = hashlib.sha256(BIG).hexdigest()
    (folder / "big.bin").write_text(
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {len(BIG)}\n"
    )
    (folder / ".gitattributes").write_text("big.bin filter=lfs diff=lfs merge=lfs -text\n")
    (folder / "link").symlink_to("/etc/passwd")
    git(folder, "-c", "filter.lfs.clean=cat", "-c", "filter.lfs.required=false", "add", ".")
    git(folder, "commit", "--quiet", "-m", "new")
    return folder


def test_a_clone(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere")  # as inside of a hook
    running = fetcher(tmp_path)
    url = work.as_uri()
    files = {file.path: file for file in list_repository(repository(url), running)}
    assert list(files) == [".gitattributes", "big.bin", "data/a.csv", "link"]
    table = files["data/a.csv"].location
    assert isinstance(table, Path)
    assert table.read_bytes() == b"a,b\r\n1,2\n"
    assert (files["big.bin"].size, files["big.bin"].sha256) == (
        len(BIG),
        hashlib.sha256(BIG).hexdigest(),
    )
    link = files["link"].location
    assert isinstance(link, Path)
    assert not link.is_symlink()
    assert link.read_text() == "/etc/passwd"
    commit = (work / ".git" / "refs" / "heads" / "main").read_text().strip()
    assert running.commits == {url: commit}
    assert str(files["big.bin"].location) == f"{url}/raw/{commit}/big.bin"
    shallow = subprocess.run(
        ["git", "rev-list", "--count", "HEAD"],
        cwd=table.parent,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        check=True,
    )
    assert shallow.stdout.strip() == b"1"


def test_a_clone_follows_the_repository(work: Path, tmp_path: Path) -> None:
    url = work.as_uri()
    before = list_repository(repository(url), fetcher(tmp_path))
    assert list_repository(repository(url), fetcher(tmp_path)) == before
    (work / "new.txt").write_text("new")
    git(work, "add", "new.txt")
    git(work, "commit", "--quiet", "-m", "newer")
    after = list_repository(repository(url), fetcher(tmp_path))
    assert "new.txt" in {file.path for file in after}
    offline = list_repository(repository(url), fetcher(tmp_path, offline=True))
    assert offline == after


@pytest.mark.parametrize("revision", ["v1", "main~1"])
def test_a_revision(work: Path, tmp_path: Path, revision: str) -> None:
    commit = git(work, "rev-parse", f"{revision}^{{commit}}").strip()
    named = revision if revision == "v1" else commit
    (file,) = list_repository(repository(f"{work.as_uri()}/tree/{named}"), fetcher(tmp_path))
    assert isinstance(file.location, Path)
    assert file.location.read_bytes() == b"old"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("file:///nowhere/at/all", "network"),
        ("--upload-pack=touch /tmp/x", "invalid-value"),
        ("ext::sh -c touch% /tmp/x", "invalid-value"),
    ],
)
def test_what_is_no_repository(tmp_path: Path, url: str, problem: str) -> None:
    with refused(problem):
        list_repository(repository(url), fetcher(tmp_path))
    with pytest.raises(InputError):
        list_repository(repository(url), fetcher(tmp_path, offline=True))


def test_a_password_is_not_printed(tmp_path: Path) -> None:
    url = "https://me:secret@127.0.0.1:9/x.git"
    with refused("network") as caught:
        list_repository(repository(url), fetcher(tmp_path))
    assert "secret" not in str(caught.value)
