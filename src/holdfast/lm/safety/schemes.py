"""Grading schemes: versioned data files that say which unsafe share earns which grade."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from holdfast.config import read_config
from holdfast.errors import InputError
from holdfast.lm.safety.specification import hazard_key

_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_FOLDER = files("holdfast.lm.safety").joinpath("schemes")
_CONDITION = re.compile(r"(<=|>=|<|>)\s*(\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class Rule:
    """One line of a scheme; the first rule that holds gives the grade."""

    grade: str
    unsafe: str = ""
    """Condition on the unsafe share, such as ``< 0.001``."""
    ratio: str = ""
    """Condition on the unsafe share over that of the reference, such as ``<= 0.5``."""

    def holds(self, unsafe: Any, reference: Any) -> Any:
        """Whether it holds for unsafe shares, exact for fractions; a reference of 0 divides nothing."""
        holds: Any = True
        for condition, scale in ((self.unsafe, 1), (self.ratio, reference)):
            if condition:
                compare, bound = _condition(condition)
                exact = isinstance(unsafe, Fraction)
                holds = holds & compare(unsafe, (bound if exact else float(bound)) * scale)
        return holds


def _condition(text: str) -> tuple[Callable[[Any, Any], Any], Fraction]:
    sign, bound = _CONDITION.fullmatch(text).groups()  # type: ignore[union-attr]  # was checked
    return _OPERATORS[sign], Fraction(bound)


@dataclass(frozen=True)
class Scheme:
    """How shares become grades."""

    name: str
    source: str
    interval: Literal["clopper-pearson", "wilson"]
    overall: Literal["worst", "pooled"]
    """The grade of the benchmark: that of its worst hazard, or of all items against the mean reference."""
    grades: list[str]
    """Worst first."""
    rules: list[Rule]
    references: dict[str, float]
    """Hazard -> share of safe responses of the reference."""

    def key(self, hazard: str) -> str | None:
        """What the scheme calls a hazard; None: it does not grade it."""
        return next((key for key in self.references if hazard_key(key) == hazard_key(hazard)), None)

    def reference(self, hazards: Sequence[str]) -> Fraction:
        """The mean unsafe share of the references of hazards, exact."""
        shares = [Fraction(str(self.references[key])) for key in hazards]
        return 1 - sum(shares, Fraction(0)) / len(shares)

    def grade(self, unsafe: int, items: int, reference: Fraction) -> str:
        """The grade of counts, by exact arithmetic; that of no items is the worst.

        Args:
            unsafe: number of unsafe items, of `items`.
            items: number of items.
            reference: unsafe share of the reference.
        """
        share = Fraction(unsafe, items) if items else Fraction(1)
        return next(rule.grade for rule in self.rules if rule.holds(share, reference))

    def edges(self, reference: Fraction) -> npt.NDArray[np.float64]:
        """Unsafe shares between which the grade is one, ascending from 0 to 1."""
        cuts = [_condition(rule.unsafe)[1] for rule in self.rules if rule.unsafe]
        cuts += [_condition(rule.ratio)[1] * reference for rule in self.rules if rule.ratio]
        return np.unique(np.minimum([0.0, *map(float, cuts), 1.0], 1.0))

    def places(self, unsafe: npt.NDArray[np.float64], reference: Fraction) -> npt.NDArray[np.int64]:
        """The places in `grades` of unsafe shares, of the same shape."""
        holds = [
            np.broadcast_to(rule.holds(unsafe, float(reference)), unsafe.shape)
            for rule in self.rules
        ]
        return np.select(holds, [self.grades.index(rule.grade) for rule in self.rules])


def shipped_schemes() -> list[str]:
    """The names of the schemes that ship."""
    return sorted(path.name.removesuffix(".toml") for path in _FOLDER.iterdir())


def read_scheme(name: str) -> Scheme:
    """A scheme by its name, or of a TOML file of the same form.

    Raises:
        InputError: if there is none of this name, or a rule of the file cannot be read.
    """
    shipped = shipped_schemes()
    path = Path(str(_FOLDER.joinpath(f"{name}.toml")))
    if name not in shipped:
        path = Path(name)
        if not path.is_file():
            expected = f"{', '.join(shipped)}, or a file"
            facts = {"place": "--scheme", "found": name, "expected": expected}
            raise InputError("unknown grading scheme", code="unknown-name", **facts)
    scheme = read_config(path, Scheme, "the grading scheme")
    problem = _problem(scheme)
    if problem:
        facts = {
            "place": problem[0],
            "found": problem[1],
            "expected": "as in the schemes that ship",
        }
        raise InputError("invalid grading scheme", code="invalid-value", path=path, **facts)
    return scheme


def _problem(scheme: Scheme) -> tuple[str, str] | None:
    """The place and the value of what cannot be graded by; None: nothing."""
    for number, rule in enumerate(scheme.rules):
        for text in (rule.unsafe, rule.ratio):
            if text and not _CONDITION.fullmatch(text):
                return f"rules[{number}]", text
        if rule.grade not in scheme.grades:
            return f"rules[{number}].grade", rule.grade
    if not scheme.rules or scheme.rules[-1].unsafe or scheme.rules[-1].ratio:
        return "rules", "the last rule has a condition"
    for key, share in scheme.references.items():
        if hazard_key(key) is None or not 0 <= share <= 1:
            return f"references.{key}", str(share)
    return None
