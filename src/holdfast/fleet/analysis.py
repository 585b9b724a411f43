"""Everything that a fleet report says, computed once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from holdfast.errors import InputError
from holdfast.fleet.attribution import failed_runs, infrastructure_failures
from holdfast.fleet.ettr_forms import expected_ettr, optimal_ettr
from holdfast.fleet.ettr_measured import MeasuredEttr, measured_ettr
from holdfast.fleet.failures import Mttf, mttf
from holdfast.fleet.gaps import unlike_clusters
from holdfast.fleet.log import FleetLog
from holdfast.fleet.losses import GPU_HOURS, Goodput, goodput
from holdfast.fleet.node_ranking import Lemons, lemons, no_nodes
from holdfast.fleet.outage_log import Outages, outages_of
from holdfast.fleet.schema import Row
from holdfast.fleet.state_mix import Status, status
from holdfast.fleet.timeline import Trend, checks_introduced, failure_trend, rate_over_time


@dataclass(frozen=True)
class Lever:
    """One change and the ETTR that it would give a job of the reference size."""

    name: str  # What would change, for example "checkpoint every 7 min instead of 60 min"
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
    def over_time(self) -> tuple[list[Row], str]:
        """The failure rate by bin of time and cause; what a bin is."""
        return rate_over_time(self.log, self.min_gpus)

    @cached_property
    def trend(self) -> Trend:
        """Whether the rate drifts."""
        over_time, unit = self.over_time
        told = self.mttf is not None and not self.mttf.blind
        told = told and self.log.late_ends == self.log.cut_off and not unlike_clusters(self.log)
        return failure_trend(over_time if told else [], unit)

    @cached_property
    def introduced(self) -> list[Row]:
        """Checks that began during the log."""
        return checks_introduced(self.log)

    @cached_property
    def new_checks(self) -> list[Row]:
        """The `introduced` checks that began after the first bin of time: they can cause a step."""
        frame, _ = self.over_time
        first_end_s = min((row["end_s"] for row in frame), default=0.0)
        return [row for row in self.introduced if row["first_s"] >= first_end_s]

    @cached_property
    def outages(self) -> Outages | None:
        """The failures of a log of node failures; None if the store has attempts."""
        return outages_of(self.log)

    @cached_property
    def lemons(self) -> Lemons:
        """The nodes, ranked; without any where the log does not know them."""
        return lemons(self.log) if self.log.nodes_known else no_nodes(self.log)

    @cached_property
    def measured(self) -> MeasuredEttr:
        """ETTR as it was."""
        return measured_ettr(self.log)

    @property
    def unattributed(self) -> tuple[int, int]:
        """(failures that no check explains, all failures)."""
        return self.goodput.unattributed, self.goodput.failures

    @property
    def without_gpus(self) -> bool:
        """Whether the log has no GPUs, so that sizes are given in nodes."""
        return self.goodput.unit != GPU_HOURS

    @property
    def reference_nodes(self) -> int:
        """Nodes of the job that the report speaks of: the largest that ran, or the whole fleet."""
        if self.outages is not None:
            return self.outages.nodes
        return max(self.largest_job_nodes, 1)

    @cached_property
    def restart_wait_s(self) -> tuple[float, int]:
        """Mean queue time of restarts after an infrastructure failure (seconds), and how many."""
        [row] = self.log.rows(
            f"""SELECT avg(waited_s) AS mean, count(*) AS n FROM (
                SELECT greatest(start_s - coalesce(eligible_s, submit_s), 0) AS waited_s
                FROM (SELECT * FROM {failed_runs(self.log)} WHERE ran AND attempt > 1) AS again
                JOIN (
                    SELECT run, stop_s AS failed_s FROM {infrastructure_failures(self.log)}
                    WHERE {self.log.alike}
                ) AS failed USING (run)
                WHERE start_s >= failed_s
                QUALIFY row_number() OVER (PARTITION BY run, failed_s ORDER BY start_s, key) = 1
            ) AS restarts"""
        )
        return row["mean"] or 0.0, row["n"]

    @cached_property
    def largest_job_nodes(self) -> int:
        """Nodes of the largest attempt that ran."""
        return (
            self.log.value(
                f"SELECT max(node_count) FROM {self.log.tallies} WHERE ran AND {self.log.alike}"
            )
            or 0
        )

    @cached_property
    def expected_ettr(self) -> float | None:
        """Expected ETTR of the largest job under the assumptions; None without a failure rate."""
        if self.mttf is None or self.mttf.blind or not self.largest_job_nodes:
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
        left = 1 - self.lemons.share_avoided(self.log.has_gpus)  # of the failure rate
        more_often = 1.0 if base["write_s"] else 0.5
        levers = [
            Lever(text, expected_ettr(**{**base, name: base[name] * factor}))
            for name, factor, text in (
                ("init_s", 0.5, "initialise in half the time"),
                ("queue_s", 0.5, "requeue failed jobs with half the wait"),
                ("write_s", 0.5, "write checkpoints in half the time"),
                ("rate_per_node_day", left, "pull the lemon nodes"),
                ("checkpoint_interval_s", more_often, "checkpoint twice as often"),
            )
            if base[name] > 0 and factor < 1
        ]
        if base["write_s"]:
            timing = {k: v for k, v in base.items() if k != "checkpoint_interval_s"}
            levers.append(Lever("checkpoint at the best interval", optimal_ettr(**timing)))
        return sorted(levers, key=lambda lever: -lever.ettr)

    @cached_property
    def rejects(self) -> list[Row]:
        """Rejected records by reason: reason, n."""
        return self.log.rows(
            f"SELECT reason, count(*) AS n FROM {self.log.table('rejects')} "
            "GROUP BY reason ORDER BY n DESC, reason"
        )
