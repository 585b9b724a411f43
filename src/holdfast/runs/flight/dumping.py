"""A process writes its own flight record, in a form that says whose it is.

PyTorch's dumps do not tell the rank, and with gloo neither who is in a group nor where the program
stands. `dump_flight_record` writes the same JSON and adds one key, ``holdfast``:

============== ==========================================================================
rank           of this process; null where nothing tells
world_size     likewise
host, pid      where it ran
dumped_ns      wall clock of the dump, nanoseconds since 1970
groups         list of ``name``, ``description``, ``ranks`` (global ranks): who is in which group
threads        list of ``name``, ``frames``: where each Python thread stood, innermost frame first
============== ==========================================================================

Operations that were not over carry their stacks in ``frames``, as in PyTorch's pickles.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.errors import InputError, MissingExtraError
from holdfast.files import atomic_file
from holdfast.runs.flight.restricted_unpickling import RefusedPickleError, load_plain

MOST_STACKS = 64
"""Entries, the newest, that carry their stack."""
MOST_FRAMES = 64


def dump_flight_record(path: str | Path, rank: int | None = None) -> Path:
    """Write this process's flight record (NCCL's, gloo's, or both) as one JSON file.

    May be called from any thread while others wait in a collective. The file appears whole or not at
    all.

    Args:
        path: the file to write; in a folder that exists, ``rank_<rank>.json``.
        rank: of this process; by default what torch.distributed or the variable RANK says.

    Returns:
        The file.

    Raises:
        MissingExtraError: if torch is not installed.
        InputError: if this process has not imported torch, or its torch has no flight recorder.
    """
    if "torch" not in sys.modules:  # importing it here could wait for a lock of the stuck thread
        if importlib.util.find_spec("torch") is None:
            raise MissingExtraError("torch", "torch")
        raise InputError(
            "this process has no flight record: it has not imported torch",
            code="unsupported",
            remedy="call this in the process that trains",
        )
    document = _recorded()
    document["holdfast"] = _about_this_process(rank)
    target = Path(path)
    if target.is_dir():
        known = document["holdfast"]["rank"]
        target /= f"rank_{os.getpid() if known is None else known}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(target) as file:
        file.write(json.dumps(document).encode())
    return target


def _recorded() -> dict[str, Any]:
    """What the recorders of this process hold: one for NCCL, one for every other backend."""
    # Absent where torch was built without torch.distributed.
    recorders = sys.modules.get("torch._C._distributed_c10d")
    documents = []
    for kind in ("nccl", "fr"):
        as_json = getattr(recorders, f"_dump_{kind}_trace_json", None)
        if as_json is not None:
            document = json.loads(as_json())
            _add_stacks(document, getattr(recorders, f"_dump_{kind}_trace", None))
            documents.append(document)
    if not documents:
        raise InputError(
            "this torch has no flight recorder",
            code="unsupported",
            found=f"torch {getattr(sys.modules['torch'], '__version__', '')}",
            expected="torch 2.6 or later with torch.distributed",
        )
    return _merged(documents)


def _add_stacks(document: dict[str, Any], as_pickle: Any) -> None:
    """JSON holds no stacks; the pickle of the same recorder does."""
    entries = [each for each in document.get("entries", []) if not _is_over(each)][-MOST_STACKS:]
    if not entries or as_pickle is None:
        return
    with suppress(RefusedPickleError, TypeError, KeyError):
        told = load_plain(as_pickle(onlyActive=True))
        stacks = {each["record_id"]: each.get("frames") for each in told.get("entries", [])}
        for entry in entries:
            entry["frames"] = (stacks.get(entry["record_id"]) or [])[:MOST_FRAMES]


def _is_over(entry: dict[str, Any]) -> bool:
    return bool(entry.get("state") == "completed" or entry.get("retired"))


def _merged(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """One document: a process with NCCL and gloo groups has a recorder of each."""
    used = [each for each in documents if each.get("entries")] or documents[:1]
    merged = dict(used[0])
    for other in used[1:]:
        merged["entries"] = sorted(
            [*merged["entries"], *other["entries"]], key=lambda entry: entry["time_created_ns"]
        )
        merged["pg_config"] = {**other.get("pg_config", {}), **merged.get("pg_config", {})}
    return merged


def _about_this_process(rank: int | None) -> dict[str, Any]:
    distributed = sys.modules.get("torch.distributed")
    joined = distributed is not None and distributed.is_available() and distributed.is_initialized()
    if rank is None:
        rank = distributed.get_rank() if joined and distributed else _environment("RANK")
    return {
        "rank": rank,
        "world_size": (
            distributed.get_world_size() if joined and distributed else _environment("WORLD_SIZE")
        ),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "dumped_ns": time.time_ns(),
        "groups": _groups() if joined else [],
        "threads": _threads(),
    }


def _environment(name: str) -> int | None:
    value = os.environ.get(name, "")
    return int(value) if value.isdecimal() else None


def _groups() -> list[dict[str, Any]]:
    """Who is in which group. PyTorch keeps it, but offers no public list of all groups."""
    world = getattr(sys.modules.get("torch.distributed.distributed_c10d"), "_world", None)
    names = dict(getattr(world, "pg_names", {}))
    members = dict(getattr(world, "pg_group_ranks", {}))
    return [
        {
            "name": names[group],
            "description": getattr(group, "group_desc", ""),
            "ranks": sorted(ranks),
        }
        for group, ranks in members.items()
        if group in names  # groups of others stand there without a name
    ]


def _threads() -> list[dict[str, Any]]:
    """Where every Python thread stands, the main thread first; this one is left out."""
    names = {each.ident: each.name for each in threading.enumerate()}
    main = threading.main_thread().ident
    return [
        {"name": names.get(ident, str(ident)), "frames": _stack(frame)}
        for ident, frame in sorted(sys._current_frames().items(), key=lambda each: each[0] != main)
        if ident != threading.get_ident() or ident == main
    ]


def _stack(frame: Any) -> list[dict[str, Any]]:
    frames: list[dict[str, Any]] = []
    while frame is not None and len(frames) < MOST_FRAMES:
        code = frame.f_code
        frames.append({"name": code.co_name, "filename": code.co_filename, "line": frame.f_lineno})
        frame = frame.f_back
    return frames
