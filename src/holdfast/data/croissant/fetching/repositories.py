"""The files of a git repository: by the hub's HTTP interface, or out of a shallow clone."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from holdfast.data.croissant.document.model import FileObject
from holdfast.data.croissant.fetching.fetcher import Fetcher
from holdfast.data.croissant.fetching.hub import RepositoryFile, hub_dataset, list_dataset
from holdfast.errors import InputError
from holdfast.files import write_whole
from holdfast.remote import bare, private_address

_SCHEMES = ("https", "http", "ssh", "git", "file")
_TREE = re.compile(r"(?P<url>.+?)(?:/-)?/tree/(?P<revision>[^/]+)/?")
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:ext-.*\n)*"
    rb"oid sha256:([0-9a-f]{64})\nsize (\d+)\n"
)
_LARGEST_POINTER = 1024
# Nothing of a repository runs or reaches out: no hooks, filters, links, submodules, helpers of protocols.
_SAFE = (
    "core.hooksPath=/dev/null",
    "core.symlinks=false",
    "core.fsmonitor=false",
    "core.autocrlf=false",
    "filter.lfs.smudge=",
    "filter.lfs.process=",
    "filter.lfs.required=false",
    "submodule.recurse=false",
    "protocol.ext.allow=never",
    "protocol.file.allow=always",
    "advice.detachedHead=false",
    "http.lowSpeedLimit=1",  # bytes per second; a server that is silent for as long as below is given up
    "http.lowSpeedTime=30",
)


def list_repository(file: FileObject, fetcher: Fetcher) -> list[RepositoryFile]:
    """The files of a FileObject that is a repository, by path.

    Datasets of Hugging Face's hub are listed, and fetched file by file; any other repository is cloned into
    the cache, without its history. A file that Git LFS keeps elsewhere is a URL with its SHA-256.

    Raises:
        InputError: the repository cannot be reached, or offline nothing is known of it.
    """
    url = (file.content_url or "").removeprefix("git+")
    dataset = hub_dataset(url)
    if dataset:
        return list_dataset(dataset, fetcher)
    if urlsplit(url).scheme not in _SCHEMES:
        raise InputError(
            "not a URL of a git repository",
            code="invalid-value",
            found=url,
            expected=f"a URL of {', '.join(_SCHEMES)}",
            remedy="give a copy of it by --map ID=FOLDER",
        )
    found = _TREE.fullmatch(url)
    if fetcher.access.public_only:  # git connects by itself: nobody sees where to
        raise private_address(url, "a git repository that must be cloned")
    url, revision = (found["url"], unquote(found["revision"])) if found else (url, "HEAD")
    folder = _cloned(url, revision, fetcher)
    fetcher.commits[bare(url)] = folder.name
    return sorted(_files(folder, url), key=lambda each: each.path)


def _files(folder: Path, url: str) -> Iterator[RepositoryFile]:
    for place, folders, names in os.walk(folder):
        if ".git" in folders:
            folders.remove(".git")
        for name in names:
            path = Path(place, name)
            inside, size = path.relative_to(folder).as_posix(), path.stat().st_size
            pointer = _POINTER.fullmatch(path.read_bytes()) if size <= _LARGEST_POINTER else None
            if pointer:
                # Where GitHub, GitLab and their like serve the file itself.
                there = f"{url.removesuffix('.git')}/raw/{folder.name}/{quote(inside)}"
                yield RepositoryFile(inside, int(pointer[2]), there, pointer[1].decode())
            else:
                yield RepositoryFile(inside, size, path)


def _cloned(url: str, revision: str, fetcher: Fetcher) -> Path:
    """A folder, named by the commit, with the files of a revision."""
    key = hashlib.sha256(f"{url} {revision}".encode()).hexdigest()[:32]
    home = fetcher.cache.folder / "git" / key
    latest = home / "latest"
    if fetcher.offline:
        if not latest.is_file():
            raise InputError(
                "repository not in the cache, and offline",
                code="offline",
                path=bare(url),
                remedy="download it while online, or give a copy by --map ID=FOLDER",
            )
        return home / latest.read_text("ascii")
    commit = _commit(url, revision)
    if not (home / commit).is_dir():
        with _claimed(fetcher, f"git-{key}"):
            if not (home / commit).is_dir():
                commit = _clone(url, revision, home)
    write_whole(latest, commit.encode("ascii"))
    return home / commit


def _commit(url: str, revision: str) -> str:
    """What a branch, tag or reference stands for now; what is none is taken as a commit itself."""
    told = _git(["ls-remote", "--", url, revision, f"{revision}^{{}}"], url).splitlines()
    references = {name: commit for commit, _, name in (line.partition("\t") for line in told)}
    tag = f"refs/tags/{revision}"
    for name in (revision, f"refs/heads/{revision}", f"{tag}^{{}}", tag):
        if name in references:
            return references[name]
    return revision


def _clone(url: str, revision: str, home: Path) -> str:
    draft = home / ".part"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        _git(["init", "--quiet", "--template=", "."], url, draft)
        fetch = ["fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules"]
        _git([*fetch, "--", url, revision], url, draft)
        _git(["checkout", "--quiet", "--detach", "FETCH_HEAD"], url, draft)
        commit = _git(["rev-parse", "HEAD"], url, draft).strip()
        draft.replace(home / commit)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return commit


@contextmanager
def _claimed(fetcher: Fetcher, key: str) -> Iterator[None]:
    """Keep other processes from fetching the same."""
    while (claim := fetcher.cache.claim(key)) is None:
        (fetcher.wait if fetcher.wait is not None else time.sleep)(0.1)
    try:
        yield
    finally:
        claim.close()


def _git(arguments: list[str], url: str, folder: Path | None = None) -> str:
    settings = [part for setting in _SAFE for part in ("-c", setting)]
    environment = os.environ | {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "SSH_ASKPASS": "",
        "GIT_SSH_COMMAND": os.environ.get("GIT_SSH_COMMAND", "ssh -o BatchMode=yes"),
        "GIT_LFS_SKIP_SMUDGE": "1",
        "LC_ALL": "C",
    }
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        environment.pop(name, None)
    try:
        done = subprocess.run(
            ["git", *settings, *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except FileNotFoundError as error:
        raise InputError(
            "git is not installed, and is needed to fetch this repository",
            code="unsupported",
            path=bare(url),
            remedy="install git, or give a copy of the repository by --map ID=FOLDER",
        ) from error
    if done.returncode:
        said = [line for line in done.stderr.replace(url, bare(url)).splitlines() if line.strip()]
        raise InputError(
            "the repository cannot be fetched",
            code="network",
            path=bare(url),
            found=said[-1].strip() if said else f"git ended with {done.returncode}",
            remedy="check contentUrl; log in by git's credential helper or ~/.netrc; or give a copy by "
            "--map ID=FOLDER",
        )
    return done.stdout
