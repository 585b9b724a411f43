"""What an ingest has read until it commits: files beside the store, so that memory stays bounded."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.fleet.formats.batch import Batch
from holdfast.fleet.formats.columns import coded, flat, replaced, row_key, whole, with_codes
from holdfast.fleet.schema import ATTEMPTS, NODE_FAILURES, STEPS, TABLES, schema
from holdfast.fleet.store import STAGING

_SAMPLE_BYTES = 1 << 20
_SAMPLES = 16

# Nodes that attempts ran on, with the most GPUs that one attempt had on each
SEEN_NODES = schema(cluster="string", node="string", gpus="int32")

FILE_ROWS = 1_000_000
ROW_GROUP_ROWS = 262_144
FEW_VALUES = [
    "cluster", "name", "user", "account", "partition", "qos", "work_dir", "state", "reason",
    "failed_node", "nodes.list.element", "excluded_nodes.list.element", "time_limit_s", "gpus", "cpus",
    "node_count", "attempt", "exit_code", "exit_signal", "restarts", "node", "check", "severity",
    "result", "message", "event", "xid", "cause", "source",
]  # fmt: skip

# What is worth compressing: codes and small differences are small as they are
MANY_VALUES = ("job_id", "db_index", "name", "work_dir", "priority", "message", "raw")

# Whole numbers that differ little from row to row; their ranges tell which rows a window needs
RISING = ["job_id_raw", "submit_s", "eligible_s", "start_s", "end_s", "runtime_s", "job_runtime_s"]

SCHEMAS: dict[str, pa.Schema] = {**TABLES, "steps": STEPS, "seen_nodes": SEEN_NODES}


def content_of(path: Path) -> str:
    """Tells one source from another: its size and samples of its bytes."""
    size = path.stat().st_size
    digest = hashlib.blake2b(repr(size).encode(), digest_size=16)
    with path.open("rb") as file:
        last = max(size - _SAMPLE_BYTES, 0)
        for sample in range(_SAMPLES + 1):
            file.seek(last * sample // _SAMPLES)
            digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def fingerprint(content: str, format_name: str, settings: Sequence[object]) -> str:
    """Tells one source, read one way, from another."""
    way = repr((content, format_name, *settings))
    return hashlib.blake2b(way.encode(), digest_size=16).hexdigest()


class Stage:
    """The rows read of one source until the commit: attempts in files, small tables in memory.

    A file of attempts, under ``.staging`` of the store, becomes one of the store as it stands unless a
    row of it has to change. Small tables are coded.

    Attributes:
        steps: step records of `sacct`, which are not jobs.
        last_s: the last time of an attempt; 0 without any.
        facts: what the reader noticed about the source.
    """

    def __init__(self, store: Path, name: str) -> None:
        self.folder = store / STAGING / name
        self.steps = 0
        self.last_s = 0
        self.facts: dict[str, Any] = {}
        self._tables: dict[str, list[pa.Table]] = {}
        self._files: list[Path] = []
        self._writer: pq.ParquetWriter | None = None
        self._in_file = self._attempts = 0

    def add(self, batch: Batch) -> None:
        """Keep the rows of a batch."""
        tables = dict(batch.tables)
        attempts = tables.pop("attempts", None)
        if attempts is not None and len(attempts):
            # A source that states no cluster has "", as the keys of null differ from all others.
            named = pc.fill_null(flat(attempts["cluster"]), "")
            attempts = replaced(attempts, "cluster", named)
            attempts = with_codes(with_key(_numbered(with_ran(_with_runtime(attempts)))))
            self._write(attempts)
            last = pc.max(pc.coalesce(attempts["end_s"], attempts["start_s"])).as_py()
            self.last_s = max(self.last_s, last or 0)
            tables["seen_nodes"] = _seen_nodes(attempts)
        for name, table in tables.items():
            rows = with_codes(table.select(SCHEMAS[name].names).cast(SCHEMAS[name]))
            self._tables.setdefault(name, []).append(rows)
        self.steps += batch.steps
        self._note(batch.facts)

    def _write(self, attempts: pa.Table) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self._files or self._in_file + len(attempts) > FILE_ROWS:
            self.files()
            self._files.append(self.folder / f"{len(self._files):05d}.parquet")
            self._writer, self._in_file = store_writer(self._files[-1], attempts.schema), 0
        assert self._writer is not None
        self._writer.write_table(attempts)
        self._in_file += len(attempts)
        self._attempts += len(attempts)

    def _note(self, facts: Mapping[str, Any]) -> None:
        for name, value in facts.items():
            counted = isinstance(value, int) and not isinstance(value, bool)
            self.facts[name] = self.facts.get(name, 0) + value if counted else value

    def note_zone(self, content: str, zone: str, *, stated: bool) -> None:
        """Say in which zone the source was read.

        Args:
            content: of the source, as `content_of` gives it.
            zone: its name; None is noted where no time of the source needed it.
            stated: whether the user named it.
        """
        local = self.facts.pop("local_times", 0)
        self.facts |= {"content": content, "zone": zone if local else None, "zone_stated": stated}
        self.facts["attempts"] = self.rows("attempts")

    def rows(self, *tables: str) -> int:
        """Rows of some tables."""
        small = sum(len(piece) for name in tables for piece in self._tables.get(name, ()))
        return small + ("attempts" in tables) * self._attempts

    def files(self) -> list[Path]:
        """The files of the attempts, whole."""
        if self._writer is not None:
            self._writer.close()
        return self._files

    def read(self, table: str) -> pa.Table:
        """All rows of a small table, coded."""
        return pa.concat_tables([coded_table(table), *self._tables.get(table, ())])

    def discard(self) -> None:
        """Remove the files."""
        self.files()
        shutil.rmtree(self.folder, ignore_errors=True)


def coded_table(name: str, *files: Path) -> pa.Table:
    """The rows of a table in files of the store, coded."""
    none = _no_rows(name)
    schema = none.schema
    texts = [field.name for field in SCHEMAS[name] if pa.types.is_string(field.type)]
    read = (pq.read_table(file, read_dictionary=texts) for file in files)
    return pa.concat_tables([none, *(with_codes(each).cast(schema) for each in read)])


@cache
def _no_rows(name: str) -> pa.Table:
    return with_codes(SCHEMAS[name].empty_table()).schema.empty_table()


def write_rows(target: Path, pieces: Iterable[pa.Table]) -> None:
    """Write a file of attempts for the store."""
    with store_writer(target, coded_table("attempts").schema) as writer:
        for rows in pieces:
            rows = with_codes(with_ran(rows.cast(ATTEMPTS)))
            writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)


def store_writer(target: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """Writes a file of the store; columns that are coded in memory are plain in it."""
    return pq.ParquetWriter(
        target,
        schema,
        compression=dict.fromkeys(MANY_VALUES, "zstd"),
        compression_level=dict.fromkeys(MANY_VALUES, 1),
        use_dictionary=FEW_VALUES,
        column_encoding=dict.fromkeys(RISING, "DELTA_BINARY_PACKED"),
        write_statistics=[*RISING, "time_s"],
        store_schema=False,
    )


def _numbered(attempts: pa.Table) -> pa.Table:
    """Attempts with the order of those that stand together: the commit corrects it where it is another.

    And with the runtime of their job so far.
    """
    job = flat(attempts["job_id_raw"]).to_numpy(zero_copy_only=False)
    cluster = coded(attempts["cluster"]).indices.to_numpy(zero_copy_only=False)
    first = np.flatnonzero(
        np.append(True, (np.diff(job) != 0) | (np.diff(cluster) != 0))[: len(job)]
    )
    first = np.repeat(first, np.diff(np.append(first, len(job))))
    attempts = replaced(attempts, "attempt", pa.array(np.arange(len(job)) - first + 1, pa.int32()))
    total = np.append(0, flat(pc.fill_null(attempts["runtime_s"], 0)).to_numpy().cumsum())
    return replaced(attempts, "job_runtime_s", pa.array(total[1:] - total[first]))


def with_ran(attempts: pa.Table) -> pa.Table:
    """Attempts with whether each ran.

    A node cannot fail under an attempt that neither started nor was given nodes: it did not run.
    """
    lost = pc.and_(
        pc.is_in(flat(attempts["state"]), value_set=pa.array(NODE_FAILURES)),
        pc.greater(pc.list_value_length(attempts["nodes"]), 0),
    )
    spent = pc.or_kleene(pc.greater(attempts["runtime_s"], 0), lost)
    ended = pc.and_(pc.is_valid(attempts["end_s"]), pc.fill_null(spent, False))
    return replaced(attempts, "ran", pc.or_(pc.is_valid(attempts["start_s"]), ended))


def _with_runtime(attempts: pa.Table) -> pa.Table:
    """Where a format gives no elapsed time, end - start."""
    between = pc.subtract(attempts["end_s"], attempts["start_s"])
    return replaced(attempts, "runtime_s", pc.coalesce(attempts["runtime_s"], between))


def with_key(attempts: pa.Table) -> pa.Table:
    """Attempts with their identities."""
    return replaced(attempts, "key", attempt_key(attempts))


def attempt_key(attempts: pa.Table) -> pa.Array:
    """The identity of each attempt: cluster, number of the job, time of submission, recovered.

    An array task whose number the log does not tell counts by its JobID; a log without Submit
    counts by Start.
    """
    raw = flat(attempts["job_id_raw"])
    moment = pc.coalesce(attempts["submit_s"], attempts["start_s"], attempts["end_s"])
    named = pc.if_else(pc.is_null(raw), flat(attempts["job_id"]), None)
    columns = [flat(attempts["cluster"]), raw, moment, flat(attempts["recovered"])]
    if raw.null_count:
        columns.append(named)
        return pc.if_else(pc.is_null(raw), row_key(*columns), row_key(*columns[:4]))
    return row_key(*columns)


def _seen_nodes(attempts: pa.Table) -> pa.Table:
    """Nodes of these attempts and the most GPUs that one attempt had on each."""
    nodes = whole(attempts["nodes"])
    cluster = coded(attempts["cluster"])
    count = pc.list_value_length(nodes)
    gpus = flat(attempts["gpus"])
    each = pc.divide(pc.add(gpus, pc.subtract(count, 1)), pc.max_element_wise(count, 1))
    parents = pc.list_parent_indices(nodes)
    items = nodes.flatten()
    rows = pa.table(
        {
            "cluster": cluster.indices.take(parents),
            "node": items.indices,
            "gpus": each.take(parents),
        }
    )
    most = rows.group_by(["cluster", "node"], use_threads=False).aggregate([("gpus", "max")])
    return pa.table(
        {
            "cluster": cluster.dictionary.take(most["cluster"]),
            "node": items.dictionary.take(most["node"]),
            "gpus": most["gpus_max"],
        }
    ).cast(SEEN_NODES)
