"""The attempts of a store in a few numbers each: enough to find duplicates and to count executions.

Rows stay in their files; only what decides is held in memory, about 60 bytes an attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.fleet.formats.columns import flat, row_key
from holdfast.fleet.ingest_staging import attempt_key, read_arrow
from holdfast.fleet.schema import ATTEMPTS

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

NULL = np.iinfo(np.int64).min
NOT_OVER = ("RUNNING", "PENDING", "SUSPENDED", "COMPLETING", "CONFIGURING", "REQUEUE_HOLD")

_DECIDING = (
    "cluster", "job_id", "job_id_raw", "attempt", "restarts", "state", "reason", "submit_s",
    "start_s", "end_s", "recovered",
)  # fmt: skip


class Sign(IntFlag):
    """What a row says that matters to more than itself."""

    OVER = 1
    """Its state is final."""
    RESIZING = 2
    RECOVERED = 4
    RESTARTED = 8
    """Slurm's own counter says that the job was requeued."""
    BEGIN_TIME = 16
    """Reason BeginTime: it waited for a time, as a requeued job does for its credential."""
    ARRAY = 32


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


@dataclass
class Index:
    """What decides, for every row of every part, in the order of `parts`; shape ``[rows]`` each."""

    parts: list[Part] = field(default_factory=list)
    cluster: str = ""
    """The name that rows without a cluster get: the only one that any row has, or none."""
    key: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    group: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Equal for the attempts of one job id."""
    raw: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    submit: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    start: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    end: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    attempt: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    """As the part has it; the commit counts anew."""
    signs: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    keep: Mask = field(default_factory=lambda: np.zeros(0, bool))
    """False: the row is not in the store any more."""

    def extend(self, parts: Sequence[Part]) -> None:
        """Take in more parts."""
        pieces = [_deciding(part, self.cluster) for part in parts]
        for name in ("key", "group", "raw", "submit", "start", "end", "attempt", "signs"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, *(piece[name] for piece in pieces)]))
        added = sum(part.rows for part in parts)
        self.keep = np.concatenate([self.keep, np.ones(added, bool)])
        self.parts += parts

    def has(self, sign: Sign) -> Mask:
        """Which rows carry the sign."""
        return np.asarray((self.signs & sign) != 0)

    def slices(self) -> Iterator[tuple[Part, slice]]:
        """Each part and where its rows stand."""
        low = 0
        for part in self.parts:
            yield part, slice(low, low + part.rows)
            low += part.rows

    def rows(self, chosen: Mask) -> Iterator[tuple[slice, pa.Table]]:
        """Each piece of the parts that has chosen rows: where it stands, and all of its rows."""
        for part, place in self.slices():
            if not chosen[place].any():
                continue
            low = place.start
            for piece in part.pieces():
                where = slice(low, low + len(piece))
                low = where.stop
                if chosen[where].any():
                    yield where, named(piece, self.cluster)

    def gather(self, chosen: Mask) -> pa.Table:
        """The chosen rows, whole, in order."""
        found = [rows.filter(pa.array(chosen[where])) for where, rows in self.rows(chosen)]
        return pa.concat_tables([ATTEMPTS.empty_table(), *found])


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
    place = ATTEMPTS.get_field_index("cluster")
    filled = pc.if_else(unnamed, pa.scalar(cluster), names)
    attempts = attempts.set_column(place, ATTEMPTS.field("cluster"), filled)
    if "key" not in attempts.column_names:
        return attempts
    place = ATTEMPTS.get_field_index("key")
    return attempts.set_column(place, ATTEMPTS.field("key"), attempt_key(attempts))


def _deciding(part: Part, cluster: str) -> dict[str, npt.NDArray[Any]]:
    table = part.read(_DECIDING)
    place = table.schema.get_field_index("cluster")
    names = flat(table["cluster"])
    names = pc.if_else(pc.equal(names, ""), pa.scalar(cluster), names)
    table = table.set_column(place, "cluster", names)
    raw = flat(table["job_id_raw"])
    job_id = flat(table["job_id"])
    group = row_key(names, raw)
    if raw.null_count:
        group = pc.if_else(pc.is_null(raw), row_key(names, job_id), group)
    state = flat(table["state"]).dictionary_encode()
    over = _by_code(state, lambda name: name not in NOT_OVER)
    resizing = _by_code(state, lambda name: name == "RESIZING")
    begin = _truth(pc.equal(table["reason"], "BeginTime"))
    restarted = _truth(pc.greater(table["restarts"], 0))
    array = _truth(pc.match_substring(job_id, "_"))
    recovered = _truth(table["recovered"])
    signs = (
        over * Sign.OVER
        + resizing * Sign.RESIZING
        + recovered * Sign.RECOVERED
        + restarted * Sign.RESTARTED
        + begin * Sign.BEGIN_TIME
        + array * Sign.ARRAY
    )
    return {
        "key": flat(attempt_key(table)).to_numpy(),
        "group": flat(group).to_numpy(),
        "raw": _numbers(raw),
        "submit": _numbers(table["submit_s"]),
        "start": _numbers(table["start_s"]),
        "end": _numbers(table["end_s"]),
        "attempt": flat(pc.fill_null(table["attempt"], 1)).to_numpy(),
        "signs": signs.astype(np.uint8),
    }


def _by_code(coded: pa.DictionaryArray, test: Callable[[str], bool]) -> npt.NDArray[np.uint8]:
    answers = np.array([test(name) for name in coded.dictionary.to_pylist()] + [False])
    codes = pc.fill_null(coded.indices, len(answers) - 1).to_numpy()
    return np.asarray(answers[codes], dtype=np.uint8)


def _truth(values: pa.ChunkedArray | pa.Array) -> npt.NDArray[np.uint8]:
    known = flat(pc.fill_null(values, False)).to_numpy(zero_copy_only=False)
    return np.asarray(known, dtype=np.uint8)


def _numbers(values: pa.ChunkedArray | pa.Array) -> Ints:
    return np.asarray(flat(pc.fill_null(values, NULL)).to_numpy(), dtype=np.int64)
