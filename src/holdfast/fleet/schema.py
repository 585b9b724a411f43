"""The tables of a fleet store: every field's meaning and unit, once, for every format and every analysis.

All times are seconds since 1970-01-01T00:00:00 UTC. Slurm keeps whole seconds, so do attempts; the
clocks of health checks are finer. A time that is not known (a job that never started, an attempt that
is still running) is null, never zero.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

Row = dict[str, Any]  # A row of a table, or what becomes one, as plain values; null is None

STORE_VERSION = 4
TEXTS = "list<string>"
# States of attempts that are not over; every other one is final
NOT_OVER = ("RUNNING", "PENDING", "SUSPENDED", "COMPLETING", "CONFIGURING", "REQUEUE_HOLD")
# States in which a node ended an attempt: it failed under it, or could not boot for it
NODE_FAILURES = ("NODE_FAIL", "BOOT_FAIL")
# How states of a node begin in which it is lost, and with it what runs on it; a drain ends nothing
NODE_LOST = ("DOWN", "FAIL", "NOT_RESPONDING", "NO_RESPOND", "REBOOT")


def schema(**types: str) -> pa.Schema:
    """Columns and what Arrow calls their types; `TEXTS` for lists of text."""
    texts = pa.list_(pa.string())
    return pa.schema({k: texts if v == TEXTS else pa.type_for_alias(v) for k, v in types.items()})


ATTEMPTS = schema(
    # One row per execution of a job id on a set of nodes (a requeued job has several).
    cluster="string",
    job_id="string",  # as printed: "123", "123_4" (array), "123+1" (het)
    job_id_raw="int64",  # JobIDRaw: the number the controller uses
    attempt="int32",  # 1, 2, ...: order of the executions of this job
    reuse="int32",  # how often other jobs had this number before; null: never
    db_index="int64",  # sacct DBIndex; null where the format lacks it
    restarts="int32",  # Slurm's own restart counter; null before 23.x
    name="string",
    user="string",
    account="string",
    partition="string",
    qos="string",
    work_dir="string",
    priority="int64",
    state="string",  # the base state: "CANCELLED by 1001" -> "CANCELLED"
    reason="string",
    exit_code="int32",  # the 1 of ExitCode "1:15"
    exit_signal="int32",  # the 15 of ExitCode "1:15"
    out_of_memory="bool",  # state, a step's state or DerivedExitCode 0:125
    # SIGTERM reached it: ExitCode 15:0 or n:15, DerivedExitCode n:15, or a step that ended n:15.
    # It is how a preempted script usually dies, and a clue where the state does not say so.
    sigterm="bool",
    submit_s="int64",
    eligible_s="int64",
    start_s="int64",
    end_s="int64",  # null while it runs, or unknown
    runtime_s="int64",  # on its nodes; a resize's overlap counts once
    job_runtime_s="int64",  # that, and of the executions of its job before it
    # Whether it had nodes: it started, or ended after some time or by the failure of a node of its
    ran="bool",
    time_limit_s="int64",  # null: none or unknown
    node_count="int32",
    nodes=TEXTS,  # expanded host list; empty if never started
    gpus="int32",  # of the whole attempt; requested if never started
    cpus="int32",
    excluded_nodes=TEXTS,  # nodes the user asked to avoid
    failed_node="string",  # named by Slurm (JSON, 23.x and later); else null
    recovered="bool",  # lost by sacct, rebuilt from earlier steps
    key="int64",  # hash of (cluster, job_id_raw, submit_s, recovered): identity
)

NODES = schema(
    # One row per node; two clusters may name theirs alike.
    cluster="string",  # "" or null: not stated; then there is one cluster
    node="string",
    gpus="int32",  # null: unknown
    cpus="int32",
    state="string",  # as the inventory printed it, for example "IDLE+DRAIN"
    reason="string",
    inferred="bool",  # seen only in logs, not in an inventory
)

HEALTH = schema(
    # One row per event of a health check, kernel XID or ticket.
    cluster="string",  # "" or null: not stated; then there is one cluster
    time_s="double",
    node="string",
    check="string",  # the check's own name; "xid 79" for a kernel XID; "ticket"
    severity="string",  # HIGH (removed at once), LOW (drained), ""
    result="string",  # "fail", "warn" or "ok"
    message="string",
    xid="int32",  # NVIDIA XID number; null for everything else
    key="int64",  # hash of the row: identity
)

NODE_OUTAGES = schema(
    # One row per period in which a node was down or drained.
    cluster="string",  # "" or null: not stated; then there is one cluster
    node="string",
    start_s="int64",
    end_s="int64",  # null: not over
    state="string",  # DOWN, DRAIN, MAINT ...; failure log: "FAILURE"
    reason="string",
    cause="string",  # a failure log's own cause; null elsewhere
    key="int64",  # hash of all that names it: identity
)

CONTROLLER_EVENTS = schema(
    # What slurmctld.log says and accounting does not.
    cluster="string",  # "" or null: not stated; then there is one cluster
    time_s="double",
    # "preempt" (the grace period starts), "preempt_requeue", "preempt_kill" (it ended so), "node_fail"
    event="string",
    job_id="string",  # the preempted or failed job, as in ATTEMPTS.job_id
    job_id_raw="int64",
    preemptor="string",  # job id; null unless a preemption that names it
    preemptor_raw="int64",
    node="string",  # the failed node; null unless "node_fail"
    key="int64",
)

QOS = schema(
    # One row per quality of service (`sacctmgr show qos -P`).
    qos="string",
    priority="int64",
    grace_s="int64",  # time between the preemption signal and the kill
    preempts=TEXTS,  # the qos that this one may preempt
)

REJECTS = schema(
    # One row per record that could not be used.
    source="string",
    line="int64",  # 1-based line on which the record starts
    reason="string",
    raw="string",
)

TABLES: dict[str, pa.Schema] = {
    "attempts": ATTEMPTS,
    "nodes": NODES,
    "health": HEALTH,
    "node_outages": NODE_OUTAGES,
    "controller_events": CONTROLLER_EVENTS,
    "qos": QOS,
    "rejects": REJECTS,
}

# Not kept in a store: what ingest needs of `sacct` steps to recover attempts that sacct lost.
STEPS = schema(
    cluster="string",
    job_id="string",
    job_id_raw="int64",
    db_index="int64",
    submit_s="int64",  # of the step's job row, where known
    start_s="int64",
    end_s="int64",
    state="string",
    nodes=TEXTS,
    out_of_memory="bool",
    sigterm="bool",  # the step's ExitCode is n:15
)
