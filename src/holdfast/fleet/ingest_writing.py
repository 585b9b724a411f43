"""The Parquet files of a commit: named by its number, flushed to the disk before they are listed."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.files import sync
from holdfast.fleet.ingest_staging import Stage
from holdfast.fleet.schema import TABLES
from holdfast.fleet.store import Store

ROW_GROUP_ROWS = 262_144

_FEW_VALUES = [
    "cluster", "user", "account", "partition", "qos", "work_dir", "state", "reason", "failed_node",
    "nodes.list.element", "excluded_nodes.list.element", "time_limit_s", "gpus", "cpus",
    "node_count", "attempt", "exit_code", "exit_signal", "restarts", "node", "check", "severity",
    "result", "message", "event", "xid", "cause", "source",
]  # fmt: skip


@dataclass(frozen=True)
class Commit:
    """What a commit starts from."""

    folder: Path
    old: Store | None
    stages: Sequence[Stage]
    number: int  # 1, 2, ...: names the files of this commit
    read_again: Set[str] = frozenset()  # Sources of which earlier rejects are replaced
    # The clusters of the log and the nodes of each
    owners: dict[str, set[str]] = field(default_factory=dict)
    # Small table -> rows of this commit that another row stands for
    merged: dict[str, int] = field(default_factory=dict)

    @property
    def old_cluster(self) -> str:
        """The only cluster of the store as it is, or ""; rows of it that state none are of it."""
        return str(self.old.facts.get("cluster") or "") if self.old else ""

    def write(self, name: str, table: pa.Table, suffix: str = "000") -> str:
        """Write one Parquet file of a table; gives its name for `store.json`."""
        return self.write_many(name, suffix, lambda write: write(table))

    def write_many(
        self, name: str, suffix: str, rows: Callable[[Callable[[pa.Table], None]], None]
    ) -> str:
        """Write one Parquet file row group by row group; `rows` calls what it is given for each."""
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        part = f"{name}/{self.number:04d}-{suffix}.parquet"
        schema = TABLES[name]
        coded = [column for column in _FEW_VALUES if column.split(".")[0] in schema.names]
        with (
            (self.folder / part).open("wb") as file,
            pq.ParquetWriter(
                file, schema, compression="zstd", compression_level=1, use_dictionary=coded
            ) as writer,
        ):
            rows(lambda table: writer.write_table(table, row_group_size=ROW_GROUP_ROWS))
        sync(self.folder / part)
        return part
