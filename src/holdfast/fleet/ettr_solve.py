"""What reaches a given ETTR: one parameter solved for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from holdfast.answer import Answer, Section
from holdfast.errors import InputError
from holdfast.fleet.checkpoint_interval import optimal_checkpoint_interval
from holdfast.fleet.ettr_forms import EttrParameters, best_interval, ettr_of, exact_ettr
from holdfast.numbers import number

SolveFor = Literal["checkpoint", "rate", "write", "init", "queue", "nodes", "recovery"]
FIELDS: dict[str, tuple[str, str]] = {
    # what is solved for: (field of EttrParameters, unit)
    "checkpoint": ("checkpoint_interval_s", "s"),
    "rate": ("rate_per_node_day", "failures per node-day"),
    "write": ("write_s", "s"),
    "init": ("init_s", "s"),
    "queue": ("queue_s", "s"),
    "nodes": ("nodes", "nodes"),
    "recovery": ("recovery_s", "s"),
}
SMALLEST = 1e-12
LARGEST = 1e15  # of any parameter; beyond them nothing changes


@dataclass(frozen=True)
class SolveResult(Answer):
    """The values of one parameter that reach an ETTR."""

    solved_for: str  # Name of the field of `EttrParameters`; its unit is `unit`
    unit: str
    target: float
    low: float  # Smallest value that reaches the target (0: any small value does)
    high: float | None  # Largest value that reaches it; None: any large value does
    # The value with the highest ETTR (the limit 0 where smaller is always better); None for the
    # checkpoint interval if a write takes no time, or without failures: then there is none.
    best: float | None
    best_ettr: float
    form: str

    def sections(self) -> Sequence[Section]:
        """Which values reach the target?"""
        high = "without limit" if self.high is None else f"{number(self.high)} {self.unit}"
        best = "no best interval without failures or a write time (--write); in the limit"
        if self.best is not None:
            best = f"best at {number(self.best)} {self.unit}"
        return [
            Section(
                "solve",
                "Which values reach the target?",
                f"ETTR ≥ {self.target:g} ({self.form}) for {self.solved_for} from {number(self.low)} to "
                f"{high}; {best}: {self.best_ettr:.4f}.",
            )
        ]


def solve(
    for_: SolveFor,
    target: float = 0.9,
    *,
    nodes: float | None = None,
    rate_per_node_day: float | None = None,
    checkpoint_interval_s: float | None = None,
    init_s: float = 300.0,
    write_s: float = 0.0,
    queue_s: float = 0.0,
    productive_s: float | None = None,
    recovery_s: float | None = None,
    overhead: float = 0.0,
    state_lost: float = 0.0,
) -> SolveResult:
    """The range of one parameter in which the expected ETTR is at least `target`.

    The ETTR falls with every parameter but the checkpoint interval, in which it rises to one
    optimum and falls again; so each answer is one interval. It is the exact form for the run as it is
    described; for the checkpoint interval that of the long run, as the last interval of a whole run
    makes its ETTR jagged.

    Args:
        for_: "checkpoint", "rate", "write", "init", "queue", "nodes" or "recovery"; its own value is not
            used.
        target: the ETTR to reach, between 0 and 1.
        nodes: nodes of the job; needed, unless solved for.
        rate_per_node_day: failures per node and day; needed, unless solved for.
        checkpoint_interval_s: productive seconds between two writes; needed, unless solved for.
        init_s: seconds from a start to the first productive step.
        write_s: seconds for which a write stops the training.
        queue_s: mean seconds in the queue before each start.
        productive_s: productive seconds that the run needs; None: without end.
        recovery_s: seconds from a failure until work goes on from copies that peers hold, without rollback;
            None: every failure rolls back.
        overhead: share by which the copies make steps longer.
        state_lost: share of the failures that take all copies, and roll back.

    Raises:
        InputError: the target cannot be reached (it says what can), or a parameter is missing.
    """
    if for_ not in FIELDS:
        raise InputError(
            "this cannot be solved for",
            code="unknown-key",
            found=repr(for_),
            expected=", ".join(FIELDS),
        )
    if not 0 < target < 1:
        raise InputError(
            "the target is not an ETTR",
            code="out-of-range",
            found=repr(target),
            expected="a number between 0 and 1",
        )
    name, unit = FIELDS[for_]
    job = {
        "nodes": nodes,
        "rate_per_node_day": rate_per_node_day,
        "checkpoint_interval_s": checkpoint_interval_s,
    }
    if name in job:
        job[name] = 1.0
    base = EttrParameters(
        **job,  # type: ignore[arg-type]  # it refuses what is missing
        init_s=init_s,
        write_s=write_s,
        queue_s=queue_s,
        productive_s=productive_s,
        recovery_s=0.0 if name == "recovery_s" else recovery_s,
        overhead=overhead,
        state_lost=state_lost,
    )
    value_of = exact_ettr if for_ == "checkpoint" else ettr_of

    def value_at(x: float) -> float:
        return value_of(replace(base, **{name: x}))

    best = 1.0 if for_ == "nodes" else SMALLEST
    if for_ == "checkpoint":
        optimum = best_interval(base, optimal_checkpoint_interval)
        lost = base.with_rollback_alone[0].failures_per_s
        best = max(optimum or 0.0, SMALLEST) if lost else LARGEST
    best_ettr = value_at(best)
    if best_ettr < target:
        raise InputError(
            f"no {for_} reaches an ETTR of {target:g}",
            code="unsupported",
            found=f"at best {best_ettr:.6f}, with {name} = {best:.6g} ({unit})",
            expected=f"a target below {best_ettr:.4f}",
            remedy="lower the target, or shorten writes, initialisation or queue",
        )
    high = _edge(value_at, target, best, LARGEST)
    low = best if best > SMALLEST else 0.0
    if for_ == "checkpoint" and low:
        low = _edge(value_at, target, best, SMALLEST) or 0.0
    if for_ == "nodes" and high is not None:
        high = math.floor(high * (1 + 1e-12))
    best_value = best if best > SMALLEST else 0.0
    if for_ == "checkpoint" and not SMALLEST < best < LARGEST:
        best_value = None
    form = "exact" if value_of is exact_ettr or base.productive_s is None else "exact_finite"
    return SolveResult(name, unit, target, low, high, best_value, best_ettr, form)


def _edge(
    value_at: Callable[[float], float], target: float, inside: float, outside: float
) -> float | None:
    """Where the ETTR crosses the target between two points; None if it holds at `outside` too."""
    if value_at(outside) >= target:
        return None
    from scipy.optimize import brentq

    return math.exp(
        brentq(
            lambda x: value_at(math.exp(x)) - target,
            math.log(inside),
            math.log(outside),
            xtol=1e-14,
            rtol=8.9e-16,
        )
    )
