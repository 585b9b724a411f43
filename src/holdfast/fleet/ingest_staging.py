"""Where an ingest keeps what it has read until it commits, so that it can stop and go on.

Each source has a folder under ``.staging`` of the store, named by its fingerprint: one Arrow file a
batch and table, and a journal that says up to where the source was read. The journal is replaced
after the files of a batch are written, so a killed run loses one batch at most.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from holdfast.fleet.formats.batch import Batch
from holdfast.fleet.formats.columns import flat, row_key
from holdfast.fleet.schema import STEPS, TABLES

STAGING = ".staging"
_JOURNAL = "journal.json"
_SAMPLE_BYTES = 1 << 20
_SAMPLES = 16

SEEN_NODES = pa.schema([("cluster", pa.string()), ("node", pa.string()), ("gpus", pa.int32())])
"""Nodes that attempts ran on, with the most GPUs that one attempt had on each."""

SCHEMAS: dict[str, pa.Schema] = {**TABLES, "steps": STEPS, "seen_nodes": SEEN_NODES}


def fingerprint(path: Path, format_name: str, settings: Sequence[object]) -> str:
    """Tells one source, read one way, from another: its size, samples of its bytes, the settings."""
    size = path.stat().st_size
    digest = hashlib.blake2b(repr((size, format_name, *settings)).encode(), digest_size=16)
    with path.open("rb") as file:
        last = max(size - _SAMPLE_BYTES, 0)
        for sample in range(_SAMPLES + 1):
            file.seek(last * sample // _SAMPLES)
            digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()


@dataclass
class Journal:
    """How far a source was read."""

    offset: int = 0
    """Where the reader may go on."""
    done: bool = False
    parts: list[dict[str, Any]] = field(default_factory=list)
    """For each batch: table -> [file, bytes, rows]."""
    steps: int = 0
    facts: dict[str, Any] = field(default_factory=dict)

    def rows(self, table: str) -> int:
        """Rows staged for a table."""
        return sum(part[table][2] for part in self.parts if table in part)


class Stage:
    """The staged batches of one source."""

    def __init__(self, store: Path, key: str) -> None:
        """Open the stage of the source with the fingerprint `key`, or begin it."""
        self.folder = store / STAGING / key
        self.journal = self._load()

    def _load(self) -> Journal:
        try:
            journal = Journal(**json.loads((self.folder / _JOURNAL).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            journal = Journal()
        whole = all(
            (self.folder / name).is_file() and (self.folder / name).stat().st_size == size
            for part in journal.parts
            for name, size, _ in part.values()
        )
        if not whole:
            journal = Journal()
        if not journal.parts:
            shutil.rmtree(self.folder, ignore_errors=True)
        return journal

    def add(self, batch: Batch) -> None:
        """Keep a batch and note that it was read."""
        self.folder.mkdir(parents=True, exist_ok=True)
        tables = dict(batch.tables)
        if "attempts" in tables:
            tables["attempts"] = _with_key(_with_runtime(tables["attempts"]))
            tables["seen_nodes"] = _seen_nodes(tables["attempts"])
        part: dict[str, Any] = {}
        for name, table in tables.items():
            if len(table):
                file = f"{name}-{len(self.journal.parts):05d}.arrow"
                _write(self.folder / file, table.select(SCHEMAS[name].names).cast(SCHEMAS[name]))
                part[name] = [file, (self.folder / file).stat().st_size, len(table)]
        self.journal.parts.append(part)
        self.journal.offset = batch.offset
        self.journal.steps += batch.steps
        self._note(batch.facts)
        self._save()

    def _note(self, facts: Any) -> None:
        known = self.journal.facts
        for name, value in facts.items():
            counted = isinstance(value, int) and not isinstance(value, bool)
            known[name] = known.get(name, 0) + value if counted else value

    def finish(self) -> None:
        """Note that the source was read to its end."""
        self.journal.done = True
        self.folder.mkdir(parents=True, exist_ok=True)
        self._save()

    def _save(self) -> None:
        # No fsync: after a crash of the machine, files of the wrong size begin the source anew.
        temporary = self.folder / f"{_JOURNAL}.new"
        temporary.write_text(json.dumps(self.journal.__dict__), encoding="utf-8")
        temporary.replace(self.folder / _JOURNAL)

    def files(self, table: str) -> list[Path]:
        """The staged Arrow files of a table, in order."""
        return [self.folder / part[table][0] for part in self.journal.parts if table in part]

    def read(self, table: str) -> pa.Table:
        """All staged rows of a small table."""
        return pa.concat_tables([SCHEMAS[table].empty_table(), *map(read_arrow, self.files(table))])

    def discard(self) -> None:
        """Remove the staged files and begin anew."""
        self.journal = Journal()
        shutil.rmtree(self.folder, ignore_errors=True)


def _write(path: Path, table: pa.Table) -> None:
    options = ipc.IpcWriteOptions(compression="lz4")
    with ipc.new_file(str(path), table.schema, options=options) as writer:
        writer.write_table(table)


def read_arrow(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """A staged file, or some of its columns."""
    with pa.OSFile(str(path), "rb") as file:
        if columns is None:
            return ipc.open_file(file).read_all()
        schema = ipc.open_file(file).schema
        wanted = [schema.get_field_index(name) for name in columns]
        options = ipc.IpcReadOptions(included_fields=wanted)
        return ipc.open_file(file, options=options).read_all().select(list(columns))


def _with_runtime(attempts: pa.Table) -> pa.Table:
    """Where a format gives no elapsed time, end - start."""
    between = pc.subtract(attempts["end_s"], attempts["start_s"])
    return _replace(attempts, "runtime_s", pc.coalesce(attempts["runtime_s"], between))


def _with_key(attempts: pa.Table) -> pa.Table:
    return _replace(attempts, "key", attempt_key(attempts))


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


def _replace(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(place), values)


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


def stages_left(store: Path) -> Iterator[Path]:
    """Folders of sources that were begun and never committed."""
    yield from sorted((store / STAGING).glob("*"))
