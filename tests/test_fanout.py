"""Independent tasks side by side: the same outcomes anywhere, and clean ends."""

from __future__ import annotations

import decimal
import functools
import math
import multiprocessing
import operator
import os
import sys
from typing import Any

import pytest

from holdfast.errors import HoldfastError, MissingExtraError
from holdfast.fanout import fan_out

TASKS = list(range(12))


def test_processes_change_nothing() -> None:
    alone = list(fan_out(TASKS, math.factorial, processes=1))
    assert alone == [(place, math.factorial(task)) for place, task in enumerate(TASKS)]
    assert sorted(fan_out(TASKS, math.factorial, processes=2)) == alone
    assert not multiprocessing.active_children()


def test_one_process_needs_no_importable_work() -> None:
    assert list(fan_out(["a"], lambda task: task * 2, processes=8)) == [(0, "aa")]
    assert list(fan_out([], lambda task: task)) == []


def test_an_error_of_the_work_is_raised_here() -> None:
    with pytest.raises(ValueError, match="negative"):
        list(fan_out([3, -1], math.factorial, processes=2))
    assert not multiprocessing.active_children()


def test_a_process_that_dies_is_told() -> None:
    with pytest.raises(HoldfastError, match="ended before its work was done"):
        list(fan_out([1, 1], os._exit, processes=2))
    assert not multiprocessing.active_children()


def test_leaving_early_leaves_no_process() -> None:
    outcomes = fan_out(TASKS, math.factorial, processes=2)
    next(outcomes)
    outcomes.close()  # type: ignore[attr-defined]
    assert not multiprocessing.active_children()


def test_what_to_load_is_loaded_in_each_process() -> None:
    rounded = functools.partial(decimal.setcontext, decimal.Context(prec=3))
    tasks = [decimal.Decimal("1.23456")] * 2
    found = fan_out(tasks, operator.pos, processes=2, warm_up=rounded)
    assert [str(outcome) for _, outcome in found] == ["1.23", "1.23"]


def test_ray_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"holdfast\[ray\]"):
        list(fan_out(TASKS, math.factorial, ray="local"))


def test_ray_gives_the_same_answers() -> None:
    ray: Any = pytest.importorskip("ray")
    found = sorted(fan_out(TASKS, math.factorial, ray="local"))
    assert found == list(fan_out(TASKS, math.factorial, processes=1))
    assert not ray.is_initialized()
