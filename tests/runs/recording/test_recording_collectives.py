"""Waits for other ranks, on modules that look like torch's and in a DDP of one process."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from threading import Timer
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.runs.recording import collectives
from holdfast.runs.recording.collectives import Waits

WAIT_S = 0.02


class Work:
    """A collective or message that takes a while."""

    def __init__(self, kind: int = 1, inner: Work | None = None) -> None:
        self.kind, self.inner = kind, inner

    def _get_op_type(self) -> int:
        return self.kind

    def wait(self) -> bool:
        time.sleep(WAIT_S)
        return self.inner is None or self.inner.wait()


def patched(monkeypatch: pytest.MonkeyPatch, accelerated: bool = False) -> tuple[Waits, Any, Any]:
    """Waits, `Work` and the functional module, as they are after the patches."""
    torch = SimpleNamespace(accelerator=SimpleNamespace(is_available=lambda: accelerated))
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    waits, work = Waits(), type("Work", (Work,), {})
    modules: dict[str, Any] = {
        "torch.distributed.distributed_c10d": SimpleNamespace(Work=work),
        "torch.distributed._functional_collectives": SimpleNamespace(wait_tensor=lambda each: each),
    }
    for name, module in modules.items():
        waits.patches()[name](module)
    return waits, work, modules["torch.distributed._functional_collectives"]


def test_waits_are_told_by_kind_and_the_outer_one_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, work, functional = patched(monkeypatch)
    begun = waits.mark()
    assert waits.since(begun) == {}  # none seen is not a wait of no length
    assert work(1, inner=work(13)).wait()
    before = time.monotonic()
    work(13).wait()
    took = time.monotonic() - before
    assert functional.wait_tensor("sum") == "sum"
    told = waits.since(begun)
    assert told.keys() == {"all_reduce", "recv", "tensor"}
    assert told["all_reduce"] >= 2 * WAIT_S
    assert WAIT_S <= told["recv"] <= took + 1e-6  # rounded; without the one inside the all_reduce
    inner = waits.mark()
    work(99).wait()
    waits.forget(inner)
    assert waits.since(begun) == told


@pytest.mark.full
def test_the_numbers_of_kinds_are_torchs() -> None:
    members = pytest.importorskip("torch._C._distributed_c10d").OpType.__members__
    named = {int(value): name.lower().replace("_", "") for name, value in members.items()}
    for place, kind in enumerate(collectives._KINDS):
        assert named[place].startswith(kind.replace("_", ""))


def test_where_a_device_waits_instead_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, work, _ = patched(monkeypatch, accelerated=True)
    begun = waits.mark()
    assert work().wait()
    assert waits.since(begun) == {}


def test_an_exception_inside_a_wait_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, work, _ = patched(monkeypatch)
    monkeypatch.setattr(Work, "wait", lambda each: 1 / 0)
    waits, work, _ = patched(monkeypatch)
    with pytest.raises(ZeroDivisionError):
        work().wait()
    begun = waits.mark()
    with pytest.raises(ZeroDivisionError):
        work().wait()
    assert waits.since(begun).keys() == {"all_reduce"}


@pytest.mark.full
def test_ddp_waits_from_the_last_gradient_to_the_last_bucket(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    waits = Waits()
    waits._blocks = True  # also where the machine has an accelerator
    forward = DistributedDataParallel.forward
    waits.patches()["torch.nn.parallel.distributed"](sys.modules["torch.nn.parallel.distributed"])
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model = DistributedDataParallel(torch.nn.Linear(4, 1))

        def late(state: object, bucket):  # type: ignore[no-untyped-def]  # DDP looks at annotations
            reduced = torch.futures.Future()
            Timer(WAIT_S, reduced.set_result, [bucket.buffer()]).start()
            return reduced

        model = DistributedDataParallel(torch.nn.Linear(4, 1))
        model.register_comm_hook(None, late)
        told = model(torch.ones(2, 4))
        # Gradients that take a while before they are there are no wait, buckets are.
        told.register_hook(lambda gradient: time.sleep(20 * WAIT_S))
        begun = waits.mark()
        told.sum().backward()
        assert WAIT_S / 2 < waits.since(begun)["gradients"] < 20 * WAIT_S
    finally:
        dist.destroy_process_group()
        DistributedDataParallel.forward = forward
        del sys.modules["torch.nn.parallel.distributed"]._holdfast_waits
