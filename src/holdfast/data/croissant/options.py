"""What the commands share: the description, where its files are, filters, and tables of Arrow rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from holdfast.command import Options, Stream, option
from holdfast.data.croissant.fetching.access import TIMEOUT_S, Access
from holdfast.errors import InputError

Description = Annotated[
    Stream,
    option(help="Croissant description: a JSON-LD file, a folder with one, a URL, or - for stdin."),
]
Mapping = Annotated[
    tuple[str, ...],
    option(
        "--map",
        metavar="ID=PATH",
        help="Use this file or folder for the FileObject ID instead of its URL; repeatable.",
    ),
]
Filters = Annotated[
    tuple[str, ...],
    option(
        "--filter",
        metavar="FIELD=VALUE",
        help="Only records with this value, such as split=train; repeatable. Several values of one "
        "field are alternatives.",
    ),
]
Memory = Annotated[
    str | None,
    option(
        metavar="SIZE",
        help="Memory limit of the query engine, such as 1GiB; what exceeds it spills to disk.",
    ),
]
Overwrite = Annotated[bool, option(help="Replace an existing file.")]


@Options
@dataclass(frozen=True)
class AccessOptions:
    """How the network may be used."""

    cache: Annotated[Path | None, option(metavar="DIR")] = None
    """Folder for fetched files (default: ~/.cache/holdfast/croissant)."""
    offline: bool = False
    """Use cached files only; fetch nothing."""
    timeout: Annotated[float, option(metavar="SECONDS")] = TIMEOUT_S
    """Time to wait for a server to connect or to send more bytes."""
    public_only: bool = False
    """Refuse private and loopback addresses, also after redirects; for descriptions by strangers."""

    def build(self) -> Access:
        """The access."""
        return Access(**vars(self))


@Options
@dataclass(frozen=True)
class FileOptions:
    """Where the files of a description are, and how their text is encoded."""

    mapping: Mapping = ()
    encoding: Annotated[tuple[str, ...], option(metavar="[ID=]NAME")] = ()
    """Encoding of all text files, or of FileObject or FileSet ID (default: declared, UTF-8); repeatable."""

    def build(self) -> dict[str, Any]:
        """As `Dataset` takes them."""
        return {"mapping": pairs(self.mapping, "--map"), "encoding": encodings(self.encoding)}


def pairs(items: Sequence[str], option: str) -> dict[str, str]:
    """``["a=b"]`` as a dict.

    Raises:
        InputError: if a part has no ``=``.
    """
    return {name: values[-1] for name, values in grouped(items, option).items()}


def encodings(items: Sequence[str]) -> str | dict[str, str] | None:
    """``["latin-1"]`` as "latin-1", ``["a=latin-1"]`` as a dict.

    Raises:
        InputError: a name without an id beside others.
    """
    alone = items[0] if len(items) == 1 and "=" not in items[0] else None
    return alone or (pairs(items, "--encoding") or None)


def grouped(items: Sequence[str], option: str) -> dict[str, list[str]]:
    """``["a=b", "a=c"]`` as ``{"a": ["b", "c"]}``.

    Raises:
        InputError: if a part has no ``=``.
    """
    groups: dict[str, list[str]] = {}
    for part in items:
        name, equals, value = part.partition("=")
        if not equals or not name:
            raise InputError(
                "not a NAME=VALUE pair",
                code="invalid-value",
                place=option,
                found=part,
                expected="NAME=VALUE, as in split=train",
            )
        groups.setdefault(name, []).append(value)
    return groups
