"""Many independent tasks: for the processes of this machine by default, or for Ray by URL."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, TypeVar

from holdfast.errors import HoldfastError, MissingExtraError

Task = TypeVar("Task")
Outcome = TypeVar("Outcome")


def fan_out(
    tasks: Sequence[Task],
    work: Callable[[Task], Outcome],
    *,
    processes: int | None = None,
    ray: str | None = None,
    warm_up: Callable[[], object] | None = None,
) -> Iterator[tuple[int, Outcome]]:
    """Do tasks side by side.

    Neither the number of processes nor Ray changes an outcome, only the order in which they come. Leaving
    the loop early (an interruption, an error) ends every process at once.

    Args:
        tasks: what to do, each small enough to be sent to another process.
        work: what to do with a task; for more than one process a function that others can import.
        processes: of this machine; None: one for each of its processors. 1: all in this process.
        ray: the address of a Ray cluster, such as ``ray://head:10001``; ``local`` starts one here.
        warm_up: called once in each new process of this machine, in front of its first task: what to load.

    Yields:
        (place of the task, its outcome), as they are done.

    Raises:
        MissingExtraError: if Ray is asked for and not installed.
        HoldfastError: if a process ended before its work was done, or Ray does not answer.
    """
    processes = _processes(processes, len(tasks))
    if ray is not None:
        yield from _by_ray(tasks, work, ray)
    elif processes == 1:
        for place, task in enumerate(tasks):
            yield place, work(task)
    else:
        yield from _by_processes(tasks, work, processes, warm_up)


def _processes(asked: int | None, tasks: int) -> int:
    if asked is None:
        # The processors that this process may use, where the system tells.
        asked = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(asked or 1, tasks))


# --- Processes of this machine -------------------------------------------------------------------


def _by_processes(
    tasks: Sequence[Task],
    work: Callable[[Task], Outcome],
    processes: int,
    warm_up: Callable[[], object] | None,
) -> Iterator[tuple[int, Outcome]]:
    with _pool(processes, warm_up) as pool:
        places = {pool.submit(work, task): place for place, task in enumerate(tasks)}
        while places:
            done, _ = wait(places, return_when=FIRST_COMPLETED)
            for each in done:
                try:
                    yield places.pop(each), each.result()
                except BrokenProcessPool as error:
                    raise HoldfastError(
                        "a worker process ended before its work was done: memory may be short, or a "
                        "script calls this outside `if __name__ == '__main__':`\n"
                        "  remedy: fewer processes; processes=1 stays in this one"
                    ) from error


@contextmanager
def _pool(processes: int, warm_up: Callable[[], object] | None) -> Iterator[ProcessPoolExecutor]:
    """Processes that end at once when the block is left before they are done."""
    pool = ProcessPoolExecutor(
        processes, get_context("spawn"), initializer=_prepare, initargs=(warm_up,)
    )
    running = pool._processes  # the pool forgets it when one of them dies
    try:
        yield pool
    except BaseException:
        # Compiled code does not hear a signal to the interpreter: without this, an interruption waits
        # for the tasks that are under way.
        for worker in list(running.values()):
            worker.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare(warm_up: Callable[[], object] | None) -> None:
    """Leave an interruption to the parent; load what the work needs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if warm_up is not None:
        warm_up()


# --- Ray -----------------------------------------------------------------------------------------


def _by_ray(
    tasks: Sequence[Task], work: Callable[[Task], Outcome], address: str
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
