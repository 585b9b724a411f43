"""A folder that appears complete or not at all.

Files are written to the hidden folder ``.TARGET.PLAN.part`` beside the target, which is renamed at the
end. The name contains a hash of the plan, so that a rerun of the same command finds its own files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from holdfast.errors import InputError, StoreError
from holdfast.files import LockHeldError, atomic_folder


@contextlib.contextmanager
def drafting(target: Path, plan: str) -> Iterator[Path]:
    """Give a hidden folder to write to; it becomes the target when the block ends without an error.

    Args:
        target: must not exist, or be empty.
        plan: hash (16 hexadecimal digits) of what is written; the files of an interrupted run with the
            same plan are still in the folder, those of another plan are removed.

    Raises:
        InputError: if the target is a file or a folder that is not empty.
        StoreError: if another process writes it, or the disk is full.
    """
    target = target.absolute()
    _check_target(target)
    try:
        with atomic_folder(target, plan=plan) as folder:
            yield folder
    except LockHeldError:
        raise StoreError(
            f"{target}: another process is writing it\n"
            "  remedy: wait until it has finished, or choose another folder"
        ) from None
    except OSError as error:
        raise StoreError(
            f"{target}: the folder cannot be written\n  found: {error.strerror or error}\n"
            "  remedy: free disk space or fix the permissions, then rerun the command to resume"
        ) from error


def _check_target(target: Path) -> None:
    if target.is_dir() and not any(target.iterdir()):
        return
    if target.exists() or target.is_symlink() or not target.name:
        raise InputError(
            "the output already exists",
            code="output-exists",
            path=target,
            found="a folder that is not empty" if target.is_dir() else "a file",
            expected="a new folder, or an empty one",
            remedy="choose another folder, or remove this one",
        )
