"""What names several files: a folder of shards, a list in braces, a glob pattern."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path

from holdfast.errors import InputError, LimitError

MOST_SHARDS = 1_000_000
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")


def expand(pattern: str) -> list[str]:
    """The names that a pattern stands for: braces such as ``{000..012}`` and ``{a,b}``, any number of them.

    Raises:
        InputError: if a brace has no partner or a range runs backwards.
        LimitError: if there are more than a million.
    """
    texts = _BRACES.split(pattern)
    if any(brace in text for text in texts[::2] for brace in "{}"):
        raise InputError(
            "the braces of this pattern do not match",
            code="invalid-syntax",
            found=pattern,
            expected="for example shard-{000..012}.tar or {train,val}.tar",
        )
    choices = [_choices(text, pattern) if odd % 2 else [text] for odd, text in enumerate(texts)]
    total = 1
    for choice in choices:
        total *= len(choice)
    if total > MOST_SHARDS:
        raise _too_many(pattern, total)
    return ["".join(parts) for parts in product(*choices)]


def _choices(inside: str, pattern: str) -> list[str]:
    numbers = _RANGE.fullmatch(inside)
    if numbers is None:
        return inside.split(",")
    first, last = int(numbers[1]), int(numbers[2])
    if last < first:
        raise InputError(
            "a range in this pattern runs backwards",
            code="invalid-syntax",
            found=pattern,
            expected=f"{{{numbers[2]}..{numbers[1]}}}",
        )
    if last - first >= MOST_SHARDS:
        raise _too_many(pattern, last - first + 1)
    return [f"{number:0{len(numbers[1])}d}" for number in range(first, last + 1)]


def _too_many(pattern: str, total: int) -> LimitError:
    return LimitError(
        f"the pattern {pattern} stands for too many files",
        needed=f"{total:,} files",
        allowed=f"{MOST_SHARDS:,} files",
        remedy="write the range that exists",
    )


def is_pattern(where: str) -> bool:
    """Whether a name stands for several, and is not itself a file."""
    return any(sign in where for sign in "{*?[") and not os.path.lexists(where)


def shard_files(where: str, is_shard: Callable[[str], bool], expected: str) -> list[Path]:
    """The files that a path, a folder or a pattern stands for, in the order of their names.

    Args:
        where: a file, a folder (its files for which `is_shard` holds), or a pattern; the names in
            braces keep their order, and all of them must exist.
        is_shard: whether a file of this name is one, in a folder.
        expected: what there should be, for messages.

    Raises:
        InputError: if there is none, or one of those named is missing.
    """
    if is_pattern(where):
        files = [Path(name) for part in expand(where) for name in _globbed(part)]
    elif Path(where).is_dir():
        files = sorted(
            (path for path in Path(where).iterdir() if is_shard(path.name) and path.is_file()),
            key=lambda path: path.name,
        )
    else:
        files = [Path(where)]
    for path in files:
        if not path.is_file():
            raise InputError("no such file", code="not-found", path=path, expected=expected)
    if not files:
        raise InputError("no file matches", code="no-match", path=where, expected=expected)
    twice = next((path for path, times in Counter(files).items() if times > 1), None)
    if twice is not None:
        raise InputError(
            "the pattern names a file twice", code="duplicate", path=twice, found=where
        )
    return files


def _globbed(name: str) -> list[str]:
    """The files of a glob pattern; any other name as it is, whether or not it exists."""
    if not any(sign in name for sign in "*?["):
        return [name]
    return sorted(glob.glob(name))  # noqa: PTH207 - its patterns may be absolute
