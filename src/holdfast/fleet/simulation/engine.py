"""Run a scenario: draw the jobs, let the kernel play the events, and hand over what happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.fleet.simulation.records import Array, Attempts, Failures, Jobs
from holdfast.fleet.simulation.scenario import Scenario


@dataclass(frozen=True)
class Run:
    """One simulated history of a fleet."""

    scenario: Scenario
    seed: int
    days: float
    jobs: Jobs
    attempts: Attempts
    nodes: Array
    """int32: the nodes of all attempts, see `Attempts.node_offset`."""
    failures: Failures
    events: int
    """Events that the kernel processed."""
    seconds: float
    """Wall-clock time that it took."""

    @property
    def end_ms(self) -> int:
        """The simulated time, milliseconds."""
        return round(self.days * 86_400_000)

    @property
    def utilisation(self) -> float:
        """GPU time of attempts over the GPU time of all nodes, those in repair included."""
        a = self.attempts
        ran = a.start_ms >= 0
        end = a.end_ms.copy()
        end[end < 0] = self.end_ms
        busy = float(((end - a.start_ms)[ran] * a.gpus[ran].astype("f8")).sum())
        cluster = self.scenario.cluster
        return busy / (float(self.end_ms) * cluster.nodes * cluster.gpus_per_node)


def run(
    scenario: Scenario,
    *,
    days: float,
    seed: int,
    jobs: Jobs | None = None,
    on_progress: Callable[[float], None] | None = None,
) -> Run:
    """Simulate a scenario.

    Args:
        scenario: what is simulated.
        days: for how long.
        seed: of the random numbers. They are keyed by job and by node, so two scenarios with one seed
            share them.
        jobs: what arrives, in order of submission; None: drawn as the scenario says.
        on_progress: called with the simulated days that are done.

    Returns:
        Every attempt and every failure; the same arguments give the same arrays everywhere.

    Raises:
        InputError: if `jobs` cannot run on the cluster.
    """
    raise NotImplementedError
