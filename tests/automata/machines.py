"""Random machines, and what they mean by brute force: every path, listed."""

from __future__ import annotations

import math
import random
from collections import defaultdict

from holdfast.automata import Fst

Strings = tuple[tuple[int, ...], tuple[int, ...]]


def random_fst(
    seed: int,
    *,
    states: int = 5,
    arcs: int = 10,
    labels: int = 3,
    epsilons: float = 0.2,
    acyclic: bool = False,
    acceptor: bool = False,
    finals: float = 0.4,
    semiring: str = "tropical",
) -> Fst:
    """A random machine; weights are multiples of 1/8, which text and float32 keep exactly.

    Args:
        seed: of the generator.
        states: V.
        arcs: E.
        labels: labels are 1 to this.
        epsilons: the chance that a side of an arc has label 0.
        acyclic: arcs lead to states of higher number only.
        acceptor: both sides of an arc have one label.
        finals: the chance that a state is final; the last one always is.
        semiring: of the weights; in `probability` they are at most 1/8.
    """
    chance = random.Random(seed)

    def label() -> int:
        return 0 if chance.random() < epsilons else chance.randint(1, labels)

    def weight() -> float:
        if semiring == "boolean":
            return 1.0
        if semiring == "probability":
            return chance.randint(1, 8) / 64
        return chance.randint(1, 32) / 8

    made = []
    for _ in range(arcs):
        source, target = chance.randrange(states), chance.randrange(states)
        if acyclic:
            if source == target:
                continue
            source, target = min(source, target), max(source, target)
        left = label()
        made.append((source, left, left if acceptor else label(), weight(), target))
    final = {s: weight() for s in range(states) if s == states - 1 or chance.random() < finals}
    return Fst.build(made, final, states=states, semiring=semiring)


def costs(machine: Fst) -> float:
    """-log of the sum of the weights of all paths of an acyclic machine with costs as weights."""
    return -_log_sum([-cost for all_of in path_costs(machine).values() for cost in all_of])


def path_costs(machine: Fst) -> dict[Strings, list[float]]:
    """(input string, output string) -> the cost of every path with them, epsilons left out.

    For acyclic machines with costs (tropical, log, log64); every path is listed, each once.
    """
    found: dict[Strings, list[float]] = defaultdict(list)
    if not machine.num_states:
        return found
    finals = machine.finals
    waiting: list[tuple[int, tuple[int, ...], tuple[int, ...], float]] = [
        (machine.start, (), (), 0.0)
    ]
    while waiting:
        state, left, right, cost = waiting.pop()
        if state in finals:
            found[left, right].append(cost + finals[state])
        waiting += [
            (
                arc.nextstate,
                left + (arc.ilabel,) * (arc.ilabel != 0),
                right + (arc.olabel,) * (arc.olabel != 0),
                cost + arc.weight,
            )
            for arc in machine.arcs(state)
        ]
    return found


def relation(machine: Fst) -> dict[Strings, float]:
    """(input string, output string) -> -log of the sum over its paths; acyclic machines with costs."""
    return {
        strings: -_log_sum([-cost for cost in all_of])
        for strings, all_of in path_costs(machine).items()
    }


def composed(first: Fst, second: Fst) -> dict[Strings, list[float]]:
    """What a composition must mean: the path costs of both, joined over the inner string."""
    inner: dict[tuple[int, ...], list[tuple[tuple[int, ...], float]]] = defaultdict(list)
    for (left, right), all_of in path_costs(second).items():
        inner[left] += [(right, cost) for cost in all_of]
    found: dict[Strings, list[float]] = defaultdict(list)
    for (left, middle), all_of in path_costs(first).items():
        for right, cost in inner[middle]:
            found[left, right] += [one + cost for one in all_of]
    return found


def _log_sum(logs: list[float]) -> float:
    highest = max(logs, default=-math.inf)
    if highest == -math.inf:
        return highest
    return highest + math.log(math.fsum(math.exp(one - highest) for one in logs))
