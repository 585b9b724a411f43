"""Deviation of flash attention and of its baseline from float64, by length, block and rounding step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from holdfast import progress
from holdfast.answer import Answer, ColumnFormat, Figure, Section, Value
from holdfast.profile.numerics import emulator as emu
from holdfast.profile.numerics.deviation import Deviation, deviation
from holdfast.profile.numerics.formats import FloatArray, as_float64, format_of, rounded
from holdfast.profile.numerics.sections import colours, digits, invalid, mean, section
from holdfast.report import figures
from holdfast.report.page import Unknown

SOURCE = "Golden et al., Is Flash Attention Stable?, arXiv 2405.02803"
STORED = {"all-rounded": False, "kernel": True}
"""Whether the headline is of the stored output. With every step rounded, both variants end in the same
rounding of the output, which hides the difference between them; of a kernel, users get what it stores."""


@dataclass(frozen=True)
class Attention(Answer):
    """Deviation of attention from float64 on the same rounded inputs.

    Attributes:
        mode: all-rounded or kernel.
        dtype: the format under test.
        data: what q, k and v were: uniform, gaussian, or a file.
        samples: seeds, or heads of a file.
        rows: queries.
        head_dim: columns of q, k, v.
        compared: which output `max_abs` is of: before-last-rounding or stored.
        length: keys of the first grid point.
        block: keys per block of the first grid point.
        baseline: max_abs (mean over samples) and further measures of attention over whole rows: with the
            same formats in mode all-rounded, as separate operators in mode kernel.
        flash: the same of attention over blocks.
        ratio: max_abs of flash over that of the baseline; None where one is not finite or zero.
        ratio_range: smallest and largest ratio of a sample.
        steps: flash with one step alone in its format, all others float64: max_abs_alone.
        grid: every length and block: ratio and both deviations.
        accumulate: format of the sums inside a step.
        order: of the blocks.
    """

    mode: str
    dtype: str
    data: str
    samples: int
    rows: int
    head_dim: int
    compared: str
    length: int
    block: int
    baseline: dict[str, Any]
    flash: dict[str, Any]
    ratio: float | None
    ratio_range: tuple[float, float] | None
    steps: list[dict[str, Any]]
    grid: list[dict[str, Any]]
    accumulate: str
    order: str

    @property
    def title(self) -> str:
        """The heading of the page."""
        return f"Numeric deviation of attention, {self.dtype}, {self.mode}"

    def inputs(self) -> Sequence[tuple[str, str]]:
        """What was multiplied."""
        shape = f"{self.rows:,} queries, head dimension {self.head_dim}"
        return [("q, k, v", f"{self.data}, {self.samples} samples, {shape}")]

    def values(self) -> Sequence[Value]:
        """Both deviations and their ratio at every grid point."""
        return [
            Value(f"{key}_length_{row['length']}_block_{row['block']}", row[key], better="lower")
            for row in self.grid
            for key in ("ratio", "flash_max_abs", "baseline_max_abs")
        ]

    def unknowns(self) -> Sequence[Unknown]:
        """NaN and infinities, which no distance covers."""
        return [
            Unknown(
                f"{part['non_finite']:,} outputs of {name} are NaN or infinite, the first at "
                f"[row, column] {list(part['first_non_finite'])}: max_abs covers the others only.",
                "scale the inputs, or use a format with a larger range",
            )
            for name, part in (("baseline", self.baseline), ("flash", self.flash))
            if part["non_finite"]
        ]

    def sections(self) -> Sequence[Section]:
        """The deviation over the grid, and each step's share."""
        columns = {
            "length": "Keys",
            "block": "Block",
            "baseline_max_abs": "Baseline, largest deviation",
            "flash_max_abs": "Flash",
            "ratio": ColumnFormat("Ratio", digits=2, interval=("ratio_low", "ratio_high")),
            "baseline_stored": ColumnFormat("Baseline, as stored", detail=True),
            "flash_stored": ColumnFormat("Flash, as stored", detail=True),
            "non_finite": ColumnFormat("NaN, inf", detail=True),
        }
        parameters = {
            "compared output": self.compared,
            "sums inside a step": self.accumulate,
            "order of blocks": self.order,
            "baseline": "separate operators"
            if self.mode == "kernel"
            else "the same steps, one block",
        }
        deviations = section(
            "deviation",
            "Does flash attention deviate more?",
            self._sentence(),
            self.grid,
            columns,
            figures=self._charts(),
            formula=[
                "deviation = max |y - y64|, y64 in float64 on the same rounded inputs",
                "ratio = mean over samples of flash / mean over samples of baseline",
            ],
            parameters=parameters,
            source=SOURCE,
            notes="Emulated: each step's result is rounded to its format, to nearest even.",
            caption="Brackets: range over samples.",
        )
        ranked = sorted(self.steps, key=lambda row: -(row["max_abs_alone"] or 0.0))
        steps = section(
            "steps",
            "Which rounding step causes it?",
            f"The step that deviates most alone is {ranked[0]['step']} in {ranked[0]['format']}: "
            f"{digits(ranked[0]['max_abs_alone'])} in the stored output.",
            self.steps,
            {"step": "Step", "format": "Format", "max_abs_alone": "Largest deviation alone"},
            figures=[
                figures.bars(ranked, "step", "max_abs_alone", "Largest deviation of the output")
            ],
            formula="one step in its format, every other step in float64",
            source=SOURCE,
        )
        return [deviations, steps]

    def _sentence(self) -> str:
        base, own = digits(self.baseline["max_abs"]), digits(self.flash["max_abs"])
        at = f"at length {self.length:,}, block {self.block:,}"
        if self.ratio is None or self.ratio_range is None:
            return f"Flash deviates by {own}, the baseline by {base} {at}; no ratio is defined."
        low, high = self.ratio_range
        span = f"{self.ratio:.2f} times as much as the baseline [{low:.2f}, {high:.2f}]"
        return f"Flash deviates {span}: {own} against {base} {at}."

    def _charts(self) -> list[Figure]:
        """Deviation against length, and the ratio against the block where there are several."""
        points = [
            {
                "length": row["length"],
                "variant": f"flash, block {row['block']}",
                "y": row["flash_max_abs"],
            }
            for row in self.grid
        ]
        lengths = {row["length"]: row["baseline_max_abs"] for row in self.grid}
        points += [{"length": n, "variant": "baseline", "y": y} for n, y in lengths.items()]
        points = [row for row in points if row["y"]]  # a logarithm needs more than zero
        log: dict[str, Any] = {"points": True, "log_x": True, "log_y": True}
        title = "Largest absolute deviation"
        meanings = colours(row["variant"] for row in points)
        names = ("length", "y", "Keys", title)
        charts = [figures.lines(points, *names, series="variant", meanings=meanings, **log)]
        blocks = [
            {**row, "length": f"length {row['length']}"}
            for row in sorted(self.grid, key=lambda row: int(row["block"]))
            if row["ratio"]
        ]
        if len({row["block"] for row in blocks}) > 1:
            meanings = colours(row["length"] for row in blocks)
            names = ("block", "ratio", "Keys per block", "Flash / baseline")
            charts.append(figures.lines(blocks, *names, series="length", meanings=meanings, **log))
        return charts if points else []


def attention(
    length: int | Sequence[int] = 4096,
    block: int | Sequence[int] = 64,
    *,
    inputs: str | Path = "uniform",
    mode: Literal["all-rounded", "kernel"] = "all-rounded",
    dtype: str = "bf16",
    seeds: int = 5,
    head_dim: int = 64,
    rows: int = 1024,
    order: emu.Order = "forward",
    accumulate: str = "fp64",
    magnitude: float = 1.0,
) -> Attention:
    """Measure how far emulated attention deviates from float64, and which rounding step causes it.

    Args:
        length: keys; several make a grid, of which the first is the headline.
        block: keys per block of flash attention; one of `length` gives the baseline bit for bit (mode
            all-rounded).
        inputs: ``uniform`` in [0, 1), ``gaussian``, or a safetensors file with q, k, v of shape
            [..., length, head_dim], whose heads are the samples.
        mode: every step rounded to `dtype`, or the formats of a fused kernel (float32 on chip).
        dtype: a name in `formats.FORMATS`.
        seeds: samples of random inputs.
        head_dim: columns of q, k, v.
        rows: queries that are computed, the first of `length`.
        order: in which blocks are read.
        accumulate: format of the running sums inside a step; fp64: each sum is rounded once.
        magnitude: factor on random inputs.

    Raises:
        InputError: ``unknown-name``, ``out-of-range``, ``missing-key`` or ``shape-mismatch`` of a file.
    """
    lengths, blocks = _several("length", length), _several("block", block)
    form = format_of(dtype)
    heads: list[tuple[FloatArray, ...]] = []
    if str(inputs) not in ("uniform", "gaussian"):
        if not Path(inputs).is_file():
            expected = "uniform, gaussian, or a safetensors file"
            raise invalid("unknown inputs", "not-found", "inputs", str(inputs), expected)
        heads = list(_heads(Path(inputs), dtype))
        longest, head_dim = heads[0][0].shape
        seeds, lengths = len(heads), [n for n in lengths if n <= longest] or [longest]
    formats = reference = emu.all_rounded(dtype, accumulate)
    if mode == "kernel":
        formats, reference = (
            emu.kernel(dtype, accumulate),
            emu.separate_operators(dtype, accumulate),
        )
    steps = [*emu.STEPS, *(["accumulate"] if format_of(accumulate).name != "fp64" else [])]
    pairs: dict[tuple[int, Any], list[_Pair]] = {}
    with progress.track("emulating", seeds * len(lengths), "samples") as bar:
        for n in lengths:
            for sample in range(seeds):
                q, k, v = (
                    (part[:n] for part in heads[sample])
                    if heads
                    else _random(sample, n, head_dim, str(inputs), dtype, magnitude)
                )
                runs: dict[Any, Any] = {"baseline": (reference, None)}
                runs |= {b: (formats, emu.blocks_of(n, b, order, sample)) for b in blocks}
                if n == lengths[0]:
                    runs |= {step: (formats.only(step), runs[blocks[0]][1]) for step in steps}
                for name, (before, stored, golden) in _outputs(q[:rows], k, v, runs).items():
                    pair = deviation(before, golden, form), deviation(stored, golden, form)
                    pairs.setdefault((n, name), []).append(pair)
                bar.advance(1)
    n, b = lengths[0], blocks[0]
    grid = [_cell(x, y, pairs[x, "baseline"], pairs[x, y], mode) for x in lengths for y in blocks]
    alone = [
        {
            "step": step,
            "format": getattr(formats, step),
            "max_abs_alone": mean(pair[1].max_abs for pair in pairs[n, step]),
        }
        for step in steps
    ]
    span = None if grid[0]["ratio"] is None else (grid[0]["ratio_low"], grid[0]["ratio_high"])
    compared = "stored" if STORED[mode] else "before-last-rounding"
    base, own = _summary(pairs[n, "baseline"], mode), _summary(pairs[n, b], mode)
    head = mode, dtype, str(inputs), seeds, min(rows, n), head_dim, compared, n, b
    return Attention(*head, base, own, grid[0]["ratio"], span, alone, grid, accumulate, order)


_Pair = tuple[Deviation, Deviation]
"""Deviations of the output before its last rounding, and as stored."""


def _outputs(q: FloatArray, k: FloatArray, v: FloatArray, runs: dict[Any, Any]) -> dict[Any, Any]:
    """The output of every run before and after its last rounding, and golden; rows in parts, for memory."""
    parts: dict[Any, list[tuple[FloatArray, FloatArray, FloatArray]]] = {name: [] for name in runs}
    for rows in emu.row_blocks(len(q), len(k)):
        exact = emu.exact_scores(q[rows], k)
        golden = emu.golden(exact, v)
        by_sums = {"fp64": exact}
        for name, (formats, blocks) in runs.items():
            if formats.accumulate not in by_sums:
                by_sums[formats.accumulate] = emu.exact_scores(q[rows], k, formats.accumulate)
            scores = by_sums[formats.accumulate]
            if blocks is None:
                parts[name].append((*emu.baseline(scores, v, formats), golden))
            else:
                parts[name].append((*emu.flash(scores, v, formats, blocks), golden))
    return {
        name: tuple(np.concatenate(each) for each in zip(*outputs, strict=True))
        for name, outputs in parts.items()
    }


def _summary(pairs: list[_Pair], mode: str) -> dict[str, Any]:
    """Means over samples of one variant, of the output that the mode compares; counts are sums."""
    measures = [asdict(pair[STORED[mode]]) for pair in pairs]
    keys = ("max_abs", "mean_abs", "frobenius", "max_ulp", "cosine")
    places = [each["first_non_finite"] for each in measures if each["non_finite"]]
    return {
        **{key: mean(each[key] for each in measures) for key in keys},
        "max_abs_before_last_rounding": mean(pair[0].max_abs for pair in pairs),
        "max_abs_stored": mean(pair[1].max_abs for pair in pairs),
        "non_finite": sum(each["non_finite"] for each in measures),
        "first_non_finite": next(iter(places), None),
    }


def _cell(n: int, block: int, base: list[_Pair], flash: list[_Pair], mode: str) -> dict[str, Any]:
    b, f = _summary(base, mode), _summary(flash, mode)
    pairs = [
        (x[STORED[mode]].max_abs or 0.0, y[STORED[mode]].max_abs or 0.0)
        for x, y in zip(base, flash, strict=True)
    ]
    wrong = b["non_finite"] + f["non_finite"]
    # A ratio over what happened to stay finite would look like an answer.
    ratios = [y / x for x, y in pairs if x] if not wrong else []
    comparable = len(ratios) == len(pairs)
    return {
        "length": n,
        "block": block,
        "baseline_max_abs": b["max_abs"],
        "flash_max_abs": f["max_abs"],
        "ratio": f["max_abs"] / b["max_abs"] if comparable else None,
        "ratio_low": min(ratios) if comparable else None,
        "ratio_high": max(ratios) if comparable else None,
        "baseline_stored": b["max_abs_stored"],
        "flash_stored": f["max_abs_stored"],
        "non_finite": wrong,
    }


def _random(
    seed: int, n: int, d: int, kind: str, dtype: str, magnitude: float
) -> tuple[FloatArray, ...]:
    """q, k, v of [n, d], rounded to the format under test: golden and variants see the same."""
    generator = np.random.default_rng(seed)
    draw = generator.random if kind == "uniform" else generator.standard_normal
    return tuple(rounded(magnitude * draw((n, d)), dtype) for _ in range(3))


def _heads(path: Path, dtype: str) -> Iterator[tuple[FloatArray, ...]]:
    """q, k, v of every head in a safetensors file, each [length, head_dim]."""
    from holdfast.profile.numerics.checkpoints import read_tensors

    tensors = read_tensors(path)
    missing = next((name for name in "qkv" if name not in tensors), None)
    if missing:
        raise invalid(
            "missing tensor", "missing-key", missing, sorted(tensors), "q, k, v", path=path
        )
    shapes = [tuple(tensors[name].shape) for name in "qkv"]
    if len(set(shapes)) > 1 or len(shapes[0]) < 2 or 0 in shapes[0]:
        expected = "one shape [..., length, head_dim]"
        raise invalid("shapes differ", "shape-mismatch", "q, k, v", shapes, expected, path=path)
    parts = [as_float64(tensors[name]).reshape(-1, *shapes[0][-2:]) for name in "qkv"]
    for head in zip(*parts, strict=True):
        yield tuple(rounded(part, dtype) for part in head)


def _several(name: str, value: int | Sequence[int]) -> list[int]:
    values = [value] if isinstance(value, int) else list(dict.fromkeys(value))
    if not values or min(values) < 1:
        raise invalid(f"invalid {name}", "out-of-range", name, values, "1 or more")
    return values
