"""Sums over paths, against OpenFST, against linear algebra and against every path listed."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
import pywrapfst
from machines import costs, random_fst
from openfst import to_openfst

from holdfast.automata import Fst
from holdfast.automata.path_sums import _kernels as kernels
from holdfast.automata.path_sums import distances as module
from holdfast.automata.path_sums.distances import forward_score, shortest_distance, state_distances
from holdfast.automata.path_sums.large_components import solve
from holdfast.errors import InputError

SEEDS = range(150)


def some_machine(seed: int, semiring: str) -> Fst:
    return random_fst(
        seed,
        states=1 + seed % 11,
        arcs=(seed * 7) % 32,
        semiring=semiring,
        acyclic=seed % 3 == 0,
    )


def from_linear_algebra(f: Fst, reverse: bool) -> tuple[float, npt.NDArray[np.float64]]:
    """The spectral radius of the arcs' probabilities, and the sums as the solution of x = A x + b."""
    weight, final = f.weight.astype(float), f.final.astype(float)
    if f.semiring.is_negative_log:
        weight, final = np.exp(-weight), np.exp(-final)
    arcs = np.zeros((f.num_states, f.num_states))
    np.add.at(arcs, (f.source, f.nextstate), weight)
    radius = float(np.abs(np.linalg.eigvals(arcs)).max())
    ends = final if reverse else np.eye(f.num_states)[f.start]
    system = np.eye(f.num_states) - (arcs if reverse else arcs.T)
    return radius, np.linalg.solve(system, ends)


@pytest.mark.parametrize("reverse", [False, True])
def test_tropical_sums_are_those_of_openfst(reverse: bool) -> None:
    for seed in SEEDS:
        f = some_machine(seed, "tropical")
        theirs = [
            float(str(one).replace("Infinity", "inf"))
            for one in pywrapfst.shortestdistance(to_openfst(f), reverse=reverse)
        ]
        theirs += [math.inf] * (f.num_states - len(theirs))
        assert state_distances(f, reverse).tolist() == theirs, seed


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("semiring", ["log", "log64", "probability"])
def test_sums_are_the_solution_of_the_linear_system(semiring: str, reverse: bool) -> None:
    summed = diverged = 0
    for seed in SEEDS:
        f = some_machine(seed, semiring)
        radius, expected = from_linear_algebra(f, reverse)
        try:
            found = state_distances(f, reverse)
        except InputError:
            assert radius >= 1 - 1e-12, seed
            diverged += 1
            continue
        if radius < 1:  # else the cycle that diverges is not on the way
            found = np.exp(-found) if f.semiring.is_negative_log else found
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12, err_msg=str(seed))
            summed += 1
    assert summed > 100
    assert diverged or semiring == "probability"
