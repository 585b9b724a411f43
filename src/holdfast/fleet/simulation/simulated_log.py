"""Simulate a fleet into a store that every analysis reads as it reads a real log."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.answer import Answer, Finding
from holdfast.fleet.simulation.log_writing import check_output, write_log
from holdfast.fleet.simulation.scenario import Scenario
from holdfast.fleet.simulation.scenario import scenario as read_scenario
from holdfast.numbers import counted, duration, percent
from holdfast.progress import track


@dataclass(frozen=True)
class Simulated(Answer):
    """What a simulation did, and where its store is."""

    jobs: int  # Job ids that were submitted
    attempts: int  # Executions that started
    events: int  # Events that the simulation went through
    seconds: float  # Wall-clock time of the simulation, without writing the store
    # GPU time of attempts over the GPU time of all nodes, those in repair included.
    utilisation: float
    store: str

    def to_dict(self) -> dict[str, Any]:
        """The fields and the speed of the simulation."""
        speed = self.events / self.seconds if self.seconds else math.inf
        return {**super().to_dict(), "events_per_second": speed}

    def findings(self) -> list[Finding]:
        """One sentence."""
        return [
            Finding(
                f"{counted(self.jobs, 'job')} with {counted(self.attempts, 'attempt')} used "
                f"{percent(self.utilisation)} of the GPU time; {counted(self.events, 'event')} in "
                f"{duration(self.seconds)}."
            )
        ]

    def written(self) -> dict[str, Path]:
        """The store."""
        return {"store": Path(self.store)}


def simulate(
    scenario: str | Path | Scenario,
    output: str | Path,
    *,
    days: float,
    seed: int = 1,
    on_progress: Callable[[float], None] | None = None,
) -> Simulated:
    """Simulate a fleet and write its log.

    The store is the one that `ingest` makes of the logs of such a cluster; ``truth.json`` beside its
    tables says what was injected. It appears when it is complete; until then nothing is there.

    Args:
        scenario: a scenario, the name of a preset (``"rsc1"``, ``"rsc2"``, ``"small"``), or a TOML file.
        output: the folder of the store: new, empty, or an earlier simulation, which is replaced.
        days: for how long.
        seed: of the random numbers: the same one gives the same store on every machine.
        on_progress: called with the simulated days that are done.

    Returns:
        Counts and speed.

    Raises:
        InputError: if the scenario says something impossible (its key is named), or `days` or `seed` do.
        StoreError: if the store cannot be written, or something else stands there.
    """
    from holdfast.fleet.simulation.engine import SLICES, run

    loaded = read_scenario(scenario)
    check_output(Path(output).resolve())
    with track(f"simulating {loaded.name}", days, "days") as bar:

        def advance(done: float) -> None:
            bar.advance(days / SLICES)
            if on_progress is not None:
                on_progress(done)

        history = run(loaded, days=days, seed=seed, on_progress=advance)
        bar.describe("writing")
        store = write_log(history, output)
    jobs = len(history.jobs.submit_ms)
    attempts = int((history.attempts.start_ms >= 0).sum())
    return Simulated(
        jobs, attempts, history.events, history.seconds, history.utilisation, store=str(store.path)
    )
