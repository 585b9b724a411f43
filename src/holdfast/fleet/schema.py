"""The tables of a fleet store: every field's meaning and unit, once, for every format and every analysis.

All times are seconds since 1970-01-01T00:00:00 UTC. Slurm keeps whole seconds, so do attempts; the
clocks of health checks are finer. A time that is not known (a job that never started, an attempt that
is still running) is null, never zero.
"""

from __future__ import annotations

import pyarrow as pa

STORE_VERSION = 4
# States of attempts that are not over; every other one is final
NOT_OVER = ("RUNNING", "PENDING", "SUSPENDED", "COMPLETING", "CONFIGURING", "REQUEUE_HOLD")
# States in which a node ended an attempt: it failed under it, or could not boot for it
NODE_FAILURES = ("NODE_FAIL", "BOOT_FAIL")
# How states of a node begin in which it is lost, and with it what runs on it; a drain ends nothing
NODE_LOST = ("DOWN", "FAIL", "NOT_RESPONDING", "NO_RESPOND", "REBOOT")

ATTEMPTS = pa.schema(
    [
        # One row per execution of a job id on a set of nodes (a requeued job has several).
        pa.field("cluster", pa.string()),
        pa.field("job_id", pa.string()),  # as printed: "123", "123_4" (array), "123+1" (het)
        pa.field("job_id_raw", pa.int64()),  # JobIDRaw: the number the controller uses
        pa.field("attempt", pa.int32()),  # 1, 2, ...: order of the executions of this job
        pa.field("reuse", pa.int32()),  # how often other jobs had this number before; null: never
        pa.field("db_index", pa.int64()),  # sacct DBIndex; null where the format lacks it
        pa.field("restarts", pa.int32()),  # Slurm's own restart counter; null before 23.x
        pa.field("name", pa.string()),
        pa.field("user", pa.string()),
        pa.field("account", pa.string()),
        pa.field("partition", pa.string()),
        pa.field("qos", pa.string()),
        pa.field("work_dir", pa.string()),
        pa.field("priority", pa.int64()),
        pa.field("state", pa.string()),  # the base state: "CANCELLED by 1001" -> "CANCELLED"
        pa.field("reason", pa.string()),
        pa.field("exit_code", pa.int32()),  # the 1 of ExitCode "1:15"
        pa.field("exit_signal", pa.int32()),  # the 15 of ExitCode "1:15"
        pa.field("out_of_memory", pa.bool_()),  # state, a step's state or DerivedExitCode 0:125
        # SIGTERM reached it: ExitCode 15:0 or n:15, DerivedExitCode n:15, or a step that ended n:15.
        # It is how a preempted script usually dies, and a clue where the state does not say so.
        pa.field("sigterm", pa.bool_()),
        pa.field("submit_s", pa.int64()),
        pa.field("eligible_s", pa.int64()),
        pa.field("start_s", pa.int64()),
        pa.field("end_s", pa.int64()),  # null while it runs, or unknown
        pa.field("runtime_s", pa.int64()),  # on its nodes; a resize's overlap counts once
        pa.field("job_runtime_s", pa.int64()),  # that, and of the executions of its job before it
        # Whether it had nodes: it started, or ended after some time or by the failure of a node of its
        pa.field("ran", pa.bool_()),
        pa.field("time_limit_s", pa.int64()),  # null: none or unknown
        pa.field("node_count", pa.int32()),
        pa.field("nodes", pa.list_(pa.string())),  # expanded host list; empty if never started
        pa.field("gpus", pa.int32()),  # of the whole attempt; requested if never started
        pa.field("cpus", pa.int32()),
        pa.field("excluded_nodes", pa.list_(pa.string())),  # nodes the user asked to avoid
        pa.field("failed_node", pa.string()),  # named by Slurm (JSON, 23.x and later); else null
        pa.field("recovered", pa.bool_()),  # lost by sacct, rebuilt from earlier steps
        pa.field("key", pa.int64()),  # hash of (cluster, job_id_raw, submit_s, recovered): identity
    ]
)

NODES = pa.schema(
    [
        # One row per node; two clusters may name theirs alike.
        pa.field("cluster", pa.string()),  # "" or null: not stated; then there is one cluster
        pa.field("node", pa.string()),
        pa.field("gpus", pa.int32()),  # null: unknown
        pa.field("cpus", pa.int32()),
        pa.field("state", pa.string()),  # as the inventory printed it, for example "IDLE+DRAIN"
        pa.field("reason", pa.string()),
        pa.field("inferred", pa.bool_()),  # seen only in logs, not in an inventory
    ]
)

HEALTH = pa.schema(
    [
        # One row per event of a health check, kernel XID or ticket.
        pa.field("cluster", pa.string()),  # "" or null: not stated; then there is one cluster
        pa.field("time_s", pa.float64()),
        pa.field("node", pa.string()),
        pa.field("check", pa.string()),  # the check's own name; "xid 79" for a kernel XID; "ticket"
        pa.field("severity", pa.string()),  # HIGH (removed at once), LOW (drained), ""
        pa.field("result", pa.string()),  # "fail", "warn" or "ok"
        pa.field("message", pa.string()),
        pa.field("xid", pa.int32()),  # NVIDIA XID number; null for everything else
        pa.field("key", pa.int64()),  # hash of the row: identity
    ]
)

NODE_OUTAGES = pa.schema(
    [
        # One row per period in which a node was down or drained.
        pa.field("cluster", pa.string()),  # "" or null: not stated; then there is one cluster
        pa.field("node", pa.string()),
        pa.field("start_s", pa.int64()),
        pa.field("end_s", pa.int64()),  # null: not over
        pa.field("state", pa.string()),  # DOWN, DRAIN, MAINT ...; failure log: "FAILURE"
        pa.field("reason", pa.string()),
        pa.field("cause", pa.string()),  # a failure log's own cause; null elsewhere
        pa.field("key", pa.int64()),  # hash of all that names it: identity
    ]
)

CONTROLLER_EVENTS = pa.schema(
    [
        # What slurmctld.log says and accounting does not.
        pa.field("cluster", pa.string()),  # "" or null: not stated; then there is one cluster
        pa.field("time_s", pa.float64()),
        # "preempt" (the grace period starts), "preempt_requeue", "preempt_kill" (it ended so), "node_fail"
        pa.field("event", pa.string()),
        pa.field("job_id", pa.string()),  # the preempted or failed job, as in ATTEMPTS.job_id
        pa.field("job_id_raw", pa.int64()),
        pa.field("preemptor", pa.string()),  # job id; null unless a preemption that names it
        pa.field("preemptor_raw", pa.int64()),
        pa.field("node", pa.string()),  # the failed node; null unless "node_fail"
        pa.field("key", pa.int64()),
    ]
)

QOS = pa.schema(
    [
        # One row per quality of service (`sacctmgr show qos -P`).
        pa.field("qos", pa.string()),
        pa.field("priority", pa.int64()),
        pa.field("grace_s", pa.int64()),  # time between the preemption signal and the kill
        pa.field("preempts", pa.list_(pa.string())),  # the qos that this one may preempt
    ]
)

REJECTS = pa.schema(
    [
        # One row per record that could not be used.
        pa.field("source", pa.string()),
        pa.field("line", pa.int64()),  # 1-based line on which the record starts
        pa.field("reason", pa.string()),
        pa.field("raw", pa.string()),
    ]
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
STEPS = pa.schema(
    [
        pa.field("cluster", pa.string()),
        pa.field("job_id", pa.string()),
        pa.field("job_id_raw", pa.int64()),
        pa.field("db_index", pa.int64()),
        pa.field("submit_s", pa.int64()),  # of the step's job row, where known
        pa.field("start_s", pa.int64()),
        pa.field("end_s", pa.int64()),
        pa.field("state", pa.string()),
        pa.field("nodes", pa.list_(pa.string())),
        pa.field("out_of_memory", pa.bool_()),
        pa.field("sigterm", pa.bool_()),  # the step's ExitCode is n:15
    ]
)
