"""GPU-hours lost to infrastructure failures, of first and second order.

First order: GPUs x min(runtime, checkpoint interval / 2) of each attempt that the infrastructure ended.
Second order: the same of each attempt that was preempted when such a job came back (Kokolis et al.,
arXiv 2410.21680v2, on goodput loss). The measured ETTR subtracts the same (`productive_time.lost_s`).
In a log without GPUs nodes take their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from holdfast.answer import Figure, Section, Value
from holdfast.fleet import crash_loops
from holdfast.fleet.attribution import UNATTRIBUTED, infrastructure_failures, ranked_causes
from holdfast.fleet.gaps import Doubtful, one_sided, unplaced, why_blind
from holdfast.fleet.job_sizes import bucket_bottom, bucket_label, bucket_top
from holdfast.fleet.log import HOUR_S, AnyLog, FleetLog, open_log
from holdfast.fleet.moments import iso, minute
from holdfast.fleet.preemption import preemption_section, preemptions
from holdfast.fleet.productive_time import lost_s
from holdfast.fleet.schema import Row
from holdfast.fleet.wording import MOST_ROWS, PAPER, how, table
from holdfast.numbers import brief, counted, duration, percent
from holdfast.report import figures
from holdfast.tables import literal

GPU_HOURS = "GPU-hours"
NODE_HOURS = "node-hours"
TOTALS = (
    *("lost_first_order", "lost_second_order", "unit", "failures", "preemptions"),
    "preemptions_second_order",
)
BY = ("by_job_size", "by_cause", "by_user", "by_account")
ORDERS = {"first order": "first", "second order (preempted by a restart)": "second"}
LOSSES = ("first_order", "second_order")
ORDER_COLUMNS = " ".join(LOSSES)


@dataclass(frozen=True)
class Goodput(Doubtful):
    """What failures cost, in GPU-hours; in node-hours (`unit`) where the log has no GPUs."""

    total_hours: float  # Hours of all attempts in the window
    lost_first_order: float
    lost_second_order: float
    unit: str  # "GPU-hours" or "node-hours": of every loss
    failures: int  # Attempts that the infrastructure ended
    preemptions: int  # Attempts that were preempted, by anybody
    preemptions_second_order: int
    # gpus_min, gpus_max, gpu_hours, failures, first_order, second_order (hours)
    by_job_size: pa.Table
    by_cause: pa.Table  # cause, failures, first_order, second_order (hours), largest loss first
    # user, hours, failures, first_order, second_order of the user's own attempts, largest loss
    # first
    by_user: pa.Table
    by_account: pa.Table  # account, and the same
    # run, job_id, gpus, requeues, preempted, gpu_hours_lost, first_s, last_s, most requeues first
    crash_loops: pa.Table
    # key (of the attempt), gpu_hours: what each attempt lost, those that lost nothing left out
    by_attempt: pa.Table

    @property
    def lost_hours(self) -> float:
        """Both orders together."""
        return self.lost_first_order + self.lost_second_order

    @property
    def verdict(self) -> str:
        """Whether there are "failures", "none", or "unknown": the log could not have shown one."""
        if self.failures and not one_sided(self.log):
            return "failures"
        return "unknown" if not self.log.count("attempts") or why_blind(self.log) else "none"

    @property
    def total_gpu_hours(self) -> float:
        """GPU-hours of all attempts; 0 where the log has no GPUs."""
        return self.total_hours if self.unit == GPU_HOURS else 0.0

    @property
    def lost_gpu_hours(self) -> float:
        """GPU-hours lost in both orders; 0 where the log has no GPUs."""
        return self.lost_hours if self.unit == GPU_HOURS else 0.0

    def to_dict(self) -> dict[str, object]:
        """The JSON of ``holdfast fleet goodput`` (hours of GPUs, or of nodes: ``unit``)."""
        loops = [
            {**loop, "first": iso(loop.pop("first_s")), "last": iso(loop.pop("last_s"))}
            for loop in self.crash_loops.to_pylist()
        ]
        fields = {k: v for k, v in vars(self).items() if k in TOTALS}
        tables = {k: getattr(self, k).to_pylist() for k in BY}
        every = {"total": self.total_hours, **fields, **tables, "crash_loops": loops}
        looped = crash_loops.verdict(self.log, self.crash_loops)
        said = {"without_gpus": self.without_gpus, "verdict": self.verdict, "loops_verdict": looped}
        return {**every, **said}

    @cached_property
    def without_gpus(self) -> Row:
        """Failures without GPUs beside some with GPUs: attempts, node_hours (that they lost)."""
        failures, _ = losses(self.log)
        where = f"coalesce(gpus, 0) = 0 AND {self.unit == GPU_HOURS}"
        lost = f"coalesce(node_count, 0) * {lost_s(self.log, preempted=False)} / {HOUR_S}"
        sums = f"count(*) AS attempts, coalesce(sum({lost}), 0) AS node_hours"
        [row] = self.log.rows(f"SELECT {sums} FROM {failures} WHERE {where}")
        return row

    def values(self) -> Sequence[Value]:
        """Hours and the shares that were lost; shares compare over windows of different length."""
        total = self.total_hours
        known = self.total_hours and self.verdict != "unknown"
        losses = {f"lost_{order}_share": getattr(self, f"lost_{order}") for order in LOSSES}
        computed = f"lost / all {self.unit}"
        shares = [
            Value(name, lost / total if known else None, better="lower", how=computed, source=PAPER)
            for name, lost in ({"lost_share": self.lost_hours} | losses).items()
        ]
        return [Value(f"total_{self.unit.lower().replace('-', '_')}", total, self.unit), *shares]

    def sections(self) -> Sequence[Section]:
        """What failures cost, why, whom, and who was preempted."""
        if not self.log.count("attempts"):
            return [
                Section(
                    "loss",
                    "What did failures cost?",
                    "What failures cost is unknown: the log has no attempts.",
                )
            ]
        loops = crash_loops.section(self.log, self.crash_loops, self.costliest_job, self.unit)
        taken = preemption_section(self.log, self.preemptions, self.preemptions_second_order)
        every = (self._loss_section(), self._cause_section(), loops, self._owner_section(), taken)
        return [section for section in every if section is not None]

    def _loss_section(self) -> Section:
        sizes = self.by_job_size
        labels = [bucket_label(top) for top in sizes["gpus_max"].to_pylist()]
        sizes = sizes.append_column("size", pa.array(labels, pa.string()))
        shown = sizes.take(pa.array(range(len(sizes))[::-1], pa.int64()))
        notes = "" if self.unit == GPU_HOURS else "The log has no GPUs: nodes take their place."
        assumed = {"checkpoint interval Δt (assumed)": duration(self._checkpoint_s)}
        tables = [
            table(
                shown,
                f"size gpu_hours failures {ORDER_COLUMNS}",
                "One row per job size, largest first. The loss of a preempted job counts in its own size.",
                "Nothing ran.",
                **self._hours,
            )
        ]
        if self.unit == NODE_HOURS:
            tables = []  # it has no job sizes in GPUs
        rows = [row for row in sizes.to_pylist() if row["gpus_max"] > 0]
        drawn = self._figure(rows, "size", "Job size (GPUs)")
        computed = how("loss", assumed, notes)
        sentence = self._loss_sentence()
        return Section("loss", "What did failures cost?", sentence, drawn, tables, computed)

    @property
    def _checkpoint_s(self) -> float:
        return self.log.assumptions.checkpoint_interval_s

    def _loss_sentence(self) -> str:
        total, lost, since = self.total_hours, self.lost_hours, minute(self.log.begin_s)
        failures = f"{counted(self.failures, 'attempt')} that the infrastructure ended"
        if not self.failures:
            work = f"in {brief(total)} {self.unit} " if total else ""
            seen = f"no infrastructure failure {work}since {since}"
            if self.verdict == "none":
                return f"Nothing to do: {seen}."
            return (
                f"Cannot tell what failures cost: the log shows {seen}, but {why_blind(self.log)}."
            )
        if not total:
            unknown = "the log records no GPUs and no nodes, so their cost is unknown."
            return f"{failures} since {since}: {unknown}"
        sided = one_sided(self.log)
        share = (
            f"cannot tell the share: {sided}"
            if sided
            else f"{percent(lost / total)} of {brief(total)}"
        )
        text = (
            f"{brief(lost)} {self.unit} were lost since {since} in {failures} ({share}; "
            f"a checkpoint every {duration(self._checkpoint_s)} is assumed)."
        )
        causes = {
            row["cause"]: row["first_order"] + row["second_order"]
            for row in self.by_cause.to_pylist()
            if row["cause"] != UNATTRIBUTED
        }
        if causes and lost:
            cause = max(causes, key=lambda each: causes[each])
            nodes = self.nodes_by_cause.get(cause, 0)
            where = f", on {counted(nodes, 'node')}" if nodes else ""
            share = percent(causes[cause] / lost)
            text += f" The largest share ({share}) is due to {cause}{where}."
        if self.log.unplaced:
            text += f" Beside these {unplaced(self.log)} at a time that the log does not tell."
        if self.without_gpus["attempts"]:
            text += (
                f" Not in this figure: {self.without_gpus['attempts']:,} without GPUs, which lost "
                f"{brief(self.without_gpus['node_hours'])} node-hours."
            )
        if self.lost_second_order:
            share = percent(self.lost_second_order / lost)
            attempts = counted(self.preemptions_second_order, "attempt")
            text += f" {share} was lost in {attempts} preempted by jobs restarting after a failure."
        return text

    def _cause_section(self) -> Section:
        assumed = self.log.assumptions
        nodes = [self.nodes_by_cause.get(cause) for cause in self.by_cause["cause"].to_pylist()]
        causes = self.by_cause.append_column("nodes", pa.array(nodes, pa.int64()))
        parameters = {
            "before": duration(assumed.check_before_s),
            "after": duration(assumed.check_after_s),
            "taxonomy": str(assumed.taxonomy or "shipped with holdfast"),
        }
        tables = [
            table(
                causes,
                f"cause failures nodes {ORDER_COLUMNS}",
                "One row per symptom, largest first-order loss first. Every check of one job: "
                "holdfast fleet attribute STORE JOBID.",
                "No failures.",
                **self._hours,
            )
        ]
        drawn = self._figure(self.by_cause.to_pylist(), "cause", "Likeliest cause")
        sentence = self._cause_sentence()
        return Section(
            "causes", "Why do attempts fail?", sentence, drawn, tables, how("causes", parameters)
        )

    @property
    def unattributed(self) -> int:
        """Failures that no check explains."""
        rows = self.by_cause.to_pylist()
        return sum(row["failures"] for row in rows if row["cause"] == UNATTRIBUTED)

    def _cause_sentence(self) -> str:
        none = self.unattributed
        failures = f"{counted(self.failures, 'attempt')} that the infrastructure ended"
        if not self.failures:
            if self.verdict == "none":
                return "No attempt was ended by the infrastructure."
            return f"Cannot tell why attempts failed: {why_blind(self.log)}."
        if none and not self.log.store.facts.get("counts", {}).get("health_events"):
            missing = "the store has no health events that could explain the"
            return f"No failure has a cause: {missing} {failures}."
        known = [row for row in self.by_cause.to_pylist() if row["cause"] != UNATTRIBUTED]
        known = sorted(known, key=lambda row: -row["failures"])[:4]
        parts = [f"{row['cause']} {row['failures']:,}" for row in known if row["failures"]]
        text = f"Of {failures}: {', '.join([*parts, f'unattributed {none:,}'])}"
        share = percent(none / self.failures)
        return f"{text} ({share}: no check fired near their end)." if none else f"{text}."

    @cached_property
    def nodes_by_cause(self) -> dict[str, int]:
        """Distinct nodes whose checks explain failures, by cause."""
        rows = self.log.rows(
            f"""SELECT causes.label, count(DISTINCT node) AS n
            FROM {ranked_causes(self.log)} AS causes
            JOIN {infrastructure_failures(self.log)} AS failures
                ON causes.key = failures.key AND causes.label = failures.label
            WHERE coalesce(on_failed_node, TRUE) GROUP BY causes.label ORDER BY n DESC, causes.label"""
        )
        return {row["label"]: row["n"] for row in rows}

    @cached_property
    def costliest_job(self) -> str | None:
        """The job whose attempts are worth a look: the worst crash loop, else the costliest failure."""
        if len(self.crash_loops):
            return str(self.crash_loops["job_id"][0])
        failures, _ = losses(self.log)
        rows = self.log.rows(
            f"SELECT job_id FROM {failures} GROUP BY job_id ORDER BY sum(lost) DESC, job_id LIMIT 1"
        )
        return rows[0]["job_id"] if rows else None

    def _owner_section(self) -> Section | None:
        """Whose jobs lose most? None where nothing was lost or the log names no user."""
        tables = []
        used: dict[str, Any] = {**self._hours, "hours": {"label": "Used", "unit": self._unit}}
        for name, rows in (("user", self.by_user), ("account", self.by_account)):
            if rows[name].null_count < len(rows) and self.lost_hours:
                most = rows.slice(0, MOST_ROWS)
                tables.append(
                    table(
                        most,
                        f"{name} hours failures {ORDER_COLUMNS}",
                        f"One row per {name}, largest loss first.",
                        detail=bool(tables),
                        **used,
                    )
                )
        if not tables:
            return None
        name, *_ = tables[0].columns
        worst = tables[0].data.slice(0, 1).to_pylist()[0]
        lost = worst["first_order"] + worst["second_order"]
        return Section(
            "owners",
            "Whose jobs lose most?",
            f"The jobs of {name} {worst[name] or 'unknown'} lost most: {brief(lost)} {self.unit}, "
            f"{percent(lost / self.lost_hours)} of the loss.",
            [],
            tables,
        )

    def _figure(self, rows: Sequence[Row], name: str, title: str) -> list[Figure]:
        """Hours lost in each row, two orders; none without a loss."""
        if not sum(row[order] for row in rows for order in LOSSES):
            return []
        bars = [
            {"name": row[name], "order": order, "hours": row[column]}
            for order, column in zip(ORDERS, LOSSES, strict=True)
            for row in rows
        ]
        return [
            figures.bars(
                bars,
                "name",
                "hours",
                f"{self.unit} lost",
                label_title=title,
                part="order",
                meanings=ORDERS,
            )
        ]

    @property
    def _unit(self) -> str:
        """Of columns: "GPU-h" or "node-h"."""
        return self.unit.replace("hours", "h")

    @property
    def _hours(self) -> dict[str, Any]:
        return {name: {"unit": self._unit} for name in LOSSES}


def goodput(log: AnyLog) -> Goodput:
    """Count the GPU-hours that failures cost.

    Args:
        log: a store or an open log.

    Returns:
        Totals, and the losses by job size, by cause and by crash loop.
    """
    log = open_log(log)
    failures, preempted = losses(log)
    ledger = _ledger(log, failures, preempted)
    [counted] = log.rows(
        f'SELECT count(*) AS every, count(*) FILTER (WHERE "order" = 2) AS second FROM {preempted}'
    )
    largest_first = "first_order DESC, second_order DESC, cause"
    by_cause = _lost_by(
        log, f"(SELECT * FROM {ledger} WHERE cause IS NOT NULL)", "cause", "hours", largest_first
    ).drop_columns("hours")
    by_size = _lost_by(log, ledger, f"{bucket_top()} AS gpus_max", "gpu_hours", "gpus_max")
    if not log.has_gpus:
        no_hours = pa.array([0.0] * len(by_size), pa.float64())
        by_size = by_size.set_column(1, "gpu_hours", no_hours)
    bottoms = [bucket_bottom(top) for top in by_size["gpus_max"].to_pylist()]
    largest_first = "first_order + second_order DESC, hours DESC"
    by_user, by_account = (
        _lost_by(log, ledger, name, "hours", f"{largest_first}, {name}")
        for name in ('"user"', "account")
    )
    first, second, failed = (
        sum(by_cause[name].to_pylist()) for name in ("first_order", "second_order", "failures")
    )
    return Goodput(
        total_hours=float(
            log.value(f"SELECT sum({_hours(log)}) FROM {log.tallies} WHERE ran") or 0.0
        ),
        lost_first_order=float(first),
        lost_second_order=float(second),
        unit=GPU_HOURS if log.has_gpus else NODE_HOURS,
        failures=failed,
        preemptions=counted["every"],
        preemptions_second_order=counted["second"],
        by_job_size=by_size.add_column(0, "gpus_min", pa.array(bottoms, pa.int64())),
        by_cause=by_cause,
        by_user=by_user,
        by_account=by_account,
        crash_loops=crash_loops.crash_loops(log, failures, preempted),
        log=log,
        by_attempt=log.arrow(
            f"""SELECT key, sum(lost) AS gpu_hours FROM (
                SELECT key, lost FROM {failures} UNION ALL SELECT key, lost FROM {preempted}
            ) AS lost WHERE lost > 0 GROUP BY key ORDER BY key"""
        ),
    )


def _hours(log: FleetLog) -> str:
    """SQL of the hours of an attempt: of its GPUs, or of its nodes."""
    return "gpu_hours" if log.has_gpus else "node_days * 24"


def losses(log: FleetLog) -> tuple[str, str]:
    """Failures and preemptions with the GPU-hours that each of them lost.

    Returns:
        (infrastructure failures + `lost`; preemptions: key, job_id, user, account, gpus, preemptor,
        preemptor_run, order, `lost`, zero for those of first order and for attempts that are among the
        failures, and `cause`: that of the latest failure of the preemptor's run before the preemption,
        null for those of first order).
    """
    width = f"coalesce({'gpus' if log.has_gpus else 'node_count'}, 0)"
    failures = log.keep(
        "failure_losses",
        f"""SELECT *, {width} * {lost_s(log, preempted=False)} / {HOUR_S} AS lost
        FROM {infrastructure_failures(log)}""",
    )
    # Work is lost once: what a node failure ended in its grace period is lost in first order.
    return failures, log.keep(
        "preemption_losses",
        f"""WITH latest AS (
            SELECT taken.key, failed.label AS cause, row_number() OVER (
                PARTITION BY taken.key ORDER BY failed.stop_s DESC, failed.key
            ) AS place
            FROM {preemptions(log)} AS taken JOIN {failures} AS failed
                ON taken.preemptor_run = failed.run AND failed.stop_s <= taken.signal_s + 1
            WHERE taken."order" = 2
        )
        SELECT taken.key, job_id, "user", account, gpus, preemptor,
            preemptor_run, "order", latest.cause, CASE WHEN taken."order" = 2 AND failed.key IS NULL
            THEN {width.replace("(", "(taken.")} * taken.lost_s / {HOUR_S}
            ELSE CAST(0 AS DOUBLE) END AS lost
        FROM (
            SELECT *, {lost_s(log, preempted=True)} AS lost_s FROM {preemptions(log)}
        ) AS taken
        LEFT JOIN (SELECT key FROM {failures}) AS failed ON taken.key = failed.key
        LEFT JOIN latest ON taken.key = latest.key AND place = 1""",
    )


def _ledger(log: FleetLog, failures: str, preempted: str) -> str:
    """What was used and lost, by whose attempts and why: theirs is a loss, whoever caused it."""
    none = literal(0.0)
    owner = '"user", account, gpus'
    return log.keep(
        "ledger",
        f"""SELECT {owner}, cause, sum(hours) AS hours, sum(failures) AS failures,
            sum(first_order) AS first_order, sum(second_order) AS second_order
        FROM (
            SELECT {owner}, NULL AS cause, {_hours(log)} AS hours, 0 AS failures,
                {none} AS first_order, {none} AS second_order FROM {log.tallies} WHERE ran
            UNION ALL SELECT {owner}, label, {none}, 1, lost, {none} FROM {failures}
            UNION ALL SELECT {owner}, cause, {none}, 0, {none}, lost FROM {preempted} WHERE "order" = 2
        ) AS counted
        GROUP BY {owner}, cause""",
    )


def _lost_by(log: FleetLog, ledger: str, column: str, hours: str, order: str) -> pa.Table:
    """The ledger by a column, with the hours under a name."""
    return log.arrow(
        f"""SELECT * FROM (
            SELECT {column}, sum(hours) AS {hours}, sum(failures) AS failures,
                sum(first_order) AS first_order, sum(second_order) AS second_order
            FROM {ledger} GROUP BY 1
        ) AS sums ORDER BY {order}"""
    )
