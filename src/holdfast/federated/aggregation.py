"""Aggregation rules as pure functions: (global weights, updates, state) -> (new weights, new state).

`RULES` has every rule with its parameters and the least number of updates it needs. `aggregate` checks
the updates and applies one. FedAvg computes as Flower does, to the last bit; all others in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from holdfast.config import read_config, unknown_key
from holdfast.errors import InputError
from holdfast.federated import robust
from holdfast.federated.limits import Above, Count, Natural, NotNegative, Share
from holdfast.federated.updates import (
    Array,
    Arrays,
    Failure,
    Update,
    Weights,
    flat,
    screen,
    trained,
    unflat,
)
from holdfast.plain import plain

State = Arrays
"""What a rule remembers between rounds, name -> array."""
Result = tuple[Weights, State]

# --- Means ---------------------------------------------------------------------------------------


def steps_of(current: Weights, updates: Sequence[Update]) -> Array:
    """What each client adds to the global weights, [updates, n] in float64; see `flat`."""
    return np.stack([flat(update.weights) for update in updates]) - flat(current)


def stepped(current: Weights, step: Array) -> Arrays:
    """Global weights after a step [n]."""
    return unflat(flat(current) + step, current)


def fedavg(current: Weights, updates: Sequence[Update], state: State, **local: Any) -> Result:
    """Mean weighted by examples: w = sum n_k / n w_k (McMahan et al., arXiv 1602.05629).

    Added in the order of the updates and in their own precision (float32 at least), as Flower adds them.
    """
    shares = [float(update.examples) for update in updates]
    total = sum(shares)
    mean: Arrays = {}
    for update, share in zip(updates, shares, strict=True):
        for name in current:
            array = update.weights[name]
            # float16 as float32.
            part = np.multiply(array, share / total, dtype=np.result_type(array, np.float32))
            mean[name] = mean[name] + part if name in mean else part
    return mean, state


def q_fedavg(
    current: Weights, updates: Sequence[Update], state: State, *, q: float, learning_rate: float
) -> Result:
    """Clients with a larger loss count more (q-FFL; Li et al., arXiv 1905.10497, algorithm 2).

    With L = 1 / learning rate, d_k = L (w - w_k) and F_k the loss before training:
    w <- w - sum F_k^q d_k / sum (q F_k^(q-1) |d_k|^2 + L F_k^q). With q = 0 it is the plain mean.
    """
    scale = 1.0 / learning_rate
    loss = np.array([update.metrics["loss_before"] + 1e-10 for update in updates])
    steps = steps_of(current, updates)
    squares = np.array([np.linalg.norm(step) ** 2 for step in steps])
    curvature = np.sum(q * loss ** (q - 1) * scale**2 * squares + scale * loss**q)
    return stepped(current, (loss**q * scale / curvature) @ steps), state


def scaffold(
    current: Weights,
    updates: Sequence[Update],
    state: State,
    *,
    server_rate: float,
    population: int,
) -> Result:
    """Mean of the steps, with control variates against client drift (Karimireddy et al., arXiv 1910.06378).

    w <- w + server_rate mean(w_k - w); c <- c + |updates| / population mean(change of c_k).
    """
    changes = np.stack([update.control for update in updates if update.control is not None])
    control = state.get("control", np.zeros(changes.shape[1], changes.dtype))
    return stepped(current, server_rate * steps_of(current, updates).mean(axis=0)), {
        **state,
        "control": control + changes.sum(axis=0) / population,
    }


def fedadam(
    current: Weights,
    updates: Sequence[Update],
    state: State,
    *,
    server_rate: float,
    beta1: float,
    beta2: float,
    tau: float,
) -> Result:
    """Adam on the mean step d (Reddi et al., arXiv 2003.00295, algorithm 2).

    m <- b1 m + (1 - b1) d; v <- b2 v + (1 - b2) d^2; w <- w + server_rate m / (sqrt(v) + tau).
    With tau = 0 a weight that no update has moved stays as it is.
    """
    step = np.average(steps_of(current, updates), axis=0, weights=[u.examples for u in updates])
    m = beta1 * state.get("m", np.zeros(len(step))) + (1 - beta1) * step
    v = beta2 * state.get("v", np.full(len(step), tau**2)) + (1 - beta2) * step**2
    # With tau = 0 both are 0 where nothing has moved.
    return stepped(current, server_rate * m / np.maximum(np.sqrt(v) + tau, 1e-300)), {
        **state,
        "m": m,
        "v": v,
    }


def heteroswitch(
    current: Weights, updates: Sequence[Update], state: State, *, ema: float, **local: Any
) -> Result:
    """FedAvg, and the moving average of the training loss that switches clients (arXiv 2403.04207).

    L_EMA <- ema L + (1 - ema) L_EMA with L the mean training loss of the round, weighted by examples; the
    first round sets it. What clients do with it is in `training`.
    """
    weights, state = fedavg(current, updates, state)
    losses = [update.metrics["loss"] for update in updates]
    loss = np.average(losses, weights=[update.examples for update in updates])
    average = ema * loss + (1 - ema) * state.get("loss_ema", loss)
    return weights, {**state, "loss_ema": np.array(average)}


def deepsa(current: Weights, updates: Sequence[Update], state: State) -> Result:
    """FedAvg of the updates that the server's classifier takes for reliable; see `deepsa`.

    Raises:
        InputError: ``missing-key`` without a classifier in the state; ``too-few-updates`` if none is left.
    """
    from holdfast.federated.deepsa import reliable

    if "deepsa" not in state:
        problem, remedy = "deepsa needs the server's own data", "set data.proxy_share, or proxy="
        raise InputError(problem, code="missing-key", place="proxy", remedy=remedy)
    good = reliable(current, updates, state["deepsa"])
    left = [update for update, kept in zip(updates, good, strict=True) if kept]
    check_enough("deepsa", len(left), 0)
    return fedavg(current, left, state)


# --- The table of rules --------------------------------------------------------------------------


@dataclass(frozen=True)
class NoParameters:
    """Of a rule that has none."""


@dataclass(frozen=True)
class Robust:
    """Parameters of the rules that withstand liars."""

    f: Natural = 1
    """Number of lying clients to withstand."""


@dataclass(frozen=True)
class FedProx:
    """Parameters of FedProx."""

    mu: NotNegative = 0.01
    """Pull towards the global weights, on the clients."""


@dataclass(frozen=True)
class QFedAvg:
    """Parameters of q-FedAvg."""

    learning_rate: Above
    """Of the clients; the engine knows it."""
    q: NotNegative = 0.2
    """Fairness; 0 is the plain mean."""


@dataclass(frozen=True)
class Scaffold:
    """Parameters of SCAFFOLD."""

    population: Count
    """Number of all clients; the engine knows it."""
    server_rate: NotNegative = 1.0
    """Factor of the mean step."""


@dataclass(frozen=True)
class FedAdam:
    """Parameters of FedAdam."""

    server_rate: NotNegative = 0.01
    """Size of a step."""
    beta1: Share = 0.9
    """Share that the mean step keeps of the past."""
    beta2: Share = 0.99
    """Share that the mean squared step keeps of the past."""
    tau: NotNegative = 1e-3
    """Added to the root of the mean squared step."""


@dataclass(frozen=True)
class HeteroSwitch:
    """Parameters of HeteroSwitch."""

    ema: Share = 0.9
    """Share of a round in the moving average of the training loss."""
    switch: Literal["measured", "transform", "averaging", "always", "never"] = "measured"
    """Both switches as measured, one of them alone, both always, none."""
    gain: Share = 0.001
    """Range of the random white balance."""
    gamma: Share = 0.9
    """Range of the random exponent of tone."""


@dataclass(frozen=True)
class Rule:
    """One way to aggregate."""

    function: Callable[..., Result]
    parameters: type[Any] = NoParameters
    """Dataclass of its parameters, those of its clients among them; see `training.Task`."""
    least: tuple[int, int] = (0, 1)
    """(a, b): a f + b updates, or more, withstand f liars."""
    needs: str = ""
    """The metric of every update that it computes with, or ``control``."""
    untrained: str = ""
    """The rule for integers and buffers, such as BatchNorm's statistics, where this one scales steps or
    compares updates, which makes sense for trained parameters only; empty: this one."""


def _robust(
    function: Callable[[Array, int], Array],
    current: Weights,
    updates: Sequence[Update],
    state: State,
    *,
    f: int,
) -> Result:
    return unflat(function(np.stack([flat(u.weights) for u in updates]), f), current), state


RULES: dict[str, Rule] = {
    "fedavg": Rule(fedavg),
    "fedprox": Rule(fedavg, FedProx),
    "q-fedavg": Rule(q_fedavg, QFedAvg, needs="loss_before", untrained="fedavg"),
    "scaffold": Rule(scaffold, Scaffold, needs="control"),
    "fedadam": Rule(fedadam, FedAdam, untrained="fedavg"),
    "heteroswitch": Rule(heteroswitch, HeteroSwitch, needs="loss"),
    "deepsa": Rule(deepsa),
    "median": Rule(partial(_robust, robust.median), Robust, (2, 1)),
    "trimmed-mean": Rule(partial(_robust, robust.trimmed_mean), Robust, (2, 1)),
    "krum": Rule(partial(_robust, robust.krum), Robust, (2, 3), untrained="median"),
    "multi-krum": Rule(partial(_robust, robust.multi_krum), Robust, (2, 3), untrained="median"),
    "bulyan": Rule(partial(_robust, robust.bulyan), Robust, (4, 3), untrained="median"),
}
"""Name -> rule."""


def rule_named(
    name: str, parameters: Mapping[str, Any], known: Mapping[str, Any] | None = None
) -> tuple[Rule, dict[str, Any]]:
    """A rule and all its parameters.

    Args:
        name: of the rule.
        parameters: parameters that the user set.
        known: what the engine knows: ``learning_rate``, ``population``.

    Raises:
        InputError: ``unknown-key``, ``missing-key``, ``invalid-value`` or ``unknown-name``.
    """
    if name not in RULES:
        raise unknown_key(name, RULES, "rule")
    rule = RULES[name]
    names = [each.name for each in fields(rule.parameters)]
    engine = {key: value for key, value in (known or {}).items() if key in names}
    values = plain({**engine, **parameters})
    return rule, asdict(read_config(values, rule.parameters, f"the rule {name}"))


def check_enough(name: str, updates: int, f: int) -> None:
    """Refuse a rule whose guarantee does not hold for so few updates.

    Raises:
        InputError: ``too-few-updates``.
    """
    factor, more = RULES[name].least
    least = factor * f + more
    if updates < least:
        raise InputError(
            f"{name} needs more updates to withstand {f} lying clients",
            code="too-few-updates",
            place="rule.f" if f else None,
            found=f"{updates} usable updates",
            expected=f"at least {least}",
            remedy="lower f, or ask more clients per round",
        )


def aggregate(
    rule: str,
    current: Weights,
    updates: Sequence[Update],
    state: State | None = None,
    *,
    largest_norm: float | None = None,
    buffers: Collection[str] = (),
    **parameters: Any,
) -> tuple[Weights, State, list[Failure]]:
    """Check updates and aggregate those that can be used.

    Args:
        rule: a name in `RULES`.
        current: global weights before the round.
        updates: of the clients, in an order that does not depend on their speed.
        state: what the rule remembered of the last round; None: the first round.
        largest_norm: updates farther than this from `current` are excluded.
        buffers: names in `current` that are not trained, such as the statistics of BatchNorm.
        parameters: of the rule.

    Returns:
        New weights in the types of `current`, the rule's state, and the clients that were excluded.

    Raises:
        InputError: ``too-few-updates``; ``not-finite`` if the result is; unknown or invalid parameters.
    """
    known, values = rule_named(rule, parameters)
    usable, failures = screen(current, updates, largest_norm, buffers, known.needs)
    if failures and not usable:
        first = failures[0]
        found = f"{first.client}: {first.code}, {first.reason}"
        raise InputError("no update can be used", code="too-few-updates", found=found)
    return *combine(rule, current, usable, state or {}, values, buffers), failures


def combine(
    rule: str,
    current: Weights,
    usable: Sequence[Update],
    state: State,
    values: Mapping[str, Any],
    buffers: Collection[str] = (),
) -> tuple[Arrays, State]:
    """`aggregate` for updates that `screen` has passed and parameters that `rule_named` has checked."""
    check_enough(rule, len(usable), values.get("f", 0))
    other = RULES[rule].untrained
    own = trained(current, buffers) if other else current
    apart = [name for name in current if name not in own]
    with np.errstate(all="ignore"):  # what is not finite is refused below
        weights, after = RULES[rule].function(*_parts(current, usable, own), state, **values)
        if apart:
            _, given = rule_named(other, {})
            found, _ = RULES[other].function(*_parts(current, usable, apart), {}, **given)
            weights = {**weights, **found}
        result = {name: like(weights[name], array) for name, array in current.items()}
    for name, array in result.items():
        if array.dtype.kind != "f":
            # Rules compute in float64, which does not have all whole numbers beyond 2^53.
            arrays = [update.weights[name] for update in usable]
            np.copyto(array, arrays[0], "unsafe", np.equal(arrays, arrays[:1]).all(axis=0))
        elif not np.isfinite(array).all():
            problem, found = "the aggregate is too large for its type", f"{name} is not finite"
            expected = f"values of {array.dtype}"
            raise InputError(problem, code="not-finite", found=found, expected=expected)
    return result, after


def _parts(
    current: Weights, updates: Sequence[Update], names: Collection[str]
) -> tuple[Weights, Sequence[Update]]:
    """Some tensors of the global weights and of the updates."""
    kept = [replace(update, weights={n: update.weights[n] for n in names}) for update in updates]
    return {name: current[name] for name in names}, kept


def like(values: Array, model: Array) -> Array:
    """Values in the type of another array; counters (integers) are rounded."""
    rounded = np.rint(values) if model.dtype.kind in "iub" else values
    return np.asarray(rounded).astype(model.dtype)
