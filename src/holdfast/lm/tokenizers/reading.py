"""Reading the files of a tokenizer, and refusing what no tokenizer could mean."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.errors import InputError

_MOST_IDS = 1 << 24
"""An id beyond it is a damaged number: the largest published vocabularies hold about 2^18."""


def unread_code(error: Exception) -> str:
    """The code of a file that could not be read: it is missing, or it is not what it should be."""
    missing = isinstance(error, FileNotFoundError | NotADirectoryError)
    return "not-found" if missing else "unreadable"


def read_bytes(path: Path) -> bytes:
    """The content of a file, or an error that names it."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            "this file of a tokenizer cannot be read",
            code=unread_code(error),
            path=path,
            found=error.strerror or str(error),
            remedy="give the path of a file that exists and may be read",
        ) from error


def read_text(path: Path) -> str:
    """The content of a file in UTF-8, or an error that says where it is not."""
    content = read_bytes(path)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(
            "this file is not text in UTF-8",
            code="damaged",
            path=path,
            place=f"line {line}, byte {error.start}",
            found=repr(content[error.start : error.start + 8]),
            expected="UTF-8",
            remedy="fetch the file again; it may be compressed, or of another kind",
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object that a file holds."""
    text = read_text(path)
    try:
        read = json.loads(text)
    except ValueError as error:
        place = (
            f"line {error.lineno}, column {error.colno}"
            if isinstance(error, json.JSONDecodeError)
            else None
        )
        raise InputError(
            "this file is not JSON",
            code="invalid-syntax",
            path=path,
            place=place,
            found=repr(text[:40]),
            expected="a JSON object",
            remedy="fetch the file again; a download may have been cut short",
        ) from error
    if not isinstance(read, dict):
        raise InputError(
            "this file does not hold a JSON object",
            code="invalid-syntax",
            path=path,
            found=type(read).__name__,
            expected="an object, {...}",
        )
    return read


def find_file(folder: Path, names: Sequence[str], pattern: str) -> Path:
    """The file of a folder with the first of `names` to exist, else the only one that fits `pattern`."""
    if not folder.is_dir():
        raise InputError(
            "folder not found",
            code="not-found",
            path=folder,
            found="a file" if folder.exists() else "nothing",
            expected=f"a folder that holds {' or '.join(names)}",
        )
    for name in names:
        if (folder / name).is_file():
            return folder / name
    fitting = sorted(path for path in folder.glob(pattern) if path.is_file())
    if len(fitting) == 1:
        return fitting[0]
    expected = f"{' or '.join(names)}, or one file {pattern}"
    raise InputError(
        "a file of the tokenizer is missing" if not fitting else "several files could be meant",
        code="damaged",
        path=folder,
        found=", ".join(path.name for path in fitting) or "none of them",
        expected=expected,
        remedy="put the tokenizer's files into one folder of their own",
    )


def check_id(found: object, *, path: Path, place: str) -> int:
    """A token's id, if it is one: a whole number from 0."""
    if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < _MOST_IDS:
        return found
    raise InputError(
        "this is not the id of a token",
        code="damaged",
        path=path,
        place=place,
        found=repr(found),
        expected=f"a whole number from 0 to {_MOST_IDS - 1:,}",
    )


def vocabulary_ids(vocabulary: object, *, path: Path, place: str = "") -> dict[str, int]:
    """Token -> id, as `vocab` stands in JSON files; every id belongs to one token."""
    if not isinstance(vocabulary, dict) or not vocabulary:
        raise InputError(
            "there is no vocabulary here",
            code="damaged",
            path=path,
            place=place or None,
            found="an empty object" if vocabulary == {} else type(vocabulary).__name__,
            expected="an object from tokens to ids",
        )
    owners: dict[int, str] = {}
    for token, value in vocabulary.items():
        where = f"{place + ', ' if place else ''}token {token!r}"
        number = check_id(value, path=path, place=where)
        if number in owners:
            raise InputError(
                "two tokens have the same id",
                code="damaged",
                path=path,
                place=where,
                found=f"id {number}, which is that of {owners[number]!r}",
                expected="a unique id",
            )
        owners[number] = token
    return vocabulary


def pieces_in_order(
    spelled: Mapping[int, bytes | None], size: int = 0
) -> tuple[tuple[bytes | None, ...], tuple[str, ...]]:
    """(pieces, remarks): the bytes of every id from 0 on, and what is unusual about them.

    Ids that are missing, and tokens that spell nothing, have no piece: a query never uses them. Several ids
    may spell the same bytes.
    """
    size = max(size, 1 + max(spelled, default=-1))
    pieces = tuple(spelled.get(token) or None for token in range(size))
    remarks = []
    gaps = [token for token in range(size) if token not in spelled]
    if gaps:
        remarks.append(f"{len(gaps)} ids below {size} have no token, such as {gaps[0]}")
    empty = [token for token, piece in spelled.items() if piece == b""]
    if empty:
        remarks.append(f"{len(empty)} tokens spell nothing, such as {empty[0]}")
    first: dict[bytes, int] = {}
    twins = []
    for token, piece in enumerate(pieces):
        if piece is not None and first.setdefault(piece, token) != token:
            twins.append((first[piece], token))
    if twins:
        left, right = twins[0]
        remarks.append(
            f"{len(twins)} tokens spell the bytes of another, such as {right} and {left}: {pieces[left]!r}"
        )
    return pieces, tuple(remarks)
