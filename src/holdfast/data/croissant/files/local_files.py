"""Files of this machine that a description names: they stay below its folder, whatever it says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote

from holdfast.data.croissant.fetching.access import is_remote
from holdfast.errors import InputError

_MOST_COMPARED = 5000
_HEAD = 1 << 16


class LocalFolder:
    """A folder in which relative paths start, and out of which none leads.

    Args:
        root: the folder; of a description that has none, its URL.
        named: whether the user named it, and not only the description in it: then links of its files may
            lead to where the Hugging Face cache keeps the files of its snapshots.
    """

    def __init__(self, root: Path | str, *, named: bool = False) -> None:
        self.url = root if isinstance(root, str) and is_remote(root) else None
        self.root = Path("/nonexistent") if self.url else Path(root).absolute()
        real = self.root.resolve()
        self._homes = [real]
        if named and real.parent.name == "snapshots":
            self._homes.append(real.parent.parent / "blobs")
        self._parent_is_inside = lru_cache(maxsize=4096)(self._is_inside)

    @property
    def label(self) -> str:
        """What messages call it."""
        return self.url or str(self.root)

    def find(self, url: str, what: str) -> Path:
        """The file of a relative path, which may be percent-encoded.

        Args:
            url: the path.
            what: names it, for messages.

        Raises:
            InputError: if it leads out of the folder, or nothing is there.
        """
        for text in dict.fromkeys((url, unquote(url))):
            path = self.below(text, what)
            if os.path.exists(path):  # noqa: PTH110  # False also of a name that is too long
                return self.check(path)
        raise InputError(
            f"file of {what} not found",
            code="not-found",
            path=self.root,
            found=repr(url),
            expected=_nearest(unquote(url), self._names()) or "a path from this folder",
            remedy="correct the path, put the file there, or give it by --map ID=PATH",
        )

    def below(self, relative: str, what: str) -> Path:
        """The path of a relative path, whatever is there.

        Raises:
            InputError: if it leads out of the folder as it is written.
        """
        if self.url:
            raise InputError(
                f"{what} needs a folder, and the description is at a URL",
                code="unsupported",
                path=self.url,
                found=repr(relative) if relative else None,
                expected="files that are named by contentUrl, or contained in one that is",
                remedy="copy the description and its files into a folder, and use that",
            )
        parts = relative.replace("\\", "/").split("/")
        if relative.startswith(("/", "\\", "~/", "file:")) or ".." in parts or "\0" in relative:
            raise self._escape(relative, what)
        return self.root / relative

    def check(self, path: Path) -> Path:
        """A path below the folder, once it is known that no link on it leads out.

        Raises:
            InputError: if one does.
        """
        if not self._parent_is_inside(path.parent) or (
            path.is_symlink() and not self._is_inside(path)
        ):
            raise self._escape(str(path), "a symbolic link", str(path.resolve()))
        return path

    def _is_inside(self, path: Path) -> bool:
        real = path.resolve()
        return any(real.is_relative_to(home) for home in self._homes)

    def _escape(self, text: str, what: str, target: str | None = None) -> InputError:
        return InputError(
            f"{what} leads out of the folder of the description",
            code="unsafe-path",
            path=self.root,
            found=repr(text) + (f" -> {target}" if target else ""),
            expected="a relative path below this folder, or a URL",
            remedy="put the file into the folder, or give it by --map ID=PATH",
        )

    def walk(self, *, hidden: bool = False) -> Iterator[str]:
        """The paths of all files below the folder, with ``/``; links to folders are not followed.

        Args:
            hidden: look into ``.name`` too.

        Raises:
            InputError: if there is no folder, or one cannot be read.
        """
        self.below("", "a pattern")
        todo = [""]
        while todo:
            prefix = todo.pop()
            try:
                with os.scandir(self.root / prefix) as entries:
                    for entry in entries:
                        if not hidden and entry.name.startswith("."):
                            continue
                        if entry.is_dir(follow_symlinks=False):
                            todo.append(f"{prefix}{entry.name}/")
                        elif entry.is_file():
                            yield f"{prefix}{entry.name}"
            except FileNotFoundError:
                continue
            except OSError as error:
                raise InputError(
                    "the folder cannot be read",
                    code="unreadable",
                    path=self.root / prefix,
                    found=error.strerror,
                    remedy="allow it to be read",
                ) from error

    def _names(self) -> Iterator[str]:
        try:
            yield from self.walk()
        except InputError:
            return


def is_description(path: Path) -> bool:
    """Whether a file is a Croissant description itself, and no data of one."""
    if path.suffix not in (".json", ".jsonld"):
        return False
    with path.open("rb") as file:
        head = file.read(_HEAD)
    return b'"@context"' in head and b"mlcommons.org" in head


def missing_member(name: str, names: Iterator[str], where: str, what: str) -> InputError:
    """The error of a path that is not in an archive or a folder."""
    return InputError(
        f"file of {what} not found in it",
        code="not-found",
        path=where,
        found=repr(name),
        expected=_nearest(name, names) or "the path of a file in it",
        remedy="correct contentUrl: it is the path inside containedIn",
    )


def _nearest(name: str, names: Iterator[str]) -> str:
    """``did you mean "..."?``: files called alike, in whatever folder, or nearly alike."""
    last = name.rpartition("/")[2].lower()
    alike: list[str] = []
    compared: list[str] = []
    for number, each in enumerate(names):
        if number >= _MOST_COMPARED or len(alike) == 3:
            break
        compared.append(each)
        if each.rpartition("/")[2].lower() == last:
            alike.append(each)
    near = alike or get_close_matches(name, compared, 3, 0.6)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    some = ", ".join(map(repr, compared[:5]))
    return (
        f"one of {len(compared):,}: {some} ..." if len(compared) > 5 else some and f"one of {some}"
    )
