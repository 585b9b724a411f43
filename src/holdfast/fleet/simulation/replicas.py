"""Many simulations at once: independent tasks for the processes of this machine, or for Ray.

A task is a scenario, a length and a seed: a few kilobytes. What comes back is an `Outcome`, a few
more. Neither the number of processes nor the order in which they finish changes any number.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from holdfast.errors import HoldfastError, MissingExtraError
from holdfast.fleet.simulation.outcomes import Outcome, outcome
from holdfast.fleet.simulation.scenario import Scenario
from holdfast.progress import track

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class Task:
    """One simulation."""

    scenario: Scenario
    days: float
    seed: int


def simulated(task: Task) -> Outcome:
    """Play one simulation and count what happened."""
    from holdfast.fleet.simulation.engine import run

    return outcome(run(task.scenario, days=task.days, seed=task.seed))


def play(
    tasks: Sequence[Task],
    *,
    processes: int | None = None,
    ray: str | None = None,
    on_progress: OnProgress | None = None,
    work: Callable[[Task], Outcome] = simulated,
) -> list[Outcome]:
    """Play simulations side by side.

    Args:
        tasks: what to play; those that are equal are played once.
        processes: of this machine; None: one for each of its processors. 1: all in this process.
        ray: the address of a Ray cluster, such as ``ray://head:10001``; ``local`` starts one here.
        on_progress: called with the tasks done and their number, from 0 on.
        work: what to do with a task; a function that other processes can import.

    Returns:
        The outcomes in the order of the tasks.

    Raises:
        MissingExtraError: if Ray is asked for and not installed.
        HoldfastError: if a process ended before its work was done.
    """
    different = list(dict.fromkeys(_key(task) for task in tasks))
    of_key = {_key(task): task for task in tasks}
    once = [of_key[key] for key in different]
    report = on_progress or (lambda done, total: None)
    report(0, len(once))
    found: dict[tuple[str, float, int], Outcome] = {}
    with track("simulating", len(once), "simulations") as bar:
        for place, result in _results(once, _processes(processes, len(once)), ray, work):
            found[different[place]] = result
            bar.advance(1)
            report(len(found), len(once))
    return [found[_key(task)] for task in tasks]


def _key(task: Task) -> tuple[str, float, int]:
    """What makes tasks equal."""
    return task.scenario.to_toml(), task.days, task.seed


def _processes(asked: int | None, tasks: int) -> int:
    if asked is None:
        # The processors that this process may use, where the system tells.
        asked = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(asked or 1, tasks))


def _results(
    tasks: Sequence[Task], processes: int, ray: str | None, work: Callable[[Task], Outcome]
) -> Iterator[tuple[int, Outcome]]:
    """(place of the task, its outcome), as they are done."""
    if ray is not None:
        yield from _by_ray(tasks, ray, work)
    elif processes == 1:
        for place, task in enumerate(tasks):
            yield place, work(task)
    else:
        yield from _by_processes(tasks, processes, work)


# --- Processes of this machine -------------------------------------------------------------------


def _by_processes(
    tasks: Sequence[Task], processes: int, work: Callable[[Task], Outcome]
) -> Iterator[tuple[int, Outcome]]:
    with _pool(processes) as pool:
        places = {pool.submit(work, task): place for place, task in enumerate(tasks)}
        while places:
            done, _ = wait(places, return_when=FIRST_COMPLETED)
            for each in done:
                try:
                    yield places.pop(each), each.result()
                except BrokenProcessPool as error:
                    raise HoldfastError(
                        "a process that simulates ended before its work was done: memory may be "
                        "short, or a script calls this outside `if __name__ == '__main__':`\n"
                        "  remedy: fewer processes; processes=1 stays in this one"
                    ) from error


@contextmanager
def _pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end at once when the block is left before they are done."""
    pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=_warm_up)
    running = pool._processes  # the pool forgets it when one of them dies
    try:
        yield pool
    except BaseException:
        # Compiled code does not hear a signal to the interpreter: without this, an interruption waits
        # for the simulations that are under way.
        for worker in list(running.values()):
            worker.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _warm_up() -> None:
    """Load the compiled kernel; an interruption is the parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from holdfast.fleet.simulation import engine  # noqa: F401


# --- Ray -----------------------------------------------------------------------------------------


def _by_ray(
    tasks: Sequence[Task], address: str, work: Callable[[Task], Outcome]
) -> Iterator[tuple[int, Outcome]]:
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("ray", "ray") from error

    ours = not ray.is_initialized()
    if ours:
        here: dict[str, Any] = {} if address == "local" else {"address": address}
        try:
            ray.init(log_to_driver=False, **here)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise HoldfastError(f"Ray at {address} does not answer: {error}") from error
    try:
        remote = ray.remote(work)
        places = {remote.remote(task): place for place, task in enumerate(tasks)}
        while places:
            done, _ = ray.wait(list(places), num_returns=1)
            for each in done:
                yield places.pop(each), ray.get(each)
    finally:
        if ours:
            ray.shutdown()
