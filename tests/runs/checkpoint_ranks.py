"""Ranks for the tests of checkpoints: processes that talk over gloo, and what they do.

They come from a fork server that has imported torch once, so that a pair of ranks starts in a fraction of
a second. A case is a function of this module; it returns what the test compares.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import sys
import threading
import traceback
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import connection
from pathlib import Path
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "torch._dynamo",  # else every optimizer imports it, for seconds
        "torch.distributed.fsdp",
        "torch.distributed.checkpoint",
        "torch.distributed.checkpoint.state_dict",
        "holdfast.runs.checkpointing.checkpoints",
        "holdfast.runs.checkpointing.loading",
        "holdfast.runs.checkpointing.writing",
    ]
)
_LONGEST_S = 120
COUNTED_WRITES = 16


class Ranks:
    """Running ranks."""

    def __init__(self, case: Callable[..., Any], scratch: Path, size: int, arguments: Any) -> None:
        self.folder = scratch / uuid.uuid4().hex
        self.folder.mkdir(parents=True)
        self.processes = [
            _CONTEXT.Process(
                target=_rank, args=(case.__name__, rank, size, str(self.folder), arguments)
            )
            for rank in range(size)
        ]
        for process in self.processes:
            process.start()

    def kill(self) -> None:
        """kill -9 of all."""
        for process in self.processes:
            process.kill()  # nothing, where it has ended meanwhile
        for process in self.processes:
            process.join()

    def first_end(self, timeout_s: float = _LONGEST_S) -> bool:
        """Wait until one has ended; whether one has."""
        return bool(connection.wait([each.sentinel for each in self.processes], timeout_s))

    def codes(self) -> list[int | None]:
        """How each one ended, waited for."""
        for process in self.processes:
            process.join(_LONGEST_S)
        return [process.exitcode for process in self.processes]

    def results(self) -> list[Any]:
        """What the case gave on each rank; all must have ended well."""
        codes = self.codes()
        said = "".join(file.read_text() for file in sorted(self.folder.glob("*.txt")))
        assert codes == [0] * len(codes), f"{codes}\n{said}"
        return [
            json.loads((self.folder / f"{rank}.json").read_text())
            for rank in range(len(self.processes))
        ]

    def said(self) -> str:
        """The traces of those that failed."""
        return "".join(file.read_text() for file in sorted(self.folder.glob("*.txt")))


@contextmanager
def running(
    case: Callable[..., Any], scratch: Path, size: int = 2, **arguments: Any
) -> Iterator[Ranks]:
    """Start a case on `size` ranks; whoever still lives in the end is killed."""
    ranks = Ranks(case, scratch, size, arguments)
    try:
        yield ranks
    finally:
        ranks.kill()


def together(case: Callable[..., Any], scratch: Path, size: int = 2, **arguments: Any) -> list[Any]:
    """What a case gives on each rank."""
    with running(case, scratch, size, **arguments) as ranks:
        return ranks.results()


def _rank(case: str, rank: int, size: int, folder: str, arguments: dict[str, Any]) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", message="TypedStorage is deprecated")  # torch 2.6, by itself
    try:
        dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=size)
        answer = globals()[case](rank, **arguments)
        dist.destroy_process_group()
        Path(folder, f"{rank}.json").write_text(json.dumps(answer))
    except BaseException:
        Path(folder, f"{rank}.txt").write_text(f"rank {rank}\n{traceback.format_exc()}\n")
        sys.exit(1)


def digest(state: Any) -> str:
    """Of all values of a state, in the order of their keys."""
    import torch
    from torch.distributed.tensor import DTensor

    summed = hashlib.sha256()

    def add(value: Any) -> None:
        if isinstance(value, DTensor):
            value = value.full_tensor()
        if isinstance(value, torch.Tensor):
            summed.update(value.detach().reshape(-1).view(torch.uint8).numpy().tobytes())
        elif isinstance(value, dict):
            for key in sorted(value, key=str):
                add(value[key])
        else:
            summed.update(repr(value).encode())

    add(state)
    return summed.hexdigest()


# --- The training that is killed -------------------------------------------------------------------


class Training:
    """A model trained by all ranks on data that only the step number decides."""

    def __init__(self) -> None:
        import torch

        torch.manual_seed(3)
        self.model = torch.nn.Linear(32, 8)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)

    def state(self) -> dict[str, Any]:
        from torch.distributed.checkpoint.state_dict import get_state_dict

        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def take(self, state: dict[str, Any]) -> None:
        from torch.distributed.checkpoint.state_dict import set_state_dict

        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )

    def step(self, number: int, rank: int) -> None:
        import torch
        import torch.distributed as dist

        generator = torch.Generator().manual_seed(1000 * number + rank)
        self.optimizer.zero_grad()
        self.model(torch.randn(4, 32, generator=generator)).square().mean().backward()
        for parameter in self.model.parameters():
            dist.all_reduce(parameter.grad)
        self.optimizer.step()


def straight(rank: int, steps: int) -> list[str]:
    """The digest of the state after 0, 1, ... steps of an undisturbed training."""
    training = Training()
    found = [digest(training.state())]
    for number in range(1, steps + 1):
        training.step(number, rank)
        found.append(digest(training.state()))
    return found


def train(
    rank: int,
    checkpoints: str,
    steps: int,
    every: int = 1,
    killed_at: int | None = None,
    killed_rank: int = 0,
    note: str | None = None,
) -> dict[str, Any]:
    """Train from the last checkpoint on, save, and perhaps die at a call that reaches the disk.

    Args:
        rank: of this process.
        checkpoints: the folder.
        steps: where the training ends.
        every: steps between two saves.
        killed_at: dies before its n-th call that changes the folder, counted from the loading on.
        killed_rank: which rank does.
        note: a file to say in which step was loaded, with the digest.
    """
    from holdfast.runs import Checkpoints

    training = Training()
    store = Checkpoints(checkpoints, keep=2)
    state = training.state()
    loaded = store.load(state)
    training.take(state)
    found = digest(training.state())
    if note and rank == 0:
        whole = Path(f"{note}.new")  # a kill must not leave half of it
        whole.write_text(json.dumps({"step": loaded or 0, "digest": found}))
        whole.replace(note)
    calls = count_calls(checkpoints, killed_at if rank == killed_rank else None)
    for number in range((loaded or 0) + 1, steps + 1):
        training.step(number, rank)
        if number % every == 0:
            store.save(number, training.state())
    store.close()
    return {"digest": digest(training.state()), "calls": calls[0]}


def count_calls(folder: str, killed_at: int | None) -> list[int]:
    """Count the calls that change what is in a folder, and die before one of them."""
    calls = [0]
    counting = threading.Lock()  # the training and the save in the background both call

    def one() -> None:
        with counting:
            if calls[0] == killed_at:
                os.kill(os.getpid(), signal.SIGKILL)
            calls[0] += 1

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        changes = event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree")
        opens = event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_WRONLY
        if (changes or opens) and folder in str(arguments[0]):
            one()

    sys.addaudithook(hook)
    fsync = os.fsync

    def synced(descriptor: int) -> None:
        one()
        fsync(descriptor)

    os.fsync = synced
    from holdfast.runs.checkpointing.writing import SummedFile

    write = SummedFile.write

    writes = [0]

    def written(self: SummedFile, data: Any) -> int:
        if writes[0] % COUNTED_WRITES == 0:  # one write of an archive is like another
            one()
        writes[0] += 1
        return write(self, data)

    SummedFile.write = written  # type: ignore[method-assign]
    return calls


# --- Sharded and replicated state ------------------------------------------------------------------


def sharded_model() -> tuple[Any, Any]:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.Linear(5, 3))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def sharded_state(model: Any, optimizer: Any) -> dict[str, Any]:
    from torch.distributed.checkpoint.state_dict import get_state_dict

    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state}


def save_sharded(rank: int, checkpoints: str) -> str:
    """Train a sharded model, save twice, and change it at once after each save."""
    import torch

    from holdfast.runs import Checkpoints

    model, optimizer = sharded_model()
    found = ""
    with Checkpoints(checkpoints) as store:
        for number in (1, 2):
            model(torch.full((2, 7), float(number))).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            found = digest(sharded_state(model, optimizer))
            store.save(number, sharded_state(model, optimizer))
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(1.0)
                    parameter.sub_(1.0) if number == 1 else None
    return found


def load_sharded(rank: int, checkpoints: str) -> str:
    from holdfast.runs import Checkpoints

    model, optimizer = sharded_model()
    state = sharded_state(model, optimizer)
    assert Checkpoints(checkpoints).load(state) == 2
    return digest(state)


def replicated_state(fill: float) -> dict[str, Any]:
    import torch

    generator = torch.Generator().manual_seed(1)
    tensors = {f"w{i}": torch.randn(1000 + i, generator=generator) * fill for i in range(8)}
    return {
        "model": tensors,
        "transposed": (torch.randn(3, 4, generator=generator) * fill).T,
        "list": [torch.full((2,), fill), {"n": int(fill)}],
        "ids": {0: int(fill), "0x": "a" * int(fill)},
        "pair": (torch.full((2,), fill), fill),
    }


def save_replicated(rank: int, checkpoints: str) -> str:
    from holdfast.runs import Checkpoints

    with Checkpoints(checkpoints) as store:
        for number in (1, 2):
            store.save(number, replicated_state(number))
    return digest(replicated_state(2))


def load_replicated(rank: int, checkpoints: str, one_reader: bool) -> dict[str, Any]:
    """Load, and count which files of the folder this rank opens."""
    import torch.distributed as dist

    from holdfast.runs import Checkpoints

    opened: list[str] = []

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and checkpoints in str(arguments[0]):
            opened.append(str(arguments[0]))

    state = replicated_state(0)
    store = Checkpoints(checkpoints)
    sys.addaudithook(hook)
    before = _read_bytes()
    step = store.load(state, replicas=dist.group.WORLD if one_reader else None)
    files = [Path(name) for name in opened]
    return {
        "step": step,
        "digest": digest(state),
        "opened": sorted({file.name for file in files if file.is_file()}),
        "bytes_opened": sum(file.stat().st_size for file in files if file.is_file()),
        "bytes_read": _read_bytes() - before,
    }


def _read_bytes() -> int:
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("rchar"):
            return int(line.partition(":")[2])
    return 0


def load_misfit(rank: int, checkpoints: str) -> str:
    """Rank 1 asks for what is not there: both must hear of it."""
    from holdfast.errors import InputError
    from holdfast.runs import Checkpoints

    state = replicated_state(0)
    if rank == 1:
        state["model"]["unknown"] = state["model"].pop("w0")
    try:
        Checkpoints(checkpoints).load(state)
    except InputError as error:
        return str(error)
    return "nothing"


def save_with_a_full_disk(rank: int, checkpoints: str) -> list[str]:
    """The disk of rank 1 is full in the second save: both are told, and the third one works."""
    import errno

    from holdfast.errors import StoreError
    from holdfast.runs import Checkpoints
    from holdfast.runs.checkpointing.writing import SummedFile

    write = SummedFile.write

    def full(self: SummedFile, data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", str(self._path))

    told = []
    with Checkpoints(checkpoints) as store:
        store.save(1, replicated_state(1))
        store.wait()
        if rank == 1:
            SummedFile.write = full  # type: ignore[method-assign]
        store.save(2, replicated_state(2))
        try:
            store.save(3, replicated_state(3))
        except StoreError as error:
            told.append(str(error))
        SummedFile.write = write  # type: ignore[method-assign]
        store.save(4, replicated_state(4))
    return told


def save_on_half_of_the_job(rank: int, checkpoints: str) -> list[Any]:
    """Two groups of a job save on their own, each in its own folder."""
    import torch
    import torch.distributed as dist

    from holdfast.runs import Checkpoints

    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    mine = rank // 2
    state = {"w": torch.full((4,), float(mine))}
    with Checkpoints(f"{checkpoints}/{mine}", process_group=halves[mine]) as store:
        store.save(1, state)
        store.wait()
        state["w"].zero_()
        step = store.load(state, replicas=halves[mine])
    return [step, state["w"].tolist()]
