"""`sacct --parsable2`: any columns in any order, steps or not, as real job names leave it.

The text is read in blocks. In a block, lines that have the header's number of delimiters go to
Arrow's CSV reader, all others, and those whose columns do not hold what they must, to
`sacct_repair`. Blocks are converted on two threads: Arrow and NumPy work outside the interpreter
lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from holdfast.fleet.formats.batch import Batch, Format, ReadOptions
from holdfast.fleet.formats.opening import open_source, read_exactly
from holdfast.fleet.formats.sacct_columns import convert, misfits
from holdfast.fleet.formats.sacct_fields import FEW_VALUES, NEEDED
from holdfast.fleet.formats.sacct_header import Header, find_header, header_of, looks_headerless
from holdfast.fleet.formats.sacct_repair import Layout, Record, Reject, repair
from holdfast.fleet.formats.source import Rejects

BLOCK_BYTES = 16 << 20
_WORKERS = 2
_JOIN_BYTE = b"\x1f"  # stands for a delimiter of several characters
_LOOK_BACK_LINES = 1000

Indices = npt.NDArray[np.int64]


# --- Blocks --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Block:
    data: bytes
    """Whole lines."""
    line: int
    """1-based number of the first."""
    end: int
    """Bytes of the source up to the end of this block."""


def _blocks(path: Path, header: Header, offset: int) -> Iterator[_Block]:
    """Cut the source where a record surely begins."""
    with open_source(path) as source:
        position, line = _skip(source, path, max(offset, header.size))
        rest = b""
        while True:
            piece = read_exactly(source, BLOCK_BYTES, path)
            last = len(piece) < BLOCK_BYTES
            data = rest + piece
            cut = len(data) if last else _safe_cut(data, header)
            block, rest = data[:cut], data[cut:]
            if block:
                position += len(block)
                yield _Block(_without_headers(block, header.line), line, position)
                line += block.count(b"\n")
            if last:
                return


def _skip(source: BinaryIO, path: Path, size: int) -> tuple[int, int]:
    """Read past `size` bytes; gives the position and the line number there."""
    position, line = 0, 1
    while position < size:
        piece = read_exactly(source, min(BLOCK_BYTES, size - position), path)
        if not piece:
            break
        position += len(piece)
        line += piece.count(b"\n")
    return position, line


def _safe_cut(data: bytes, header: Header) -> int:
    """The last place between two whole records, or where a line ends, or everything."""
    return last_boundary(data, header) or data.rfind(b"\n") + 1 or len(data)


def last_boundary(data: bytes, header: Header) -> int:
    """The last place between two whole records; a job's row and its steps stay together.

    Returns:
        bytes up to there; 0 if no such place is found in the last thousand lines.
    """
    layout = header.layout
    job_id = layout.columns.index("JobID")
    end = data.rfind(b"\n") + 1
    below_is_whole = False
    for _ in range(_LOOK_BACK_LINES):
        start = data.rfind(b"\n", 0, max(end - 1, 0)) + 1
        if start == 0:
            break
        line = data[start:end]
        whole = is_record(line, header)
        if whole and below_is_whole:
            return end
        first = line.split(layout.delimiter.encode(), job_id + 1)[job_id] if whole else b""
        below_is_whole = whole and b"." not in first
        end = start
    return 0


def is_record(line: bytes, header: Header) -> bool:
    """Whether a line is a whole record by itself, or the header printed again."""
    layout, bare = header.layout, line.rstrip(b"\r\n")
    pieces = bare.decode(errors="replace").split(layout.delimiter)
    return bare == header.line or (
        len(pieces) == len(layout.columns)
        and all(
            test is None or test(piece) for piece, test in zip(pieces, layout.tests, strict=True)
        )
    )


def _without_headers(data: bytes, header: bytes) -> bytes:
    """The lines, with headers that were printed again (`sacct >> log`) made blank."""
    if header not in data:
        return data
    lines = data.split(b"\n")
    return b"\n".join(b"" if line.rstrip(b"\r") == header else line for line in lines)


# --- One block -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """The records of a block as columns of strings."""

    table: pa.Table
    lines: Indices
    """Line of each row in the source, 1-based."""
    rejects: list[tuple[int, str, str]]
    invalid_utf8: int


def _rows(block: _Block, layout: Layout, wanted: frozenset[str]) -> _Rows:
    """The records of a block, repaired where need be."""
    data, invalid = _clean(block.data)
    single = layout.delimiter.encode()
    if len(single) > 1:
        if _JOIN_BYTE in data:
            data = data.replace(_JOIN_BYTE, b" ")
        data = data.replace(single, _JOIN_BYTE)
        single = _JOIN_BYTE
    table, odd = _parse(data, layout, single, wanted)
    bad = misfits(table)
    starts, ends = _line_bounds(data)
    if not odd and not bad.any():
        return _Rows(table, block.line + np.flatnonzero(ends > starts), [], invalid)
    table, lines, rejects = _mend(data, block.line, layout, table, odd, np.flatnonzero(bad))
    return _Rows(table, lines, rejects, invalid)


def _line_bounds(data: bytes) -> tuple[Indices, Indices]:
    """Where each line starts and where its line break is."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    return np.concatenate([[0], ends[:-1] + 1]), ends


def _clean(data: bytes) -> tuple[bytes, int]:
    """Valid UTF-8 with plain line ends, and the number of bytes that were replaced."""
    invalid = 0
    if not data.isascii():
        data, invalid = _valid_utf8(data)
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b" ")
    if b"\0" in data:
        data = data.replace(b"\0", b" ")
    return data if data.endswith(b"\n") else data + b"\n", invalid


def _valid_utf8(data: bytes) -> tuple[bytes, int]:
    """The text with U+FFFD for bytes that are not UTF-8; only lines that are not ASCII are decoded."""
    high = np.flatnonzero(np.frombuffer(data, np.uint8) >= 0x80)
    pieces: list[bytes] = []
    invalid = done = 0
    while len(high):
        at = int(high[0])
        start = data.rfind(b"\n", done, at) + 1 or done
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        text = data[start:end].decode(errors="replace")
        invalid += text.count("\ufffd") - data.count("\ufffd".encode(), start, end)
        pieces += [data[done:start], text.encode()]
        done = end
        high = high[np.searchsorted(high, end) :]
    return b"".join([*pieces, data[done:]]), invalid


def _parse(
    data: bytes, layout: Layout, delimiter: bytes, wanted: frozenset[str]
) -> tuple[pa.Table, list[int]]:
    """The wanted columns of the lines with the right number of fields, by Arrow's CSV reader.

    Returns:
        the columns, and the places of the other lines among those that are not blank.
    """
    odd: list[int] = []

    def skip(row: csv.InvalidRow) -> str:
        odd.append(row.number - 1)
        return "skip"

    names = [f"{place}" for place in range(len(layout.columns))]
    # A column may be printed twice (`sacct --format=ALL,End`): the first one counts.
    chosen = {
        str(place): name
        for place, name in enumerate(layout.columns)
        if name in wanted and layout.columns.index(name) == place
    }
    coded = pa.dictionary(pa.int32(), pa.string())
    if data.isspace():
        return pa.table({name: pa.array([], pa.string()) for name in chosen.values()}), []
    table = csv.read_csv(
        pa.BufferReader(data),
        csv.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1),
        csv.ParseOptions(
            delimiter=delimiter.decode(),
            quote_char=False,
            double_quote=False,
            escape_char=False,
            newlines_in_values=False,
            invalid_row_handler=skip,
        ),
        csv.ConvertOptions(
            include_columns=list(chosen),
            column_types={
                place: coded if name in FEW_VALUES else pa.string()
                for place, name in chosen.items()
            },
            check_utf8=False,
            null_values=[],
            strings_can_be_null=False,
        ),
    )
    return table.rename_columns(list(chosen.values())), odd


def _mend(
    data: bytes,
    first_line: int,
    layout: Layout,
    table: pa.Table,
    odd: list[int],
    bad: Indices,
) -> tuple[pa.Table, Indices, list[tuple[int, str, str]]]:
    """Put records together again where lines are none by themselves.

    Args:
        data: the block.
        first_line: number of its first line in the source.
        layout: the columns.
        table: the lines with the right number of fields.
        odd: places of the others among the lines that are not blank.
        bad: rows of `table` that hold what they cannot hold.

    Returns:
        the records, mended ones in their places; the line of each; line, reason and text of each
        reject.
    """
    starts, ends = _line_bounds(data)
    filled = np.flatnonzero(ends > starts)
    lines = np.delete(filled, odd)  # [row of table] -> line
    strange = np.zeros(len(ends), bool)
    strange[filled[odd]] = True
    strange[lines[bad]] = True
    inside = _stretches(strange)
    table = table.filter(pa.array(~inside[lines]))
    lines = lines[~inside[lines]]
    mended: list[tuple[int, Record]] = []
    rejects: list[tuple[int, str, str]] = []
    for low, high in _runs(inside):
        stretch = data[starts[low] : ends[high - 1]].decode(errors="replace")
        if len(layout.delimiter) > 1:
            stretch = stretch.replace(_JOIN_BYTE.decode(), layout.delimiter)
        records, refused = repair(stretch.split("\n"), layout)
        mended += [(low + record.line, record) for record in records]
        rejects += [_placed(first_line + low, reject) for reject in refused]
    if mended:
        table, lines = _merge(table, lines, mended, layout)
    return table, first_line + lines, rejects


def _placed(first_line: int, reject: Reject) -> tuple[int, str, str]:
    return (first_line + reject.line, reject.reason, reject.raw)


def _runs(mask: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The half-open ranges in which the mask is true."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(np.int8), [0]])))
    return [(int(low), int(high)) for low, high in edges.reshape(-1, 2)]


def _stretches(odd: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Lines to look at together: odd ones, the line above, two below, and what lies between.

    The line above may be the first of a record that goes on below, and a line between two odd ones
    may be a part of a name that imitates a record perfectly.
    """
    near = odd.copy()
    near[:-1] |= odd[1:]
    for step in (1, 2):
        near[step:] |= odd[:-step]
    return near


def _merge(
    table: pa.Table, lines: Indices, mended: list[tuple[int, Record]], layout: Layout
) -> tuple[pa.Table, Indices]:
    """The table with the mended records in their places, and the lines."""
    columns = {
        name: pa.array([record.fields[layout.columns.index(name)] for _, record in mended])
        for name in table.column_names
    }
    plain = pa.schema([pa.field(name, pa.string()) for name in table.column_names])
    both = pa.concat_tables([table.cast(plain), pa.table(columns, schema=plain)])
    lines = np.concatenate([lines, [line for line, _ in mended]])
    if not pc.any(pc.match_substring(table["JobID"], "."), min_count=0).as_py():
        return both, lines  # without steps the order says nothing
    order = np.argsort(lines, kind="stable")
    return both.take(pa.array(order)), lines[order]


# --- The format ----------------------------------------------------------------------------------


def _batch(block: _Block, layout: Layout, options: ReadOptions, source: str) -> Batch:
    rows = _rows(block, layout, NEEDED)
    converted = convert(rows.table, options)
    rejects = Rejects(source)
    for line, reason, raw in rows.rejects:
        rejects.add(line, reason, raw)
    facts: dict[str, Any] = {
        "columns": [name for name in layout.columns if name],
        "invalid_utf8": rows.invalid_utf8,
        "unreadable_node_lists": converted.unreadable_node_lists,
    }
    tables = {
        "attempts": converted.attempts,
        "steps": converted.steps,
        "rejects": rejects.table(),
    }
    lines = {"attempts": pa.array(rows.lines[converted.attempt_rows])}
    return Batch(tables, block.end, converted.step_count, facts, lines)


def read(path: Path, options: ReadOptions, offset: int) -> Iterator[Batch]:
    """Batches of about 16 MiB of text, in order.

    Raises:
        InputError: if the file cannot be read, or has no header or not the columns JobID and State.
    """
    header = header_of(path, options.delimiter, options.columns)
    waiting: deque[Future[Batch]] = deque()
    with ThreadPoolExecutor(_WORKERS, thread_name_prefix="sacct") as workers:
        try:
            for block in _blocks(path, header, offset):
                waiting.append(workers.submit(_batch, block, header.layout, options, str(path)))
                if len(waiting) > _WORKERS:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def sniff(head: bytes, _: Path) -> bool:
    """Whether the source begins with a header of `sacct`, or with records without one."""
    return find_header(head) is not None or looks_headerless(head)


FORMAT = Format(
    name="sacct",
    describes="output of `sacct --parsable2`, any columns (JobID and State at least), any delimiter",
    sniff=sniff,
    read=read,
)


def records(
    path: Path,
    delimiter: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Iterator[dict[str, str]]:
    r"""The records of a log as printed, steps included, put together again where names broke them.

    Args:
        path: output of `sacct --parsable2`.
        delimiter: as given to `sacct --delimiter`; None: detect it.
        since: leave out records that ended before; in the log's own time zone.
        until: leave out records that ended at this time or later.

    Yields:
        column name -> text, in the order of the log; a line break in a field is the two characters
        ``\n``. Lines that belong to no record are left out.

    Raises:
        InputError: as `read`.
    """
    header = header_of(path, delimiter)
    layout = header.layout
    first = None if since is None else since.isoformat(timespec="seconds")
    last = None if until is None else until.isoformat(timespec="seconds")
    everything = frozenset(layout.columns) - {""}
    for block in _blocks(path, header, 0):
        for row in _rows(block, layout, everything).table.to_pylist():
            end = row.get("End", "Unknown")
            known = end[:1].isdigit()
            if known and ((first and end < first) or (last and end >= last)):
                continue
            yield {name: row[name] for name in dict.fromkeys(layout.columns) if name}
