"""One gang through AIReSim (github.com/karthikp-ubc/airesim); run by an environment that has SimPy.

    PEERS/venv/bin/python benchmarks/fleet_airesim.py AIRESIM '{"nodes": 4096, ...}'

Simulates one training job on many servers from start to end for some seeds. Prints the seconds a run,
the SimPy events of a run (counted in a run that is not timed), and what became of the job.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    sys.path.insert(0, str(Path(sys.argv[1]).resolve()))
    given = json.loads(sys.argv[2])
    import simpy
    from airesim.simulator import Simulator

    parameters = _parameters(given)
    begin = time.perf_counter()
    done = [Simulator(parameters, seed=seed).run() for seed in range(given["runs"])]
    seconds = (time.perf_counter() - begin) / given["runs"]

    events, step = [0], simpy.Environment.step

    def counted(self: Any) -> None:
        events[0] += 1
        step(self)

    simpy.Environment.step = counted
    Simulator(parameters, seed=0).run()
    print(
        json.dumps(
            {
                "seconds": seconds,
                "events": events[0],
                "failures": statistics.mean(run.total_failures for run in done),
                "days": statistics.mean(run.total_training_time for run in done) / 1440,
            }
        )
    )


def _parameters(given: dict[str, Any]) -> Any:
    """The job in AIReSim's terms: minutes, all servers alike."""
    from airesim.params import Params

    return Params(
        random_failure_rate=given["rate_per_node_day"] / 1440,
        systematic_failure_fraction=0.0,
        recovery_time=given["init_s"] / 60,
        host_selection_time=0.0,
        job_size=given["nodes"],
        job_length=given["productive_days"] * 1440,
        warm_standbys=given["spare"],
        working_pool_size=given["nodes"] + given["spare"],
        spare_pool_size=given["spare"],
        auto_repair_time=given["repair_s"] / 60,
        prob_auto_to_manual=0.0,
    )


if __name__ == "__main__":
    main()
