"""The nodes to be tested: host lists, files with one host per line, standard input."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from holdfast.errors import InputError

# What may stand in a command without quotes, and is never taken for an option.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")


def checked_name(name: object) -> str:
    """A node's name: letters, digits, ``_``, ``.`` and ``-``, not first a dot or hyphen.

    Raises:
        ValueError: for anything else; a name goes into a shell command.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a valid node name")
    return name


def in_order(nodes: Iterable[str]) -> tuple[str, ...]:
    """Nodes in the one order in which a set of them is written."""
    return tuple(sorted(nodes, key=by_number))


def checked_names(names: Iterable[object]) -> list[str]:
    """Names of nodes, each once.

    Raises:
        InputError: if one is none.
    """
    try:
        return list(dict.fromkeys(map(checked_name, names)))
    except ValueError as error:
        raise InputError(
            str(error),
            code="invalid-value",
            expected="letters, digits, '_', '.' and '-', for example node-07.rack2",
        ) from None


def expand_nodes(sources: str | Iterable[str]) -> list[str]:
    """The nodes named by host lists (``node[1-64,70]``), files with one host per line, or ``-`` (stdin).

    Args:
        sources: one or several; a source that is the name of a file is read as one. In a file, a line may
            be a host list; ``#`` begins a comment.

    Returns:
        Each node once, in the order given; those of a host list by number (node2 before node10).

    Raises:
        InputError: if a source names no nodes, or a name could not stand in a command.
    """
    found: dict[str, None] = {}
    for source in [sources] if isinstance(sources, str) else sources:
        if is_stdin(source) or "/" in source or Path(source).is_file():
            found.update(dict.fromkeys(_from_file(source)))
        else:
            found.update(dict.fromkeys(_from_list(source)))
    return list(found)


def is_stdin(path: str | Path) -> bool:
    """Whether a name stands for standard input."""
    return str(path) in ("-", "/dev/stdin")


def read_input(path: str | Path) -> bytes:
    """The bytes of a file or of standard input."""
    return sys.stdin.buffer.read() if is_stdin(path) else Path(path).read_bytes()


def _from_file(path: str) -> list[str]:
    try:
        data = read_input(path)
    except OSError as error:
        raise InputError(
            f"this file of nodes cannot be read: {error.strerror}",
            code="unreadable",
            path=path,
            expected="a host list (node[1-64]), or a file with one host per line",
        ) from None
    nodes: list[str] = []
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        text = line.partition("#")[0].strip()
        if text:
            nodes += _from_list(text, path="stdin" if is_stdin(path) else path, line=number)
    if not nodes:
        raise InputError(
            "no nodes in this file",
            code="no-data",
            path="stdin" if is_stdin(path) else path,
            expected="one host (or host list) per line",
        )
    return nodes


def _from_list(text: str, path: str | None = None, line: int = 0) -> list[str]:
    from holdfast.fleet.formats.hosts import hosts_of

    hosts = hosts_of(text)
    try:
        return sorted(map(checked_name, hosts or _no_hosts()), key=by_number)
    except ValueError:
        raise InputError(
            "invalid host list",
            code="unknown-format",
            path=path,
            place=f"line {line}" if line else None,
            found=text[:120],
            expected="names such as node7, or host lists such as node[1-64,70]",
        ) from None


def _no_hosts() -> list[str]:
    raise ValueError


@lru_cache(maxsize=65536)
def by_number(name: str) -> list[tuple[int, int, str]]:
    """A key that sorts node2 before node10."""
    return [
        (0, int(part), part) if part.isdigit() else (1, 0, part)
        for part in re.split(r"(\d+)", name)
        if part
    ]
