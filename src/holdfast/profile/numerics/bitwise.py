"""Whether an operator gives the same bits in any batch, tile, run and number of threads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Value
from holdfast.errors import InputError
from holdfast.numbers import counted
from holdfast.profile.numerics.comparing import Operator, first_tensor
from holdfast.profile.numerics.deviation import deviation
from holdfast.profile.numerics.formats import as_float64, format_of
from holdfast.profile.numerics.operators import Dimensions
from holdfast.profile.numerics.summation import SummationOrder
from holdfast.report import figures

SLICES = 8
"""Slices of a size that are compared, spread over the dimension."""
_FORMATS = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
}


@dataclass(frozen=True)
class Invariance(Answer):
    """What changes the bits of an operator's result.

    Attributes:
        operator: its name.
        dtype: the format of the inputs.
        rows: implementation, condition (a dimension, run, or threads), setting (the size of the slice, the
            number of runs or of threads), equal, different (elements), elements, max_abs, max_ulp,
            first_different (index in the whole result).
        orders: implementation -> order of summation, where it was asked for.
    """

    operator: str
    dtype: str
    rows: list[dict[str, Any]]
    orders: dict[str, SummationOrder] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The heading of the page."""
        return f"Invariance of {self.operator}, {self.dtype}"

    def values(self) -> Sequence[Value]:
        """Share of elements that differ, by condition."""
        return [
            Value(
                f"different_{row['implementation']}_{row['condition']}_{row['setting']}",
                row["different"] / row["elements"],
                better="lower",
            )
            for row in self.rows
        ]

    def sections(self) -> Sequence[Section]:
        """The matrix, and the order of summation."""
        broken = [row for row in self.rows if not row["equal"]]
        sentence = f"The same bits under all {counted(len(self.rows), 'condition')}."
        if broken:
            worst = max(broken, key=lambda row: row["different"] / row["elements"])
            sentence = (
                f"{len(broken)} of {counted(len(self.rows), 'condition')} change bits; most: "
                f"{worst['implementation']}, {worst['condition']} {worst['setting']}, "
                f"{worst['different']:,} of {worst['elements']:,} elements by up to {worst['max_abs']:.2e}."
            )
        cells = [
            {
                "condition": f"{row['condition']} {row['setting']}",
                "implementation": row["implementation"],
                "share": 100 * row["different"] / row["elements"],
            }
            for row in self.rows
        ]
        columns = {
            "implementation": ColumnFormat("Implementation"),
            "condition": ColumnFormat("Condition"),
            "setting": ColumnFormat("Size"),
            "equal": ColumnFormat("Same bits"),
            "different": ColumnFormat("Different"),
            "elements": ColumnFormat("Elements"),
            "max_abs": ColumnFormat("Largest"),
            "max_ulp": ColumnFormat("Largest, ulp", digits=1, detail=True),
        }
        shown = [{**row, "equal": "yes" if row["equal"] else "no"} for row in self.rows]
        for row in shown:
            row.pop("first_different")
        table = Table(pa.Table.from_pylist(shown), columns, "One row per condition.")
        how = How(
            "f(x)[slice] and f(x[slice]), and f(x) again, compared bit by bit",
            {"slices of each size": SLICES},
            "batch invariance: He, Defeating Nondeterminism in LLM Inference, 2025",
        )
        heat = figures.heat_map(cells, "condition", "implementation", "share", "Different elements, %")
        found = [
            Section("invariance", "What changes the bits?", sentence, [heat], [table], how),
        ]
        for name, order in self.orders.items():
            found += [
                Section(f"order-{n}", f"In which order does {name} add?", part.sentence, (), part.tables, part.how)
                for n, part in enumerate(order.sections())
            ]
        return found


def invariance(
    implementations: Mapping[str, Operator],
    inputs: Sequence[torch.Tensor],
    *,
    dimensions: Dimensions | None = None,
    sizes: Sequence[int] = (1, 2, 3, 16),
    runs: int = 5,
    threads: Sequence[int] = (1, 2),
    name: str = "operator",
) -> Invariance:
    """Compare results bit by bit over slices of independent dimensions, repeated runs, and threads.

    Args:
        implementations: name -> function of the inputs that returns a tensor.
        inputs: in the format under test.
        dimensions: independent dimensions, ``{"batch": ({0: 0}, 0)}``: input 0 and the output along their
            dimension 0; by default the first dimension of all inputs.
        sizes: of slices; those as large as the dimension or larger are left out.
        runs: repetitions on the same inputs.
        threads: numbers of threads of torch.
        name: for titles.

    Raises:
        InputError: ``no-data``, or ``shape-mismatch`` where a slice gives a result of another shape.
    """
    floating = [x for x in inputs if x.is_floating_point()]
    if not implementations or not floating:
        raise InputError("nothing to compare", code="no-data", place="implementations, inputs")
    dtype = _FORMATS.get(floating[0].dtype, "fp32")
    along = dimensions or {"batch": (dict.fromkeys(range(len(inputs)), 0), 0)}
    rows = []
    with torch.no_grad():
        for label, operator in implementations.items():
            for row in _conditions(operator, inputs, along, sizes, runs, threads, dtype):
                rows.append({"implementation": label, **row})
    return Invariance(name, dtype, rows)


def _conditions(
    operator: Operator,
    inputs: Sequence[torch.Tensor],
    along: Dimensions,
    sizes: Sequence[int],
    runs: int,
    threads: Sequence[int],
    dtype: str,
) -> Iterator[dict[str, Any]]:
    """A row per condition."""
    whole = first_tensor(operator(*inputs))
    for name, (given, output) in along.items():
        length = whole.shape[output]
        for size in sizes:
            if size >= length:
                continue
            # Spread over the dimension; the last slice ends with it.
            firsts = sorted({round(n * (length - size) / (SLICES - 1)) for n in range(SLICES)})
            pairs = []
            for first in firsts:
                part = [
                    x.narrow(given[n], first, size) if n in given else x for n, x in enumerate(inputs)
                ]
                pairs.append((first_tensor(operator(*part)), whole.narrow(output, first, size)))
            yield {"condition": name, "setting": size, **_same(pairs, dtype, output, firsts)}
    again = [(first_tensor(operator(*inputs)), whole) for _ in range(runs)]
    yield {"condition": "run", "setting": runs, **_same(again, dtype, 0, [0] * runs)}
    before = torch.get_num_threads()
    try:
        for count in threads:
            torch.set_num_threads(count)
            pairs = [(first_tensor(operator(*inputs)), whole)]
            yield {"condition": "threads", "setting": count, **_same(pairs, dtype, 0, [0])}
    finally:
        torch.set_num_threads(before)


def _same(
    pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], dtype: str, dimension: int, firsts: Sequence[int]
) -> dict[str, Any]:
    """How results differ from those that they should equal."""
    different, elements, place = 0, 0, None
    largest, ulps = 0.0, 0.0
    for (part, expected), first in zip(pairs, firsts, strict=True):
        if part.shape != expected.shape:
            raise InputError(
                "a slice gives a result of another shape", code="shape-mismatch", place="dimensions",
                found=str(tuple(part.shape)), expected=str(tuple(expected.shape)),
            )  # fmt: skip
        x, y = as_float64(part), as_float64(expected)
        # Bits, not values: 0 and -0 differ, NaN equals NaN.
        changed = (x.view(np.int64) != y.view(np.int64)) & ~(np.isnan(x) & np.isnan(y))
        elements += x.size
        different += int(changed.sum())
        if changed.any():
            if place is None:
                index = [int(n) for n in np.unravel_index(int(np.argmax(changed)), changed.shape)]
                if index:
                    index[dimension] += first
                place = index
            found = deviation(x, y, format_of(dtype))
            largest, ulps = max(largest, found.max_abs or 0.0), max(ulps, found.max_ulp or 0.0)
    return {
        "equal": not different,
        "different": different,
        "elements": elements,
        "max_abs": largest,
        "max_ulp": ulps,
        "first_different": place,
    }
