"""A folder of images: the first level of folders names the classes, as torchvision's ImageFolder has it.

Where all folders of that level are named for splits (`train`, `test`), the level below names them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from holdfast.data.croissant.describing.splits import is_split
from holdfast.data.records.sources.columns import LABEL, is_unicode, named_label
from holdfast.data.records.sources.example import (
    MAGIC_BYTES,
    Example,
    Options,
    check_range,
    image_kind,
    named_as_image,
    no_images,
)
from holdfast.errors import InputError


class Folder:
    """The images below a folder, sorted by their path (by code point), which is their id.

    A file is an image if its first bytes say so. Links are followed, but nothing below the folder is
    taken twice. Hidden files and folders are left out.
    """

    def __init__(self, root: Path, options: Options) -> None:
        self._root = root
        found = _Walk(root)
        self._ids = sorted(found.sizes)
        self._sizes = np.array([found.sizes[id_] for id_ in self._ids], np.int64)
        self.ignored = sorted(found.ignored)
        if not self._ids:
            raise no_images(root, self.ignored, "JPEGs, PNGs or other images")
        self._classes = classes_of(self._ids)
        names = [] if LABEL in options.drop else sorted({*self._classes} - {""})
        self._labels = {name: number for number, name in enumerate(names)}
        self.schema = pa.schema([named_label(names)] if names else [])

    def __len__(self) -> int:
        """How many images there are."""
        return len(self._ids)

    def ids_and_sizes(self) -> Iterator[tuple[str, int]]:
        """Path from the folder and bytes of every image."""
        return zip(self._ids, self._sizes.tolist(), strict=True)

    def read(self, start: int, stop: int) -> Iterator[Example]:
        """The images with the numbers from `start` to before `stop`."""
        check_range(start, stop, len(self))
        for id_, name in zip(self._ids[start:stop], self._classes[start:stop], strict=True):
            path = self._root / id_
            try:
                data = path.read_bytes()
            except OSError as error:
                raise InputError(
                    "an image can no longer be read",
                    code="source-changed",
                    path=path,
                    found=error.strerror,
                    remedy="leave the folder as it is while it is read, then start again",
                ) from error
            columns = {LABEL: self._labels.get(name)} if self._labels else {}
            yield Example(id_, data, columns)


def classes_of(ids: Sequence[str]) -> list[str]:
    """The class of each image by its path: its first folder, or the one below where all name splits.

    "" for an image that has no such folder.
    """
    folders = [id_.split("/")[:-1] for id_ in ids]
    below = int(all(is_split(each[0]) for each in folders if each))
    return [each[below] if len(each) > below else "" for each in folders]


class _Walk:
    """Finds the images below a folder: first what really lies there, then what links lead to."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._real_root = root.resolve()
        self.sizes: dict[str, int] = {}  # of images, by their path from the root
        self.ignored: list[tuple[str, str]] = []
        self._links: list[str] = []
        self._seen: set[tuple[int, int]] = set()  # device and inode of the folders gone through
        self._folder("")
        while self._links:
            links, self._links = sorted(self._links), []
            for link in links:
                self._follow(link)

    def _folder(self, top: str) -> None:
        """Go through a folder and those below it; links wait in `_links`."""
        folders = [top]
        while folders:
            folder = folders.pop()
            path = self._root / folder
            try:
                status = path.stat()
                entries = list(os.scandir(path))
            except OSError as error:
                raise InputError(
                    "the folder cannot be read",
                    code="unreadable",
                    path=path,
                    found=error.strerror,
                    remedy="make it readable, or move it elsewhere",
                ) from error
            identity = status.st_dev, status.st_ino
            if identity in self._seen:
                self._ignore(folder, "a folder that is read already")
                continue
            self._seen.add(identity)
            for entry in entries:
                id_ = f"{folder}/{entry.name}" if folder else entry.name
                if not is_unicode(id_):
                    self._ignore(ascii(id_), "its name is not UTF-8")
                elif entry.name.startswith("."):
                    self._ignore(id_, "hidden")
                elif entry.is_symlink():
                    self._links.append(id_)
                elif entry.is_dir():
                    folders.append(id_)
                else:
                    self._file(id_)

    def _follow(self, id_: str) -> None:
        path = self._root / id_
        try:
            target = path.resolve(strict=True)
        except (OSError, RuntimeError):
            self._ignore(id_, "a link that leads nowhere")
            return
        if self._is_read_without_links(target):
            self._ignore(id_, "a link to what is read already")
        elif target in self._real_root.parents:
            self._ignore(id_, "a link to a folder around this one")
        elif target.is_dir():
            self._folder(id_)
        else:
            self._file(id_)

    def _is_read_without_links(self, target: Path) -> bool:
        if not target.is_relative_to(self._real_root):
            return False
        # git-annex keeps files in a hidden folder, and links to them where they belong.
        return not any(part.startswith(".") for part in target.relative_to(self._real_root).parts)

    def _file(self, id_: str) -> None:
        path = self._root / id_
        try:
            # Opened without waiting: a named pipe would never answer.
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                status = os.fstat(descriptor)
                regular = stat.S_ISREG(status.st_mode)
                start = os.read(descriptor, MAGIC_BYTES) if regular else b""
            finally:
                os.close(descriptor)
        except OSError as error:
            self._ignore(id_, f"cannot be read: {error.strerror}")
            return
        if not regular:
            self._ignore(id_, "no regular file")
        elif not start:
            self._ignore(id_, "empty")
        elif image_kind(start) is not None:
            self.sizes[id_] = status.st_size
        elif named_as_image(id_):
            self._ignore(id_, "named as an image, but its first bytes are of none")
        else:
            self._ignore(id_, "no image")

    def _ignore(self, id_: str, reason: str) -> None:
        self.ignored.append((id_, reason))
