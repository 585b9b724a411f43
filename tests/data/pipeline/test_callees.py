"""Functions that the source calls: named by samples of what runs, as stages of their own."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from synthetic_traces import consumed, records
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from holdfast.data.pipeline.accounting import account, with_callees
from holdfast.data.pipeline.model import bottleneck
from holdfast.data.pipeline.recording import CALL, Recorder, called

Weights = tuple[float, float, float]


def split(samples: dict[str, Weights], kind: str = "gil") -> dict[str, tuple[float, float, float]]:
    """CPU, waiting and lock seconds of the parts of a source that takes 16 ms, by samples."""
    lines = records(kind, "source")
    lines[0]["callees"] = {
        path: [weight / 2 for weight in weights] for path, weights in samples.items()
    }
    lines[7]["callees"] = lines[0]["callees"]
    stages = with_callees(account(lines, consumed(0.0), workers=2), lines)
    parts = [part for part in stages if part.name.startswith("source")]
    assert len({part.group for part in parts}) == 1
    assert bottleneck(stages, cores=2.0)[0].name.startswith("source")
    return {part.name: (part.cpu_s, part.blocked_s, part.gil_s) for part in parts}


def test_time_of_the_source_is_that_of_the_functions_in_it() -> None:
    parts = split({"load": (10, 0, 10), "augment": (30, 0, 30), "": (0.1, 0, 0.1)})
    assert parts["source: load"][0] == pytest.approx(0.004, rel=0.02)
    assert parts["source: augment"][0] == pytest.approx(0.012, rel=0.02)
    assert sum(cpu for cpu, *_ in parts.values()) == pytest.approx(0.016, rel=0.01)
    # What waits is told apart from what computes, and who holds the lock.
    parts = split({"load": (0.5, 60, 0.5), "augment": (40, 0, 0)}, "latency")
    assert parts["source: load"][1] == pytest.approx(0.016, rel=0.02)
    assert parts["source: augment"][1:] == pytest.approx((0.0, 0.0), abs=1e-5)


def test_a_function_that_only_calls_others_is_replaced_by_them() -> None:
    nested = {f"get{CALL}load{CALL}open": (10, 0, 10), f"get{CALL}load": (10, 0, 10)}
    assert set(split({**nested, f"get{CALL}augment": (30, 0, 30)})) == {
        "source: load",
        "source: augment",
        "source",
    }
    # not where it does something itself, or others do
    own: dict[str, Weights] = {"get": (20, 0, 20), **nested}
    assert set(split(own)) == {"source: get", "source"}
    assert set(split({**nested, "augment": (30, 0, 30)})) == {
        "source: get",
        "source: augment",
        "source",
    }


def test_few_samples_name_nothing() -> None:
    assert set(split({"load": (4, 0, 4)})) == {"source"}
    assert set(split({})) == {"source"}
    assert set(split({"": (40, 0, 40)})) == {"source"}
    assert set(split({"load": (40, 0, 40), "log": (1, 0, 1)})) == {"source: load", "source"}


# --- Frames --------------------------------------------------------------------------------------


seen: list[list[str] | None] = []


def look(number: Any) -> Any:
    seen.append(called(sys._getframe()))
    return number


class Direct(Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return look(index)


class Methods(Direct):
    def __getitem__(self, index: int) -> Any:
        return self.load(index)

    def load(self, index: int) -> Any:
        def inner(number: int) -> Any:
            return look(number)

        return inner(index)


class Attribute(Direct):
    def __init__(self, read: Callable[[int], Any]) -> None:
        self.read = read

    def __getitem__(self, index: int) -> Any:
        return self.read(index)


class Library(Direct):
    def __getitem__(self, index: int) -> Any:
        return json.loads(str(index), object_hook=None, parse_int=look)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        for number in self.numbers():
            yield self.decode(number)

    def numbers(self) -> Iterator[int]:
        yield from map(look, range(8))

    def decode(self, number: int) -> Any:
        return look(number)


@pytest.mark.parametrize(
    ("dataset", "paths"),
    [
        (Direct(), {("look",)}),
        (Methods(), {("Methods.load", "inner", "look")}),
        (Subset(Methods(), range(4)), {("Methods.load", "inner", "look")}),
        (Attribute(lambda number: look(number)), {("lambda", "look")}),
        (Library(), {("look",)}),
        (Stream(), {("look",), ("Stream.decode", "look")}),
    ],
)
def test_functions_inside_of_the_source_are_found(
    dataset: Any, paths: set[tuple[str, ...]], tmp_path: Any
) -> None:
    from holdfast.data.pipeline import dataloader

    seen.clear()
    recorders: list[Recorder] = []

    def make(worker: int) -> Recorder:
        recorders.append(Recorder(tmp_path, worker))
        return recorders[0]

    with dataloader.wrapped(DataLoader(dataset, batch_size=4), make) as traced:
        next(iter(traced))
    assert recorders[0].batch == 1
    assert {tuple(path or ()) for path in seen} == paths
    assert called(sys._getframe()) is None  # outside of a stage
