"""How long nodes are out of service: short repairs and long ones, from the outages of a log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from holdfast.fleet.attribution import UNATTRIBUTED, classified_health
from holdfast.fleet.log import FleetLog
from holdfast.fleet.simulation.estimates import Findings, rounded_time
from holdfast.fleet.simulation.records import Array
from holdfast.fleet.simulation.scenario import Repair
from holdfast.numbers import counted, duration

FEWEST_OUTAGES = 5
CLEAR_SPLIT, APART = 0.8, 4.0
"""Repairs are of two kinds if a split of log durations explains this share of their variance and the
typical long one takes this many times the typical short one."""
TAIL = 0.05


@dataclass(frozen=True)
class OutageTimes:
    """Durations of outages, split in two kinds."""

    repair: Repair
    count: int = 0
    """Outages whose kind is known."""
    slow: int = 0
    by_label: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Label of the check that explains it -> long repairs, outages."""

    def of(self, label: str) -> tuple[int, int]:
        """Long repairs and outages of a component."""
        return self.by_label.get(label, (0, 0))


def outage_times(log: FleetLog, findings: Findings) -> OutageTimes:
    """Fit the two ranges of repair times.

    A range is that of the uniform distribution with the same 5 % and 95 % quantiles as the durations.
    An outage that is not over counts as long once it has lasted longer than short ones do; before
    that nothing is known of it.
    """
    frame = _outages(log)
    ended = frame[frame["end_s"].notna()]
    if len(ended) < FEWEST_OUTAGES:
        findings.assumed(
            "repair",
            f"{counted(len(ended), 'outage')} of nodes with an end, too few to tell how long repairs "
            f"take ({FEWEST_OUTAGES})",
        )
        return OutageTimes(Repair())
    lasted = np.maximum((ended["end_s"] - ended["start_s"]).to_numpy(np.float64), 1.0)
    split = two_kinds(lasted)
    short, long = lasted[lasted <= split], lasted[lasted > split]
    fast_min, fast_max = uniform_range(short)
    slow_min, slow_max = uniform_range(long) if long.size else (fast_min, fast_max)
    findings.found(
        "repair.fast_min",
        fast_min,
        "range of the short repairs, from the 5 % and 95 % quantiles of their outages",
        interval=None,
        n=short.size,
        unit="s",
    )
    if long.size:
        findings.found(
            "repair.slow_min",
            slow_min,
            f"range of the long repairs: outages of more than {duration(split)}",
            n=long.size,
            unit="s",
        )
    else:
        findings.assumed("repair.slow_min", "no outage is of another kind: as the short ones")
    waited = log.end_s - frame["start_s"]
    slow = frame["end_s"].isna() & (waited > split) if long.size else frame["end_s"].isna() & False
    slow |= (frame["end_s"] - frame["start_s"]) > split
    known = frame["end_s"].notna() | slow
    open_count = int((~known).sum())
    if open_count:
        findings.note(f"{counted(open_count, 'outage')} not over at the end of the log: left out.")
    kinds = pd.DataFrame({"label": _labels(log, frame), "slow": slow, "known": known})
    kinds = kinds[kinds["known"]]
    sums = kinds.groupby("label")["slow"].agg(["sum", "size"])
    return OutageTimes(
        Repair(fast_min, fast_max, slow_min, slow_max),
        len(kinds),
        int(kinds["slow"].sum()),
        {str(name): (int(row["sum"]), int(row["size"])) for name, row in sums.iterrows()},
    )


def _outages(log: FleetLog) -> pd.DataFrame:
    """Outages of broken nodes: node, start_s, end_s. Drains count only where nothing else is known.

    A node that is drained works on for a while: its outage is longer than its repair.
    """
    frame = log.frame(
        f"SELECT node, start_s, end_s, state FROM {log.table('node_outages')} "
        f"WHERE upper(state) NOT LIKE '%MAINT%' AND start_s >= {int(log.begin_s)} "
        "ORDER BY start_s, node"
    )
    drained = frame["state"].str.upper().str.contains("DRAIN").fillna(False).astype(bool)
    broken = frame[~drained]
    chosen = broken if len(broken) >= FEWEST_OUTAGES else frame
    return chosen.drop(columns="state").reset_index(drop=True)


def _labels(log: FleetLog, frame: pd.DataFrame) -> Array:
    """What explains each outage: the failed check on its node nearest before (or just after) it."""
    events = log.frame(
        f"SELECT node, time_s, label FROM {classified_health(log)} "
        "WHERE result = 'fail' AND severity = 'HIGH' ORDER BY time_s"
    )
    window = log.assumptions.check_before_s
    left = frame[["node", "start_s"]].assign(place=range(len(frame)))
    left["time_s"] = left["start_s"].astype("float64") + 1  # both keep whole seconds
    if events.empty:
        return np.full(len(frame), UNATTRIBUTED, dtype=object)
    near = pd.merge_asof(
        left.sort_values("time_s"),
        events.astype({"time_s": "float64"}),
        on="time_s",
        by="node",
        tolerance=window + 1,  # type: ignore[arg-type]  # the stubs know no float
    )
    near = near.sort_values("place")
    labels: Array = near["label"].fillna(UNATTRIBUTED).to_numpy(dtype=object)
    return labels


def two_kinds(seconds: Array) -> float:
    """The duration that parts short repairs from long ones; infinity if they are of one kind.

    The split of the sorted log durations that explains most of their variance (Otsu 1979), if the
    two sides are clearly apart.
    """
    logs = np.sort(np.log(seconds))
    n = logs.size
    total = float(((logs - logs.mean()) ** 2).sum())
    if n < FEWEST_OUTAGES or total == 0:
        return float("inf")
    left = np.arange(1, n)
    sums = np.cumsum(logs)[:-1]
    gap = sums / left - (logs.sum() - sums) / (n - left)
    between = left * (n - left) / n * gap**2
    best = int(np.argmax(between))
    clear = between[best] / total >= CLEAR_SPLIT
    apart = np.median(logs[best + 1 :]) - np.median(logs[: best + 1]) >= np.log(APART)
    if not (clear and apart):
        return float("inf")
    return float(np.exp((logs[best] + logs[best + 1]) / 2))


def uniform_range(seconds: Array) -> tuple[float, float]:
    """Ends of the uniform distribution with these 5 % and 95 % quantiles; whole seconds."""
    low, high = np.quantile(seconds, [TAIL, 1 - TAIL])
    beyond = (high - low) * TAIL / (1 - 2 * TAIL)
    first = rounded_time(max(float(low - beyond), min(1.0, float(low))))
    return first, max(rounded_time(float(high + beyond)), first)
