"""Implementations of one operator against float64, forward and gradients: which deviates more than it may.

Every implementation sees the same inputs, rounded to the format under test; the golden value is the
reference implementation in float64 on those rounded inputs. A result passes where all of these hold:

- bound: its deviation is one that rounding can explain: at most half an ulp of the result plus sqrt(n)
  times the largest change that inputs moved by one rounding (u, random signs) cause. The errors of n
  additions grow with sqrt(n) (Higham and Mary, SIAM J. Sci. Comput. 41, 2019); n is the largest dimension
  of an input, for more is known only to the operator;
- reference: it deviates at most twice as much as the reference in the same format (the rule of the
  flash-attention tests), or by half an ulp;
- finite: it has no NaN or infinity where the golden value has none.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from holdfast import progress
from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Value
from holdfast.errors import InputError
from holdfast.numbers import counted
from holdfast.profile.numerics.deviation import Deviation, deviation
from holdfast.profile.numerics.formats import Format, as_float64, format_of, spacing
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

Operator = Callable[..., torch.Tensor]
Inputs = Callable[..., Sequence[torch.Tensor]]


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
            (same bits when run again), non_finite, first_non_finite, golden_non_finite, verdict (ok, or what fails:
            non-finite, bound, reference) and failed_seeds.
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
        made = {}
        for row in self.rows:
            point = "".join(f"_{key}_{value}" for key, value in row["point"].items())
            name = f"max_abs_{row['implementation']}_{row['dtype']}{point}_{row['tensor']}"
            span = (row["max_abs_low"], row["max_abs_high"])
            made[name] = Value(name, row["max_abs"], better="lower", how=f"range over seeds {span}")
        return list(made.values())

    def unknowns(self) -> Sequence[Unknown]:
        """Values that no distance covers."""
        found = []
        for row in self.rows:
            at = f"{row['implementation']} in {row['dtype']}, {row['tensor']}"
            if row["non_finite"]:
                text = f"{row['non_finite']:,} values are NaN or infinite, the first at"
                found.append(Unknown(f"{at}: {text} {row['first_non_finite']}."))
            if row["golden_non_finite"]:
                text = f"{row['golden_non_finite']:,} golden values are NaN or infinite and left out."
                found.append(Unknown(f"{at}: {text}", "choose inputs on which the operator is defined"))
            if not row["reproducible"]:
                found.append(Unknown(f"{at}: other bits when run again on the same inputs."))
        return found[:8]

    def sections(self) -> Sequence[Section]:
        """Every implementation, format and tensor."""
        failed = [row for row in self.rows if row["verdict"] != "ok"]
        sentence = f"All {counted(len(self.rows), 'result')} deviate no more than rounding explains."
        if failed:
            known = [row for row in failed if row["of_reference"] is not None]
            worst = max(known, key=lambda row: row["of_reference"], default=failed[0])
            ratio = worst["of_reference"]
            much = "" if ratio is None else f" ({ratio:.3g} times the reference's deviation)"
            sentence = (
                f"{len(failed)} of {counted(len(self.rows), 'result')} fail; the worst is "
                f"{worst['implementation']} in {worst['dtype']}, {worst['tensor']}: "
                f"{worst['verdict']}{much}."
            )
        flat = [{**row, **row["point"], "label": _label(row)} for row in self.rows]
        points = list(self.rows[0]["point"]) if self.rows else []
        columns = {
            "implementation": ColumnFormat("Implementation"),
            "dtype": ColumnFormat("Format"),
            **{name: ColumnFormat(name) for name in points},
            "tensor": ColumnFormat("Tensor"),
            "max_abs": ColumnFormat("Largest deviation", interval=("max_abs_low", "max_abs_high")),
            "bound": ColumnFormat("Bound", detail=True),
            "of_reference": ColumnFormat("Of reference", digits=2),
            "max_ulp": ColumnFormat("ulp", digits=1, detail=True),
            "reproducible": ColumnFormat("Same bits again", detail=True),
            "verdict": ColumnFormat("Verdict"),
        }
        for row in flat:
            row.pop("point"), row.pop("first_non_finite")
        table = Table(pa.Table.from_pylist(flat), columns, "Brackets: range over seeds.")
        axis = next((name for name in points if len({row[name] for row in flat}) > 1), "")
        drawn = [row for row in flat if row["tensor"] == "output" and row["max_abs"]]
        chart = figures.bars(drawn, "label", "max_abs", "Largest deviation of the output")
        if axis and all(isinstance(row[axis], (int, float)) for row in drawn):
            chart = figures.lines(
                drawn, axis, "max_abs", axis, "Largest deviation of the output", series="label",
                points=True, log_x=True, log_y=True,
            )  # fmt: skip
        how = How(
            [
                "deviation = max |y - y64|, y64: the reference in float64 on the same rounded inputs",
                "bound = ulp(y64) / 2 + sqrt(n) max |f64(x (1 +- u)) - f64(x)|, n: largest dimension of an input",
                "reference: deviation <= 2 x the reference's in the same format, or half an ulp",
            ],
            {"reference": self.reference, "seeds": self.seeds},
            "the 'twice the error' rule: tests of Dao-AILab/flash-attention",
        )
        return [Section("deviation", "Which deviates too much?", sentence, [chart], [table], how)]


def _label(row: Mapping[str, Any]) -> str:
    return f"{row['implementation']}, {row['dtype']}"


def compare(
    implementations: Mapping[str, Operator | torch.nn.Module],
    inputs: Inputs,
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
        seeds: inputs per point. A result fails where most of its seeds fail.
        gradients: compare those of a random cotangent too.
        name: for titles.

    Raises:
        InputError: ``unknown-name`` of a format or reference, ``shape-mismatch``, ``no-data``.
    """
    if not implementations or not grid or seeds < 1:
        raise InputError("nothing to compare", code="no-data", place="implementations, grid, seeds")
    reference = reference or next(iter(implementations))
    for given, known, place in (
        ([reference], list(implementations), "reference"),
        (dtypes, list(DTYPES), "dtypes"),
    ):
        for each in given:
            if each not in known:
                raise InputError(
                    f"unknown name in {place}", code="unknown-name", place=place, found=each,
                    expected=", ".join(known),
                )  # fmt: skip
    rows = []
    with progress.track("comparing", len(dtypes) * len(grid) * seeds, "inputs") as bar:
        for dtype in dtypes:
            for point in grid:
                found: dict[tuple[str, str], list[_Result]] = {}
                for seed in range(seeds):
                    for result in _of_seed(implementations, inputs, dtype, point, reference, seed, gradients):
                        found.setdefault((result.implementation, result.tensor), []).append(result)
                    bar.advance(1)
                rows += [_row(results, dtype, point) for results in found.values()]
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
    def of_reference(self) -> float | None:
        own, other = self.deviation.max_abs, self.reference.max_abs
        return own / other if own is not None and other else None

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


def _of_seed(
    implementations: Mapping[str, Any],
    inputs: Inputs,
    dtype: str,
    point: Mapping[str, Any],
    reference: str,
    seed: int,
    gradients: bool,
) -> Iterator[_Result]:
    """Every tensor of every implementation on the inputs of one seed."""
    kind, form = DTYPES[dtype], format_of(dtype)
    generator = torch.Generator().manual_seed(seed)
    given = [_as(each, kind) for each in inputs(generator, **point)]
    run = _Run(gradients, seed)
    exact = _converted(implementations[reference], kind, torch.float64)
    golden = run(exact, [_as(x, torch.float64) for x in given])
    moved = _moved(implementations[reference], kind, given, golden, run, form)
    terms = max(max(x.shape, default=1) for x in given)
    results = {}
    for name, operator in implementations.items():
        ready = _converted(operator, kind, kind)
        made = run(ready, given)
        again = run(ready, given)
        for tensor, value in made.items():
            if tensor in golden and value.shape != golden[tensor].shape:
                raise InputError(
                    "results of different shapes", code="shape-mismatch", place=f"{name}, {tensor}",
                    found=str(value.shape), expected=f"{golden[tensor].shape} of {reference}",
                )  # fmt: skip
        same = {t: np.array_equal(made[t], again[t], equal_nan=True) for t in made}
        measured = {t: deviation(made[t], golden[t], form) for t in made if t in golden}
        results[name] = measured, same
    for name, (measured, same) in results.items():
        for tensor, found in measured.items():
            other = results[reference][0][tensor]
            half = _half_ulp(golden[tensor], form)
            bound = half + math.sqrt(terms) * moved[tensor]
            yield _Result(name, tensor, found, half, bound, other, same[tensor])


class _Run:
    """Runs an operator: its output, and the gradients of its inputs and parameters."""

    def __init__(self, gradients: bool, seed: int) -> None:
        self._gradients, self._seed = gradients, seed

    def __call__(self, operator: Operator, given: Sequence[torch.Tensor]) -> dict[str, np.ndarray]:
        leaves = [x.detach().clone().requires_grad_(self._wants(x)) for x in given]
        with torch.set_grad_enabled(self._gradients):
            output = operator(*leaves)
        output = first_tensor(output)
        found = {"output": as_float64(output)}
        named = {f"gradient {n}": x for n, x in enumerate(leaves, 1) if x.requires_grad}
        if isinstance(operator, torch.nn.Module):
            named |= {f"gradient {n}": p for n, p in operator.named_parameters() if p.requires_grad}
        if self._gradients and output.requires_grad and named:
            # The same cotangent for all, exact in every format: golden gradients see no other.
            draw = torch.Generator().manual_seed(10_000 + self._seed)
            signs = torch.randint(0, 2, output.shape, generator=draw) * 2 - 1
            grads = torch.autograd.grad(output, list(named.values()), signs.to(output), allow_unused=True)
            pairs = zip(named, grads, strict=True)
            found |= {n: as_float64(grad) for n, grad in pairs if grad is not None}
        return found

    def _wants(self, x: torch.Tensor) -> bool:
        return self._gradients and x.is_floating_point()


def first_tensor(output: Any) -> torch.Tensor:
    """The tensor of an output that may be a tuple or a dictionary of several.

    Raises:
        InputError: ``unsupported``.
    """
    if isinstance(output, Mapping):
        output = next(iter(output.values()), None)
    elif isinstance(output, (tuple, list)):
        output = output[0] if output else None
    if not isinstance(output, torch.Tensor):
        raise InputError(
            "the operator returns no tensor", code="unsupported", place="output",
            found=type(output).__name__, expected="a tensor, or a tuple that begins with one",
        )  # fmt: skip
    return output


def _as(x: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """A tensor in a format; indices stay what they are."""
    return x.to(kind) if x.is_floating_point() else x


def _converted(operator: Any, rounded_to: torch.dtype, runs_in: torch.dtype) -> Operator:
    """An operator in a format; a module's parameters are first rounded to the format under test."""
    if isinstance(operator, torch.nn.Module):
        return copy.deepcopy(operator).to(rounded_to).to(runs_in)
    return operator  # type: ignore[no-any-return]


def _moved(
    operator: Any,
    kind: torch.dtype,
    given: Sequence[torch.Tensor],
    golden: Mapping[str, np.ndarray],
    run: _Run,
    form: Format,
) -> dict[str, float]:
    """Largest change of each tensor when every input moves by one rounding, up or down."""
    generator = torch.Generator().manual_seed(20_000)
    most = dict.fromkeys(golden, 0.0)
    ready = _converted(operator, kind, torch.float64)
    for _ in range(PERTURBATIONS):
        inputs = []
        for x in given:
            if not x.is_floating_point():
                inputs.append(x)
                continue
            signs = torch.randint(0, 2, x.shape, generator=generator) * 2 - 1
            inputs.append(x.double() * (1 + form.unit_roundoff * signs))
        for tensor, value in run(ready, inputs).items():
            change = np.abs(value - golden[tensor])
            usable = change[np.isfinite(change)]
            most[tensor] = max(most[tensor], float(usable.max()) if usable.size else 0.0)
    return most


def _half_ulp(golden: np.ndarray, form: Format) -> float:
    """Of the largest value."""
    finite = golden[np.isfinite(golden)]
    return float(spacing(np.abs(finite).max(), form)) / 2 if finite.size else 0.0


def _row(results: Sequence[_Result], dtype: str, point: Mapping[str, Any]) -> dict[str, Any]:
    """One row over seeds; it fails where most seeds fail, by the most frequent reason."""
    largest = [r.deviation.max_abs for r in results if r.deviation.max_abs is not None]
    ratios = [r.of_reference for r in results if r.of_reference is not None]
    failed = [r.verdict for r in results if r.verdict != "ok"]
    wrong = next((r.deviation for r in results if r.deviation.non_finite), None)

    def mean(key: str) -> float | None:
        known = [v for r in results if (v := getattr(r.deviation, key)) is not None]
        return float(np.mean(known)) if known else None

    fails = bool(wrong) or 2 * len(failed) > len(results)
    return {
        "implementation": results[0].implementation,
        "dtype": dtype,
        "point": dict(point),
        "tensor": results[0].tensor,
        "max_abs": mean("max_abs"),
        "max_abs_low": min(largest, default=None),
        "max_abs_high": max(largest, default=None),
        "mean_abs": mean("mean_abs"),
        "frobenius": mean("frobenius"),
        "max_ulp": mean("max_ulp"),
        "cosine": mean("cosine"),
        "bound": float(np.mean([r.bound for r in results])),
        "of_reference": float(np.median(ratios)) if ratios else None,
        "reproducible": all(r.reproducible for r in results),
        "non_finite": sum(r.deviation.non_finite for r in results),
        "first_non_finite": wrong.first_non_finite if wrong else None,
        "golden_non_finite": sum(r.deviation.golden_non_finite for r in results),
        "verdict": ("non-finite" if wrong else max(failed, key=failed.count)) if fails else "ok",
        "failed_seeds": len(failed),
    }
