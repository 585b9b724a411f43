"""Implementations of one operator against float64, forward and gradients: which deviates more than it may.

Every implementation sees the same inputs, rounded to the format under test; the golden value is the
reference implementation in float64 on those rounded inputs. Every output of the reference is compared, and
every gradient of every output. A result passes where all of these hold:

- it exists: an output or gradient that only the reference has is missing;
- finite: it has no NaN or infinity where the golden value has none;
- repeatable: two runs on the same inputs differ by no more than the limit below;
- reference: it deviates at most twice as much as the reference in the same format (the rule of the
  flash-attention tests), or by half an ulp of the largest value. Fewer than half of the seeds may exceed
  that limit, and none may by far (`FAR`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any
from zlib import crc32

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
# No seed may exceed the largest limit of all seeds so many times; 22 healthy kernels stay below 1.
FAR = 2.0

Operator = Callable[..., Any]
Tensors = dict[str, FloatArray]


@dataclass(frozen=True)
class _Result:
    """One tensor of one seed.

    Attributes:
        error: The larger deviation of two runs.
        ratio: To the reference's deviation; None where that is zero.
        own: The deviation, in ulps of the largest golden value; infinite where nothing is comparable.
        limit: The largest deviation that passes, in the same unit.
        repeats: Whether the two runs differ by no more than the limit.
    """

    error: Deviation
    ratio: float | None
    own: float
    limit: float
    repeats: bool


@dataclass(frozen=True)
class Comparison(Answer):
    """Deviations of implementations of one operator.

    Attributes:
        operator: its name.
        reference: the implementation whose float64 result is golden.
        seeds: number of inputs per grid point.
        rows: implementation, dtype, the grid point, tensor (output, or gradient of an input or parameter),
            max_abs (mean over seeds), max_abs_low, max_abs_high (range), mean_abs, frobenius, max_ulp,
            cosine, of_reference (ratio to the reference's deviation, the median seed, with its range
            of_reference_low and of_reference_high), non_finite, first_non_finite, golden_non_finite,
            verdict (ok, or what fails: missing, non-finite, random, reference) and failed_seeds.
        unmatched: tensors that no verdict covers: of the implementation alone, or gradients of
            parameters that it does not have.
        gradients: whether gradients were asked for.
    """

    operator: str
    reference: str
    seeds: int
    rows: list[Row]
    unmatched: list[str]
    gradients: bool = True

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
        texts += [f"{name}: not in both implementations, not compared." for name in self.unmatched]
        if self.gradients and not any(row["tensor"].startswith("gradient") for row in self.rows):
            texts.append("The reference has no gradients: outputs alone were compared.")
        return [Unknown(text) for text in texts]

    def sections(self) -> Sequence[Section]:
        """Every implementation, format and tensor."""
        failed = [row for row in self.rows if row["verdict"] != "ok"]
        results = counted(len(self.rows), "result")
        sentence = f"All {results} deviate no more than twice as much as the reference."
        if failed:
            order = [*_CAUSES]
            failed.sort(key=lambda row: -(row["of_reference_high"] or 0.0))
            worst = min(failed, key=lambda row: order.index(row["verdict"]))
            cause = _CAUSES[worst["verdict"]].format(digits(worst["of_reference_high"]))
            sentence = f"{len(failed)} of {results} fail; the worst is {_label(worst)}: {cause}."
        if self.unmatched:
            sentence += f" {counted(len(self.unmatched), 'tensor')} could not be compared."
        rows = [row | row["point"] for row in self.rows]
        settings, ends = " ".join(rows[0]["point"]), ("max_abs_low", "max_abs_high")
        ratios = ("of_reference_low", "of_reference_high")
        return [
            section(
                "deviation",
                "Which deviates too much?",
                sentence,
                rows,
                f"implementation dtype {settings} tensor max_abs of_reference verdict",
                forms={
                    "max_abs": ColumnFormat("Largest deviation", interval=ends),
                    "of_reference": ColumnFormat("Of reference", digits=2, interval=ratios),
                },
                formula=(
                    "deviation = max |y - y64|, y64: the reference in float64 on the same rounded inputs",
                    "passes: deviation <= 2 x the reference's in the same format, or half an ulp; in most "
                    "seeds, and in none beyond twice the largest limit",
                ),
                parameters={"reference": self.reference, "seeds": self.seeds},
                source="the 'twice the error' rule: tests of Dao-AILab/flash-attention",
            )
        ]


# What fails, from the worst.
_CAUSES = {
    "missing": "the reference has it",
    "non-finite": "NaN or infinite values",
    "random": "two runs on the same inputs differ",
    "reference": "{} times the reference's deviation",
}


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
        implementations: name -> function of the inputs that returns a tensor or several (also in
            tuples and mappings), or module; a module is converted to each format, and its parameters
            have gradients too.
        inputs: ``inputs(generator, **point)`` gives the inputs of a `torch.Generator`, of any format.
        dtypes: of `DTYPES`.
        grid: points, each the keywords of `inputs`.
        reference: the implementation that float64 and the rule of twice the error hold on; by default the
            first.
        seeds: inputs per point. A result fails where half of its seeds exceed the limit, or one by far.
        gradients: compare those of a random cotangent of each output too.
        name: for titles.

    Raises:
        InputError: ``unknown-name`` of a format or reference, ``shape-mismatch``, ``no-data``,
            ``unsupported`` for a random reference.
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
                by_tensor: dict[tuple[str, str], list[_Result | None]] = {}
                for seed in range(seeds):
                    drawn = inputs(torch.Generator().manual_seed(seed), **point)
                    sample = _Sample(drawn, dtype, seed, gradients)
                    for label, tensor, result in sample.results(implementations, reference):
                        by_tensor.setdefault((label, tensor), []).append(result)
                    unmatched |= sample.unmatched
                    bar.advance(1)
                rows += [_row(*key, results, dtype, point) for key, results in by_tensor.items()]
    return Comparison(name, reference, seeds, rows, sorted(unmatched), gradients)


class _Sample:
    """The inputs of one seed, rounded to a format, and what operators make of them."""

    def __init__(self, inputs: Sequence[Tensor], dtype: str, seed: int, gradients: bool) -> None:
        self._kind, self._form = DTYPES[dtype], format_of(dtype)
        if any(x.is_complex() for x in inputs):
            raise refused("inputs are complex", "unsupported", "inputs", "complex", "real numbers")
        self._inputs = [in_format(x, self._kind) for x in inputs]
        self._seed, self._gradients = seed, gradients
        self.unmatched: set[str] = set()
        self._integers: set[str] = set()

    def results(
        self, implementations: Mapping[str, Operator], reference: str
    ) -> Iterator[tuple[str, str, _Result | None]]:
        """(implementation, tensor, result) of every tensor, the reference's first; None: missing."""
        golden, again = (self._run(implementations[reference], torch.float64) for _ in range(2))
        if any(not np.allclose(golden[n], again[n], 1e-6, equal_nan=True) for n in golden):
            raise refused("the reference is random", "unsupported", reference)
        if not any(exact.size for exact in golden.values()):
            raise refused("nothing to compare", "no-data", reference, "results without elements")
        limits: dict[str, tuple[float, float]] = {}
        for name in (reference, *(each for each in implementations if each != reference)):
            first, second = (self._run(implementations[name], self._kind, golden) for _ in range(2))
            self.unmatched |= set(first) - set(golden)
            for tensor, exact in golden.items():
                if tensor not in first or tensor not in second:
                    # A parameter that the implementation does not have is no lost gradient.
                    if self._has(implementations[name], tensor):
                        yield name, tensor, None
                    else:
                        self.unmatched.add(tensor)
                    continue
                pair = first[tensor], second[tensor]
                if pair[0].shape != exact.shape:
                    shapes = pair[0].shape, exact.shape
                    raise refused("shapes differ", "shape-mismatch", f"{name}, {tensor}", *shapes)
                yield name, tensor, self._result(pair, exact, tensor, limits)

    def _result(
        self,
        pair: tuple[FloatArray, FloatArray],
        exact: FloatArray,
        tensor: str,
        limits: dict[str, tuple[float, float]],
    ) -> _Result:
        """Hold two runs against golden; `limits`: tensor -> the reference's deviation, the limit."""
        errors = [deviation(each, exact, self._form) for each in pair]
        error = max(errors, key=lambda each: (each.non_finite, each.max_abs or 0.0))
        own = math.inf if error.max_abs is None else error.max_abs
        largest = np.abs(exact[np.isfinite(exact)]).max(initial=0.0)
        ulp = float(spacing(largest, self._form))
        # Half an ulp is what no implementation can avoid; below it a ratio says nothing.
        other, limit = limits.setdefault(tensor, (own, max(REFERENCE_FACTOR * own, ulp / 2)))
        if tensor in self._integers:
            limit = REFERENCE_FACTOR * other  # indices and masks are not rounded
        between = deviation(*pair, self._form)
        repeats = not between.non_finite and (between.max_abs or 0.0) <= limit
        ratio = own / other if other and error.max_abs is not None else None
        return _Result(error, ratio, own / ulp, limit / ulp, repeats)

    def _has(self, operator: Operator, tensor: str) -> bool:
        """Whether an implementation could have a tensor: all but gradients of other parameters."""
        kind, _, leaf = tensor.partition(" of ")[0].partition(" ")
        names = {str(n + 1) for n in range(len(self._inputs))}
        if isinstance(operator, torch.nn.Module):
            names |= {name for name, _ in operator.named_parameters()}
        return kind != "gradient" or leaf in names

    def _run(
        self, operator: Operator, kind: torch.dtype, only: Mapping[str, Any] | None = None
    ) -> Tensors:
        """Outputs in a format, and the gradients of inputs and parameters; of the outputs in `only`."""
        if isinstance(operator, torch.nn.Module):  # golden sees the rounded parameters, too
            operator = copy.deepcopy(operator).to(self._kind).to(kind)
        leaves = [
            x.requires_grad_(self._gradients and x.is_floating_point())
            for x in (in_format(each, kind).detach().clone() for each in self._inputs)
        ]
        with torch.set_grad_enabled(self._gradients):
            outputs = _outputs(operator(*leaves))
        results = {name: as_float64(output) for name, output in outputs.items()}
        self._integers |= {name for name, y in outputs.items() if not y.is_floating_point()}
        named = {f"{n}": x for n, x in enumerate(leaves, 1) if x.requires_grad}
        if isinstance(operator, torch.nn.Module):
            named |= {name: p for name, p in operator.named_parameters() if p.requires_grad}
        for name, output in outputs.items():
            if not (self._gradients and output.requires_grad and named) or name not in (
                only or results
            ):
                continue
            # Signs are exact in every format: golden gradients see the same cotangent.
            draw = torch.Generator().manual_seed(10_000 + self._seed + crc32(name.encode()))
            signs = (torch.randint(0, 2, output.shape, generator=draw) * 2 - 1).to(output)
            options = {"allow_unused": True, "retain_graph": True}
            grads = torch.autograd.grad(output, list(named.values()), signs, **options)
            of = "" if name == "output" else f" of {name}"
            pairs = zip(named, grads, strict=True)
            results |= {f"gradient {n}{of}": as_float64(g) for n, g in pairs if g is not None}
        return results


def _outputs(value: Any, name: str = "output") -> dict[str, Tensor]:
    """Every tensor of a result: ``output``, ``output 2`` of a tuple, ``output KEY`` of a mapping.

    Raises:
        InputError: ``unsupported`` where there is none.
    """
    if isinstance(value, Tensor):  # a complex number is two real ones
        real = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
        return {name: real}
    found: dict[str, Tensor] = {}
    if isinstance(value, Mapping):
        parts = [(f"{name} {key}", each) for key, each in value.items()]
    else:
        several = value if isinstance(value, (list, tuple)) else ()
        parts = [(name if n == 1 else f"{name} {n}", each) for n, each in enumerate(several, 1)]
    for label, each in parts:
        found |= _outputs(each, label) if tensors(each) else {}
    return found if found else {name: first_tensor(value)}


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
    name: str,
    tensor: str,
    results: Sequence[_Result | None],
    dtype: str,
    point: Mapping[str, Any],
) -> Row:
    """One row over seeds; it fails where any is missing, not finite, random or far off, or half are off."""
    present = [each for each in results if each is not None]
    facts = summary([each.error for each in present])
    ratios = [each.ratio for each in present if each.ratio is not None]
    exceeding = [each for each in present if not each.own <= each.limit]
    # Limits of seeds scatter with the luck of the reference: the largest says what is far.
    far = FAR * max((max(each.limit, 1.0) for each in present), default=0.0)
    verdict = "ok"
    if 2 * len(exceeding) >= max(len(present), 1) or any(each.own > far for each in exceeding):
        verdict = "reference"
    if not all(each.repeats for each in present):
        verdict = "random"
    if facts["non_finite"]:
        verdict = "non-finite"
    if len(present) < len(results):
        verdict = "missing"
    wrong = sum(bool(each.error.non_finite) or not each.own <= each.limit for each in present)
    return {
        "implementation": name,
        "dtype": dtype,
        "point": dict(point),
        "tensor": tensor,
        **facts,
        "of_reference": median(ratios) if ratios else None,
        "of_reference_low": min(ratios, default=None),
        "of_reference_high": max(ratios, default=None),
        "verdict": verdict,
        "failed_seeds": wrong + len(results) - len(present),
    }
