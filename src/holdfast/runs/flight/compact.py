"""A document of strangers -> a `Dump`: what two thousand dictionaries say, in columns.

Nothing about the document is trusted: neither types nor sizes nor that containers are trees. Versions 2.0
to 2.10 of PyTorch's format are known, and 1.x as far as it has the fields (``seq_id``, no group names):
fields are taken by name, and one that a version lacks has a default.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from msgspec import Meta, Struct, convert, to_builtins
from numpy.typing import NDArray

from holdfast.runs.flight.record import COMPLETED, ENTRY, LEFT, STATES, Dump, Group, Operation

MOST_NAME = 500
MOST_FRAMES = 200
MOST_THREADS = 1000
WITHOUT_STATES = ("gloo",)
"""Backends whose entries never become started or completed, only retired."""


_Kind = TypeVar("_Kind")


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
    own = _read(document.get("holdfast"), _Own) or _Own()
    for each in own.groups:
        if ranks := each.members():
            members[(each.name or "", each.description)] = ranks
    return Dump(
        file=file,
        rank=own.rank,
        version=str(document["version"])[:MOST_NAME],
        world_size=own.world_size,
        dumped_ns=own.dumped_ns,
        host=own.host,
        groups=tuple(tables.groups),
        members=members,
        unnamed_members=unnamed,
        operations=tuple(tables.operations),
        entries=rows,
        rows_set_aside=aside,
        stacks=any(isinstance(each, dict) and bool(each.get("frames")) for each in entries[-100:]),
        threads=tuple(
            {"name": each.name, "frames": to_builtins(each.frames[:MOST_FRAMES])}
            for each in own.threads[:MOST_THREADS]
        ),
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

_Int = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Shape = Annotated[tuple[_Int, ...], Meta(max_length=64)]
_Shapes = Annotated[tuple[_Shape, ...], Meta(max_length=65_536)]
_Types = Annotated[tuple[str, ...], Meta(max_length=65_536)]


class _Entry(Struct):
    """What counts of an entry, with the defaults of versions that lack it."""

    profiling_name: Annotated[str, Meta(max_length=MOST_NAME)]
    state: Literal["scheduled", "started", "completed"]
    record_id: _Int | None = None
    process_group: tuple[str, str] | None = None
    pg_name: str | int | None = None
    pg_id: str | int | None = None
    collective_seq_id: _Int | None = None
    p2p_seq_id: _Int | None = None
    seq_id: _Int | None = None
    is_p2p: bool | None = None
    input_sizes: _Shapes | None = None
    output_sizes: _Shapes | None = None
    input_dtypes: _Types | None = None
    output_dtypes: _Types | None = None
    time_created_ns: _Int | None = None
    timeout_ms: _Int | None = None
    retired: bool | None = None


class _Tables:
    """What the rows of one dump refer to, while they are made."""

    def __init__(self) -> None:
        self.groups: dict[Group, int] = {}
        self.operations: dict[Operation, int] = {}

    def row(self, entry: _Entry, place: int) -> tuple[Any, ...]:
        """A row of `ENTRY`.

        Raises:
            ValueError: if the entry has no group or no number.
        """
        operation = _operation(entry)
        # What tells groups apart where they have no names: before 2.1.
        unnamed = entry.pg_id if entry.pg_name is None else entry.pg_name
        group = entry.process_group or (None if unnamed is None else (str(unnamed), ""))
        p2p = entry.is_p2p
        if p2p is None:
            p2p = operation.peers is not None
        numbers = [entry.collective_seq_id, entry.seq_id]
        numbers = [entry.p2p_seq_id, *numbers] if p2p else numbers
        sequence = next((each for each in numbers if each is not None), None)
        if sequence is None or group is None:
            raise ValueError("group or number")
        state = STATES[entry.state]
        if operation.backend in WITHOUT_STATES and state != COMPLETED and entry.retired:
            state = LEFT
        return (
            place if entry.record_id is None else entry.record_id,
            self.groups.setdefault(group, len(self.groups)),
            sequence,
            self.operations.setdefault(operation, len(self.operations)),
            state,
            p2p,
            entry.time_created_ns or 0,
            entry.timeout_ms or 0,
        )


def _rows(entries: Sequence[Any], tables: _Tables) -> tuple[NDArray[np.void], int]:
    """The rows, and how many damaged entries were set aside."""
    rows = []
    for place, entry in enumerate(entries):
        with suppress(ValueError):  # also what msgspec raises
            rows.append(tables.row(convert(entry, _Entry), place))
    return np.array(rows, dtype=ENTRY), len(entries) - len(rows)


def _operation(entry: _Entry) -> Operation:
    """What an entry asked for: ``nccl:send 0->1`` is the name of a send of rank 0 to rank 1."""
    backend, _, rest = entry.profiling_name.rpartition(":")
    name, _, peers = rest.partition(" ")
    return Operation(
        name,
        backend,
        entry.input_sizes or (),
        entry.output_sizes or (),
        entry.input_dtypes or (),
        entry.output_dtypes or (),
        _peers(peers),
    )


def _peers(text: str) -> tuple[int, int] | None:
    """``0->1`` is a send of 0, ``1<-0`` a recv of 1; both are (0, 1)."""
    for arrow, turned in (("->", False), ("<-", True)):
        left, found, right = text.partition(arrow)
        if found and left.isdecimal() and right.isdecimal():
            pair = int(left), int(right)
            return pair[::-1] if turned else pair
    return None


# --- The rest of a dump --------------------------------------------------------------------------

_Name = Annotated[str, Meta(max_length=4096)]


class _Frame(Struct):
    name: _Name = ""
    filename: _Name = ""
    line: _Int = 0


class _Thread(Struct):
    name: _Name = ""
    frames: tuple[_Frame, ...] = ()


class _Group(Struct):
    """PyTorch's ``pg_config`` has ``desc``, holdfast's list ``description``."""

    name: _Name | None = None
    desc: _Name = ""
    description: _Name = ""
    ranks: tuple[_Int, ...] | str = ()

    def members(self) -> tuple[int, ...]:
        """Ranks from ``[0, 1]`` or ``"[0, 1]"``; none where they cannot be read."""
        told: Sequence[Any] = self.ranks
        if isinstance(self.ranks, str):
            told = [part for part in self.ranks.strip("[] ").split(",") if part.strip().isdecimal()]
        return tuple(sorted(set(map(int, told))))


class _Own(Struct):
    """What `dump_flight_record` adds."""

    rank: _Int | None = None
    world_size: _Int | None = None
    dumped_ns: _Int | None = None
    host: _Name = ""
    groups: tuple[_Group, ...] = ()
    threads: tuple[_Thread, ...] = ()


def _read(value: Any, kind: type[_Kind]) -> _Kind | None:
    """A part of a document; None where it is damaged."""
    with suppress(ValueError):
        return convert(value, kind)
    return None


def _members(config: Any) -> tuple[dict[Group, tuple[int, ...]], tuple[int, ...]]:
    """Who is in which group; gloo lists the ranks of its last group under an empty name."""
    members: dict[Group, tuple[int, ...]] = {}
    unnamed: tuple[int, ...] = ()
    for key, value in config.items() if isinstance(config, dict) else ():
        told = _read(value, _Group)
        if told is None:
            continue
        name = key if told.name is None else told.name
        if isinstance(name, str) and name:
            members[(name, told.desc)] = told.members()
        else:
            unnamed = told.members()
    return {group: ranks for group, ranks in members.items() if ranks}, unnamed


def _frames(value: Any) -> list[dict[str, Any]]:
    stack = _read(value, tuple[_Frame, ...]) or ()
    return [to_builtins(frame) for frame in stack[:MOST_FRAMES]]
