"""Whether an operator gives the same bits in any batch, tile and run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.answer import Answer, Section, Value
from holdfast.numbers import counted
from holdfast.profile.numerics.comparing import DTYPES, Operator, first_tensor
from holdfast.profile.numerics.deviation import Row, deviation, digits
from holdfast.profile.numerics.formats import as_float64, format_of
from holdfast.profile.numerics.summation import SummationOrder, orders_section
from holdfast.profile.ops.sections import section
from holdfast.profile.ops.targets import refused

# Slices of a size that are compared, spread over the dimension.
SLICES = 8
# Name -> (input -> its dimension, dimension of the output): along it an operator computes each slice
# independently, so that slices of the inputs give slices of the output.
Dimensions = Mapping[str, tuple[Mapping[int, int], int]]
# A result, what it should equal, and where that begins in the whole.
_Pair = tuple[Tensor, Tensor, int]


@dataclass(frozen=True)
class Invariance(Answer):
    """What changes the bits of an operator's result.

    Attributes:
        operator: its name.
        dtype: the format of the inputs.
        rows: implementation, condition (a dimension, or run), setting (the size of the slice, or the number
            of runs), equal, different (elements), elements, share (of elements that differ), max_abs,
            max_ulp, first_different (index in the whole result).
        orders: implementation -> order of summation, where it was asked for.
    """

    operator: str
    dtype: str
    rows: list[Row]
    orders: dict[str, SummationOrder] = field(default_factory=dict)

    title = "Bitwise invariance of an operator"

    def values(self) -> Sequence[Value]:
        """Share of elements that differ, by condition."""
        return [
            Value(f"different {row['implementation']} {_label(row)}", row["share"], better="lower")
            for row in self.rows
        ]

    def sections(self) -> Sequence[Section]:
        """The matrix, and the order of summation."""
        most = max(self.rows, key=lambda row: row["share"])
        conditions = counted(len(self.rows), "condition")
        sentence = f"The same bits under all {conditions}."
        if most["different"]:
            broken = sum(not row["equal"] for row in self.rows)
            sentence = (
                f"{broken} of {conditions} change bits; most: "
                f"{most['implementation']}, {_label(most)}: {most['different']:,} of "
                f"{most['elements']:,} elements by up to {digits(most['max_abs'])}."
            )
        matrix = section(
            "invariance",
            "What changes the bits?",
            sentence,
            self.rows,
            "implementation condition setting share max_ulp",
            formula="f(x)[slice] and f(x[slice]), and f(x) again, compared bit by bit",
            source="batch invariance: He, Defeating Nondeterminism in LLM Inference, 2025",
        )
        return [matrix, *([orders_section(self.orders)] if self.orders else [])]


def _label(row: Mapping[str, Any]) -> str:
    return "{condition} {setting}".format_map(row)


def invariance(
    implementations: Mapping[str, Operator],
    inputs: Sequence[Tensor],
    *,
    dimensions: Dimensions | None = None,
    sizes: Sequence[int] = (1, 2, 3, 16),
    runs: int = 5,
    name: str = "operator",
) -> Invariance:
    """Compare results bit by bit over slices of independent dimensions, and over repeated runs.

    Args:
        implementations: name -> function of the inputs that returns a tensor.
        inputs: in the format under test.
        dimensions: independent dimensions, ``{"batch": ({0: 0}, 0)}``: input 0 and the output along their
            dimension 0; by default the first dimension of all inputs.
        sizes: of slices; those as large as the dimension or larger are left out, but not all;
                none: repeated runs alone.
        runs: repetitions on the same inputs.
        name: for titles.

    Raises:
        InputError: ``no-data``, or ``shape-mismatch`` where a slice gives a result of another shape.
    """
    formats = [n for x in inputs for n, kind in DTYPES.items() if x.dtype == kind]
    if not implementations or not formats:
        raise refused("nothing to compare", "no-data", "implementations, inputs")
    along = dimensions or {"batch": (dict.fromkeys(range(len(inputs)), 0), 0)}
    rows = []
    with torch.no_grad():
        for label, operator in implementations.items():
            compared = _conditions(operator, inputs, along, sizes, runs)
            for condition, setting, dimension, pairs in compared:
                of = {"implementation": label, "condition": condition, "setting": setting}
                rows.append(of | _same(pairs, formats[0], dimension))
    return Invariance(name, formats[0], rows)


def _conditions(
    operator: Operator, inputs: Sequence[Tensor], along: Dimensions, sizes: Sequence[int], runs: int
) -> Iterator[tuple[str, int, int, list[_Pair]]]:
    """(condition, setting, dimension of the output, results that should be equal)."""

    def result(given: Sequence[Tensor] = inputs) -> Tensor:
        return first_tensor(operator(*given))

    whole = result()
    for name, (of_input, dimension) in along.items():
        length = whole.shape[dimension] if dimension < whole.ndim else 0
        lengths = {inputs[n].shape[axis] for n, axis in of_input.items()}
        if lengths != {length}:
            raise refused("lengths differ", "shape-mismatch", f"dimension {name}", lengths, length)
        smaller = [size for size in sizes if size < length]
        if sizes and not smaller:  # equal runs alone say nothing of the dimension
            raise refused(
                "no slice to compare", "no-data", f"dimension {name}", sizes, f"< {length}"
            )
        for size in smaller:
            pairs = []
            # Spread over the dimension; the last slice ends with it.
            for first in sorted({round(n * (length - size) / (SLICES - 1)) for n in range(SLICES)}):
                part = [
                    x.narrow(of_input[n], first, size) if n in of_input else x
                    for n, x in enumerate(inputs)
                ]
                pairs.append((result(part), whole.narrow(dimension, first, size), first))
            yield name, size, dimension, pairs
    yield "run", runs, 0, [(result(), whole, 0) for _ in range(runs)]


def _same(pairs: Sequence[_Pair], dtype: str, dimension: int) -> Row:
    """How results differ from those that they should equal."""
    for part, expected, _ in pairs:
        if part.shape != expected.shape:
            raise refused(
                "a slice gives a result of another shape",
                "shape-mismatch",
                "dimensions",
                part.shape,
                expected.shape,
            )
    x, y = (np.stack([as_float64(pair[n]) for pair in pairs]) for n in (0, 1))
    # Bits, not values: 0 and -0 differ, NaN equals NaN.
    changed = (x.view(np.int64) != y.view(np.int64)) & ~(np.isnan(x) & np.isnan(y))
    place = None
    different = int(changed.sum())
    if different:
        pair, *place = np.argwhere(changed)[0].tolist()
        place[dimension] += pairs[pair][2]
    apart = deviation(x, y, format_of(dtype))
    return {
        "equal": not different,
        "different": different,
        "elements": x.size,
        "share": different / (x.size or 1),
        "max_abs": apart.max_abs or 0.0,
        "max_ulp": apart.max_ulp or 0.0,
        "first_different": place,
    }
