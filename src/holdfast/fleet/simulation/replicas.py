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
        tasks: what to play; those that are equal are played once.
        processes: of this machine; None: one for each of its processors. 1: all in this process.
        ray: the address of a Ray cluster, such as ``ray://head:10001``; ``local`` starts one here.

    Returns:
        The outcomes in the order of the tasks.

    Raises:
        MissingExtraError: if Ray is asked for and not installed.
        HoldfastError: if a process ended before its work was done.
    """
    keys = [(task.scenario.to_toml(), task.days, task.seed) for task in tasks]
    once = dict(zip(keys, tasks, strict=True))
    outcomes = {}
    with track("simulating", len(once), "simulations") as bar:
        results = fan_out(
            [*once.values()], simulated, processes=processes, ray=ray, warm_up=_warm_up
        )
        for place, result in results:
            outcomes[place] = result
            bar.advance(1)
    places = {key: place for place, key in enumerate(once)}
    return [outcomes[places[key]] for key in keys]


def _warm_up() -> None:
    """Load the compiled kernel."""
    from holdfast.fleet.simulation import engine  # noqa: F401
