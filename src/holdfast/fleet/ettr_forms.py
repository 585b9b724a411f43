r"""Effective training time ratio (ETTR): the share of a job's wall time that is training it keeps.

With R the productive time, Q the time queued while eligible and U the time that runs but is lost,
ETTR = R / (Q + R + U). All forms share one picture of a job on N nodes with r_f failures a
node-day:

- it fails L = N r_f times per time of *running* (not of queueing);
- each (re)start costs a queue of q, then an initialisation of u0;
- it computes for dt, writes a checkpoint for w, and so on; a failure, also one during the
  initialisation or a write, throws it back to the last complete checkpoint.

The forms, from rough to exact, with a = 1 - L(u0 + dt/2):

- ``v2``: a / [(1 + Lq)(1 + w/dt)]. Kokolis et al., arXiv 2410.21680v2, whose formula is the case
  q = 0; the queue of each restart enters by the factor 1 + Lq.
- ``full``: a / [(1 + Lq)(1 + w/dt + u0/R) + (q/R) a], which adds the first start of a run of
  productive time R. To first order the running time is T = R(1 + w/dt) + u0 + L T (u0 + dt/2),
  hence T = [R(1 + w/dt) + u0] / a, and the queue is q(1 + L T); ETTR = R / (T + queue).
- ``exact``: dt / [(1/L + q) e^{L u0} (e^{L(dt+w)} - 1)], the long run. By renewal-reward: from
  one start to the next passes q + 1/L on average, and the number K of checkpoints completed in
  between has P(K >= k) = P(gap >= u0 + k(dt + w)), so E[K] = e^{-L u0} / (e^{L(dt+w)} - 1);
  ETTR = dt E[K] / (q + 1/L).
- ``exact_finite``: R / E[W] for a whole run of productive time R with its first start and its
  last, shorter interval (which also ends in a write). From one checkpoint to the next passes
  X(dt) = (q + 1/L) e^{L u0} (e^{L(dt+w)} - 1) on average; a start before the first interval adds
  q e^{L u0} + (e^{L u0} - 1)/L; E[W] is that start plus the sum of X over the intervals.
- ``monte_carlo``: simulation with any distribution of the gaps, see `ettr_monte_carlo`.

``v2`` and ``full`` are first-order in L and pessimistic at scale: beyond L(u0 + dt/2) = 0.3 use
``exact``.

**Recovery without rollback.** Peers hold copies of the state: a failure stops the job for r and loses no
step, a failure during the recovery begins it anew. The copies make each step longer by the share o, and a
share p of the failures takes them all: the job starts again (q, u0) from its last checkpoint, as it does
after any failure in the initialisation, when there are no copies yet. A second of running is k = p +
(1-p) e^{-Lr} seconds of progress, and a start takes S = q e^{L u0} + (e^{L u0} - 1)/L. So all forms hold
(Wald) with Lp/k losses a second of progress, a queue of S k, no initialisation, and progress of dt(1+o) and
R(1+o), times k/(1+o): `EttrParameters.with_rollback_alone`. With p = 0 that is dt / (dt(1+o) + w) e^{-Lr},
with p = 1 and o = 0 the exact form above.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from holdfast.answer import Answer, Section, Value
from holdfast.errors import InputError
from holdfast.fleet.checkpoint_interval import (
    SECONDS_PER_DAY,
    daly_interval,
    optimal_checkpoint_interval,
    optimal_load,
    require_number,
    young_interval,
)
from holdfast.fleet.wording import how, table
from holdfast.numbers import counted, duration, number, percent
from holdfast.stats import FloatArray

if TYPE_CHECKING:
    from holdfast.fleet.ettr_monte_carlo import MonteCarloEttr

NEEDED = ("nodes", "rate_per_node_day", "checkpoint_interval_s")
TIMES = ("init", "write", "queue", "productive", "recovery")
MOST_LOAD = 600.0  # Failures in an initialisation beyond which none ends
FIRST_ORDER_LIMIT = 0.3  # of L(u0 + dt/2): beyond it v2 and full are too far off to be used

Form = Literal["v2", "full", "exact", "exact_finite"]


@dataclass(frozen=True)
class EttrParameters:
    """What an ETTR depends on.

    Raises:
        InputError: a value that is not finite, negative, or zero where it must be positive.
    """

    nodes: float  # Nodes of the job, all of which must work
    rate_per_node_day: float  # Failures per node and day that end the job
    checkpoint_interval_s: float  # Productive time between two checkpoint writes, seconds
    # Time from a (re)start to the first productive step, seconds (the paper's 5 minutes).
    init_s: float = 300.0
    write_s: float = 0.0  # Time a checkpoint write stops the training, seconds
    queue_s: float = 0.0  # Mean time in the queue before each (re)start, seconds
    # Productive time that the run needs, seconds; None: without end (the long run).
    productive_s: float | None = None
    # Stop after a failure where peers hold the state, seconds; None: every failure rolls back.
    recovery_s: float | None = None
    overhead: float = 0.0  # Share by which the copies make steps longer
    state_lost: float = 0.0  # Share of the failures that take all copies: they roll back

    def __post_init__(self) -> None:
        if missing := [name for name in NEEDED if getattr(self, name) is None]:
            raise InputError(
                "the ETTR needs nodes, failure rate and checkpoint interval",
                code="missing-key",
                found=f"no {', '.join(missing)}",
                expected="for example --nodes 2000 --rate 6.5e-3 --checkpoint 60m",
            )
        for name in ("nodes", "checkpoint_interval_s", "productive_s", "recovery_s"):
            value = getattr(self, name)
            if value is not None:
                require_number(name, value, positive=name != "recovery_s")
        for name in ("rate_per_node_day", "init_s", "write_s", "queue_s", "overhead", "state_lost"):
            require_number(name, getattr(self, name), positive=False)
        if self.recovery_s is None and (self.overhead or self.state_lost):
            raise InputError(
                "overhead and state_lost are those of copies that peers hold",
                code="missing-key",
                found=f"overhead {self.overhead:g}, state_lost {self.state_lost:g}, no recovery_s",
                expected="the recovery time from these copies, for example --recovery 3m",
            )
        if self.state_lost > 1:
            raise InputError(
                "invalid state_lost",
                code="out-of-range",
                found=f"{self.state_lost}",
                expected="a share of the failures, 0 to 1",
            )

    @property
    def failures_per_s(self) -> float:
        """L = N r_f: failures of the job per second of running."""
        return self.nodes * self.rate_per_node_day / SECONDS_PER_DAY

    @cached_property
    def with_rollback_alone(self) -> tuple[EttrParameters, float]:
        """What has the same ETTR, but for a factor, if every failure rolls back; and this factor."""
        if self.recovery_s is None:
            return self, 1.0
        rate, lost, longer = self.failures_per_s, self.state_lost, 1 + self.overhead
        progress = lost + (1 - lost) * math.exp(-rate * self.recovery_s)  # a second of running
        begun = min(rate * self.init_s, MOST_LOAD)
        start = self.queue_s * math.exp(begun) + (math.expm1(begun) / rate if rate else self.init_s)
        losses = rate * lost / progress if lost else 0.0
        alone = replace(
            self,
            rate_per_node_day=losses * SECONDS_PER_DAY / self.nodes,
            checkpoint_interval_s=self.checkpoint_interval_s * longer,
            init_s=0.0,
            queue_s=start * progress,
            productive_s=None if self.productive_s is None else self.productive_s * longer,
            recovery_s=None,
            overhead=0.0,
            state_lost=0.0,
        )
        return alone, progress / longer

    @property
    def first_order_load(self) -> float:
        """L(u0 + dt/2), the share lost to failures to first order; v2 and full need it small."""
        return self.failures_per_s * (self.init_s + self.checkpoint_interval_s / 2)


@dataclass(frozen=True)
class EttrResult(Answer):
    """Every form of the expected ETTR of one setting, the best interval, and what was assumed."""

    parameters: EttrParameters
    v2: float | None  # The paper's approximation; None outside its range (it would be negative)
    full: float | None  # First order with queue, writes and first start; None outside its range
    exact: float  # The long run, exponential failures
    exact_finite: float | None  # The whole run of ``productive_s``; None when that is without end
    # Young's interval; None without failures or with a write time of 0.
    young_interval_s: float | None
    daly_interval_s: float | None  # Daly's higher-order interval; None as above
    optimal_interval_s: float | None  # The interval with the highest exact ETTR; None as above
    optimal_ettr: float  # The exact long-run ETTR at that interval (the limit where it is None)
    notes: tuple[str, ...] = field(default=())  # What a reader must know before using the numbers
    # A simulation beside the forms; None unless `with_monte_carlo` made this result.
    monte_carlo: MonteCarloEttr | None = None
    # Of the failures per node and day, where they were counted; None: stated.
    rate_ci95: tuple[float, float] | None = None

    def with_monte_carlo(self, *, replicas: int = 100_000, seed: int = 0) -> EttrResult:
        """This result and a simulation of the same job (exponential gaps).

        Args:
            replicas: starts (long run) or whole runs to simulate.
            seed: of the random numbers.

        Raises:
            InputError: if the runs do not end; see `ettr_monte_carlo.monte_carlo_ettr`.
        """
        from holdfast.fleet.ettr_monte_carlo import monte_carlo_ettr

        simulated = monte_carlo_ettr(self.parameters, replicas=replicas, seed=seed)
        return replace(self, monte_carlo=simulated)

    @property
    def recommended(self) -> float:
        """The form to quote: exact for the run as it was described."""
        return self.exact if self.exact_finite is None else self.exact_finite

    @property
    def ci95(self) -> tuple[float, float] | None:
        """The interval of `recommended` that follows from that of the rate."""
        if self.rate_ci95 is None:
            return None
        low, high = (replace(self.parameters, rate_per_node_day=r) for r in self.rate_ci95[::-1])
        return ettr_of(low), ettr_of(high)

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Expected ETTR"

    def values(self) -> Sequence[Value]:
        """The exact expected ETTR and the best one."""
        ratios = {"exact_ettr": self.exact, "optimal_ettr": self.optimal_ettr}
        return [Value(name, value, better="higher") for name, value in ratios.items()]

    def sections(self) -> Sequence[Section]:
        """What ETTR is expected?"""
        p, simulated, ends = self.parameters, self.monte_carlo, self.ci95
        within = f" [{percent(ends[0], 2)}, {percent(ends[1], 2)}]" if ends else ""
        text = (
            f"A job on {counted(round(p.nodes), 'node')} is expected to be productive "
            f"{percent(self.recommended, 2)}{within} of its time with a checkpoint every "
            f"{duration(p.checkpoint_interval_s)}"
        )
        if self.optimal_interval_s is not None:
            best = duration(self.optimal_interval_s)
            text += f", and {percent(self.optimal_ettr, 2)} with one every {best}"
        forms = {
            "exact": self.exact,
            "full (first order)": self.full,
            "v2 (the paper's approximation)": self.v2,
            "exact, at the best checkpoint interval": self.optimal_ettr,
        }
        if self.exact_finite is not None:
            forms["exact, for this productive time"] = self.exact_finite
        rows = [{"form": form, "ettr": v, "low": None, "high": None} for form, v in forms.items()]
        if simulated is not None:
            low, high = simulated.ci95
            rows.append({"form": "Monte Carlo", "ettr": simulated.ettr, "low": low, "high": high})
        digits = {"unit": "", "digits": 4, "interval": ("low", "high")}
        parameters = {
            "nodes N": number(p.nodes),
            "failures per node-day r_f": number(p.rate_per_node_day),
            "checkpoint interval Δt": duration(p.checkpoint_interval_s),
            "checkpoint write w": duration(p.write_s),
            "initialisation u0": duration(p.init_s),
            "queue before each start q": duration(p.queue_s),
            "recovery without rollback r": duration(p.recovery_s),
            "steps longer by o, failures that lose the state p": f"{p.overhead:.1%}, {p.state_lost:.1%}",
            "best checkpoint interval": duration(self.optimal_interval_s),
            "Young's, Daly's": f"{duration(self.young_interval_s)}, {duration(self.daly_interval_s)}",
        }
        computed = how("expected_ettr", parameters, self.notes)
        tables = [
            table(
                rows,
                "form ettr",
                "One row per form, Monte Carlo with its 95 % interval.",
                ettr=digits,
            )
        ]
        return [Section("ettr", "What ETTR is expected?", f"{text}.", [], tables, computed)]

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast fleet ettr``; units are in the names."""
        p = self.parameters
        return {
            "v2": self.v2,
            "full": self.full,
            "exact": self.exact,
            "young_checkpoint_minutes": _minutes(self.young_interval_s),
            "optimal_checkpoint_minutes": _minutes(self.optimal_interval_s),
            "optimal_ettr": self.optimal_ettr,
            "assumptions": {
                "nodes": p.nodes,
                "rate_per_node_day": p.rate_per_node_day,
                "checkpoint_minutes": _minutes(p.checkpoint_interval_s),
                **{f"{name}_minutes": _minutes(getattr(p, f"{name}_s")) for name in TIMES},
                "overhead": p.overhead,
                "state_lost": p.state_lost,
                "failures_per_day": p.failures_per_s * SECONDS_PER_DAY,
                "first_order_load": p.first_order_load,
                "daly_checkpoint_minutes": _minutes(self.daly_interval_s),
                "recommended_form": "exact" if self.exact_finite is None else "exact_finite",
                "exact_finite": self.exact_finite,
                "notes": list(self.notes),
            },
            **({} if self.monte_carlo is None else {"monte_carlo": self.monte_carlo.to_dict()}),
            **({} if self.ci95 is None else {"ci95": list(self.ci95)}),
        }


def ettr(
    nodes: float,
    rate_per_node_day: float,
    checkpoint_interval_s: float,
    *,
    init_s: float = 300.0,
    write_s: float = 0.0,
    queue_s: float = 0.0,
    productive_s: float | None = None,
    recovery_s: float | None = None,
    overhead: float = 0.0,
    state_lost: float = 0.0,
) -> EttrResult:
    """Every form of the expected ETTR, the best checkpoint intervals, and the assumptions.

    Args:
        nodes: nodes of the job.
        rate_per_node_day: failures per node and day.
        checkpoint_interval_s: productive seconds between two writes.
        init_s: seconds from a start to the first productive step.
        write_s: seconds for which a write stops the training.
        queue_s: mean seconds in the queue before each start.
        productive_s: productive seconds that the run needs; None: without end.
        recovery_s: seconds from a failure until work goes on from copies that peers hold, without rollback;
            None: every failure rolls back.
        overhead: share by which the copies make steps longer.
        state_lost: share of the failures that take all copies, and roll back.

    Returns:
        An `EttrResult`; no ratio in it lies outside [0, 1].

    Raises:
        InputError: a parameter that makes no sense.
    """
    p = EttrParameters(
        nodes,
        rate_per_node_day,
        checkpoint_interval_s,
        init_s,
        write_s,
        queue_s,
        productive_s,
        recovery_s,
        overhead,
        state_lost,
    )
    alone, factor = p.with_rollback_alone
    best = optimal_ettr(
        nodes,
        alone.rate_per_node_day,
        init_s=alone.init_s,
        write_s=p.write_s,
        queue_s=alone.queue_s,
    )
    return EttrResult(
        parameters=p,
        v2=_first_order(p, finite=False),
        full=_first_order(p, finite=True),
        exact=exact_ettr(p),
        exact_finite=None if p.productive_s is None else exact_finite_ettr(p),
        young_interval_s=best_interval(p, young_interval),
        daly_interval_s=best_interval(p, daly_interval),
        optimal_interval_s=best_interval(p, optimal_checkpoint_interval),
        optimal_ettr=factor * best,
        notes=tuple(_notes(p)),
    )


def best_interval(p: EttrParameters, form: Callable[..., float | None]) -> float | None:
    """The best checkpoint interval of a job by one of the forms, seconds; None: there is none."""
    alone, _ = p.with_rollback_alone
    best = form(alone.nodes, alone.rate_per_node_day, write_s=p.write_s)
    # A write that takes no time has no best interval: 0 would be no advice.
    return best / (1 + p.overhead) if best else None


def expected_ettr(
    nodes: float,
    rate_per_node_day: float,
    checkpoint_interval_s: float,
    *,
    form: Form = "exact",
    init_s: float = 300.0,
    write_s: float = 0.0,
    queue_s: float = 0.0,
    productive_s: float | None = None,
    recovery_s: float | None = None,
    overhead: float = 0.0,
    state_lost: float = 0.0,
) -> float:
    """The expected ETTR by one form (the module's docstring has the formulas).

    Args:
        nodes: nodes of the job.
        rate_per_node_day: failures per node and day.
        checkpoint_interval_s: productive seconds between two writes.
        form: "v2", "full", "exact" or "exact_finite"; ``v2`` and ``exact`` are long-run forms,
            ``exact_finite`` needs a productive time.
        init_s: seconds from a start to the first productive step.
        write_s: seconds for which a write stops the training.
        queue_s: mean seconds in the queue before each start.
        productive_s: productive seconds that the run needs; None: without end.
        recovery_s: seconds from a failure until work goes on from copies that peers hold, without rollback;
            None: every failure rolls back.
        overhead: share by which the copies make steps longer.
        state_lost: share of the failures that take all copies, and roll back.

    Raises:
        InputError: a parameter that makes no sense, or a first-order form outside its range.
    """
    p = EttrParameters(
        nodes,
        rate_per_node_day,
        checkpoint_interval_s,
        init_s,
        write_s,
        queue_s,
        productive_s,
        recovery_s,
        overhead,
        state_lost,
    )
    if form not in FORMS:
        raise InputError(
            "unknown form", code="unknown-name", found=repr(form), expected=", ".join(FORMS)
        )
    value = FORMS[form](p)
    if value is None:
        raise InputError(
            f"the form {form} is outside its range: it would give an ETTR below zero",
            code="invalid-value",
            found=f"L(u0 + dt/2) = {p.first_order_load:.3g}",
            expected=f"well below 1 (trust it below {FIRST_ORDER_LIMIT}); the form exact has no limit",
        )
    return value


def optimal_ettr(
    nodes: float,
    rate_per_node_day: float,
    *,
    init_s: float = 300.0,
    write_s: float = 0.0,
    queue_s: float = 0.0,
) -> float:
    """The exact long-run ETTR at the optimal interval: e^{-L u0} (1 - L dt*) / (1 + Lq).

    Where writes are free that is e^{-L u0} / (1 + Lq), and without failures 1.
    """
    p = EttrParameters(nodes, rate_per_node_day, 1.0, init_s, write_s, queue_s)
    start = math.exp(-p.failures_per_s * init_s) / (1 + p.failures_per_s * queue_s)
    load = p.failures_per_s * write_s
    # 1 - x as the equation of the optimum gives it, without the cancellation near x = 1.
    return start * math.exp(-(optimal_load(load) + load))


def long_run_ettr(
    failures_per_s: npt.ArrayLike,
    checkpoint_interval_s: npt.ArrayLike,
    init_s: npt.ArrayLike,
    write_s: npt.ArrayLike,
    queue_s: npt.ArrayLike,
) -> FloatArray:
    """The exact form on arrays that broadcast together; safe for any size of L(dt + w).

    Written as dt/(dt+w) * y/(e^y - 1) * e^{-L u0} / (1 + Lq) with y = L(dt + w), in logarithms.
    """
    inputs = (failures_per_s, checkpoint_interval_s, init_s, write_s, queue_s)
    rate, interval, init, write, queue = (np.asarray(value, dtype=np.float64) for value in inputs)
    segment = interval + write
    y = np.maximum(rate * segment, 1e-300)
    lost = np.log(y / -np.expm1(-y)) - y
    ratio = interval / segment * np.exp(lost - rate * init - np.log1p(rate * queue))
    return np.asarray(ratio, dtype=np.float64)


def _first_order(p: EttrParameters, *, finite: bool) -> float | None:
    """``full`` (finite) or ``v2``; None outside its range, where the formula falls below zero."""
    p, factor = p.with_rollback_alone
    a = 1 - p.first_order_load
    if a < 0:
        return None
    per_restart = 1 + p.failures_per_s * p.queue_s
    writes = p.write_s / p.checkpoint_interval_s
    if not finite or p.productive_s is None:
        return factor * a / (per_restart * (1 + writes))
    first_init = p.init_s / p.productive_s
    first_queue = p.queue_s / p.productive_s
    return factor * a / (per_restart * (1 + writes + first_init) + first_queue * a)


def exact_ettr(p: EttrParameters) -> float:
    """The form ``exact``."""
    p, factor = p.with_rollback_alone
    value = long_run_ettr(p.failures_per_s, p.checkpoint_interval_s, p.init_s, p.write_s, p.queue_s)
    return factor * float(value)


def intervals_of_run(productive_s: float, checkpoint_interval_s: float) -> tuple[int, float]:
    """Intervals before the last, and the productive seconds of the last (above 0, at most dt)."""
    before = max(math.ceil(productive_s / checkpoint_interval_s * (1 - 1e-12)) - 1, 0)
    return before, productive_s - before * checkpoint_interval_s


def exact_finite_ettr(p: EttrParameters) -> float:
    """The form ``exact_finite``; InputError without a productive time."""
    if p.productive_s is None:
        raise InputError("the form exact_finite needs a productive time", code="missing-key")
    if p.recovery_s is not None:
        alone, factor = p.with_rollback_alone
        return factor * exact_finite_ettr(alone)
    rate = p.failures_per_s
    queue = p.queue_s
    before, last = intervals_of_run(p.productive_s, p.checkpoint_interval_s)
    if rate * (queue + p.init_s + p.checkpoint_interval_s + p.write_s) < 1e-17:
        # Failures change no digit, and 1/L could overflow.
        wall = queue + p.init_s + p.productive_s + (before + 1) * p.write_s
        return p.productive_s / wall
    # Everything is scaled by e^{-m}, m the exponent of the longest interval, so nothing overflows.
    longest = (p.checkpoint_interval_s if before else last) + p.write_s
    m = rate * (p.init_s + longest)
    start = math.exp(-rate * longest) * (queue - math.expm1(-rate * p.init_s) / rate)
    per_restart = queue + 1 / rate
    full = before * per_restart * -math.expm1(-rate * longest)
    short = last + p.write_s
    partial = per_restart * math.exp(rate * (short - longest)) * -math.expm1(-rate * short)
    return math.exp(math.log(p.productive_s) - math.log(start + full + partial) - m)


# Of one setting each; None outside the range of a form.
FORMS: dict[str, Callable[[EttrParameters], float | None]] = {
    "v2": lambda p: _first_order(p, finite=False),
    "full": lambda p: _first_order(p, finite=True),
    "exact": exact_ettr,
    "exact_finite": exact_finite_ettr,
}


def ettr_of(p: EttrParameters) -> float:
    """The exact form for the run as it was described, long or of a productive time."""
    return exact_ettr(p) if p.productive_s is None else exact_finite_ettr(p)


def _notes(p: EttrParameters) -> list[str]:
    notes = [
        "Failures are exponential with a constant rate per running node; none happens in the queue.",
        "v2 and exact describe a run without end; full and exact_finite count the first queue and "
        "initialisation of a run of the given productive time.",
    ]
    if p.recovery_s is not None:
        notes.append(
            "Rollbacks are those of failures that lose the state, and of failures in an initialisation; a "
            "failure in a recovery begins it anew. What follows is said of the rollbacks."
        )
        p, _ = p.with_rollback_alone
    if p.first_order_load > FIRST_ORDER_LIMIT:
        notes.append(
            f"L(u0 + dt/2) = {p.first_order_load:.2f} is above {FIRST_ORDER_LIMIT}: v2 and full are too "
            "pessimistic here, and above 1 they are not given; use exact."
        )
    if p.failures_per_s == 0:
        notes.append("The rate is zero: there is no best checkpoint interval (never write).")
    elif p.write_s == 0:
        notes.append(
            "There is no best checkpoint interval for a write time of 0 (optimal_ettr is the limit of "
            "ever shorter intervals); set the write time, for example --write 30s."
        )
    return notes


def _minutes(seconds: float | None) -> float | None:
    return None if seconds is None else seconds / 60
