"""A fleet's log, opened: the tables of a store as the analyses see them.

`FleetLog` is what every analysis takes. It adds to the store's attempts the columns that all analyses
share, cuts them to the window that the user asked for, and keeps the derived tables (infrastructure
failures, their causes, preemptions) so that a report computes each of them once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast
from weakref import finalize

import ibis
import pandas as pd

from holdfast.errors import InputError
from holdfast.fleet.assumptions import Assumptions
from holdfast.fleet.moments import since_s
from holdfast.fleet.store import Store, store_error
from holdfast.tables import DEFAULT_ENGINE

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from holdfast.fleet.taxonomy import Taxonomy

DAY_S = 86_400
HOUR_S = 3_600
SHORTEST_S = 0.5
"""Slurm keeps whole seconds: an attempt that failed within its first ran for less than one."""

USUAL_INIT_S = 300.0
SHORT_SHARE = 0.05
"""Share of completed attempts, the shortest ones, that initialization may outlast."""

NODE_FAIL = "NODE_FAIL"
KNOWABLE = {
    "nodes": ("NodeList", "which nodes fail, and which check explains a failure, is unknown"),
    "node_count": ("NNodes", "failure rates per node-day are unknown"),
    "gpus": ("AllocTRES", "GPU-hours, losses and job sizes are unknown"),
    "submit_s": ("Submit", "waiting times are unknown and count as zero"),
    "qos": ("QOS", "who may preempt whom is unknown: only states PREEMPTED count as preemptions"),
    "partition": ("Partition", "partitions are unknown"),
    "priority": ("Priority", "who preempted an attempt is unknown without the QOS table"),
    "time_limit_s": ("Timelimit", "preemptions recorded as early TIMEOUTs are not found"),
}
"""Column of the attempts -> its name in `sacct`, and what is unknown without it."""
_NUMBERS = count()


class FleetLog:
    """A store, read under stated assumptions.

    Attributes:
        store: the opened store.
        assumptions: what is assumed where the log is silent.
        since_s: start of the window (epoch seconds); None: the whole log. Set it before any use.
    """

    since_s: float | None = None

    def __init__(
        self,
        store: Store,
        assumptions: Assumptions | None = None,
        *,
        engine: str = DEFAULT_ENGINE,
    ) -> None:
        self.store = store
        self.assumptions = assumptions or Assumptions()
        self._connection = store.connection(engine)
        self._kept: dict[str, ir.Table] = {}
        # Logs may share an engine, which remembers by name: no two of a process may share names.
        self._number = next(_NUMBERS)

    def table(self, name: str) -> ir.Table:
        """A table of the store (`holdfast.fleet.schema`).

        Where the log has several clusters, the names of jobs, nodes and partitions carry their cluster
        ("alpha:93", "alpha:n1"), as two clusters may use one name.
        """
        t = self.store.table(name, self._connection)
        if not self.several_clusters or "cluster" not in t.columns:
            return t
        prefix = ibis.ifelse(t.cluster.fill_null("") == "", ibis.literal(""), t.cluster + ":")
        changed: dict[str, ir.Value] = {
            column: prefix + t[column]
            for column in ("job_id", "node", "failed_node", "partition")
            if column in t.columns
        }
        for column in ("nodes", "excluded_nodes"):
            if column in t.columns:
                # Not `map`: engines differ on other columns inside of it. No node has a comma.
                every = (prefix + t[column].join(",").replace(",", "," + prefix)).split(",")
                changed[column] = ibis.ifelse(t[column].length() > 0, every, t[column])
        return t.mutate(**changed)

    @cached_property
    def several_clusters(self) -> bool:
        """Whether the store holds more than one cluster.

        Raises:
            StoreError: if it does and was written before node tables named the cluster.
        """
        known = self.store.facts.get("clusters")
        if known is not None:
            return len(known) > 1
        t = self.store.table("attempts", self._connection)
        several = bool(self.rows(t.agg(n=t.cluster.nunique()))[0]["n"] > 1)
        if several:
            raise store_error(
                "older-version",
                f"{self.store.path}: the nodes of this store do not name their cluster\n"
                "  found: a store of an older version with several clusters\n"
                "  remedy: ingest the logs again into a new store",
            )
        return several

    @cached_property
    def job_keys(self) -> list[str]:
        """Columns that together name a job to its controller: two clusters use one number."""
        return ["job_id_raw", "cluster"] if self.several_clusters else ["job_id_raw"]

    def job_id(self, text: str) -> str | None:
        """The id of a job in this log's tables: "alpha:93" for "93" where only alpha has such a job.

        Returns:
            None if no cluster has the job.

        Raises:
            InputError: if several clusters have it.
        """
        found = [text]
        if self.several_clusters:
            t = self.attempts
            t = t.filter((t.job_id == text) | (t.job_id == t.cluster + ":" + text))
            found = [row["job_id"] for row in self.rows(t.select("job_id").distinct())]
        if len(found) > 1:
            raise InputError(
                f"several clusters have a job {text}",
                code="conflict",
                path=self.store.path,
                found=", ".join(sorted(found)),
                expected="the job with its cluster",
                remedy=f"write for example {min(found)}",
            )
        return found[0] if found else None

    def count(self, name: str) -> int:
        """Rows of a table of the store."""
        return cast("int", self.table(name).count().execute())

    def keep(self, name: str, build: Callable[[], ir.Table]) -> ir.Table:
        """A derived table, computed in the engine on first use and kept there."""
        if name not in self._kept:
            self._kept[name] = build().cache()
        return self._kept[name]

    def view(self, name: str, expression: ir.Table) -> ir.Table:
        """The same rows under a name of the engine: Ibis then compiles the name, not its definition."""
        return self._connection.create_view(f"fleet_{name}_{self._number}", expression)

    def frame(self, expression: ir.Table) -> pd.DataFrame:
        """The rows of a (small) table."""
        return cast("pd.DataFrame", self._connection.execute(expression))

    def rows(self, expression: ir.Table) -> list[dict[str, Any]]:
        """The rows of a (small) table as plain values; nulls are None."""
        return cast("list[dict[str, Any]]", self._connection.to_pyarrow(expression).to_pylist())

    @cached_property
    def taxonomy(self) -> Taxonomy:
        """What check names and XIDs mean."""
        from holdfast.fleet.taxonomy import load

        return load(self.assumptions.taxonomy)

    @cached_property
    def begin_s(self) -> float:
        """Start of the window."""
        begin = self._span[0]
        return begin if self.since_s is None else max(begin, self.since_s)

    @cached_property
    def end_s(self) -> float:
        """End of the log: the last moment that its attempts (or, without any, its events) speak of."""
        return self._span[1]

    @cached_property
    def _span(self) -> tuple[float, float]:
        known = self.store.facts["time_range"]
        if known is not None:
            return float(known[0]), float(known[1])
        outages, health = self.table("node_outages"), self.table("health")
        spans = [
            outages.agg(begin=outages.start_s.min(), end=outages.start_s.max()),
            outages.agg(begin=outages.end_s.min(), end=outages.end_s.max()),
            health.agg(begin=health.time_s.min(), end=health.time_s.max()),
        ]
        ends = [self.rows(span)[0] for span in spans]
        moments = [moment for end in ends for moment in end.values() if moment is not None]
        return (float(min(moments)), float(max(moments))) if moments else (0.0, 0.0)

    @cached_property
    def gpus_per_node(self) -> int:
        """GPUs of the typical node (the most frequent count in the inventory; 8 if unknown)."""
        counts = self.table("nodes").filter(lambda t: t.gpus > 0)
        sizes = self.rows(counts.group_by("gpus").agg(n=counts.count()))
        return max(sizes, key=lambda row: (row["n"], row["gpus"]))["gpus"] if sizes else 8

    @cached_property
    def attempts(self) -> ir.Table:
        """Attempts that were alive in the window, with the columns that every analysis shares.

        Added: `run` (identity of the logical task: attempts of one run are requeues of each other),
        `ran`, `stop_s` (end, or the last sight of it while it runs), `exposed_s` (runtime inside the
        window), `gpu_hours` and `node_days` (of the exposed time).
        """
        t = self.table("attempts")
        ran = t.start_s.notnull()
        stop = ibis.coalesce(t.end_s, t.start_s + t.runtime_s, t.submit_s)
        run = t.job_id
        if self.assumptions.chain_by_name:
            run = ibis.coalesce(
                t.user + "/" + t.name + "/" + t.work_dir + "/" + t.node_count.cast("string"), run
            )
        t = t.mutate(ran=ran, stop_s=stop, run=run)
        exposed = ibis.ifelse(t.ran, t.runtime_s.fill_null(0), 0)
        if self.since_s is not None:
            since = int(self.since_s)
            t = t.filter(t.stop_s >= since)
            exposed = ibis.ifelse(
                t.ran, ibis.least(t.runtime_s.fill_null(0), ibis.greatest(t.stop_s - since, 0)), 0
            )
        t = t.mutate(exposed_s=exposed).mutate(
            gpu_hours=lambda t: t.exposed_s * t.gpus.fill_null(0) / HOUR_S,
            node_days=lambda t: t.exposed_s * t.node_count.fill_null(0) / DAY_S,
        )
        return self.view("attempts", t)

    @cached_property
    def init_s(self) -> float:
        """Initialization of an attempt in seconds, the same for every analysis.

        As the assumptions say; without a value `USUAL_INIT_S`, but no longer than completed attempts
        allow: each of them was initialized.
        """
        if self.assumptions.init_s is not None:
            return self.assumptions.init_s
        done = self.executions.filter(lambda t: t.state == "COMPLETED")
        found = self.rows(done.agg(s=done.runtime_s.quantile(SHORT_SHARE)))[0]["s"]
        return USUAL_INIT_S if found is None else min(USUAL_INIT_S, float(found))

    @cached_property
    def unknown_columns(self) -> dict[str, int]:
        """Column -> attempts that ran and do not have it, of all attempts that ran ("ran")."""
        t = self.executions
        absent = {name: t[name].isnull().sum() for name in KNOWABLE if name != "nodes"}
        row = self.rows(t.agg(ran=t.count(), nodes=(t.nodes.length() == 0).sum(), **absent))[0]
        return {name: int(n or 0) for name, n in row.items()}

    @property
    def nodes_known(self) -> bool:
        """Whether some attempt that ran says on which nodes (true where none ran)."""
        missing = self.unknown_columns
        return missing["ran"] == 0 or missing["nodes"] < missing["ran"]

    @cached_property
    def executions(self) -> ir.Table:
        """The attempts that started."""
        return self.view("executions", self.attempts.filter(lambda t: t.ran))


def bucket(time_s: ir.NumericValue, width_s: float) -> ir.NumericValue:
    """Number of the time bucket, so that a join near in time becomes a join on equality."""
    return (time_s / width_s).floor().cast("int64")


def in_two_buckets(table: ir.Table, step: int) -> ir.Table:
    """The rows in their own bucket and in the one `step` (1 or -1) beside it.

    With buckets as wide as the window of a join, a window reaches into two of them.
    """
    return table.union(table.mutate(bucket=table.bucket + step))


def open_log(
    store: str | Path | Store | FleetLog,
    *,
    assumptions: Assumptions | None = None,
    since: str | None = None,
    engine: str = DEFAULT_ENGINE,
) -> FleetLog:
    """Open a store for analysis (public as `holdfast.fleet.open`).

    Args:
        store: the folder that `ingest` wrote; or a log file, which is ingested into a temporary
            store; or a store or log that is already open.
        assumptions: what to assume where the log is silent; None: the paper's values.
        since: use only what happened after: "30d" (before the end of the log) or an ISO time.
        engine: see `holdfast.tables.connect`.

    Raises:
        StoreError: if there is no store at the path, or one of a newer version.
        InputError: if a file is no log, or `since` is no time.
    """
    if isinstance(store, FleetLog):
        return store
    with ExitStack() as scratch:
        if not isinstance(store, Store):
            path = Path(store)
            if path.is_file():
                from holdfast.fleet.ingestion import ingest

                folder = scratch.enter_context(TemporaryDirectory(prefix="holdfast-"))
                ingest([path], folder)
                path = Path(folder)
            store = Store.open(path)
        log = FleetLog(store, assumptions, engine=engine)
        if since is not None:
            log.since_s = since_s(since, log.end_s)
        finalize(log, scratch.pop_all().close)  # removed when nobody holds the log any more
    return log
