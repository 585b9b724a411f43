"""What a run remembers between rounds, in one file that is replaced as a whole after each.

Sampling, training and faults draw from seeds that follow from the round and the client, so weights, the
rule's state, control variates and the history are all that a resumed run needs to end with the same bits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from holdfast.arrays import read_tensors
from holdfast.errors import InputError
from holdfast.federated.aggregation import State
from holdfast.federated.updates import Arrays, Record, Weights, digest, write_weights


@dataclass(frozen=True)
class Round:
    """What happened in one round."""

    number: int
    """From 1."""
    loss: float | None
    """Mean training loss of the usable updates, weighted by examples."""
    used: int
    """Updates that were aggregated."""
    bytes_up: int
    """Of all updates that arrived."""
    bytes_down: int
    """Of the weights and control variates sent."""
    transform: float | None = None
    """Share of the usable clients with HeteroSwitch's switch 1 on; None for other rules."""
    averaging: float | None = None
    """Share with switch 2 on."""
    skipped: str = ""
    """Why the global weights did not change; empty if they did."""
    accuracy: dict[str, float] | None = None
    """Device -> accuracy on its test data; None where the round was not evaluated."""


@dataclass
class RunState:
    """A run after some rounds."""

    weights: Arrays
    """Global weights."""
    rule: State = field(default_factory=dict)
    """What the rule remembers."""
    controls: Arrays = field(default_factory=dict)
    """Client -> control variate (SCAFFOLD)."""
    history: list[Round] = field(default_factory=list)
    """One entry per round."""
    failures: list[Record] = field(default_factory=list)
    """Rows ``{"round", "client", "code", "reason"}``."""

    def save(self, path: Path, plan: Mapping[str, str]) -> None:
        """Replace the file.

        Args:
            path: a safetensors file.
            plan: what determines the run -> its hash.

        Raises:
            HoldfastError: if it cannot be written.
        """
        groups = {"weights": self.weights, "rule": self.rule, "client": self.controls}
        arrays = {f"{g}/{name}": a for g, part in groups.items() for name, a in part.items()}
        rows = [asdict(row) for row in self.history]
        noted: Record = {"plan": dict(plan), "history": rows, "failures": self.failures}
        noted["sha256"] = _checksum(arrays, noted)
        # One key: safetensors writes several in any order, and equal runs should be equal files.
        write_weights(path, arrays, {"run": json.dumps(noted)})

    @classmethod
    def load(cls, path: Path, plan: Mapping[str, str]) -> RunState:
        """Read what `save` wrote.

        Raises:
            InputError: ``damaged``, or ``conflict`` if another run wrote it.
        """
        remedy, problem = "remove the folder and start again", ""
        arrays, noted = read_tensors(path, "run", remedy)
        try:
            if noted.pop("sha256") != _checksum(arrays, noted):
                problem = "the checksum of its content differs"
            history = [Round(**row) for row in noted["history"]]
        except (AttributeError, KeyError, TypeError) as error:
            problem = f"{type(error).__name__}: {error}"
        if problem:
            raise InputError(
                "not the state of a federated run",
                code="damaged",
                path=path,
                found=problem,
                remedy=remedy,
            )
        changed = [name for name in plan if noted["plan"].get(name) != plan[name]]
        if changed:
            raise InputError(
                "the state is of a run with other settings, model, functions or data",
                code="conflict",
                path=path,
                found=f"other {', '.join(changed)}",
                remedy="name another output folder, or restore the settings; only rounds may change",
            )
        groups: dict[str, Arrays] = {"weights": {}, "rule": {}, "client": {}}
        for key, array in arrays.items():
            group, _, name = key.partition("/")
            groups[group][name] = array
        weights, rule, controls = groups.values()
        return cls(weights, rule, controls, history, noted["failures"])


def read_noted(path: Path) -> Record:
    """Plan, history, failures and checksum of a state; no arrays are read.

    Raises:
        SafetensorError, OSError, KeyError, ValueError: if it is not such a state.
    """
    import safetensors

    with safetensors.safe_open(path, framework="np") as file:
        return dict(json.loads((file.metadata() or {})["run"]))


def _checksum(arrays: Weights, noted: Record) -> str:
    return hashlib.sha256((digest(arrays) + json.dumps(noted)).encode()).hexdigest()
