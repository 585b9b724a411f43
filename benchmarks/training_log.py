"""A large training log with realistic variety, from a seed: what `runs_diagnose.py` reads.

Ranks of a torchrun job write into one file: step lines, progress bars with carriage returns, NCCL's
initialisation, warnings, generated text, memory summaries, a tracked exception now and then that is
retried. Near the end one rank finds its disk full, and the others lose it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

RANKS = 64
WORDS = (
    *(
        "the",
        "model",
        "of",
        "a",
        "fleet",
        "that",
        "learns",
        "to",
        "read",
        "long",
        "logs",
        "and",
        "finds",
    ),
    *(
        "which",
        "lines",
        "matter",
        "when",
        "many",
        "ranks",
        "speak",
        "at",
        "once",
        "about",
        "gradients",
    ),
    *("memory", "links", "disks", "queues", "clocks", "people", "who", "wait", "for", "answers"),
)
START = datetime(2026, 11, 20, 8, 0, 0)


def write_log(path: Path, size_bytes: int, seed: int = 1) -> int:
    """Write a log of about `size_bytes`; returns its lines.

    The failure at its end is a full disk on rank 37.
    """
    lines = 0
    with path.open("wb", buffering=1 << 20) as target:
        written = 0
        for text in _texts(random.Random(seed)):
            data = text.encode()
            target.write(data)
            written += len(data)
            lines += data.count(b"\n")
            if written >= size_bytes:
                break
        ending = "".join(_failure()).encode()
        target.write(ending)
    return lines + ending.count(b"\n")


def _texts(random_: random.Random) -> Iterator[str]:
    for rank in range(RANKS):
        yield from _initialisation(random_, rank)
    step, clock = 0, START
    while True:
        step += 1
        clock += timedelta(seconds=random_.uniform(0.8, 1.4))
        yield _step(random_, step, clock)
        choice = random_.random()
        if choice < 0.5:
            yield _bar(random_, step)
        elif choice < 0.7:
            yield _ranks(random_, step, clock)
        elif choice < 0.8:
            yield _sample(random_, step)
        elif choice < 0.9:
            yield _memory(random_, clock)
        elif choice < 0.95:
            yield _nccl(random_)
        elif choice < 0.97:
            yield _warning(random_, clock)
        elif choice < 0.971:
            yield _retried(random_, clock)


def _initialisation(random_: random.Random, rank: int) -> Iterator[str]:
    host, pid = f"gpu-{rank // 8:03d}", random_.randrange(1000, 60_000)
    head = f"{host}:{pid}:{pid + 7} [{rank % 8}] NCCL INFO "
    address = f"0x{random_.getrandbits(44):x}"
    yield f"{head}NCCL version 2.28.9+cuda13.0\n"
    yield (
        f"{head}comm {address} rank {rank} nRanks {RANKS} nNodes 8 localRanks 8 "
        f"localRank {rank % 8}\n"
    )
    for channel in range(16):
        peer = random_.randrange(RANKS)
        yield (
            f"{head}Channel {channel:02d}/0 : {rank}[{rank % 8}] -> {peer}[{peer % 8}] "
            f"via NET/IB/{channel % 8}/GDRDMA\n"
        )
    yield f"{head}Connected all rings, use ring PXN 0 GDR 1\n"


def _step(random_: random.Random, step: int, clock: datetime) -> str:
    loss, norm = 12 / (1 + step**0.2) + random_.gauss(0, 0.02), random_.lognormvariate(0, 0.3)
    return (
        f" [{clock:%Y-%m-%d %H:%M:%S}.{random_.randrange(10**6):06d}] iteration {step:8d}/ 500000 | "
        f"consumed samples: {step * 1024:12d} | "
        f"elapsed time per iteration (ms): {random_.gauss(1100, 40):.1f} | "
        f"throughput per GPU (TFLOP/s/GPU): {random_.gauss(410, 9):.1f} | "
        f"learning rate: {random_.uniform(1e-5, 3e-4):.6E} | global batch size:  1024 | "
        f"lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: {norm:.3f} | "
        "number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    )


def _bar(random_: random.Random, step: int) -> str:
    percent = step % 100
    full = "█" * (percent // 10) + "▏▎▍▌▋▊▉"[step % 7]
    passed = f"{step // 3600}:{step % 3600 // 60:02d}:{step % 60:02d}"
    parts = (
        f"\rEpoch {step // 4000}: {percent:3d}%|{full:<10}| {step}/500000 "
        f"[{passed}<{random_.randrange(99)}:{random_.randrange(60):02d}:00, "
        f"{random_.uniform(0.5, 2):.2f}it/s, v_num={random_.getrandbits(16):04x}, "
        f"loss={random_.random():.3f}]"
        for _ in range(random_.randrange(3, 12))
    )
    return "".join(parts) + "\n"


def _ranks(random_: random.Random, step: int, clock: datetime) -> str:
    return "".join(
        f"[default{rank}]:{clock:%m/%d/%Y %H:%M:%S} [INFO|rank={rank % 8}] train step {step} took "
        f"{random_.gauss(1.1, 0.04):.4f} s, data {random_.random() / 50:.4f} s, "
        f"tokens {random_.randrange(4000, 4200)}\n"
        for rank in random_.sample(range(RANKS), 16)
    )


def _sample(random_: random.Random, step: int) -> str:
    words = " ".join(random_.choices(WORDS, k=random_.randrange(10, 60)))
    return f"[rank0]: sample at {step} ({random_.getrandbits(128):032x}): {words}\n"


def _memory(random_: random.Random, clock: datetime) -> str:
    rank = random_.randrange(RANKS)
    return (
        f"[rank{rank}]: {clock:%Y-%m-%d %H:%M:%S},{random_.randrange(1000):03d} - training - INFO - "
        f"[Rank {rank}] (after {random_.randrange(10**6)} iterations) memory (MB) | "
        f"allocated: {random_.uniform(20000, 60000):.7f} | "
        f"max allocated: {random_.uniform(60000, 70000):.7f} | reserved: 71234.0\n"
    )


def _nccl(random_: random.Random) -> str:
    rank = random_.randrange(RANKS)
    address = (f"0x{random_.getrandbits(44):x}" for _ in range(3))
    return (
        f"gpu-{rank // 8:03d}:{random_.randrange(60000)}:{random_.randrange(60000)} [{rank % 8}] "
        f"NCCL INFO AllReduce: opCount {random_.getrandbits(20):x} sendbuff {next(address)} "
        f"recvbuff {next(address)} count {random_.randrange(10**9)} datatype 9 op 0 root 0 "
        f"comm {next(address)} [nranks={RANKS}]\n"
    )


def _warning(random_: random.Random, clock: datetime) -> str:
    kind = random_.randrange(3)
    if kind == 0:
        shard = f"s3://bucket/tokens/{random_.getrandbits(64):016x}.bin"
        return f"{clock:%Y-%m-%d %H:%M:%S} WARNING data: shard {shard} slow: {random_.random():.2f} s\n"
    if kind == 1:
        return (
            f"[rank{random_.randrange(RANKS)}]:[W{clock:%m%d %H:%M:%S}.{random_.randrange(10**9):09d} "
            "CUDAAllocatorConfig.h:28] Warning: expandable_segments not supported on this platform\n"
        )
    return (
        f"{clock:%b %d %H:%M:%S} gpu-{random_.randrange(8):03d} slurmd[{random_.randrange(9999)}]: "
        f"health check took {random_.randrange(900)} ms\n"
    )


def _retried(random_: random.Random, clock: datetime) -> str:
    head = f"[rank{random_.randrange(RANKS)}]: "
    return "".join(
        f"{head}{line}\n"
        for line in (
            "Traceback (most recent call last):",
            '  File "/home/user/project/data/reader.py", line 88, in read',
            "    return self.client.get(key)",
            f'  File "/home/user/project/data/client.py", line {random_.randrange(10, 90)}, in get',
            "    raise ReadTimeout(key)",
            f"client.ReadTimeout: shard {random_.getrandbits(32):08x} after 30 s",
            f"{clock:%Y-%m-%d %H:%M:%S} WARNING data.reader: retrying",
        )
    )


def _failure() -> Iterator[str]:
    head = "[rank37]: "
    yield f"{head}Traceback (most recent call last):\n"
    yield f'{head}  File "/home/user/project/train.py", line 412, in save\n'
    yield f"{head}    torch.save(state, path)\n"
    yield f"{head}OSError: [Errno 28] No space left on device: '/scratch/ckpt/step-500.pt'\n"
    for rank in range(RANKS):
        if rank != 37:
            yield (
                f"[rank{rank}]:[E1121 08:12:{rank % 60:02d}.000000001 ProcessGroupNCCL.cpp:616] "
                f"[Rank {rank}] Watchdog caught collective operation timeout: "
                "WorkNCCL(SeqNum=88112, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, "
                "Timeout(ms)=600000) ran for 600012 milliseconds before timing out.\n"
            )
