"""A document of strangers -> a `Dump`: what two thousand dictionaries say, in columns.

Nothing about the document is trusted: neither types nor sizes nor that containers are trees. Versions 2.0
to 2.10 of PyTorch's format are known, and 1.x as far as it has the fields (``seq_id``, no group names):
fields are taken by name, and one that a version lacks has a default.
"""

from __future__ import annotations

import marshal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.runs.flight.record import COMPLETED, ENTRY, LEFT, STATES, Dump, Group, Operation

MOST_TENSORS = 65_536
MOST_DIMENSIONS = 64
MOST_NAME = 500
WITHOUT_STATES = ("gloo",)
"""Backends whose entries never become started or completed, only retired."""


class NoDumpError(ValueError):
    """A document that cannot be used: damaged, too large, or no flight record."""


class ForeignFileError(NoDumpError):
    """A sound document that is something else: beside dumps, nothing to speak of."""


def compact(document: Any, file: str) -> Dump:
    """The columns of a dump.

    Args:
        document: what JSON or a pickle holds; nothing about it is trusted.
        file: shown in messages.

    Raises:
        ForeignFileError: if it is not the dump of a flight recorder.
        NoDumpError: if it is one, and damaged.
    """
    if not isinstance(document, dict):
        raise ForeignFileError(f"it holds a {type(document).__name__}, not a flight record")
    if "version" not in document or not ({"entries", "pg_config"} & document.keys()):
        raise ForeignFileError("it has no version, entries or pg_config: not a flight record")
    entries = document.get("entries") or []
    if not isinstance(entries, (list, tuple)):
        raise NoDumpError(f"its entries are a {type(entries).__name__}, not a list")
    tables = _Tables()
    rows, aside = _rows(entries, tables)
    members, unnamed = _members(document.get("pg_config"))
    own = document.get("holdfast")
    own = own if isinstance(own, dict) else {}
    members |= _own_members(own.get("groups"))
    return Dump(
        file=file,
        rank=_integer(own.get("rank")),
        version=_text(document["version"]),
        world_size=_integer(own.get("world_size")),
        dumped_ns=_integer(own.get("dumped_ns")),
        host=_text(own.get("host", "")),
        groups=tuple(tables.groups),
        members=members,
        unnamed_members=unnamed,
        operations=tuple(tables.operations),
        entries=rows,
        rows_set_aside=aside,
        stacks=any(isinstance(each, dict) and bool(each.get("frames")) for each in entries[-100:]),
        threads=_threads(own.get("threads")),
    )


def frames_of(document: Any, records: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    """The stacks of some entries, innermost frame first, where the dump has them."""
    wanted = set(records)
    found = {}
    for entry in document.get("entries") or []:
        if isinstance(entry, dict) and entry.get("record_id") in wanted:
            frames = _frames(entry.get("frames"))
            if frames:
                found[entry["record_id"]] = frames
    return found


# --- Entries -------------------------------------------------------------------------------------


class _Tables:
    """What the rows of one dump refer to, while they are made."""

    def __init__(self) -> None:
        self.groups: dict[Group, int] = {}
        self.operations: dict[Operation, int] = {}
        self._known: dict[bytes, tuple[int, bool]] = {}  # what marshal makes of an operation

    def operation(self, asked: tuple[Any, ...]) -> tuple[int, bool]:
        """Its index, and whether its backend records no states."""
        key = marshal.dumps(asked, 2)  # version 2 writes equal values alike
        seen = self._known.get(key)
        if seen is None:
            made = operation_of(*asked)
            index = self.operations.setdefault(made, len(self.operations))
            seen = self._known[key] = index, made.backend in WITHOUT_STATES
        return seen

    def group(self, name: Any, description: Any) -> int:
        """Its index."""
        if not type(name) is type(description) is str:  # also keeps hashing cheap
            raise ValueError("group")
        return self.groups.setdefault((name, description), len(self.groups))


def _rows(entries: Sequence[Any], tables: _Tables) -> tuple[NDArray[np.void], int]:
    """The rows, and how many damaged entries were set aside; older versions lack fields."""
    rows = []
    for place, entry in enumerate(entries):
        with suppress(KeyError, TypeError, ValueError, OverflowError, MemoryError, RecursionError):
            row = _row(entry, place, tables)
            if _fits(row):
                rows.append(row)
    return np.array(rows, dtype=ENTRY), len(entries) - len(rows)


def _row(entry: Any, place: int, tables: _Tables) -> tuple[int, int, int, int, int, bool, int, int]:
    asked = (
        entry["profiling_name"],
        entry.get("input_sizes"),
        entry.get("output_sizes"),
        entry.get("input_dtypes"),
        entry.get("output_dtypes"),
    )
    operation, stateless = tables.operation(asked)
    group = entry.get("process_group")
    index = tables.group(*group) if group else tables.group(_text(_unnamed(entry)), "")
    p2p = entry.get("is_p2p")
    if p2p is None:
        p2p = "->" in asked[0] or "<-" in asked[0]
    sequence = entry.get("collective_seq_id")
    if sequence is None:
        sequence = entry["seq_id"]
    if p2p:
        sequence = entry.get("p2p_seq_id", sequence)
    said = entry["state"]
    if type(said) is not str:  # a text hashes quickly, whatever a stranger wrote
        raise ValueError("state")
    state = STATES[said]
    if stateless and state != COMPLETED and entry.get("retired"):
        state = LEFT
    return (
        entry.get("record_id", place),
        index,
        sequence,
        operation,
        state,
        bool(p2p),
        entry.get("time_created_ns") or 0,
        entry.get("timeout_ms") or 0,
    )


def _unnamed(entry: Any) -> Any:
    """What tells groups apart where they have no names: before 2.1."""
    return entry["pg_name"] if "pg_name" in entry else entry["pg_id"]


def _fits(row: tuple[Any, ...]) -> bool:
    return all(isinstance(cell, int) and -(2**63) <= cell < 2**63 for cell in row)


def operation_of(
    profiling_name: Any, inputs: Any, outputs: Any, input_types: Any, output_types: Any
) -> Operation:
    """What an entry asked for, from its fields as they stand in a dump; ValueError if damaged."""
    if not isinstance(profiling_name, str):
        raise ValueError(profiling_name)  # noqa: TRY004 - all that is wrong with a row is one thing
    backend, _, rest = profiling_name[:MOST_NAME].rpartition(":")
    name, _, peers = rest.partition(" ")
    return Operation(
        name=name,
        backend=backend,
        input_sizes=_sizes(inputs),
        output_sizes=_sizes(outputs),
        input_dtypes=_dtypes(input_types),
        output_dtypes=_dtypes(output_types),
        peers=_peers(peers),
    )


def _peers(text: str) -> tuple[int, int] | None:
    """``0->1`` is a send of 0, ``1<-0`` a recv of 1; both are (0, 1)."""
    for arrow, turned in (("->", False), ("<-", True)):
        left, found, right = text.partition(arrow)
        if found and left.isdecimal() and right.isdecimal():
            pair = int(left), int(right)
            return pair[::-1] if turned else pair
    return None


def _sizes(value: Any) -> tuple[tuple[int, ...], ...]:
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)) or len(value) > MOST_TENSORS:
        raise ValueError("sizes")
    sizes = []
    for shape in value:
        if not isinstance(shape, (list, tuple)) or len(shape) > MOST_DIMENSIONS:
            raise ValueError("sizes")
        if not all(isinstance(extent, int) for extent in shape):
            raise ValueError("sizes")
        sizes.append(tuple(shape))
    return tuple(sizes)


def _dtypes(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)) or len(value) > MOST_TENSORS:
        raise ValueError("dtypes")
    return tuple(_text(each) for each in value)


# --- The rest of a dump --------------------------------------------------------------------------


def _members(config: Any) -> tuple[dict[Group, tuple[int, ...]], tuple[int, ...]]:
    """Who is in which group; gloo lists the ranks of its last group under an empty name."""
    members: dict[Group, tuple[int, ...]] = {}
    unnamed: tuple[int, ...] = ()
    if isinstance(config, dict):
        for key, told in config.items():
            if not isinstance(told, dict):
                continue
            ranks = _ranks(told.get("ranks"))
            name = told.get("name", key)
            if isinstance(name, str) and name:
                members[(name, _text(told.get("desc", "")))] = ranks
            else:
                unnamed = ranks
    return {group: ranks for group, ranks in members.items() if ranks}, unnamed


def _own_members(groups: Any) -> dict[Group, tuple[int, ...]]:
    found = {}
    if isinstance(groups, list):
        for told in groups:
            if isinstance(told, dict):
                group = (_text(told.get("name", "")), _text(told.get("description", "")))
                found[group] = _ranks(told.get("ranks"))
    return {group: ranks for group, ranks in found.items() if ranks}


def _ranks(value: Any) -> tuple[int, ...]:
    """Ranks from ``[0, 1]`` or ``"[0, 1]"``; none where they cannot be read."""
    if isinstance(value, str):
        value = [int(part) for part in value.strip("[] ").split(",") if part.strip().isdecimal()]
    if not isinstance(value, (list, tuple)):
        return ()
    return tuple(sorted({rank for rank in value if isinstance(rank, int)}))


def _threads(value: Any) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(value, list):
        return ()
    return tuple(
        {"name": _text(each.get("name", "")), "frames": _frames(each.get("frames"))}
        for each in value[:1000]
        if isinstance(each, dict)
    )


def _frames(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, (list, tuple)):
        return []
    return [
        {
            "name": _text(frame.get("name", "")),
            "filename": _text(frame.get("filename", "")),
            "line": _integer(frame.get("line")) or 0,
        }
        for frame in value[:200]
        if isinstance(frame, dict)
    ]


def _text(value: Any) -> str:
    return (
        value[:MOST_NAME]
        if isinstance(value, str)
        else str(value)[:MOST_NAME]
        if _plain(value)
        else ""
    )


def _plain(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _integer(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        return None
    return value
