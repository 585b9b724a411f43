"""What an ingest has read until it commits: files beside the store, so that memory stays bounded."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.fleet.formats.batch import Batch
from holdfast.fleet.formats.columns import flat, replaced, row_key
from holdfast.fleet.schema import STEPS, TABLES
from holdfast.fleet.store import STAGING

_SAMPLE_BYTES = 1 << 20
_SAMPLES = 16

# Nodes that attempts ran on, with the most GPUs that one attempt had on each
SEEN_NODES = pa.schema([("cluster", pa.string()), ("node", pa.string()), ("gpus", pa.int32())])

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
    """The rows read of one source: under ``.staging`` of the store, one Parquet file per batch and table.

    Attributes:
        files: table -> its files and the rows of each, in order.
        steps: step records of `sacct`, which are not jobs.
        facts: what the reader noticed about the source.
    """

    def __init__(self, store: Path, name: str) -> None:
        self.folder = store / STAGING / name
        self.files: dict[str, list[tuple[Path, int]]] = {}
        self.steps = 0
        self.facts: dict[str, Any] = {}

    def add(self, batch: Batch) -> None:
        """Keep the rows of a batch."""
        self.folder.mkdir(parents=True, exist_ok=True)
        tables = dict(batch.tables)
        if "attempts" in tables:
            tables["attempts"] = with_key(_with_runtime(tables["attempts"]))
            tables["seen_nodes"] = _seen_nodes(tables["attempts"])
        for name, table in tables.items():
            if len(table):
                files = self.files.setdefault(name, [])
                path = self.folder / f"{name}-{len(files):05d}.parquet"
                write_parquet(path, table.select(SCHEMAS[name].names).cast(SCHEMAS[name]))
                files.append((path, len(table)))
        self.steps += batch.steps
        self._note(batch.facts)

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
        return sum(count for name in tables for _, count in self.files.get(name, ()))

    def read(self, table: str) -> pa.Table:
        """All rows of a small table."""
        read = (pq.read_table(path, schema=SCHEMAS[table]) for path, _ in self.files.get(table, ()))
        return pa.concat_tables([SCHEMAS[table].empty_table(), *read])

    def discard(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.folder, ignore_errors=True)


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write rows that are read once and soon."""
    pq.write_table(table, path, compression="lz4", write_statistics=False, use_dictionary=False)


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
    named = pc.if_else(pc.is_null(raw), flat(attempts["job_id"]), pa.scalar(None, pa.string()))
    columns = [flat(attempts["cluster"]), raw, moment, flat(attempts["recovered"])]
    if raw.null_count:
        columns.append(named)
        return pc.if_else(pc.is_null(raw), row_key(*columns), row_key(*columns[:4]))
    return row_key(*columns)


def _seen_nodes(attempts: pa.Table) -> pa.Table:
    """Nodes of these attempts and the most GPUs that one attempt had on each."""
    nodes = flat(attempts["nodes"])
    count = pc.list_value_length(nodes)
    gpus = flat(attempts["gpus"])
    each = pc.divide(pc.add(gpus, pc.subtract(count, 1)), pc.max_element_wise(count, 1))
    parents = pc.list_parent_indices(nodes)
    cluster = flat(attempts["cluster"]).take(parents)
    rows = pa.table(
        {"cluster": cluster, "node": pc.list_flatten(nodes), "gpus": each.take(parents)}
    )
    most = rows.group_by(["cluster", "node"], use_threads=False).aggregate([("gpus", "max")])
    return most.rename_columns(["cluster", "node", "gpus"]).cast(SEEN_NODES)
