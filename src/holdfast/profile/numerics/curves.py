"""Loss curves as CSV files: of TensorBoard, of W&B, or any with a step and a loss."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

from holdfast.lines import Rejects
from holdfast.opening import open_source
from holdfast.profile.ops.targets import refused

# Names of columns, in lower case and without W&B's ``run name - ``.
USUAL = {
    "step": ("step", "_step", "global_step", "trainer/global_step", "iteration", "iter"),
    "loss": ("loss", "train/loss", "train_loss", "training_loss", "train/loss_step", "value"),
    "grad_norm": ("grad_norm", "train/grad_norm", "gradient_norm", "global_norm", "gnorm"),
}
# Share of rows with text where a number belongs past which a file is refused.
MAX_REJECTED = 0.05
# Share of steps below the one before past which rows are not in the order of the run.
MAX_BACK = 0.25


@dataclass
class Curve:
    """The loss of a run by step.

    Attributes:
        columns: What was read: step, loss, grad_norm -> column.
        points: (step, loss, gradient norm), steps ascending.
        rejected: Rows with text where a number belongs.
        without_loss: Rows in which the loss is empty.
        replayed: Rows replaced by a later one: the run was resumed from an earlier step.
    """

    path: Path
    columns: dict[str, str]
    points: list[tuple[int, float, float | None]] = field(default_factory=list)
    rejected: int = 0
    without_loss: int = 0
    replayed: int = 0


def read_curve(path: str | Path, **columns: str | None) -> Curve:
    """Read a loss curve.

    Args:
        path: CSV with a header; may be compressed. Rows may also be newest first, or in no order.
        columns: step, loss, grad_norm: columns; by default those with a usual name. Without a step
            rows are counted from 1.

    Raises:
        InputError: ``missing-column``, ``conflict`` where several columns may be meant, ``no-data``,
            ``invalid-syntax`` for what is not CSV, ``too-many-rejects``.
    """
    path = Path(path)
    with open_source(path) as source:
        text = io.StringIO(source.read().decode("utf-8-sig", "replace"), newline="")
    reader = csv.reader(text)
    rows = _rows(reader, path)
    header = next(rows, [])
    found = {what: _column(path, what, columns.get(what), header) for what in USUAL}
    curve = Curve(path, {what: column for what, column in found.items() if column is not None})
    places = {what: header.index(column) for what, column in curve.columns.items()}
    rejects, total, points = Rejects(path), 0, list[Any]()
    for row in rows:
        texts = {what: row[n].strip() if n < len(row) else "" for what, n in places.items()}
        if texts["loss"].lower() in ("", "null", "none"):
            curve.without_loss += 1
            continue
        total += 1
        try:
            step, norm = texts.get("step", total), texts.get("grad_norm")
            points.append((int(float(step)), float(texts["loss"]), float(norm) if norm else None))
        except (ValueError, OverflowError):
            rejects.add(reader.line_num, "not a number", ",".join(texts.values()))
    rejects.check(total, MAX_REJECTED, "numbers", "name the columns with --loss and --step")
    curve.rejected = rejects.count
    if not points:
        raise refused("no value of the loss", "no-data", curve.columns["loss"], path=path)
    back = sum(after[0] < before[0] for before, after in pairwise(points)) / len(points)
    if back > 1 - MAX_BACK:  # the newest row is the first
        points.reverse()
    elif back > MAX_BACK:  # too often for a run that was resumed
        points.sort(key=itemgetter(0))
    for point in points:
        # Steps that a resumed run makes again replace those that were lost.
        while curve.points and curve.points[-1][0] >= point[0]:
            curve.points.pop()
            curve.replayed += 1
        curve.points.append(point)
    return curve


def _rows(reader: Any, path: Path) -> Iterator[list[str]]:
    try:
        yield from reader
    except csv.Error as error:
        raise refused(
            "not CSV", "invalid-syntax", f"line {reader.line_num}", error, path=path
        ) from error


def _column(path: Path, what: str, given: str | None, header: Sequence[str]) -> str | None:
    """The column of a quantity: as given, or the one with a usual name."""
    where: Any = {"path": path, "remedy": f"name a column with --{what.replace('_', '-')}"}
    if given is not None:
        if given not in header:
            raise refused("no such column", "missing-column", given, header, path=path)
        return given
    # W&B writes the extremes of each metric beside it.
    shown = [column for column in header if not column.endswith(("__MIN", "__MAX"))]
    names = [column.rpartition(" - ")[2].strip().lower() for column in shown]
    for usual in USUAL[what]:
        columns = [column for column, name in zip(shown, names, strict=True) if name == usual]
        if len(columns) > 1:
            raise refused(f"several columns of the {what}", "conflict", "line 1", columns, **where)
        if columns:
            return columns[0]
    if what == "loss":
        problem = "no column of the loss"
        raise refused(problem, "missing-column", "line 1", header, [*USUAL[what]], **where)
    return None
