"""Sums of updates that no server sees: additive shares at several servers, clipping, Gaussian noise.

A client clips its step, the difference to the global weights, to a Euclidean norm, writes it in fixed point
and sends each server one share; the shares add up to it modulo 2^64, and any servers but all learn nothing.
Servers add the shares of the clients that reached every one of them, and open the sum alone
(`holdfast.private.mpc`). Each server adds Gaussian noise of its own, so that one honest server is enough.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.errors import InputError
from holdfast.federated.limits import check_limits
from holdfast.federated.updates import Array, Failure
from holdfast.private import mpc

FRACTION_BITS = 24
LEAST = 2
"""Fewer clients are not summed: the sum of one is its update."""
MEANS = ("fedavg", "fedprox")
"""Rules that need no more than the mean of the steps."""


@dataclass(frozen=True)
class Privacy:
    """Secure aggregation and user-level differential privacy."""

    clip: float = 1.0
    """Euclidean norm to which each client's step is clipped."""
    noise: float = 0.0
    """Standard deviation of each server's noise, in units of `clip`; 0: no differential privacy."""
    servers: int = 3
    """Servers that hold shares; those that collude must be fewer."""
    delta: float = 1e-5
    """Probability with which the privacy loss may be exceeded."""

    def check(self, rule: str) -> None:
        """Refuse settings that are not private, and rules that need single updates.

        Raises:
            InputError: ``out-of-range`` or ``unsupported``.
        """
        limits = {
            "clip": (0 < self.clip < np.inf, "above 0"),
            "noise": (0 <= self.noise < np.inf, "0 or more"),
            "servers": (2 <= self.servers <= 16, "2 to 16"),
            "delta": (0 < self.delta < 1, "above 0 and below 1"),
        }
        check_limits(vars(self), limits, "privacy.")
        if rule not in MEANS:
            raise InputError(
                f"{rule} compares or weighs single updates, which secure aggregation hides",
                code="unsupported",
                place="rule.name",
                found=rule,
                expected=f"one of {', '.join(MEANS)}",
                remedy="clipping bounds what one liar can do; or aggregate in the clear",
            )


def clipped(step: Array, clip: float) -> Array:
    """The step, shortened to a norm of at most `clip`, on the grid of fixed point.

    Values are cut towards zero, so that the norm of what is sent is not above `clip` either.
    """
    norm = float(np.linalg.norm(step))
    shortened = step * min(1.0, clip / norm) if norm else step
    return np.asarray(np.trunc(shortened * 2**FRACTION_BITS)).astype(np.int64)


def shares(values: Array, servers: int) -> Array:
    """Additive shares modulo 2^64 of integers [n]: [servers, n], all but one of them uniform."""
    random = np.frombuffer(os.urandom(8 * (servers - 1) * values.size), dtype=np.int64)
    random = random.reshape(servers - 1, values.size)
    with np.errstate(over="ignore"):
        last = values - random.sum(axis=0)
    return np.concatenate([random, last[None]])


def secure_mean(
    steps: Mapping[str, Array],
    privacy: Privacy,
    seed: Sequence[int],
    *,
    delivered: Mapping[str, Collection[int]] | None = None,
    channels: Sequence[Any] | None = None,
) -> tuple[Array, list[Failure]]:
    """Mean of the clients' clipped steps, with noise, of which servers see nothing else.

    Args:
        steps: client -> step [n].
        privacy: clip, noise, servers.
        seed: of the servers' noise.
        delivered: client -> servers that its share reached; clients that are not named reached all.
        channels: between the servers, instead of plain ones in this process.

    Returns:
        The mean [n] over the clients that reached every server, and the others.

    Raises:
        InputError: ``too-few-updates``; ``out-of-range`` if the sum does not fit.
    """
    import torch

    names, servers = list(steps), privacy.servers
    limit = 2.0 ** (62 - FRACTION_BITS)
    fits = len(names) * privacy.clip * (1 + 10 * servers * privacy.noise) < limit
    expected = f"a sum of all clients that fits into 62 bits, below {limit:g}"
    check_limits(vars(privacy), {"clip": (fits, expected)}, "privacy.")
    whole = range(servers)
    places = [(delivered or {}).get(name, whole) for name in names]
    reached = np.array([[server in place for place in places] for server in whole], np.uint8)
    sent = [shares(clipped(step, privacy.clip), servers) for step in steps.values()]

    def serve(party: Any) -> Array:
        # 1. Which clients reached every server: public.
        answers = party.channel.exchange(reached[party.rank])
        lists = [np.frombuffer(answer, np.uint8) for answer in answers]
        all_reached: Array = np.min(lists, axis=0)
        # 2. The sum of their shares, and this server's noise.
        if all_reached.sum() < LEAST:
            return all_reached
        rng = np.random.default_rng([*seed, party.rank])
        scale = privacy.noise * privacy.clip * 2**FRACTION_BITS
        total = np.rint(rng.normal(0.0, scale, sent[0].shape[1])).astype(np.int64)
        total += np.sum([sent[k][party.rank] for k in np.flatnonzero(all_reached)], axis=0)
        # 3. The only thing that is opened.
        opened = mpc.SharedTensor(party, torch.from_numpy(total), FRACTION_BITS).reveal()
        return np.concatenate([all_reached, np.asarray(opened)])

    answer = mpc.simulate(servers, serve, channels=channels, fraction_bits=FRACTION_BITS)[0]
    whole, total = answer[: len(names)].astype(bool), answer[len(names) :]
    failures = [
        Failure(name, "no-answer", "dropped out during secure aggregation")
        for name, good in zip(names, whole, strict=True)
        if not good
    ]
    if whole.sum() < LEAST:
        raise InputError(
            "too few clients for secure aggregation: a sum of one is its update",
            code="too-few-updates",
            found=f"{whole.sum()} usable updates",
            expected=f"at least {LEAST}",
        )
    return total / whole.sum(), failures


def privacy_loss(privacy: Privacy, rounds: int) -> float | None:
    """Epsilon of a client's whole data after some rounds, at ``privacy.delta``; None without noise.

    Neighbors differ in one client's updates being zero. The Gaussian mechanism of every round is composed
    by dp-accounting, as if the client took part in all: no amplification by sampling is claimed. Only the
    noise of one server counts, which the others may not know.
    """
    if not privacy.noise:
        return None
    from dp_accounting import GaussianDpEvent
    from dp_accounting.pld import PLDAccountant

    # A fine grid over the huge loss of little noise would take minutes and gigabytes.
    mean_loss = rounds / (2 * privacy.noise**2)
    accountant = PLDAccountant(value_discretization_interval=max(1e-4, mean_loss / 1e4))
    accountant.compose(GaussianDpEvent(privacy.noise), rounds)
    return float(accountant.get_epsilon(privacy.delta))
