"""One rank that loads a part of an epoch; run as a process by `test_resume.py`.

    python loading_rank.py RANK RANKS MEETING FOLDER < STATE

Without a state it stops after three batches, with one it goes on to the end of the epoch. Prints a line of
JSON: the images it saw, its state, and a digest of the states of all ranks.
"""

from __future__ import annotations

import json
import sys
from itertools import islice

import torch.distributed as dist

from holdfast.data.records.loading.dataset import Dataset
from holdfast.data.records.loading.loader import Loader


def ids(items: list) -> list[int]:
    return [int(item["id"][:4]) for item in items]


def main(rank: int, ranks: int, meeting: str, folder: str) -> None:
    """Load, and print what happened."""
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    data = Dataset(folder, decode=False, window=16, seed=9, columns=[])
    loader = Loader(data, 4, num_workers=2, collate_fn=ids, multiprocessing_context="fork")
    state = sys.stdin.read()
    if state:
        loader.load_state_dict(json.loads(state))
    seen = [image for batch in islice(loader, None if state else 3) for image in batch]
    own = loader.state_dict()
    states: list = [None] * ranks
    dist.all_gather_object(states, {**own, "rank": 0})
    same = str(states[0]) if all(one == states[0] for one in states) else None
    print(json.dumps({"seen": seen, "state": own, "states": same}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
