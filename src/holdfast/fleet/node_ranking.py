"""The nodes of a log to pull: `LemonDetector` on the signals that the store holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.answer import Finding, Section, Table, Value
from holdfast.errors import InputError
from holdfast.fleet import outage_log
from holdfast.fleet.gaps import Doubtful, nameless_failures, one_sided, why_blind
from holdfast.fleet.incidents import incidents, witnesses
from holdfast.fleet.lemon_model import LemonDetector
from holdfast.fleet.live.journal import spared
from holdfast.fleet.log import DAY_S, AnyLog, FleetLog, extent, open_log
from holdfast.fleet.node_signals import SIGNALS, node_signals
from holdfast.fleet.schema import NODE_LOST, Row
from holdfast.fleet.wording import MOST_ROWS, RATE_UNIT, how, listed, probability, table
from holdfast.numbers import brief, counted, duration, number, percent

MOST_NAMED = 4
GIVEN = ("node_days", "failures", "known_failures", "jobs")


@dataclass(frozen=True)
class Lemons(Doubtful):
    """The nodes of a log, ranked, with the evidence on each."""

    detector: LemonDetector  # Fitted: `nodes_`, `lemons_`, `rule_lemons_` and more
    # False: nodes that never failed are not in a log of node failures, nor stated.
    nodes_known: bool = True
    # Nodes that are out of service, by the log's last word or by its journal, or back from a repair and
    # not found bad since
    out: tuple[str, ...] = ()

    @property
    def nodes(self) -> pa.Table:
        """One row per node, highest shrunk rate first (see `LemonDetector.nodes_`)."""
        return self.detector.nodes_

    @property
    def lemons(self) -> list[str]:
        """Nodes in service that fail more than chance and exposure explain, at the false discovery rate."""
        return [name for name in self.detector.lemons_ if name not in self.out]

    @property
    def lemons_out(self) -> list[str]:
        """Bad nodes that are out of service already, or back from a repair and not found bad since."""
        return [name for name in self.detector.lemons_ if name in self.out]

    @property
    def not_separable(self) -> list[list[str]]:
        """Groups of suspects that failed in the same attempts: which of them is bad is unknown."""
        return self.detector.not_separable_

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast fleet lemons``."""
        content = {
            **self.detector.to_dict(),
            "nodes_known": self.nodes_known,
            "lemons": self.lemons,
        }
        return {
            **content,
            "one_job": self.one_job,
            "verdict": self.verdict,
            "lemons_out": self.lemons_out,
        }

    @cached_property
    def one_job(self) -> list[Row]:
        """Nodes that one job alone blames, again and again: node, job_id, attempts, most first.

        The job may be the reason: none of them is in `lemons`.
        """
        loop = self.log.assumptions.crash_loop_requeues
        return self.log.rows(
            f"""SELECT node, split_part(job, '~', -1) AS job_id, attempts FROM {witnesses(self.log)}
            WHERE jobs = 1 AND job IS NOT NULL AND incidents >= {loop} ORDER BY attempts DESC, node"""
        )

    @cached_property
    def verdict(self) -> str:
        """What to do about nodes: "pull" some, "none", or "unknown": nothing could have been found."""
        if self.lemons or self.not_separable:
            return "pull"
        return "unknown" if self.blind else "none"

    @cached_property
    def blind(self) -> str:
        """Why no lemon could have been found; "" if one could."""
        if not self.log.nodes_known:
            return "the log does not say on which nodes attempts ran; export NodeList too"
        failures = sum(self.nodes["failures"].to_pylist())
        nodes = len(self.nodes)
        # Blame spread over the nodes of large jobs finds a lemon only beside failures that name theirs.
        unsure = nameless_failures(self.log, 1)
        every = nameless_failures(self.log, 2)
        if 2 * unsure > every:
            return f"{unsure:,} of {counted(every, 'failure')} do not tell which node failed"
        if not failures:
            return why_blind(self.log)
        # If all failures were those of one node that is in use as much as the others
        if nodes * nodes ** -max(failures, 1.0) >= self.detector.alpha:
            few = f"{brief(failures)} on {counted(nodes, 'node')}"
            return f"failures are too few to tell nodes apart ({few})"
        return ""

    def share_avoided(self, with_gpus: bool = False) -> float:
        """Share of the failures (of nodes with GPUs alone, if asked) that pulling the lemons avoids."""
        rows = self.nodes.to_pylist()
        mine = [row for row in rows if row["kind"] >= 1 or not with_gpus]
        every, blame = (sum(row["failures"] for row in each) for each in (rows, mine))
        avoided = -sum(row["fleet_rate_change"] for row in mine if row["node"] in self.lemons)
        return avoided * every / blame if blame else 0.0

    def values(self) -> Sequence[Value]:
        """How many nodes fail more than their exposure explains."""
        return [Value("lemon_nodes", len(self.lemons), "nodes", better="lower")]

    def findings(self) -> Sequence[Finding]:
        """The nodes to pull, and those that meet the rule on seven signals."""
        rule = f"Nodes that meet the rule on seven signals: {listed(self.detector.rule_lemons_)}."
        if self.detector.missing_signals_:
            rule = "The rule on seven signals needs job and health logs: they are not in the store."
        return [*super().findings(), Finding(rule, "lemons")]

    def sections(self) -> Sequence[Section]:
        """Which nodes should I pull?"""
        assumed = self.log.assumptions
        parameters = {
            "false discovery rate": f"{100 * self.detector.alpha:g} %",
            f"fleet's rate, {RATE_UNIT}": brief(self.detector.fleet_rate_per_1000_node_days_),
            "failures closer together on a node are one": duration(assumed.incident_gap_s),
            "nodes that meet the rule on seven signals": listed(self.detector.rule_lemons_),
        }
        computed = how("lemons", parameters)
        tables = [self.table(self.nodes.slice(0, MOST_ROWS))]
        return [
            Section("lemons", "Which nodes should I pull?", self._sentence(), [], tables, computed)
        ]

    def _sentence(self) -> str:
        alone = " ".join(
            f"All {row['attempts']:,} failures of {row['node']} come from job {row['job_id']}: they may be "
            "the job's, so look at it before the node."
            for row in self.one_job[:MOST_NAMED]
        )
        names = listed(self.lemons_out, MOST_NAMED)
        out = (
            f"Left out, as they are out of service already or repaired: {names}."
            if self.lemons_out
            else ""
        )
        return " ".join(filter(None, (self._verdict_sentence(), alone, out)))

    def _verdict_sentence(self) -> str:
        rows = self.nodes.to_pylist()
        bad = [row for row in rows if row["node"] in set(self.lemons)]
        shared = " ".join(
            f"At least one of {listed(group, MOST_NAMED)} fails more than chance explains; they failed in "
            "the same jobs: run them apart, or ingest health events."
            for group in self.not_separable[:MOST_NAMED]
        )
        if bad:
            named = "; ".join(self._evidence(row) for row in bad[:MOST_NAMED])
            more = f"; and {len(bad) - MOST_NAMED} more" if len(bad) > MOST_NAMED else ""
            change = percent(self.share_avoided())
            return (
                f"Pull {named}{more}. Without {'it' if len(bad) == 1 else 'them'} the fleet would have "
                f"{change} fewer node failures. {shared}".rstrip()
            )
        if shared:
            return shared
        if self.blind:
            return f"Cannot tell which nodes to pull: {self.blind}."
        if self.lemons_out:
            return "Pull no more nodes: no other fails more than chance and exposure explain."
        suspects = [row for row in rows if row["failures"] > 1][:2]
        if suspects:
            each = (
                f"{r['node']} ({_blame(r)}, {probability('q', r['q_value'], 2)})" for r in suspects
            )
            verb = "rate is that" if len(suspects) == 1 else "rates are those"
            return (
                f"Pull no node on this evidence: the highest {verb} of {' and '.join(each)}, no more "
                "than chance and exposure explain."
            )
        return "Pull no node: none is to blame for more than one failure."

    def _evidence(self, row: Row) -> str:
        ends = ("", "_low", "_high")
        times, low, high = (number(row[f"shrunk_rate{end}"] / row["usual_rate"], 1) for end in ends)
        kinds = self.nodes["usual_rate"].unique()
        rate = f"{times} [{low}, {high}] times the {'fleet' if len(kinds) == 1 else 'node kind'}'s rate"
        return f"{row['node']} ({_blame(row)}, {rate}, {probability('q', row['q_value'])})"

    def table(self, nodes: pa.Table) -> Table:
        """Rows of `nodes` as people read them."""
        signals: dict[str, Any] = {
            name: {"label": signal.label, "digits": signal.digits, "detail": True}
            for name, signal in SIGNALS.items()
            if name in nodes.column_names
        }
        caption = "One row per node, highest shrunk rate first."
        if signals:
            window = duration(self.log.assumptions.lemon_window_s)
            caption += f" The signals count over {window} before the end of the log."
        return table(
            nodes,
            " ".join(
                ["node failures node_days shrunk_rate q_value failures_avoided_per_month", *signals]
            ),
            caption,
            "No node is known.",
            failures={"label": "Blame", "unit": "failures", "digits": 1},
            node_days="In use",
            **signals,
        )


def _blame(row: Row) -> str:
    """Failures to blame on a node: a fraction where nothing tells which of several nodes failed."""
    failures = round(float(row["failures"]), 1)
    whole = failures.is_integer()
    return counted(int(failures), "failure") if whole else f"{number(failures, 1)} failures"


def no_nodes(log: FleetLog) -> Lemons:
    """The ranking of a log that does not tell how often the nodes of its attempts fail: empty."""
    return Lemons(LemonDetector().fit([], [], [], signals={name: [] for name in SIGNALS}), log=log)


def lemons(log: AnyLog) -> Lemons:
    """Rank the nodes by failure rate and name those that are not bad by chance.

    Args:
        log: a store or an open log.

    Returns:
        The fitted detector. Failures and exposure are those of the whole window of the log, the
        seven signals those of its last 28 days (`lemon_window_s`).

    Raises:
        InputError: if attempts ran and none says on which nodes.
    """
    log = open_log(log)
    detector = LemonDetector(log.assumptions.lemon_fdr)
    if outage_log.only_outages(log):
        nodes = outage_log.outage_exposure(log, incidents(log))
        names = [row["node"] or f"unnamed {place}" for place, row in enumerate(nodes)]
        columns = ([row[name] for row in nodes] for name in ("node_days", "failures"))
        detector.fit(names, *columns, window_days=_window_days(log))
        named = pa.array([row["node"] for row in nodes if row["node"]], pa.string())
        detector.nodes_ = detector.nodes_.filter(pc.is_in(detector.nodes_["node"], value_set=named))
        return Lemons(detector, outage_log.all_nodes_known(log), log=log)
    if not log.nodes_known:
        raise InputError(
            "the nodes of jobs are not in the log: which of them fail is unknown",
            code="missing-column",
            path=log.store.path,
            found="no NodeList",
            remedy="export again with `sacct -a -D -P --format=ALL`, or add NodeList to --format",
        )
    if one_sided(log):
        return no_nodes(log)
    signals = node_signals(log)
    columns = {name: signals.table[name].to_numpy() for name in signals.table.column_names}
    names = signals.table["node"].to_pylist()
    clusters = [name.rpartition(":")[0] for name in names]
    detector.fit(
        names,
        **{name: columns[name] for name in GIVEN},
        exposure=signals.evidence.exposure,
        kinds=signals.kinds,
        signals={name: columns[name] for name in SIGNALS},
        p_values_without=signals.evidence.p_values_without,
        window_days=[_window_days(log, cluster) for cluster in clusters],
        clusters=clusters,
    )
    return Lemons(detector, out=_out_of_service(log), log=log)


def _window_days(log: FleetLog, cluster: str = "") -> float:
    begin_s, end_s = extent(log, cluster)
    return max(end_s - begin_s, 1.0) / DAY_S


def _out_of_service(log: FleetLog) -> tuple[str, ...]:
    """Nodes that are out at the end of the log, or that the journal of the store says to leave alone."""
    lost = [state for state in NODE_LOST if state != "REBOOT"]
    open_ = " OR ".join(f"state LIKE '%{word}%'" for word in ("DRAIN", *lost))
    rows = log.rows(
        f"""SELECT DISTINCT node FROM {log.table("node_outages")}
        WHERE end_s IS NULL AND ({open_}) AND state <> '{outage_log.FAILURE}'"""
    )
    return tuple(sorted(spared(log.store.path) | {row["node"] for row in rows}))
