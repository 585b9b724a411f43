"""Deviation of flash attention and of its baseline from float64, by length, block and rounding step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np

from holdfast import progress
from holdfast.answer import Answer, ColumnFormat, Section, Unknown, Value
from holdfast.command import Integers, Positive
from holdfast.profile.numerics import emulator as emu
from holdfast.profile.numerics.deviation import Deviation, Row, deviation, digits, mean, summary
from holdfast.profile.numerics.formats import FloatArray, format_of, rounded
from holdfast.profile.ops.sections import log_lines, section
from holdfast.profile.ops.targets import choice, refused
from holdfast.report import figures

# Scores in memory at once.
SCORES = 1 << 23
# Whether the headline is of the stored output. With every step rounded, both variants end in the same
# rounding of the output, which hides the difference between them; of a kernel, users get what it
# stores.
STORED = {"all-rounded": False, "kernel": True}


@dataclass(frozen=True)
class Attention(Answer):
    """Deviation of attention from float64 on the same rounded inputs.

    Attributes:
        mode: all-rounded or kernel.
        dtype: the format under test.
        data: what q, k and v were: uniform or gaussian.
        samples: seeds.
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
    baseline: Row
    flash: Row
    ratio: float | None
    ratio_range: tuple[float, float] | None
    steps: list[Row]
    grid: list[Row]

    title = "Numeric deviation of attention"

    def inputs(self) -> Sequence[tuple[str, str]]:
        """What was multiplied, and how."""
        sizes = f"{self.rows:,} queries, head dimension {self.head_dim}, {self.samples} samples"
        return [("q, k, v", f"{self.data}, {sizes}"), ("format", f"{self.dtype}, {self.mode}")]

    def values(self) -> Sequence[Value]:
        """Both deviations and their ratio at every grid point."""
        return [
            Value(f"{key}_length_{row['length']}_block_{row['block']}", row[key], better="lower")
            for row in self.grid
            for key in ("ratio", "flash_max_abs", "baseline_max_abs")
        ]

    def unknowns(self) -> Sequence[Unknown]:
        """NaN and infinities, which no distance covers."""
        remedy = "scale the inputs, or use a format with a larger range"
        return [
            Unknown(
                f"{part['non_finite']:,} outputs of {name} are NaN or infinite, the first at "
                f"[row, column] {list(part['first_non_finite'])}: max_abs covers the others only.",
                remedy,
            )
            for name, part in (("baseline", self.baseline), ("flash", self.flash))
            if part["non_finite"]
        ]

    def sections(self) -> Sequence[Section]:
        """The deviation over the grid, and each step's share."""
        base, own = digits(self.baseline["max_abs"]), digits(self.flash["max_abs"])
        at = f"{own} against {base} at length {self.length:,}, block {self.block:,}"
        sentence = f"Flash deviates by {at}; no ratio is defined."
        if self.ratio is not None and self.ratio_range is not None:
            span = "{:.2f} times as much as the baseline [{:.2f}, {:.2f}]"
            sentence = f"Flash deviates {span.format(self.ratio, *self.ratio_range)}: {at}."
        points = {(row["length"], "baseline"): row["baseline_max_abs"] for row in self.grid}
        for row in self.grid:
            points[row["length"], f"flash, block {row['block']}"] = row["flash_max_abs"]
        drawn = [{"length": n, "variant": name, "y": y} for (n, name), y in points.items()]
        deviations = section(
            "deviation",
            "Does flash attention deviate more?",
            sentence,
            self.grid,
            "length block baseline_max_abs flash_max_abs ratio",
            log_lines(drawn, "length", "y", "Keys", "Largest deviation", "variant"),
            forms={"ratio": ColumnFormat("Ratio", digits=2, interval=("ratio_low", "ratio_high"))},
            formula=(
                "deviation = max |y - y64|, y64 in float64 on the same rounded inputs",
                "ratio = mean over samples of flash / mean over samples of baseline",
            ),
            parameters={"compared output": self.compared},
            source="Golden et al., Is Flash Attention Stable?, arXiv 2405.02803",
        )
        ranked = sorted(self.steps, key=lambda row: -(row["max_abs_alone"] or 0.0))
        steps = section(
            "steps",
            "Which rounding step causes it?",
            f"The step that deviates most alone is {ranked[0]['step']} in {ranked[0]['format']}: "
            f"{digits(ranked[0]['max_abs_alone'])} in the stored output.",
            self.steps,
            "step format max_abs_alone",
            [figures.bars(ranked, "step", "max_abs_alone", "Largest deviation alone")],
        )
        return [deviations, steps]


def attention(
    length: Annotated[int | Sequence[int], Integers] = 4096,
    block: Annotated[int | Sequence[int], Integers] = 64,
    *,
    inputs: Literal["uniform", "gaussian"] = "uniform",
    mode: Literal["all-rounded", "kernel"] = "all-rounded",
    dtype: str = "bf16",
    seeds: Positive = 5,
    head_dim: Positive = 64,
    rows: Positive = 1024,
) -> Attention:
    """Measure how far emulated attention deviates from float64, and which rounding step causes it.

    Args:
        length: Keys; several lengths make a grid, of which the first is the headline.
        block: Keys per block of flash attention; several as for length. One of the whole length is the
            baseline bit for bit.
        inputs: uniform in [0, 1), or gaussian.
        mode: Round every step, or only what a fused kernel stores (float32 on chip).
        dtype: fp64, fp32, tf32, bf16, fp16, fp8_e4m3 or fp8_e5m2.
        seeds: Number of random inputs.
        head_dim: Columns of q, k and v.
        rows: Queries that are computed, the first of length.

    Raises:
        InputError: ``unknown-name``, ``out-of-range``.
    """
    lengths, blocks = _several("length", length), _several("block", block)
    form = format_of(dtype)
    choice(inputs, ("uniform", "gaussian"), "inputs")
    choice(mode, STORED, "mode")
    formats = reference = emu.all_rounded(dtype)
    if mode == "kernel":
        formats, reference = emu.kernel(dtype), emu.separate_operators(dtype)
    pairs: dict[tuple[int, Any], list[_Pair]] = {}
    with progress.track("emulating", seeds * len(lengths), "samples") as bar:
        for n in lengths:
            runs: dict[Any, _Run] = {"baseline": partial(emu.baseline, formats=reference)}
            runs |= {b: partial(emu.flash, formats=formats, block=b) for b in blocks}
            if n == lengths[0]:
                flash = partial(emu.flash, block=blocks[0])
                runs |= {step: partial(flash, formats=formats.only(step)) for step in emu.STEPS}
            for seed in range(seeds):
                generator = np.random.default_rng(seed)
                draw = generator.random if inputs == "uniform" else generator.standard_normal
                # Rounded to the format under test: golden and variants see the same.
                q, k, v = (rounded(draw((n, head_dim)), dtype) for _ in range(3))
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
        for step in emu.STEPS
    ]
    span = None if grid[0]["ratio"] is None else (grid[0]["ratio_low"], grid[0]["ratio_high"])
    compared = "stored" if STORED[mode] else "before-last-rounding"
    base, own = _summary(pairs[n, "baseline"], mode), _summary(pairs[n, b], mode)
    head = mode, dtype, inputs, seeds, min(rows, n), head_dim, compared, n, b
    return Attention(*head, base, own, grid[0]["ratio"], span, alone, grid)


# Deviations of the output before its last rounding, and as stored.
_Pair = tuple[Deviation, Deviation]
# Scores and v -> output.
_Run = Callable[[FloatArray, FloatArray], emu.Outputs]


def _outputs(
    q: FloatArray, k: FloatArray, v: FloatArray, runs: dict[Any, _Run]
) -> dict[Any, list[FloatArray]]:
    """The output of every run before and after its last rounding, and golden; rows in parts."""
    parts: dict[Any, list[tuple[FloatArray, ...]]] = {name: [] for name in runs}
    step = max(1, SCORES // len(k))
    for first in range(0, len(q), step):
        scores = emu.exact_scores(q[first : first + step], k)
        golden = emu.golden(scores, v)
        for name, run in runs.items():
            parts[name].append((*run(scores, v), golden))
    return {name: [*map(np.concatenate, zip(*each, strict=True))] for name, each in parts.items()}


def _summary(pairs: list[_Pair], mode: str) -> Row:
    """Means over samples of one variant, of the output that the mode compares; counts are sums."""
    return {
        **summary([pair[STORED[mode]] for pair in pairs]),
        "max_abs_before_last_rounding": mean(pair[0].max_abs for pair in pairs),
        "max_abs_stored": mean(pair[1].max_abs for pair in pairs),
    }


def _cell(n: int, block: int, base: list[_Pair], flash: list[_Pair], mode: str) -> Row:
    b, f = _summary(base, mode), _summary(flash, mode)
    wrong = b["non_finite"] + f["non_finite"]
    sizes = [[pair[STORED[mode]].max_abs or 0.0 for pair in pairs] for pairs in (base, flash)]
    # A ratio over what happened to stay finite would look like an answer.
    ratios = [] if wrong or not all(sizes[0]) else [y / x for x, y in zip(*sizes, strict=True)]
    return {
        "length": n,
        "block": block,
        "baseline_max_abs": b["max_abs"],
        "flash_max_abs": f["max_abs"],
        "ratio": f["max_abs"] / b["max_abs"] if ratios else None,
        "ratio_low": min(ratios, default=None),
        "ratio_high": max(ratios, default=None),
        "non_finite": wrong,
    }


def _several(name: str, value: int | Sequence[int]) -> list[int]:
    values = [value] if isinstance(value, int) else list(dict.fromkeys(value))
    if not values or min(values) < 1:
        raise refused(f"invalid {name}", "out-of-range", name, values, "1 or more")
    return values
