"""A small training that fails in the way that its argument names; run it under torchrun.

    torchrun --nproc-per-node 4 failing_training.py killed

It made the real logs in `logs/`, and the tests run it again. The last rank is the one that fails,
unless the way to fail is everybody's.
"""

from __future__ import annotations

import ctypes
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset

STEPS = 12
FAILS_AT = 7

log = logging.getLogger("train")


class Samples(IterableDataset[torch.Tensor]):
    """Random batches; the worker may have an accident."""

    def __init__(self, accident: Callable[[], None] | None) -> None:
        self.accident = accident

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in range(200):
            if number == 40 and self.accident is not None:
                self.accident()
            yield torch.randn(8)


def train(how: str) -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    on_gpu = how.startswith(("cuda", "nccl", "cublas"))
    if on_gpu:
        if how != "nccl_one_gpu":  # NCCL lets ranks share a GPU only if it sees a host for each
            os.environ["NCCL_HOSTID"] = f"host-{rank}"
        torch.cuda.set_device(0)
    if how == "import":
        import flash_attn_of_the_future  # noqa: F401
    backend = "nccl" if how.startswith("nccl") else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=15))
    device = torch.device("cuda" if on_gpu else "cpu")
    log.info("rank %d of %d ready, backend %s", rank, world, backend)
    model = torch.nn.Linear(8, 8).to(device)
    last = rank == world - 1
    accident = {"dataloader_killed": suicide, "dataloader_exception": bad_sample}.get(how)
    workers = 1 if how.startswith("dataloader") else 0
    batches = iter(
        DataLoader(Samples(accident if last else None), batch_size=8, num_workers=workers)
    )
    for step in range(STEPS):
        loss = model(next(batches).to(device)).square().mean()
        if step == FAILS_AT and (last or how in EVERYBODY) and how in WAYS:
            loss = WAYS[how](loss, rank)
        loss.backward()
        for weight in model.parameters():
            dist.all_reduce(weight.grad if backend == "nccl" else weight.grad.cpu())
        if rank == 0:
            log.info("step %d/%d | loss %.4f | lr 1.0e-04", step, STEPS, loss.item())
        time.sleep(0.02)
    dist.destroy_process_group()
    log.info("rank %d done", rank)


def suicide(*_: object) -> torch.Tensor:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def bad_sample() -> None:
    raise ValueError("sample 40: 'image' has 2 channels, 3 are needed")


def exception(loss: torch.Tensor, rank: int) -> torch.Tensor:
    vocabulary = {"the": 0}
    return loss * vocabulary["cat"]


def chained(loss: torch.Tensor, rank: int) -> torch.Tensor:
    try:
        return exception(loss, rank)
    except KeyError as error:
        raise RuntimeError("the tokenizer has no such word") from error


def segfault(loss: torch.Tensor, rank: int) -> torch.Tensor:
    ctypes.string_at(0)
    return loss


def sleeps(loss: torch.Tensor, rank: int) -> torch.Tensor:
    time.sleep(60)
    return loss


def no_space(loss: torch.Tensor, rank: int) -> torch.Tensor:
    with Path("/dev/full").open("wb") as checkpoint:  # every write finds the disk full
        checkpoint.write(bytes(1 << 20))
    return loss


def missing_file(loss: torch.Tensor, rank: int) -> torch.Tensor:
    torch.load("/data/checkpoints/step-1000/model.pt")
    return loss


def host_memory(loss: torch.Tensor, rank: int) -> torch.Tensor:
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    return loss + torch.ones(1 << 40).sum()


def memory_error(loss: torch.Tensor, rank: int) -> torch.Tensor:
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    return loss * len([0] * (1 << 40))


def nan(loss: torch.Tensor, rank: int) -> torch.Tensor:
    loss = loss * float("nan")
    assert torch.isfinite(loss), f"loss is {loss.item()} at step {FAILS_AT}"
    return loss


def shapes(loss: torch.Tensor, rank: int) -> torch.Tensor:
    return torch.nn.Linear(16, 8, device=loss.device)(torch.randn(8, 8, device=loss.device)).sum()


def hub(loss: torch.Tensor, rank: int) -> torch.Tensor:
    from transformers import AutoConfig

    AutoConfig.from_pretrained("meta-llama/Llama-3.1-8B")
    return loss


def open_files(loss: torch.Tensor, rank: int) -> torch.Tensor:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    kept = [os.open("/dev/null", os.O_RDONLY) for _ in range(100)]
    return loss * len(kept)


def exits(loss: torch.Tensor, rank: int) -> torch.Tensor:
    sys.exit(3)


def gives_up(loss: torch.Tensor, rank: int) -> torch.Tensor:
    log.error("shard server answered late %d times, giving up", 5)
    sys.exit(3)


def cuda_out_of_memory(loss: torch.Tensor, rank: int) -> torch.Tensor:
    kept = [torch.empty(8 << 30, dtype=torch.uint8, device="cuda") for _ in range(100)]
    return loss * len(kept)


def cuda_assert(loss: torch.Tensor, rank: int) -> torch.Tensor:
    table = torch.nn.Embedding(10, 8, device="cuda")
    return table(torch.tensor([3, 11], device="cuda")).sum()


def cuda_illegal(loss: torch.Tensor, rank: int) -> torch.Tensor:
    import cupy

    kernel = cupy.RawKernel(
        'extern "C" __global__ void stray(float *p) { p[threadIdx.x] = 1; }', "stray"
    )
    kernel((1,), (32,), (cupy.uint64(0x10),))
    return loss + torch.ones(8, device="cuda").sum().item()


def cuda_ordinal(loss: torch.Tensor, rank: int) -> torch.Tensor:
    torch.cuda.set_device(6)
    return loss


WAYS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "exception": exception,
    "chained": chained,
    "killed": suicide,
    "segfault": segfault,
    "gloo_timeout": sleeps,
    "no_space": no_space,
    "missing_file": missing_file,
    "host_memory": host_memory,
    "memory_error": memory_error,
    "nan": nan,
    "shapes": shapes,
    "hub": hub,
    "open_files": open_files,
    "exits": exits,
    "gives_up": gives_up,
    "cuda_out_of_memory": cuda_out_of_memory,
    "cuda_assert": cuda_assert,
    "cuda_illegal": cuda_illegal,
    "cuda_ordinal": cuda_ordinal,
    "cuda_shapes": shapes,
    "nccl_timeout": sleeps,
    "nccl_killed": suicide,
    "nccl_exception": exception,
    "nccl_out_of_memory": cuda_out_of_memory,
}
EVERYBODY = ("nan", "hub")

if __name__ == "__main__":
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    train(sys.argv[1])
