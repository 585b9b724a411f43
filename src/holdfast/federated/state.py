"""What a run remembers between rounds, in one file that is replaced as a whole after each.

Sampling, training and faults draw from seeds that follow from the round and the client, so weights, the
rule's state, control variates and the history are all that a resumed run needs to end with the same bits.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from holdfast.errors import InputError
from holdfast.federated.aggregation import State
from holdfast.federated.updates import Array, write_weights


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

    weights: dict[str, Array]
    """Global weights."""
    rule: State = field(default_factory=dict)
    """What the rule remembers."""
    controls: dict[str, Array] = field(default_factory=dict)
    """Client -> control variate (SCAFFOLD)."""
    history: list[Round] = field(default_factory=list)
    """One entry per round."""
    failures: list[dict[str, Any]] = field(default_factory=list)
    """Rows ``{"round", "client", "code", "reason"}``."""

    def save(self, path: Path, plan: str) -> None:
        """Replace the file.

        Args:
            path: a safetensors file.
            plan: hash of all that determines the run.

        Raises:
            HoldfastError: if it cannot be written.
        """
        groups = {"weights": self.weights, "rule": self.rule, "client": self.controls}
        arrays = {f"{g}/{name}": a for g, part in groups.items() for name, a in part.items()}
        rows = [asdict(row) for row in self.history]
        noted = {"plan": plan, "history": rows, "failures": self.failures}
        # One key: safetensors writes several in any order, and equal runs should be equal files.
        write_weights(path, arrays, {"run": json.dumps(noted)})

    @classmethod
    def load(cls, path: Path, plan: str) -> RunState:
        """Read what `save` wrote.

        Raises:
            InputError: ``damaged``, or ``conflict`` if another run wrote it.
        """
        import safetensors

        groups: dict[str, dict[str, Array]] = {"weights": {}, "rule": {}, "client": {}}
        try:
            with safetensors.safe_open(path, framework="np") as file:
                noted = json.loads((file.metadata() or {})["run"])
                for key in file.keys():  # noqa: SIM118
                    group, _, name = key.partition("/")
                    groups[group][name] = file.get_tensor(key)
            history = [Round(**row) for row in noted["history"]]
            saved, failures = noted["plan"], noted["failures"]
        except (safetensors.SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise InputError(
                "not the state of a federated run",
                code="damaged",
                path=path,
                found=str(error),
                remedy="remove the folder and start again",
            ) from error
        if saved != plan:
            raise InputError(
                "the state is of a run with other settings, model, functions or data",
                code="conflict",
                path=path,
                found=saved,
                expected=plan,
                remedy="name another output folder, or restore the settings; only rounds may change",
            )
        return cls(groups["weights"], groups["rule"], groups["client"], history, failures)
