"""Future events, the next one first: a binary heap."""

from __future__ import annotations

from holdfast.fleet.simulation.kernel.compiling import compiled
from holdfast.fleet.simulation.kernel.state import HEAP_SIZE, SEQUENCE, Simulation


@compiled
def plan(sim: Simulation, time: int, kind: int, index: int, generation: int) -> None:
    """Add an event."""
    heap = sim.heap
    counters = sim.counters
    order = (kind << 56) | counters[SEQUENCE]
    counters[SEQUENCE] += 1
    place = counters[HEAP_SIZE]
    counters[HEAP_SIZE] += 1
    while place > 0:
        parent = (place - 1) >> 1
        above = heap[parent]
        if above.time < time or (above.time == time and above.order < order):
            break
        heap[place] = above
        place = parent
    event = heap[place]
    event.time, event.order, event.index, event.generation = time, order, index, generation


@compiled
def drop_first(sim: Simulation) -> None:
    """Remove the next event."""
    heap = sim.heap
    sim.counters[HEAP_SIZE] -= 1
    size = sim.counters[HEAP_SIZE]
    last = heap[size]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        below = heap[child]
        if child + 1 < size:
            other = heap[child + 1]
            if other.time < below.time or (other.time == below.time and other.order < below.order):
                child += 1
                below = other
        if last.time < below.time or (last.time == below.time and last.order < below.order):
            break
        heap[place] = below
        place = child
    heap[place] = last
