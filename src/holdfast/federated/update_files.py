"""Updates in files, aggregated into one file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mode

import pyarrow as pa

from holdfast.answer import Answer, Section, Table, Unknown
from holdfast.errors import InputError
from holdfast.federated.aggregation import aggregate, combine
from holdfast.federated.updates import (
    Record,
    Update,
    Weights,
    distance,
    read_update,
    screen,
    trained,
    write_weights,
)
from holdfast.numbers import counted

BUFFERS = ("running_mean", "running_var")
"""Ends of names that PyTorch gives to statistics of its layers."""


@dataclass(frozen=True)
class Aggregated(Answer):
    """What was aggregated from files."""

    rule: str
    """Name of the rule."""
    updates: list[Record]
    """Rows ``{"update", "examples", "distance", "excluded"}``: distance from the result; the reason of an
    exclusion, empty for those that were used."""
    output: Path
    """File of the aggregated weights."""

    title = "Aggregated updates"

    def written(self) -> Mapping[str, Path]:
        """The weights."""
        return {"weights": self.output}

    def unknowns(self) -> Sequence[Unknown]:
        """Updates that were excluded."""
        excluded = [row for row in self.updates if row["excluded"]]
        return [Unknown(f"{row['update']} was excluded: {row['excluded']}.") for row in excluded]

    def sections(self) -> Sequence[Section]:
        """One row per update."""
        used = sum(not row["excluded"] for row in self.updates)
        sentence = f"{used} of {counted(len(self.updates), 'update')} aggregated by {self.rule}."
        table = Table(pa.Table.from_pylist(self.updates), caption="distance: from the result")
        return [Section("updates", "Which updates were used?", sentence, tables=[table])]


def aggregate_files(
    paths: Sequence[str | Path],
    output: str | Path,
    rule: str = "fedavg",
    f: int = 1,
    largest_norm: float | None = None,
) -> Aggregated:
    """Aggregate updates in safetensors files.

    Names and shapes are those that most of the files have; the bound of the norm holds around the median.
    Statistics of PyTorch's layers (`BUFFERS`) have no part in distances.

    Args:
        paths: one per client.
        output: file of the result.
        rule: one that needs weights and examples alone.
        f: number of liars that it has to withstand.
        largest_norm: updates farther than this from the median of all are excluded.

    Raises:
        InputError: a file that cannot be read; ``conflict`` if one is named twice, or is the output;
            ``too-few-updates``.
    """
    output = Path(output)
    # Each file once, and the output is none of them.
    places = Counter(Path(path).resolve() for path in [*paths, output])
    twice, times = places.most_common(1)[0]
    if times > 1:
        problem, remedy = "a file is named twice", "name each update once, and another output"
        raise InputError(problem, code="conflict", path=twice, remedy=remedy)
    updates = [read_update(Path(path)) for path in paths]
    if not updates:
        raise InputError("no updates", code="no-data", expected="one file per client")
    form = _commonest_form(updates)
    buffers = [name for name in form if name.endswith(BUFFERS)]
    usable, _ = screen(form, updates)
    if usable and largest_norm is not None:
        form, _ = combine("median", form, usable, {}, {"f": 0}, buffers)
    parameters: Record = {} if rule == "fedavg" else {"f": f}
    weights, _, failures = aggregate(
        rule, form, updates, largest_norm=largest_norm, buffers=buffers, **parameters
    )
    compared = trained(weights, buffers)
    reasons = {failure.client: f"{failure.code}: {failure.reason}" for failure in failures}
    used = sum(each.examples for each in updates if each.client not in reasons)
    write_weights(output, weights, {"examples": str(used)})
    rows: list[Record] = [
        {
            "update": each.client,
            "examples": each.examples,
            "distance": None if each.client in reasons else distance(compared, each.weights),
            "excluded": reasons.get(each.client, ""),
        }
        for each in updates
    ]
    return Aggregated(rule, rows, output)


def _commonest_form(updates: Sequence[Update]) -> Weights:
    """The weights of an update whose names and shapes most updates have, in their widest type."""
    forms = [
        tuple(sorted((n, a.shape, a.dtype.kind == "f") for n, a in update.weights.items()))
        for update in updates
    ]
    common = mode(forms)
    alike = [update for update, form in zip(updates, forms, strict=True) if form == common]
    return max(alike, key=lambda update: update.nbytes).weights
