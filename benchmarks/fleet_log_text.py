"""How Slurm and the health checks of a cluster write down what `fleet_log` simulated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Columns = dict[str, npt.NDArray[Any]]

BEGIN_S = 1_735_689_600  # 2025-01-01T00:00:00Z
DAYS = 334  # eleven months
END_S = BEGIN_S + DAYS * 86_400
GPUS_PER_NODE = 8
CHUNK_ROWS = 200_000

# GPUs of a job, how many of 10,000 submissions ask for it, mean hours of an undisturbed attempt.
SIZES = [
    (1, 4600, 2.0),
    (2, 500, 2.0),
    (4, 500, 2.0),
    (8, 3300, 1.2),
    (16, 400, 1.5),
    (32, 280, 2.0),
    (64, 190, 2.5),
    (128, 115, 3.0),
    (256, 65, 3.5),
    (512, 32, 4.0),
    (1024, 13, 5.0),
    (2048, 4, 6.0),
    (4096, 1, 8.0),
]


class State(IntEnum):
    """How an attempt ended, by Slurm's names."""

    COMPLETED = 0
    FAILED = 1
    PREEMPTED = 2
    REQUEUED = 3
    CANCELLED = 4
    TIMEOUT = 5
    OUT_OF_MEMORY = 6
    NODE_FAIL = 7
    RUNNING = 8
    PENDING = 9


QOS = ["low", "normal", "high"]
QOS_PRIORITY = np.array([1_000, 10_000, 100_000])
HIGH = 2

# check, message, weight; what fires when a node breaks, and is followed by the node's removal.
CRITICAL_CHECKS = [
    ("check iblink", "mlx5_2: port 1 is DOWN, expected ACTIVE", 30),
    ("xid errors", "NVRM: Xid (PCI:0000:4e:00): 79, pid=8123, GPU has fallen off the bus.", 12),
    ("xid errors", "NVRM: Xid (PCI:0000:4e:00): 48, pid=8123, Double Bit ECC Error", 10),
    ("check mountpoint", "/checkpoints is not mounted", 14),
    ("check dcgmi nvlink error", "gpu 5: 3 links have CRC errors above the limit", 12),
    ("pcie aer errors", "0000:4e:00.0: uncorrectable (fatal) error", 12),
    ("check blockdev", "nvme1n1: I/O error, dev nvme1n1, sector 81920", 5),
    ("mce errors", "Uncorrected error, memory controller 2", 5),
]
MINOR_CHECKS = [
    ("link flaps", "mlx5_0: 2 flaps in the last hour", 30),
    ("processor frequency", "1.2 GHz below 2.0 GHz", 15),
    ("nvidia smi ecc_corrected", "gpu 6: 12 corrected errors", 20),
    ("nvidia smi gpu_temp", "gpu 2: 87 C above 85 C", 15),
    ("check zombie", "3 zombie processes", 10),
    ("nccl-tests", "all-reduce at 81 % of the expected bandwidth", 10),
]

COLUMNS = (
    "JobID|JobIDRaw|JobName|User|Account|QOS|Partition|State|ExitCode|DerivedExitCode|Submit|Eligible|Start|"
    "End|ElapsedRaw|Timelimit|NNodes|NodeList|AllocTRES|Priority|Reason"
)


def accounting(rows: Columns, nasty: npt.NDArray[np.bool_], nodes: int) -> bytes:
    """The rows as `sacct -P` prints them."""
    state, raw = rows["state"], rows["raw"]
    begun, ended = state != State.PENDING, state < State.RUNNING
    array = rows["array"] > 0
    base = _text(np.where(array, rows["array"], raw))
    job_id = pc.if_else(array, _join([base, _text(rows["task"])], "_"), base)

    words = ["train", "eval", "ft", "sweep", "pretrain", "data", "debug", "rl", "asr", "vit"]
    titles = [f"{words[i % 10]}-{words[i // 10 % 10]}-{i:04d}" for i in range(5000)]
    name = _pick(titles, rows["name"])
    if nasty.any():
        odd = [b"loss|lr sweep", b"two\nlines", b"caf\xe9 \xff run", b"note\n77|77|fake|u1|a|low|x"]
        name = pc.if_else(nasty, _pick(odd, raw % len(odd)), name)

    states = pc.if_else(
        pa.array(state == State.CANCELLED),
        _pick([f"CANCELLED by {1000 + u}" for u in range(400)], rows["user"]),
        _pick([kind.name for kind in State], state),
    )
    exits = ["0:0", "1:0", "0:0", "0:0", "0:15", "0:0", "0:125", "0:0", "0:0", "0:0"]
    own_fault = (state == State.FAILED) & (rows["blamed"] < 0)
    faults = ["1:0", "2:0", "127:0", "0:11", "0:6"]
    code = pc.if_else(pa.array(own_fault), _pick(faults, raw % 5), _pick(exits, state))
    limits = {14_400: "04:00:00", 86_400: "1-00:00:00", 7 * 86_400: "7-00:00:00"}
    width, gpus = rows["width"], rows["gpus"]
    cpus = np.maximum(12, gpus * 12)
    tres = [
        f"billing={c},cpu={c},gres/gpu:a100={g},gres/gpu={g},mem={c * 10}G,node={max(1, g // 8)}"
        for g, c in ((g, max(12, g * 12)) for g, _, _ in SIZES)
    ]
    waiting = pa.array(~begun)
    fields = [
        job_id,
        _text(raw),
        name,
        _pick([f"u{u:03d}" for u in range(400)], rows["user"]),
        _pick([f"team-{a:02d}" for a in range(24)], rows["user"] % 24),
        _pick(QOS, rows["qos"]),
        _pick(["learn", "train"], (cpus > 96).astype(np.int64)),
        states,
        code,
        _pick(["0:0", "1:0"], own_fault.astype(np.int64)),
        _stamp(rows["submit"]),
        _stamp(rows["eligible"]),
        pc.if_else(waiting, _bytes("Unknown"), _stamp(rows["start"])),
        pc.if_else(pa.array(ended), _stamp(rows["end"]), _bytes("Unknown")),
        _text(np.where(begun, np.where(ended, rows["end"], END_S) - rows["start"], 0)),
        _pick(list(limits.values()), np.searchsorted(list(limits), rows["limit"])),
        _text(width),
        pc.if_else(waiting, _bytes("None assigned"), _node_lists(rows, nodes)),
        pc.if_else(waiting, _bytes(""), _pick(tres, rows["size"])),
        _text(QOS_PRIORITY[rows["qos"]] + raw % 1000),
        _pick(["None", "BeginTime"], (rows["attempt"] > 1).astype(np.int64)),
    ]
    return _lines(_join(fields, "|"))


def _node_lists(rows: Columns, nodes: int) -> pa.Array:
    """node0007, node[0007-0009], or with one node left out: node[0007-0008,0010]."""
    digits = digits_of(nodes)
    numbers = [f"{n:0{digits}d}" for n in range(1, nodes + 2)]
    width, place = rows["width"], rows["place"]
    last = place + width - 1

    def number(index: Ints) -> pa.Array:
        return _pick(numbers, np.clip(index, 0, nodes))

    head = number(place)
    several = _join([head, number(last)], "-")
    shortened = _join([head, number(last - 1)], "-")
    shortened = _join([shortened, number(last + 1)], ",")
    inner = pc.if_else(pa.array(rows["gap"]), shortened, several)
    bracketed = pc.binary_join_element_wise(_bytes("node["), inner, _bytes("]"), _bytes(""))
    single = pc.binary_join_element_wise(_bytes("node"), head, _bytes(""))
    return pc.if_else(pa.array(width == 1), single, bracketed)


def health(
    rng: np.random.Generator, rows: Columns, names: npt.NDArray[Any], events: int
) -> Iterator[tuple[bytes, int]]:
    """Health events in order of time: what preceded each failure, and the noise of every day."""
    hit = np.flatnonzero(rows["blamed"] >= 0)
    # A FAILED attempt of a broken node always had a check; one NODE_FAIL in six had none.
    hit = hit[(rows["state"][hit] == State.FAILED) | (rng.random(hit.size) < 5 / 6)]
    hit = np.repeat(hit, rng.choice([1, 2, 3], hit.size, p=[0.6, 0.3, 0.1]))
    noise = max(0, events - hit.size)
    minor = rng.choice(len(MINOR_CHECKS), noise, p=_weights(MINOR_CHECKS)) + len(CRITICAL_CHECKS)
    major = rng.choice(len(CRITICAL_CHECKS), hit.size, p=_weights(CRITICAL_CHECKS))
    check = np.concatenate([major, minor])
    millis = np.concatenate(
        [
            rows["end"][hit] * 1000 - rng.integers(500, 300_000, hit.size),
            BEGIN_S * 1000 + (rng.random(noise) * (DAYS * 86_400_000)).astype(np.int64),
        ]
    )
    node = np.concatenate([rows["blamed"][hit], rng.integers(0, names.size, noise)])
    low_fail = rng.random(check.size) < 0.1
    order = np.argsort(millis, kind="stable")
    known = CRITICAL_CHECKS + MINOR_CHECKS
    heads = [f'"check": {json.dumps(check)}, "severity": "' for check, _, _ in known]
    grades = ['HIGH", "result": "fail", ', 'LOW", "result": "fail", ', 'LOW", "result": "warn", ']
    tails = [f'"message": {json.dumps(message)}}}' for _, message, _ in known]
    for first in range(0, order.size, CHUNK_ROWS):
        at = order[first : first + CHUNK_ROWS]
        kind = np.where(check[at] < len(CRITICAL_CHECKS), 0, np.where(low_fail[at], 1, 2))
        text = pc.binary_join_element_wise(
            _bytes('{"time": "'),
            _stamp(millis[at] // 1000),
            _bytes("."),
            _pick([f"{m:03d}" for m in range(1000)], millis[at] % 1000),
            _bytes('Z", "node": "'),
            _pick([str(name) for name in names], node[at]),
            _bytes('", '),
            _pick(heads, check[at]),
            _pick(grades, kind),
            _pick(tails, check[at]),
            _bytes(""),
        )
        yield _lines(text), at.size


def inventory(name: str) -> str:
    """One node as `scontrol show node` prints it."""
    return (
        f"NodeName={name} Arch=x86_64 CoresPerSocket=48 \n"
        "   CPUAlloc=0 CPUEfctv=96 CPUTot=96 CPULoad=0.11\n"
        "   AvailableFeatures=(null)\n   ActiveFeatures=(null)\n"
        f"   Gres=gpu:a100:{GPUS_PER_NODE}\n"
        f"   NodeAddr={name} NodeHostName={name} Version=23.02.6\n"
        "   RealMemory=1000000 AllocMem=0 FreeMem=990000 Sockets=2 Boards=1\n"
        "   State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A\n"
        "   Partitions=learn,train \n"
        f"   CfgTRES=cpu=96,mem=1000000M,billing=96,gres/gpu={GPUS_PER_NODE}\n"
        "   AllocTRES=\n\n"
    )


def digits_of(nodes: int) -> int:
    return max(4, len(str(nodes)))


def _weights(checks: list[tuple[str, str, int]]) -> Floats:
    weights = np.array([weight for _, _, weight in checks], dtype=float)
    return weights / weights.sum()


def _bytes(value: str) -> pa.Scalar:
    return pa.scalar(value.encode(), pa.binary())


def _pick(values: list[str] | list[bytes], index: Ints) -> pa.Array:
    known = [value.encode() if isinstance(value, str) else value for value in values]
    return pa.array(known, pa.binary()).take(pa.array(index))


def _text(values: Ints) -> pa.Array:
    return pa.array(values).cast(pa.string()).cast(pa.binary())


def _join(fields: list[pa.Array], separator: str) -> pa.Array:
    return pc.binary_join_element_wise(*fields, _bytes(separator))


_DAYS = np.datetime_as_string(np.arange(BEGIN_S // 86_400, END_S // 86_400 + 60).astype("M8[D]"))
_DAY_TEXT = np.array([f"{day}T".encode() for day in _DAYS]).view(np.uint8).reshape(-1, 11)
_SECONDS = [f"{s // 3600:02d}:{s // 60 % 60:02d}:{s % 60:02d}".encode() for s in range(86_400)]
_SECOND_TEXT = np.array(_SECONDS).view(np.uint8).reshape(-1, 8)


def _stamp(seconds: Ints) -> pa.Array:
    """Seconds as YYYY-MM-DDTHH:MM:SS, by table: strftime of millions of rows is slow."""
    day = np.clip(seconds // 86_400 - BEGIN_S // 86_400, 0, _DAY_TEXT.shape[0] - 1)
    text = np.concatenate([_DAY_TEXT[day], _SECOND_TEXT[seconds % 86_400]], axis=1)
    offsets = np.arange(0, text.size + 1, 19, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(), seconds.size, [None, pa.py_buffer(offsets), pa.py_buffer(text.tobytes())]
    )


def _lines(text: pa.Array) -> bytes:
    """The strings, each ended by a newline."""
    ended = pc.binary_join_element_wise(text, _bytes("\n"), _bytes(""))
    _, offsets, data = ended.buffers()
    first = np.frombuffer(offsets, np.int32, count=1)[0]
    last = np.frombuffer(offsets, np.int32, count=len(ended) + 1)[-1]
    return data.to_pybytes()[first:last]
