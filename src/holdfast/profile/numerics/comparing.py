"""Implementations of one operator against float64, forward and gradients: which deviates more than it may.

Every implementation sees the same inputs, rounded to the format under test; the golden value is the
reference implementation in float64 on those rounded inputs. A result passes where all of these hold:

- finite: it has no NaN or infinity where the golden value has none;
- bound: its deviation is one that rounding can explain: at most `ULPS` of the largest value plus sqrt(n)
  times the largest change that inputs and parameters moved by one rounding (u, random signs) cause. The
  errors of n additions grow with sqrt(n) (Higham and Mary, SIAM J. Sci. Comput. 41, 2019); n is the largest
  dimension of an input or parameter, for more is known only to the operator;
- reference: it deviates at most twice as much as the reference in the same format (the rule of the
  flash-attention tests), or by half an ulp.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np
import torch

from holdfast import progress
from holdfast.answer import Answer, ColumnFormat, Section, Value
from holdfast.numbers import counted
from holdfast.profile.numerics.deviation import Deviation, deviation
from holdfast.profile.numerics.formats import FloatArray, Format, as_float64, format_of, spacing
from holdfast.profile.numerics.sections import colours, invalid, mean, section
from holdfast.report import figures
from holdfast.report.page import Unknown

DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
REFERENCE_FACTOR = 2.0
PERTURBATIONS = 4
ULPS = 4
"""Errors of elementary functions, in ulps."""
MEASURES = ("max_abs", "mean_abs", "frobenius", "max_ulp", "cosine")

Operator = Callable[..., Any]
Tensors = dict[str, FloatArray]


@dataclass(frozen=True)
class Comparison(Answer):
    """Deviations of implementations of one operator.

    Attributes:
        operator: its name.
        reference: the implementation whose float64 result is golden.
        seeds: number of inputs per grid point.
        rows: implementation, dtype, the grid point, tensor (output, or gradient of an input or parameter),
            max_abs (mean over seeds), max_abs_low, max_abs_high (range), mean_abs, frobenius, max_ulp,
            cosine, bound, of_reference (ratio to the reference's deviation, the median seed), reproducible
            (same bits when run again), non_finite, first_non_finite, golden_non_finite, verdict (ok, or
            what fails: non-finite, bound, reference) and failed_seeds.
    """

    operator: str
    reference: str
    seeds: int
    rows: list[dict[str, Any]]

    @property
    def title(self) -> str:
        """The heading of the page."""
        return f"Deviation of {self.operator}"

    @property
    def exit_code(self) -> int:
        """1: an implementation deviates more than it may."""
        return int(any(row["verdict"] != "ok" for row in self.rows))

    def values(self) -> Sequence[Value]:
        """Each largest deviation."""
        keys = ("implementation", "dtype", "point", "tensor")
        return [
            Value(
                " ".join(["max_abs", *(str(row[key]) for key in keys)]),
                row["max_abs"],
                better="lower",
            )
            for row in self.rows
        ]

    def unknowns(self) -> Sequence[Unknown]:
        """Values that no distance covers."""
        unknowns = []
        for row in self.rows:
            at = f"{row['implementation']} in {row['dtype']}, {row['tensor']}"
            if row["non_finite"]:
                where = f"the first at {row['first_non_finite']}"
                unknowns.append(
                    Unknown(f"{at}: {row['non_finite']:,} values are NaN or infinite, {where}.")
                )
            if row["golden_non_finite"]:
                text = f"{at}: {row['golden_non_finite']:,} golden values are NaN or infinite and left out."
                unknowns.append(Unknown(text, "choose inputs on which the operator is defined"))
            if not row["reproducible"]:
                unknowns.append(Unknown(f"{at}: other bits when run again on the same inputs."))
        return unknowns[:8]

    def sections(self) -> Sequence[Section]:
        """Every implementation, format and tensor."""
        failed = [row for row in self.rows if row["verdict"] != "ok"]
        sentence = (
            f"All {counted(len(self.rows), 'result')} deviate no more than rounding explains."
        )
        if failed:
            worst = max(failed, key=lambda row: row["of_reference"] or 0.0)
            sentence = (
                f"{len(failed)} of {counted(len(self.rows), 'result')} fail; the worst is "
                f"{worst['implementation']} in {worst['dtype']}, {worst['tensor']}: {worst['verdict']}"
            )
            ratio = worst["of_reference"]
            sentence += f", {ratio:.3g} times the reference's deviation." if ratio else "."
        rows = [
            row | row["point"] | {"label": f"{row['implementation']}, {row['dtype']}"}
            for row in self.rows
        ]
        columns = {
            "implementation": "Implementation",
            "dtype": "Format",
            **{name: name for name in self.rows[0]["point"]},
            "tensor": "Tensor",
            "max_abs": ColumnFormat("Largest deviation", interval=("max_abs_low", "max_abs_high")),
            "bound": ColumnFormat("Bound", detail=True),
            "of_reference": ColumnFormat("Of reference", digits=2),
            "max_ulp": ColumnFormat("ulp", digits=1, detail=True),
            "verdict": "Verdict",
        }
        drawn = [row for row in rows if row["tensor"] == "output" and row["max_abs"]]
        title = "Largest deviation of the output"
        chart = figures.bars(drawn, "label", "max_abs", title)
        if len({row.get("length") for row in drawn}) > 1:
            log: dict[str, Any] = {"points": True, "log_x": True, "log_y": True}
            log |= {"series": "label", "meanings": colours(row["label"] for row in drawn)}
            chart = figures.lines(drawn, "length", "max_abs", "Length", title, **log)
        formula = [
            "deviation = max |y - y64|, y64: the reference in float64 on the same rounded inputs",
            "bound = 4 ulp(y64) + sqrt(n) max |f64(x (1 +- u)) - f64(x)|, n: largest dimension",
            "reference: deviation <= 2 x the reference's in the same format, or half an ulp",
        ]
        return [
            section(
                "deviation",
                "Which deviates too much?",
                sentence,
                rows,
                columns,
                figures=[chart],
                formula=formula,
                parameters={"reference": self.reference, "seeds": self.seeds},
                source="the 'twice the error' rule: tests of Dao-AILab/flash-attention",
                caption="Brackets: range over seeds.",
            )
        ]


def compare(
    implementations: Mapping[str, Operator],
    inputs: Callable[..., Sequence[torch.Tensor]],
    *,
    dtypes: Sequence[str] = ("bf16", "fp16", "fp32"),
    grid: Sequence[Mapping[str, Any]] = ({},),
    reference: str | None = None,
    seeds: int = 5,
    gradients: bool = True,
    name: str = "operator",
) -> Comparison:
    """Compare implementations of an operator with float64, forward and gradients.

    Args:
        implementations: name -> function of the inputs that returns a tensor, or module; a module is
            converted to each format, and its parameters have gradients too.
        inputs: ``inputs(generator, **point)`` gives the inputs of a `torch.Generator`, of any format.
        dtypes: of `DTYPES`.
        grid: points, each the keywords of `inputs`.
        reference: the implementation that float64 and the rule of twice the error hold on; by default the
            first.
        seeds: inputs per point. A result fails where at least half of its seeds fail.
        gradients: compare those of a random cotangent too.
        name: for titles.

    Raises:
        InputError: ``unknown-name`` of a format or reference, ``shape-mismatch``, ``no-data``.
    """
    if not implementations or not grid or seeds < 1:
        raise invalid("nothing to compare", "no-data", "implementations, grid, seeds")
    reference = reference or next(iter(implementations))
    if reference not in implementations:
        raise invalid("unknown name", "unknown-name", "reference", reference, implementations)
    for dtype in dtypes:
        if dtype not in DTYPES:
            raise invalid("unknown format", "unknown-name", "dtypes", dtype, DTYPES)
    rows = []
    with progress.track("comparing", len(dtypes) * len(grid) * seeds, "inputs") as bar:
        for dtype in dtypes:
            for point in grid:
                by_tensor: dict[tuple[str, str], list[_Result]] = {}
                for seed in range(seeds):
                    drawn = inputs(torch.Generator().manual_seed(seed), **point)
                    sample = _Sample(drawn, dtype, seed, gradients)
                    for result in sample.results(implementations, reference):
                        by_tensor.setdefault((result.implementation, result.tensor), []).append(
                            result
                        )
                    bar.advance(1)
                rows += [_row(results, dtype, point) for results in by_tensor.values()]
    return Comparison(name, reference, seeds, rows)


@dataclass(frozen=True)
class _Result:
    """One tensor of one implementation at one seed."""

    implementation: str
    tensor: str
    deviation: Deviation
    half_ulp: float
    bound: float
    reference: Deviation
    reproducible: bool

    @property
    def verdict(self) -> str:
        own = self.deviation.max_abs
        if self.deviation.non_finite:
            return "non-finite"
        if own is None or own > self.bound:
            return "bound"
        # Half an ulp is what no implementation can avoid; below it a ratio says nothing.
        allowed = max(REFERENCE_FACTOR * (self.reference.max_abs or 0.0), self.half_ulp)
        return "reference" if own > allowed else "ok"


class _Sample:
    """The inputs of one seed, rounded to a format, and what operators make of them."""

    def __init__(
        self, inputs: Sequence[torch.Tensor], dtype: str, seed: int, gradients: bool
    ) -> None:
        self._kind, self._form = DTYPES[dtype], format_of(dtype)
        self._inputs = [_as(x, self._kind) for x in inputs]
        self._seed, self._gradients = seed, gradients

    def results(self, implementations: Mapping[str, Operator], reference: str) -> Iterator[_Result]:
        """Every tensor of every implementation."""
        golden, moved = self._golden(implementations[reference])
        operands = [*self._inputs, *_parameters(implementations[reference])]
        terms = max(max(x.shape, default=1) for x in operands)
        measured: dict[str, dict[str, Deviation]] = {}
        for name in (reference, *(each for each in implementations if each != reference)):
            operator = self._converted(implementations[name], self._kind)
            outputs, again = (self._run(operator, self._inputs) for _ in range(2))
            measured[name] = {}
            for tensor, value in outputs.items():
                exact = golden[tensor]
                if value.shape != exact.shape:
                    place = f"{name}, {tensor}"
                    raise invalid(
                        "shapes differ", "shape-mismatch", place, value.shape, exact.shape
                    )
                error = measured[name][tensor] = deviation(value, exact, self._form)
                half = _half_ulp(exact, self._form)
                bound = 2 * ULPS * half + math.sqrt(terms) * moved[tensor]
                same = np.array_equal(value, again[tensor], equal_nan=True)
                other = measured[reference][tensor]
                yield _Result(name, tensor, error, half, bound, other, same)

    def _golden(self, reference: Operator) -> tuple[Tensors, dict[str, float]]:
        """Float64 results, and how far each moves when every input moves by one rounding, up or down."""
        operator = self._converted(reference, torch.float64)
        exact = [_as(x, torch.float64) for x in self._inputs]
        golden = self._run(operator, exact)
        moved = dict.fromkeys(golden, 0.0)
        draw = torch.Generator().manual_seed(20_000)

        def near(x: torch.Tensor) -> torch.Tensor:
            factor = 1 + self._form.unit_roundoff * _signs(x, draw)
            return x * factor if x.is_floating_point() else x

        values = [each.detach().clone() for each in _parameters(operator)]
        for _ in range(PERTURBATIONS):
            with torch.no_grad():
                for parameter, value in zip(_parameters(operator), values, strict=True):
                    parameter.copy_(near(value))
            for tensor, value in self._run(operator, [near(x) for x in exact]).items():
                change = np.abs(value - golden[tensor])
                moved[tensor] = max(
                    moved[tensor], float(change[np.isfinite(change)].max(initial=0.0))
                )
        return golden, moved

    def _converted(self, operator: Operator, kind: torch.dtype) -> Operator:
        """An operator in a format; a module's parameters are first rounded to the format under test."""
        if isinstance(operator, torch.nn.Module):
            return copy.deepcopy(operator).to(self._kind).to(kind)
        return operator

    def _run(self, operator: Operator, inputs: Sequence[torch.Tensor]) -> Tensors:
        """The output, and the gradients of inputs and parameters."""
        leaves = [
            x.detach().clone().requires_grad_(self._gradients and x.is_floating_point())
            for x in inputs
        ]
        with torch.set_grad_enabled(self._gradients):
            output = first_tensor(operator(*leaves))
        tensors = {"output": as_float64(output)}
        named = {f"gradient {n}": x for n, x in enumerate(leaves, 1) if x.requires_grad}
        if isinstance(operator, torch.nn.Module):
            named |= {f"gradient {n}": p for n, p in operator.named_parameters() if p.requires_grad}
        if self._gradients and output.requires_grad and named:
            # Signs are exact in every format: golden gradients see the same cotangent.
            signs = _signs(output, torch.Generator().manual_seed(10_000 + self._seed)).to(output)
            grads = torch.autograd.grad(output, list(named.values()), signs, allow_unused=True)
            pairs = zip(named, grads, strict=True)
            tensors |= {name: as_float64(grad) for name, grad in pairs if grad is not None}
        return tensors


def first_tensor(output: Any) -> torch.Tensor:
    """The tensor of an output that may be a tuple or a dictionary of several.

    Raises:
        InputError: ``unsupported``.
    """
    if isinstance(output, Mapping):
        output = tuple(output.values())
    if isinstance(output, (tuple, list)):
        output = output[0] if output else None
    if not isinstance(output, torch.Tensor):
        kind = type(output).__name__
        raise invalid("the operator returns no tensor", "unsupported", "output", kind, "a tensor")
    return output


def _as(x: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """A tensor in a format; indices stay what they are."""
    return x.to(kind) if x.is_floating_point() else x


def _parameters(operator: Operator) -> list[torch.Tensor]:
    return list(operator.parameters()) if isinstance(operator, torch.nn.Module) else []


def _signs(x: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
    return torch.randint(0, 2, x.shape, generator=draw) * 2 - 1


def _half_ulp(golden: FloatArray, form: Format) -> float:
    """Half an ulp of the largest value."""
    largest = np.abs(golden[np.isfinite(golden)]).max(initial=0.0)
    return float(spacing(largest, form)) / 2


def _row(results: Sequence[_Result], dtype: str, point: Mapping[str, Any]) -> dict[str, Any]:
    """One row over seeds; it fails where at least half of the seeds fail, by the most frequent reason."""
    measures = [asdict(each.deviation) for each in results]
    largest = [each["max_abs"] for each in measures if each["max_abs"] is not None]
    ratios = [
        each.deviation.max_abs / each.reference.max_abs
        for each in results
        if each.deviation.max_abs is not None and each.reference.max_abs
    ]
    verdicts = [each.verdict for each in results]
    failed = [verdict for verdict in verdicts if verdict != "ok"]
    verdict = max(failed, key=failed.count) if 2 * len(failed) >= len(results) and failed else "ok"
    places = [each["first_non_finite"] for each in measures if each["non_finite"]]
    return {
        "implementation": results[0].implementation,
        "dtype": dtype,
        "point": dict(point),
        "tensor": results[0].tensor,
        **{key: mean(each[key] for each in measures) for key in MEASURES},
        "max_abs_low": min(largest, default=None),
        "max_abs_high": max(largest, default=None),
        "bound": mean(each.bound for each in results),
        "of_reference": median(ratios) if ratios else None,
        "reproducible": all(each.reproducible for each in results),
        "non_finite": sum(each["non_finite"] for each in measures),
        "first_non_finite": next(iter(places), None),
        "golden_non_finite": sum(each["golden_non_finite"] for each in measures),
        "verdict": "non-finite" if places else verdict,
        "failed_seeds": len(failed),
    }
