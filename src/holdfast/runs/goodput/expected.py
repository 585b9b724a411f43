r"""The ETTR that a run should have had by the model of the fleet room, and its best checkpoint interval.

The model (`holdfast.fleet.ettr_forms`) knows failures at a constant rate, restarts, the work that a
failure throws away, and checkpoint writes. It takes from the run: its nodes, the step time between
checkpoints dt, the time w for which one stops the training, the initialisation u0, the mean time q from
an end to the next start. A run that is done is held against the form for a run of its productive time R
(``exact_finite``), another one against the long run (``exact``). Of the first start it is known how long
it waited, q0, so that the expected wall time is R / ettr - q + q0. The best interval is that of the long
run; what the last, shorter interval of a run that is done changes about it is of no use beforehand.

Data wait, evaluation and pauses are not in the model. With them the training advances by s seconds in a
second, s = step time / (step time + data wait + evaluation + idle time but for stalls), and a stall
lengthens what a failure costs: ETTR = s E(dt / s, R / s, q + stall a restart).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.fleet.checkpoint_interval import optimal_checkpoint_interval
from holdfast.fleet.ettr_forms import EttrParameters, exact_ettr, exact_finite_ettr
from holdfast.runs.goodput.attempts import AttemptAccount
from holdfast.runs.goodput.checkpoint_costs import CheckpointCosts
from holdfast.runs.goodput.failure_rate import FailureRate, mean_nodes


@dataclass(frozen=True)
class Restarts:
    """What a start of the run costs, measured."""

    init_s: float
    """Mean initialisation of the attempts that got through it."""
    queue_s: float
    """Mean time from the end of an attempt to the start of the next: down and in the queue."""
    first_queue_s: float
    """The first attempt's time in the queue, as far as it is known."""
    stalled_s: float
    """Mean time for which an attempt hung before its end, over the restarts."""


@dataclass(frozen=True)
class Expected:
    """What the model says of a run."""

    ettr: float | None
    """None where nothing productive was done."""
    low: float | None
    """At the upper end of the failure rate's interval."""
    high: float | None
    """At its lower end."""
    with_other_losses: float | None
    """The same with the run's own share of data wait, evaluation, pauses and stalls."""
    progress_share: float | None
    """s of the module's text."""
    form: str
    """exact_finite for a run that is done, else exact."""
    rate: FailureRate | None
    nodes: float
    restarts: Restarts
    interval_s: float | None
    """The checkpoint interval put into the model."""
    write_s: float
    best_interval_s: float | None
    """The interval with the highest ETTR in the long run, but at least a step and the time that a
    checkpoint takes in the background; None without failures (never write)."""
    best_interval_low_s: float | None
    """At the upper end of the failure rate's interval."""
    best_interval_high_s: float | None
    """At its lower end; None: never write."""
    best_interval_steps: int | None
    """The same in steps of the run's mean length."""
    best_interval_ettr: float | None
    saved_s: float | None
    """Wall time that the best interval would save in a run of this one's productive time."""
    saved_gpu_hours: float | None
    productive_s: float

    def to_dict(self) -> dict[str, Any]:
        """The key ``expected`` of the JSON."""
        return {
            "ettr": self.ettr,
            "ci95": [self.low, self.high],
            "with_other_losses": self.with_other_losses,
            "progress_share": self.progress_share,
            "form": self.form,
            "nodes": self.nodes,
            "checkpoint_interval_s": self.interval_s,
            "write_s": self.write_s,
            "init_s": self.restarts.init_s,
            "restart_s": self.restarts.queue_s,
            "first_queue_s": self.restarts.first_queue_s,
            "stalled_per_restart_s": self.restarts.stalled_s,
            "productive_s": self.productive_s,
            "best_interval_ci95_s": [self.best_interval_low_s, self.best_interval_high_s],
            "best_interval_steps": self.best_interval_steps,
            "saved_s": self.saved_s,
            "saved_gpu_hours": self.saved_gpu_hours,
        }


@dataclass(frozen=True)
class _Model:
    """The expected ETTR as a function of rate and interval."""

    nodes: float
    init_s: float
    write_s: float
    queue_s: float
    first_queue_s: float
    productive_s: float
    finished: bool
    least_s: float
    """No interval can be shorter."""

    def ettr(self, rate: float, interval_s: float) -> float:
        asked = EttrParameters(
            self.nodes,
            rate,
            interval_s,
            self.init_s,
            self.write_s,
            self.queue_s,
            self.productive_s if self.finished else None,
        )
        if not self.finished:
            return exact_ettr(asked)
        share = exact_finite_ettr(asked)
        if share <= 0:
            return 0.0
        wall = self.productive_s / share - self.queue_s + self.first_queue_s
        return self.productive_s / wall

    def best_interval(self, rate: float) -> float | None:
        """That of the long run, but no less than is possible, nor more than a run that is done."""
        best = optimal_checkpoint_interval(self.nodes, rate, write_s=self.write_s)
        if best is None:
            return None
        best = max(best, self.least_s)
        return min(best, self.productive_s) if self.finished else best


def restarts_of(attempts: Sequence[AttemptAccount]) -> Restarts:
    """What a start cost in this run."""
    ready = [each.parts["init"] for each in attempts if each.first_step is not None]
    inits = ready or [each.parts["init"] for each in attempts]
    gaps = [each.parts["down"] + each.parts["queue"] for each in attempts[1:]]
    stalls = [each.stalled_s for each in attempts[:-1] if each.hung]
    return Restarts(
        init_s=math.fsum(inits) / len(inits),
        queue_s=math.fsum(gaps) / len(gaps) if gaps else 0.0,
        first_queue_s=attempts[0].parts["queue"],
        stalled_s=math.fsum(stalls) / len(gaps) if gaps else 0.0,
    )


def expected_of(
    attempts: Sequence[AttemptAccount],
    checkpoints: CheckpointCosts,
    rate: FailureRate | None,
    *,
    step_s: float | None,
    gpus: float,
) -> Expected:
    """Hold a run against the model.

    Args:
        attempts: of the run.
        checkpoints: what they cost.
        rate: of failures; None where nothing lived.
        step_s: mean length of a step; None without any.
        gpus: of the run.
    """
    productive = math.fsum(each.parts["productive"] for each in attempts)
    nothing = Expected(
        ettr=None,
        low=None,
        high=None,
        with_other_losses=None,
        progress_share=None,
        form="exact_finite" if attempts[-1].ended == "clean" else "exact",
        rate=rate,
        nodes=mean_nodes(attempts),
        restarts=restarts_of(attempts),
        interval_s=checkpoints.interval_s,
        write_s=checkpoints.write_s or 0.0,
        best_interval_s=None,
        best_interval_low_s=None,
        best_interval_high_s=None,
        best_interval_steps=None,
        best_interval_ettr=None,
        saved_s=None,
        saved_gpu_hours=None,
        productive_s=productive,
    )
    if rate is None or productive <= 0 or not step_s:
        return nothing
    interval = checkpoints.interval_s or productive
    asked = replace(nothing, interval_s=interval)
    model = replace(_model(asked), least_s=max(step_s, checkpoints.background_s or 0.0))
    ettr = model.ettr(rate.per_node_day, interval)
    best, at_high, at_low = (
        model.best_interval(each) for each in (rate.per_node_day, rate.high, rate.low)
    )
    best_ettr = None if best is None else model.ettr(rate.per_node_day, best)
    saved = None
    if best_ettr and ettr > 0:
        saved = max(productive / ettr - productive / best_ettr, 0.0)
    share = progress_share(attempts)
    return replace(
        asked,
        ettr=ettr,
        low=model.ettr(rate.high, interval),
        high=model.ettr(rate.low, interval),
        with_other_losses=_slowed(model, share, asked.restarts, rate.per_node_day, interval),
        progress_share=share,
        best_interval_s=best,
        best_interval_low_s=at_high,
        best_interval_high_s=at_low,
        best_interval_steps=None if best is None else max(round(best / step_s), 1),
        best_interval_ettr=best_ettr,
        saved_s=saved,
        saved_gpu_hours=None if saved is None else saved * gpus / 3600,
    )


def progress_share(attempts: Sequence[AttemptAccount]) -> float:
    """Seconds of steps in a second of training: the rest is data wait, evaluation and pauses."""

    def total(name: str) -> float:
        return math.fsum(each.parts[name] for each in attempts)

    steps = total("productive") + total("replayed")
    stalls = math.fsum(each.stalled_s for each in attempts if each.hung)
    idle = max(total("idle") - stalls, 0.0)
    return steps / (steps + total("data_wait") + total("evaluation") + idle)


def _slowed(
    model: _Model, share: float, restarts: Restarts, rate: float, interval_s: float
) -> float:
    """The expected ETTR of a run that advances by `share` seconds in a second."""
    slow = replace(
        model,
        productive_s=model.productive_s / share,
        queue_s=model.queue_s + restarts.stalled_s,
    )
    return share * slow.ettr(rate, interval_s / share)


def _model(asked: Expected) -> _Model:
    return _Model(
        nodes=asked.nodes,
        init_s=asked.restarts.init_s,
        write_s=asked.write_s,
        queue_s=asked.restarts.queue_s,
        first_queue_s=asked.restarts.first_queue_s,
        productive_s=asked.productive_s,
        finished=asked.form == "exact_finite",
        least_s=0.0,
    )
