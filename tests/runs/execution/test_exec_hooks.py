"""The hooks of `runs exec`, on modules that look like torch's: which events a training leaves."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.runs.execution import injected
from holdfast.runs.execution.injected import Training


class Loss:
    """A tensor of one number."""

    device = SimpleNamespace(type="cpu")

    def __init__(self, value: float) -> None:
        self.value = value

    def backward(self) -> None:
        """Nothing to do."""

    def detach(self) -> Loss:
        return self

    def numel(self) -> int:
        return 1

    def __float__(self) -> float:
        return self.value


class Loader:
    """An iterator of a DataLoader; each batch takes a while."""

    def __next__(self) -> int:
        time.sleep(0.01)
        return 1


class Optimizer:
    """One that counts its steps, as Adam does."""

    def __init__(self, steps: int) -> None:
        self.state = {"weights": {"step": steps}}


class Torch:
    """The modules that are patched, and a training on them."""

    def __init__(self, training: Training) -> None:
        self.hooks: list[Callable[..., None]] = []
        self.tensors = SimpleNamespace(Tensor=type("Tensor", (Loss,), {}))
        self.loaders = SimpleNamespace(_BaseDataLoaderIter=type("Iterator", (Loader,), {}))
        self.saving = SimpleNamespace(save=lambda value, file: time.sleep(0.01))
        optimizers = SimpleNamespace(register_optimizer_step_post_hook=self.hooks.append)
        modules: dict[str, Any] = {
            "torch._tensor": self.tensors,
            "torch.optim.optimizer": optimizers,
            "torch.utils.data.dataloader": self.loaders,
            "torch.serialization": self.saving,
        }
        for name, module in modules.items():
            training.patches()[name](module)
        self.batches = self.loaders._BaseDataLoaderIter()

    def train(self, optimizer: Optimizer, batches: int = 1, loss: float = 1.0) -> None:
        """One step; its gradients are of several batches."""
        for _ in range(batches):
            next(self.batches)
            self.tensors.Tensor(loss).backward()
        optimizer.state["weights"]["step"] += 1
        self.hooks[0](optimizer, (), {})


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Training]:
    for name, value in ((injected.FOLDER, str(tmp_path)), (injected.RUN_ID, "run")):
        monkeypatch.setenv(name, value)
    for name, value in ((injected.HANG, "60"), (injected.OWNER, ""), ("SLURM_JOB_ID", "4711")):
        monkeypatch.setenv(name, value)
    made = Training(direct=True)
    yield made
    if made.recorder is not None:
        made.recorder.close()


def events(folder: Path) -> list[dict[str, Any]]:
    (path,) = folder.glob("run/rank-*.jsonl")
    lines = map(json.loads, path.read_text().splitlines())
    return [line for line in lines if line["event"] != "alive"]


def test_steps_waits_and_checkpoints(training: Training, tmp_path: Path) -> None:
    torch, optimizer, other = Torch(training), Optimizer(40), Optimizer(7)
    torch.train(optimizer)
    for _ in range(5):  # batches that are only evaluated are no part of a step
        next(torch.batches)
    torch.train(optimizer, batches=3)
    torch.hooks[0](other, (), {})
    torch.saving.save("weights", "file")
    torch.train(optimizer, loss=math.nan)
    start, *told = events(tmp_path)
    assert start["labels"] == {"slurm_job": "4711"}
    kinds = [each["event"] for each in told]
    waits = ["data_wait"]
    checkpoint = ["begin", "checkpoint"]
    assert kinds == ["ready", *waits, "step", *8 * waits, "step", *checkpoint, *waits, "step"]
    steps = [each for each in told if each["event"] == "step"]
    # Adam's count goes on where the loaded checkpoint was; the second optimizer counts nothing.
    assert [each["step"] for each in steps] == [41, 42, 43]
    assert [each.get("loss") for each in steps] == [None, None, "NaN"]
    # The second step holds the waits for two of its three batches, and none of the evaluation's.
    assert 0.02 <= steps[1]["inner_s"] <= steps[1]["seconds"]
    assert "inner_s" not in steps[0]
    (saved,) = (each for each in told if each["event"] == "checkpoint")
    assert saved["step"] == 42


def test_a_process_that_does_not_train_records_nothing(training: Training, tmp_path: Path) -> None:
    torch = Torch(training)
    torch.saving.save("weights", "file")
    torch.tensors.Tensor(1.0).backward()
    assert not list(tmp_path.glob("run/*"))
    # A worker of somebody else's loader: only what the command started itself waits for data.
    inner = Training(direct=False)
    next(Torch(inner).batches)
    assert inner.recorder is None


def test_an_exception_is_recorded_with_its_place(training: Training, tmp_path: Path) -> None:
    seen: list[object] = []
    hook = training.with_place(lambda *told: seen.append(told))
    with pytest.raises(ValueError, match="invalid literal") as raised:
        int("no layer")
    hook(raised.type, raised.value, raised.tb)
    assert len(seen) == 1
    ended = events(tmp_path)[-1]
    assert (ended["event"], ended["how"]) == ("end", "exception")
    assert ended["detail"].endswith("base 10: 'no layer' (test_exec_hooks.py:142)")
