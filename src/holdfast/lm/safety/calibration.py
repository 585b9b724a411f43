"""How well annotators agree with people, and what the share of unsafe responses is after their errors.

The labels must be a random sample of the judged responses. Two corrections follow from them: that of
Rogan and Gladen (1978), which takes the errors out of the share of verdicts, and the prediction-powered
estimate (Angelopoulos et al. 2023), the share of verdicts plus the mean error on the labelled items. Their
intervals are made for few labels and rare errors, where the delta method has no width.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa

from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Unknown
from holdfast.command import option
from holdfast.errors import InputError
from holdfast.lm.safety.annotators import read_verdicts
from holdfast.lm.safety.ensemble import EVERY, Ensemble
from holdfast.lm.safety.journal import Journal
from holdfast.lm.safety.uncertainty import corrected_interval
from holdfast.lm.safety.verdicts import make_states, read_states
from holdfast.numbers import counted, interval, number, percent
from holdfast.stats import NORMAL_95, chi_square, clopper_pearson_interval

_FEWEST = 30
"""Labels below which no share is corrected."""
_NOT_RANDOM_P = 0.001
_LABELS = ("unsafe", "safe")
_CORRECTIONS = ("rogan_gladen", "prediction_powered")
Ends = tuple[float, float]


@dataclass(frozen=True)
class Calibration(Answer):
    """Annotators against people.

    Args:
        run: folder; annotators: whose verdicts together.
        labelled: items with a verdict and a label; unused: labels of items without a verdict.
        confusion: ``unsafe_unsafe`` (label, then verdict), ``unsafe_safe``, ``safe_unsafe``, ``safe_safe``.
        agreement: share of equal ones; kappa: Cohen's; None where nothing varies.
        sensitivity: share of the unsafe responses that are called unsafe; specificity: of the safe ones
            that are called safe; with intervals (Clopper-Pearson).
        judged: items with a verdict; unsafe_share: of their verdicts.
        rogan_gladen, prediction_powered: corrected unsafe shares with intervals; None where the labels
            do not allow one.
        reasons: why a correction is missing.
    """

    run: Path
    annotators: list[str]
    labelled: int
    unused: int
    confusion: dict[str, int]
    agreement: float
    kappa: float | None
    sensitivity: float | None
    sensitivity_ci95: Ends
    specificity: float | None
    specificity_ci95: Ends
    judged: int
    unsafe_share: float
    reasons: list[str]
    rogan_gladen: float | None = None
    rogan_gladen_ci95: Ends | None = None
    prediction_powered: float | None = None
    prediction_powered_ci95: Ends | None = None

    title = "Annotators against people"

    def sections(self) -> Sequence[Section]:
        """Agreement, and the corrected share."""
        low, high = (100 * end for end in self.sensitivity_ci95)
        sentence = (
            f"Of the responses that people call unsafe, the annotators find {percent(self.sensitivity)} "
            f"{interval(low, high, 1)}; kappa is {number(self.kappa, 2)} "
            f"over {counted(self.labelled, 'label')}."
        )
        confusion = [
            {"people": a, **{f"verdict {b}": self.confusion[f"{a}_{b}"] for b in _LABELS}}
            for a in _LABELS
        ]
        corrected = (
            "The labels do not allow a correction."
            if self.prediction_powered is None
            else f"{percent(self.prediction_powered)} of the {self.judged:,} judged responses are unsafe "
            f"after correction, against {percent(self.unsafe_share)} by the verdicts."
        )
        shares: list[dict[str, Any]] = [
            {"estimate": "verdicts as they are", "share": self.unsafe_share}
        ]
        for name in _CORRECTIONS:
            ends = getattr(self, f"{name}_ci95") or (None, None)
            row = (name.replace("_", "-"), getattr(self, name), *ends)
            shares.append(dict(zip(_SHARES.names, row, strict=True)))
        columns = {
            "estimate": ColumnFormat(),
            "share": ColumnFormat("unsafe", "%", 2, ("low", "high")),
        }
        how = How(
            (
                "Rogan-Gladen: (q + specificity - 1) / (sensitivity + specificity - 1)",
                "prediction-powered: q + mean(label - verdict) over the labelled items",
                "q: share of unsafe verdicts over all judged items",
            ),
            notes="Intervals: Lang and Reiczigel; Bonett and Price. For labels drawn at random.",
        )
        tables = [Table(pa.Table.from_pylist(shares, _SHARES), columns)]
        agreement = [Table(pa.Table.from_pylist(confusion))]
        return [
            Section("agreement", "Do annotators agree with people?", sentence, tables=agreement),
            Section("share", "How many are unsafe?", corrected, tables=tables, how=how),
        ]

    def unknowns(self) -> Sequence[Unknown]:
        """What the labels do not say."""
        return [Unknown(reason, "Label a random sample of the run.") for reason in self.reasons]


_SHARES = pa.schema(
    [("estimate", pa.string()), *((name, pa.float64()) for name in ("share", "low", "high"))]
)


def calibrate(
    run: str | Path,
    /,
    labels: Annotated[str | Path, option(metavar="FILE")],
    *,
    ensemble: Ensemble = EVERY,
) -> Calibration:
    """Hold the verdicts of a run against labels of people.

    Args:
        run: Folder of the run.
        labels: CSV with item and label (safe or unsafe), of a random sample of the run.
        ensemble: Whose verdicts count.

    Raises:
        InputError: if no labelled item has a verdict, or a label is of no item of the run.
    """
    truth = {
        item: label for item, label in read_verdicts(Path(labels)).items() if label != "invalid"
    }
    with Journal(Path(run)) as journal:
        annotators = make_states(journal, ensemble)
        states = {name: state for name, _, _, state in read_states(journal)}
    foreign = [item for item in truth if item not in states]
    if foreign:
        raise InputError(
            "a label is of an item that is not in this run",
            code="no-match",
            path=labels,
            found=foreign[0],
            expected="ids of items, as holdfast lm safety items -o writes them",
        )
    verdicts = Counter(state for state in states.values() if state in ("safe", "unsafe"))
    pairs = Counter((label, states[item]) for item, label in truth.items())
    table = {f"{a}_{b}": pairs[a, b] for a in _LABELS for b in _LABELS}
    labelled = sum(table.values())
    if not labelled:
        raise InputError("no labelled item has a verdict", code="no-data", path=labels)
    reasons = _reasons(table, verdicts)
    sensitivity, specificity = _rates(table)
    return Calibration(
        run=Path(run),
        annotators=annotators,
        labelled=labelled,
        unused=len(truth) - labelled,
        confusion=table,
        agreement=(table["unsafe_unsafe"] + table["safe_safe"]) / labelled,
        kappa=_kappa(table),
        sensitivity=sensitivity,
        sensitivity_ci95=_interval(table["unsafe_unsafe"], table["unsafe_safe"]),
        specificity=specificity,
        specificity_ci95=_interval(table["safe_safe"], table["safe_unsafe"]),
        judged=verdicts.total(),
        unsafe_share=verdicts["unsafe"] / verdicts.total(),
        reasons=reasons,
        **({} if reasons else _corrected(table, verdicts)),
    )


def _interval(hits: int, misses: int) -> Ends:
    return clopper_pearson_interval(hits, hits + misses)


def _rates(table: Mapping[str, int]) -> tuple[float | None, float | None]:
    """Sensitivity and specificity; None without an unsafe, or a safe, label."""
    unsafe = table["unsafe_unsafe"], table["unsafe_safe"]
    safe = table["safe_safe"], table["safe_unsafe"]
    sensitivity, specificity = (
        each[0] / sum(each) if any(each) else None for each in (unsafe, safe)
    )
    return sensitivity, specificity


def _reasons(table: Mapping[str, int], verdicts: Counter[str]) -> list[str]:
    """Why the labels allow no correction."""
    reasons = []
    labelled = sum(table.values())
    unsafe = table["unsafe_unsafe"] + table["safe_unsafe"]
    sensitivity, specificity = _rates(table)
    if labelled < _FEWEST:
        reasons.append(f"{labelled} labels are too few to correct a share ({_FEWEST} are needed).")
    if sensitivity is None or specificity is None:
        reasons.append("All labels are alike: one kind of error cannot be seen.")
    elif sensitivity + specificity <= 1:
        reasons.append(
            "The verdicts say nothing about the labels (sensitivity + specificity <= 1)."
        )
    others = (verdicts["unsafe"] - unsafe, verdicts["safe"] - (labelled - unsafe))
    sampled = np.array([[unsafe, labelled - unsafe], others], dtype=np.float64)
    if chi_square(sampled)[2] < _NOT_RANDOM_P:
        reasons.append(
            f"The labels are not a random sample: {unsafe:,} of {labelled:,} have the verdict "
            f"unsafe, of all {verdicts['unsafe']:,} of {verdicts.total():,}."
        )
    return reasons


def _kappa(table: Mapping[str, int]) -> float | None:
    """Cohen's kappa (1960): agreement beyond chance."""
    n, both = sum(table.values()), table["unsafe_unsafe"]
    label, verdict = (both + table["unsafe_safe"]) / n, (both + table["safe_unsafe"]) / n
    chance = label * verdict + (1 - label) * (1 - verdict)
    agreement = (both + table["safe_safe"]) / n
    return (agreement - chance) / (1 - chance) if chance < 1 else None


def _corrected(table: Mapping[str, int], verdicts: Counter[str]) -> dict[str, Any]:
    """The unsafe share after both corrections, with intervals."""
    unsafe = (table["unsafe_unsafe"], table["unsafe_safe"])
    safe = (table["safe_safe"], table["safe_unsafe"])
    labelled, total = sum(table.values()), verdicts.total()
    q = verdicts["unsafe"] / total
    sensitivity, specificity = _rates(table)
    assert sensitivity is not None and specificity is not None  # noqa: PT018  # else there are reasons
    share = (q + specificity - 1) / (sensitivity + specificity - 1)
    # Bonett and Price (2012): an error of each kind more, so that none seen is not none.
    missed, false = ((count + 1) / (labelled + 2) for count in (unsafe[1], safe[1]))
    error = missed - false
    spread = (missed + false - error**2) / (labelled + 2) + q * (1 - q) / total
    half = NORMAL_95 * math.sqrt(spread)
    found = {
        "rogan_gladen": (share, *corrected_interval((verdicts["unsafe"], total), unsafe, safe)),
        "prediction_powered": (
            q + (unsafe[1] - safe[1]) / labelled,
            q + error - half,
            q + error + half,
        ),
    }
    corrected: dict[str, Any] = {}
    for name, values in found.items():
        estimate, low, high = np.clip(values, 0.0, 1.0).tolist()
        corrected |= {name: estimate, f"{name}_ci95": (min(low, estimate), max(high, estimate))}
    return corrected
