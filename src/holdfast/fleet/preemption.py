"""Which attempts were preempted, and by whom.

Slurm labels few of them PREEMPTED: a script that dies of the warning SIGTERM ends FAILED, one that
saves and exits ends COMPLETED, one that ends between the grace period and the requeue is recorded as
a TIMEOUT before its limit. So a preemption is found by the best evidence that the log has:

- ``log``: the controller log names victim and preemptor. Where it covers the time, nothing else counts.
- ``label``: the state is PREEMPTED.
- ``early_timeout``: TIMEOUT with less runtime than the limit; no other mechanism of Slurm writes that.
- ``sigterm``: FAILED or COMPLETED, SIGTERM reached it, and a job that outranks it was waiting then.
- ``co_victim``: COMPLETED or FAILED within one grace period of the moment at which the preemptor of
  another victim had its victims signalled, on nodes that this preemptor then took.

The preemptor is the attempt that outranks the victim, was eligible when the victim ended, and starts
on one of its nodes within grace + slack. A preemption is of second order if the preemptor's run had an
infrastructure failure before: the failure then cost the victim's work, too (Kokolis et al., arXiv
2410.21680v2, on preemption cascades).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import ibis
import pyarrow as pa

from holdfast.fleet.attribution import infrastructure_failures
from holdfast.fleet.log import FleetLog, bucket, in_two_buckets

if TYPE_CHECKING:
    import ibis.expr.types as ir

PREEMPTED = "PREEMPTED"

ROUNDING_S = 1
"""Slurm keeps whole seconds: a successor may seem to start this long before its victim ends."""
EXIT_S = 30
"""A script that saves and leaves on SIGTERM does so at most this long into a longer grace period."""
LIMIT_SLACK_S = 1
"""A TIMEOUT this much or more under its limit did not run out of time."""

VICTIM_COLUMNS = (
    *("key", "job_id", "run", "attempt", "state", "qos", "gpus", "node_count", "stop_s"),
    *("runtime_s", "gpu_hours"),
)

RANKS = pa.schema(
    [("victim_class", pa.string()), ("preemptor_class", pa.string()), ("grace_s", pa.float64())]
)
"""Who may preempt whom: one row per pair of classes."""


def preemptions(log: FleetLog) -> ir.Table:
    """The preempted attempts, one row each.

    Columns: key, job_id, run, attempt, state, qos, gpus, node_count, stop_s, runtime_s, gpu_hours of
    the victim; evidence; preemptor_key, preemptor (job id), preemptor_run; signal_s; order.
    """
    return log.keep("preemptions", lambda: _find(log))


def _find(log: FleetLog) -> ir.Table:
    told = log.keep("told_preemptions", lambda: _from_controller_log(log))
    inferred = log.keep("inferred_preemptions", lambda: _inferred(log))
    begin_s, end_s = _told_span(log)
    # The kill that ends a grace period does not always name the preemptor.
    guess = inferred.select("key", guessed_key="preemptor_key")
    named = told.left_join(guess, "key").drop("key_right")
    named = named.mutate(preemptor_key=ibis.coalesce(named.preemptor_key, named.guessed_key))
    inferred = inferred.anti_join(told, "key")
    if begin_s is not None:
        inferred = inferred.filter((inferred.signal_s < begin_s) | (inferred.signal_s > end_s))
    found = named.drop("guessed_key").union(inferred)
    strong = _strong_victims(log)
    other = log.executions.semi_join(found.anti_join(strong, "key"), "key")
    victims = strong.select(*VICTIM_COLUMNS).union(other.select(*VICTIM_COLUMNS))
    preemptors = log.executions.select(
        preemptor_key="key", preemptor="job_id", preemptor_run="run"
    ).semi_join(found.filter(found.preemptor_key.notnull()), "preemptor_key")
    t = victims.join(found, "key").left_join(preemptors, "preemptor_key")
    t = t.drop("preemptor_key_right")
    failed = infrastructure_failures(log)
    first_failure = failed.group_by(failed_run=failed.run).agg(failed_s=failed.stop_s.min())
    t = t.left_join(first_failure, t.preemptor_run == first_failure.failed_run)
    second = t.failed_s.notnull() & (t.failed_s <= t.signal_s + ROUNDING_S)
    return t.mutate(order=ibis.ifelse(second, 2, 1).cast("int64")).drop("failed_run", "failed_s")


def _told_span(log: FleetLog) -> tuple[float | None, float | None]:
    """The time in which the controller log names every victim.

    That takes debug output: at the level "info" it names only those that the grace period did not end.
    """
    events = log.table("controller_events")
    span = log.rows(
        events.agg(
            begin=events.time_s.min(),
            end=events.time_s.max(),
            every=(events.event == "preempt").any(),
        )
    )[0]
    return (span["begin"], span["end"]) if span["every"] else (None, None)


def _from_controller_log(log: FleetLog) -> ir.Table:
    """Victims that slurmctld.log names: key, evidence, preemptor_key, signal_s."""
    events = log.table("controller_events").filter(
        lambda t: t.event.isin(["preempt", "preempt_kill", "preempt_requeue"])
    )
    events = events.select(*log.job_keys, "preemptor_raw", "time_s", "event")
    ran = log.executions.select("key", "start_s", "stop_s", *log.job_keys)
    pairs = events.join(ran, log.job_keys)
    # The attempt that was on its nodes at that moment; a requeue is logged up to its end.
    alive = pairs.filter(
        (pairs.start_s <= pairs.time_s + ROUNDING_S) & (pairs.stop_s >= pairs.time_s - ROUNDING_S)
    )
    alive = alive.mutate(
        # The signal comes before the requeue and always names the preemptor.
        place=ibis.row_number().over(
            group_by="key", order_by=[alive.event, alive.time_s, alive.preemptor_raw]
        )
    ).filter(lambda t: t.place == 0)
    starts = log.executions.select(
        *log.job_keys[1:],
        preemptor_key="key",
        preemptor_raw="job_id_raw",
        preemptor_start_s="start_s",
        preemptor_attempt="attempt",  # a job that is resized has two attempts in one second
    )
    took = alive.join(starts, ["preemptor_raw", *log.job_keys[1:]]).filter(
        lambda t: t.preemptor_start_s >= t.time_s - ROUNDING_S
    )
    order = [took.preemptor_start_s, took.preemptor_attempt, took.preemptor_key]
    took = (
        took.mutate(place=ibis.row_number().over(group_by="key", order_by=order))
        .filter(lambda t: t.place == 0)
        .select("key", "preemptor_key")
    )
    named = alive.left_join(took, "key")
    return named.select(
        "key",
        evidence=ibis.literal("log"),
        preemptor_key=named.preemptor_key,
        signal_s=named.time_s.cast("float64"),
    )


def _inferred(log: FleetLog) -> ir.Table:
    """Victims that accounting alone gives away: key, evidence, preemptor_key, signal_s."""
    ranks = _ranks(log)
    strong = _strong_victims(log)
    near = log.keep("preemptors_near", lambda: _candidates_on_nodes(log, strong, ranks))
    waiting = _candidates_waiting(log, strong.anti_join(near, "key"), ranks)
    took = log.keep("preemptors_of_strong", lambda: _elect(near.union(waiting)))
    named = strong.left_join(took, "key").drop("key_right")
    # SIGTERM alone proves nothing: a user's own tools send it, too.
    sure = named.filter((named.evidence != "sigterm") | named.preemptor_key.notnull())
    sure = sure.select("key", "evidence", "preemptor_key", signal_s=sure.stop_s.cast("float64"))
    # Where every victim is labelled, Slurm labels them all: there is no silent one to look for.
    silent = strong.filter(strong.evidence != "label").select("key", "stop_s", "runtime_s")
    known = took.filter(took.shared > 0).join(silent, "key")
    youngest_s = log.rows(known.agg(s=known.runtime_s.min()))[0]["s"]
    if youngest_s is None:
        return sure
    co = _co_victims(log, known, ranks, youngest_s)
    return sure.union(co.anti_join(sure, "key"))


def _elect(candidates: ir.Table) -> ir.Table:
    """The likeliest preemptor of each victim: the one that explains the most victims at once.

    A large job has many victims, all of them at one moment; that another attempt was quicker to take
    one of their nodes is chance.

    Args:
        candidates: key, preemptor_key, preemptor_start_s, shared (nodes in common).

    Returns:
        key, preemptor_key, shared.
    """
    votes = candidates.group_by("preemptor_key").agg(votes=candidates.count())
    t = candidates.join(votes, "preemptor_key")
    order = [t.votes.desc(), t.shared.desc(), t.preemptor_start_s, t.preemptor_key]
    t = t.mutate(place=ibis.row_number().over(group_by="key", order_by=order))
    return t.filter(t.place == 0).select("key", "preemptor_key", "shared")


def _ranks(log: FleetLog) -> pa.Table:
    """Who may preempt whom.

    A class is a quality of service, or (in a log with one) a partition. Pairs come from the QOS table
    where it says what preempts what; else a class outranks those whose mean priority is lower.

    Returns:
        A table in `RANKS`.
    """
    column = _class_column(log)
    ran = log.executions.filter(lambda t: t.priority > 0)  # a held job has none
    mean = ran.group_by(rank_class=ran[column]).agg(priority=ran.priority.mean())
    worth = log.rows(mean.filter(mean.rank_class.notnull()).order_by("rank_class"))
    pairs = [
        (low["rank_class"], high["rank_class"])
        for low in worth
        for high in worth
        if low["priority"] < high["priority"]
    ]
    known = log.rows(log.table("qos").order_by("qos")) if column == "qos" else []
    stated = [(victim, row["qos"]) for row in known for victim in row["preempts"] or []]
    pairs = stated or pairs
    given = {row["qos"]: row["grace_s"] for row in known if row["grace_s"] is not None}
    return pa.table(
        [
            [low for low, _ in pairs],
            [high for _, high in pairs],
            [float(given.get(low, log.assumptions.preemption_grace_s)) for low, _ in pairs],
        ],
        schema=RANKS,
    )


def _class_column(log: FleetLog) -> str:
    """What ranks jobs in this log: "qos", or "partition" where only one QOS is in use."""

    def choose() -> ir.Table:
        t = log.executions
        return t.agg(n=t.qos.nunique())

    return "qos" if log.rows(log.keep("qos_in_use", choose))[0]["n"] > 1 else "partition"


def _strong_victims(log: FleetLog) -> ir.Table:
    """Attempts whose own row says or suggests that they were preempted.

    Columns: those of a victim, and evidence, rank_class, partition, priority and nodes.
    """
    return log.keep("strong_victims", lambda: _select_strong(log))


def _select_strong(log: FleetLog) -> ir.Table:
    t = log.executions.filter(lambda t: t.end_s.notnull())
    early = (t.state == "TIMEOUT") & (t.runtime_s + LIMIT_SLACK_S < t.time_limit_s)
    signalled = t.state.isin(["FAILED", "COMPLETED"]) & t.sigterm.fill_null(False)
    evidence = ibis.cases(
        (t.state == PREEMPTED, "label"),
        (early, "early_timeout"),
        (signalled, "sigterm"),
        else_="none",
    )
    t = t.mutate(evidence=evidence, rank_class=t[_class_column(log)])
    extra = ("evidence", "rank_class", "partition", "priority", "nodes")
    return t.filter(t.evidence != "none").select(*VICTIM_COLUMNS, *extra)


def _outranked(log: FleetLog, victims: ir.Table, ranks: pa.Table) -> ir.Table:
    """Victims, one row per class that may preempt them, with the grace period they were given.

    A victim that is labelled but whose class nobody outranks is matched with its own class, where the
    job's priority decides.
    """
    victims = victims.select(
        *("key", "job_id", "rank_class", "partition", "priority", "nodes", "stop_s", "evidence")
    )
    pairs = ibis.memtable(ranks)
    named = victims.join(pairs, victims.rank_class == pairs.victim_class).drop("victim_class")
    if ranks.num_rows:
        return named
    return victims.filter(victims.evidence == "label").mutate(
        preemptor_class=victims.rank_class,
        grace_s=ibis.literal(float(log.assumptions.preemption_grace_s)),
    )


def _starts(log: FleetLog) -> ir.Table:
    """Attempts as possible preemptors."""
    t = log.executions
    return t.select(
        preemptor_key="key",
        preemptor_job="job_id",
        preemptor_class=t[_class_column(log)],
        preemptor_priority="priority",
        preemptor_eligible_s="eligible_s",
        preemptor_start_s="start_s",
        preemptor_partition="partition",
        preemptor_nodes="nodes",
    )


def _in_time(log: FleetLog, pairs: ir.Table) -> ir.Table:
    """Pairs in which the preemptor waited when the victim ended and started soon after."""
    late = pairs.grace_s + log.assumptions.preemption_slack_s
    return pairs.filter(
        (pairs.preemptor_start_s >= pairs.stop_s - ROUNDING_S)
        & (pairs.preemptor_start_s <= pairs.stop_s + late)
        & (pairs.preemptor_eligible_s.fill_null(0) <= pairs.stop_s + ROUNDING_S)
        & (pairs.preemptor_job != pairs.job_id)
        & (
            (pairs.preemptor_class != pairs.rank_class)
            | (pairs.preemptor_priority > pairs.priority)
            | pairs.priority.isnull()
        )
    )


def _window_s(log: FleetLog, ranks: pa.Table) -> float:
    """The longest time from a victim's end to its preemptor's start."""
    grace = max(ranks["grace_s"].to_pylist(), default=log.assumptions.preemption_grace_s)
    return max(1.0, grace + log.assumptions.preemption_slack_s + ROUNDING_S)


def _candidates_on_nodes(log: FleetLog, victims: ir.Table, ranks: pa.Table) -> ir.Table:
    """Attempts that took nodes of a victim: key, preemptor_key, preemptor_start_s, shared."""
    width = _window_s(log, ranks)
    ends = _outranked(log, victims, ranks)
    ends = ends.mutate(node=ends.nodes.unnest(), bucket=bucket(ends.stop_s - ROUNDING_S, width))
    ends = in_two_buckets(ends.drop("nodes"), 1)
    starts = _starts(log)
    if ranks.num_rows:
        starts = starts.semi_join(ibis.memtable(ranks), "preemptor_class")
    starts = starts.mutate(
        node=starts.preemptor_nodes.unnest(), bucket=bucket(starts.preemptor_start_s, width)
    ).drop("preemptor_nodes")
    pairs = _in_time(log, ends.join(starts, ["node", "bucket", "preemptor_class"]))
    return pairs.group_by("key", "preemptor_key").agg(
        preemptor_start_s=pairs.preemptor_start_s.min(), shared=pairs.count()
    )


def _candidates_waiting(log: FleetLog, victims: ir.Table, ranks: pa.Table) -> ir.Table:
    """Attempts that outrank a victim and started next, on other nodes: as `_candidates_on_nodes`.

    Slurm may preempt for a job and then start it elsewhere, or later than the window on these nodes.
    """
    width = _window_s(log, ranks)
    ends = _outranked(log, victims.filter(victims.evidence != "label"), ranks).drop("nodes")
    ends = in_two_buckets(ends.mutate(bucket=bucket(ends.stop_s - ROUNDING_S, width)), 1)
    starts = _starts(log).drop("preemptor_nodes").rename(partition="preemptor_partition")
    starts = starts.mutate(bucket=bucket(starts.preemptor_start_s, width))
    pairs = _in_time(log, ends.join(starts, ["partition", "bucket", "preemptor_class"]))
    return pairs.select(
        "key", "preemptor_key", "preemptor_start_s", shared=ibis.literal(0, "int64")
    )


def _co_victims(log: FleetLog, known: ir.Table, ranks: pa.Table, youngest_s: int) -> ir.Table:
    """Attempts that ended with the known victims of one preemptor, on nodes that it took.

    Args:
        log: the open log.
        known: strong victims with key, preemptor_key, stop_s and runtime_s.
        ranks: see `_ranks`.
        youngest_s: the shortest runtime among them. Slurm exempts young jobs (PreemptExemptTime), so
            no victim is younger.

    Returns:
        key, evidence ("co_victim"), preemptor_key, signal_s.
    """
    width = _window_s(log, ranks)
    signals = known.group_by("preemptor_key").agg(signal_s=known.stop_s.min())
    takers = _starts(log).join(signals, "preemptor_key")
    takers = takers.select(
        *("preemptor_key", "preemptor_job", "preemptor_class", "preemptor_priority"),
        *("preemptor_eligible_s", "preemptor_start_s", "signal_s"),
        node=takers.preemptor_nodes.unnest(),
    )
    takers = takers.mutate(bucket=bucket(takers.signal_s - ROUNDING_S, width))
    quiet = log.executions.filter(
        lambda t: (
            t.state.isin(["COMPLETED", "FAILED"])
            & t.end_s.notnull()
            & ~t.sigterm.fill_null(False)
            & (t.runtime_s >= youngest_s)
            # A script that fails by itself has a code of its own; one that saves leaves with 0.
            & (t.exit_code.fill_null(0) == 0)
        )
    )
    quiet = quiet.mutate(rank_class=quiet[_class_column(log)], evidence=ibis.literal("co_victim"))
    ends = _outranked(log, quiet, ranks)
    ends = ends.mutate(node=ends.nodes.unnest(), bucket=bucket(ends.stop_s, width)).drop("nodes")
    pairs = _in_time(
        log, ends.join(in_two_buckets(takers, 1), ["node", "bucket", "preemptor_class"])
    )
    given = ibis.least(pairs.grace_s, EXIT_S)
    pairs = pairs.filter(
        (pairs.stop_s >= pairs.signal_s - ROUNDING_S)
        & (pairs.stop_s <= pairs.signal_s + given + ROUNDING_S)
    )
    return (
        pairs.mutate(
            place=ibis.row_number().over(
                group_by="key", order_by=[pairs.preemptor_start_s, pairs.preemptor_key]
            )
        )
        .filter(lambda t: t.place == 0)
        .select(
            "key",
            "evidence",
            "preemptor_key",
            signal_s=lambda t: t.stop_s.cast("float64"),
        )
    )
