"""The jobs that wait: one list a class of service, merged in the order of priority."""

from __future__ import annotations

from holdfast.fleet.simulation.kernel.compiling import compiled
from holdfast.fleet.simulation.kernel.state import QUEUED, Simulation, wide


@compiled
def enqueue(sim: Simulation, job: int) -> None:
    """Put a job where its turn is, which is nearly always the end."""
    jobs = sim.jobs
    mine = sim.jobs[job]
    queue = sim.classes[mine.qos]
    ahead = queue.tail
    while ahead >= 0 and (
        jobs[ahead].turn > mine.turn or (jobs[ahead].turn == mine.turn and ahead > job)
    ):
        ahead = jobs[ahead].before
    behind = queue.head if ahead < 0 else jobs[ahead].following
    mine.before, mine.following = ahead, behind
    if ahead < 0:
        queue.head = job
    else:
        jobs[ahead].following = job
    if behind < 0:
        queue.tail = job
    else:
        jobs[behind].before = job
    sim.counters[QUEUED] += 1


@compiled
def dequeue(sim: Simulation, job: int) -> None:
    """Take a job out of the queue."""
    jobs = sim.jobs
    mine = sim.jobs[job]
    queue = sim.classes[mine.qos]
    if mine.before < 0:
        queue.head = mine.following
    else:
        jobs[mine.before].following = mine.following
    if mine.following < 0:
        queue.tail = mine.before
    else:
        jobs[mine.following].before = mine.before
    sim.counters[QUEUED] -= 1


@compiled
def rewind(sim: Simulation) -> None:
    """Begin to go through the queue."""
    for c in range(sim.classes.size):
        sim.classes[c].cursor = sim.classes[c].head


@compiled
def following(sim: Simulation) -> int:
    """The next job in the order of priority; -1: there is none."""
    best = -1
    first = 0
    for c in range(sim.classes.size):
        job = sim.classes[c].cursor
        if job >= 0:
            key = sim.classes[c].weight + sim.jobs[job].turn
            if best < 0 or key < first:
                best = c
                first = key
    if best < 0:
        return -1
    job = sim.classes[best].cursor
    sim.classes[best].cursor = sim.jobs[job].following
    return wide(job)
