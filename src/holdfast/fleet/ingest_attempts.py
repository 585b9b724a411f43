"""The attempts of a commit: which rows stay, and which execution of its job each row is.

Rows stay in their files; DuckDB holds the few columns that decide. Several sources, or a source and the
store, may have rows of one attempt: one is left. The row that knows most of the end wins: a final state
over RUNNING or PENDING, then the later end, then the longer runtime, then the row with more columns. What
it lacks (a column that its source did not print) comes from the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import ipc

from holdfast.fleet.formats.columns import flat
from holdfast.fleet.ingest_staging import attempt_key, read_arrow
from holdfast.fleet.schema import ATTEMPTS

Mask = npt.NDArray[np.bool_]

_MEMORY = "1GB"
_MERGED_AT_ONCE = 400_000
_NOT_OVER = "'RUNNING', 'PENDING', 'SUSPENDED', 'COMPLETING', 'CONFIGURING', 'REQUEUE_HOLD'"
_OVER = f"coalesce(state NOT IN ({_NOT_OVER}), false)"
_DECIDING = (
    "cluster", "job_id", "job_id_raw", "attempt", "restarts", "state", "reason", "submit_s",
    "start_s", "end_s", "runtime_s", "recovered", "key",
)  # fmt: skip
_EITHER = ("out_of_memory", "sigterm")

# One row per row of every part, in their order: `place` counts them.
_INDEX = """CREATE TABLE attempt AS SELECT place, key, attempt, job_id_raw, submit_s, start_s, end_s,
    runtime_s, hash(cluster, job_id_raw, CASE WHEN job_id_raw IS NULL THEN job_id END) AS job,
    recovered, coalesce(state = 'RESIZING', false) AS resizing,
    coalesce(restarts > 0, false) AS restarted, coalesce(reason = 'BeginTime', false) AS begin_time,
    coalesce(contains(job_id, '_'), false) AS array_task, true AS keep FROM piece"""

# The executions of each job that has several. A job that was resized has a row per size, all with the
# same start: each counts from the end of the row before.
_CHAINS = """CREATE OR REPLACE TABLE chain AS
    SELECT place, row_number() OVER w AS number,
        CASE WHEN lag(resizing) OVER w AND lag(start_s) OVER w = start_s
            AND end_s IS NOT NULL AND lag(end_s) OVER w IS NOT NULL
        THEN greatest(end_s - lag(end_s) OVER w, 0) END AS own_s
    FROM attempt WHERE keep AND job IN (FROM several)
    WINDOW w AS (PARTITION BY job ORDER BY coalesce(submit_s, start_s), start_s, place)"""

# A hidden attempt shows on a job with one row: Slurm's restart counter is above 0; or the row waited for
# BeginTime, as a requeued job does, and was submitted later than a job with a higher number, which a
# user's --begin does not cause. (Tasks of an array get their numbers when they start but keep the
# array's time of submission.) A resized job has two rows even without --duplicates. Gaps in DBIndex are
# no sign: other users' jobs and purged ones leave them too.
_EXECUTIONS = """WITH real AS (FROM attempt WHERE keep AND NOT recovered), late AS (
        SELECT place FROM (
            SELECT *, min(submit_s) OVER (
                ORDER BY job_id_raw DESC, submit_s DESC
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ) AS after_s
            FROM real WHERE NOT array_task AND submit_s IS NOT NULL AND job_id_raw IS NOT NULL
        ) WHERE after_s < submit_s AND begin_time AND start_s IS NOT NULL
    ), marked AS (
        SELECT job, resizing, restarted OR place IN (FROM late) AS requeued FROM real
    ), job AS (
        SELECT count(*) AS rows, count(*) FILTER (NOT resizing) AS executions,
            bool_or(requeued) AS requeued
        FROM marked WHERE job IN (FROM several) GROUP BY job
        UNION ALL SELECT 1, 1, true FROM marked
            WHERE requeued AND NOT resizing AND job NOT IN (FROM several)
    )
    SELECT count(*) FILTER (executions > 1),
        count(*) FILTER (rows = 1 AND executions = 1 AND requeued) FROM job"""


@dataclass(frozen=True)
class Part:
    """A file with attempts."""

    path: Path
    rows: int
    stored: bool
    """A Parquet file that the store lists, not a staged one."""

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Its rows, or some of their columns."""
        if self.stored:
            return pq.read_table(self.path, columns=None if columns is None else list(columns))
        return read_arrow(self.path, columns)

    def pieces(self) -> Iterator[pa.Table]:
        """Its rows, whole, in order, a bounded number at a time."""
        if not self.stored:
            yield self.read()
            return
        with pq.ParquetFile(self.path) as file:
            for group in range(file.num_row_groups):
                yield file.read_row_group(group)


@dataclass(frozen=True)
class Decision:
    """What becomes of every row; shape ``[rows]`` each."""

    number: npt.NDArray[np.int32]
    """1, 2, 3 ... within each job."""
    own_s: npt.NDArray[np.int64]
    """Seconds on its own nodes where it repeats the start of the row before a resize, else -1."""
    keep: Mask
    """Whether it stays."""
    same: Mask
    """Whether it stays as its file has it."""

    def apply(self, table: pa.Table, rows: slice) -> pa.Table:
        """The rows that stay, of those in the range."""
        place = ATTEMPTS.get_field_index("attempt")
        table = table.set_column(place, ATTEMPTS.field("attempt"), pa.array(self.number[rows]))
        own = self.own_s[rows]
        if (own >= 0).any():
            place = ATTEMPTS.get_field_index("runtime_s")
            runtime = pc.if_else(pa.array(own >= 0), pa.array(own), table["runtime_s"])
            table = table.set_column(place, ATTEMPTS.field("runtime_s"), runtime)
        keep = self.keep[rows]
        return table if keep.all() else table.filter(pa.array(keep))


class Attempts:
    """The rows of all parts.

    Args:
        cluster: the name that rows without a cluster get: the only one that any row has, or none.
        scratch: a folder for files of the commit.
    """

    def __init__(self, cluster: str, scratch: Path) -> None:
        self.cluster = cluster
        self.parts: list[Part] = []
        self.rows = 0
        self._renamed: set[Part] = set()
        self._scratch = scratch
        scratch.mkdir(parents=True, exist_ok=True)
        self._db = duckdb.connect(
            config={"memory_limit": _MEMORY, "temp_directory": str(scratch / "spill")}
        )
        self._add(ATTEMPTS.empty_table(), _INDEX)

    def close(self) -> None:
        """Free the memory."""
        self._db.close()

    def extend(self, parts: Sequence[Part]) -> None:
        """Take in parts."""
        for part in parts:
            raw = part.read(_DECIDING)
            table = named(raw, self.cluster)
            if table is not raw:
                self._renamed.add(part)
            self._add(table, _INDEX.replace("CREATE TABLE attempt AS", "INSERT INTO attempt"))
            self.parts.append(part)
            self.rows += part.rows
        # Whatever is asked of jobs is asked of these few only; each of the others has one row.
        self._db.execute(
            "CREATE OR REPLACE TABLE several AS "
            "SELECT job FROM attempt GROUP BY job HAVING count(*) > 1"
        )

    def add_rows(self, name: str, rows: pa.Table) -> None:
        """Take in rows that no source has, from a new file."""
        path = self._scratch / f"{name}.arrow"
        with ipc.new_file(str(path), ATTEMPTS) as writer:
            writer.write_table(rows)
        self.extend([Part(path, len(rows), stored=False)])

    def _add(self, table: pa.Table, query: str) -> None:
        places = pa.array(np.arange(self.rows, self.rows + len(table)))
        self._db.register("piece", table.append_column("place", places))
        self._db.execute(query)

    def slices(self) -> Iterator[tuple[Part, slice]]:
        """Each part and where its rows stand."""
        low = 0
        for part in self.parts:
            yield part, slice(low, low + part.rows)
            low += part.rows

    def where(self, query: str) -> Mask:
        """Mask of the rows that a query of places has."""
        mask = np.zeros(self.rows, bool)
        mask[self._db.sql(query).fetchnumpy()["place"]] = True
        return mask

    def _chosen(self, mask: Mask) -> Iterator[pa.Table]:
        """The chosen rows, whole, with their places, a bounded number at a time."""
        for part, place in self.slices():
            low = place.start
            for piece in part.pieces() if mask[place].any() else ():
                rows = mask[low : low + len(piece)]
                places = pa.array(low + np.flatnonzero(rows))
                chosen = named(piece.filter(pa.array(rows)), self.cluster)
                yield chosen.append_column("place", places)
                low += len(piece)

    def gather(self, mask: Mask) -> pa.Table:
        """The chosen rows, whole, in order."""
        chosen = [rows.drop_columns("place") for rows in self._chosen(mask)]
        return pa.concat_tables([ATTEMPTS.empty_table(), *chosen])

    def drop_recovered(self) -> pa.Table:
        """Take out the recovered attempts: they are looked at anew."""
        found = self.gather(self.where("SELECT place FROM attempt WHERE recovered"))
        self._db.execute("UPDATE attempt SET keep = false WHERE recovered")
        return found

    # --- Duplicates ------------------------------------------------------------------------------

    def merge_duplicates(self) -> None:
        """Leave one row of each attempt that has several.

        Where the best row has all that the others have, as in two logs of the same days, they are
        dropped and it stays in its file. Otherwise one row made of all goes to a new part.
        """
        twice = self.where(
            "WITH few AS (SELECT key FROM attempt WHERE keep AND job IN (FROM several)) "
            "SELECT place FROM attempt WHERE keep AND job IN (FROM several) "
            "AND key IN (SELECT key FROM few GROUP BY key HAVING count(*) > 1)"
        )
        if not twice.any():
            return
        self._rows_of(
            twice,
            f"""CREATE TABLE ranked AS
            SELECT place, key, filled, bit_or(filled) OVER (PARTITION BY key) AS known,
                row_number() OVER (PARTITION BY key ORDER BY is_over DESC, end_s DESC,
                    runtime_s DESC, bit_count(filled) DESC, place) AS rank
            FROM (SELECT place, key, {_OVER} AS is_over, coalesce(end_s, 0) AS end_s,
                coalesce(runtime_s, 0) AS runtime_s, {_filled()} AS filled FROM wide)""",
        )
        self._db.execute(
            """CREATE TABLE lacking AS SELECT key FROM ranked WHERE rank = 1 AND filled <> known;
            UPDATE attempt SET keep = false WHERE place IN
                (SELECT place FROM ranked WHERE rank > 1 OR key IN (FROM lacking))"""
        )
        of_lacking = "FROM ranked WHERE key IN (FROM lacking)"
        ((count,),) = self._db.sql(f"SELECT count(*) {of_lacking}").fetchall()
        buckets = -(-count // _MERGED_AT_ONCE)  # a bounded number of rows at a time
        for bucket in range(buckets):
            mask = self.where(f"SELECT place {of_lacking} AND hash(key) % {buckets} = {bucket}")
            found = self._rows_of(
                mask,
                f"SELECT {', '.join(map(_merged, ATTEMPTS))} FROM wide "
                "JOIN (SELECT place, rank FROM ranked) USING (place) GROUP BY key ORDER BY key",
            )
            self.add_rows(f"merged-{bucket:04d}", found.to_arrow_table().cast(ATTEMPTS))

    def _rows_of(self, mask: Mask, query: str) -> Any:
        """The result of a query of the chosen rows, which it calls `wide`."""
        schema = ATTEMPTS.append(pa.field("place", pa.int64()))
        batches = (
            batch for table in self._chosen(mask) for batch in table.cast(schema).to_batches()
        )
        self._db.register("wide", pa.RecordBatchReader.from_batches(schema, batches))
        return self._db.sql(query)

    # --- Executions ------------------------------------------------------------------------------

    def decide(self) -> Decision:
        """Number the executions of each job."""
        self._db.execute(_CHAINS)
        number = np.ones(self.rows, np.int32)
        own_s = np.full(self.rows, -1)
        chain = self._db.sql("SELECT place, number, coalesce(own_s, -1) AS own_s FROM chain")
        columns = chain.fetchnumpy()
        number[columns["place"]] = columns["number"]
        own_s[columns["place"]] = columns["own_s"]
        keep = ~self.where("SELECT place FROM attempt WHERE NOT keep")
        same = keep & ~self.where(
            "SELECT place FROM attempt LEFT JOIN chain USING (place) "
            "WHERE attempt IS DISTINCT FROM coalesce(number, 1) "
            "OR runtime_s IS DISTINCT FROM coalesce(own_s, runtime_s)"
        )
        for part, rows in self.slices():
            same[rows] &= part not in self._renamed
        return Decision(number, own_s, keep, same)

    def counts(self) -> dict[str, int]:
        """Rows that stay, without recovered ones; recovered ones; jobs."""
        ((rows, recovered, jobs),) = self._db.sql(
            "SELECT count(*) FILTER (NOT recovered), count(*) FILTER (recovered), "
            "count(*) FILTER (job NOT IN (FROM several)) "
            "+ count(DISTINCT job) FILTER (job IN (FROM several)) FROM attempt WHERE keep"
        ).fetchall()
        return {"attempts": rows, "attempts_recovered": recovered, "jobs": jobs}

    def duplicates_flag(self) -> str:
        """Does the log hide attempts? `sacct` without ``--duplicates`` prints a job's last one only.

        The failures that were requeued are then missing and every rate computed from the log is too low.

        Returns:
            ``"present"`` (more jobs show several executions than show signs of hidden ones),
            ``"missing"`` or ``"unknown"`` (nothing was ever requeued).
        """
        ((shown, hidden),) = self._db.sql(_EXECUTIONS).fetchall()
        if not shown and not hidden:
            return "unknown"
        return "present" if shown >= hidden else "missing"

    def time_range(self) -> list[int] | None:
        """First and last time of an attempt."""
        ((low, high, first, last),) = self._db.sql(
            "SELECT least(min(start_s), min(end_s)), greatest(max(start_s), max(end_s)), "
            "min(submit_s), max(submit_s) FROM attempt WHERE keep"
        ).fetchall()
        if low is None:
            low, high = first, last
        return None if low is None else [low, high]


def _filled() -> str:
    """A bit for each column that says something: not null, not empty, not false."""
    bits = []
    for field in ATTEMPTS:
        # The cluster is the same in all rows of an attempt by now, the end goes with the state.
        if field.name not in ("cluster", "key", "end_s"):
            bits.append(f"(coalesce({_says(field)}, false)::BIGINT << {len(bits)})")
    return " | ".join(bits)


def _says(field: pa.Field) -> str:
    name = f'"{field.name}"'
    if pa.types.is_boolean(field.type):
        return name
    if pa.types.is_list(field.type):
        return f"len({name}) > 0"
    return f"{name} <> ''" if pa.types.is_string(field.type) else f"{name} IS NOT NULL"


def _merged(field: pa.Field) -> str:
    """A column of one row made of several: from the best row that has it."""
    name = f'"{field.name}"'
    if field.name == "key":
        return "key"
    if field.name in _EITHER:
        return f"bool_or({name}) AS {name}"
    if field.name == "end_s":
        # A row that is over must not take the end of an older one that was not.
        return f"arg_min_null({name}, rank) AS {name}"
    empty = ", []" if pa.types.is_list(field.type) else f", arg_min({name}, rank)"
    return f"coalesce(arg_min({name}, rank) FILTER ({_says(field)}){empty}) AS {name}"


def cluster_names(parts: Sequence[Part]) -> set[str]:
    """The clusters that attempts name."""
    names: set[str] = set()
    for part in parts:
        names.update(pc.unique(part.read(["cluster"])["cluster"]).to_pylist())
    return names - {"", None}


def named(attempts: pa.Table, cluster: str) -> pa.Table:
    """The rows with `cluster` where they name none, and keys to match."""
    if not cluster:
        return attempts
    names = flat(attempts["cluster"])
    unnamed = pc.equal(names, "")
    if not pc.any(unnamed, min_count=0).as_py():
        return attempts
    place = attempts.schema.get_field_index("cluster")
    filled = pc.if_else(unnamed, pa.scalar(cluster), names)
    attempts = attempts.set_column(place, ATTEMPTS.field("cluster"), filled)
    place = attempts.schema.get_field_index("key")
    return attempts.set_column(place, ATTEMPTS.field("key"), attempt_key(attempts))
