"""Datasets on Hugging Face's hub: listed by its HTTP interface, so that single files can be fetched."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urljoin, urlsplit

from holdfast.data.croissant.document.model import FileObject
from holdfast.data.croissant.fetching.fetcher import Fetcher
from holdfast.errors import InputError
from holdfast.files import write_whole
from holdfast.remote import Retry, TransientError, bare, hub_endpoint, web_chunks

_HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co")
_PATH = re.compile(r"/datasets/([^/]+(?:/(?!tree/)[^/]+)?)(?:/tree/([^/]+)(?:/(.+))?)?/?")


@dataclass(frozen=True, slots=True)
class RepositoryFile:
    """A file of a repository, at one revision.

    Attributes:
        path: from the repository's root, with ``/``.
        size: its bytes; None where not known.
        location: its URL.
        sha256: as the repository states it (Git LFS does); hex.
    """

    path: str
    size: int | None
    location: str
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class HubDataset:
    """A dataset of the hub at a revision: a branch, tag, commit or reference."""

    name: str
    revision: str = "main"
    folder: str = ""

    @property
    def listing(self) -> str:
        """The URL that lists its files."""
        folder = f"/{quote(self.folder)}" if self.folder else ""
        revision = quote(self.revision, safe="")
        return f"{hub_endpoint()}/api/datasets/{self.name}/tree/{revision}{folder}?recursive=true"

    def file(self, path: str) -> str:
        """The URL of one of its files."""
        revision = quote(self.revision, safe="")
        return f"{hub_endpoint()}/datasets/{self.name}/resolve/{revision}/{quote(path)}"


def hub_dataset(url: str) -> HubDataset | None:
    """The dataset that a URL names; None if it is not on the hub."""
    parts = urlsplit(url)
    if parts.netloc.rpartition("@")[2] not in (*_HOSTS, urlsplit(hub_endpoint()).netloc):
        return None
    found = _PATH.fullmatch(parts.path)
    if not found:
        return None
    name, revision, folder = found.groups()
    return HubDataset(name, unquote(revision or "main"), unquote(folder or "").strip("/"))


def list_repository(file: FileObject, fetcher: Fetcher) -> list[RepositoryFile]:
    """The files of a FileObject that is a repository of the hub, by path.

    Raises:
        InputError: it is none of the hub, or as `list_dataset`.
    """
    url = (file.content_url or "").removeprefix("git+")
    dataset = hub_dataset(url)
    if dataset is None:
        raise InputError(
            "only datasets of Hugging Face's hub can be fetched as repositories",
            code="unsupported",
            path=bare(url),
            remedy=f"clone it with git, and name the folder: --map {file.id}=FOLDER",
        )
    return list_dataset(dataset, fetcher)


def list_dataset(dataset: HubDataset, fetcher: Fetcher) -> list[RepositoryFile]:
    """The files of a dataset; large ones with the SHA-256 under which Git LFS keeps them.

    Offline, it is the listing that was fetched last.

    Raises:
        InputError: there is no such dataset, it is gated, or offline nothing is known of it.
    """
    url = dataset.listing
    kept = (
        fetcher.cache.folder / "listings" / f"{hashlib.sha256(url.encode()).hexdigest()[:32]}.json"
    )
    if fetcher.offline:
        if not kept.is_file():
            raise InputError(
                "repository not in the cache, and offline",
                code="offline",
                path=url,
                remedy="download it while online, or give a copy by --map ID=FOLDER",
            )
        entries = json.loads(kept.read_bytes())
    else:
        entries = _entries(url, fetcher)
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_whole(kept, json.dumps(entries).encode())
    return sorted(
        (
            RepositoryFile(
                entry["path"],
                int((entry.get("lfs") or entry)["size"]),
                dataset.file(entry["path"]),
                (entry.get("lfs") or {}).get("oid"),
            )
            for entry in entries
        ),
        key=lambda file: file.path,
    )


def _entries(url: str, fetcher: Fetcher) -> list[dict[str, Any]]:
    """All pages of a listing, the files alone."""
    entries: list[dict[str, Any]] = []
    page: str | None = url
    seen = set()
    while page:
        if page in seen or urlsplit(page).netloc != urlsplit(url).netloc:
            raise InputError(
                "invalid next page of the repository's listing",
                code="network",
                path=url,
                found=bare(page),
            )
        seen.add(page)
        told, page = _page(page, fetcher)
        entries += [entry for entry in told if entry.get("type") == "file"]
    return entries


def _page(url: str, fetcher: Fetcher) -> tuple[list[dict[str, Any]], str | None]:
    """The entries of a page of a listing, and the URL of the next (RFC 8288)."""
    retry = Retry(url, sleep=fetcher.wait)
    while True:
        try:
            with fetcher.web.get(url, {"Accept": "application/json"}) as response:
                entries = _parsed(b"".join(web_chunks(response, decode=True)))
                link = response.links.get("next", {}).get("url")
                return entries, urljoin(response.url, link) if link else None
        except TransientError as error:
            retry.after(error)


def _parsed(content: bytes) -> list[dict[str, Any]]:
    try:
        told = json.loads(content)
    except ValueError as error:
        raise TransientError("the listing is not valid JSON") from error
    if not isinstance(told, list) or not all(isinstance(entry, dict) for entry in told):
        raise TransientError("the listing is not a list of files")
    return told
