"""Plans as files for people and schedulers: CSV, JSON, Slurm reservations, GPU power limits.

Scripts are written for review; nothing here runs them.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Literal

import numpy as np

from holdfast import __version__
from holdfast.carbon.planning import Plan
from holdfast.carbon.signals import HOUR_S, refused, utc
from holdfast.files import write_whole
from holdfast.plain import plain

Form = Literal["csv", "json", "slurm", "nvidia-smi"]


def write_schedule(
    plan: Plan,
    path: str | Path,
    form: Form = "csv",
    *,
    watts_per_node: float = 10_000.0,
    watts_per_gpu: float = 700.0,
    least_watts_per_gpu: float = 200.0,
) -> Path:
    """Write the schedule of a plan.

    Args:
        plan: a plan.
        path: the file.
        form: ``"csv"`` and ``"json"``: power per hour and workload; ``"slurm"``: reservations that keep
            as many nodes idle as the plan curtails; ``"nvidia-smi"``: a power limit per hour.
        watts_per_node: power of a busy node (Slurm).
        watts_per_gpu: power limit of a GPU without a plan (nvidia-smi).
        least_watts_per_gpu: lowest power limit that the GPU takes (nvidia-smi).

    Raises:
        InputError: ``out-of-range`` for powers of 0 or less.
    """
    for name, value in (("watts_per_node", watts_per_node), ("watts_per_gpu", watts_per_gpu)):
        if not value > 0:
            raise refused("out of range", "out-of-range", None, name, f"{value:g}", "above 0 W")
    if form == "csv":
        text = _csv(plan)
    elif form == "json":
        text = json.dumps(plain(plan.schedule), indent=1) + "\n"
    elif form == "slurm":
        text = "".join(_slurm(plan, watts_per_node))
    else:
        text = "".join(_power_limits(plan, watts_per_gpu, least_watts_per_gpu))
    write_whole(path, text.encode())
    return Path(path)


def _csv(plan: Plan) -> str:
    out = io.StringIO()
    table = plan.schedule
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.column_names)
    writer.writerows(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return out.getvalue()


def _slurm(plan: Plan, watts_per_node: float) -> Iterator[str]:
    """One reservation per workload and run of hours with the same number of idle nodes."""
    yield "#!/bin/sh\n"
    yield f"# holdfast {__version__}: reservations that keep nodes idle in hours of high intensity.\n"
    yield f"# Assumed: {watts_per_node:g} W per busy node. Review before running; times are UTC.\n"
    yield "set -eu\nexport TZ=UTC\n"
    curtailed = np.floor(np.maximum(plan.before - plan.after, 0) * 1e6 / watts_per_node + 1e-6)
    for name, counts in zip(plan.names, curtailed.astype(int), strict=True):
        label = re.sub(r"[^A-Za-z0-9]+", "_", name)
        hour = 0
        for nodes, run in groupby(counts.tolist()):
            length = len(list(run))
            if nodes:
                start = utc(plan.start_s + HOUR_S * hour).rstrip("Z")
                yield (
                    f"scontrol create reservation ReservationName=carbon_{label}_{hour} "
                    f"StartTime={start} Duration={length}:00:00 NodeCnt={nodes} "
                    "Users=root Flags=IGNORE_JOBS\n"
                )
            hour += length


def _power_limits(plan: Plan, full: float, least: float) -> Iterator[str]:
    """A script per plan: it waits for each hour and sets the limit of the GPUs of its workload."""
    yield "#!/bin/sh\n"
    yield f"# holdfast {__version__}: GPU power limits by hour; usage: sh FILE WORKLOAD, as root.\n"
    yield f"# Without a plan: {full:g} W per GPU; never below {least:g} W. Review before running.\n"
    yield "set -eu\n"
    yield 'at() { while [ "$(date +%s)" -lt "$1" ]; do sleep 20; done; nvidia-smi -pl "$2"; }\n'
    yield 'case "${1:?name a workload}" in\n'
    share = np.divide(plan.after, plan.before, out=np.ones_like(plan.after), where=plan.before > 0)
    limits = np.clip(np.round(full * share), least, full).astype(int)
    for name, watts in zip(plan.names, limits, strict=True):
        quoted = "'" + name.replace("'", "'\\''") + "'"
        yield f"{quoted})\n"
        hour = 0
        for limit, run in groupby(watts.tolist()):
            time_s = plan.start_s + HOUR_S * hour
            yield f"  at {time_s} {limit}  # {utc(time_s)}\n"
            hour += len(list(run))
        yield f"  at {plan.start_s + HOUR_S * hour} {full:g}\n  ;;\n"
    yield '*) echo "no such workload: $1" >&2; exit 2 ;;\nesac\n'
