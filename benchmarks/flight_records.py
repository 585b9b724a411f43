"""Flight records of a large job that hangs, in the bytes that PyTorch writes.

A training in three dimensions: tensor-parallel groups of eight neighbouring ranks, data-parallel groups
across them, and now and then a collective of all. Every rank has a ring buffer of entries that has wrapped.
One rank stops before a collective of its tensor-parallel group; its group waits there, everybody else in
the next collective that crosses groups. Synthetic; the pickles are byte for byte what PyTorch's own
pickler makes of the same data (a test holds real dumps against it).
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from pathlib import Path
from typing import Any

TENSOR_PARALLEL = 8
LAYERS = 12
START_NS = 1_795_000_000_000_000_000
STACK = [
    ("all_reduce", "site-packages/torch/distributed/distributed_c10d.py", 2806),
    ("wrapper", "site-packages/torch/distributed/c10d_logger.py", 81),
    ("reduce_from_region", "train/parallel/mappings.py", 37),
    ("forward", "train/parallel/layers.py", 412),
    ("_call_impl", "site-packages/torch/nn/modules/module.py", 1762),
    ("_wrapped_call_impl", "site-packages/torch/nn/modules/module.py", 1751),
    ("forward", "train/model/attention.py", 188),
    ("_call_impl", "site-packages/torch/nn/modules/module.py", 1762),
    ("forward", "train/model/block.py", 96),
    ("forward", "train/model/transformer.py", 240),
    ("train_step", "train/loop.py", 131),
    ("main", "train/main.py", 77),
    ("<module>", "train/main.py", 112),
]


class Pickler:
    """Writes a dump as PyTorch's pickler in C++ does: texts and frames that recur are memoised."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._texts: dict[str, bytes] = {}
        self._objects: dict[int, bytes] = {}
        self._count = 0
        self._twice: set[int] = set()

    def dumps(self, value: dict[str, Any]) -> bytes:
        """The pickle of a dump. Frames that are the same object are written once."""
        self._parts = [b"\x80\x02"]
        counted = Counter(id(frame) for entry in value["entries"] for frame in entry["frames"])
        self._twice = {frame for frame, count in counted.items() if count > 1}
        self._write(value)
        self._parts.append(self._memoise()[1] + b".")  # the whole is memoised too
        return b"".join(self._parts)

    def _write(self, value: Any) -> None:
        out = self._parts
        if value is None:
            out.append(b"N")
        elif value is True or value is False:
            out.append(b"\x88" if value else b"\x89")
        elif isinstance(value, int):
            out.append(_integer(value))
        elif isinstance(value, float):
            out.append(b"G" + struct.pack(">d", value))
        elif isinstance(value, str):
            self._text(value)
        elif isinstance(value, tuple):
            for each in value:
                self._write(each)
            out.append(b"\x86")
        elif isinstance(value, list):
            out.append(b"](")
            for each in value:
                self._write(each)
            out.append(b"e")
        else:
            self._dictionary(value)

    def _text(self, value: str) -> None:
        known = self._texts.get(value)
        if known is None:
            encoded = value.encode()
            known, put = self._memoise()
            self._texts[value] = known
            self._parts.append(b"X" + struct.pack("<I", len(encoded)) + encoded + put)
        else:
            self._parts.append(known)

    def _dictionary(self, value: dict[str, Any]) -> None:
        if id(value) in self._objects:
            self._parts.append(self._objects[id(value)])
            return
        self._parts.append(b"}(")
        for key, each in value.items():
            self._text(key)
            self._write(each)
        self._parts.append(b"u")
        if id(value) in self._twice:
            self._objects[id(value)], put = self._memoise()
            self._parts.append(put)

    def _memoise(self) -> tuple[bytes, bytes]:
        """What fetches the next object again, and what stores it."""
        place, self._count = self._count, self._count + 1
        if place < 256:
            return b"h" + bytes([place]), b"q" + bytes([place])
        return b"j" + struct.pack("<I", place), b"r" + struct.pack("<I", place)


def _integer(value: int) -> bytes:
    if 0 <= value < 1 << 8:
        return b"K" + bytes([value])
    if 0 <= value < 1 << 16:
        return b"M" + struct.pack("<H", value)
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    return b"\x8a\x08" + struct.pack("<q", value)


def write_job(folder: Path, world: int, entries: int, as_json: bool = False) -> int:
    """Write the dumps of a hung job, ``nccl_trace_rank_<rank>`` or ``rank_<rank>.json``.

    Args:
        folder: to write to.
        world: ranks, a multiple of 8.
        entries: in each ring buffer.
        as_json: without stacks, as PyTorch's JSON; else pickles with them.

    Returns:
        The rank that stopped.
    """
    folder.mkdir(parents=True, exist_ok=True)
    culprit = world // 2 + 5
    frames = [
        [{"name": name, "filename": file, "line": line + layer} for name, file, line in STACK]
        for layer in range(LAYERS)
    ]
    for rank in range(world):
        dump = _dump(rank, world, entries, culprit, frames)
        if as_json:
            (folder / f"rank_{rank}.json").write_text(_as_json(dump))
        else:
            (folder / f"nccl_trace_rank_{rank}").write_bytes(Pickler().dumps(dump))
    return culprit


def _as_json(dump: dict[str, Any]) -> str:
    entries = [
        {key: 0 if value is None else value for key, value in each.items() if key != "frames"}
        for each in dump["entries"]
    ]
    return json.dumps(dump | {"entries": entries}, separators=(",", ":"), sort_keys=True)


def _dump(
    rank: int, world: int, entries: int, culprit: int, frames: list[list[dict[str, Any]]]
) -> dict[str, Any]:
    """One rank: layers of two tensor-parallel operations, then one across data-parallel replicas."""
    block, lane = divmod(rank, TENSOR_PARALLEL)
    blocks = world // TENSOR_PARALLEL
    tensor = list(range(block * TENSOR_PARALLEL, (block + 1) * TENSOR_PARALLEL))
    data = list(range(lane, world, TENSOR_PARALLEL))
    names = [("0", "default_pg"), (str(1 + block), "tp"), (str(1 + blocks + lane), "dp")]
    cycle = 2 * LAYERS + 1  # then one of all
    total = 3 * entries // 2  # a third has been overwritten
    total -= total % (cycle + 1) - 7  # stop inside the layers
    hung = total if block == culprit // TENSOR_PARALLEL else total + 2 * LAYERS - 7
    counts, made = [0, 0, 0], []
    for place in range(hung + (rank != culprit)):
        inside = place % (cycle + 1)
        group = 1 if inside < 2 * LAYERS else 2 if inside == 2 * LAYERS else 0
        counts[group] += 1
        if place <= hung - entries:
            continue
        over = place < hung
        created = START_NS + place * 3_000_000 + rank * 700
        size = [[4096, 8192]] if group == 1 else [[50_000_000]] if group == 2 else [[1]]
        made.append(
            {
                "frames": frames[inside // 2 % LAYERS],
                "record_id": place,
                "pg_id": group,
                "process_group": names[group],
                "thread_name": "python",
                "thread_id": "139802819404096",
                "collective_seq_id": counts[group],
                "p2p_seq_id": 0,
                "op_id": counts[group],
                "profiling_name": "nccl:all_reduce",
                "time_created_ns": created,
                "input_sizes": size,
                "input_dtypes": ["BFloat16"],
                "output_sizes": size,
                "output_dtypes": ["BFloat16"],
                "state": "completed" if over else "scheduled",
                "time_discovered_started_ns": None,
                "time_discovered_completed_ns": created + 900_000 if over else None,
                "retired": over,
                "timeout_ms": 600_000,
                "is_p2p": False,
            }
        )
    return {
        "version": "2.10",
        "pg_config": {
            name: {"name": name, "desc": text, "ranks": str(members)}
            for (name, text), members in zip(names, [list(range(world)), tensor, data], strict=True)
        },
        "comm_lib_version": "2.28.9",
        "pg_status": {},
        "entries": made,
    }
