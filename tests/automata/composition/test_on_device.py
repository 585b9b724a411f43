"""Composition in torch: equal to the plain search in every bit, on the CPU and on another device."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from elsewhere import ELSEWHERE, elsewhere
from machines import random_fst
from plain_composition import compose_plainly, same_bytes

from holdfast.automata import Fst
from holdfast.automata.composition import filters
from holdfast.automata.composition.composing import compose
from holdfast.automata.composition.device_numbering import Numbering, first_occurrences
from holdfast.automata.composition.device_trimming import Block, coaccessible
from holdfast.automata.composition.on_device import (
    DeviceComposition,
    compose_on_device,
    composed_tensors,
)
from holdfast.errors import InputError, LimitError

CPU = torch.device("cpu")
NAMES: tuple[filters.FilterName, ...] = ("sequence", "alt_sequence", "match", "trivial", "null")
SEMIRINGS = ("tropical", "log", "log64", "probability", "boolean")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    # Threads that wait for each other's small parts are slow where others need the cores.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def machine_of(made: DeviceComposition, like: Fst) -> Fst:
    arrays = {name: getattr(made, name).cpu().numpy() for name in DeviceComposition._fields[:6]}
    if not len(arrays["final"]):
        return Fst.empty(like.semiring)
    return Fst(**arrays, start=0, semiring=like.semiring)


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("connect", [True, False])
def test_it_is_the_plain_composition_in_every_bit(name: filters.FilterName, connect: bool) -> None:
    for seed in range(24):
        epsilons = (0.0, 0.2, 0.5)[seed % 3]
        semiring = SEMIRINGS[seed % 5]
        a, b = (
            random_fst(seed + k, semiring=semiring, epsilons=epsilons, states=4 + seed % 4)
            for k in (0, 1000)
        )
        # Small steps and the table of sorted runs must not make a difference.
        small = seed % 2 == 1
        made = composed_tensors(
            a,
            b,
            connect,
            name,
            CPU,
            step_arcs=5 if small else 1 << 20,
            step_states=3 if small else 1 << 20,
            dense_bytes=0 if seed % 4 > 1 else 1 << 20,
        )
        plain = compose_plainly(a, b, connect, name)
        assert same_bytes(machine_of(made, a), plain.machine), seed
        assert made.arc_a.tolist() == plain.arc_a
        assert made.arc_b.tolist() == plain.arc_b
        assert made.state_a.tolist() == [state for state, _, _ in plain.states]
        assert made.state_b.tolist() == [state for _, state, _ in plain.states]


def test_large_machines_are_composed_as_on_the_cpu() -> None:
    for seed, labels in ((1, 8), (2, 40)):
        a, b = (
            random_fst(seed + k, states=100, arcs=1000, labels=labels, semiring="log")
            for k in (0, 10)
        )
        expected, arcs = compose(a, b, return_arc_map=True)
        made, arcs_too = compose_on_device(a, b, return_arc_map=True)
        assert same_bytes(made, expected)
        assert np.array_equal(arcs.a, arcs_too.a)
        assert np.array_equal(arcs.b, arcs_too.b)
        assert same_bytes(compose(a, b, device="cpu"), expected)


def test_numbers_that_need_64_bits() -> None:
    # 3.6e9 pairs of states, of which few are found; labels up to the highest there is.
    count, highest = 60_000, 2**31 - 1
    star = Fst.build(
        [(0, s, s, 0.5, s) for s in range(1, count)], range(count // 2, count), semiring="log"
    )
    wide = star.with_(
        ilabel=highest - star.ilabel, olabel=highest - star.ilabel, nextstate=star.nextstate[::-1]
    )
    for a, b in ((star, star), (wide, wide), (star, wide)):
        made = compose_on_device(a, b)
        assert same_bytes(made, compose(a, b))
        assert made.num_states == 0 if a is not b else count // 2 + 1


def test_machines_with_nothing_in_them() -> None:
    empty, machine = Fst.empty(semiring="log"), random_fst(1, semiring="log")
    no_arcs = Fst.build([], [0], semiring="log")
    for a, b in ((empty, machine), (machine, empty), (empty, empty), (no_arcs, machine)):
        for first, second in ((a, b), (b, a)):
            plain = compose_plainly(first, second).machine
            assert same_bytes(compose_on_device(first, second), plain)


@pytest.mark.parametrize("epsilons", [0.0, 0.3])
def test_nothing_mixes_devices(epsilons: float) -> None:
    for seed in range(2):
        shape = {"states": 8, "arcs": 20, "epsilons": epsilons}
        a, b = (random_fst(seed + k, semiring="log", **shape) for k in (0, 100))
        for dense_bytes in (0, 1 << 20):
            with elsewhere():
                made = composed_tensors(a, b, True, "match", ELSEWHERE, dense_bytes=dense_bytes)
                assert all(tensor.device == ELSEWHERE for tensor in made)
                arrived = machine_of(made, a)
            assert same_bytes(arrived, compose_plainly(a, b, filter="match").machine)


@pytest.mark.parametrize("trims", [False, True])
def test_a_level_waits_for_the_device_four_times(trims: bool) -> None:
    counts = []
    for length in (6, 14):
        arcs = [(s, 1, 1, 0.0, s + 1) for s in range(length)]
        # A dead end: then arcs are left out, which waits once more a level.
        arcs += [(0, 1, 1, 0.0, length + 1)] * trims
        chain = Fst.build(arcs, [length], states=length + 2, semiring="log")
        with elsewhere() as waits:
            composed_tensors(chain, chain, True, "auto", ELSEWHERE)
        counts.append(waits.total())
    assert counts[1] - counts[0] == (5 if trims else 4) * (14 - 6)


def test_long_ways_back_to_a_final_state_are_found() -> None:
    # All states are found in one level, and each reaches the final one only through the one before it.
    count = 50
    arcs = [(0, s, s, 0.0, s) for s in range(1, count)]
    arcs += [(s, count, count, 0.0, s - 1) for s in range(2, count)]
    arcs += [(0, count + 1, count + 1, 0.0, count)]  # a dead end
    comb = Fst.build(arcs, [1], states=count + 1, semiring="log")
    everything = Fst.build([(0, s, s, 0.0, 0) for s in range(1, count + 2)], [0], semiring="log")
    made = compose_on_device(comb, everything)
    assert made.num_states == count
    assert same_bytes(made, compose_plainly(comb, everything).machine)


def test_states_that_reach_a_final_one_by_brute_force() -> None:
    for seed in range(60):
        machine = random_fst(seed, states=12, arcs=16, finals=0.1)
        blocks = []
        for first in range(0, 12, 5):
            last = min(first + 5, 12)
            begin, end = machine.offsets[first], machine.offsets[last]
            ends = torch.from_numpy(machine.offsets[first + 1 : last + 1] - begin)
            nextstate = torch.from_numpy(machine.nextstate[begin:end].copy())
            blocks.append(Block(first, ends, nextstate, nextstate, nextstate))
        expected = np.isfinite(machine.final)
        for _ in range(12):
            np.logical_or.at(expected, machine.source, expected[machine.nextstate])
        reaches = coaccessible(blocks, torch.from_numpy(np.isfinite(machine.final)))
        assert reaches.tolist() == expected.tolist()


def test_first_occurrences_and_numbers() -> None:
    generator = np.random.default_rng(7)
    tables = [Numbering(1000, torch.int64, CPU, dense_bytes=size) for size in (0, 1 << 20)]
    seen: dict[int, int] = {}
    for _ in range(40):
        keys = generator.integers(0, 1000, generator.integers(1, 60))
        expected = [seen.setdefault(key, len(seen)) for key in keys.tolist()]
        for table in tables:
            assert table.number(torch.from_numpy(keys))[0].tolist() == expected
        new, place = first_occurrences(torch.from_numpy(keys))
        distinct = list(dict.fromkeys(keys.tolist()))
        assert new.tolist() == distinct
        assert place.tolist() == [distinct.index(key) for key in keys.tolist()]


def test_limits_and_wrong_devices_are_refused() -> None:
    a, b = (random_fst(seed, states=10, arcs=60, semiring="log") for seed in (1, 2))
    with pytest.raises(LimitError, match="allowed: 5 states"):
        compose_on_device(a, b, max_states=5)
    with pytest.raises(InputError, match="semirings"):
        compose_on_device(a, b.as_semiring("tropical"))
    for device in ("nowhere", "cuda:77"):
        with pytest.raises(InputError, match=f"found: {device}"):
            compose_on_device(a, b, device=device)
