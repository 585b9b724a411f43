"""Implementations of one operator against float64, forward and gradients: which deviates more than it may.

Every implementation sees the same inputs, rounded to the format under test; the golden value is the
reference implementation in float64 on those rounded inputs. A result passes where all of these hold:

- finite: it has no NaN or infinity where the golden value has none;
- reference: it deviates at most twice as much as the reference in the same format (the rule of the
  flash-attention tests), or by half an ulp of the largest value.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast import progress
from holdfast.answer import Answer, ColumnFormat, Section, Unknown, Value
from holdfast.numbers import counted
from holdfast.profile.numerics.deviation import Deviation, Row, deviation, digits, summary
from holdfast.profile.numerics.formats import FloatArray, as_float64, format_of, spacing
from holdfast.profile.ops.formulas import tensors
from holdfast.profile.ops.sections import section
from holdfast.profile.ops.targets import choice, refused

DTYPES = dict(fp64=torch.float64, fp32=torch.float32, bf16=torch.bfloat16, fp16=torch.float16)  # noqa: C408
REFERENCE_FACTOR = 2.0

Operator = Callable[..., Any]
Tensors = dict[str, FloatArray]
# Of one seed: the deviation, its ratio to the reference's, and whether it is small enough.
_Result = tuple[Deviation, float | None, bool]


@dataclass(frozen=True)
class Comparison(Answer):
    """Deviations of implementations of one operator.

    Attributes:
        operator: its name.
        reference: the implementation whose float64 result is golden.
        seeds: number of inputs per grid point.
        rows: implementation, dtype, the grid point, tensor (output, or gradient of an input or parameter),
            max_abs (mean over seeds), max_abs_low, max_abs_high (range), mean_abs, frobenius, max_ulp,
            cosine, of_reference (ratio to the reference's deviation, the median seed), non_finite,
            first_non_finite, golden_non_finite, verdict (ok, or what fails: non-finite, reference) and
            failed_seeds.
        unmatched: tensors that not every implementation has, such as gradients of other parameters.
    """

    operator: str
    reference: str
    seeds: int
    rows: list[Row]
    unmatched: list[str]

    title = "Numeric deviation of an operator"

    @property
    def exit_code(self) -> int:
        """1: an implementation deviates more than it may."""
        return int(any(row["verdict"] != "ok" for row in self.rows))

    def values(self) -> Sequence[Value]:
        """Each largest deviation."""
        return [Value(_label(row), row["max_abs"], better="lower") for row in self.rows]

    def unknowns(self) -> Sequence[Unknown]:
        """Values that no distance covers."""
        wrong = [row for row in self.rows if row["non_finite"] or row["golden_non_finite"]]
        texts = [f"{_label(row)}: NaN or infinite values are in no distance." for row in wrong[:8]]
        texts += [f"{name}: not in every implementation, not compared." for name in self.unmatched]
        return [Unknown(text) for text in texts]

    def sections(self) -> Sequence[Section]:
        """Every implementation, format and tensor."""
        failed = [row for row in self.rows if row["verdict"] != "ok"]
        results = counted(len(self.rows), "result")
        sentence = f"All {results} deviate no more than twice as much as the reference."
        if failed:
            worst = max(failed, key=lambda row: (row["non_finite"], row["of_reference"] or 0.0))
            ratio = f"{digits(worst['of_reference'])} times the reference's deviation"
            cause = "NaN or infinite values" if worst["non_finite"] else ratio
            sentence = f"{len(failed)} of {results} fail; the worst is {_label(worst)}: {cause}."
        rows = [row | row["point"] for row in self.rows]
        settings, ends = " ".join(rows[0]["point"]), ("max_abs_low", "max_abs_high")
        return [
            section(
                "deviation",
                "Which deviates too much?",
                sentence,
                rows,
                f"implementation dtype {settings} tensor max_abs of_reference verdict",
                forms={
                    "max_abs": ColumnFormat("Largest deviation", interval=ends),
                    "of_reference": ColumnFormat("Of reference", digits=2),
                },
                formula=(
                    "deviation = max |y - y64|, y64: the reference in float64 on the same rounded inputs",
                    "passes: deviation <= 2 x the reference's in the same format, or half an ulp",
                ),
                parameters={"reference": self.reference, "seeds": self.seeds},
                source="the 'twice the error' rule: tests of Dao-AILab/flash-attention",
            )
        ]


def _label(row: Row) -> str:
    point = "".join(f", {name} {value}" for name, value in row["point"].items())
    return f"{row['implementation']} in {row['dtype']}{point}, {row['tensor']}"


def compare(
    implementations: Mapping[str, Operator],
    inputs: Callable[..., Sequence[Tensor]],
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
        raise refused("nothing to compare", "no-data", "implementations, grid, seeds")
    reference = reference or next(iter(implementations))
    choice(reference, implementations, "implementation", "reference")
    for dtype in dtypes:
        choice(dtype, DTYPES, "format", "dtypes")
    rows, unmatched = [], set[str]()
    with progress.track("comparing", len(dtypes) * len(grid) * seeds, "inputs") as bar:
        for dtype in dtypes:
            for point in grid:
                by_tensor: dict[tuple[str, str], list[_Result]] = {}
                for seed in range(seeds):
                    drawn = inputs(torch.Generator().manual_seed(seed), **point)
                    sample = _Sample(drawn, dtype, seed, gradients)
                    for label, tensor, result in sample.results(implementations, reference):
                        by_tensor.setdefault((label, tensor), []).append(result)
                    unmatched |= sample.unmatched
                    bar.advance(1)
                rows += [_row(*key, results, dtype, point) for key, results in by_tensor.items()]
    return Comparison(name, reference, seeds, rows, sorted(unmatched))


class _Sample:
    """The inputs of one seed, rounded to a format, and what operators make of them."""

    def __init__(self, inputs: Sequence[Tensor], dtype: str, seed: int, gradients: bool) -> None:
        self._kind, self._form = DTYPES[dtype], format_of(dtype)
        self._inputs = [in_format(x, self._kind) for x in inputs]
        self._seed, self._gradients = seed, gradients
        self.unmatched: set[str] = set()

    def results(
        self, implementations: Mapping[str, Operator], reference: str
    ) -> Iterator[tuple[str, str, _Result]]:
        """(implementation, tensor, result) of every tensor, the reference's first."""
        golden, again = (self._run(implementations[reference], torch.float64) for _ in range(2))
        if any(not np.allclose(golden[n], again[n], 1e-6, equal_nan=True) for n in golden):
            raise refused("the reference is random", "unsupported", reference)
        expected: dict[str, float] = {}
        for name in (reference, *(each for each in implementations if each != reference)):
            results = self._run(implementations[name], self._kind)
            self.unmatched |= set(results) ^ set(golden)
            for tensor in (each for each in results if each in golden):
                value, exact = results[tensor], golden[tensor]
                if value.shape != exact.shape:
                    shapes = value.shape, exact.shape
                    raise refused("shapes differ", "shape-mismatch", f"{name}, {tensor}", *shapes)
                error = deviation(value, exact, self._form)
                own = math.inf if error.max_abs is None else error.max_abs
                other = expected.setdefault(tensor, own)
                # Half an ulp is what no implementation can avoid; below it a ratio says nothing.
                largest = np.abs(exact[np.isfinite(exact)]).max(initial=0.0)
                allowed = max(REFERENCE_FACTOR * other, float(spacing(largest, self._form)) / 2)
                ratio = own / other if other and error.max_abs is not None else None
                yield name, tensor, (error, ratio, own <= allowed)

    def _run(self, operator: Operator, kind: torch.dtype) -> Tensors:
        """The output in a format, and the gradients of inputs and parameters."""
        if isinstance(operator, torch.nn.Module):  # golden sees the rounded parameters, too
            operator = copy.deepcopy(operator).to(self._kind).to(kind)
        leaves = [
            x.requires_grad_(self._gradients and x.is_floating_point())
            for x in (in_format(each, kind).detach().clone() for each in self._inputs)
        ]
        with torch.set_grad_enabled(self._gradients):
            output = first_tensor(operator(*leaves))
        results = {"output": as_float64(output)}
        named = {f"gradient {n}": x for n, x in enumerate(leaves, 1) if x.requires_grad}
        if isinstance(operator, torch.nn.Module):
            named |= {f"gradient {n}": p for n, p in operator.named_parameters() if p.requires_grad}
        if self._gradients and output.requires_grad and named:
            # Signs are exact in every format: golden gradients see the same cotangent.
            draw = torch.Generator().manual_seed(10_000 + self._seed)
            signs = (torch.randint(0, 2, output.shape, generator=draw) * 2 - 1).to(output)
            grads = torch.autograd.grad(output, list(named.values()), signs, allow_unused=True)
            pairs = zip(named, grads, strict=True)
            results |= {name: as_float64(grad) for name, grad in pairs if grad is not None}
        return results


def first_tensor(output: Any) -> Tensor:
    """The first tensor of an output.

    Raises:
        InputError: ``unsupported``.
    """
    results = tensors(output)
    if not results:
        kind = type(output).__name__
        raise refused("the operator returns no tensor", "unsupported", "output", kind, "a tensor")
    return results[0]


def in_format(x: Tensor, kind: torch.dtype) -> Tensor:
    """A tensor in a format; indices stay what they are."""
    return x.to(kind) if x.is_floating_point() else x


def _row(
    name: str, tensor: str, results: Sequence[_Result], dtype: str, point: Mapping[str, Any]
) -> Row:
    """One row over seeds; it fails where any is not finite, or at least half deviate too much."""
    facts = summary([error for error, _, _ in results])
    ratios = [ratio for _, ratio, _ in results if ratio is not None]
    failed = sum(bool(error.non_finite) or not passes for error, _, passes in results)
    verdict = "reference" if failed and 2 * failed >= len(results) else "ok"
    return {
        "implementation": name,
        "dtype": dtype,
        "point": dict(point),
        "tensor": tensor,
        **facts,
        "of_reference": median(ratios) if ratios else None,
        "verdict": "non-finite" if facts["non_finite"] else verdict,
        "failed_seeds": failed,
    }
