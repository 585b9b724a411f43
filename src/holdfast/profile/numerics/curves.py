"""Loss curves as files: CSV of TensorBoard and W&B, and JSON lines of `holdfast.runs.RunRecorder`."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import InputError
from holdfast.lines import Rejects
from holdfast.opening import open_source

STEP_COLUMNS = ("step", "_step", "global_step", "trainer/global_step", "iteration", "iter")
LOSS_COLUMNS = ("loss", "train/loss", "train_loss", "training_loss", "train/loss_step", "value")
GRAD_NORM_COLUMNS = ("grad_norm", "train/grad_norm", "gradient_norm", "global_norm", "gnorm")
MAX_REJECTED = 0.05
"""Share of rows with a value that is not a number past which a file is refused."""


@dataclass
class Curve:
    """The loss of a run by step."""

    path: Path
    columns: dict[str, str]
    """What was read: step, loss, grad_norm, batch -> column."""
    steps: list[int]
    loss: list[float]
    grad_norm: list[float | None]
    batch: list[int | None]
    rejected: int = 0
    """Rows with text where a number belongs."""
    without_loss: int = 0
    """Rows in which the loss is empty."""
    replayed: int = 0
    """Rows replaced by a later row of their step: the run was resumed from an earlier one."""


def read_curve(
    path: str | Path,
    *,
    loss: str | None = None,
    grad_norm: str | None = None,
    step: str | None = None,
    batch: str | None = None,
) -> Curve:
    """Read a loss curve.

    Args:
        path: CSV with a header, or JSON lines with a loss in each object; may be compressed.
        loss: column; by default one with a usual name.
        grad_norm: column; by default one with a usual name, if any.
        step: column; by default one with a usual name, else rows are counted.
        batch: column with the number of the batch.

    Raises:
        InputError: ``missing-column``, ``conflict`` where several columns may be the loss, ``no-data``,
            ``too-many-rejects``.
    """
    path = Path(path)
    with open_source(path) as source:
        text = source.read().decode("utf-8-sig", "replace")
    json_lines = text.lstrip()[:1] == "{"
    rows, header = _json_rows(text, path) if json_lines else _csv_rows(text)
    if not header:
        raise InputError("no rows", code="empty-input", path=path, expected="a header and rows")
    wanted = {
        "step": _column(path, "step", step, header, STEP_COLUMNS, required=False),
        "loss": _column(path, "loss", loss, header, LOSS_COLUMNS, required=True),
        "grad_norm": _column(path, "grad_norm", grad_norm, header, GRAD_NORM_COLUMNS, required=False),
        "batch": _column(path, "batch", batch, header, (), required=False),
    }
    columns = {name: column for name, column in wanted.items() if column is not None}
    curve = Curve(path, columns, [], [], [], [])
    rejects, total = Rejects(path), 0
    for line, row in rows:
        found = {name: row.get(column, "") for name, column in columns.items()}
        if found["loss"].strip().lower() in ("", "null", "none"):
            curve.without_loss += 1
            continue
        total += 1
        try:
            value = float(found["loss"])
            norm = found.get("grad_norm", "").strip()
            at = float(found["step"]) if "step" in found else float(len(curve.steps) + 1)
            number = found.get("batch", "").strip()
            entry = int(at), value, float(norm) if norm else None, int(float(number)) if number else None
        except (ValueError, OverflowError):
            rejects.add(line, "not a number", ",".join(found.values()))
            continue
        _append(curve, *entry)
    remedy = "name the columns with --loss and --step"
    rejects.check(total, MAX_REJECTED, "numbers", remedy)
    curve.rejected = rejects.count
    if not curve.steps:
        raise InputError("no value of the loss", code="no-data", path=path, place=columns["loss"])
    return curve


def _append(curve: Curve, step: int, loss: float, norm: float | None, batch: int | None) -> None:
    """Add a step; steps that a resumed run makes again replace those that were lost."""
    while curve.steps and curve.steps[-1] >= step:
        for values in (curve.steps, curve.loss, curve.grad_norm, curve.batch):
            values.pop()
        curve.replayed += 1
    curve.steps.append(step)
    curve.loss.append(loss)
    curve.grad_norm.append(norm)
    curve.batch.append(batch)


def _csv_rows(text: str) -> tuple[Iterator[tuple[int, Mapping[str, str]]], list[str]]:
    reader = csv.reader(io.StringIO(text))
    header = next(reader, [])

    def rows() -> Iterator[tuple[int, Mapping[str, str]]]:
        for row in reader:
            if row:
                yield reader.line_num, dict(zip(header, row, strict=False))

    return rows(), header


def _json_rows(
    text: str, path: Path
) -> tuple[Iterator[tuple[int, Mapping[str, str]]], list[str]]:
    """Objects with their values as text; those of other events, such as checkpoints, have no loss."""
    made: list[tuple[int, Mapping[str, str]]] = []
    header: dict[str, None] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            if number == text.count("\n") + 1:  # the last line of a run that is being written
                break
            raise InputError(
                "not a line of JSON", code="invalid-syntax", path=path, place=f"line {number}",
                found=str(error),
            ) from error  # fmt: skip
        if isinstance(row, dict):
            plain = {str(k): str(v) for k, v in row.items() if isinstance(v, (int, float, str))}
            header.update(dict.fromkeys(plain))
            made.append((number, plain))
    return iter(made), list(header)


def _column(
    path: Path, what: str, given: str | None, header: Sequence[str], usual: Sequence[str], *, required: bool
) -> str | None:
    """The column of a quantity: as given, or the one with a usual name."""
    if given is not None:
        if given not in header:
            raise InputError(
                f"no column {given!r}", code="missing-column", path=path, place=f"--{what.replace('_', '-')}",
                found=", ".join(header), expected=given,
            )  # fmt: skip
        return given
    # W&B writes "run name - metric", and the extremes beside each metric.
    names = {
        column: column.rpartition(" - ")[2].strip().lower()
        for column in header
        if not column.endswith(("__MIN", "__MAX"))
    }
    for name in usual:
        found = [column for column, short in names.items() if short == name]
        if len(found) > 1:
            raise InputError(
                f"several columns may be the {what}", code="conflict", path=path, place="line 1",
                found=", ".join(found), remedy=f"name one with --{what.replace('_', '-')}",
            )  # fmt: skip
        if found:
            return found[0]
    if required:
        raise InputError(
            f"no column of the {what}", code="missing-column", path=path, place="line 1",
            found=", ".join(header), expected=" or ".join(usual), remedy=f"name one with --{what}",
        )  # fmt: skip
    return None


def finite(value: float | None) -> float | None:
    """A value, or None for NaN and infinities."""
    return value if value is not None and math.isfinite(value) else None
