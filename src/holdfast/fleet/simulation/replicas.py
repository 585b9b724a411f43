"""Many simulations at once: independent tasks for the processes of this machine, or for Ray.

A task is a scenario, a length and a seed: a few kilobytes. What comes back is an `Outcome`, a few
more. Neither the number of processes nor the order in which they finish changes any number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.fanout import fan_out
from holdfast.fleet.simulation.outcomes import Outcome, outcome
from holdfast.fleet.simulation.scenario import Scenario
from holdfast.progress import track


class Task(NamedTuple):
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
) -> list[Outcome]:
    """Play simulations side by side.

    Args:
        tasks: what to play.
        processes: of this machine; None: one for each of its processors. 1: all in this process.
        ray: the address of a Ray cluster, such as ``ray://head:10001``; ``local`` starts one here.

    Returns:
        The outcomes in the order of the tasks.

    Raises:
        MissingExtraError: if Ray is asked for and not installed.
        HoldfastError: if a process ended before its work was done.
    """
    outcomes = {}
    with track("simulating", len(tasks), "simulations") as bar:
        for place, result in fan_out(
            tasks, simulated, processes=processes, ray=ray, warm_up=_warm_up
        ):
            outcomes[place] = result
            bar.advance(1)
    return [outcomes[place] for place in range(len(tasks))]


def _warm_up() -> None:
    """Load the compiled kernel."""
    from holdfast.fleet.simulation import engine  # noqa: F401
