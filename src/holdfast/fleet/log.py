"""A fleet's log, opened: the tables of a store as the analyses see them.

`FleetLog` is what every analysis takes. It adds to the store's attempts the columns that all analyses
share, cuts them to the window that the user asked for, and keeps the derived tables (infrastructure
failures, their causes, preemptions) so that a report computes each of them once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property, wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import finalize

from holdfast.errors import InputError
from holdfast.fleet.assumptions import Assumptions
from holdfast.fleet.gangs import with_gangs
from holdfast.fleet.moments import since_s
from holdfast.fleet.node_names import own_names
from holdfast.fleet.schema import NODE_FAILURES, NOT_OVER, TABLES, Row
from holdfast.fleet.store import Store
from holdfast.tables import DEFAULT_ENGINE, connect, literal

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.fleet.taxonomy import Taxonomy

DAY_S = 86_400
HOUR_S = 3_600
# Slurm keeps whole seconds: an attempt that failed within its first ran for less than one
SHORTEST_S = 0.5

USUAL_INIT_S = 300.0
# Share of completed attempts, the shortest ones, that initialization may outlast
SHORT_SHARE = 0.05

NODE_FAIL = "NODE_FAIL"
PREEMPTED = "PREEMPTED"
UNSIZED = (
    "ran AND coalesce(node_count, 0) = 0"  # SQL: on how many nodes an attempt ran is not known
)
BY_NODE = f"state IN {literal(NODE_FAILURES)}"  # SQL: a node ended the attempt
LIMIT_SLACK_S = 1  # A TIMEOUT this much or more under its limit did not run out of time
CHANCE = 0.001  # Probability of what a whole log shows below which it is taken for a part of one
SHARED = 0.02  # Share of the time in use of a node that tells how many GPUs it has
MOST_GPUS = 1_000_000
TOGETHER_S = 300  # Attempts that end within it may have one reason
# What tells one group of attempts from another in `FleetLog.tallies`
TALLIED = ("state", "user", "account", "qos", "partition", "gpus", "node_count")
# Column of the attempts -> its name in `sacct`, and what is unknown without it
KNOWABLE = {
    "nodes": ("NodeList", "which nodes fail, and which check explains a failure, is unknown"),
    "node_count": ("NNodes", "failure rates per node-day are unknown"),
    "gpus": ("AllocTRES", "GPU-hours and job sizes are unknown"),
    "submit_s": ("Submit", "waiting times are unknown and count as zero"),
    "qos": ("QOS", "who may preempt whom is unknown: only states PREEMPTED count as preemptions"),
    "partition": ("Partition", "partitions are unknown"),
    "priority": ("Priority", "who preempted an attempt is unknown without the QOS table"),
    "time_limit_s": ("Timelimit", "preemptions recorded as early TIMEOUTs are not found"),
}


Computed = TypeVar("Computed", bound=Callable[..., Any])

# Table -> its column that names one node
NODE_COLUMNS = {
    **dict.fromkeys(("health", "node_outages", "controller_events", "nodes"), "node"),
    "attempts": "failed_node",
}


class FleetLog:
    """A store, read under stated assumptions.

    Tables are named: what a property or an analysis returns is the name of a view or table of this
    log's engine, for use in queries (DuckDB's SQL, see `holdfast.tables`).

    Attributes:
        store: the opened store.
        assumptions: what is assumed where the log is silent.
        engine: answers the queries of this log alone.
        named: views and tables that it knows.
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
        self.engine = connect(engine)
        self._engine = engine
        self.named: set[str] = set()
        self.found: dict[Any, Any] = {}  # What is no table and computed once, see `once`

    def table(self, name: str) -> str:
        """A table of the store (`holdfast.fleet.schema`).

        Where the log has several clusters, the names of jobs, nodes and partitions carry their cluster
        ("alpha:93", "alpha:n1"), as two clusters may use one name. Nodes have the names that attempts give
        them, whatever an event or an inventory calls them.

        Raises:
            KeyError: if there is no such table.
            StoreError: if a file of it is missing.
        """
        told = self._sized_nodes if name == "nodes" else self._told(name)
        if "node" not in TABLES[name].names or not self.own_names:
            return told
        columns = ", ".join(f'"{each}"' for each in TABLES[name].names if each != "node")
        mine = f"""SELECT {columns}, coalesce(own, node) AS node, own IS NULL AS is_own
            FROM {told} LEFT JOIN {self.called} ON node = said"""
        if name == "nodes":  # an inventory says more of a node than its attempts
            mine = f"""SELECT * FROM ({mine}) AS mine QUALIFY row_number() OVER (
                PARTITION BY node ORDER BY inferred, is_own DESC) = 1"""
        return self.view(f"named_{name}", mine)

    @property
    def _sized_nodes(self) -> str:
        """The nodes; one that attempts alone name has the most GPUs that they had on it at one time.

        One alone, or several that share it, for a while: times of a repeated hour may be an hour off. What
        is not over does not count: accounting may have lost its end. No more than any node of an inventory.
        """
        nodes = self._told("nodes")
        if not self.value(f"SELECT count(*) FROM {nodes} WHERE inferred AND gpus > 0"):
            return nodes
        most = self.value(f"SELECT max(gpus) FROM {nodes} WHERE NOT inferred") or MOST_GPUS
        own = f"CASE WHEN inferred AND used > gpus THEN least(used, greatest(gpus, {most})) ELSE gpus END"
        columns = ", ".join(TABLES["nodes"].names).replace("gpus", f"{own} AS gpus")
        return self.keep(
            "sized_nodes",
            f"""SELECT {columns} FROM {nodes} LEFT JOIN (
                SELECT used_node, max(held) AS used FROM (
                    SELECT used_node, held, sum(for_s) OVER (PARTITION BY used_node) AS all_s,
                        sum(for_s) OVER (PARTITION BY used_node ORDER BY held DESC) AS so_much_s
                    FROM ({self._held("end_s IS NOT NULL")}) AS levels WHERE held > 0
                ) AS sums WHERE so_much_s >= {SHARED} * all_s GROUP BY used_node
            ) AS levels ON node = used_node""",
        )

    def _held(self, where: str) -> str:
        """How many GPUs some attempts had on each node: used_node, at_s, held, for_s.

        What was suspended ran for less than from its start to its end, nobody knows when: it is left out.
        So are attempts whose GPUs do not divide by their nodes.
        """
        order = "OVER (PARTITION BY used_node ORDER BY at_s, change"
        spans = f"""(SELECT unnest(nodes) AS used_node,
                CAST(gpus / nullif(node_count, 0) AS INTEGER) AS part, start_s AS low,
                coalesce(end_s, start_s + runtime_s) AS high
            FROM {self._told("attempts")} WHERE {where} AND gpus > 0 AND gpus % nullif(node_count, 0) = 0
                AND coalesce(end_s - start_s <= runtime_s + 1, TRUE)) AS spans WHERE high > low"""
        return f"""SELECT used_node, at_s, sum(change) {order} ROWS UNBOUNDED PRECEDING) AS held,
                lead(at_s) {order}) - at_s AS for_s
            FROM (
                SELECT used_node, part AS change, low AS at_s FROM {spans}
                UNION ALL SELECT used_node, -part, high FROM {spans}
            ) AS changes"""

    @property
    def called(self) -> str:
        """Names that are not those of attempts: said, own."""
        if "called" not in self.named:
            import pyarrow as pa

            pairs = {"said": [*self.own_names], "own": [*self.own_names.values()]}
            text = dict.fromkeys(pairs, pa.string())
            self.engine.load("called", pa.table(pairs, schema=pa.schema(text)))
            self.named.add("called")
        return "called"

    @cached_property
    def own_names(self) -> dict[str, str]:
        """What events, inventories and Slurm call a node -> its name in attempts, where it is another."""
        return {said: own for said, own in self._nodes.items() if own and own != said}

    @cached_property
    def _nodes(self) -> dict[str, str | None]:
        """Every name of a node -> its name in attempts, or in an inventory; None if neither has it."""
        nodes = self.rows(f"SELECT node, inferred FROM {self._told('nodes')}")
        said = " UNION ".join(
            f"SELECT {column} AS node FROM {self._told(name)}"
            for name, column in NODE_COLUMNS.items()
        )
        names = self.rows(f"SELECT node FROM ({said}) AS said WHERE node <> ''")
        # Those that only attempts name come first: an inventory may write names as monitors do.
        known = [{row["node"] for row in nodes if row["inferred"] is of} for of in (True, False)]
        return own_names([row["node"] for row in names], known)

    def _told(self, name: str) -> str:
        """A table of the store, the names of several clusters apart."""
        stored = self._jobs if name == "attempts" else self._stored(name)
        if not self.several_clusters or "cluster" not in TABLES[name].names:
            return stored
        prefix = "CASE WHEN coalesce(cluster, '') = '' THEN '' ELSE cluster || ':' END"
        columns = []
        for column in TABLES[name].names:
            value = f'"{column}"'
            if column in ("job_id", "node", "failed_node", "partition"):
                value = f'{prefix} || "{column}" AS "{column}"'
            elif column in ("nodes", "excluded_nodes"):
                # Engines differ on other columns inside a lambda. No name of a node has a comma.
                joined = f"replace(array_to_string({column}, ','), ',', ',' || {prefix})"
                value = (
                    f"CASE WHEN array_length({column}) > 0 "
                    f"THEN string_split({prefix} || {joined}, ',') ELSE {column} END AS {column}"
                )
            columns.append(value)
        return self.view(f"told_{name}", f"SELECT {', '.join(columns)} FROM {stored}")

    @property
    def strangers(self) -> list[str]:
        """Nodes of health events that no attempt and no inventory names."""
        said = self.rows(f"SELECT DISTINCT node FROM {self._told('health')}")
        return sorted(row["node"] for row in said if row["node"] and not self._nodes[row["node"]])

    @cached_property
    def strange_checks(self) -> int:
        """Failed checks on them; 0 if no attempt says on which nodes it ran."""
        if not self.strangers or not self.nodes_known or not self.ended():
            return 0
        of_strangers = f"node IN {literal(self.strangers)}"
        events = f"FROM {self.table('health')} WHERE result = 'fail' AND {of_strangers}"
        return int(self.value(f"SELECT count(*) {events}"))

    @cached_property
    def _jobs(self) -> str:
        """The attempts of the store, the pods of each Kubernetes job as one."""
        return with_gangs(self, self._stored("attempts"))

    def _stored(self, name: str) -> str:
        """A table of the store as it is."""
        view = f"stored_{name}"
        schema = TABLES[name]
        if view not in self.named:
            self.engine.parquet(view, self.store.files(name), schema)
            self.named.add(view)
        return view

    @cached_property
    def several_clusters(self) -> bool:
        """Whether the store holds more than one cluster."""
        return len(self.store.facts["clusters"]) > 1

    @cached_property
    def job_keys(self) -> str:
        """Columns that together name a job to its controller, for USING: two clusters use one number."""
        return "job_id_raw, cluster" if self.several_clusters else "job_id_raw"

    def job_id(self, text: str) -> str | None:
        """The id of a job in this log's tables: "alpha:93" for "93" where only alpha has such a job.

        Returns:
            None if no cluster has the job.

        Raises:
            InputError: if several clusters have it.
        """
        candidates = [text]
        if self.several_clusters:
            rows = self.rows(
                f"SELECT DISTINCT job_id FROM {self.attempts} WHERE job_id = {literal(text)} "
                f"OR job_id = cluster || ':' || {literal(text)}"
            )
            candidates = [row["job_id"] for row in rows]
        if len(candidates) > 1:
            raise InputError(
                f"several clusters have a job {text}",
                code="conflict",
                path=self.store.path,
                found=", ".join(sorted(candidates)),
                expected="the job with its cluster",
                remedy=f"write for example {min(candidates)}",
            )
        return candidates[0] if candidates else None

    def count(self, name: str) -> int:
        """Rows of a table of the store."""
        return int(self.value(f"SELECT count(*) FROM {self.table(name)}"))

    def keep(self, name: str, query: str | Callable[[], str], *, as_written: bool = False) -> str:
        """Name the rows of a query (or of what makes one, if that is work), run on first use.

        `as_written` as for `holdfast.tables.Engine.keep`.
        """
        if name not in self.named:
            made = query if isinstance(query, str) else query()
            self.engine.keep(name, made, as_written=as_written)
            self.named.add(name)
        return name

    def view(self, name: str, query: str) -> str:
        """Name a query."""
        if name not in self.named:
            self.engine.view(name, query)
            self.named.add(name)
        return name

    def arrow(self, query: str) -> pa.Table:
        """The rows of a query, or of a table by its name."""
        return self.engine.arrow(query if " " in query else f"SELECT * FROM {query}")

    def rows(self, query: str) -> list[Row]:
        """The rows of a (small) query or table as plain values; nulls are None."""
        return cast("list[Row]", self.arrow(query).to_pylist())

    def value(self, query: str) -> Any:
        """The only value of a query of one row and column; several questions ask the same."""
        if query not in self.found:
            self.found[query] = self.arrow(query).column(0)[0].as_py()
        return self.found[query]

    @cached_property
    def taxonomy(self) -> Taxonomy:
        """What check names and XIDs mean."""
        from holdfast.fleet.taxonomy import load

        return load(self.assumptions.taxonomy)

    @property
    def whole(self) -> FleetLog:
        """The log without its window, for what is true of a log and not of what happened since."""
        return self if self.since_s is None else self._whole

    @cached_property
    def _whole(self) -> FleetLog:
        return FleetLog(self.store, self.assumptions, engine=self._engine)

    @cached_property
    def begin_s(self) -> float:
        """Start of the window."""
        begin = float((self.store.facts["time_range"] or (0, 0))[0])
        firsts = [row["first_s"] for row in self.cut_off]
        if firsts and len(firsts) == self.value(f"SELECT count(*) FROM {self._firsts}"):
            begin = float(min(firsts))
        return begin if self.since_s is None else max(begin, self.since_s)

    @property
    def _firsts(self) -> str:
        """Clusters: own (name or ""), begin_s (of its attempts), first_s (its first end, or null)."""
        return self.keep(
            "first_ends",
            f"""SELECT coalesce(cluster, '') AS own, min(start_s) AS begin_s, min(end_s) AS first_s
            FROM {self._placed} WHERE ran AND start_s IS NOT NULL GROUP BY 1""",
        )

    @property
    def cut_off(self) -> list[Row]:
        """Those of `late_ends` of whose log the first part is missing."""
        return [row for row in self.late_ends if not row["at_once"]]

    @cached_property
    def late_ends(self) -> list[Row]:
        """Clusters whose first end is later than chance: own, first_s, running, longest_s, at_once.

        `sacct -S` lists what was running at a time with its real, earlier start, but not what had
        ended. So the attempts that started before the first end (`running` of them, up to `longest_s`
        before) have none of the ends that attempts of their size have at the same age later on. Of those
        that reach the age of an end, the share that does so after the first end is the probability that
        the end falls there too (as in a log-rank test). Where the product over all ends, those close
        together counted once, is below `CHANCE`, the attempts that ended before are not in the log; but
        where the others started `at_once`, the cluster may have done so too, with long jobs.
        """
        together = f"count(*) OVER (PARTITION BY own, {bucket('end_s', TOGETHER_S)}, ended)"
        reached = "OVER (PARTITION BY own, size ORDER BY age_s, kind ROWS UNBOUNDED PRECEDING)"
        return self.rows(
            f"""WITH lives AS (
                SELECT own, node_count AS size, first_s, end_s, end_s IS NOT NULL AS ended,
                    greatest(first_s - start_s, 0) AS before_s, stop_s - start_s AS lived_s
                FROM {self._placed} AS placed JOIN {self._firsts} AS firsts
                    ON coalesce(placed.cluster, '') = own
                WHERE ran AND start_s < 2 * first_s - begin_s -- what starts later says little more
            ), ages AS (
                SELECT own, size, 0 AS age_s, 0 AS kind, 1 AS early, 0 AS late, 0 AS weight
                FROM lives WHERE before_s > 0
                UNION ALL SELECT own, size, before_s, 0, CASE WHEN before_s > 0 THEN -1 ELSE 0 END, 1, 0
                FROM lives
                UNION ALL SELECT own, size, lived_s, 1, 0, 0, CAST(1 AS DOUBLE) / {together}
                FROM lives WHERE ended
                UNION ALL SELECT own, size, lived_s, 2, 0, -1, 0 FROM lives
            ), risks AS (
                SELECT own, weight, sum(early) {reached} AS early, sum(late) {reached} AS late FROM ages
            ), chances AS (
                SELECT own, sum(weight * ln(late / (early + late))) AS log_p
                FROM risks WHERE weight > 0 GROUP BY own
            )
            SELECT own, max(first_s) AS first_s, max(before_s) AS longest_s, count(*) AS running,
                quantile_cont(before_s, 0.25) >= 0.75 * quantile_cont(before_s, 0.75) AS at_once
            FROM lives JOIN chances USING (own)
            WHERE before_s > 0 AND log_p < {literal(math.log(CHANCE))} GROUP BY own ORDER BY own"""
        )

    @cached_property
    def end_s(self) -> float:
        """End of the log: the last moment that its attempts (or, without any, its events) speak of.

        Of one of Kubernetes the last that an object states.
        """
        return float((self.store.facts["time_range"] or (0, 0))[1])

    @cached_property
    def gpus_per_node(self) -> int:
        """GPUs of the typical node (the most frequent count in the inventory; 8 if unknown)."""
        sizes = self.rows(
            f"SELECT gpus FROM {self.table('nodes')} WHERE gpus > 0 "
            "GROUP BY gpus ORDER BY count(*) DESC, gpus DESC LIMIT 1"
        )
        return sizes[0]["gpus"] if sizes else 8

    @cached_property
    def attempts(self) -> str:
        """Attempts that were alive in the window, with the columns that every analysis shares.

        Added: `run` (identity of the logical task: attempts of one run are requeues of each other),
        `stop_s` (end, or the last sight of it while it runs), `exposed_s` (runtime inside the
        window, and after the first end of a log that is `cut_off`), `gpu_hours` and `node_days` (of the
        exposed time). `end_s` is null while an attempt runs and where its end cannot be placed in time;
        else the end, or start + runtime where the log has a final state and no end. What runs and has no
        elapsed time is taken to run until the log ends.
        """
        exposed = "coalesce(runtime_s, 0)"
        alive = "TRUE"
        since = int(self.since_s or 0)
        if since or self.cut_off:
            cases = "".join(
                f"WHEN cluster = {literal(row['own'])} THEN {max(row['first_s'] + 1, since)} "
                for row in self.cut_off
            )
            begin = f"CASE WHEN cluster IS NULL THEN {since} {cases}ELSE {since} END"
            exposed = f"least({exposed}, greatest(stop_s - {begin}, 0))"
            # (the first end is when to begin, so it does not count)
            alive = f"stop_s >= CASE WHEN ran THEN {begin} ELSE {since} END"
        return self.view(
            "attempts",
            f"""SELECT *, exposed_s * coalesce(gpus, 0) / {HOUR_S} AS gpu_hours,
                exposed_s * coalesce(node_count, 0) / {DAY_S} AS node_days
            FROM (
                SELECT *, CASE WHEN ran THEN {exposed} ELSE 0 END AS exposed_s
                FROM {self._placed} AS placed WHERE {alive}
            ) AS exposed""",
        )

    @property
    def _placed(self) -> str:
        """The attempts of the store, each placed in time, and given nodes, as far as it can be.

        One that does not say on how many nodes it ran has as many as its GPUs fill, if they fill one.
        """
        run = "CASE WHEN reuse > 0 THEN CAST(reuse AS VARCHAR) || '~' || job_id ELSE job_id END"
        if self.assumptions.chain_by_name:
            named = "\"user\" || '/' || name || '/' || coalesce(work_dir, '') || '/'"
            run = f"coalesce({named} || CAST(node_count AS VARCHAR), {run})"
        made = ("end_s", "runtime_s", "node_count")
        told = [name for name in TABLES["attempts"].names if name not in made]
        rest = ", ".join(f'"{name}"' for name in told)
        lasts = " OR ".join(f"state = '{state}'" for state in NOT_OVER)  # IN would join a table
        return self.view(
            "placed",
            f"""SELECT *, {run} AS run, coalesce(end_s, start_s + runtime_s, submit_s) AS stop_s
            FROM (
                SELECT {rest}, CASE WHEN {UNSIZED} AND gpus >= {self.gpus_per_node}
                        THEN CAST(ceil(gpus / {self.gpus_per_node}) AS INTEGER)
                    ELSE node_count END AS node_count,
                    CASE WHEN end_s IS NULL AND NOT ({lasts})
                    THEN start_s + runtime_s ELSE end_s END AS end_s,
                    CASE WHEN runtime_s IS NULL AND end_s IS NULL AND ({lasts})
                    THEN greatest({int(self.end_s)} - start_s, 0) ELSE runtime_s END AS runtime_s
                FROM {self.table("attempts")}
            ) AS ended""",
        )

    @cached_property
    def unplaced(self) -> dict[str, int]:
        """Failed attempts without an end that can be placed in time, by state: no rate counts them."""
        return {row["state"]: row["n"] for row in self._endless if row["runtime_s"] is None}

    @cached_property
    def timeless(self) -> int:
        """Failed attempts without an end and with an elapsed time of 0: what they used is not known."""
        return sum(row["n"] for row in self._endless if row["runtime_s"] == 0)

    @property
    def untimed(self) -> int:
        """Attempts that run and of which the log does not say for how long."""
        return int(
            self.value(
                f"""SELECT count(*) FROM {self.table("attempts")} WHERE end_s IS NULL
                AND runtime_s IS NULL AND start_s IS NOT NULL AND state IN {literal(NOT_OVER)}"""
            )
        )

    @property
    def runaways(self) -> int:
        """Attempts that run a day beyond their time limit, or on a node that others filled for a day."""
        running = f"{self._placed} AS placed WHERE ran AND end_s IS NULL AND state = 'RUNNING'"
        first_s = self.value(f"SELECT min(start_s) FROM {running}")
        if first_s is None:
            return 0
        return int(
            self.value(
                f"""SELECT count(*) FROM {running} AND (runtime_s > time_limit_s + {DAY_S} OR key IN (
                    SELECT key FROM (
                        SELECT key, unnest(nodes) AS used_node, start_s FROM {running} AND gpus > 0
                    ) AS mine JOIN (
                        SELECT used_node, min(at_s) AS full_s
                        FROM ({self._held(f"start_s >= {first_s}")}) AS levels
                        JOIN {self.table("nodes")} AS whole ON used_node = node
                        WHERE held > gpus GROUP BY used_node HAVING sum(for_s) >= {DAY_S}
                    ) AS over USING (used_node) WHERE start_s <= full_s))"""
            )
        )

    @property
    def unsized(self) -> int:
        """Attempts that do not say on how many nodes they ran, in a log from which node-days follow."""
        return int(
            self.value(
                f"""SELECT CASE WHEN max(node_count) > 0 OR max(gpus) >= {self.gpus_per_node}
                    THEN count(CASE WHEN {UNSIZED} THEN 1 END) ELSE 0 END
                FROM {self.table("attempts")} WHERE ran"""
            )
        )

    @property
    def cut_up(self) -> int:
        """Attempts that go on where one of their job ends, in one second with others, as if cut there.

        `sacct --truncate` cuts what runs at the end of its window, and gives each part the state and the
        submission of the whole. A requeued job starts later, and ends otherwise now and then.
        """
        before = "OVER (PARTITION BY run, submit_s ORDER BY start_s)"
        return int(
            self.value(
                f"""SELECT coalesce(sum(parts), 0) FROM (
                    SELECT count(*) AS parts, count(DISTINCT run) AS jobs FROM (
                        SELECT run, start_s, state, lag(state) {before} AS said,
                            lag(end_s) {before} AS over_s
                        FROM {self._placed} AS placed WHERE ran AND run IN (
                            SELECT run FROM {self._placed} AS placed WHERE attempt > 1)
                    ) AS part WHERE start_s = over_s AND state = said GROUP BY start_s
                ) AS cuts WHERE jobs > 1"""
            )
        )

    @cached_property
    def _endless(self) -> list[Row]:
        """Failed attempts of which the log does not say how long they ran: state, runtime_s, n."""
        return self.rows(
            f"""SELECT state, start_s + runtime_s - start_s AS runtime_s, count(*) AS n
            FROM {self.table("attempts")} WHERE end_s IS NULL AND ({BY_NODE} OR state = 'FAILED')
                AND coalesce(start_s + runtime_s, start_s) IS NOT DISTINCT FROM start_s
            GROUP BY 1, 2 ORDER BY 1"""
        )

    @cached_property
    def init_s(self) -> float:
        """Initialization of an attempt in seconds, the same for every analysis.

        As the assumptions say; without a value `USUAL_INIT_S`, but no longer than completed attempts
        allow: each of them was initialized.
        """
        if self.assumptions.init_s is not None:
            return self.assumptions.init_s
        found = self.value(
            f"SELECT quantile_cont(runtime_s, {SHORT_SHARE}) FROM {self.executions} "
            f"WHERE state = 'COMPLETED' AND {self.alike}"
        )
        return USUAL_INIT_S if found is None else min(USUAL_INIT_S, float(found))

    @cached_property
    def unknown_columns(self) -> dict[str, int]:
        """Column -> attempts that ran and do not have it, of all attempts that ran ("ran")."""
        # A column that groups is known or not in all attempts of a group
        counts = [
            f'sum(CASE WHEN "{name}" IS NULL THEN attempts ELSE 0 END) AS "{name}"'
            if name in TALLIED
            else f'sum(attempts - "{name}") AS "{name}"'
            for name in KNOWABLE
        ]
        [row] = self.rows(
            f"SELECT sum(attempts) AS ran, {', '.join(counts)} FROM {self.tallies} WHERE ran"
        )
        return {name: n or 0 for name, n in row.items()}

    @property
    def has_gpus(self) -> bool:
        """Whether any attempt that ran had a GPU; else nodes take the place of GPUs."""
        return bool(self.value(f"SELECT max(gpus) FROM {self.tallies} WHERE ran"))

    @property
    def alike(self) -> str:
        """SQL: attempts of the kind that rates, ETTR and projections speak of: with GPUs, if any has."""
        return "gpus > 0" if self.has_gpus else "TRUE"

    @property
    def nodes_known(self) -> bool:
        """Whether some attempt that ran says on which nodes (true where none ran)."""
        missing = self.unknown_columns
        return missing["ran"] == 0 or missing["nodes"] < missing["ran"]

    @cached_property
    def executions(self) -> str:
        """The attempts that started."""
        return self.view("executions", f"SELECT * FROM {self.attempts} WHERE ran")

    @property
    def victims(self) -> str:
        """The executions that may have been preempted, read from the store once.

        Added: `evidence` that its own row gives of it ("label", "early_timeout" or "sigterm").
        """
        return self.keep(
            "victims",
            f"""SELECT * FROM (
                SELECT key, job_id, run, attempt, "user", account, qos, "partition", priority, state, gpus,
                    node_count, nodes, stop_s, runtime_s, gpu_hours, CASE
                        WHEN end_s IS NULL THEN NULL
                        WHEN state = '{PREEMPTED}' THEN 'label'
                        WHEN state = 'TIMEOUT' AND runtime_s + {LIMIT_SLACK_S} < time_limit_s
                            THEN 'early_timeout'
                        WHEN state IN ('FAILED', 'COMPLETED') AND sigterm THEN 'sigterm'
                        END AS evidence
                FROM {self.executions}
            ) AS ended
            WHERE evidence IS NOT NULL""",
        )

    def ended(self, *states: str) -> int:
        """Executions that ended in some states; without any named, all."""
        where = f"state IN {literal(states)}" if states else "TRUE"
        return int(
            self.value(f"SELECT sum(attempts) FROM {self.tallies} WHERE ran AND {where}") or 0
        )

    @property
    def tallies(self) -> str:
        """All attempts, counted: what several questions ask of every one is read from the store once.

        Columns: `TALLIED` and ran; attempts, gpu_hours, node_days (sums), held (those with a
        priority above zero) and held_priority (their sum), and how many say their submit_s, priority,
        time_limit_s and nodes.
        """
        keys = ", ".join(f'"{name}"' for name in TALLIED)
        return self.keep(
            "tallies",
            f"""SELECT {keys}, ran, count(*) AS attempts, sum(gpu_hours) AS gpu_hours,
                sum(node_days) AS node_days,
                count(CASE WHEN priority > 0 THEN 1 END) AS held,
                sum(CASE WHEN priority > 0 THEN CAST(priority AS DOUBLE) END) AS held_priority,
                count(priority) AS priority, count(submit_s) AS submit_s,
                count(time_limit_s) AS time_limit_s,
                count(CASE WHEN array_length(nodes) > 0 OR nodes IS NULL THEN 1 END) AS nodes
            FROM {self.attempts} GROUP BY {keys}, ran""",
        )


AnyLog = str | Path | Store | FleetLog  # What every analysis takes, see `open_log`


def once(compute: Computed) -> Computed:
    """Decorate what is computed of a log: once for the same arguments, as long as the log is open."""

    @wraps(compute)
    def kept(log: FleetLog, *args: Any) -> Any:
        key = (compute, *args)
        if key not in log.found:
            log.found[key] = compute(log, *args)
        return log.found[key]

    return cast("Computed", kept)


@once
def extent(log: FleetLog, cluster: str) -> tuple[float, float]:
    """Begin and end of what the log knows of a cluster; "": of all."""
    own = f"FROM {log.executions} WHERE exposed_s > 0 AND cluster = {literal(cluster)}"
    [row] = log.rows(f"SELECT min(stop_s - exposed_s) AS low, max(stop_s) AS high {own}")
    return (log.begin_s, log.end_s) if row["low"] is None else (row["low"], row["high"])


def bucket(time_s: str, width_s: float) -> str:
    """Number of the time bucket, so that a join near in time becomes a join on equality.

    With buckets as wide as the window of a join, a window reaches into two of them: one side of the
    join then has its rows in its own bucket and in the one beside it.
    """
    return f"CAST(floor(({time_s}) / {literal(float(width_s))}) AS BIGINT)"


def open_log(
    store: AnyLog,
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
        InputError: if a file is not a log, or `since` is not a time.
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
