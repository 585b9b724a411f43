"""How JSON stands in files, and what DuckDB has to be told to read it."""

from __future__ import annotations

import json
from pathlib import Path

from holdfast.data.croissant.files.members import Member
from holdfast.data.croissant.scanning.local_paths import paths_sql
from holdfast.data.croissant.scanning.opening import Opening, compression, unpacked
from holdfast.errors import InputError
from holdfast.tables import literal

_LARGEST = 4294967295  # of DuckDB's maximum_object_size
_SMALLEST = 1 << 24
_HEAD = 1 << 22  # bytes in which a line of JSON should end


def layout_of(opening: Opening, kind: str) -> str:
    """How values stand in files: "newline_delimited", "array" of records, or "unstructured" (one value).

    Raises:
        InputError: files of different layouts.
    """
    if kind == "jsonl":
        return "newline_delimited"
    layouts = {
        _of_file(path, member) for path, member in zip(opening.paths, opening.members, strict=True)
    }
    if len(layouts) == 1:
        return layouts.pop()
    raise InputError(
        f"the files of resource {opening.resource!r} are laid out in different ways",
        code="conflict",
        path=opening.members[0].fullpath,
        found="an array in one file, an object in another",
        expected="the same in all",
    )


def _of_file(path: Path, member: Member) -> str:
    with unpacked(path, compression(path, member)) as file:
        head = file.read(_HEAD).lstrip()
    if head.startswith(b"["):
        _complete(path, member)
        return "array"
    first, newline, second = head.partition(b"\n")
    if newline and second.lstrip().startswith(b"{"):
        try:
            json.loads(first)
        except (ValueError, RecursionError):
            return "unstructured"
        return "newline_delimited"
    return "unstructured"


def _complete(path: Path, member: Member) -> None:
    """Refuses an array that breaks off: DuckDB reads what there is of it."""
    if compression(path, member) != "none":
        return  # a packed file that breaks off does not unpack
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - (1 << 12)))
        tail = file.read().rstrip()
    if not tail.endswith(b"]"):
        raise InputError(
            f"{member.fullpath} breaks off in the middle",
            code="damaged",
            path=member.fullpath,
            found=f"the end {tail[-40:].decode(errors='replace')!r}",
            expected="a JSON array, closed with ]",
            remedy="fetch the file again",
        )


def options_of(opening: Opening, layout: str) -> str:
    """Options of both read_json and read_json_objects."""
    packed = {compression(*pair) for pair in zip(opening.paths, opening.members, strict=True)}
    largest = _SMALLEST
    if layout == "unstructured":
        sizes = [_length(path, packed) for path in opening.paths]
        largest = max(_SMALLEST, *(size + 1 for size in sizes))
    if largest > _LARGEST:
        raise InputError(
            f"a file of resource {opening.resource!r} is too large for one JSON value",
            code="out-of-range",
            found=f"{largest - 1} bytes",
            expected="at most 4 GiB, or an array of records, or JSON Lines",
        )
    how = literal(packed.pop()) if len(packed) == 1 else "'auto_detect'"
    return (
        f"{paths_sql(opening.paths)}, format = {literal(layout)}, compression = {how}, "
        f"maximum_object_size = {largest}, hive_partitioning = false"
    )


def _length(path: Path, packed: set[str]) -> int:
    if packed == {"none"}:
        return path.stat().st_size
    total = 0
    with unpacked(path, next(iter(packed - {"none"}))) as file:
        while block := file.read(1 << 20):
            total += len(block)
    return total
