"""A small training of several processes under torch.profiler, one of them slowed: makes real traces.

python tests/runs/straggling/traced_training.py FOLDER --ranks 4 --slow 2

Not a test itself: `examples/stragglers/traces` and, with `--device cuda --ddp`, `gpu_traces` were made by
it; the full test runs it again.
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.profiler import ProfilerActivity, profile, schedule

WIDTH, BATCH = 256, 512


def main() -> None:
    options = _arguments()
    options.folder.mkdir(parents=True, exist_ok=True)
    # On a port that the system chooses and that is held from then on.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    torch.multiprocessing.spawn(_train, (options, store.port), nprocs=options.ranks)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--slow", type=int, default=2, help="-1: none")
    parser.add_argument("--slowness", type=int, default=3, help="how often it does the work")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--ddp", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backend", default="gloo")
    return parser.parse_args()


def _train(rank: int, options: argparse.Namespace, port: int) -> None:
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port)
    dist.init_process_group(options.backend, store=store, rank=rank, world_size=options.ranks)
    device = torch.device(options.device)
    model: torch.nn.Module = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU(), torch.nn.Linear(WIDTH, WIDTH)
    ).to(device)
    if options.ddp:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(BATCH, WIDTH, device=device)
    repeats = options.slowness if rank == options.slow else 1
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(
        activities=activities, schedule=schedule(wait=1, warmup=1, active=options.steps)
    ) as p:
        for _ in range(options.steps + 2):
            for _ in range(repeats - 1):
                with torch.no_grad():
                    for _ in range(4):
                        model(inputs)
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            if not options.ddp:
                for weight in model.parameters():
                    dist.all_reduce(weight.grad)
            optimizer.step()
            if device.type == "cuda":
                torch.cuda.synchronize()
            p.step()
    plain = options.folder / f"node{rank // 2}_{4000 + rank}.pt.trace.json"
    p.export_chrome_trace(str(plain))
    with gzip.open(plain.with_name(plain.name + ".gz"), "wb", 9) as packed:
        packed.write(plain.read_bytes())
    plain.unlink()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
