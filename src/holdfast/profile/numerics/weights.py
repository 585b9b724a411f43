"""How far the weights of two runs are apart: by tensor and step, from sketches or from checkpoints."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from holdfast.answer import Answer, ColumnFormat, Figure, Section, Unknown, Value
from holdfast.command import option
from holdfast.numbers import counted
from holdfast.profile.numerics.deviation import Row, digits
from holdfast.profile.numerics.distances import SKETCH, Distance, distance
from holdfast.profile.numerics.tracker import Sketch, load, sketch_files
from holdfast.profile.ops.sections import section
from holdfast.profile.ops.targets import refused
from holdfast.report import figures

# Layers and steps of the heat map: more would not be read.
SHOWN = 40


@dataclass(frozen=True)
class WeightDistance(Answer):
    """Distances between the weights of two runs.

    Attributes:
        first: folder or file.
        second: folder or file.
        steps: that both have; of checkpoints one, 0.
        rows: step, tensor, size, w1, paired_mean, paired_max, rms, relative (w1 / rms), exact (False: from
            sketches), non_finite, of_reference (w1 over that of the reference, where there is one).
        totals: per step the means over all weights, and the largest difference.
        unmatched: tensors that one run lacks.
    """

    first: Path
    second: Path
    steps: list[int]
    rows: list[Row]
    totals: list[Row]
    unmatched: list[str]

    title = "Distance between weights"

    def inputs(self) -> Sequence[tuple[str, str]]:
        """The two runs."""
        return [("first", str(self.first)), ("second", str(self.second))]

    def values(self) -> Sequence[Value]:
        """The distances at the last step."""
        return [Value(key, self.totals[-1][key]) for key in ("w1", "paired_mean", "paired_max")]

    def unknowns(self) -> Sequence[Unknown]:
        """What was left out."""
        names = ", ".join(self.unmatched[:5])
        text = f"{counted(len(self.unmatched), 'tensor')} of one run only: {names}."
        found = [Unknown(text, "rename the tensors, if they are the same")] * bool(self.unmatched)
        wrong = sum(row["non_finite"] for row in self.rows)
        if wrong:
            found.append(Unknown(f"{wrong:,} weights are NaN or infinite and in no distance."))
        return found

    def sections(self) -> Sequence[Section]:
        """By layer and step."""
        last = self.totals[-1]
        ranked = sorted(self.rows, key=lambda row: -(row["relative"] or 0.0))
        ranked = [row for row in ranked if row["step"] == self.steps[-1]]
        sentence = (
            f"At step {self.steps[-1]:,} W1 is {digits(last['w1'])} and the mean paired distance "
            f"{digits(last['paired_mean'])}; {ranked[0]['tensor']} is farthest apart, W1 is "
            f"{digits(ranked[0]['relative'])} of its RMS."
        )
        return [
            section(
                "weights",
                "How far apart are the weights?",
                sentence,
                ranked,
                "tensor size w1 paired_mean paired_max relative of_reference",
                self._chart([row["tensor"] for row in ranked[:SHOWN]]),
                forms={
                    "relative": ColumnFormat("W1 / RMS"),
                    "of_reference": ColumnFormat("W1 / reference"),
                },
                formula=["W1 = mean |sorted a - sorted b|", "paired = mean, max |a - b|"],
                source="Vallender 1974; Golden et al., arXiv 2405.02803",
                notes="From sketches W1 is over mid-quantiles, and paired distances are over a sample of "
                "1,024 places: their largest value is a lower bound. Up to 1,024 weights are exact.",
            )
        ]

    def _chart(self, tensors: list[str]) -> list[Figure]:
        """W1 by layer and step, where there are several steps and a distance."""
        every = self.steps[:: -(-len(self.steps) // SHOWN)]
        cells = [
            {"step": str(row["step"]), "tensor": row["tensor"], "w": math.log10(row["relative"])}
            for row in self.rows
            if row["tensor"] in tensors and row["step"] in every and row["relative"]
        ]
        if not cells or len(self.steps) < 2:
            return []
        return [figures.heat_map(cells, "step", "tensor", "w", "log10 of W1 / RMS")]


def track_diff(
    first: str | Path,
    second: str | Path,
    /,
    *,
    reference: Annotated[str | Path | None, option(metavar="RUN")] = None,
) -> WeightDistance:
    """Compare the weights of two runs, from their sketches or from two checkpoints.

    Args:
        first: Folder of a WeightTracker, or a checkpoint (safetensors, torch.save).
        second: The other run, of the same kind.
        reference: A third run, such as one of another seed; distances are also given relative to that of
            the first from it.

    Raises:
        InputError: ``no-match`` without a common step, ``name-mismatch`` without a common tensor,
            ``shape-mismatch``, ``damaged``.
    """
    a, b = Path(first), Path(second)
    rows, unmatched = _compared(a, b)
    unit = [] if reference is None else _compared(a, Path(reference))[0]
    totals, others = _totals(rows), _totals(unit)
    scale = {(row["step"], row.get("tensor")): row["w1"] for row in (*unit, *others)}
    for row in (*rows, *totals):
        other = scale.get((row["step"], row.get("tensor")))
        row["of_reference"] = row["w1"] / other if other and row["w1"] is not None else None
    return WeightDistance(a, b, [row["step"] for row in totals], rows, totals, unmatched)


def _compared(a: Path, b: Path) -> tuple[list[Row], list[str]]:
    """A row per common step and tensor, and the tensors of one run only."""
    if a.is_dir() != b.is_dir():
        problem = "a folder of sketches and a checkpoint cannot be compared"
        raise refused(problem, "conflict", path=b, remedy="name two folders or two files")
    if not a.is_dir():
        mine, other = read_tensors(a), read_tensors(b)
        shapes = [{name: tuple(x.shape) for name, x in each.items()} for each in (mine, other)]
        names, unmatched = _matched(shapes[0], shapes[1], b)
        sizes = {name: mine[name].numel() for name in names}
        rows = [_row(0, n, sizes[n], distance(mine[n], other[n]), True) for n in names]
        return rows, unmatched
    files = sketch_files(a), sketch_files(b)
    steps = sorted(set(files[0]) & set(files[1]))
    if not steps:
        problem = "no tracked step in common"
        raise refused(problem, "no-match", "steps", list(files[1]), list(files[0]), path=b)
    rows, unmatched = [], []
    for step in steps:
        one, two = load(files[0][step]), load(files[1][step])
        sizes = [dict(zip(each.names, each.sizes, strict=True)) for each in (one, two)]
        names, unmatched = _matched(sizes[0], sizes[1], files[1][step])
        rows += _sketch_rows(one, two, names)
    return rows, unmatched


def _sketch_rows(a: Sketch, b: Sketch, names: list[str]) -> Iterator[Row]:
    for name in names:
        n, m = a.names.index(name), b.names.index(name)
        width = min(a.sizes[n], SKETCH)
        ranked = distance(a.quantiles[n, :width], b.quantiles[m, :width])
        paired = distance(a.paired[n, :width], b.paired[m, :width])
        wrong = int(a.statistics[n, 2] + b.statistics[m, 2])
        # The quantiles of fewer finite values stand at other places: no W1 then.
        w1 = math.nan if wrong else ranked.w1
        found = replace(paired, w1=w1, rms=float(a.statistics[n, 0]), non_finite=wrong)
        yield _row(a.step, name, a.sizes[n], found, a.sizes[n] <= SKETCH)


def _row(step: int, name: str, size: int, found: Distance, exact: bool) -> Row:
    known = {key: value if math.isfinite(value) else None for key, value in vars(found).items()}
    relative = found.w1 / found.rms if known["w1"] is not None and found.rms else None
    row = {"step": step, "tensor": name, "size": size, **known}
    return row | {"relative": relative, "exact": exact}


def _totals(rows: list[Row]) -> list[Row]:
    """Per step the means over all weights (large tensors count for what they are), and the largest."""
    totals = []
    for step in sorted({row["step"] for row in rows}):
        total: Row = {"step": step}
        known = [row for row in rows if row["step"] == step]
        for key in ("w1", "paired_mean"):
            pairs = [(row[key], row["size"]) for row in known if row[key] is not None]
            size = sum(each for _, each in pairs)
            total[key] = sum(mean * each for mean, each in pairs) / size if size else None
        largest = [row["paired_max"] for row in known if row["paired_max"] is not None]
        totals.append(total | {"paired_max": max(largest, default=None)})
    return totals


def _matched(a: Row, b: Row, path: Path) -> tuple[list[str], list[str]]:
    """Names that both have, of one shape, and those of one run only."""
    names = [name for name in a if name in b]
    if not names:
        raise refused("no tensor in common", "name-mismatch", "tensors", b, a, path=path)
    for name in names:
        if a[name] != b[name]:
            raise refused("shapes differ", "shape-mismatch", name, b[name], a[name], path=path)
    return names, sorted(set(a) ^ set(b))


def read_tensors(path: str | Path) -> dict[str, Any]:
    """Name -> tensor. Of a checkpoint with nested dictionaries, the one called ``state_dict`` or ``model``.

    Raises:
        InputError: ``not-found``, ``damaged``, or ``unknown-format`` for what holds no tensors.
    """
    import torch
    from safetensors.torch import load_file

    path = Path(path)
    if not path.is_file():
        raise refused("file not found", "not-found", path=path)
    with path.open("rb") as file:
        start = file.read(9)
    is_safetensors = start[8:] == b"{"  # the length of the header, then JSON
    if not is_safetensors and start[:2] not in (b"PK", b"\x80\x02"):
        expected = "a safetensors file, or one that torch.save wrote"
        raise refused("not a checkpoint", "unknown-format", expected=expected, path=path)
    try:
        if is_safetensors:
            return load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # zip, pickle and safetensors errors have no common base
        found = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise refused(
            "damaged checkpoint, or one with other objects than tensors",
            "damaged",
            found=found,
            path=path,
            remedy="save the state dict alone, best as safetensors",
        ) from error
    content = content if isinstance(content, Mapping) else {}
    for key in ("state_dict", "model", "model_state_dict"):
        nested = content.get(key)
        content = nested if isinstance(nested, Mapping) else content
    tensors = {str(k): v for k, v in content.items() if isinstance(v, torch.Tensor)}
    if tensors:
        return tensors
    raise refused("the checkpoint holds no tensors", "no-data", path=path)
