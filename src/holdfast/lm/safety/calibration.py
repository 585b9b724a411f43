"""How well annotators agree with people, and what the share of unsafe responses is after their errors.

The labels must be a random sample of the judged responses. Two corrections follow from them: that of
Rogan and Gladen (1978), which takes the errors out of the share of verdicts, and the prediction-powered
estimate (Angelopoulos et al. 2023), the share of verdicts plus the mean error on the labelled items.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Unknown, Value
from holdfast.errors import InputError
from holdfast.lm.safety.annotators import read_verdicts
from holdfast.lm.safety.journal import Journal
from holdfast.lm.safety.verdicts import EVERY, Ensemble, make_states, read_states
from holdfast.numbers import counted, interval, number, percent
from holdfast.stats import NORMAL_95, clopper_pearson_interval

_FEWEST = 30
"""Labels below which no share is corrected."""
_NOT_RANDOM_P = 0.001


@dataclass(frozen=True)
class Calibration(Answer):
    """Annotators against people.

    Args:
        run: folder; annotators: whose verdicts together.
        labelled: items with a verdict and a label; unused: labels of items without a verdict.
        confusion: ``unsafe_unsafe`` (label, then verdict), ``unsafe_safe``, ``safe_unsafe``, ``safe_safe``.
        agreement: share of equal ones; kappa: Cohen's, with ``kappa_ci95``; None where nothing varies.
        sensitivity: share of the unsafe responses that are called unsafe; specificity: of the safe ones
            that are called safe; with intervals (Clopper-Pearson).
        judged: items with a verdict; unsafe_share: of their verdicts.
        rogan_gladen, prediction_powered: corrected unsafe shares with intervals; None where the labels
            do not allow one: see `reasons`.
        reasons: why a correction is missing.
    """

    run: Path
    annotators: list[str]
    labelled: int
    unused: int
    confusion: dict[str, int]
    agreement: float
    kappa: float | None
    kappa_ci95: tuple[float, float] | None
    sensitivity: float | None
    sensitivity_ci95: tuple[float, float]
    specificity: float | None
    specificity_ci95: tuple[float, float]
    judged: int
    unsafe_share: float
    rogan_gladen: float | None
    rogan_gladen_ci95: tuple[float, float] | None
    prediction_powered: float | None
    prediction_powered_ci95: tuple[float, float] | None
    reasons: list[str]

    @property
    def title(self) -> str:
        """The heading."""
        return "Annotators against people"

    def inputs(self) -> Sequence[tuple[str, str]]:
        """The run and whose verdicts."""
        return [("run", str(self.run)), ("annotators", ", ".join(self.annotators))]

    def values(self) -> Sequence[Value]:
        """The agreement and the corrected shares."""
        return [
            Value("kappa", self.kappa, "", self.kappa_ci95, "higher"),
            Value("sensitivity", self.sensitivity, "", self.sensitivity_ci95, "higher"),
            Value("specificity", self.specificity, "", self.specificity_ci95, "higher"),
            Value(
                "unsafe_share_rogan_gladen", self.rogan_gladen, "", self.rogan_gladen_ci95, "lower"
            ),
            Value(
                "unsafe_share_prediction_powered",
                self.prediction_powered,
                "",
                self.prediction_powered_ci95,
                "lower",
            ),
        ]

    def sections(self) -> Sequence[Section]:
        """Agreement, and the corrected share."""
        low, high = (100 * end for end in self.sensitivity_ci95)
        sentence = (
            f"Of the responses that people call unsafe, the annotators find {percent(self.sensitivity)} "
            f"{interval(low, high, 1)}; kappa is {number(self.kappa, 2)} "
            f"over {counted(self.labelled, 'label')}."
        )
        confusion = [
            {"label": label, **{f"{v}": self.confusion[f"{label}_{v}"] for v in ("unsafe", "safe")}}
            for label in ("unsafe", "safe")
        ]
        table = Table(
            pa.Table.from_pylist(confusion),
            {
                "label": ColumnFormat("People say"),
                "unsafe": ColumnFormat("Verdict unsafe"),
                "safe": ColumnFormat("Verdict safe"),
            },
        )
        rows = [
            {"estimate": name, "share": share, "low": ends and ends[0], "high": ends and ends[1]}
            for name, share, ends in (
                ("verdicts as they are", self.unsafe_share, None),
                ("Rogan-Gladen", self.rogan_gladen, self.rogan_gladen_ci95),
                ("prediction-powered", self.prediction_powered, self.prediction_powered_ci95),
            )
        ]
        corrected = (
            f"{percent(self.prediction_powered)} of the {self.judged:,} judged responses are unsafe after "
            f"correction, against {percent(self.unsafe_share)} by the verdicts."
            if self.prediction_powered is not None
            else "The labels do not allow a correction."
        )
        shares = Table(
            pa.Table.from_pylist(rows, _SHARES),
            {
                "estimate": ColumnFormat("Estimate"),
                "share": ColumnFormat("Unsafe", "%", 2, ("low", "high")),
            },
        )
        how = How(
            (
                "Rogan-Gladen: (q + specificity - 1) / (sensitivity + specificity - 1)",
                "prediction-powered: q + mean(label - verdict) over the labelled items",
                "q: share of unsafe verdicts over all judged items",
            ),
            source="Rogan and Gladen 1978; Angelopoulos et al. 2023, Science 382",
            notes="Intervals: delta method and normal approximation, for labels drawn at random.",
        )
        return [
            Section("agreement", "Do the annotators agree with people?", sentence, tables=[table]),
            Section("share", "How many are unsafe?", corrected, tables=[shares], how=how),
        ]

    def unknowns(self) -> Sequence[Unknown]:
        """What the labels do not say."""
        return [Unknown(reason, "label a random sample of the run") for reason in self.reasons]


_SHARES = pa.schema(
    [("estimate", pa.string()), *((name, pa.float64()) for name in ("share", "low", "high"))]
)


def calibrate(run: str | Path, labels: str | Path, *, ensemble: Ensemble = EVERY) -> Calibration:
    """Hold the verdicts of a run against labels of people.

    Args:
        run: its folder.
        labels: CSV or JSON lines with ``item`` and ``label`` (safe or unsafe).
        ensemble: whose verdicts count.

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
            "a label is of no item of this run",
            code="no-match",
            path=labels,
            found=foreign[0],
            expected="ids of items, as holdfast lm safety items -o writes them",
        )
    verdicts = Counter(state for state in states.values() if state in ("safe", "unsafe"))
    pairs = Counter((label, states[item]) for item, label in truth.items())
    table = {f"{a}_{b}": pairs[a, b] for a in ("unsafe", "safe") for b in ("unsafe", "safe")}
    labelled = sum(table.values())
    if not labelled:
        raise InputError("no labelled item has a verdict", code="no-data", path=labels)
    reasons = _reasons(table, verdicts)
    return Calibration(
        Path(run),
        annotators,
        labelled,
        len(truth) - labelled,
        table,
        (table["unsafe_unsafe"] + table["safe_safe"]) / labelled,
        *_kappa(table),
        *_share(table["unsafe_unsafe"], table["unsafe_safe"]),
        *_share(table["safe_safe"], table["safe_unsafe"]),
        verdicts.total(),
        verdicts["unsafe"] / verdicts.total(),
        *((None, None) if reasons else _rogan_gladen(table, verdicts)),
        *((None, None) if reasons else _prediction_powered(table, verdicts)),
        reasons,
    )


def _share(hits: int, misses: int) -> tuple[float | None, tuple[float, float]]:
    total = hits + misses
    return (hits / total if total else None), clopper_pearson_interval(hits, total)


def _reasons(table: Mapping[str, int], verdicts: Counter[str]) -> list[str]:
    """Why the labels allow no correction."""
    found = []
    labelled = sum(table.values())
    unsafe = table["unsafe_unsafe"] + table["safe_unsafe"]
    if labelled < _FEWEST:
        found.append(f"{labelled} labels are too few to correct a share ({_FEWEST} are needed).")
    if not (
        table["unsafe_unsafe"] + table["unsafe_safe"] and table["safe_safe"] + table["safe_unsafe"]
    ):
        found.append("All labels are alike: one kind of error cannot be seen.")
    elif _informedness(table) <= 0:
        found.append(
            "The verdicts say nothing about the labels (sensitivity + specificity is 1 or less)."
        )
    if _not_random(unsafe, labelled, verdicts):
        found.append(
            f"The labelled items are not a random sample: {unsafe:,} of {labelled:,} have the verdict "
            f"unsafe, of all {verdicts['unsafe']:,} of {verdicts.total():,}."
        )
    return found


def _informedness(table: Mapping[str, int]) -> float:
    sensitivity = table["unsafe_unsafe"] / (table["unsafe_unsafe"] + table["unsafe_safe"])
    return sensitivity + table["safe_safe"] / (table["safe_safe"] + table["safe_unsafe"]) - 1


def _not_random(unsafe: int, labelled: int, verdicts: Counter[str]) -> bool:
    """Whether a random sample would hardly have so many, or so few, unsafe verdicts (hypergeometric)."""
    from scipy.special import gammaln

    def log_choose(n: int, k: int) -> float:
        return float(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))

    total, bad = verdicts.total(), verdicts["unsafe"]
    counts = range(max(0, labelled - (total - bad)), min(labelled, bad) + 1)
    scale = log_choose(total, labelled)
    chances = [
        math.exp(log_choose(bad, k) + log_choose(total - bad, labelled - k) - scale) for k in counts
    ]
    mine = chances[unsafe - counts.start]
    return sum(chance for chance in chances if chance <= mine * (1 + 1e-9)) < _NOT_RANDOM_P


def _kappa(table: Mapping[str, int]) -> tuple[float | None, tuple[float, float] | None]:
    """Cohen's kappa and its interval (Fleiss, Cohen and Everitt 1969)."""
    n = sum(table.values())
    p = {key: count / n for key, count in table.items()}
    label = {a: p[f"{a}_unsafe"] + p[f"{a}_safe"] for a in ("unsafe", "safe")}
    verdict = {b: p[f"unsafe_{b}"] + p[f"safe_{b}"] for b in ("unsafe", "safe")}
    chance = sum(label[a] * verdict[a] for a in label)
    if chance == 1:
        return None, None
    kappa = (p["unsafe_unsafe"] + p["safe_safe"] - chance) / (1 - chance)
    same = sum(p[f"{a}_{a}"] * (1 - (label[a] + verdict[a]) * (1 - kappa)) ** 2 for a in label)
    other = (1 - kappa) ** 2 * sum(
        p[f"{a}_{b}"] * (verdict[a] + label[b]) ** 2 for a in label for b in verdict if a != b
    )
    variance = (same + other - (kappa - chance * (1 - kappa)) ** 2) / (n * (1 - chance) ** 2)
    half = NORMAL_95 * math.sqrt(max(0.0, variance))
    return kappa, (max(-1.0, kappa - half), min(1.0, kappa + half))


def _rogan_gladen(
    table: Mapping[str, int], verdicts: Counter[str]
) -> tuple[float, tuple[float, float]]:
    """The unsafe share without the annotators' errors, and its interval by the delta method."""
    unsafe = table["unsafe_unsafe"] + table["unsafe_safe"]
    safe = table["safe_safe"] + table["safe_unsafe"]
    sensitivity, specificity = table["unsafe_unsafe"] / unsafe, table["safe_safe"] / safe
    q, n = verdicts["unsafe"] / verdicts.total(), verdicts.total()
    informed = sensitivity + specificity - 1
    share = (q + specificity - 1) / informed
    variance = (
        q * (1 - q) / n
        + share**2 * sensitivity * (1 - sensitivity) / unsafe
        + (1 - share) ** 2 * specificity * (1 - specificity) / safe
    ) / informed**2
    return _clipped(share, variance)


def _prediction_powered(
    table: Mapping[str, int], verdicts: Counter[str]
) -> tuple[float, tuple[float, float]]:
    """The share of verdicts plus the mean error on the labelled items."""
    n, total = sum(table.values()), verdicts.total()
    q = verdicts["unsafe"] / total
    error = (table["unsafe_safe"] - table["safe_unsafe"]) / n
    spread = (table["unsafe_safe"] + table["safe_unsafe"]) / n - error**2
    return _clipped(q + error, q * (1 - q) / total + spread / n)


def _clipped(share: float, variance: float) -> tuple[float, tuple[float, float]]:
    half = NORMAL_95 * math.sqrt(variance)
    low, high = (min(1.0, max(0.0, end)) for end in (share - half, share + half))
    return min(1.0, max(0.0, share)), (low, high)
