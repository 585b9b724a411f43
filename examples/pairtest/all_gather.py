"""One all_gather between the nodes of a test: exits with 0 if every rank received what was sent.

On a cluster each node runs one process of it; Slurm says who is who:

    holdfast runs pairtest run round1.jsonl -o results.jsonl --timeout 5m \
        --command 'srun -N {n} -w {nodes} --ntasks-per-node=1 python all_gather.py'

Slurm numbers the ranks in its own order of nodes: `{a}` need not be the node of rank 0.

On one machine, to try it out, `--local a,b` starts a process for each name; `--hang b` keeps b out of the
collective, `--wrong b` makes b send something else than it says.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from datetime import timedelta

import torch
import torch.distributed as dist


def gather(rank: int, size: int, device: torch.device, elements: int, wrong: bool) -> bool:
    """Send a vector full of the own rank, and look at what came from all others."""
    sent = torch.full((elements,), float(rank + (0.5 if wrong else 0.0)), device=device)
    received = [torch.empty(elements, device=device) for _ in range(size)]
    dist.all_gather(received, sent)
    return all(bool((part == source).all()) for source, part in enumerate(received))


def take_part(rank: int, size: int, options: argparse.Namespace, name: str) -> None:
    """Join the group, gather, and exit with 1 if anything differs."""
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("SLURM_LOCALID", "0")))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dist.init_process_group(
        backend, rank=rank, world_size=size, timeout=timedelta(seconds=options.timeout_s)
    )
    if name in options.hang:
        signal.pause()
    fine = gather(rank, size, device, options.elements, name in options.wrong)
    dist.destroy_process_group()
    if not fine:
        print(f"{name or rank}: all_gather brought wrong values")
        sys.exit(1)


def local(names: list[str], options: argparse.Namespace) -> int:
    """One process for each name on this machine, over the loopback device."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    processes = [
        multiprocessing.get_context("spawn").Process(
            target=take_part, args=(rank, len(names), options, name)
        )
        for rank, name in enumerate(names)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return int(any(process.exitcode for process in processes))


def first_host(nodes: str) -> str:
    """The node of rank 0: the first of the step's, in Slurm's order."""
    command = ["scontrol", "show", "hostnames", nodes]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    return shown.stdout.split()[0]


def main() -> int:
    """Read the options and take part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, default=1 << 20, help="floats that each rank sends")
    parser.add_argument("--timeout-s", type=float, default=300.0)
    parser.add_argument("--local", default="", help="names, joined by commas")
    parser.add_argument("--hang", nargs="*", default=[])
    parser.add_argument("--wrong", nargs="*", default=[])
    options = parser.parse_args()
    if options.local:
        return local(options.local.split(","), options)
    os.environ.setdefault("MASTER_PORT", "29571")
    os.environ.setdefault("MASTER_ADDR", first_host(os.environ["SLURM_STEP_NODELIST"]))
    rank, size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    take_part(rank, size, options, "")
    print(f"all_gather of {size} ranks: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
