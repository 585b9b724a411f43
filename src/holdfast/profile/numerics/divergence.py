"""The first module at which two runs of a model part: beyond tolerance, with inputs still within it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.testing._comparison import default_tolerances

from holdfast.answer import Answer, Finding
from holdfast.numbers import counted
from holdfast.profile.numerics.deviation import Row, deviation
from holdfast.profile.numerics.formats import as_float64, format_of
from holdfast.profile.ops.formulas import tensors
from holdfast.profile.ops.targets import refused

# Behind a module's name: what it was given.
INPUT = " input"


@dataclass(frozen=True)
class Divergence(Answer):
    """Where two runs part.

    Attributes:
        first: the first module whose output is beyond tolerance; None: none is.
        introduced: whether its input was within tolerance, so that the module itself deviates.
        rows: in the order of execution: module, beyond (elements beyond tolerance), elements, max_abs,
            frobenius, input_beyond, input_frobenius, non_finite, first_non_finite.
        unmatched: outputs that one run lacks.
    """

    first: str | None
    introduced: bool | None
    rows: list[Row]
    unmatched: list[str]

    @property
    def exit_code(self) -> int:
        """1: they part."""
        return int(self.first is not None)

    def findings(self) -> Sequence[Finding]:
        """The first module."""
        parts = [f"All {counted(len(self.rows), 'output')} agree."]
        if self.first is not None:
            cause = "agrees" if self.introduced else "differs already"
            parts = [f"{self.first} is the first to differ; its input {cause}."]
        if self.unmatched:
            parts.append(f"{counted(len(self.unmatched), 'output')} of one run only.")
        return [Finding(" ".join(parts))]


def record_outputs(model: torch.nn.Module, *inputs: Any, **keywords: Any) -> dict[str, Tensor]:
    """Run a model and keep what every module was given and returned, in the order of execution.

    Args:
        model: its modules are named as in `named_modules`, itself ``(model)``; a second call of one is
            ``name#2``.
        inputs: of the model.
        keywords: of the model.

    Returns:
        Name -> first output tensor, and ``name input`` -> first input tensor, copied to the CPU.
    """
    found: dict[str, Tensor] = {}
    calls = Counter[str]()

    def keep(name: str, _: Any, given: Any, options: Any, output: Any) -> None:
        calls[name] += 1
        label = name if calls[name] == 1 else f"{name}#{calls[name]}"
        for key, value in ((label + INPUT, [given, options]), (label, output)):
            floating = [x for x in tensors(value) if x.is_floating_point()]
            if floating:
                found[key] = floating[0].detach().cpu().clone()

    handles = [
        module.register_forward_hook(partial(keep, name or "(model)"), with_kwargs=True)
        for name, module in model.named_modules()
    ]
    try:
        with torch.no_grad():
            model(*inputs, **keywords)
    finally:
        for handle in handles:
            handle.remove()
    return found


def first_divergence(
    left: torch.nn.Module | Mapping[str, Tensor],
    right: torch.nn.Module | Mapping[str, Tensor],
    *inputs: Any,
) -> Divergence:
    """Find the first module whose output differs between two runs.

    Args:
        left: a model, or what `record_outputs` gave elsewhere.
        right: the same; its values are what tolerances refer to.
        inputs: of both models; floating-point ones are converted to the format of each model.

    Raises:
        InputError: ``name-mismatch`` without a common module, ``shape-mismatch``.
    """
    a, b = (
        record_outputs(each, *_converted(each, inputs))
        if isinstance(each, torch.nn.Module)
        else each
        for each in (left, right)
    )
    names = [name for name in a if name in b and not name.endswith(INPUT)]
    if not names:
        raise refused("no module in common", "name-mismatch", "left, right", b, a)
    rows = []
    for name in names:
        row = {"module": name, **_compared(name, a[name], b[name])}
        x, y = a.get(name + INPUT), b.get(name + INPUT)
        if x is not None and y is not None and x.shape == y.shape:
            given = _compared(name, x, y)
            row |= {f"input_{key}": given[key] for key in ("beyond", "frobenius")}
        rows.append(row)
    parted = next((row for row in rows if row["beyond"]), {})
    introduced = not parted.get("input_beyond") if parted else None
    unmatched = [name for name in sorted(set(a) ^ set(b)) if not name.endswith(INPUT)]
    return Divergence(parted.get("module"), introduced, rows, unmatched)


def _compared(name: str, a: Tensor, b: Tensor) -> Row:
    if a.shape != b.shape:
        shapes = tuple(b.shape), tuple(a.shape)
        raise refused("outputs of different shapes", "shape-mismatch", name, *shapes)
    relative, absolute = default_tolerances(a, b)  # of torch.testing.assert_close
    x, y = as_float64(a), as_float64(b)
    with np.errstate(invalid="ignore"):
        within = (np.abs(x - y) <= absolute + relative * np.abs(y)) & np.isfinite(x) | (x == y)
    within |= np.isnan(x) & np.isnan(y)
    measures = vars(deviation(x, y, format_of("fp32")))
    names = ("max_abs", "frobenius", "non_finite", "first_non_finite")
    beyond = {"beyond": int((~within).sum()), "elements": x.size}
    return beyond | {name: measures[name] for name in names}


def _converted(model: torch.nn.Module, inputs: Sequence[Any]) -> list[Any]:
    kinds = [p.dtype for p in model.parameters() if p.is_floating_point()][:1]
    floating = [isinstance(x, Tensor) and x.is_floating_point() for x in inputs]
    return [x.to(*kinds) if kinds and y else x for x, y in zip(inputs, floating, strict=True)]
