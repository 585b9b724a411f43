"""How far the weights of two runs are apart: by tensor and step, from sketches or from checkpoints."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Value
from holdfast.errors import InputError
from holdfast.numbers import counted
from holdfast.profile.numerics.checkpoints import read_tensors
from holdfast.profile.numerics.distances import SKETCH, Distance, distance, flat
from holdfast.profile.numerics.tracker import Sketch, load, sketch_files
from holdfast.report import figures
from holdfast.report.page import Unknown

SHOWN_LAYERS, SHOWN_STEPS = 40, 40
"""Cells of the heat map: more would not be read."""


@dataclass(frozen=True)
class WeightDistance(Answer):
    """Distances between the weights of two runs.

    Attributes:
        first, second: the folders or files.
        steps: that both have; of checkpoints one, 0.
        rows: step, tensor, size, w1, paired_mean, paired_max, rms, relative (w1 / rms), exact (False: from
            sketches), non_finite, w1_reference and of_reference (w1 over that) where a reference was given.
        totals: per step the means over all weights and the largest difference.
        only_first, only_second: tensors that one run lacks.
    """

    first: Path
    second: Path
    steps: list[int]
    rows: list[dict[str, Any]]
    totals: list[dict[str, Any]]
    only_first: list[str]
    only_second: list[str]

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Distance between weights"

    def inputs(self) -> Sequence[tuple[str, str]]:
        """The two runs."""
        return [("first", str(self.first)), ("second", str(self.second))]

    def values(self) -> Sequence[Value]:
        """Of the last step."""
        last = self.totals[-1]
        return [Value(name, last[name]) for name in ("w1", "paired_mean", "paired_max", "relative")]

    def unknowns(self) -> Sequence[Unknown]:
        """What was left out."""
        found = []
        for place, names in ((self.second, self.only_first), (self.first, self.only_second)):
            if names:
                text = f"{counted(len(names), 'tensor')} not in {place}: {', '.join(names[:5])}"
                found.append(Unknown(text, "rename the tensors, if they are the same"))
        wrong = sum(row["non_finite"] for row in self.rows)
        if wrong:
            found.append(Unknown(f"{wrong:,} weights are NaN or infinite and left out of the distances."))
        return found

    def sections(self) -> Sequence[Section]:
        """By layer and step."""
        last = self.totals[-1]
        of_last = [row for row in self.rows if row["step"] == self.steps[-1]]
        farthest = max(of_last, key=lambda row: _rank(row["relative"]))
        moment = f"At step {self.steps[-1]:,}" if len(self.steps) > 1 else "Between both"
        sentence = (
            f"{moment} W1 is {_digits(last['w1'])} and the mean paired distance {_digits(last['paired_mean'])}; "
            f"{farthest['tensor']} is farthest apart relative to its size "
            f"({_share(farthest['relative'])} of its RMS)."
        )
        if last["of_reference"] is not None:
            sentence += f" W1 is {last['of_reference']:.2g} times that of the reference."
        charts = []
        cells = self._cells()
        if cells and len(self.steps) > 1:
            title = "log10 of W1 / RMS"
            charts.append(figures.heat_map(cells, "step", "tensor", "log10", title))
        lines = [
            {"step": row["step"], "distance": name, "value": row[key]}
            for row in self.totals
            for key, name in (("w1", "W1"), ("paired_mean", "paired mean"))
            if row[key]
        ]
        if lines and len(self.steps) > 1:
            charts.append(
                figures.lines(lines, "step", "value", "Step", "Distance", series="distance", log_y=True)
            )
        columns = {
            "tensor": ColumnFormat("Tensor"),
            "size": ColumnFormat("Weights"),
            "w1": ColumnFormat("W1"),
            "paired_mean": ColumnFormat("Paired, mean"),
            "paired_max": ColumnFormat("Paired, largest"),
            "relative": ColumnFormat("W1 / RMS"),
            "exact": ColumnFormat("Exact", detail=True),
        }
        if last["of_reference"] is not None:
            columns["of_reference"] = ColumnFormat("W1 / reference", digits=2)
        shown = sorted(of_last, key=lambda row: -_rank(row["relative"]))
        table = Table(pa.Table.from_pylist(shown), columns, "Tensors of the last step, farthest first.")
        how = How(
            ["W1 = mean |sorted a - sorted b|", "paired = mean, max |a - b|; W1 <= paired mean"],
            {"quantiles of a sketch": SKETCH},
            "Vallender 1974; Golden et al., arXiv 2405.02803",
            "From sketches W1 is over mid-quantiles, and paired distances are over a sample of 1,024 places: "
            "their largest value is a lower bound. Tensors of up to 1,024 weights are exact.",
        )
        return [Section("weights", "How far apart are the weights?", sentence, charts, [table], how)]

    def _cells(self) -> list[dict[str, Any]]:
        most: dict[str, float] = {}
        for row in self.rows:
            most[row["tensor"]] = max(most.get(row["tensor"], -math.inf), _rank(row["relative"]))
        kept = set(sorted(most, key=lambda name: -most[name])[:SHOWN_LAYERS])
        every = self.steps[:: -(-len(self.steps) // SHOWN_STEPS)]
        return [
            {"step": str(row["step"]), "tensor": row["tensor"], "log10": math.log10(row["relative"])}
            for row in self.rows
            if row["tensor"] in kept and row["step"] in every and row["relative"]
        ]


def track_diff(
    first: str | Path, second: str | Path, *, reference: str | Path | None = None
) -> WeightDistance:
    """Distances between the weights of two runs, from their sketches or from two checkpoints.

    Args:
        first: folder of a `WeightTracker`, or a checkpoint (safetensors, torch.save).
        second: the same kind.
        reference: a third run, such as one of another seed: the distance from the first to it is the unit.

    Raises:
        InputError: ``no-match`` without a common step, ``name-mismatch`` without a common tensor,
            ``shape-mismatch``, ``damaged``.
    """
    a, b = Path(first), Path(second)
    rows = list(_compared(a, b))
    if reference is not None:
        unit = {(r["step"], r["tensor"]): r["w1"] for r in _compared(a, Path(reference))}
        for row in rows:
            w1 = unit.get((row["step"], row["tensor"]))
            row["w1_reference"], row["of_reference"] = w1, row["w1"] / w1 if w1 else None
    names = [_names(path) for path in (a, b)]
    steps = sorted({row["step"] for row in rows})
    totals = [_total([row for row in rows if row["step"] == step]) for step in steps]
    only = [sorted(names[0] - names[1]), sorted(names[1] - names[0])]
    return WeightDistance(a, b, steps, rows, totals, *only)


def _compared(a: Path, b: Path) -> Iterator[dict[str, Any]]:
    """A row per common step and tensor."""
    if a.is_dir() != b.is_dir():
        raise InputError(
            "a folder of sketches and a checkpoint cannot be compared",
            code="conflict",
            path=b,
            remedy="name two folders or two files",
        )
    if not a.is_dir():
        mine, others = read_tensors(a), read_tensors(b)
        for name in _common(list(mine), list(others), b):
            x, y = mine[name], others[name]
            if tuple(x.shape) != tuple(y.shape):
                raise _shapes(b, name, tuple(y.shape), tuple(x.shape))
            if x.is_floating_point() and y.is_floating_point():
                u, w = flat(x), flat(y)
                wrong = int((~(np.isfinite(u) & np.isfinite(w))).sum())
                yield _row(0, name, u.size, distance(u, w), exact=True, non_finite=wrong)
        return
    files = [sketch_files(path) for path in (a, b)]
    steps = sorted(set(files[0]) & set(files[1]))
    if not steps:
        raise InputError(
            "no tracked step in common",
            code="no-match",
            path=b,
            found=", ".join(map(str, list(files[1])[:8])) or "no sketches",
            expected=", ".join(map(str, list(files[0])[:8])) or f"no sketches in {a} either",
        )
    for step in steps:
        yield from _compared_sketches(load(files[0][step]), load(files[1][step]), files[1][step])


def _compared_sketches(a: Sketch, b: Sketch, path: Path) -> Iterator[dict[str, Any]]:
    places = {name: n for n, name in enumerate(b.names)}
    for name in _common(a.names, b.names, path):
        n, m = a.names.index(name), places[name]
        size = a.sizes[n]
        if size != b.sizes[m]:
            raise _shapes(path, name, b.sizes[m], size)
        width = min(size, SKETCH)
        wrong = int(a.statistics[n, 2] + b.statistics[m, 2])
        ranked = np.abs(a.quantiles[n, :width] - b.quantiles[m, :width])
        paired = np.abs(a.paired[n, :width] - b.paired[m, :width])
        paired = paired[np.isfinite(paired)]
        # Quantiles of fewer finite values than the tensor has stand at other places: no W1 then.
        w1 = float(ranked.mean()) if np.isfinite(ranked).all() else math.nan
        mean, most = (float(paired.mean()), float(paired.max())) if paired.size else (math.nan, math.nan)
        found = Distance(w1, mean, most, float(a.statistics[n, 0]))
        yield _row(a.step, name, size, found, exact=size <= SKETCH, non_finite=wrong)


def _row(
    step: int, name: str, size: int, found: Distance, *, exact: bool, non_finite: int
) -> dict[str, Any]:
    return {
        "step": step,
        "tensor": name,
        "size": size,
        "w1": _known(found.w1),
        "paired_mean": _known(found.paired_mean),
        "paired_max": _known(found.paired_max),
        "rms": _known(found.rms),
        "relative": found.w1 / found.rms if found.rms and math.isfinite(found.w1) else None,
        "exact": exact,
        "non_finite": non_finite,
        "w1_reference": None,
        "of_reference": None,
    }


def _total(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over all weights of a step, so that large tensors count for what they are."""
    size = sum(row["size"] for row in rows if row["w1"] is not None)

    def mean(key: str) -> float | None:
        known = [(row[key], row["size"]) for row in rows if row["w1"] is not None and row[key] is not None]
        return sum(value * n for value, n in known) / size if known else None

    w1, reference = mean("w1"), mean("w1_reference")
    square = sum(row["rms"] ** 2 * row["size"] for row in rows if row["w1"] is not None)
    rms = math.sqrt(square / size) if size else 0.0
    largest = [row["paired_max"] for row in rows if row["paired_max"] is not None]
    return {
        "step": rows[0]["step"],
        "w1": w1,
        "paired_mean": mean("paired_mean"),
        "paired_max": max(largest, default=None),
        "relative": w1 / rms if w1 is not None and rms else None,
        "of_reference": w1 / reference if w1 is not None and reference else None,
    }


def _names(path: Path) -> set[str]:
    if path.is_dir():
        files = sketch_files(path)
        return set(load(files[max(files)]).names) if files else set()
    return set(read_tensors(path))


def _common(a: list[str], b: list[str], path: Path) -> list[str]:
    known = set(b)
    common = [name for name in a if name in known]
    if not common:
        raise InputError(
            "no tensor in common",
            code="name-mismatch",
            path=path,
            found=", ".join(b[:5]),
            expected=", ".join(a[:5]),
        )
    return common


def _shapes(path: Path, name: str, found: object, expected: object) -> InputError:
    return InputError(
        "tensors of different shapes", code="shape-mismatch", path=path, place=name,
        found=str(found), expected=str(expected),
    )  # fmt: skip


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _rank(value: float | None) -> float:
    return -math.inf if value is None else value


def _digits(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{100 * value:.3g} %"
