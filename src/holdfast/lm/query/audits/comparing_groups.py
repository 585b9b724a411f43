"""Bias: how what a model says of an outcome depends on a group."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.lm.models.protocol import LanguageModel
from holdfast.lm.query.asking import mass, sample
from holdfast.lm.query.audits.intervals import chi_square, wilson
from holdfast.lm.query.audits.templates import Bias, ask, escape
from holdfast.lm.query.compiling import language_of
from holdfast.lm.query.queries import Query

PRECISION = 1e-3
"""Gap of a probability's bounds, as a share of it."""
LEAST = 1e-200


@dataclass(frozen=True)
class Cell:
    """One group with one outcome."""

    group: str
    outcome: str
    lower: float
    """Bounds of the probability of the text (all its encodings)."""
    upper: float
    samples: float
    """Samples that fell here, as far as they count (effective sample size)."""
    share_of_outcome: float
    """Of the samples with this outcome, the share of this group."""
    interval_low: float
    """95 % interval of that share (Wilson, effective sample size)."""
    interval_high: float
    bound_low: float
    """Bounds of the same share, from the bounds of the probabilities: no sampling in them."""
    bound_high: float


@dataclass(frozen=True)
class BiasAudit:
    """The table of groups by outcomes."""

    template: str
    groups: tuple[str, ...]
    outcomes: tuple[str, ...]
    cells: tuple[Cell, ...]
    statistic: float
    """Pearson's chi-square of independence, on the effective counts."""
    freedom: int
    p: float
    samples: int
    effective: float
    evaluations: int

    def to_dict(self) -> dict[str, Any]:
        """The JSON of it."""
        return {
            **{name: value for name, value in vars(self).items() if name != "cells"},
            "cells": [vars(cell) for cell in self.cells],
        }


def audit_bias(model: LanguageModel, template: Bias) -> BiasAudit:
    """Probabilities of every group with every outcome, samples of them, and a test of independence.

    The probabilities come with bounds and need no samples; the samples are drawn as the published audit
    draws them, weighted because masking token by token is not how a model writes, and tested by chi-square.

    Raises:
        InputError: if the query cannot be compiled.
    """
    began = model.cost.evaluations
    cells = [(group, outcome) for group in template.groups for outcome in template.outcomes]
    regexes = [_filled(template.template, group, outcome) for group, outcome in cells]
    bounds = np.array([_bounds(model, ask(template, regex=regex)) for regex in regexes]).reshape(
        len(template.groups), len(template.outcomes), 2
    )
    drawn = sample(
        model,
        ask(template, regex="|".join(f"({regex})" for regex in regexes)),
        template.samples,
        template.seed,
    )
    languages = [language_of(ask(template, regex=regex)) for regex in regexes]
    shares: dict[int, float] = defaultdict(float)
    for text, share in drawn.texts:
        for place, language in enumerate(languages):
            if language.accepts(text):
                shares[place] += share
                break
    counts = drawn.effective * np.array(
        [shares[place] for place in range(len(cells))], dtype=np.float64
    ).reshape(bounds.shape[:2])
    statistic, freedom, p = chi_square(counts)
    return BiasAudit(
        template=template.template,
        groups=template.groups,
        outcomes=template.outcomes,
        cells=tuple(
            _cell(template, bounds, counts, row, column)
            for row in range(len(template.groups))
            for column in range(len(template.outcomes))
        ),
        statistic=statistic,
        freedom=freedom,
        p=p,
        samples=len(drawn.drawn),
        effective=drawn.effective,
        evaluations=model.cost.evaluations - began,
    )


def _filled(template: str, group: str, outcome: str) -> str:
    """The regular expression of one cell; groups and outcomes are plain words, the rest is a regex."""
    filled = template.replace("{group}", f"({escape(group)})")
    return filled.replace("{outcome}", f"({escape(outcome)})")


def _bounds(model: LanguageModel, query: Query) -> tuple[float, float]:
    """Bounds that are close as a share of what they bound, however small that is."""
    tol = 1e-9
    while True:
        found = mass(model, query, tol)
        gap = found.upper - found.lower
        if found.stopped != "tolerance" or tol < LEAST or gap <= PRECISION * found.lower:
            return found.lower, found.upper
        # The gap was small enough, yet not beside the mass: as small as the mass may be at most.
        tol = min(tol, gap) * PRECISION


def _cell(template: Bias, bounds: Any, counts: Any, row: int, column: int) -> Cell:
    total = float(counts[:, column].sum())
    share = float(counts[row, column]) / total if total else 0.0
    low, high = wilson(share, total)
    others = [other for other in range(len(template.groups)) if other != row]
    lower, upper = (float(bound) for bound in bounds[row, column])
    most, least = bounds[others, column, 1].sum(), bounds[others, column, 0].sum()
    return Cell(
        group=template.groups[row],
        outcome=template.outcomes[column],
        lower=lower,
        upper=upper,
        samples=float(counts[row, column]),
        share_of_outcome=share,
        interval_low=low,
        interval_high=high,
        bound_low=lower / (lower + most) if lower + most else 0.0,
        bound_high=upper / (upper + least) if upper + least else 1.0,
    )
