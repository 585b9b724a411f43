"""One workload through CQSim (github.com/SPEAR-UIC/CQSim); a script of its own, run in a fresh process.

    python benchmarks/fleet_cqsim.py CQSIM jobs.swf FOLDER fcfs|easy

It calls CQSim as its own command does, without debug output and with one write of the results at the end,
which is the fastest that it can be asked for. Prints the seconds of its event loop (the files that it makes
of the SWF before are not counted) and writes the start times to FOLDER/starts.csv.

CQSim plans a backfill candidate by its runtime, not by its limit, and makes a pass after each event:
its schedule is EASY's where limits are runtimes and no two jobs end at one moment.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time
import warnings
from pathlib import Path


def main() -> None:
    source, swf, folder = (Path(part).resolve() for part in sys.argv[1:4])
    policy = sys.argv[4]
    sys.path.insert(0, str(source / "src"))
    os.chdir(source / "src")
    warnings.simplefilter("ignore")  # of escapes in its regular expressions
    import CqSim.Cqsim_sim as engine
    import cqsim_main

    seconds: list[float] = []
    loop = engine.Cqsim_sim.cqsim_sim

    def timed(self: object) -> None:
        begin = time.perf_counter()
        loop(self)
        seconds.append(time.perf_counter() - begin)

    engine.Cqsim_sim.cqsim_sim = timed
    with contextlib.redirect_stdout(io.StringIO()):
        cqsim_main.cqsim_main(_parameters(swf, folder, policy))
    rows = [line.split(";") for line in (folder / "out.rst").read_text().splitlines()]
    starts = [f"{row[0]},{round(float(row[7]))}\n" for row in rows]
    (folder / "starts.csv").write_text("".join(starts))
    print(json.dumps({"seconds": seconds[0]}))


def _parameters(swf: Path, folder: Path, policy: str) -> dict[str, object]:
    """What CQSim's command line makes of its options."""
    here = f"{folder}/"
    paths = dict.fromkeys(("path_out", "path_fmt", "path_debug"), here)
    endings = {
        "ext_fmt_j": ".csv", "ext_fmt_n": ".csv", "ext_fmt_j_c": ".con", "ext_fmt_n_c": ".con",
        "ext_jr": ".rst", "ext_si": ".ult", "ext_ai": ".adp", "ext_debug": ".log",
    }  # fmt: skip
    unused = ("bf_para", "ad_win_para", "ad_bf_para", "ad_alg_para")
    return {
        **paths,
        **endings,
        **{name: [] for name in unused},
        "path_in": f"{swf.parent}/",
        "job_trace": swf.name,
        "node_struc": swf.name,
        "job_save": "jobs",
        "node_save": "nodes",
        "output": "out",
        "debug": "debug",
        "cluster_fraction": 1.0,
        "start": 0.0,
        "start_date": None,
        "anchor": 0,
        "read_num": -1,
        "read_input_freq": 1000,
        "debug_lvl": 0,
        "log_freq": 1 << 30,
        "monitor": 0,
        "alg": ["w", "+", "2"],  # the longest wait first
        "alg_sign": [1, 0, 1],
        "backfill": {"fcfs": 0, "easy": 1}[policy],
        "win": 0,
        "win_para": ["5", "0", "0"],
        "ad_win": 0,
        "ad_bf": 0,
        "ad_alg": 0,
    }


if __name__ == "__main__":
    main()
