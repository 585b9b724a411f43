"""Paths of local files as DuckDB must be given them, so that it reads that file and no other.

DuckDB takes ``[``, ``*`` and ``?`` in a path for a pattern, and a backslash in one for a separator: of
``a[1].csv`` it reads ``a1.csv``. Written as ``[[]`` such signs name themselves, but a backslash beside them
still does not, each file costs a listing of its folder, and one odd name there makes that fail. So a file
with such a name is read through a symbolic link that has a plain one.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from holdfast.data.croissant.scanning.columns import texts
from holdfast.errors import InputError

# Also characters that end a line of DuckDB's messages, and bytes that are not UTF-8, which it rejects.
_MISREAD = re.compile(r"[\[\]*?{}\\~\x00-\x1f\x7f\ud800-\udfff]")


def paths_sql(paths: Iterable[Path]) -> str:
    """Local files as the list of paths that a reader of DuckDB takes; every such list comes from here."""
    return texts(str(engine_path(path)) for path in paths)


def engine_path(path: Path) -> Path:
    """The path under which DuckDB reads a file: its own, or that of a link.

    Raises:
        InputError: the folder for temporary files has such a name itself.
    """
    if not _MISREAD.search(str(path)):
        return path
    whole = path.absolute()
    link = private_folder(os.getpid()) / hashlib.sha256(os.fsencode(whole)).hexdigest()
    if not link.is_symlink():
        draft = link.with_suffix(
            f".{os.urandom(8).hex()}"
        )  # another thread may be about to make it
        draft.symlink_to(whole)
        draft.replace(link)
    return link


@lru_cache(maxsize=1)
def private_folder(process: int) -> Path:
    """A temporary folder of this process alone, which goes when it ends.

    Raises:
        InputError: its path cannot be given to DuckDB.
    """
    folder = tempfile.mkdtemp(prefix="holdfast-files-")
    atexit.register(remove_own, folder, process)
    if _MISREAD.search(folder):
        raise InputError(
            "the folder for temporary files has a name that DuckDB cannot read from",
            code="unsupported",
            path=folder,
            expected="a path without any of [ ] * ? { } ~ and \\",
            remedy="set TMPDIR to another folder",
        )
    return Path(folder)


def remove_own(folder: str, process: int) -> None:
    """Remove a temporary folder, but not from a forked process: that leaves its parent's alone."""
    if process == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)
