"""Which nodes of a log to pull: `LemonDetector` on the signals that the store holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import InputError
from holdfast.fleet.lemon_model import SIGNALS, LemonDetector, LemonRule
from holdfast.fleet.log import DAY_S, FleetLog, open_log
from holdfast.fleet.node_signals import node_signals
from holdfast.fleet.outage_log import all_nodes_known, only_outages, outage_exposure
from holdfast.fleet.store import Store


@dataclass(frozen=True)
class Lemons:
    """The nodes of a log, ranked, with the evidence on each."""

    detector: LemonDetector
    """Fitted: `nodes_`, `lemons_`, `rule_lemons_` and more."""
    nodes_known: bool = True
    """False: nodes that never failed are not in a log of node failures, nor stated."""

    @property
    def nodes(self) -> pa.Table:
        """One row per node, highest shrunk rate first (see `LemonDetector.nodes_`)."""
        return self.detector.nodes_

    @property
    def lemons(self) -> list[str]:
        """Nodes that fail more than chance and exposure explain, at the false discovery rate."""
        return self.detector.lemons_

    @property
    def not_separable(self) -> list[list[str]]:
        """Groups of suspects that failed in the same attempts: which of them is bad is unknown."""
        return self.detector.not_separable_

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast fleet lemons``."""
        return {**self.detector.to_dict(), "nodes_known": self.nodes_known}


def lemons(log: str | Path | Store | FleetLog, *, rule: LemonRule | None = None) -> Lemons:
    """Rank the nodes by failure rate and name those that are not bad by chance.

    Args:
        log: a store or an open log.
        rule: thresholds of the paper's rule; None: its defaults.

    Returns:
        The fitted detector. Failures and exposure are those of the whole window of the log, the
        seven signals those of its last 28 days (`lemon_window_s`).

    Raises:
        InputError: if attempts ran and none says on which nodes.
    """
    log = open_log(log)
    window_days = max(log.end_s - log.begin_s, 1.0) / DAY_S
    if only_outages(log):
        nodes = outage_exposure(log)
        names = [row["node"] or f"unnamed {place}" for place, row in enumerate(nodes)]
        detector = LemonDetector(log.assumptions.lemon_fdr, rule).fit(
            names,
            [row["node_days"] for row in nodes],
            [row["failures"] for row in nodes],
            window_days=window_days,
        )
        named = pa.array([row["node"] for row in nodes if row["node"]], pa.string())
        detector.nodes_ = detector.nodes_.filter(pc.is_in(detector.nodes_["node"], value_set=named))
        return Lemons(detector, all_nodes_known(log))
    if not log.nodes_known:
        raise InputError(
            "the nodes of jobs are not in the log: which of them fail is unknown",
            code="missing-column",
            path=log.store.path,
            found="no NodeList",
            remedy="export again with `sacct -a -D -P --format=ALL`, or add NodeList to --format",
        )
    found = node_signals(log)
    columns = {name: found.table[name].to_numpy() for name in found.table.column_names}
    detector = LemonDetector(log.assumptions.lemon_fdr, rule).fit(
        found.table["node"].to_pylist(),
        columns["node_days"],
        columns["failures"],
        known_failures=columns["known_failures"],
        exposure=found.exposure,
        touched=columns["touched"],
        signals={name: columns[name] for name in SIGNALS},
        p_values_without=found.p_values_without,
        window_days=window_days,
    )
    return Lemons(detector)
