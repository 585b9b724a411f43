"""Staging from a GPU; skipped where there is none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.runs import Checkpoints

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)


@pytest.fixture
def nccl(tmp_path: Path) -> Iterator[Any]:
    import torch.distributed as dist

    torch.cuda.set_device(0)
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        "nccl", f"file://{tmp_path}/store", rank=0, world_size=1, device_id=torch.device("cuda:0")
    )
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_what_the_gpu_still_computes_is_saved_and_later_changes_are_not(tmp_path: Path) -> None:
    weights = torch.ones(4096, 4096, device="cuda")
    with Checkpoints(tmp_path) as checkpoints:
        for number in (1, 2):
            for _ in range(50):  # still under way when `save` is called
                weights = weights @ torch.eye(4096, device="cuda")
            weights.mul_(2)
            checkpoints.save(number, {"w": weights, "host": torch.tensor(number)})
            weights.add_(1)
            checkpoints.wait()
            weights.sub_(1)
        (kept, _) = checkpoints._made_staging._kept.values()  # type: ignore[union-attr]
        assert kept.is_pinned()
        loaded = {"w": torch.zeros_like(weights), "host": torch.tensor(0)}
        for number in (1, 2):
            assert checkpoints.load(loaded, step=number) == number
            assert loaded["w"].device.type == "cuda"
            assert torch.equal(loaded["w"], torch.full_like(weights, 2.0**number))
            assert loaded["host"] == number


def test_sharded_over_nccl(tmp_path: Path, nccl: Any) -> None:
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(1)
    model = torch.nn.Linear(64, 32, device="cuda")
    fully_shard(model, mesh=init_device_mesh("cuda", (1,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    expected: dict[int, Any] = {}

    def state() -> dict[str, Any]:
        made = get_state_dict(model, optimizer)
        return {"model": made[0], "optimizer": made[1]}

    with Checkpoints(tmp_path / "c") as checkpoints:
        for number in (1, 2):
            model(torch.randn(8, 64, device="cuda")).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            expected[number] = model.weight.full_tensor().detach().clone()
            checkpoints.save(number, state())
            with torch.no_grad():
                model.weight.add_(1.0)
            checkpoints.wait()
            with torch.no_grad():
                model.weight.sub_(1.0)
        for replicas in (None, nccl):
            for number in (1, 2):
                loaded = state()
                with torch.no_grad():
                    model.weight.zero_()
                assert checkpoints.load(loaded, step=number, replicas=replicas) == number
                assert torch.equal(model.weight.full_tensor(), expected[number])
