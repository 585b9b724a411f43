"""Which attempts were preempted, and by whom.

Slurm labels few of them PREEMPTED: a script that dies of the warning SIGTERM ends FAILED, one that
saves and exits ends COMPLETED, one that ends between the grace period and the requeue is recorded as
a TIMEOUT before its limit. So a preemption is found by the best evidence that the log has:

- ``log``: the controller log names victim and preemptor. Where it covers the time, nothing else counts.
- ``label``: the state is PREEMPTED.
- ``early_timeout``: TIMEOUT with less runtime than the limit, where the log has somebody who may preempt.
- ``sigterm``: FAILED or COMPLETED, SIGTERM reached it, and a job that outranks it was waiting then.
- ``co_victim``: COMPLETED or FAILED within one grace period of the moment at which the preemptor of
  another victim had its victims signalled, on nodes that this preemptor then took.

The preemptor is the attempt that outranks the victim, was eligible when the victim ended, and starts
on one of its nodes within grace + slack. A preemption is of second order if the preemptor's run had an
infrastructure failure before: the failure then cost the victim's work, too (Kokolis et al., arXiv
2410.21680v2, on preemption cascades).
"""

from __future__ import annotations

from holdfast.answer import Section
from holdfast.fleet.attribution import infrastructure_failures
from holdfast.fleet.gaps import names_ends
from holdfast.fleet.log import FleetLog, bucket
from holdfast.fleet.wording import how, table
from holdfast.numbers import counted, duration
from holdfast.tables import literal

# Slurm keeps whole seconds: a successor may seem to start this long before its victim ends.
ROUNDING_S = 1
# A script that saves and leaves on SIGTERM does so at most this long into a longer grace period.
EXIT_S = 30

# What every step carries of a victim, and of its preemptor: to look them up again is a join of the store
VICTIM = (
    'key, job_id, run, attempt, "user", account, state, qos, gpus, node_count, stop_s, runtime_s, '
    "gpu_hours"
)
PREEMPTOR = "preemptor_key, preemptor, preemptor_run"

EVIDENCE = {
    "log": "controller log",
    "label": "state PREEMPTED",
    "early_timeout": "TIMEOUT before its limit",
    "sigterm": "SIGTERM while a higher class waited",
    "co_victim": "ended with other victims",
}


def preemption_section(log: FleetLog, every: int, second_order: int) -> Section:
    """Who was preempted?

    Args:
        log: the open log.
        every: preempted attempts.
        second_order: those that made room for a job that had failed before.
    """
    means = " ".join(f"WHEN '{name}' THEN {literal(text)}" for name, text in EVIDENCE.items())
    mix = log.arrow(
        f"""SELECT CASE evidence {means} ELSE evidence END AS "means", evidence, state,
            count(*) AS attempts, count(*) FILTER (WHERE "order" = 2) AS second_order
        FROM {preemptions(log)} GROUP BY evidence, state ORDER BY attempts DESC, evidence, state"""
    )
    rows = mix.to_pylist()
    inferred = sum(row["attempts"] for row in rows if row["evidence"] not in ("label", "log"))
    were = f"{counted(every, 'attempt')} {'was' if every == 1 else 'were'} preempted"
    second = f"{second_order:,} made room for a job that had failed before"
    sentence = f"{were}, {inferred:,} of them inferred; {second}."
    if not every:
        sentence = "Nobody was preempted."
        if not names_ends(log):
            sentence = "Cannot tell who was preempted: the scheduler's states do not say so."
    parameters = {
        "grace, where the QOS does not say": duration(log.assumptions.preemption_grace_s),
        "slack until the preemptor starts": duration(log.assumptions.preemption_slack_s),
    }
    computed = how("preemptions", parameters)
    count = {"label": "Of second order", "scaled": None}
    mixed = table(
        mix,
        "means state attempts second_order",
        "One row per kind of evidence and recorded state, most attempts first.",
        "No attempt was preempted.",
        detail=True,
        state="Recorded state",
        second_order=count,
    )
    return Section("preemptions", "Who was preempted?", sentence, [], [mixed], computed)


def preemptions(log: FleetLog) -> str:
    """The preempted attempts, one row each.

    Columns: `VICTIM`, evidence, preemptor_key, preemptor (job id), preemptor_run, signal_s, order.
    """
    return log.keep("preemptions", lambda: _find(log))


def _find(log: FleetLog) -> str:
    found = _inferred(log)
    if log.count("controller_events"):
        found = f"({_with_controller_log(log, found)})"
    return f"""SELECT found.*,
            CASE WHEN failed_s <= signal_s + {ROUNDING_S} THEN 2 ELSE 1 END AS "order"
        FROM {found} AS found LEFT JOIN (
            SELECT run, min(stop_s) AS failed_s FROM {infrastructure_failures(log)} GROUP BY run
        ) AS failed ON preemptor_run = failed.run"""


def _with_controller_log(log: FleetLog, inferred: str) -> str:
    """What slurmctld.log tells, and what is inferred of the time that it does not cover."""
    told = log.keep("told_preemptions", lambda: _from_controller_log(log))
    # At the level "info" the controller names only victims that the grace period did not end; with
    # debug output every one: then nothing else counts in its time.
    span = f"""(SELECT min(time_s) AS low, max(time_s) AS high FROM {log.table("controller_events")}
        HAVING bool_or(event = 'preempt')) AS covered"""
    # The kill that ends a grace period does not always name the preemptor.
    return f"""SELECT {VICTIM}, evidence, coalesce(preemptor_key, guess_key) AS preemptor_key,
            coalesce(preemptor, guess) AS preemptor, coalesce(preemptor_run, guess_run) AS preemptor_run,
            signal_s
        FROM {told} LEFT JOIN (
            SELECT key, preemptor_key AS guess_key, preemptor AS guess, preemptor_run AS guess_run
            FROM {inferred}
        ) AS guess USING (key)
        UNION ALL
        SELECT {VICTIM}, evidence, {PREEMPTOR}, signal_s
        FROM {inferred} AS inferred ANTI JOIN {told} AS told USING (key)
        LEFT JOIN {span} ON signal_s BETWEEN low AND high WHERE low IS NULL"""


def _from_controller_log(log: FleetLog) -> str:
    """Victims that slurmctld.log names: `VICTIM`, evidence, `PREEMPTOR`, signal_s."""
    keys = log.job_keys
    cluster = "cluster, " if log.several_clusters else ""
    return f"""WITH told AS (
            SELECT {keys}, preemptor_raw, time_s, event FROM {log.table("controller_events")}
            WHERE event IN ('preempt', 'preempt_kill', 'preempt_requeue')
        ), victims AS (
            -- The attempt that was on its nodes at that moment; a requeue is logged up to its end.
            -- The signal comes before the requeue and always names the preemptor.
            SELECT {VICTIM}, {cluster}time_s, preemptor_raw FROM told
            JOIN (SELECT {VICTIM}, start_s, {keys} FROM {log.executions}) AS ran USING ({keys})
            WHERE start_s <= time_s + {ROUNDING_S} AND stop_s >= time_s - {ROUNDING_S}
            QUALIFY row_number() OVER (PARTITION BY key ORDER BY event, time_s, preemptor_raw) = 1
        ), took AS (
            SELECT victims.key, {PREEMPTOR} FROM victims
            JOIN (
                SELECT {cluster}key AS preemptor_key, job_id AS preemptor, run AS preemptor_run,
                    job_id_raw AS preemptor_raw, start_s AS preemptor_start_s, attempt AS preemptor_attempt
                FROM {log.executions}
            ) AS starts USING ({cluster}preemptor_raw)
            WHERE preemptor_start_s >= time_s - {ROUNDING_S}
            -- A job that is resized has two attempts in one second.
            QUALIFY row_number() OVER (PARTITION BY victims.key
                ORDER BY preemptor_start_s, preemptor_attempt, preemptor_key) = 1
        )
        SELECT {VICTIM}, 'log' AS evidence, {PREEMPTOR}, time_s AS signal_s
        FROM victims LEFT JOIN took USING (key)"""


def _inferred(log: FleetLog) -> str:
    """Table of the victims that accounting alone gives away: `VICTIM`, evidence, `PREEMPTOR`, signal_s."""
    strong = log.victims
    near = log.keep("preemptors_near", lambda: _candidates_on_nodes(log, strong), as_written=True)
    alone = f"(SELECT strong.* FROM {strong} AS strong ANTI JOIN {near} AS near USING (key))"
    candidates = f"SELECT * FROM {near} UNION ALL {_candidates_waiting(log, alone)}"
    # The likeliest preemptor explains the most victims at once: a large job has many, all at one
    # moment; that another attempt was quicker to take one of their nodes is chance.
    took = log.keep(
        "preemptors_of_strong",
        f"""SELECT key, {PREEMPTOR}, shared FROM (
            SELECT candidates.*, count(*) OVER (PARTITION BY preemptor_key) AS votes
            FROM ({candidates}) AS candidates
        ) AS voted
        QUALIFY row_number() OVER (
            PARTITION BY key ORDER BY votes DESC, shared DESC, preemptor_start_s, preemptor_key) = 1""",
        as_written=True,
    )
    # SIGTERM alone proves nothing: a user's own tools send it, too. Nor does a TIMEOUT before its limit
    # where nobody could have preempted: an administrator may cut the limit of a job that runs.
    sure = log.view(
        "sure_preemptions",
        f"""SELECT {VICTIM}, evidence, {PREEMPTOR}, CAST(stop_s AS DOUBLE) AS signal_s
        FROM {strong} LEFT JOIN {took} USING (key)
        WHERE evidence = 'label' OR preemptor_key IS NOT NULL
            OR (evidence = 'early_timeout' AND {_may_preempt(log, strong)})""",
    )
    # Where every victim is labelled, Slurm labels them all: there is no silent one to look for.
    known = log.keep(
        "known_preemptors",
        f"""SELECT took.key, preemptor_key, stop_s, runtime_s
        FROM {took} AS took JOIN {strong} AS strong ON took.key = strong.key
        WHERE shared > 0 AND evidence <> 'label'""",
    )
    youngest_s = log.value(f"SELECT min(runtime_s) FROM {known}")
    if youngest_s is None:
        return sure
    return log.keep(
        "inferred_preemptions",
        f"""SELECT * FROM {sure} UNION ALL
        SELECT {VICTIM}, evidence, {PREEMPTOR}, signal_s
        FROM ({_co_victims(log, known, youngest_s)}) AS silent ANTI JOIN {sure} USING (key)""",
    )


def _may_preempt(log: FleetLog, strong: str) -> str:
    """Whether anything in this log preempts, also where no preemptor is seen (SQL).

    Classes of jobs of which one outranks another; or Slurm labels a victim.
    """
    ranked = f"EXISTS (FROM {_ranks(log)} WHERE NOT labelled_only)"
    several = "TRUE" if _class_column(log) == "qos" else "FALSE"
    return f"({several} AND {ranked} OR EXISTS (FROM {strong} WHERE evidence = 'label'))"


def _ranks(log: FleetLog) -> str:
    """Who may preempt whom.

    A class is a quality of service, or (in a log with one) a partition. Pairs come from the QOS table
    where it says what preempts what; else a class outranks those whose mean priority is lower; where
    no class outranks another, a victim that is labelled is matched with its own, in which the job's
    priority decides.

    Columns: victim_class, preemptor_class, labelled_only, grace_s.
    """
    column = _class_column(log)
    usual = literal(float(log.assumptions.preemption_grace_s))
    return log.keep(
        "preemption_ranks",
        f"""WITH worth AS (
            -- A held job has no priority.
            SELECT "{column}" AS class,
                sum(held_priority) / sum(held) AS priority
            FROM {log.tallies} WHERE ran AND "{column}" IS NOT NULL GROUP BY "{column}"
        ), known AS (
            SELECT * FROM {log.table("qos")} WHERE {column == "qos"}
        ), pairs AS (
            SELECT unnest(preempts) AS victim_class, qos AS preemptor_class, 0 AS level FROM known
            UNION ALL SELECT low.class, high.class, 1
            FROM worth AS low JOIN worth AS high ON low.priority < high.priority
            UNION ALL SELECT class, class, 2 FROM worth
        )
        SELECT victim_class, preemptor_class, level = 2 AS labelled_only,
            CAST(coalesce(grace_s, {usual}) AS DOUBLE) AS grace_s
        FROM (SELECT *, min(level) OVER () AS best FROM pairs) AS ranked
        LEFT JOIN (SELECT qos, grace_s FROM known) AS grace ON victim_class = qos
        WHERE level = best""",
    )


def _class_column(log: FleetLog) -> str:
    """What ranks jobs in this log: "qos", or "partition" where only one QOS is in use."""
    in_use = log.value(f"SELECT count(DISTINCT qos) FROM {log.tallies} WHERE ran")
    return "qos" if in_use > 1 else "partition"


def _outranked(log: FleetLog, victims: str) -> str:
    """Victims, one row per class that may preempt them, with the grace period they were given."""
    column = f'"{_class_column(log)}"'
    return f"""SELECT victims.*, {column} AS rank_class, preemptor_class, grace_s
        FROM {victims} AS victims JOIN {_ranks(log)} AS ranks ON {column} = victim_class
        WHERE evidence = 'label' OR NOT labelled_only"""


def _starts(log: FleetLog, extra: str, where: str) -> str:
    """Attempts as possible preemptors, with further columns."""
    return f"""SELECT key AS preemptor_key, job_id AS preemptor, run AS preemptor_run,
            "{_class_column(log)}" AS own_class, priority AS preemptor_priority,
            eligible_s AS preemptor_eligible_s, start_s AS preemptor_start_s, {extra}
        FROM {log.executions} WHERE {where}"""


def _in_time(log: FleetLog) -> str:
    """Whether the preemptor waited when the victim ended and started soon after."""
    return f"""preemptor_start_s >= stop_s - {ROUNDING_S}
        AND preemptor_start_s <= stop_s + grace_s + {literal(log.assumptions.preemption_slack_s)}
        AND coalesce(preemptor_eligible_s, 0) <= stop_s + {ROUNDING_S}
        AND preemptor <> job_id
        AND (preemptor_class <> rank_class OR preemptor_priority > priority OR priority IS NULL)"""


def _window_s(log: FleetLog) -> float:
    """The longest time from a victim's end to its preemptor's start."""
    grace = log.value(f"SELECT max(grace_s) FROM {_ranks(log)}") or 0.0
    return max(1.0, grace + log.assumptions.preemption_slack_s + ROUNDING_S)


def _candidates_on_nodes(log: FleetLog, victims: str) -> str:
    """Attempts that took nodes of a victim: key, `PREEMPTOR`, preemptor_start_s, shared."""
    width = _window_s(log)
    ended = bucket(f"stop_s - {ROUNDING_S}", width)
    column = f'"{_class_column(log)}"'
    starts = _starts(
        log,
        f"{bucket('start_s', width)} AS bucket, unnest(nodes) AS node",
        f"{column} IN (SELECT preemptor_class FROM {_ranks(log)})",
    )
    # Few attempts start where a victim ended: who outranks whom is asked of those alone.
    return f"""SELECT key, preemptor_key, min(preemptor) AS preemptor, min(preemptor_run) AS preemptor_run,
            min(preemptor_start_s) AS preemptor_start_s, count(*) AS shared
        FROM ({starts}) AS starts
        JOIN (
            SELECT *, unnest([{ended}, {ended} + 1]) AS bucket FROM (
                SELECT key, job_id, {column} AS rank_class, priority, evidence, stop_s,
                    unnest(nodes) AS node FROM {victims}
            ) AS each_node
        ) AS ends ON ends.node = starts.node AND ends.bucket = starts.bucket
        JOIN {_ranks(log)} AS ranks ON rank_class = victim_class AND own_class = preemptor_class
        WHERE {_in_time(log)} AND (evidence = 'label' OR NOT labelled_only)
        GROUP BY key, preemptor_key"""


def _candidates_waiting(log: FleetLog, victims: str) -> str:
    """Attempts that outrank a victim and started next, on other nodes: as `_candidates_on_nodes`.

    Slurm may preempt for a job and then start it elsewhere, or later than the window on these nodes.
    """
    width = _window_s(log)
    ended = bucket(f"stop_s - {ROUNDING_S}", width)
    starts = _starts(log, f'{bucket("start_s", width)} AS bucket, "partition"', "TRUE")
    return f"""SELECT key, {PREEMPTOR}, preemptor_start_s, CAST(0 AS BIGINT) AS shared
        FROM ({starts}) AS starts
        JOIN (
            SELECT *, unnest([{ended}, {ended} + 1]) AS bucket
            FROM ({_outranked(log, victims)}) AS outranked WHERE evidence <> 'label'
        ) AS ends ON ends."partition" = starts."partition"
            AND ends.bucket = starts.bucket AND preemptor_class = own_class
        WHERE {_in_time(log)}"""


def _co_victims(log: FleetLog, known: str, youngest_s: int) -> str:
    """Attempts that ended with the known victims of one preemptor, on nodes that it took.

    Args:
        log: the open log.
        known: strong victims with key, preemptor_key, stop_s and runtime_s.
        youngest_s: the shortest runtime among them. Slurm exempts young jobs (PreemptExemptTime), so
            no victim is younger.

    Returns:
        A query of `VICTIM`, evidence ("co_victim"), `PREEMPTOR`, signal_s.
    """
    width = _window_s(log)
    signalled = bucket(f"signalled_s - {ROUNDING_S}", width)
    takers = _starts(log, "nodes", f"key IN (SELECT preemptor_key FROM {known})")
    # A script that fails by itself has a code of its own; one that saves leaves with 0.
    quiet = f"""(
        SELECT *, 'co_victim' AS evidence FROM {log.executions}
        WHERE state IN ('COMPLETED', 'FAILED') AND end_s IS NOT NULL
            AND NOT coalesce(sigterm, FALSE) AND runtime_s >= {youngest_s}
            AND coalesce(exit_code, 0) = 0
        )"""
    return f"""SELECT {VICTIM}, evidence, {PREEMPTOR}, CAST(stop_s AS DOUBLE) AS signal_s FROM (
            SELECT *, {bucket("stop_s", width)} AS bucket, unnest(nodes) AS node
            FROM ({_outranked(log, quiet)}) AS outranked
        ) AS ends
        JOIN (
            SELECT *, unnest([{signalled}, {signalled} + 1]) AS bucket FROM (
                SELECT taker.*, signal_s AS signalled_s, unnest(nodes) AS node
                FROM ({takers}) AS taker JOIN (
                    SELECT preemptor_key, min(stop_s) AS signal_s FROM {known} GROUP BY preemptor_key
                ) AS signals ON taker.preemptor_key = signals.preemptor_key
            ) AS each_node
        ) AS takers ON ends.node = takers.node AND ends.bucket = takers.bucket
            AND preemptor_class = own_class
        WHERE {_in_time(log)} AND stop_s >= signalled_s - {ROUNDING_S}
            AND stop_s <= signalled_s + least(grace_s, {EXIT_S}) + {ROUNDING_S}
        QUALIFY row_number() OVER (PARTITION BY key ORDER BY preemptor_start_s, preemptor_key) = 1"""
