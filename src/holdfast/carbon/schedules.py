"""Plans as files for people and schedulers: CSV, JSON, Slurm reservations, GPU power limits.

Scripts are written for review; nothing here runs them.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Literal

import numpy as np

from holdfast import __version__, progress
from holdfast.carbon.planning import Plan
from holdfast.carbon.signals import HOUR_S, FloatArray, refused, utc
from holdfast.files import write_whole
from holdfast.numbers import brief, percent
from holdfast.plain import plain

Form = Literal["csv", "json", "slurm", "nvidia-smi"]


# Of what a busy node draws, what an idle one still does, where nothing else is said.
IDLE_SHARE = 0.35


def write_schedule(
    plan: Plan,
    path: str | Path,
    form: Form = "csv",
    *,
    watts_per_node: float = 10_000.0,
    idle_watts_per_node: float | None = None,
    watts_per_gpu: float = 700.0,
    least_watts_per_gpu: float = 200.0,
) -> Path:
    """Write the schedule of a plan, and say how much of it a script cannot do.

    Args:
        plan: a plan.
        path: the file.
        form: ``"csv"`` and ``"json"``: power per hour and workload; ``"slurm"``: reservations that keep
            as many nodes idle as the plan curtails; ``"nvidia-smi"``: a power limit per hour.
        watts_per_node: power of a busy node (Slurm).
        idle_watts_per_node: of an idle one, which a reservation cannot save (default: 35 % of it).
        watts_per_gpu: power limit of a GPU without a plan (nvidia-smi).
        least_watts_per_gpu: lowest power limit that the GPU takes (nvidia-smi).

    Raises:
        InputError: ``out-of-range`` for powers that save nothing; ``unsupported`` for power limits of
            a plan in which every workload draws more in some hours than without it.
    """
    idle = IDLE_SHARE * watts_per_node if idle_watts_per_node is None else idle_watts_per_node
    powers = (
        ("idle_watts_per_node", idle, "watts_per_node", watts_per_node),
        ("least_watts_per_gpu", least_watts_per_gpu, "watts_per_gpu", watts_per_gpu),
    )
    for low, least, high, most in powers:
        if not 0 <= least < most < np.inf:
            found, expected = f"{least:g}, {most:g}", f"0 <= {low} < {high}"
            raise refused("out of range", "out-of-range", None, high, found, expected)
    remarks: list[str] = []
    if form == "csv":
        text = _csv(plan)
    elif form == "json":
        text = json.dumps(plain(plan.schedule), indent=1) + "\n"
    elif form == "slurm":
        text, remarks = _slurm(plan, watts_per_node, idle)
    else:
        text, remarks = _power_limits(plan, watts_per_gpu, least_watts_per_gpu)
    write_whole(path, text.encode())
    for each in remarks:
        progress.remark(each)
    return Path(path)


def _csv(plan: Plan) -> str:
    out = io.StringIO()
    table = plan.schedule
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.column_names)
    writer.writerows(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return out.getvalue()


def _script(what: str, remarks: Sequence[str], lines: Iterable[str]) -> str:
    head = [
        f"holdfast {__version__}: {what}. Review before running; times are seconds since 1970.",
        *remarks,
    ]
    return "".join(["#!/bin/sh\n", *(f"# {line}\n" for line in head), "set -eu\n", *lines])


def _spans(values: Iterable[int], start_s: int) -> Iterator[tuple[int, int, int]]:
    """(start, end, value) of hours in a row with the same value, in seconds since 1970."""
    for value, run in groupby(values):
        end_s = start_s + HOUR_S * len(list(run))
        yield start_s, end_s, value
        start_s = end_s


def _done(curtailed: FloatArray, able: FloatArray) -> str:
    """How much of the curtailment [workload, H] a script does."""
    share = percent(float(able.sum() / curtailed.sum())) if curtailed.sum() else "all"
    return f"{brief(able.sum())} of {brief(curtailed.sum())} MWh that the plan curtails ({share})"


def _slurm(plan: Plan, busy: float, idle: float) -> tuple[str, list[str]]:
    """One reservation per workload and run of hours with the same number of idle nodes."""
    curtailed = np.maximum(plan.before - plan.after, 0)
    wanted = np.minimum(curtailed / (busy - idle), plan.before / busy)  # no more than are busy
    nodes = np.floor(1e6 * wanted + 1e-6).astype(int)
    more = float(np.maximum(plan.after - plan.before, 0).sum())
    remarks = [
        f"Assumed: {busy:g} W of a busy node, {idle:g} W of an idle one.",
        f"Reservations of whole nodes save {_done(curtailed, nodes * (busy - idle) / 1e6)}.",
        "Jobs that run on reserved nodes go on until they end, and save nothing before.",
    ]
    if more > 1e-6 * plan.before.sum():
        text = f"The plan draws {brief(more)} MWh more in other hours: only jobs that wait can do that."
        remarks.append(text)
    lines = [
        "reserve() {  # START END NODES NAME\n",
        "  now=$(date +%s); start=$1\n",
        '  if [ "$2" -le "$((now + 60))" ]; then echo "$4 has passed" >&2; return; fi\n',
        '  if [ "$start" -lt "$((now + 60))" ]; then start=$((now + 60)); fi\n',
        '  scontrol create reservation ReservationName="$4" NodeCnt="$3" Users=root Flags=IGNORE_JOBS \\\n',
        '    StartTime="$(date -d "@$start" +%FT%T)" EndTime="$(date -d "@$2" +%FT%T)"\n}\n',
    ]
    for place, (name, counts) in enumerate(zip(plan.names, nodes.tolist(), strict=True), 1):
        label = f"carbon_{place}_" + re.sub(r"[^A-Za-z0-9]+", "_", name)[:40]
        for start, end, count in _spans(counts, plan.start_s):
            if count:
                lines.append(f"reserve {start} {end} {count} {label}_{start}  # {utc(start)}\n")
    return _script(
        "reservations that keep nodes idle in hours of high intensity", remarks, lines
    ), remarks


def _power_limits(plan: Plan, full: float, least: float) -> tuple[str, list[str]]:
    """A script that waits for each hour and sets the limit of the GPUs of its workload."""
    boosts = (plan.after - plan.before).max(axis=1) > 1e-6 * plan.before.max(axis=1)
    if boosts.all():
        problem = "a power limit cannot make GPUs draw more than without a plan"
        remedy = "use --form slurm, or plan with work that is curtailed only (online, training)"
        raise refused(problem, "unsupported", None, "--form", ", ".join(plan.names), None, remedy)
    share = np.divide(plan.after, plan.before, out=np.ones_like(plan.after), where=plan.before > 0)
    limits = np.clip(np.round(full * share), np.ceil(least), full).astype(int)
    curtailed = np.maximum(plan.before - plan.after, 0)
    able = np.minimum((1 - limits / full) * plan.before, curtailed) * ~boosts[:, None]
    remarks = [
        f"Assumed: {full:g} W per GPU without a plan, {least:g} W at least.",
        f"Power limits save {_done(curtailed, able)}.",
    ]
    if boosts.any():
        left = ", ".join(name for name, boost in zip(plan.names, boosts, strict=True) if boost)
        text = f"Without limits, as they draw more in some hours than a limit can order: {left!r}."
        remarks.append(text)
    lines = [
        "at() {  # START END WATTS\n",
        '  if [ "$2" -le "$(date +%s)" ]; then return; fi\n',
        '  while [ "$(date +%s)" -lt "$1" ]; do sleep 20; done; nvidia-smi -pl "$3"\n}\n',
        'case "${1:?name a workload}" in\n',
    ]
    for name, watts, boost in zip(plan.names, limits.tolist(), boosts, strict=True):
        if boost:
            continue
        lines.append(f"{shlex.quote(name)})\n")
        for start, end, limit in _spans(watts, plan.start_s):
            lines.append(f"  at {start} {end} {limit}  # {utc(start)}\n")
        last = plan.start_s + HOUR_S * len(watts)
        lines.append(f"  at {last} {last + HOUR_S} {full:g}\n  ;;\n")
    lines.append('*) echo "no limits for this workload: $1" >&2; exit 2 ;;\nesac\n')
    return _script(
        "GPU power limits by hour; usage: sh FILE WORKLOAD, as root", remarks, lines
    ), remarks
