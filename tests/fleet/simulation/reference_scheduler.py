"""A slow scheduler to compare with: it recomputes everything from the lists of running and waiting jobs.

The machine has P equal processors and nothing else: no nodes, no failures, no priorities. The rules:

- The queue is in order of submission, then of the job's index.
- A job runs for min(runtime, limit) after its start and is never interrupted.
- Time moves from event to event. At one moment all ends come before all submissions, then the
  queue is gone through once: a processor that a job gives back at t can be used at t, and jobs
  submitted at the same moment are seen together.
- FCFS: jobs start from the head of the queue while they fit; the first that does not fit stops the pass.
- EASY: the job that stopped the pass (the head) gets the only reservation. Its shadow time is the
  first moment at which it would fit if every running job ran to its *limit*; the extra processors
  are those left over at that moment, the head being started. Each later job, in order of the queue,
  starts now if it fits now and either ends, by its limit, not after the shadow time or needs no more
  than the extra processors that are left. (Lifka 1995; Mu'alem and Feitelson 2001.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Job(NamedTuple):
    """What a user submits; times in any integer unit."""

    submit: int
    processors: int
    runtime: int
    limit: int


class Running(NamedTuple):
    """A job that has started."""

    processors: int
    end: int
    latest_end: int
    """Start plus limit: what the scheduler counts with."""


def start_times(jobs: Sequence[Job], processors: int, *, backfill: bool) -> list[int]:
    """When each job starts.

    Args:
        jobs: in any order; ties in the time of submission go by their position.
        processors: of the machine.
        backfill: EASY if true, else FCFS.

    Raises:
        ValueError: a job that can never run, or that takes no time.
    """
    for job in jobs:
        if not 0 < job.processors <= processors or min(job.runtime, job.limit) <= 0:
            raise ValueError(f"{job} on {processors} processors")
    to_come = sorted(range(len(jobs)), key=lambda index: (jobs[index].submit, index))
    queue: list[int] = []
    running: list[Running] = []
    starts = [-1] * len(jobs)
    while to_come or running:
        ends = [job.end for job in running]
        now = min(ends + [jobs[index].submit for index in to_come[:1]])
        running = [job for job in running if job.end > now]
        while to_come and jobs[to_come[0]].submit == now:
            queue.append(to_come.pop(0))
        for index in chosen(now, queue, running, jobs, processors, backfill):
            job = jobs[index]
            starts[index] = now
            queue.remove(index)
            running.append(
                Running(job.processors, now + min(job.runtime, job.limit), now + job.limit)
            )
    return starts


def chosen(
    now: int,
    queue: Sequence[int],
    running: Sequence[Running],
    jobs: Sequence[Job],
    processors: int,
    backfill: bool,
) -> list[int]:
    """The jobs of the queue that start now, in the order in which they were found."""
    counted = list(running)  # and those that this pass starts

    def free_at(moment: int) -> int:
        """Processors that are free then, if every job runs to its limit."""
        return processors - sum(job.processors for job in counted if job.latest_end > moment)

    def fits_now(index: int) -> bool:
        in_use = sum(job.processors for job in counted)
        return jobs[index].processors <= processors - in_use

    def start(index: int) -> None:
        job = jobs[index]
        found.append(index)
        counted.append(Running(job.processors, now + job.runtime, now + job.limit))

    found: list[int] = []
    for index in queue:
        if not fits_now(index):
            break
        start(index)
    waiting = queue[len(found) :]
    if not (waiting and backfill):
        return found
    head = jobs[waiting[0]]
    moments = sorted(job.latest_end for job in counted)
    shadow = next(moment for moment in moments if free_at(moment) >= head.processors)
    for index in waiting[1:]:
        extra = free_at(shadow) - head.processors
        ends_in_time = now + jobs[index].limit <= shadow
        if fits_now(index) and (ends_in_time or jobs[index].processors <= extra):
            start(index)
    return found
