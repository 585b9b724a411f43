"""The answer of a federated run: accuracy by device over rounds, who failed, who switched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Unknown, Value
from holdfast.federated.state import Round
from holdfast.federated.updates import Array, Record
from holdfast.numbers import brief, counted, percent
from holdfast.report import figures

MOST_ROWS = 500


@dataclass(frozen=True)
class FederatedRun(Answer):
    """A run after its last round."""

    rule: str
    """Name of the aggregation rule."""
    parameters: Mapping[str, Any]
    """Of the rule, as far as they were set."""
    clients: int
    """Number of clients."""
    untested: Sequence[str]
    """Devices without test data."""
    history: Sequence[Round]
    """One entry per round."""
    failures: Sequence[Mapping[str, Any]]
    """Rows ``{"round", "client", "code", "reason"}``: each update that was not used."""
    weights: Mapping[str, Array]
    """Global weights after the last round."""
    privacy: Mapping[str, Any] | None = None
    """Settings of secure aggregation, and ``epsilon``, the privacy loss; None: no update was hidden."""
    folder: Path | None = None
    """Where the state is; None: nowhere."""

    @property
    def accuracy(self) -> dict[str, float]:
        """Device -> accuracy after the last round."""
        return self.history[-1].accuracy or {}

    @property
    def mean_accuracy(self) -> float | None:
        """Mean over devices, each counted once; None without test data."""
        return float(np.mean(list(self.accuracy.values()))) if self.accuracy else None

    @property
    def worst_device(self) -> str | None:
        """The device with the lowest accuracy; one whose accuracy is NaN is worse than all."""
        # `argmin` takes NaN for the least.
        names = list(self.accuracy)
        return names[np.argmin(list(self.accuracy.values()))] if names else None

    @property
    def variance_over_devices(self) -> float | None:
        """Population variance of the accuracies of the devices."""
        return float(np.var(list(self.accuracy.values()))) if self.accuracy else None

    title = "Federated run"

    def to_dict(self) -> Record:
        """The JSON of ``holdfast federated run``."""
        worst = self.worst_device
        rates = [
            {"round": row.number, "transform": row.transform, "averaging": row.averaging}
            for row in self.history
            if row.transform is not None
        ]
        return {
            "rounds": len(self.history),
            "mean_accuracy": self.mean_accuracy,
            "worst_device": worst and {"device": worst, "accuracy": self.accuracy[worst]},
            "variance_over_devices": self.variance_over_devices,
            "accuracy": self.accuracy,
            "bytes_up": sum(row.bytes_up for row in self.history),
            "bytes_down": sum(row.bytes_down for row in self.history),
            "failed_clients": list(self.failures),
            "skipped_rounds": [row.number for row in self.history if row.skipped],
            "switch_rates": rates,
            "privacy": self.privacy and dict(self.privacy),
        }

    def values(self) -> Sequence[Value]:
        """What two runs are compared by."""
        return [
            Value("mean_accuracy", self.mean_accuracy, better="higher"),
            Value("variance_over_devices", self.variance_over_devices, better="lower"),
            Value("bytes_up", self.to_dict()["bytes_up"], "bytes", better="lower"),
            Value("failed_clients", len(self.failures), better="lower"),
        ]

    def inputs(self) -> Sequence[tuple[str, str]]:
        """Rule and clients."""
        said = ", ".join(f"{name} = {value}" for name, value in self.parameters.items())
        return [("Rule", f"{self.rule} {said}".strip()), ("Clients", f"{self.clients:,}")]

    def _privacy(self) -> Section:
        """What the servers saw."""
        facts = self.privacy or {}
        loss = "without noise, so that the sum itself may tell about a client"
        if facts["epsilon"] is not None:
            loss = f"at a privacy loss of epsilon {brief(facts['epsilon'])} at delta {facts['delta']:g}"
        seen = "the sum of each round alone"
        if self.rule == "multi-krum":
            seen = "the distances between the updates and the sum of those that it chose"
        sentence = f"{facts['servers']} servers saw {seen}, {loss}."
        how = How(
            "sum of steps clipped to a norm, plus each server's Gaussian noise; composed by dp-accounting",
            dict(facts),
        )
        return Section("privacy", "What did the servers see?", sentence, how=how)

    def written(self) -> Mapping[str, Path]:
        """The folder of the run."""
        return {} if self.folder is None else {"run": self.folder}

    def unknowns(self) -> Sequence[Unknown]:
        """Rounds that changed nothing, devices without data."""
        unknowns = []
        skipped = [row for row in self.history if row.skipped]
        if skipped:
            rounds = counted(len(skipped), "round")
            text = (
                f"{rounds} had too few usable updates and changed nothing ({skipped[-1].skipped})."
            )
            unknowns.append(Unknown(text, "Ask more clients per round, or lower f.", doubt=True))
        if self.untested:
            text = f"Accuracy on {', '.join(self.untested)} is unknown: no test data."
            unknowns.append(Unknown(text, "Add test data of these devices.", doubt=True))
        if failed := [name for name, value in self.accuracy.items() if not np.isfinite(value)]:
            text = f"Accuracy on {', '.join(failed)} is unknown: outputs or metric are not finite."
            unknowns.append(Unknown(text, "Look for NaN in the test data.", doubt=True))
        if not self.accuracy and not self.untested:
            unknowns.append(Unknown("Accuracy is unknown: no test data.", "Pass held-out data."))
        return unknowns

    def sections(self) -> Sequence[Section]:
        """Accuracy, failures, switches."""
        measured = self.accuracy and all(map(np.isfinite, self.accuracy.values()))
        sections = [self._accuracy()] if measured else []
        sections.append(self._failures())
        if any(row.transform is not None for row in self.history):
            sections.append(self._switches())
        if self.privacy is not None:
            sections.append(self._privacy())
        return sections

    def _accuracy(self) -> Section:
        worst = self.worst_device or ""
        best = max(self.accuracy, key=self.accuracy.__getitem__)
        rows = []
        for row in self.history:
            lines = dict(row.accuracy or {})
            if len(lines) > 2:
                lines["mean"] = float(np.mean(list(lines.values())))
            # Nine lines could not be told apart: the mean, and the ends.
            shown = {best, worst, "mean"}
            rows += [
                {"round": row.number, "device": name, "accuracy": value}
                for name, value in lines.items()
                if name in shown
            ]
        sentence = f"{percent(self.mean_accuracy)} of held-out examples are classified correctly"
        sentence += f" after {counted(len(self.history), 'round')} of {self.rule}"
        if len(self.accuracy) > 1:
            sentence += (
                f", mean over {len(self.accuracy)} devices; {worst} is worst with "
                f"{percent(self.accuracy[worst])}, and devices differ by a standard deviation of "
                f"{100 * (self.variance_over_devices or 0.0) ** 0.5:.2f} points"
            )
        last = {"device": list(self.accuracy), "accuracy": list(self.accuracy.values())}
        columns = {"device": ColumnFormat(), "accuracy": ColumnFormat("Accuracy", "%", digits=2)}
        drawn = figures.lines(
            rows, "round", "accuracy", "Round", "Accuracy", series="device", zero=False
        )
        how = How(
            "variance = mean over devices of (accuracy - mean)^2",
            notes="Each device counts once, whatever its number of clients or examples.",
        )
        table = Table(pa.table(last), columns)
        asked = "How accurate is the model on each device?"
        return Section("accuracy", asked, sentence + ".", [drawn], [table], how)

    def _failures(self) -> Section:
        asked = "Which clients failed?"
        if not self.failures:
            return Section("failures", asked, "Every update was used.")
        codes = Counter(row["code"] for row in self.failures).most_common()
        clients = len({row["client"] for row in self.failures})
        parts = ", ".join(f"{count:,} {code}" for code, count in codes)
        total = counted(len(self.failures), "update")
        sentence = f"{total} of {counted(clients, 'client')} not used: {parts}."
        bars = [{"code": code, "updates": count} for code, count in codes]
        drawn = figures.bars(bars, "code", "updates", "Updates not used")
        table = Table(pa.Table.from_pylist(list(self.failures[:MOST_ROWS])))
        return Section("failures", asked, sentence, [drawn], [table])

    def _switches(self) -> Section:
        rows = [row for row in self.history if row.transform is not None]
        on = [np.mean([getattr(row, name) for row in rows]) for name in ("transform", "averaging")]
        sentence = (
            f"{percent(float(on[0]))} of the clients trained on transformed images, and "
            f"{percent(float(on[1]))} uploaded averaged weights."
        )
        return Section("switches", "How often did clients switch?", sentence)
