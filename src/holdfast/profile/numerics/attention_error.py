"""Deviation of flash attention and of its baseline from float64, by length, block and rounding step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from holdfast import progress
from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Value
from holdfast.errors import InputError
from holdfast.numbers import brief
from holdfast.profile.numerics import emulator as emu
from holdfast.profile.numerics.deviation import Deviation, deviation
from holdfast.profile.numerics.formats import FloatArray, as_float64, format_of, rounded
from holdfast.report import figures
from holdfast.report.page import Finding, Unknown

SOURCE = "Golden et al., Is Flash Attention Stable?, arXiv 2405.02803"
COMPARED = {"all-rounded": "before-last-rounding", "kernel": "stored"}
"""Which output the headline figures are of. With every step rounded, both variants end in the same rounding
of the output, which hides the difference between them; of a kernel, users get what it stores."""


@dataclass(frozen=True)
class Attention(Answer):
    """Deviation of attention from float64 on the same rounded inputs.

    Attributes:
        mode: all-rounded or kernel.
        dtype: the format under test.
        data: what q, k and v were: uniform, gaussian, or a file.
        samples: seeds, or heads of a file.
        compared: which output `max_abs` is of: ``before-last-rounding`` or ``stored``.
        length, block: keys, and keys per block, of the first grid point.
        baseline: max_abs (mean over samples) and further measures of attention over whole rows: with the
            same formats in mode all-rounded, as separate operators in mode kernel.
        flash: the same of attention over blocks.
        ratio: max_abs of flash over that of the baseline; None where one is not finite or zero.
        ratio_range: smallest and largest ratio of a sample.
        steps: flash with one step alone in its format, all others float64: max_abs_alone.
        grid: every length and block: ratio and both deviations.
        accumulate, order: as of `attention`.
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
        made = []
        for row in self.grid:
            at = f"length_{row['length']}_block_{row['block']}"
            made.append(Value(f"ratio_{at}", row["ratio"], better="lower"))
            made.append(Value(f"flash_max_abs_{at}", row["flash_max_abs"], better="lower"))
            made.append(Value(f"baseline_max_abs_{at}", row["baseline_max_abs"], better="lower"))
        return made

    def unknowns(self) -> Sequence[Unknown]:
        """NaN and infinities, which no distance covers."""
        found = []
        for name, part in (("baseline", self.baseline), ("flash", self.flash)):
            if part["non_finite"]:
                found.append(
                    Unknown(
                        f"{part['non_finite']:,} outputs of {name} are NaN or infinite, the first at "
                        f"[row, column] {part['first_non_finite']}: its max_abs covers the others only.",
                        "scale the inputs, or use a format with a larger range",
                    )
                )
        return found

    def sections(self) -> Sequence[Section]:
        """The deviation over the grid, and each step's share."""
        return [self._grid_section(), self._steps_section()]

    def _grid_section(self) -> Section:
        if self.ratio is None:
            sentence = "The ratio of flash to baseline is not defined: see what could not be determined."
            if self.baseline["max_abs"] == 0 and not self.flash["non_finite"]:
                sentence = (
                    f"The baseline is exact in {self.dtype}; flash deviates by "
                    f"{brief(self.flash['max_abs'])}."
                )
        else:
            low, high = self.ratio_range or (self.ratio, self.ratio)
            sentence = (
                f"Flash deviates {self.ratio:.2f} times as much as the baseline [{low:.2f}, {high:.2f}]: "
                f"{_power(self.flash['max_abs'])} against {_power(self.baseline['max_abs'])} at length "
                f"{self.length:,}, block {self.block:,}."
            )
        points = [
            {"length": row["length"], "variant": f"flash, block {row['block']}", "max_abs": value}
            for row in self.grid
            if (value := row["flash_max_abs"])
        ]
        seen = {row["length"]: row["baseline_max_abs"] for row in self.grid}
        points += [
            {"length": length, "variant": "baseline", "max_abs": value}
            for length, value in seen.items()
            if value
        ]
        title = "Largest absolute deviation"
        blocks = [
            {"block": row["block"], "length": f"length {row['length']}", "ratio": row["ratio"]}
            for row in sorted(self.grid, key=lambda row: row["block"])
            if row["ratio"]
        ]
        charts = []
        if points:
            charts.append(
                figures.lines(
                    points, "length", "max_abs", "Keys", title, series="variant",
                    points=True, log_x=True, log_y=True,
                )
            )  # fmt: skip
        if len({row["block"] for row in blocks}) > 1:
            charts.append(
                figures.lines(
                    blocks, "block", "ratio", "Keys per block", "Flash / baseline",
                    series="length", points=True, log_x=True, log_y=True, reference=1.0,
                )
            )  # fmt: skip
        columns = {
            "length": ColumnFormat("Keys"),
            "block": ColumnFormat("Block"),
            "baseline_max_abs": ColumnFormat("Baseline, largest deviation"),
            "flash_max_abs": ColumnFormat("Flash"),
            "ratio": ColumnFormat("Ratio", digits=2, interval=("ratio_low", "ratio_high")),
            "baseline_stored": ColumnFormat("Baseline, as stored", detail=True),
            "flash_stored": ColumnFormat("Flash, as stored", detail=True),
            "non_finite": ColumnFormat("NaN, inf", detail=True),
        }
        table = Table(pa.Table.from_pylist(self.grid), columns, "Brackets: range over samples.")
        unfused = "P / l is stored before PV" if self.mode == "kernel" else "O / l at the end"
        how = How(
            ["deviation = max |y - y64|, y64 in float64 on the same rounded inputs",
             "ratio = mean over samples of flash / mean over samples of baseline"],
            {
                "compared": self.compared,
                "sums inside a step": self.accumulate,
                "order of blocks": self.order,
                "baseline": unfused,
            },
            SOURCE,
            "Emulated: each step's result is rounded to its format, to nearest even.",
        )  # fmt: skip
        return Section("deviation", "Does flash attention deviate more?", sentence, charts, [table], how)

    def _steps_section(self) -> Section:
        worst = max(self.steps, key=lambda row: row["max_abs_alone"] or 0.0)
        sentence = (
            f"The step that deviates most alone is {worst['step'].replace('_', ' ')} in {worst['format']}: "
            f"{_power(worst['max_abs_alone'])} in the stored output."
        )
        columns = {
            "step": ColumnFormat("Step"),
            "format": ColumnFormat("Format"),
            "max_abs_alone": ColumnFormat("Largest deviation alone"),
            "non_finite": ColumnFormat("NaN, inf", detail=True),
        }
        table = Table(pa.Table.from_pylist(self.steps), columns, "In the order of the computation.")
        ranked = sorted(self.steps, key=lambda row: -(row["max_abs_alone"] or 0.0))
        chart = figures.bars(ranked, "step", "max_abs_alone", "Largest deviation of the output")
        how = How("one step in its format, every other step in float64", source=SOURCE)
        return Section(
            "steps", "Which rounding step causes it?", sentence, [chart], [table], how
        )


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
        InputError: ``unknown-name``, ``out-of-range``, or as the file's reading raises.
    """
    lengths, blocks = _several("length", length), _several("block", block)
    format_of(dtype), format_of(accumulate)
    heads = None
    if str(inputs) not in ("uniform", "gaussian"):
        heads = list(_heads(Path(inputs), dtype))
        whole, head_dim, seeds = len(heads[0][1]), heads[0][0].shape[1], len(heads)
        lengths = [each for each in lengths if each <= whole] or [whole]
    given = emu.all_rounded(dtype, accumulate)
    reference = given
    if mode == "kernel":
        given, reference = emu.kernel(dtype, accumulate), emu.separate_operators(dtype, accumulate)
    grid, steps, first = [], [], None
    with progress.track("emulating", seeds * len(lengths) * (len(blocks) + 1), "runs") as bar:
        for n in lengths:
            cells: dict[Any, list[_Pair]] = {}
            for sample in range(seeds):
                if heads is None:
                    q, k, v = _random(sample, n, head_dim, str(inputs), dtype, magnitude)
                else:
                    q, k, v = (part[:n] for part in heads[sample])
                runs: dict[Any, Any] = {b: (given, emu.blocks_of(n, b, order, sample)) for b in blocks}
                runs["baseline"] = reference, None
                if n == lengths[0]:
                    keys = emu.blocks_of(n, blocks[0], order, sample)
                    runs |= {step: (given.only(step), keys) for step in _rounding(given)}
                for name, pair in _measure(q[:rows], k, v, runs, accumulate, dtype).items():
                    cells.setdefault(name, []).append(pair)
                bar.advance(len(blocks) + 1)
            for b in blocks:
                grid.append(_cell(n, b, cells["baseline"], cells[b], mode))
            if first is None:
                first = _summary(cells["baseline"], mode), _summary(cells[blocks[0]], mode)
                steps = [
                    {
                        "step": step,
                        "format": getattr(given, step),
                        "max_abs_alone": _mean([pair[1].max_abs for pair in cells[step]]),
                        "non_finite": sum(pair[1].non_finite for pair in cells[step]),
                    }
                    for step in _rounding(given)
                ]
    assert first is not None
    head = grid[0]
    span = None if head["ratio"] is None else (head["ratio_low"], head["ratio_high"])
    return Attention(
        mode, dtype, str(inputs), seeds, min(rows, lengths[0]), head_dim, COMPARED[mode], lengths[0],
        blocks[0], *first, head["ratio"], span, steps, grid, accumulate, order,
    )  # fmt: skip


_Pair = tuple[Deviation, Deviation]
"""Of the output before its last rounding, and as stored."""


def _measure(
    q: FloatArray,
    k: FloatArray,
    v: FloatArray,
    runs: dict[Any, tuple[emu.Arithmetic, list[slice] | None]],
    accumulate: str,
    dtype: str,
) -> dict[Any, _Pair]:
    """Deviations of every run from the golden output; rows are done in parts, to bound memory."""
    outputs: dict[Any, list[Any]] = {name: [] for name in runs}
    golden = []
    for part in emu.row_blocks(len(q), len(k)):
        exact = emu.exact_scores(q[part], k)
        golden.append(emu.golden(exact, v))
        summed = exact if accumulate == "fp64" else emu.exact_scores(q[part], k, accumulate)
        for name, (given, blocks) in runs.items():
            scores = exact if given.accumulate == "fp64" else summed
            run = emu.baseline(scores, v, given) if blocks is None else emu.flash(scores, v, given, blocks)
            outputs[name].append(run)
    g = np.concatenate(golden)
    made = {}
    for name, parts in outputs.items():
        before, stored = (np.concatenate(each) for each in zip(*parts, strict=True))
        form = format_of(dtype)
        made[name] = deviation(before, g, form), deviation(stored, g, form)
    return made


def _rounding(given: emu.Arithmetic) -> list[str]:
    """The steps whose rounding is attributed; sums too, where they are not float64."""
    return [*emu.STEPS, *(["accumulate"] if given.accumulate != "fp64" else [])]


def _summary(pairs: list[_Pair], mode: str) -> dict[str, Any]:
    """Means over samples of one variant; the headline is of the output that the mode compares."""
    chosen = [pair[COMPARED[mode] == "stored"] for pair in pairs]
    wrong = next((each for each in chosen if each.non_finite), None)
    return {
        "max_abs": _mean([each.max_abs for each in chosen]),
        "max_abs_before_last_rounding": _mean([pair[0].max_abs for pair in pairs]),
        "max_abs_stored": _mean([pair[1].max_abs for pair in pairs]),
        "mean_abs": _mean([each.mean_abs for each in chosen]),
        "frobenius": _mean([each.frobenius for each in chosen]),
        "max_ulp": _mean([each.max_ulp for each in chosen]),
        "cosine": _mean([each.cosine for each in chosen]),
        "non_finite": sum(each.non_finite for each in chosen),
        "first_non_finite": wrong.first_non_finite if wrong else None,
    }


def _cell(n: int, block: int, base: list[_Pair], flash: list[_Pair], mode: str) -> dict[str, Any]:
    stored = COMPARED[mode] == "stored"
    b, f = _summary(base, mode), _summary(flash, mode)
    made = {
        "length": n,
        "block": block,
        "baseline_max_abs": b["max_abs"],
        "flash_max_abs": f["max_abs"],
        "ratio": None,
        "ratio_low": None,
        "ratio_high": None,
        "baseline_stored": b["max_abs_stored"],
        "flash_stored": f["max_abs_stored"],
        "non_finite": b["non_finite"] + f["non_finite"],
    }
    # A ratio over what happened to stay finite would look like an answer.
    pairs = [(x[stored].max_abs, y[stored].max_abs) for x, y in zip(base, flash, strict=True)]
    if made["non_finite"] or not all(x for x, _ in pairs):
        return made
    ratios = [y / x for x, y in pairs if x and y is not None]
    made |= {"ratio": f["max_abs"] / b["max_abs"], "ratio_low": min(ratios), "ratio_high": max(ratios)}
    return made


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


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
    for name in "qkv":
        if name not in tensors:
            raise InputError(
                "missing tensor", code="missing-key", path=path, place=name,
                found=", ".join(sorted(tensors)) or "no tensors", expected="tensors q, k and v",
            )  # fmt: skip
    shapes = {name: tuple(tensors[name].shape) for name in "qkv"}
    if len(set(shapes.values())) > 1 or len(shapes["q"]) < 2 or 0 in shapes["q"]:
        raise InputError(
            "shapes differ", code="shape-mismatch", path=path, place="q, k, v", found=str(shapes),
            expected="one shape [..., length, head_dim]",
        )  # fmt: skip
    parts = [as_float64(tensors[name]).reshape(-1, *shapes["q"][-2:]) for name in "qkv"]
    for head in zip(*parts, strict=True):
        yield tuple(rounded(part, dtype) for part in head)


def _several(name: str, given: int | Sequence[int]) -> list[int]:
    values = [given] if isinstance(given, int) else list(dict.fromkeys(given))
    if not values or min(values) < 1:
        raise InputError(
            f"invalid {name}", code="out-of-range", place=name, found=str(given), expected="1 or more"
        )
    return values


def _power(value: float | None) -> str:
    return "nothing finite" if value is None else f"{value:.2e}" if value else "0"
