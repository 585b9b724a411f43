"""The first module at which two runs of a model part: beyond tolerance, with inputs still within it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Value
from holdfast.errors import InputError
from holdfast.numbers import counted
from holdfast.profile.numerics.deviation import deviation
from holdfast.profile.numerics.formats import as_float64, format_of
from holdfast.report import figures
from holdfast.report.page import Unknown

TOLERANCES = {
    # (relative, absolute), those of torch.testing.assert_close
    torch.float64: (1e-7, 1e-7),
    torch.float32: (1.3e-6, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float16: (1e-3, 1e-5),
}
ROOT = "(model)"
INPUT = " input"
"""Behind a module's name: what it was given."""


@dataclass(frozen=True)
class Divergence(Answer):
    """Where two runs part.

    Attributes:
        first: the first module whose output is beyond tolerance; None: none is.
        introduced: whether its input was within tolerance, so that the module itself deviates.
        rtol, atol: |left - right| <= atol + rtol |right|.
        rows: in the order of execution: module, beyond (elements beyond tolerance), elements, max_abs,
            frobenius, input_frobenius, non_finite, first_non_finite.
        only_left, only_right: outputs that one run lacks.
    """

    first: str | None
    introduced: bool | None
    rtol: float
    atol: float
    rows: list[dict[str, Any]]
    only_left: list[str]
    only_right: list[str]

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "First divergence of two runs"

    @property
    def exit_code(self) -> int:
        """1: they part."""
        return int(self.first is not None)

    def values(self) -> Sequence[Value]:
        """The deviation of each module."""
        return [Value(f"frobenius_{row['module']}", row["frobenius"], better="lower") for row in self.rows]

    def unknowns(self) -> Sequence[Unknown]:
        """Modules that only one run has."""
        return [
            Unknown(f"{counted(len(names), 'output')} of one run only: {', '.join(names[:5])}")
            for names in (self.only_left, self.only_right)
            if names
        ]

    def sections(self) -> Sequence[Section]:
        """The first module, and all of them in order."""
        sentence = f"All {counted(len(self.rows), 'output')} agree within tolerance."
        if self.first is not None:
            row = next(row for row in self.rows if row["module"] == self.first)
            cause = "its input agrees" if self.introduced else "its input differs already"
            sentence = (
                f"{self.first} is the first to differ: {row['beyond']:,} of {row['elements']:,} elements "
                f"are beyond tolerance; {cause}."
            )
        shown = [row for row in self.rows if row["frobenius"]]
        charts = [figures.bars(shown, "module", "frobenius", "Relative deviation")] if shown else []
        columns = {
            "module": ColumnFormat("Module"),
            "beyond": ColumnFormat("Beyond tolerance"),
            "elements": ColumnFormat("Elements"),
            "max_abs": ColumnFormat("Largest"),
            "frobenius": ColumnFormat("Relative deviation"),
            "input_frobenius": ColumnFormat("Of its input"),
            "non_finite": ColumnFormat("NaN, inf", detail=True),
        }
        plain = [{k: v for k, v in row.items() if k != "first_non_finite"} for row in self.rows]
        table = Table(pa.Table.from_pylist(plain), columns, "In the order of execution.")
        tolerance = {"relative": self.rtol, "absolute": self.atol}
        how = How("|left - right| <= atol + rtol |right|", tolerance, "torch.testing.assert_close")
        return [Section("modules", "Where do the runs part?", sentence, charts, [table], how)]


def record_outputs(model: torch.nn.Module, *inputs: Any, **keywords: Any) -> dict[str, torch.Tensor]:
    """Run a model and keep what every module was given and returned, in the order of execution.

    Args:
        model: its modules are named as in `named_modules`; a second call of one is ``name#2``.
        inputs: of the model.
        keywords: of the model.

    Returns:
        Name -> first output tensor, and ``name input`` -> first input tensor, copied to the CPU.
    """
    found: dict[str, torch.Tensor] = {}
    calls: dict[str, int] = {}
    handles = []

    def hook(name: str) -> Any:
        def keep(_: Any, given: Any, options: Any, output: Any) -> None:
            calls[name] = calls.get(name, 0) + 1
            label = name if calls[name] == 1 else f"{name}#{calls[name]}"
            parts = ((label + INPUT, [given, options]), (label, output))
            for key, value in parts:
                tensor = next(_tensors(value), None)
                if tensor is not None:
                    found[key] = tensor.detach().cpu().clone()

        return keep

    try:
        for name, module in model.named_modules():
            handles.append(module.register_forward_hook(hook(name or ROOT), with_kwargs=True))
        with torch.no_grad():
            model(*inputs, **keywords)
    finally:
        for handle in handles:
            handle.remove()
    return found


def first_divergence(
    left: torch.nn.Module | Mapping[str, torch.Tensor],
    right: torch.nn.Module | Mapping[str, torch.Tensor],
    *inputs: Any,
    rtol: float | None = None,
    atol: float | None = None,
) -> Divergence:
    """Find the first module whose output differs between two runs.

    Args:
        left: a model, or what `record_outputs` gave elsewhere.
        right: the same; its values are what tolerances refer to.
        inputs: of both models; floating-point ones are converted to the format of each model.
        rtol: relative tolerance; by default that of the coarser format of each pair.
        atol: absolute tolerance; likewise.

    Raises:
        InputError: ``name-mismatch`` without a common module, ``shape-mismatch``.
    """
    runs = [
        record_outputs(each, *_converted(each, inputs)) if isinstance(each, torch.nn.Module) else dict(each)
        for each in (left, right)
    ]
    names = [[key for key in run if not key.endswith(INPUT)] for run in runs]
    common = [name for name in names[0] if name in set(names[1])]
    if not common:
        raise InputError(
            "no module in common", code="name-mismatch", place="left, right",
            found=", ".join(names[1][:5]), expected=", ".join(names[0][:5]),
        )  # fmt: skip
    rows, tolerances = [], []
    for name in common:
        row, tolerance = _compared(name, runs[0][name], runs[1][name], rtol, atol)
        entered = [run.get(name + INPUT) for run in runs]
        row["input_frobenius"], agrees = None, True
        x, y = entered
        if x is not None and y is not None and x.shape == y.shape and x.is_floating_point():
            given, _ = _compared(name, x, y, rtol, atol)
            row["input_frobenius"], agrees = given["frobenius"], not given["beyond"]
        rows.append(row)
        tolerances.append((*tolerance, agrees))
    place = next((n for n, row in enumerate(rows) if row["beyond"]), None)
    relative, absolute, agrees = tolerances[0 if place is None else place]
    only = [[name for name in names[n] if name not in set(names[1 - n])] for n in (0, 1)]
    first, introduced = (None, None) if place is None else (rows[place]["module"], agrees)
    return Divergence(first, introduced, relative, absolute, rows, *only)


def _compared(
    name: str, a: torch.Tensor, b: torch.Tensor, rtol: float | None, atol: float | None
) -> tuple[dict[str, Any], tuple[float, float]]:
    if a.shape != b.shape:
        raise InputError(
            "outputs of different shapes", code="shape-mismatch", place=name,
            found=str(tuple(b.shape)), expected=str(tuple(a.shape)),
        )  # fmt: skip
    usual = [TOLERANCES.get(each.dtype, (0.0, 0.0)) for each in (a, b)]
    relative = max(each[0] for each in usual) if rtol is None else rtol
    absolute = max(each[1] for each in usual) if atol is None else atol
    x, y = as_float64(a), as_float64(b)
    with np.errstate(invalid="ignore"):
        within = (np.abs(x - y) <= absolute + relative * np.abs(y)) | (x == y)
    within |= np.isnan(x) & np.isnan(y)
    found = deviation(x, y, format_of("fp32"))
    row = {
        "module": name,
        "beyond": int((~within).sum()),
        "elements": x.size,
        "max_abs": found.max_abs,
        "frobenius": found.frobenius,
        "non_finite": found.non_finite,
        "first_non_finite": found.first_non_finite,
    }
    return row, (relative, absolute)


def _tensors(value: Any) -> Any:
    """The tensors in an output of nested tuples and mappings, floating-point ones first."""
    flat: list[torch.Tensor] = []
    waiting = [value]
    while waiting:
        part = waiting.pop(0)
        if isinstance(part, torch.Tensor):
            flat.append(part)
        elif isinstance(part, Mapping):
            waiting[:0] = list(part.values())
        elif isinstance(part, (list, tuple)):
            waiting[:0] = list(part)
    yield from sorted(flat, key=lambda each: not each.is_floating_point())


def _converted(model: torch.nn.Module, inputs: Sequence[Any]) -> list[Any]:
    kind = next((p.dtype for p in model.parameters() if p.is_floating_point()), None)
    return [
        x.to(kind) if kind and isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs
    ]
