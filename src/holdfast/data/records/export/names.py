"""Names of files for ids: none leads out of its folder, no two are the same."""

from __future__ import annotations

import re

import xxhash

_JPEG = frozenset({"jpg", "jpeg", "jpe", "jfif"})
_TIFF = frozenset({"tif", "tiff"})
_MOST_BYTES = 240  # of a name in a folder; file systems allow 255
_MOST_PATH_BYTES = 2000
# Control characters, what Windows forbids or reads as a separator, a `%` that would read as an escape,
# and a dot at the start, which hides a file or leads upwards.
_UNSAFE = re.compile(r'[\x00-\x1f\x7f\\:*?"<>|]|%(?=[0-9A-Fa-f]{2})|^\.')


def safe(id_: str) -> str:
    """A relative path for an id; characters that could do harm stand as ``%XX``.

    Different ids give different paths, except where one is too long: it is cut, and a hash added.
    """
    parts = [_safe_part(part) for part in id_.split("/")]
    path = "/".join(parts)
    if len(path.encode()) > _MOST_PATH_BYTES:
        return _cut(path.replace("/", "%2F"), id_)
    return "/".join(
        part if len(part.encode()) <= _MOST_BYTES else _cut(part, id_) for part in parts
    )


def _safe_part(part: str) -> str:
    if not part:
        return "%00"
    return _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", part)


def _cut(part: str, id_: str) -> str:
    start = part.encode()[: _MOST_BYTES - 40].decode(errors="ignore")
    return f"{start}~{_digest(id_)}"


def _digest(id_: str) -> str:
    return xxhash.xxh3_64_hexdigest(id_.encode())


def suffixes_of(kind: str) -> frozenset[str]:
    """The suffixes that a file of a kind of image (`image_kind`) may have."""
    return next((names for names in (_JPEG, _TIFF) if kind in names), frozenset({kind}))


def split_suffix(path: str, kind: str) -> tuple[str, str]:
    """A path without its suffix, and the suffix: its own if that fits the kind of image, else the usual."""
    stem, dot, suffix = path.rpartition(".")
    if dot and stem and not stem.endswith("/") and suffix.lower() in suffixes_of(kind):
        return stem, suffix
    return path, kind


class FileNames:
    """Gives every image its file: ``id`` with a suffix that fits what it holds."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._folders: set[str] = set()

    def _take(self, path: str) -> bool:
        """Note a path as used; False if it is, or if a file stands where it needs a folder."""
        folders = [path[:at] for at, sign in enumerate(path) if sign == "/"]
        if path in self._files or path in self._folders or not self._files.isdisjoint(folders):
            return False
        self._files.add(path)
        self._folders.update(folders)
        return True

    def name(self, id_: str, kind: str | None) -> str:
        """The path of an image's file.

        Args:
            id_: the image's.
            kind: what `image_kind` says of it.
        """
        stem, suffix = split_suffix(safe(id_), kind or "bin")
        path = f"{stem}.{suffix}"
        if not self._take(path):
            flat = stem.replace("/", "%2F").encode()[: _MOST_BYTES - 40].decode(errors="ignore")
            mark = f"~{_digest(id_)}"
            while not self._take(path := f"{flat}{mark}.{suffix}"):
                mark += "~"
        return path


class Keys:
    """Gives every image its key in a WebDataset: no dot in the last part, and none of the format's own."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def key(self, id_: str, kind: str | None) -> str:
        """The key of an image."""
        stem, _ = split_suffix(safe(id_), kind or "bin")
        folder, slash, last = stem.rpartition("/")
        key = f"{folder}{slash}{last.replace('.', '%2E')}"
        if key.startswith("__"):
            key = f"%5F{key[1:]}"
        if key in self._used:
            key += f"~{_digest(id_)}"
        while key in self._used:
            key += "~"
        self._used.add(key)
        return key
