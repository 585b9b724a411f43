"""A small real training that knows nothing of holdfast: plain PyTorch, started with `holdfast runs exec`.

    holdfast runs exec -o runs --run bytes -- torchrun --standalone --nproc-per-node 2 train.py checkpoints

Every rank learns to predict the next byte of the module `argparse`. Started again with the same folder, the
training goes on from its last checkpoint.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

CONTEXT, BATCH, WIDTH = 32, 384, 1024


class Windows(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Batches of contexts [B, T] and next bytes [B] from a file, each read as from a shared file system."""

    def __init__(self, batches: int, first: int, read_s: float) -> None:
        text = torch.frombuffer(bytearray(Path(argparse.__file__).read_bytes()), dtype=torch.uint8)
        self._windows = text.long().unfold(0, CONTEXT + 1, 1)
        self._batches, self._first, self._read_s = batches, first, read_s

    def __len__(self) -> int:
        return self._batches

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(2 * (self._first + index) + dist.get_rank())
        chosen = self._windows[torch.randint(len(self._windows), (BATCH,), generator=generator)]
        time.sleep(self._read_s)
        return chosen[:, :-1], chosen[:, -1]


def main() -> None:
    """Train, from the last checkpoint if there is one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--checkpoint-every", type=int, default=50)
    parser.add_argument("--read-s", type=float, default=0.02, help="what reading a batch takes")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Embedding(256, 32),
        torch.nn.Flatten(),
        torch.nn.Linear(32 * CONTEXT, WIDTH),
        torch.nn.GELU(),
        torch.nn.Linear(WIDTH, 256),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    done, last = 0, options.folder / "last.pt"
    if last.exists():
        state = torch.load(last)
        done = state["step"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    averaged = torch.nn.parallel.DistributedDataParallel(model)
    windows = Windows(options.steps - done, done, options.read_s)
    for number, (inputs, targets) in enumerate(DataLoader(windows, batch_size=None), done + 1):
        optimizer.zero_grad()
        loss = cross_entropy(averaged(inputs), targets)
        loss.backward()
        optimizer.step()
        if number % options.checkpoint_every == 0 and dist.get_rank() == 0:
            state = {
                "step": number,
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
            }
            torch.save(state, options.folder / "next.pt")
            (options.folder / "next.pt").replace(last)
            print(f"step {number}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
