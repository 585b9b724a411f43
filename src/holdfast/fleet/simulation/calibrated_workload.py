"""What a log's users submitted, as a `Workload`: sizes, durations, ends, time limits.

What had not completed by the end of the log, or was cut off by a failure, a limit or its user, is
censored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from holdfast.fleet.log import HOUR_S, USUAL_INIT_S, FleetLog
from holdfast.fleet.simulation.calibrated_arrivals import FEWEST_JOBS, Cohort, arrivals
from holdfast.fleet.simulation.durations import Fit, Prior, fit
from holdfast.fleet.simulation.estimates import Findings, binomial_interval, rounded
from holdfast.fleet.simulation.job_runs import executions
from holdfast.fleet.simulation.records import Array
from holdfast.fleet.simulation.replay import on_nodes
from holdfast.fleet.simulation.scenario import Cluster, End, Qos, Size, Workload
from holdfast.numbers import brief, counted, duration, percent

FIRM_EVENTS = 20
"""A size with as many completed jobs stands alone; one with fewer leans on the other sizes."""
FEWEST_FOR_SHAPE = 5
"""Ends seen fewer times get a constant hazard."""
KEPT_SHARE, KEPT_JOBS, KEPT_TIME = 0.01, 5, 0.02
"""A size keeps its number of GPUs with this share of the jobs and so many of them, or with this share of
the GPU time; others are merged to the nearest power of two."""
LEAST_LIMIT_FACTOR, LOWEST_LIMIT = 1.2, 1.1
"""A simulated limit is between `LOWEST_LIMIT` and `limit_factor` times the time needed."""


def workload(
    log: FleetLog, those: Cohort, cluster: Cluster, classes: Sequence[Qos], findings: Findings
) -> Workload:
    """Fit everything that users decide.

    Args:
        log: the open log.
        those: of `cohort`.
        cluster: sizes are fitted into it.
        classes: of the scenario.
        findings: where estimates and assumptions are recorded.
    """
    jobs_per_day, hours, days = arrivals(those, findings)
    users = max(len(set(those.runs.user.tolist())), 1)
    findings.found("workload.users", users, "users who submitted", n=those.runs.gpus.size)
    sizes = _sizes(those, cluster, classes, findings)
    ends = _ends(log, those, findings)
    short = _short_limits(those, ends, findings)
    factor = _limit_factor(log, those, findings)
    return Workload(
        jobs_per_day=jobs_per_day,
        users=users,
        hour_weights=hours,
        day_weights=days,
        sizes=sizes,
        ends=ends,
        short_limits=short,
        limit_factor=factor,
    )


# --- Sizes and durations -------------------------------------------------------------------------


def _sizes(
    those: Cohort, cluster: Cluster, classes: Sequence[Qos], findings: Findings
) -> tuple[Size, ...]:
    """The size mix with the work of each size."""
    runs = those.runs
    gpus = merged_sizes(runs.gpus, runs.held_s, cluster)
    done = runs.end == "COMPLETED"
    total = gpus.size
    moved = int((gpus != on_nodes(runs.gpus, cluster.gpus_per_node)).sum())
    if moved:
        findings.note(
            f"{counted(moved, 'job')} ({percent(moved / total)}) of rare sizes are merged to the "
            "nearest power of two."
        )
    firm, prior = _prior(runs.made_s, done, gpus)
    names = [each.name for each in classes]
    made = []
    for place, size in enumerate(np.unique(gpus).tolist()):
        mine = gpus == size
        count, completed = int(mine.sum()), int((mine & done).sum())
        found = firm.get(size) or fit("lognormal", runs.made_s[mine], done[mine], prior=prior)
        hours = rounded(max(found.mean / HOUR_S, 1e-4))
        spread = rounded(found.sigma, 3)
        share = rounded(count / total)
        key = f"workload.sizes[{place}]"
        how = f"{completed:,} completed, {count - completed:,} cut off"
        if size not in firm:
            how += f"; with fewer than {FIRM_EVENTS} completed it leans on the other sizes"
        findings.found(
            f"{key}.share",
            share,
            f"of {total:,} jobs",
            interval=binomial_interval(count, total),
            n=count,
        )
        low, high = found.mean_ci95
        findings.found(
            f"{key}.hours",
            hours,
            f"mean work by censored maximum likelihood, {how}",
            interval=(low / HOUR_S, high / HOUR_S),
            n=count,
            unit="h",
        )
        findings.found(
            f"{key}.spread",
            spread,
            "sigma of the lognormal distribution of that work",
            interval=found.sigma_ci95,
            n=completed,
        )
        made.append(Size(size, share, hours, spread, _shares(runs.job_class[mine], names)))
    return tuple(made)


def merged_sizes(gpus: Array, held_s: Array, cluster: Cluster) -> Array:
    """The sizes that are simulated: those that matter as they are, others the nearest power of two.

    Args:
        gpus: of each job, shape [jobs].
        held_s: time that each job was on its nodes, shape [jobs].
        cluster: that they have to fit on.
    """
    per_node, most = cluster.gpus_per_node, cluster.nodes * cluster.gpus_per_node
    gpus = np.minimum(on_nodes(gpus, per_node), most)
    values, place, counts = np.unique(gpus, return_inverse=True, return_counts=True)
    gpu_time = np.bincount(place, gpus * held_s)
    few = (counts < KEPT_SHARE * gpus.size) | (counts < KEPT_JOBS)
    rare = few & (gpu_time <= KEPT_TIME * gpu_time.sum())
    within = np.minimum(2 ** np.round(np.log2(values)), per_node)
    nodes = 2 ** np.round(np.log2(np.maximum(values / per_node, 1.0)))
    nodes = np.where(nodes > cluster.nodes, nodes / 2, nodes)
    nearest = np.where(values > per_node, nodes * per_node, within).astype(np.int64)
    merged: Array = np.where(rare, nearest, values)[place]
    return merged


def _prior(made_s: Array, done: Array, gpus: Array) -> tuple[dict[int, Fit], Prior]:
    """The fits of sizes that stand alone, and what they let expect of the others."""
    firm = {}
    for size in np.unique(gpus).tolist():
        mine = gpus == size
        if (mine & done).sum() >= FIRM_EVENTS:
            firm[size] = fit("lognormal", made_s[mine], done[mine])
    overall = fit("lognormal", made_s, done)
    places = [each.mu for each in firm.values()]
    apart = max(float(np.std(places, ddof=1)), 0.5) if len(places) > 1 else 1.0
    center = float(np.mean(places)) if places else overall.mu
    return firm, Prior(center, apart, math.log(max(overall.sigma, 0.05)), 0.5)


def _shares(found: Array, names: Sequence[str]) -> Mapping[str, float]:
    """Shares of the classes of service among some jobs."""
    if len(names) == 1:
        return {}
    counts = {name: int((found == name).sum()) for name in names}
    total = max(sum(counts.values()), 1)
    return {name: rounded(count / total) for name, count in counts.items() if count}


# --- Ends ----------------------------------------------------------------------------------------


def _ends(log: FleetLog, those: Cohort, findings: Findings) -> tuple[End, ...]:
    """Hazards of the ends that are no completion, and of requeues."""
    runs = those.runs
    ran = runs.starts > 0
    made: list[End] = []
    absent = []
    for state in ("FAILED", "CANCELLED", "OUT_OF_MEMORY", "REQUEUED"):
        if state == "REQUEUED":
            seconds, ended = _requeues(log, those.processors)
        else:
            seconds, ended = runs.made_s[ran], runs.end[ran] == state
        events = int(ended.sum())
        if not events:
            absent.append(state)
            continue
        key = f"workload.ends[{len(made)}]"
        what = "attempts that were requeued" if state == "REQUEUED" else f"jobs that ended {state}"
        firm = events >= FEWEST_FOR_SHAPE
        constant = None if firm else Prior(0.0, 1e6, 0.0, 1e-6)
        found = fit("weibull", seconds, ended, prior=constant)
        scale, shape = rounded(found.scale / HOUR_S), rounded(found.shape, 3) if firm else 1.0
        low, high = found.scale_ci95
        findings.found(
            f"{key}.scale_hours",
            scale,
            f"Weibull hazard by censored maximum likelihood, {what}",
            interval=(low / HOUR_S, high / HOUR_S),
            n=events,
            unit="h",
        )
        if firm:
            findings.found(
                f"{key}.shape",
                shape,
                "below 1: most end early",
                interval=found.shape_ci95,
                n=events,
            )
        else:
            findings.assumed(
                f"{key}.shape",
                f"{counted(events, state + ' end')}: too few to tell whether the hazard changes "
                f"({FEWEST_FOR_SHAPE})",
            )
        made.append(End(state, scale, shape))
    if absent:
        findings.note(f"No job ended {', '.join(absent)}: not simulated.")
    _early_ends(log, those, findings)
    return tuple(made)


def _requeues(log: FleetLog, processors: bool) -> tuple[Array, Array]:
    """Productive time of every attempt, and whether it ended in a requeue."""
    t = executions(log, processors)
    if not log.rows(t.agg(n=(t.cut == "requeue").sum()))[0]["n"]:
        return np.zeros(0), np.zeros(0, bool)
    table = t.select("made_s", again=t.cut == "requeue").to_pyarrow()
    return table["made_s"].to_numpy(), table["again"].to_numpy()


def _early_ends(log: FleetLog, those: Cohort, findings: Findings) -> None:
    """Say what the assumed initialisation cannot be right about."""
    init = log.init_s
    if log.assumptions.init_s is None and init < USUAL_INIT_S:
        findings.note(
            f"Initialization is taken to be {duration(init)}, not {duration(USUAL_INIT_S)}: "
            "5 % of the completed attempts ran no longer."
        )
    runs = those.runs
    early = (runs.end != "COMPLETED") & (runs.starts > 0) & (runs.longest_s < init)
    share = float(early.sum()) / max(int((runs.starts > 0).sum()), 1)
    if share > 0.02:
        findings.note(
            f"{percent(share)} of the jobs ended within the {duration(init)} that initialisation is "
            "assumed to take. In the simulation such jobs last that long; give --init if it is shorter."
        )


# --- Time limits ---------------------------------------------------------------------------------


def _short_limits(those: Cohort, ends: Sequence[End], findings: Findings) -> float:
    """The share of limits that are too short: TIMEOUT among jobs that nothing else ended before.

    A job with a short limit has less time in which to fail, so each end is weighted by the inverse of
    its chance to get so far.
    """
    runs = those.runs
    late, done = runs.end == "TIMEOUT", runs.end == "COMPLETED"
    hazard = np.zeros(runs.made_s.size)
    for end in ends:
        if end.state != "REQUEUED":
            hazard += (runs.made_s / HOUR_S / end.scale_hours) ** end.shape
    weight = np.exp(np.minimum(hazard, 10.0))
    count, total = int(late.sum()), int(late.sum() + done.sum())
    short = float(weight[late].sum() / weight[late | done].sum())
    bias = short / (count / total) if count else 1.0
    low, high = binomial_interval(count, total)
    findings.found(
        "workload.short_limits",
        rounded(short, 3),
        "TIMEOUT among jobs that ended so or COMPLETED, weighted by their chance to get so far",
        interval=(low * bias, min(high * bias, 1.0)),
        n=total,
    )
    return rounded(short, 3)


def _limit_factor(log: FleetLog, those: Cohort, findings: Findings) -> float:
    """How generous limits are: twice the median of limit over need, as a uniform distribution has it."""
    runs, assumed = those.runs, log.assumptions
    # Limits are whole minutes; the longest ones are the cluster's, not the user's.
    known = (runs.end == "COMPLETED") & (runs.starts == 1) & ~np.isnan(runs.limit_s)
    if known.any():
        own = known & (runs.limit_s < float(np.nanmax(runs.limit_s)))
        known = own if own.sum() >= FEWEST_JOBS else known
    needed = log.init_s + runs.made_s * (1 + assumed.write_s / assumed.checkpoint_interval_s)
    ratio = np.sort((runs.limit_s[known] - 30) / np.maximum(needed[known], 1.0))
    ratio = ratio[ratio >= 1.0]
    key = "workload.limit_factor"
    if ratio.size < FEWEST_JOBS:
        findings.assumed(
            key,
            f"{counted(ratio.size, 'completed job')} with a time limit of its own, too few "
            f"({FEWEST_JOBS})",
        )
        return Workload().limit_factor
    half = 0.98 / math.sqrt(ratio.size)
    low, middle, high = (
        max(2 * float(each) - LOWEST_LIMIT, LEAST_LIMIT_FACTOR)
        for each in np.quantile(ratio, [max(0.5 - half, 0), 0.5, min(0.5 + half, 1)])
    )
    findings.found(
        key,
        rounded(middle, 3),
        f"half of the completed jobs have limits above {brief(float(np.median(ratio)))} times the "
        "time that they need",
        interval=(low, high),
        n=ratio.size,
    )
    return rounded(middle, 3)
