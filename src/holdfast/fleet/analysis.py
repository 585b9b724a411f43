"""Everything that a fleet report says, computed once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ibis
import pandas as pd

from holdfast.errors import InputError
from holdfast.fleet.attribution import (
    UNATTRIBUTED,
    ClockLag,
    clock_lag,
    infrastructure_failures,
    ranked_causes,
)
from holdfast.fleet.ettr_forms import expected_ettr, optimal_ettr
from holdfast.fleet.ettr_measured import MeasuredEttr, measured_ettr
from holdfast.fleet.failure_trend import Trend
from holdfast.fleet.failures import Mttf, failure_trend, mttf
from holdfast.fleet.lemon_model import SIGNALS, LemonDetector
from holdfast.fleet.log import FleetLog
from holdfast.fleet.losses import Goodput, goodput, losses
from holdfast.fleet.node_ranking import Lemons, lemons
from holdfast.fleet.outage_log import Outages, outage_failures, outage_rate_over_time
from holdfast.fleet.preemption import preemptions
from holdfast.fleet.state_mix import Status, status
from holdfast.fleet.timeline import checks_introduced, rate_over_time

MOST_ATTEMPTS = 60
"""Attempts of one job that a timeline shows; more cannot be told apart."""


@dataclass(frozen=True)
class Lever:
    """One change and the ETTR that it would give a job of the reference size."""

    name: str
    """What would change, for example "checkpoint every 7 min instead of 60 min"."""
    ettr: float


@dataclass(frozen=True)
class Analysis:
    """The results behind a fleet report; each is computed on first use and kept."""

    log: FleetLog

    @cached_property
    def status(self) -> Status:
        """How attempts ended."""
        return status(self.log)

    @cached_property
    def goodput(self) -> Goodput:
        """What failures cost."""
        return goodput(self.log)

    @cached_property
    def min_gpus(self) -> int:
        """Threshold of the failure rate: the assumed one, or 0 where nothing is larger."""
        return 0 if self.mttf is None else self.mttf.min_gpus

    @cached_property
    def mttf(self) -> Mttf | None:
        """The failure model of attempts above the threshold, or of all; None if nothing ran."""
        try:
            return mttf(self.log)
        except InputError:
            return self.mttf_all

    @cached_property
    def mttf_all(self) -> Mttf | None:
        """The failure model of all attempts, for the figure by job size; None if nothing ran."""
        try:
            return mttf(self.log, min_gpus=0)
        except InputError:
            return None

    @cached_property
    def over_time(self) -> tuple[pd.DataFrame, str]:
        """The failure rate by bin of time and cause; what a bin is."""
        if self.outages is not None:
            return outage_rate_over_time(self.log, self.outages)
        return rate_over_time(self.log, self.min_gpus)

    @cached_property
    def trend(self) -> Trend:
        """Whether the rate drifts."""
        frame, unit = self.over_time
        return failure_trend(frame, unit)

    @cached_property
    def introduced(self) -> pd.DataFrame:
        """Checks that began during the log."""
        return checks_introduced(self.log)

    @cached_property
    def new_checks(self) -> pd.DataFrame:
        """The `introduced` checks that began after the first bin of time: they can cause a step."""
        frame, _ = self.over_time
        first_end_s = frame["end_s"].min() if len(frame) else 0.0
        return self.introduced[self.introduced["first_s"] >= first_end_s]

    @cached_property
    def outages(self) -> Outages | None:
        """The failures of a log of node failures; None if the store has attempts."""
        return outage_failures(self.log)

    @cached_property
    def lemons(self) -> Lemons:
        """The nodes, ranked; without any where the log does not know them (`nodes_known`)."""
        if not self.nodes_known:
            return Lemons(LemonDetector().fit([], [], [], signals={name: [] for name in SIGNALS}))
        return lemons(self.log)

    @property
    def nodes_known(self) -> bool:
        """Whether attempts say on which nodes they ran."""
        return self.log.nodes_known

    @cached_property
    def measured(self) -> MeasuredEttr:
        """ETTR as it was."""
        return measured_ettr(self.log)

    @cached_property
    def clock_lag(self) -> ClockLag | None:
        """Whether health checks fit failures better hours away."""
        return clock_lag(self.log)

    @cached_property
    def unattributed(self) -> tuple[int, int]:
        """(failures that no check explains, all failures)."""
        by_cause = self.goodput.by_cause
        none = by_cause.loc[by_cause["cause"] == UNATTRIBUTED, "failures"].sum()
        return int(none), self.goodput.failures

    @cached_property
    def nodes_by_cause(self) -> dict[str, int]:
        """Distinct nodes whose checks explain failures, by cause."""
        causes = ranked_causes(self.log)
        first = infrastructure_failures(self.log).select("key", cause="label")
        pairs = causes.join(first, [("key", "key"), ("label", "cause")])
        pairs = (
            pairs.filter(pairs.on_failed_node.fill_null(True)).select("label", "node").distinct()
        )
        counts = pairs.group_by("label").agg(n=pairs.count())
        rows = self.log.rows(counts.order_by(ibis.desc("n"), "label"))
        return {row["label"]: row["n"] for row in rows}

    @cached_property
    def preemption_mix(self) -> pd.DataFrame:
        """Preemptions by evidence: evidence, state, attempts, second_order."""
        t = preemptions(self.log)
        grouped = t.group_by("evidence", "state").agg(
            attempts=t.count(), second_order=(t.order == 2).sum()
        )
        return self.log.frame(grouped).sort_values(
            ["attempts", "evidence", "state"], ascending=[False, True, True], ignore_index=True
        )

    @cached_property
    def restart_wait_s(self) -> tuple[float, int]:
        """Mean queue time of restarts after an infrastructure failure (seconds), and how many."""
        failed = infrastructure_failures(self.log).select("run", failed_s="stop_s")
        first = self.log.executions.filter(lambda t: t.attempt > 1).join(failed, "run")
        first = first.filter(first.start_s >= first.failed_s).mutate(
            nearest=ibis.row_number().over(
                group_by=["run", "failed_s"], order_by=[ibis.asc("start_s"), ibis.asc("key")]
            )
        )
        next_ = first.filter(first.nearest == 0)
        waited = ibis.greatest(next_.start_s - ibis.coalesce(next_.eligible_s, next_.submit_s), 0)
        row = self.log.rows(next_.agg(mean=waited.mean(), n=next_.count()))[0]
        return row["mean"] or 0.0, row["n"]

    @cached_property
    def largest_job_nodes(self) -> int:
        """Nodes of the largest attempt that ran."""
        t = self.log.executions
        return self.log.rows(t.agg(nodes=t.node_count.max()))[0]["nodes"] or 0

    @cached_property
    def expected_ettr(self) -> float | None:
        """Expected ETTR of the largest job under the assumptions; None without a failure model."""
        if self.mttf is None or not self.largest_job_nodes:
            return None
        return expected_ettr(**self.ettr_setting)

    @cached_property
    def ettr_setting(self) -> dict[str, Any]:
        """Parameters of the expected ETTR of the largest job: the fitted rate and the assumptions."""
        if self.mttf is None:
            raise ValueError("there is no failure model")
        assumed = self.log.assumptions
        return {
            "nodes": self.largest_job_nodes,
            "rate_per_node_day": self.mttf.model.rate_per_1000_node_days_ / 1000,
            "checkpoint_interval_s": assumed.checkpoint_interval_s,
            "init_s": self.log.init_s,
            "write_s": assumed.write_s,
            "queue_s": self.restart_wait_s[0],
        }

    @cached_property
    def levers(self) -> list[Lever]:
        """What would raise the ETTR of the largest job, the strongest first."""
        if self.expected_ettr is None:
            return []
        base = self.ettr_setting
        interval, write = base["checkpoint_interval_s"], base["write_s"]
        found = []
        for name, text in (
            ("init_s", "initialise in half the time"),
            ("queue_s", "requeue failed jobs with half the wait"),
            ("write_s", "write checkpoints in half the time"),
        ):
            if base[name] > 0:
                found.append(Lever(text, expected_ettr(**{**base, name: base[name] / 2})))
        if write > 0:
            timing = {k: v for k, v in base.items() if k != "checkpoint_interval_s"}
            found.append(Lever("checkpoint at the best interval", optimal_ettr(**timing)))
        else:
            halved = {**base, "checkpoint_interval_s": interval / 2}
            found.append(Lever("checkpoint twice as often", expected_ettr(**halved)))
        change = self._rate_change_without_lemons
        if change < 0:
            pulled = {**base, "rate_per_node_day": base["rate_per_node_day"] * (1 + change)}
            found.append(Lever("pull the lemon nodes", expected_ettr(**pulled)))
        return sorted(found, key=lambda lever: -lever.ettr)

    @property
    def _rate_change_without_lemons(self) -> float:
        rows = self.lemons.nodes.to_pylist()
        bad = set(self.lemons.lemons)
        return float(sum(row["fleet_rate_change"] for row in rows if row["node"] in bad))

    @cached_property
    def timeline_job(self) -> str | None:
        """The job whose attempts are worth a look: the worst crash loop, else the costliest failure."""
        loops = self.goodput.crash_loops
        if len(loops):
            return str(loops["job_id"].iloc[0])
        failures, _ = losses(self.log)
        cost = failures.group_by("job_id").agg(lost=failures.lost.sum())
        rows = self.log.rows(cost.order_by(ibis.desc("lost"), "job_id").limit(1))
        return rows[0]["job_id"] if rows else None

    @cached_property
    def timeline(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The `job_timeline` of `timeline_job`."""
        return job_timeline(self.log, self.timeline_job)

    @cached_property
    def rejects(self) -> list[dict[str, Any]]:
        """Rejected records by reason: reason, n."""
        t = self.log.table("rejects")
        grouped = t.group_by("reason").agg(n=t.count())
        return self.log.rows(grouped.order_by(ibis.desc("n"), "reason"))


def job_timeline(
    log: FleetLog, job_id: str | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(attempts, checks near their ends) of a job that ran, the last `MOST_ATTEMPTS`."""
    t = log.executions.filter(lambda t: t.job_id == job_id)
    attempts = log.rows(
        t.order_by(ibis.desc("start_s"), ibis.desc("attempt"))
        .limit(MOST_ATTEMPTS)
        .select("key", "attempt", "state", "start_s", "stop_s", "node_count", "gpus")
    )[::-1]
    keys = [row["key"] for row in attempts]
    causes = ranked_causes(log).filter(lambda c: c.key.isin(keys))
    return attempts, log.rows(causes.order_by("key", "rank"))
