"""A CSV file of own times -> the matrix: ``rank,step,seconds`` and what else it has.

============ ======================================================================================
column       meaning
============ ======================================================================================
rank, step   whole numbers
seconds      own time of the rank in the step; with ``sync_s``, the whole step
sync_s       the part of ``seconds`` that the rank waited for others
data_wait_s  the part of the rest that it waited for data
attempt      which attempt of the run, from 0
gpus         accelerators of the rank
other        a label of the rank: node, rack, stage ...
============ ======================================================================================
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from holdfast.errors import InputError
from holdfast.lines import Rejects
from holdfast.opening import open_source
from holdfast.runs.straggling.matrix import Ints, LongSteps, StepMatrix, fill

NEEDED = ("rank", "step", "seconds")
WHOLE = ("rank", "step", "attempt")
NUMBERS = ("seconds", "sync_s", "data_wait_s", "gpus")
MAX_REJECT_SHARE = 0.01
MOST_KEPT_REJECTS = 100
MOST_VALUES = 10_000
"""Maximum distinct values of a label; a column with more is a measurement."""


def matrix_of_table(path: Path, max_reject_share: float = MAX_REJECT_SHARE) -> StepMatrix:
    """The own times in a CSV file (also ``.csv.gz``).

    Rows that cannot be used (no number, negative, twice the same step) are set aside and counted.

    Raises:
        InputError: if a column is missing, too many rows are unusable, or no step is shared.
    """
    raw, lines, refused = _read(path)
    table = _typed(path, raw)
    good, reasons = _usable(table)
    total = table.num_rows + len(refused)

    def rejects() -> Rejects:
        rows = [(int(lines[at]), why, _row_text(raw, at)) for at, why in reasons.items()]
        found = Rejects(path, MOST_KEPT_REJECTS)
        for line, why, text in sorted([*refused, *rows]):
            found.add(line, why, text)
        remedy = "fix the file, or allow more with --max-reject-share"
        found.check(total, max_reject_share, _expected(), remedy)
        return found

    if not good.any():
        rejects()
    position = np.flatnonzero(good)
    names = [name for name in (*WHOLE, *NUMBERS) if name in table.column_names]
    number = {name: table[name].to_numpy()[good] for name in names}
    whole = {name: number[name].astype(np.int64) for name in names if name in WHOLE}
    single = {name: number[name].astype(np.float32) for name in names if name in NUMBERS}
    rows = LongSteps(
        whole["rank"],
        whole["step"],
        (number["seconds"] - number.get("sync_s", 0.0)).astype(np.float32),
        whole.get("attempt"),
        single.get("data_wait_s"),
    )
    found, again = fill(rows, "own", str(path))
    reasons |= dict.fromkeys(position[again].tolist(), "duplicate rank and step")
    rejected = rejects()
    labels, remarks = _labels(table, rows.rank, position, found.ranks)
    gpus = np.ones(found.ranks.size)
    if "gpus" in number:
        gpus = number["gpus"][_first_rows(rows.rank, found.ranks)]
    return replace(
        found,
        gpus=gpus,
        labels=labels,
        rejects=tuple(rejected.rows),
        rejected=rejected.count,
        remarks=tuple(remarks),
    )


def _read(path: Path) -> tuple[pa.Table, Ints, list[tuple[int, str, str]]]:
    """The raw table, the line number of each row, and the lines with too few or too many cells.

    Raises:
        InputError: if it is not a CSV table.
    """
    refused: list[tuple[int, str, str]] = []

    def set_aside(row: pyarrow.csv.InvalidRow) -> str:
        reason = f"{row.actual_columns} cells instead of {row.expected_columns}"
        refused.append((row.number or 0, reason, row.text or ""))
        return "skip"

    try:
        try:
            table = pyarrow.csv.read_csv(path)
        except pa.ArrowInvalid:  # damaged: once more, slowly, and only as text
            with open_source(path) as source:
                text = source.read()
            table = pyarrow.csv.read_csv(
                pa.BufferReader(text.decode("utf-8", errors="replace").encode()),
                pyarrow.csv.ReadOptions(use_threads=False),  # only one thread knows the line
                pyarrow.csv.ParseOptions(invalid_row_handler=set_aside),
            )
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(
            "not a CSV table",
            code="unknown-format",
            path=path,
            found=str(error).splitlines()[0],
            expected=_expected(),
        ) from None
    lines = np.arange(2, table.num_rows + len(refused) + 2, dtype=np.int64)
    return table, np.delete(lines, [line - 2 for line, _, _ in refused]), refused


def _typed(path: Path, table: pa.Table) -> pa.Table:
    """The table with numbers in the columns of numbers; a cell that is none is null.

    Raises:
        InputError: if a column is missing, or there are no rows.
    """
    names = [name.strip().lower() for name in table.column_names]
    missing = [name for name in NEEDED if name not in names]
    if missing or len(set(names)) < len(names):
        raise InputError(
            f"no column {missing[0]!r}" if missing else "duplicate column",
            code="missing-column",
            path=path,
            place="line 1",
            found=", ".join(names)[:200],
            expected=_expected(),
        )
    if not table.num_rows:
        raise InputError(
            "the table has no rows", code="empty-input", path=path, expected=_expected()
        )
    table = table.rename_columns(names)
    for index, name in enumerate(names):
        if name in (*WHOLE, *NUMBERS):
            table = table.set_column(index, name, _numbers(table[name]))
    return table


def _expected() -> str:
    return f"columns {', '.join(NEEDED)}, and as known sync_s, data_wait_s, attempt, gpus, labels"


def _numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column as doubles, null where there is no number."""
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return column.cast(pa.float64(), safe=False)
    text = pc.utf8_trim_whitespace(column.cast(pa.string()))
    pattern = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
    plain = pc.if_else(pc.match_substring_regex(text, pattern), text, pa.scalar(None, pa.string()))
    return plain.cast(pa.float64())


def _usable(table: pa.Table) -> tuple[npt.NDArray[np.bool_], dict[int, str]]:
    """Mask of the valid rows, and the reasons against the others: position -> reason."""
    good = np.ones(table.num_rows, dtype=bool)
    reasons: dict[int, str] = {}

    def refuse(bad: npt.NDArray[np.bool_], reason: str) -> None:
        for position in np.flatnonzero(bad & good).tolist():
            reasons[position] = reason
        good[bad] = False

    for name in (*WHOLE, *NUMBERS):
        if name not in table.column_names:
            continue
        values = table[name].to_numpy()
        refuse(~np.isfinite(values), f"{name} is not a number")
        refuse(values < 0, f"{name} is negative")
        if name in WHOLE:
            refuse(values != np.floor(values), f"{name} is not a whole number")
            refuse(values >= 2**53, f"{name} is too large")
    seconds = table["seconds"].to_numpy()
    for name in ("sync_s", "data_wait_s"):
        if name in table.column_names:
            refuse(table[name].to_numpy() > seconds * (1 + 1e-6), f"{name} is longer than the step")
    return good, reasons


def _row_text(table: pa.Table, position: int) -> str:
    cells = table.slice(position, 1).to_pylist()[0]
    return ",".join("" if cell is None else str(cell) for cell in cells.values())


def _first_rows(rank: Ints, ranks: Ints) -> Ints:
    """The position of the first row of each rank."""
    distinct, first = np.unique(rank, return_index=True)
    return first[np.searchsorted(distinct, ranks)].astype(np.int64)


def _labels(
    table: pa.Table, rank: Ints, position: Ints, ranks: Ints
) -> tuple[tuple[dict[str, str], ...], list[str]]:
    """The label columns, as the first row of each rank has them; columns that change are left out."""
    names = [name for name in table.column_names if name and name not in (*WHOLE, *NUMBERS)]
    labels: list[dict[str, str]] = [{} for _ in range(ranks.size)]
    if not names:
        return tuple(labels), []
    first = _first_rows(rank, ranks)
    rank_row = first[np.minimum(np.searchsorted(ranks, rank), ranks.size - 1)]
    remarks = []
    for name in names:
        coded = pc.fill_null(table[name].cast(pa.string()), "").combine_chunks().dictionary_encode()
        codes = coded.indices.to_numpy()[position]
        known = np.isin(rank, ranks)
        if len(coded.dictionary) > MOST_VALUES or (codes != codes[rank_row])[known].any():
            remarks.append(f"column {name} is not a label: it changes within a rank")
            continue
        for each, code in zip(labels, codes[first].tolist(), strict=True):
            each[name] = coded.dictionary[code].as_py()
    return tuple(labels), remarks
