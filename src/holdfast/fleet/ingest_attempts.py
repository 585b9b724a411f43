"""The attempts of a commit: which rows stay, and which execution of its job each row is.

Rows stay in their files; DuckDB holds the few columns that decide, and those only of jobs that have
several rows: most have one, which is their first execution. Several sources, or a source and the
store, may have rows of one attempt: one is left. Rows of a job and a submission are of one attempt unless
one starts when another is over: a job that was requeued may keep its Submit. The row that knows most of the
end wins: a final state over RUNNING or PENDING, then the later end, then the longer runtime, then the row
with more columns. What it lacks (a column that its source did not print) comes from the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.fleet.formats.columns import with_cluster
from holdfast.fleet.ingest_staging import FILE_ROWS, ROW_GROUP_ROWS, with_key, write_rows
from holdfast.fleet.schema import ATTEMPTS, NOT_OVER
from holdfast.tables import literal

_MEMORY = "1GB"
_MERGED_AT_ONCE = 400_000
_SMALL_ROWS = 50_000
_MOST_SMALL_FILES = 24
_OVER = f"coalesce(state NOT IN {literal(NOT_OVER)}, false)"
_EITHER = ("out_of_memory", "sigterm")

_JOB = "hash(cluster, job_id_raw, CASE WHEN job_id_raw IS NULL THEN job_id END)"
_END = f"coalesce(end_s, CASE WHEN {_OVER} THEN start_s + runtime_s END)"
# `place` is the number of the file and that of the row
_INDEX = f"""SELECT place, key, attempt, reuse, "user", name, submit_s, start_s,
    {_END} AS end_s, runtime_s, job_runtime_s, key AS old_key, {_JOB} AS job, recovered,
    coalesce(state = 'RESIZING', false) AS resizing, true AS keep,
    {_OVER} AS is_over, CASE WHEN is_over THEN coalesce(start_s, end_s - 1)
        WHEN state <> 'PENDING' THEN start_s END AS low FROM """

# A number is used again by another job (accounting began anew, or numbers passed MaxJobId): its user or its
# name is another, and it was submitted when the earlier one was over for a while; or for a month, whoever's
# it is. A requeued job is submitted as it ends, whatever its name has become; a log may lack some attempts.
_REUSED_S = 60
_LACKING_S = 30 * 86_400
_REUSES = f"""CREATE TABLE reused AS SELECT * FROM (
        SELECT place, sum(is_other::INTEGER) OVER w AS reuse FROM (
            SELECT *, coalesce(
                CASE WHEN "user" <> lag("user" IGNORE NULLS) OVER w OR name <> lag(name IGNORE NULLS) OVER w
                THEN moment > lag(coalesce(end_s, start_s, moment)) OVER w + {_REUSED_S}
                ELSE moment > lag(end_s) OVER w + {_LACKING_S} END, false) AS is_other
            FROM (SELECT *, coalesce(submit_s, start_s) AS moment FROM attempt
                WHERE keep AND job IN (FROM several))
            WINDOW w AS (PARTITION BY job ORDER BY moment, start_s, place)
        ) WINDOW w AS (PARTITION BY job ORDER BY moment, start_s, place)
    ) WHERE reuse > 0;
    UPDATE attempt SET job = hash(attempt.job, reused.reuse) FROM reused
        WHERE attempt.place = reused.place"""

# The executions of each job that has several, or has its number from another. A job that was resized has a
# row per size, all with the same start: each counts from the end of the row before.
_CHAINS = """CREATE TABLE chain AS
    SELECT *, CAST(sum(coalesce(own_s, runtime_s, 0)) OVER (PARTITION BY job ORDER BY number) AS BIGINT)
        AS job_s FROM (
    SELECT place, job, key, reused.reuse, runtime_s, row_number() OVER w AS number,
        CASE WHEN lag(resizing) OVER w AND lag(start_s) OVER w = start_s
            AND end_s IS NOT NULL AND lag(end_s) OVER w IS NOT NULL
        THEN greatest(end_s - lag(end_s) OVER w, 0) END AS own_s
    FROM attempt LEFT JOIN reused USING (place)
    WHERE keep AND (job IN (FROM several) OR reused.reuse > 0)
    WINDOW w AS (PARTITION BY job ORDER BY coalesce(submit_s, start_s), start_s, place))"""

# A hidden attempt shows on a job with one row: Slurm's restart counter is above 0; or the row waited for
# BeginTime, as a requeued job does, and was submitted later than a job with a higher number, which a
# user's --begin does not cause. (Tasks of an array get their numbers when they start but keep the
# array's time of submission.) A resized job has two rows even without --duplicates. Gaps in DBIndex are
# no sign: other users' jobs and purged ones leave them too.
_REAL = f"""SELECT *, {_JOB} AS job FROM {{rows}} WHERE NOT recovered
    AND place NOT IN (SELECT place FROM attempt WHERE NOT keep)"""
_PLAIN = "submit_s IS NOT NULL AND job_id_raw IS NOT NULL AND NOT contains(job_id, '_')"
_REQUEUED = """SELECT coalesce(restarts > 0, false) AS restarted, place, submit_s FROM ({real})
    WHERE (restarts > 0 OR (reason = 'BeginTime' AND start_s IS NOT NULL AND {plain}))
        AND state IS DISTINCT FROM 'RESIZING' AND place NOT IN (
            SELECT place FROM attempt WHERE keep AND NOT recovered AND job IN (
                SELECT job FROM attempt WHERE keep AND NOT recovered GROUP BY job HAVING count(*) > 1)
        )"""
_LATE = """SELECT count(*) FROM requeued JOIN (
        SELECT place, min(submit_s) OVER (
            ORDER BY job_id_raw DESC, submit_s DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS after_s
        FROM ({real}) WHERE {plain}
    ) AS following USING (place) WHERE NOT restarted AND after_s < submit_s"""


# The attempts of a job that have one time of submission: a row is of the next one if it starts when those
# before it, in order of start, are over. A row that waits is of the last one. The first attempt keeps the
# key that all rows have from their sources. (A Start may move while a job runs: its nodes booted first.)
_REQUEUES = """UPDATE attempt SET key = requeue.key FROM (
        SELECT place, CASE WHEN number = 0 THEN first ELSE
            (hash(first, min(low) OVER (PARTITION BY job, moment, number)) >> 1)::BIGINT END AS key
        FROM (
            SELECT *, sum(is_next::INTEGER) OVER w AS number, first_value(key) OVER w AS first FROM (
                SELECT *, coalesce(lag(is_over) OVER w AND low > lag(low) OVER w AND NOT {other_hour}
                    AND low >= lag(over_s) OVER w, false) AS is_next
                FROM (
                    SELECT *, max(CASE WHEN is_over THEN coalesce(end_s, low) END) OVER w AS over_s
                    FROM (SELECT *, coalesce(submit_s, start_s, end_s) AS moment FROM attempt
                        WHERE keep AND NOT recovered AND job IN (FROM several))
                    WINDOW w AS (PARTITION BY job, moment ORDER BY low, is_over, place)
                ) WINDOW w AS (PARTITION BY job, moment ORDER BY low, is_over, place)
            ) WINDOW w AS (PARTITION BY job, moment ORDER BY low, is_over, place)
        )
    ) AS requeue WHERE attempt.place = requeue.place"""
# The attempt of another source, that knows which of the two hours is meant
_OTHER_HOUR = """(low - lag(low) OVER w = 3600 AND coalesce(end_s - lag(end_s) OVER w = 3600, true)
    AND place >> 40 <> lag(place >> 40) OVER w)"""

# Local times do not tell which of the two hours is meant that a change of clocks makes alike: rows of one
# start and end that were submitted an hour apart are one attempt, and the earlier submission was a guess.
_REPEATED_HOUR = """UPDATE attempt SET key = later.key FROM attempt AS later
    WHERE attempt.job IN (FROM several) AND later.job = attempt.job AND attempt.keep AND later.keep
        AND NOT attempt.recovered AND NOT later.recovered
        AND later.submit_s = attempt.submit_s + 3600
        AND attempt.start_s IS NOT DISTINCT FROM later.start_s
        AND coalesce(attempt.end_s = later.end_s, later.start_s IS NOT NULL)"""

# What becomes of the rows of each file: how many go, and whether each of the others stays as it is.
_FILES = """SELECT place >> 40 AS file, count(*) FILTER (NOT keep), bool_or(recovered AND keep),
        bool_and(keep AND attempt.key = old_key AND attempt IS NOT DISTINCT FROM coalesce(number, 1)
            AND attempt.reuse IS NOT DISTINCT FROM chain.reuse
            AND attempt.runtime_s IS NOT DISTINCT FROM coalesce(own_s, attempt.runtime_s)
            AND job_runtime_s IS NOT DISTINCT FROM coalesce(job_s, attempt.runtime_s, 0))
    FROM attempt LEFT JOIN chain USING (place) GROUP BY file"""


class Attempts:
    """The rows of all files.

    Args:
        stored: files of the store.
        staged: files that an ingest has read.
        cluster: the name that rows without a cluster get: the only one that any row has, or none.
        scratch: a folder for files of the commit.
    """

    def __init__(
        self, stored: Sequence[Path], staged: Sequence[Path], cluster: str, scratch: Path
    ) -> None:
        self.cluster = cluster
        self._stored = set(stored)
        self._files: list[Path] = []
        self._scratch = scratch
        scratch.mkdir(parents=True, exist_ok=True)
        self.database = duckdb.connect(
            config={"memory_limit": _MEMORY, "temp_directory": str(scratch / "spill")}
        )
        self._rows_in: list[int] = []
        files = [self._new(ATTEMPTS.empty_table()), *stored, *staged]
        if cluster:
            files = [self._named(file) for file in files]
        self._add(files)

    def close(self) -> None:
        """Free the memory."""
        self.database.close()

    def add_rows(self, rows: pa.Table) -> None:
        """Take in rows that no source has."""
        self._add([self._new(rows)])

    def _new(self, rows: pa.Table) -> Path:
        path = self._scratch / f"{len(list(self._scratch.glob('*.parquet')))}.parquet"
        write_rows(path, [rows])
        return path

    def _named(self, file: Path) -> Path:
        """The file, or a copy of it in which each row has the cluster."""
        names = pq.read_table(file, columns=["cluster"])["cluster"]
        if not pc.any(pc.equal(names, ""), min_count=0).as_py():
            return file
        return self._new(named(pq.read_table(file, schema=ATTEMPTS), self.cluster))

    def _add(self, files: Sequence[Path]) -> None:
        """Take in files: whatever is asked of jobs is asked of those with several rows only."""
        first = len(self._files)
        self._files += files
        self._rows_in += [pq.read_metadata(file).num_rows for file in files]
        jobs = f"SELECT {_JOB} AS job FROM {self._rows(range(first, len(self._files)))}"
        if not first:
            self.database.execute(f"CREATE TABLE attempt AS {_INDEX} {self._every} LIMIT 0")
            jobs = f"SELECT job FROM ({jobs}) GROUP BY job HAVING count(*) > 1"
        self.database.execute(
            f"""INSERT INTO attempt {_INDEX} {self._every}
            WHERE ({_JOB} IN ({jobs}) OR attempt IS DISTINCT FROM 1 OR recovered)
                AND place NOT IN (SELECT place FROM attempt);
            CREATE OR REPLACE TABLE several AS
                SELECT job FROM attempt GROUP BY job HAVING count(*) > 1"""
        )

    @property
    def _every(self) -> str:
        """SQL: the rows of all files."""
        return self._rows(range(len(self._files)))

    def _rows(self, numbers: Sequence[int]) -> str:
        """SQL: the rows of some files, whole, each with its place."""
        files = literal([str(self._files[number]) for number in numbers]).strip("()")
        place = f"([{', '.join(map(str, numbers))}][CAST(file_index + 1 AS BIGINT)]::BIGINT << 40)"
        return (
            f"(SELECT *, {place} + file_row_number AS place FROM read_parquet([{files}])) AS wide"
        )

    def _chosen(self, condition: str) -> str:
        """SQL: the rows of the index for which the condition holds, whole."""
        found = self.database.sql(
            f"SELECT DISTINCT place >> 40 FROM attempt WHERE {condition} ORDER BY 1"
        )
        rows = self._rows([number for (number,) in found.fetchall()] or [0])
        return f"{rows} SEMI JOIN (FROM attempt WHERE {condition}) AS chosen USING (place)"

    def _count(self, rows: str) -> int:
        ((count,),) = self.database.sql(f"SELECT count(*) FROM {rows}").fetchall()
        return int(count)

    def submitted_with(self, rows: pa.Table) -> pa.Table:
        """The rows that stay, whole, that have cluster, job_id_raw and submit_s of one of `rows`."""
        self.database.register("asked", rows.select(["cluster", "job_id_raw", "submit_s"]))
        return self._whole(
            f"""FROM {self._every} SEMI JOIN asked USING (cluster, job_id_raw, submit_s)
            WHERE NOT recovered AND place NOT IN (SELECT place FROM attempt WHERE NOT keep)"""
        )

    def _whole(self, query: str) -> pa.Table:
        """Rows in order, in the columns of the store."""
        rows = self.database.sql(f"SELECT * EXCLUDE (place) FROM ({query}) ORDER BY place")
        return rows.to_arrow_table().cast(ATTEMPTS)

    def drop_recovered(self) -> pa.Table:
        """Take out the recovered attempts: they are looked at anew."""
        if not self._count("attempt WHERE recovered"):
            return ATTEMPTS.empty_table()
        found = self._whole(f"FROM {self._chosen('recovered')}")
        self.database.execute("UPDATE attempt SET keep = false WHERE recovered")
        return found

    def merge_duplicates(self, *, hours_repeat: bool) -> int:
        """Leave one row of each attempt that has several.

        Where the best row has all that the others have, as in two logs of the same days, they are
        dropped and it stays in its file. Otherwise one row made of all goes to a new file.

        Args:
            hours_repeat: whether the times of some source are of a zone that may put clocks back.

        Returns:
            attempts of which two rows are over in different states.
        """
        self.database.execute(_REQUEUES.format(other_hour=_OTHER_HOUR if hours_repeat else "false"))
        self.database.execute(_REPEATED_HOUR)
        self.database.execute(
            """CREATE TABLE twice AS SELECT key FROM attempt WHERE keep AND job IN (FROM several)
            GROUP BY key HAVING count(*) > 1"""
        )
        if not self._count("twice"):
            return 0
        twice = "keep AND job IN (FROM several) AND key IN (FROM twice)"
        self.database.execute(
            f"""CREATE TABLE ranked AS
            SELECT place, key, is_over, state, filled, bit_or(filled) OVER (PARTITION BY key) AS known,
                row_number() OVER (PARTITION BY key ORDER BY is_over DESC, end_s DESC,
                    runtime_s DESC, bit_count(filled) DESC, place) AS rank,
                submit_s < max(submit_s) OVER (PARTITION BY key) AS early
            FROM (SELECT place, identity AS key, state, {_OVER} AS is_over, coalesce(end_s, 0) AS end_s,
                coalesce(runtime_s, 0) AS runtime_s, {_filled()} AS filled, submit_s
                FROM {self._chosen(twice)}
                JOIN (SELECT place, key AS identity FROM attempt) AS keyed USING (place));
            CREATE TABLE lacking AS
                SELECT key FROM ranked WHERE rank = 1 AND (filled <> known OR coalesce(early, false));
            UPDATE attempt SET keep = false WHERE place IN
                (SELECT place FROM ranked WHERE rank > 1 OR key IN (FROM lacking))"""
        )
        lacking = self._count("lacking")
        buckets = -(-2 * lacking // _MERGED_AT_ONCE)  # a bounded number of rows at a time
        merged = []
        for bucket in range(buckets):
            chosen = f"key IN (FROM lacking) AND hash(key) % {buckets} = {bucket}"
            places = f"place IN (SELECT place FROM ranked WHERE {chosen})"
            query = f"""SELECT {", ".join(map(_merged, ATTEMPTS))} FROM (
                SELECT wide.* EXCLUDE (key), ranked.key, rank
                FROM {self._chosen(places)} JOIN ranked USING (place)
            ) GROUP BY key ORDER BY key"""
            merged.append(self._new(self.database.sql(query).to_arrow_table().cast(ATTEMPTS)))
        if merged:
            self._add(merged)
        return self._count(
            "(SELECT key FROM ranked WHERE is_over AND state <> 'RESIZING' "
            "GROUP BY key HAVING count(DISTINCT state) > 1)"
        )

    # --- Executions ------------------------------------------------------------------------------

    def write(self, folder: Path, commit: str) -> list[Path]:
        """Number the executions of each job and write the rows that stay.

        Args:
            folder: of the attempts of the store.
            commit: how the names of new files begin.

        Returns:
            the files; those of the store in which nothing changes are among them.
        """
        self.database.execute(_REUSES)
        self.database.execute(_CHAINS)
        kept = []
        moved = []
        chunks = []
        size = FILE_ROWS
        changes = {file: facts for file, *facts in self.database.sql(_FILES).fetchall()}
        found = []
        for number, rows in enumerate(self._rows_in):
            dropped, *facts = changes.get(number, (0, False, True))
            if rows > dropped:
                found.append((number, rows - dropped, *facts))
        # A log that is watched leaves a file at every poll: now and then they become one.
        small = sum(self._files[n] in self._stored and rows < _SMALL_ROWS for n, rows, *_ in found)
        join_below = _SMALL_ROWS if small > _MOST_SMALL_FILES else 0
        for number, rows, recovered, same in found:
            file = self._files[number]
            if same and file in self._stored and rows >= join_below:
                kept.append(file)
            elif same and file not in self._stored and rows >= _SMALL_ROWS:
                moved.append(number)
            else:
                # Recovered attempts are looked at again by every commit: in a file of their own, the
                # large ones can stay.
                if recovered or size + rows > FILE_ROWS:
                    chunks.append([])
                    size = 0
                chunks[-1].append(number)
                size = FILE_ROWS if recovered else size + rows
        new = [folder / f"{commit}-{place:03d}.parquet" for place in range(len(moved + chunks))]
        for numbers, file in zip(chunks, new, strict=False):
            rows = self.database.sql(
                f"""SELECT wide.* EXCLUDE (place) REPLACE (
                    coalesce(chain.key, wide.key) AS key,
                    nullif(coalesce(number, 1), 0)::INTEGER AS attempt, chain.reuse::INTEGER AS reuse,
                    coalesce(own_s, wide.runtime_s) AS runtime_s,
                    coalesce(job_s, wide.runtime_s, 0) AS job_runtime_s)
                FROM {self._rows(numbers)} LEFT JOIN chain USING (place)
                ANTI JOIN (FROM attempt WHERE NOT keep) AS dropped USING (place)"""
            )
            write_rows(file, map(pa.Table.from_batches, zip(rows.to_arrow_reader(ROW_GROUP_ROWS))))
        for number, file in zip(moved, new[len(chunks) :], strict=True):
            self._files[number] = self._files[number].rename(file)
        return kept + new

    def counts(self) -> dict[str, int]:
        """Rows that stay, recovered ones of them, jobs."""
        ((every, rows, recovered, jobs),) = self.database.sql(
            "SELECT count(*), count(*) FILTER (keep), count(*) FILTER (keep AND recovered), "
            "count(DISTINCT job) FILTER (keep) FROM attempt"
        ).fetchall()
        single = sum(self._rows_in) - every
        return {"attempts": single + rows, "attempts_recovered": recovered, "jobs": single + jobs}

    def duplicates_flag(self) -> str:
        """Does the log hide attempts? `sacct` without ``--duplicates`` prints a job's last one only.

        The failures that were requeued are then missing and every rate computed from the log is too low.

        Returns:
            ``"present"`` (more jobs show several executions than show signs of hidden ones),
            ``"missing"`` or ``"unknown"`` (nothing was ever requeued).
        """
        shown = self._count(
            "(SELECT job FROM attempt WHERE keep AND NOT recovered AND NOT resizing "
            "GROUP BY job HAVING count(*) > 1)"
        )
        real = _REAL.format(rows=self._every)
        self.database.execute(
            f"CREATE TABLE requeued AS {_REQUEUED.format(real=real, plain=_PLAIN)}"
        )
        hidden = self._count("requeued WHERE restarted")
        if self._count("requeued") > hidden:
            ((late,),) = self.database.sql(_LATE.format(real=real, plain=_PLAIN)).fetchall()
            hidden += late
        if not shown and not hidden:
            return "unknown"
        return "present" if shown >= hidden else "missing"

    def time_range(self) -> list[int] | None:
        """First and last time of an attempt."""
        ((low, high, first, last),) = self.database.sql(
            f"SELECT least(min(start_s), min({_END})), greatest(max(start_s), max({_END})), "
            f"min(submit_s), max(submit_s) FROM {self._every} "
            "WHERE place NOT IN (SELECT place FROM attempt WHERE NOT keep)"
        ).fetchall()
        if low is None:
            low, high = first, last
        return None if low is None else [low, high]


def _filled() -> str:
    """A bit for each column that says something: not null, not empty, not false."""
    bits = []
    for field in ATTEMPTS:
        # The cluster is the same in all rows of an attempt by now, the end goes with the state; others
        # follow from what a row says.
        if field.name not in ("cluster", "key", "end_s", "ran", "job_runtime_s"):
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
    if field.name == "submit_s":
        return "max(submit_s) AS submit_s"
    if field.name in _EITHER:
        return f"bool_or({name}) AS {name}"
    if field.name == "end_s":
        # A row that is over must not take the end of an older one that was not.
        return f"arg_min_null({name}, rank) AS {name}"
    empty = ", []" if pa.types.is_list(field.type) else f", arg_min({name}, rank)"
    return f"coalesce(arg_min({name}, rank) FILTER ({_says(field)}){empty}) AS {name}"


def named(attempts: pa.Table, cluster: str) -> pa.Table:
    """The rows with `cluster` where they name none, and keys to match."""
    return with_key(with_cluster(attempts, cluster))
