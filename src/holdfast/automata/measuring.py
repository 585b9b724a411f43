"""`measure_compose`: how fast two machines are composed here, with one thread and with more."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from holdfast.automata.composition.composing import compose
from holdfast.automata.fst import Fst
from holdfast.automata.semirings import semiring_of

COPIED_BYTES = 1 << 28


@dataclass(frozen=True)
class Run:
    """Composing with one number of threads."""

    threads: int
    seconds: float
    """The median."""
    ns_per_arc: float | None
    """Of the output; None if it has no arcs."""
    speedup: float
    """Over the first number of threads."""
    bandwidth_share: float
    """Bytes of the output a second, as a share of what a plain copy writes in that time."""


@dataclass(frozen=True)
class Measurement:
    """What composing two machines takes."""

    states: int
    arcs: int
    bytes: int
    """Of the output's arrays."""
    bytes_per_arc: float | None
    copy_bytes_per_s: float
    """Written by a copy of 256 MiB with one thread."""
    repeats: int
    runs: tuple[Run, ...]

    def to_dict(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)


def measure_compose(
    a: Fst, b: Fst, threads: Sequence[int] = (1, 2), repeats: int = 5
) -> Measurement:
    """Compose two machines again and again; the first time, in which code is compiled, does not count.

    Args:
        a: the first machine.
        b: the second.
        threads: the numbers of threads; rounds go over all of them in turn.
        repeats: how many rounds.
    """
    made = compose(a, b, threads=max(threads))
    times: dict[int, list[float]] = {count: [] for count in threads}
    for _ in range(repeats):
        for count in threads:
            begin = time.perf_counter()
            compose(a, b, threads=count)
            times[count].append(time.perf_counter() - begin)
    copied = copy_bytes_per_s()
    medians = {count: statistics.median(spent) for count, spent in times.items()}
    return Measurement(
        made.num_states,
        made.num_arcs,
        made.nbytes,
        made.nbytes / made.num_arcs if made.num_arcs else None,
        copied,
        repeats,
        tuple(
            Run(
                count,
                spent,
                1e9 * spent / made.num_arcs if made.num_arcs else None,
                medians[threads[0]] / spent,
                made.nbytes / spent / copied,
            )
            for count, spent in medians.items()
        ),
    )


def copy_bytes_per_s() -> float:
    """How many bytes a second one thread copies from memory to memory: the best of three."""
    source = np.ones(COPIED_BYTES // 8)
    target = np.zeros_like(source)  # its pages are there before the clock runs
    best = np.inf
    for _ in range(3):
        begin = time.perf_counter()
        np.copyto(target, source)
        best = min(best, time.perf_counter() - begin)
    return COPIED_BYTES / best


def random_graph(
    states: int, degree: int, labels: int, seed: int, semiring: str = "tropical"
) -> Fst:
    """A random acceptor: every state has `degree` arcs, one in seven is final."""
    chance = np.random.default_rng(seed)
    arcs = states * degree
    ring = semiring_of(semiring)
    label = chance.integers(1, labels + 1, arcs).astype(np.int32)
    final = np.where(chance.random(states) < 1 / 7, ring.one, ring.zero).astype(ring.dtype)
    return Fst(
        np.arange(states + 1) * degree,
        label,
        label,
        chance.integers(0, states, arcs).astype(np.int32),
        chance.random(arcs).astype(ring.dtype),
        final,
        0,
        ring,
    )
