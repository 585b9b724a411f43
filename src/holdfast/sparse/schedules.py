"""When gradual pruning removes which weights: the published thresholds, and the cubic schedule.

A step is an optimizer step, counted from 1. Both schedules prune elements, or blocks of rows of one column
by their largest magnitude.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from holdfast.answer import Answer, ColumnFormat, How, Section, Table
from holdfast.errors import InputError
from holdfast.numbers import counted, number, percent
from holdfast.report.figures import lines

if TYPE_CHECKING:
    import torch

PAPER = (
    "Narang, Elsen, Diamos, Sengupta: Exploring Sparsity in Recurrent Neural Networks, ICLR 2017"
)
BLOCK_PAPER = "Narang, Undersander, Diamos: Block-Sparse Recurrent Neural Networks, 2017"

_RECURRENT = re.compile(r"(^|\.)weight_(ih|hh)(_l\d+(_reverse)?)?$")
_LINEAR = re.compile(r"(^|\.)weight$")
# A state dict does not say which matrices are looked up by row; their names do.
_EMBEDDING = re.compile(r"emb|\bwte\b|\bwpe\b", re.IGNORECASE)


def kind_of(name: str, dimensions: int) -> str | None:
    """The layer type of a parameter, "recurrent" or "linear", by its name in a state dict.

    Biases, norms, convolutions and embeddings have none.
    """
    if dimensions != 2 or _EMBEDDING.search(name):
        return None
    return "recurrent" if _RECURRENT.search(name) else "linear" if _LINEAR.search(name) else None


def no_weights(path: Path | None = None) -> InputError:
    """The error of a state dict, or a file with one, that has nothing to prune or pack."""
    return InputError(
        "no linear or recurrent weights",
        code="no-data",
        path=path,
        place="state dict",
        expected="matrices named weight, weight_ih_l0, weight_hh_l0 ...",
    )


def percentiles(
    state: Mapping[str, Any] | torch.nn.Module,
    share: float = 0.9,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
) -> dict[str, float]:
    """The magnitude q that the published schedule ends at, for each layer type of a dense run.

    Args:
        state: a model that was trained without pruning, or its state dict (torch or NumPy). Of a model the
            weights count that `Pruner` prunes; a state dict does not say which matrices are embeddings.
        share: the percentile of the magnitudes, over all weights of a type; 0.9 in the paper.
        include: see `prunable`.
        exclude: see `prunable`.

    Returns:
        Layer type ("recurrent", "linear") -> q, the magnitude of an actual weight.

    Raises:
        InputError: if the state has no weight that could be pruned, or one of an unknown layer.
    """
    return {
        kind: float(magnitudes[max(0, int(np.ceil(share * len(magnitudes))) - 1)])
        for kind, magnitudes in sorted_magnitudes(prunable(state, include, exclude)).items()
    }


def prunable(
    state: Mapping[str, Any] | torch.nn.Module,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
) -> dict[str, tuple[str, Any]]:
    """Name -> layer type and weight, of all matrices of linear and recurrent layers.

    Args:
        state: a model, whose modules say what a weight is, or a state dict, where a matrix ``weight`` with
            a bias of its height is of a linear layer.
        include: patterns of names in a state dict that are weights of linear layers.
        exclude: patterns of names that are not, such as those of embeddings.

    Raises:
        InputError: if there is none, or a name of a state dict could be an embedding.
    """
    if not isinstance(state, Mapping):
        from holdfast.sparse.pruning import weights_with_kind

        names = {
            name: (kind, weight)
            for name, kind, weight in weights_with_kind(state)
            if not matches(name, exclude)
        }
    else:
        names, unknown = {}, []
        for name, weight in state.items():
            kind = kind_of(name.rpartition(".")[2], weight.ndim)
            if not kind or matches(name, exclude):
                continue
            bias = state.get(f"{name.removesuffix('weight')}bias")
            if (
                kind == "recurrent"
                or (bias is not None and bias.shape == weight.shape[:1])
                or matches(name, include)
            ):
                names[name] = kind, weight
            elif not _EMBEDDING.search(name):
                unknown.append(name)
        if unknown:
            raise InputError(
                "a linear layer or an embedding: a state dict does not say",
                code="ambiguous",
                place=", ".join(unknown),
                remedy="include linear layers and exclude embeddings by name, or give the model (Python)",
            )
    if not names:
        raise no_weights()
    return names


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name matches one of several patterns with wildcards."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def sorted_magnitudes(
    weights: Mapping[str, tuple[str, Any]], block: int = 1
) -> dict[str, np.ndarray]:
    """Layer type -> the magnitudes of all its weights (of blocks, their largest), ascending."""
    import torch

    from holdfast.sparse.pruning import block_maxima

    by_kind: dict[str, list[torch.Tensor]] = {}
    for kind, weight in weights.values():
        magnitudes = torch.as_tensor(weight).detach().float().cpu().abs()
        by_kind.setdefault(kind, []).append(block_maxima(magnitudes, block).flatten())
    return {kind: torch.cat(parts).sort().values.numpy() for kind, parts in by_kind.items()}


@dataclass(frozen=True)
class Narang:
    """The published schedule: a threshold that rises slowly, then 1.5 times as fast, then stays.

    At every step with start < step < end and step % freq == 0 a weight is kept if its magnitude exceeds

        eps = theta (step - start + 1) / freq                                      before ramp
        eps = (theta (ramp - start + 1) + phi (step - ramp + 1)) / freq            from ramp on
        theta = 2 q freq / (2 (ramp - start) + 3 (end - ramp)),  phi = 1.5 theta

    How sparse the weights become is an outcome. Blocks of n weights multiply theta by n^(1/4).

    Args:
        q: magnitude below which 90 % of the weights of this type lie in a dense run: see `percentiles`.
        start: step after which pruning starts.
        ramp: step from which the threshold rises faster.
        end: step before which pruning ends.
        freq: steps between updates of the mask.
        block: rows per block: 1 for single weights, 16 for the packed layout bsr16x1.

    Raises:
        InputError: unless q > 0 and 0 <= start < ramp < end, with at least one update between them.
    """

    q: float
    start: int
    ramp: int
    end: int
    freq: int = 100
    block: int = 1

    def __post_init__(self) -> None:
        _check(
            self, ("start", "ramp", "end"), ("q", 0 < self.q < np.inf, "above 0: see `percentiles`")
        )

    @classmethod
    def of_epochs(
        cls, q: float, epochs: int, steps_per_epoch: int, freq: int = 100, block: int = 1
    ) -> Narang:
        """The paper's choice: from the second epoch, faster after 25 % of the epochs, until 50 %."""
        steps = epochs * steps_per_epoch
        return cls(q, steps_per_epoch, round(0.25 * steps), round(0.5 * steps), freq, block)

    @property
    def theta(self) -> float:
        """The slope of the threshold per update until `ramp`."""
        steps = 2 * (self.ramp - self.start) + 3 * (self.end - self.ramp)
        return float(2 * self.q * self.freq / steps * self.block**0.25)

    @property
    def phi(self) -> float:
        """The slope per update from `ramp` on."""
        return 1.5 * self.theta

    @property
    def updates(self) -> Sequence[int]:
        """The steps at which the masks change, ascending."""
        return _updates(self)

    def threshold(self, step: int) -> float:
        """The magnitude that a weight must exceed at an update."""
        if step < self.ramp:
            return self.theta * (step - self.start + 1) / self.freq
        rise = self.theta * (self.ramp - self.start + 1) + self.phi * (step - self.ramp + 1)
        return rise / self.freq

    def keep(self, magnitudes: torch.Tensor, step: int) -> torch.Tensor:
        """Mask of the weights (or blocks) that stay at an update, from their magnitudes."""
        return magnitudes > self.threshold(step)


@dataclass(frozen=True)
class Cubic:
    """A given sparsity, approached fast and then slowly (Zhu and Gupta, 2017).

    At each update the smallest weights of every matrix are removed, up to the share
    s = final (1 - (1 - (step - start) / (end - start))^3).

    Args:
        final: share of the weights of each matrix that is removed in the end.
        start: step after which pruning starts.
        end: step at which the final sparsity is reached, and the last update.
        freq: steps between updates of the mask.
        block: rows per block: 1 for single weights, 16 for the packed layout bsr16x1.

    Raises:
        InputError: unless 0 < final < 1 and 0 <= start < end.
    """

    final: float
    start: int
    end: int
    freq: int = 100
    block: int = 1

    def __post_init__(self) -> None:
        _check(self, ("start", "end"), ("final", 0 < self.final < 1, "between 0 and 1"))

    @property
    def updates(self) -> Sequence[int]:
        """The steps at which the masks change, ascending."""
        return [*_updates(self), self.end]

    def sparsity(self, step: int) -> float:
        """The share of weights that an update removes."""
        left = 1 - (min(step, self.end) - self.start) / (self.end - self.start)
        return self.final * (1 - left**3)

    def keep(self, magnitudes: torch.Tensor, step: int) -> torch.Tensor:
        """Mask of the weights (or blocks) that stay at an update; ties keep the later ones."""
        removed = magnitudes.flatten().argsort(stable=True)
        mask = magnitudes.new_ones(magnitudes.numel(), dtype=bool)
        mask[removed[: round(self.sparsity(step) * len(removed))]] = False
        return mask.view(magnitudes.shape)


def _updates(schedule: Narang | Cubic) -> Sequence[int]:
    freq = max(schedule.freq, 1)  # a wrong one is about to be refused
    return range((schedule.start // freq + 1) * freq, schedule.end, freq)


def _check(schedule: Narang | Cubic, names: Sequence[str], target: tuple[str, bool, str]) -> None:
    steps = [getattr(schedule, name) for name in names]
    ascending = zip(names, [-1, *steps], steps, strict=False)
    for place, right, expected in (
        target,
        ("freq", schedule.freq >= 1, "1 or more"),
        ("block", schedule.block >= 1, "1 or more"),
        *((name, low < high, f"more than {low}") for name, low, high in ascending),
        ("freq", len(schedule.updates) > 0, "an update between start and end"),
    ):
        if not right:
            raise InputError(
                "impossible pruning schedule",
                code="out-of-range",
                place=place,
                found=str(getattr(schedule, place)),
                expected=expected,
                remedy="q must be of a dense run; the published epochs need at least 5",
            )


@dataclass(frozen=True)
class PruningPlan(Answer):
    """What a schedule does to the weights of a dense run.

    Args:
        weights: names of the weights whose magnitudes count.
        schedules: layer type -> its schedule.
        rows: one per layer type and update: kind, step, threshold, sparsity.
    """

    weights: list[str]
    schedules: dict[str, Narang]
    rows: list[dict[str, Any]]

    title = "Pruning schedule"

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast sparse plan``."""
        last = self._last
        schedules = {
            kind: {**vars(s), "theta": s.theta, "phi": s.phi, "sparsity": last[kind]["sparsity"]}
            for kind, s in self.schedules.items()
        }
        return {"weights": self.weights, "schedules": schedules, "updates": self.rows}

    @property
    def _last(self) -> dict[str, dict[str, Any]]:
        return {row["kind"]: row for row in self.rows}

    def inputs(self) -> Sequence[tuple[str, str]]:
        """The weights."""
        return [("weights", ", ".join(self.weights))]

    def sections(self) -> Sequence[Section]:
        """The thresholds, and how sparse the dense weights would be under them."""
        parts = [f"{percent(row['sparsity'], 1)} of the {kind}" for kind, row in self._last.items()]
        one = next(iter(self.schedules.values()))
        sentence = (
            f"{counted(len(one.updates), 'update')} between steps {one.start:,} and {one.end:,} would "
            f"remove {' and '.join(parts)} weights of the dense run."
        )
        columns = {
            "kind": ColumnFormat("Layers"),
            "step": ColumnFormat("Step"),
            "threshold": ColumnFormat("Threshold"),
            "sparsity": ColumnFormat("Sparsity", "%", digits=1),
        }
        how = How(
            [
                "theta = 2 q freq / (2 (ramp - start) + 3 (end - ramp)), phi = 1.5 theta",
                "threshold = theta (step - start + 1) / freq before ramp",
                "threshold = (theta (ramp - start + 1) + phi (step - ramp + 1)) / freq from ramp on",
            ],
            parameters={
                f"{kind}: q, theta, phi": f"{number(s.q, 5)}, {number(s.theta, 6)}, {number(s.phi, 6)}"
                for kind, s in self.schedules.items()
            }
            | {"start, ramp, end, freq": f"{one.start}, {one.ramp}, {one.end}, {one.freq}"},
            source=PAPER if one.block == 1 else f"{PAPER}; {BLOCK_PAPER} (theta times block^(1/4))",
            notes="Sparsity is an outcome of training; weights that pruning lets grow or shrink change it.",
        )
        colours = {"recurrent": "user", "linear": "system"}
        meanings = {kind: colours[kind] for kind in self.schedules}
        figures = [
            lines(self.rows, "step", y, "Optimizer step", title, series="kind", meanings=meanings)
            for y, title in (("threshold", "Threshold"), ("sparsity", "Sparsity"))
        ]
        last = list(self._last.values())
        tables = [Table(pa.Table.from_pylist(last), columns, "The last update of each layer type.")]
        question = "Which weights are removed, and when?"
        return [Section("schedule", question, sentence, figures, tables, how)]


def plan(
    state: Mapping[str, Any] | torch.nn.Module,
    epochs: int,
    steps_per_epoch: int,
    *,
    freq: int = 100,
    share: float = 0.9,
    block: int = 1,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
) -> PruningPlan:
    """The published schedule for a model, and the sparsity that it would give the dense weights.

    Args:
        state: model of a dense run, or its state dict.
        epochs: epochs of the run that is to be pruned.
        steps_per_epoch: optimizer steps per epoch.
        freq: steps between updates of the masks.
        share: percentile of the dense magnitudes that the threshold ends at.
        block: rows per block.
        include: see `percentiles`.
        exclude: see `percentiles`.

    Raises:
        InputError: if the state has no weights, or one of an unknown layer, is mostly zero, or the epochs
            are too few.
    """
    weights = prunable(state, include, exclude)
    magnitudes = sorted_magnitudes(weights, block)
    q = percentiles(state, share, include=include, exclude=exclude)
    schedules = {
        kind: Narang.of_epochs(each, epochs, steps_per_epoch, freq, block)
        for kind, each in q.items()
    }
    rows = []
    for kind, schedule in schedules.items():
        for step in schedule.updates:
            eps = schedule.threshold(step)
            removed = np.searchsorted(magnitudes[kind], eps, side="right") / len(magnitudes[kind])
            rows.append({"kind": kind, "step": step, "threshold": eps, "sparsity": float(removed)})
    return PruningPlan(list(weights), schedules, rows)
