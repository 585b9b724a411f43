"""Real hangs of real processes, recorded by PyTorch itself: the input of the tests of hang analysis.

    python tests/runs/flight/make_dumps.py OUT [--backend gloo|nccl] [SCENE ...]

Every scene starts one process a rank. The main threads run the scene's program until they are stuck,
parked or done; then a watcher thread in each process writes its dumps, as PyTorch's JSON, as PyTorch's
pickle and with `holdfast.runs.dump_flight_record`, and the process ends hard. Nothing waits by the
clock: a rank is ready when its recorder holds the entries that the scene says, so many of them not over.

Paths of this machine are cut out of the stacks. With NCCL all ranks share one GPU; NCCL allows that when
every rank claims to be on a host of its own.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shutil
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NEVER = threading.Event()
SOURCE = str(Path(__file__).resolve().parents[3])


@dataclass
class Rank:
    """What a scene's program knows."""

    rank: int
    backend: str
    parked: bool = False
    ended: str = ""
    """Why the program is over."""

    def tensor(self, *shape: int) -> Any:
        import torch

        return torch.ones(shape, device="cuda" if self.backend == "nccl" else "cpu")

    def park(self) -> None:
        """The culprit: it does something else for ever."""
        self.parked = True
        NEVER.wait()

    def finish(self) -> None:
        """NCCL returns at once; wait for the device."""
        if self.backend == "nccl":
            import torch

            torch.cuda.synchronize()


@dataclass(frozen=True)
class Scene:
    """A program, and what is true about its end."""

    world: int
    program: Callable[[Rank], None]
    truth: dict[str, Any]
    entries: Sequence[int]
    """Recorded by each rank at the end; -1: the rank leaves no dump."""
    pending: Sequence[int]
    """Of them, not over."""
    backends: tuple[str, ...] = ("gloo", "nccl")
    buffer: int = 2000
    environment: dict[str, str] = field(default_factory=dict)


def never_enters(my: Rank) -> None:
    import torch.distributed as dist

    for step in range(3):
        dist.all_reduce(my.tensor(64, 1 + step))
        dist.broadcast(my.tensor(16), src=0)
    my.finish()
    if my.rank == 2:
        load_batch(my)
    dist.all_reduce(my.tensor(64, 64))


def load_batch(my: Rank) -> None:
    my.parked = True
    NEVER.wait()


def mismatched_size(my: Rank) -> None:
    import torch.distributed as dist

    dist.all_reduce(my.tensor(8))
    my.finish()
    if my.rank == 1:
        dist.all_reduce(my.tensor(1 << 16))  # a bug: this rank has another batch
    else:
        dist.all_reduce(my.tensor(1 << 10))


def mismatched_dtype(my: Rank) -> None:
    """As many bytes, so nothing hangs or fails: the sum is garbage."""
    import torch
    import torch.distributed as dist

    dist.all_reduce(my.tensor(8))
    my.finish()
    data = my.tensor(8)
    dist.all_reduce(data.to(torch.int32) if my.rank == 1 else data)


def mismatched_operation(my: Rank) -> None:
    import torch.distributed as dist

    dist.all_reduce(my.tensor(8))
    my.finish()
    if my.rank == 1:
        dist.broadcast(my.tensor(8), src=2)
    else:
        dist.all_reduce(my.tensor(8))


def killed(my: Rank) -> None:
    import torch.distributed as dist

    dist.all_reduce(my.tensor(8))
    my.finish()
    if my.rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(my.tensor(16))


def frozen(my: Rank) -> None:
    import torch.distributed as dist

    dist.all_reduce(my.tensor(8))
    my.finish()
    if my.rank == 3:
        os.kill(os.getpid(), signal.SIGSTOP)
    dist.all_reduce(my.tensor(16))


def subgroups(my: Rank) -> None:
    """0 waits for 2, 1 and 2 for 3: three groups hang, and one rank is to blame."""
    import torch.distributed as dist

    tp = [dist.new_group(ranks, group_desc="tp") for ranks in ([0, 1], [2, 3])][my.rank // 2]
    dp = [dist.new_group(ranks, group_desc="dp") for ranks in ([0, 2], [1, 3])][my.rank % 2]
    for _ in range(2):
        dist.all_reduce(my.tensor(32), group=tp)
        dist.all_reduce(my.tensor(8), group=dp)
    my.finish()
    if my.rank == 3:
        load_batch(my)
    dist.all_reduce(my.tensor(32), group=tp)
    my.finish()
    dist.all_reduce(my.tensor(8), group=dp)


def opposite_order(my: Rank) -> None:
    import torch.distributed as dist

    first, second = dist.new_group([0, 1]), dist.new_group([0, 1])
    for group in (first, second):
        dist.all_reduce(my.tensor(4), group=group)
    my.finish()
    for group in (first, second) if my.rank == 0 else (second, first):
        dist.all_reduce(my.tensor(4), group=group)
        my.finish()


def wrapped(my: Rank) -> None:
    import torch.distributed as dist

    for step in range(30):
        dist.all_reduce(my.tensor(4, 1 + step % 3))
    my.finish()
    if my.rank == 0:
        load_batch(my)
    dist.all_reduce(my.tensor(4, 1))


def receive_without_send(my: Rank) -> None:
    import torch.distributed as dist

    dist.barrier()
    data = my.tensor(16)
    if my.rank == 1:  # with NCCL the first message of a pair makes its communicator
        dist.recv(data, 0)
        dist.recv(data, 2)
    else:
        dist.send(data, 1)
    my.finish()
    if my.rank == 1:
        my.parked = True  # gloo records no receive: nothing else tells that it waits
        dist.recv(data, 2)
    elif my.rank == 2:
        load_batch(my)
    my.finish()
    dist.barrier()


def healthy(my: Rank) -> None:
    import torch.distributed as dist

    data, parts = my.tensor(4), [my.tensor(4) for _ in range(4)]
    whole = my.tensor(16)
    dist.all_reduce(data)
    dist.broadcast(data, src=1)
    dist.all_gather(parts, data)
    dist.gather(data, parts if my.rank == 0 else None, dst=0)
    dist.scatter(data, parts if my.rank == 0 else None, src=0)
    dist.all_gather_into_tensor(whole, data)
    dist.reduce_scatter_tensor(data, whole)
    uneven = [1 + (my.rank + peer) % 4 for peer in range(4)]
    dist.all_to_all_single(my.tensor(10), my.tensor(10), uneven, uneven)
    dist.barrier()
    my.finish()
    my.park()


def slow(my: Rank) -> None:
    import torch.distributed as dist

    dist.all_reduce(my.tensor(8))
    my.finish()
    if my.rank == 1:
        my.park()  # when dumped it is on its way
    dist.all_reduce(my.tensor(16))


def timed_out(my: Rank) -> None:
    import torch.distributed as dist

    dist.all_reduce(my.tensor(8))
    if my.rank == 2:
        load_batch(my)
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=1))
    dist.all_reduce(my.tensor(16))


def no_root(my: Rank) -> None:
    """Everybody entered, nobody sends: a wrong root looks like a broken network."""
    import torch.distributed as dist

    dist.all_reduce(my.tensor(8))
    dist.broadcast(my.tensor(1 << 10), src=1 - my.rank)


def device_busy(my: Rank) -> None:
    """All have queued it, one device does something else first."""
    import torch
    import torch.distributed as dist

    dist.all_reduce(my.tensor(8))
    my.finish()
    if my.rank == 1:
        torch.cuda._sleep(2_000_000_000 * 120)
    dist.all_reduce(my.tensor(16))
    my.finish()


def coalesced(my: Rank) -> None:
    """Operations in one launch; then a rank leaves its receive out."""
    import torch.distributed as dist

    data, other = my.tensor(16), my.tensor(16)
    around = [
        dist.P2POp(dist.isend, data, (my.rank + 1) % 3),
        dist.P2POp(dist.irecv, other, (my.rank - 1) % 3),
    ]
    dist.all_reduce(data)
    dist.barrier()
    my.finish()
    for work in dist.batch_isend_irecv(around):
        work.wait()
    with dist._coalescing_manager(device=data.device, async_ops=True) as both:
        dist.all_reduce(data)
        dist.all_reduce(other)
    both.wait()
    my.finish()
    if my.rank == 2:
        load_batch(my)
    for work in dist.batch_isend_irecv(around):
        work.wait()
    my.finish()


def truth(
    verdict: str,
    group: str | None = None,
    sequence: int | None = None,
    missing: Sequence[int] = (),
    unknown: Sequence[int] = (),
    **other: Any,
) -> dict[str, Any]:
    return {
        "verdict": verdict,
        "group": group,
        "sequence": sequence,
        "missing_ranks": list(missing),
        "unknown_ranks": list(unknown),
        **other,
    }


SCENES = {
    "never_enters": Scene(
        4,
        never_enters,
        truth("missing_ranks", "default_pg", 7, [2]),
        [7, 7, 6, 7],
        [1, 1, 0, 1],
    ),
    "mismatched_size": Scene(
        3,
        mismatched_size,
        truth("mismatch", "default_pg", 2),
        [2, 2, 2],
        [-1, -1, -1],
        backends=("nccl",),  # gloo ends the process of the rank that receives too much
    ),
    "mismatched_dtype": Scene(
        3, mismatched_dtype, truth("mismatch", "default_pg", 2), [2, 2, 2], [-1, -1, -1]
    ),
    "mismatched_operation": Scene(
        3, mismatched_operation, truth("mismatch", "default_pg", 2), [2, 2, 2], [-1, -1, -1]
    ),
    "killed": Scene(
        4,
        killed,
        truth("missing_ranks", "default_pg", 2, unknown=[3]),
        [2, 2, 2, -1],
        [-1, -1, -1, 0],
        backends=("gloo",),
    ),
    "frozen": Scene(
        4,
        frozen,
        truth("missing_ranks", "default_pg", 2, unknown=[3]),
        [2, 2, 2, -1],
        [1, 1, 1, 0],
    ),
    # Rank 3 is waited for in tp and in dp: which is named depends on who was there first.
    "subgroups": Scene(
        4, subgroups, truth("missing_ranks", None, 3, [3]), [5, 6, 5, 4], [1, 1, 1, 0]
    ),
    "opposite_order": Scene(2, opposite_order, truth("mismatch"), [3, 3], [1, 1]),
    "wrapped": Scene(
        3,
        wrapped,
        truth("missing_ranks", "default_pg", 31, [0]),
        [30, 31, 31],
        [0, 1, 1],
        buffer=12,
    ),
    "receive_without_send": Scene(
        3,
        receive_without_send,
        truth("missing_ranks", "default_pg", 2, [1, 2]),
        [2, 1, 1],
        [1, 0, 0],
        backends=("gloo",),
    ),
    "receive_without_send_nccl": Scene(
        3,
        receive_without_send,
        truth("missing_ranks", "default_pg", None, [2]),
        [3, 4, 2],
        [1, 1, 0],
        backends=("nccl",),
    ),
    "healthy": Scene(4, healthy, truth("no_hang"), [9, 9, 9, 9], [0, 0, 0, 0]),
    "slow": Scene(3, slow, truth("missing_ranks", "default_pg", 2, [1]), [2, 1, 2], [1, 0, 1]),
    "timed_out": Scene(
        3,
        timed_out,
        truth("missing_ranks", "default_pg", 2, [2]),
        [2, 2, 1],
        [0, 0, 0],
        backends=("gloo",),
    ),
    "no_root": Scene(2, no_root, truth("stuck_inside", "default_pg", 2), [2, 2], [1, 1]),
    "device_busy": Scene(
        3,
        device_busy,
        truth("stuck_inside", "default_pg", 2),
        [2, 2, 2],
        [1, 1, 1],
        backends=("nccl",),
        environment={"TORCH_NCCL_ENABLE_TIMING": "1"},
    ),
    "coalesced": Scene(
        3,
        coalesced,
        truth("missing_ranks", "default_pg", None, [2]),
        [10, 10, 7],
        [-1, -1, -1],
        backends=("nccl",),
        environment={"TORCH_NCCL_ENABLE_TIMING": "1"},
    ),
}


# --- One rank ------------------------------------------------------------------------------------


def main_of_rank(arguments: Sequence[str]) -> None:
    """``SCENE BACKEND RANK PORT FOLDER``: run the program, and let the watcher end it."""
    name, backend, rank, port, folder = arguments
    scene, my = SCENES[name], Rank(int(rank), backend)
    import torch
    import torch.distributed as dist

    if backend == "nccl":
        torch.cuda.set_device(0)
    store = dist.TCPStore("127.0.0.1", int(port), is_master=False)
    dist.init_process_group(
        backend,
        store=dist.PrefixStore("job", store),
        rank=my.rank,
        world_size=scene.world,
        timeout=datetime.timedelta(minutes=10),
    )
    watcher = threading.Thread(
        target=_watch, args=(scene, my, Path(folder), dist.TCPStore("127.0.0.1", int(port)))
    )
    watcher.start()
    try:
        scene.program(my)
        my.finish()
        my.ended = "done"
    except Exception as error:
        my.ended = str(error)
    NEVER.wait()


def _watch(scene: Scene, my: Rank, folder: Path, store: Any) -> None:
    from torch._C import _distributed_c10d as recorders

    from holdfast.runs.flight.dumping import dump_flight_record

    kind = "nccl" if my.backend == "nccl" else "fr"
    as_json = getattr(recorders, f"_dump_{kind}_trace_json")
    as_pickle = getattr(recorders, f"_dump_{kind}_trace")
    present = sum(count != -1 for count in scene.entries)
    while not _ready(scene, my, json.loads(as_json())):
        NEVER.wait(0.02)
    _everybody(store, "ready", present)
    for part in ("json", "pickle", "ours"):
        (folder / part).mkdir(exist_ok=True)
    (folder / "json" / f"rank_{my.rank}.json").write_bytes(as_json())
    (folder / "pickle" / f"nccl_trace_rank_{my.rank}").write_bytes(as_pickle())
    dump_flight_record(folder / "ours" / f"rank_{my.rank}.json")
    _everybody(store, "written", present)
    os._exit(0)


def _ready(scene: Scene, my: Rank, dump: dict[str, Any]) -> bool:
    """Nothing more will happen on this rank."""
    entries = dump.get("entries", [])
    recorded = entries[-1]["record_id"] + 1 if entries else 0
    pending = sum(not (each["retired"] or each["state"] == "completed") for each in entries)
    if recorded < scene.entries[my.rank]:
        return False
    if scene.pending[my.rank] == -1:
        return bool(my.ended) or my.parked or pending > 0
    return pending == scene.pending[my.rank] and (pending > 0 or my.parked or bool(my.ended))


def _everybody(store: Any, what: str, count: int) -> None:
    store.add(what, 1)
    while store.add(what, 0) < count:
        NEVER.wait(0.02)


# --- All ranks -----------------------------------------------------------------------------------


def make(name: str, backend: str, folder: Path, patience_s: float = 120.0) -> None:
    """Run a scene and leave its dumps in ``folder/{json,pickle,ours}`` and its truth beside them."""
    import subprocess

    import torch.distributed as dist

    scene = SCENES[name]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    processes = []
    for rank in range(scene.world):
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(SOURCE) / "src"),
            "PYTHONWARNINGS": "ignore",
            "TORCH_FR_BUFFER_SIZE": str(scene.buffer),
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
            "NCCL_HOSTID": f"host-{rank}",
            **scene.environment,
        }
        own = [sys.executable, __file__, "--rank", name, backend, str(rank), str(store.port)]
        processes.append(subprocess.Popen([*own, str(folder)], env=environment))
    expected = [p for p, count in zip(processes, scene.entries, strict=True) if count != -1]
    try:
        for process in expected:
            if process.wait(timeout=patience_s):
                raise RuntimeError(f"{name}: a rank failed")
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for file in sorted(folder.glob("*/*")):
        file.write_bytes(_without_paths(file.read_bytes()))
    (folder / "truth.json").write_text(json.dumps(scene.truth) + "\n")


PREFIXES = (
    (re.compile(rb"/[^\"\x00-\x1f]*?/site-packages/"), b"site-packages/"),
    (re.compile(rb"/[^\"\x00-\x1f]*?/lib/python3\.\d+/"), b"lib/python3/"),
    (re.compile(re.escape(SOURCE.encode()) + rb"/"), b""),
)


def _without_paths(content: bytes) -> bytes:
    """The dump without this machine's folders; in pickles the lengths of the texts are mended."""
    host = json.dumps(socket.gethostname()).encode()
    if not content.startswith(b"\x80"):
        for prefix, short in PREFIXES:
            content = prefix.sub(short, content)
        return content.replace(host, b'"node01"')

    def shortened(found: re.Match[bytes]) -> bytes:
        (length,) = struct.unpack("<I", found[1])
        text, rest = found[2][:length], found[2][length:]
        for prefix, short in PREFIXES:
            text = prefix.sub(short, text)
        return b"X" + struct.pack("<I", len(text)) + text + rest

    return re.sub(rb"X(..\x00\x00)(/[\x20-\x7e]*)", shortened, content, flags=re.DOTALL)


def main() -> None:
    if sys.argv[1] == "--rank":
        main_of_rank(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("scenes", nargs="*")
    parser.add_argument("--backend", default="gloo", choices=["gloo", "nccl"])
    parser.add_argument("--patience", type=float, default=120.0, help="seconds a scene may take")
    options = parser.parse_args()
    for name, scene in SCENES.items():
        if options.backend in scene.backends and (not options.scenes or name in options.scenes):
            began = time.monotonic()
            try:
                make(name, options.backend, options.out / name, options.patience)
                print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)
            except Exception as error:
                print(f"{name}: {type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main()
