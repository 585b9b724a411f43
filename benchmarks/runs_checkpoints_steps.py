"""One contender's saves in a process or two, for `runs_checkpoints.py`; prints what it took as JSON.

python benchmarks/runs_checkpoints_steps.py CONTENDER RANKS MEGABYTES SAVES FOLDER
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

TENSORS = 16


def state_of(megabytes: float) -> dict[str, Any]:
    """Parameters and the two moments of an optimizer, as plain tensors."""
    each = int(megabytes * 1e6 / 4 / TENSORS / 3)
    return {
        part: {f"layer{i}": torch.rand(each) for i in range(TENSORS)}
        for part in ("model", "exp_avg", "exp_avg_sq")
    }


def torch_save(folder: Path, state: dict[str, Any]) -> Callable[[int], Callable[[], None]]:
    """As many programs do: rank 0 writes one file, under a name of its own until it is whole."""

    def save(step: int) -> Callable[[], None]:
        if not dist.is_initialized() or dist.get_rank() == 0:
            torch.save(state, folder / "new.pt")
            (folder / "new.pt").replace(folder / f"{step}.pt")
        if dist.is_initialized():
            dist.barrier()
        return lambda: None

    return save


def dcp_save(folder: Path, state: dict[str, Any]) -> Callable[[int], Callable[[], None]]:
    """DCP, synchronous."""
    from torch.distributed.checkpoint import save as write

    def save(step: int) -> Callable[[], None]:
        write(state, checkpoint_id=folder / str(step))
        return lambda: None

    return save


def dcp_async_save(folder: Path, state: dict[str, Any]) -> Callable[[int], Callable[[], None]]:
    """DCP in the background, as its documentation shows it."""
    from torch.distributed.checkpoint import async_save

    def save(step: int) -> Callable[[], None]:
        future = async_save(state, checkpoint_id=folder / str(step))
        return future.result

    return save


def holdfast(folder: Path, state: dict[str, Any]) -> Callable[[int], Callable[[], None]]:
    """Ours: as above, with checksums and publication."""
    from holdfast.runs import Checkpoints

    checkpoints = Checkpoints(folder, keep=None)

    def save(step: int) -> Callable[[], None]:
        checkpoints.save(step, state)
        return checkpoints.wait

    return save


CONTENDERS = {each.__name__: each for each in (torch_save, dcp_save, dcp_async_save, holdfast)}


def measure(
    contender: str, rank: int, ranks: int, megabytes: float, saves: int, folder: Path
) -> list[dict[str, float]]:
    """Seconds of each save: how long it stopped the caller, and until it was complete."""
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")
    torch.manual_seed(1)
    if ranks > 1:
        torch.set_num_threads(1)
        dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=ranks)
    save = CONTENDERS[contender](folder, state_of(megabytes))
    found = []
    for step in range(saves):
        if ranks > 1:
            dist.barrier()
        begin = time.perf_counter()
        complete = save(step)
        blocked = time.perf_counter()
        complete()
        end = time.perf_counter()
        found.append({"blocking_s": blocked - begin, "complete_s": end - begin})
        if ranks > 1:
            dist.barrier()
        if rank == 0:
            _remove(folder, "store")
    if ranks > 1:
        dist.destroy_process_group()
    if rank == 0:
        print(json.dumps(found))
    return found


def _remove(folder: Path, kept: str) -> None:
    """What was written, so that the disk does not fill; not part of what is measured."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in (kept, ".writer.lock"):
            path.unlink()


def main() -> None:
    """Run one contender."""
    contender, ranks, megabytes, saves, folder = sys.argv[1:]
    given = (int(ranks), float(megabytes), int(saves), Path(folder))
    others = [
        multiprocessing.get_context("spawn").Process(target=measure, args=(contender, rank, *given))
        for rank in range(1, int(ranks))
    ]
    for other in others:
        other.start()
    measure(contender, 0, *given)
    for other in others:
        other.join()
        if other.exitcode:
            sys.exit(f"a rank ended with {other.exitcode}")


if __name__ == "__main__":
    main()
