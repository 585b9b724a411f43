"""One workload through AccaSim 1.1.3 (PyPI); a script of its own, run by an environment that has it.

    PEERS/venv/bin/python benchmarks/fleet_accasim.py jobs.swf FOLDER PROCESSORS

First in, first out with first fit, the machine as one node, which is the fastest way to describe it. Prints
the seconds of its simulation loop (which reads the SWF) and writes the start times to FOLDER/starts.csv.

Its EASY backfilling is not compared: in 1.1.3 it hands an empty list of reserved nodes to its allocator, so
candidates ignore the reservation, and the schedule is another one.
"""

from __future__ import annotations

import collections
import collections.abc
import contextlib
import io
import json
import sys
import time
from pathlib import Path

collections.Mapping = collections.abc.Mapping  # as it was before Python 3.10


def main() -> None:
    swf, folder = (Path(part).resolve() for part in sys.argv[1:3])
    processors = int(sys.argv[3])
    from accasim.base.allocator_class import FirstFit
    from accasim.base.scheduler_class import FirstInFirstOut
    from accasim.base.simulator_class import Simulator

    system = folder / "system.json"
    system.write_text(
        json.dumps(
            {
                "system_name": "machine",
                "start_time": 0,
                "equivalence": {"processor": {"core": 1}},
                "groups": {"all": {"core": processors}},
                "resources": {"all": 1},
            }
        )
    )
    quiet = io.StringIO()
    with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        simulator = Simulator(
            str(swf),
            str(system),
            FirstInFirstOut(FirstFit()),
            RESULTS_FOLDER_PATH=str(folder),
            LOG_LEVEL="WARNING",
            statistics_output=False,
            show_statistics=False,
            SCHEDULE_OUTPUT={
                "format": "{job_id},{start_time}",
                "attributes": {"job_id": ("id", "str"), "start_time": ("start_time", "int")},
            },
        )
        begin = time.perf_counter()
        files = simulator.start_simulation()
        seconds = time.perf_counter() - begin
    Path(files["sched-"]).replace(folder / "starts.csv")
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
