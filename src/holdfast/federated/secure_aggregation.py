"""Sums of updates that no server sees: additive shares at several servers, clipping, Gaussian noise.

A client clips its step, the difference to the global weights, to a Euclidean norm, writes it in fixed point
and sends each server one share; the shares add up to it modulo 2^64, and any servers but all learn nothing.
Servers add the shares of the clients that reached every one of them, and open the sum alone
(`holdfast.private.mpc`). Each server adds Gaussian noise of its own, so that one honest server is enough.

Multi-Krum on shares also opens the distances between the updates, and then the sum of those it chooses.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from holdfast.config import invalid_value
from holdfast.errors import InputError
from holdfast.federated.aggregation import check_enough
from holdfast.federated.limits import Above, NotNegative, Part, check
from holdfast.federated.robust import nearest_first
from holdfast.federated.updates import Array, Failure
from holdfast.private import mpc

FRACTION_BITS = 24
LEAST = 2
"""Fewer clients are not summed: the sum of one is its update."""
RULES = ("fedavg", "fedprox", "multi-krum")
"""Two that need no more than the mean of the steps, and one that needs their distances too."""
MOST = 50
"""Clients of Multi-Krum on shares: its products and distances grow with their square."""


@dataclass(frozen=True)
class Privacy:
    """Secure aggregation and user-level differential privacy."""

    clip: Above = 1.0
    """Euclidean norm to which each client's step is clipped."""
    noise: NotNegative = 0.0
    """Standard deviation of each server's noise, in units of `clip`; 0: no differential privacy."""
    servers: Annotated[int, Meta(ge=2, le=16)] = 3
    """Servers that hold shares; those that collude must be fewer."""
    delta: Part = 1e-5
    """Probability with which the privacy loss may be exceeded."""

    def check(self, rule: str, clients: int) -> None:
        """Refuse settings that are not private, and rules that need single updates.

        Args:
            rule: its name.
            clients: number of clients per round.

        Raises:
            InputError: ``invalid-value`` or ``unsupported``.
        """
        check(self)
        # Squared distances are at most (2 clip)^2, and have to fit into 63 bits.
        longest = 2.0 ** (30.5 - FRACTION_BITS)
        limits = {
            "privacy.clip": (self.clip < longest, self.clip, f"below {longest:.3g}"),
            "privacy.noise": (
                self.noise == 0,
                self.noise,
                "0: distances, which are opened, have no noise",
            ),
            "per_round": (clients <= MOST, clients, f"at most {MOST}"),
        }
        for place, (valid, found, expected) in limits.items():
            if rule == "multi-krum" and not valid:
                problem = "multi-krum on shares cannot do this"
                raise invalid_value(problem, None, place, found, expected)
        if rule not in RULES:
            raise InputError(
                f"{rule} compares or weighs single updates, which secure aggregation hides",
                code="unsupported",
                place="rule.name",
                found=rule,
                expected=f"one of {', '.join(RULES)}",
                remedy="take multi-krum, which runs on shares; or aggregate in the clear",
            )


def clipped(step: Array, clip: float) -> Array:
    """The step, shortened to a norm of at most `clip`, on the grid of fixed point.

    Values are cut towards zero, so that the norm of what is sent is not above `clip` either.
    """
    norm = float(np.linalg.norm(step))
    shortened = step * min(1.0, clip / norm) if norm else step
    return np.trunc(shortened * 2**FRACTION_BITS).astype(np.int64)


def shares(values: Array, servers: int) -> Array:
    """Additive shares modulo 2^64 of integers [n]: [servers, n], all but one of them uniform."""
    length = 8 * (servers - 1) * values.size
    random = np.frombuffer(os.urandom(length), np.int64).reshape(servers - 1, values.size)
    with np.errstate(over="ignore"):
        last = values - random.sum(axis=0)
    return np.concatenate([random, last[None]])


def secure_mean(
    steps: Mapping[str, Array],
    privacy: Privacy,
    seed: Sequence[int],
    *,
    f: int | None = None,
    delivered: Array | None = None,
    channels: Sequence[Any] | None = None,
) -> tuple[Array, list[Failure]]:
    """Mean of the clients' clipped steps, with noise, of which servers see nothing else.

    Args:
        steps: client -> step [n].
        privacy: clip, noise, servers.
        seed: of the servers' noise.
        f: number of liars: the mean is that of Multi-Krum, and servers see the distances between steps;
            None: all steps.
        delivered: [servers, clients] whether a client's share reached a server; None: all did.
        channels: between the servers, instead of plain ones in this process.

    Returns:
        The mean [n] over the clients that reached every server, and those that did not (``no-answer``) or
        are too far from more than f others for a clipped step (``norm``).

    Raises:
        InputError: ``too-few-updates``; ``invalid-value`` if the sum does not fit; ``norm`` if it is larger
            than that of clipped steps.
    """
    import torch

    names, servers = [*steps], privacy.servers
    limit = 2.0 ** (62 - FRACTION_BITS)
    # Of any coordinate of the mean, with the noise.
    largest = privacy.clip * (1 + 10 * servers * privacy.noise)
    if len(names) * largest >= limit:
        expected = f"a sum of all clients that fits into 62 bits, below {limit:g}"
        raise invalid_value("the clip is too large", None, "privacy.clip", privacy.clip, expected)
    reached = np.ones((servers, len(names))) if delivered is None else delivered
    sent = [shares(clipped(step, privacy.clip), servers) for step in steps.values()]

    def serve(party: Any) -> tuple[Array, Array, Array]:
        # 1. Which clients reached every server: public.
        answers = party.channel.exchange(reached[party.rank].astype(np.uint8))
        lists = [np.frombuffer(answer, np.uint8) for answer in answers]
        present = inside = chosen = np.flatnonzero(np.min(lists, axis=0))
        if len(present) < LEAST:
            raise InputError(
                "too few clients for secure aggregation: a sum of one is its update",
                code="too-few-updates",
                found=f"{len(present)} usable updates",
                expected=f"at least {LEAST}",
            )
        own = np.stack([sent[k][party.rank] for k in present])
        # 2. Whose steps count.
        if f is not None:
            near, best = _multi_krum(party, own, privacy.clip, f)
            inside, chosen, own = present[near], present[best], own[best]
        # 3. The sum of their shares, and this server's noise, opened.
        rng = np.random.default_rng([*seed, party.rank])
        scale = privacy.noise * privacy.clip * 2**FRACTION_BITS
        total = np.rint(rng.normal(0.0, scale, own.shape[1])).astype(np.int64) + own.sum(axis=0)
        opened = mpc.SharedTensor(party, torch.from_numpy(total), FRACTION_BITS).reveal()
        return present, inside, np.asarray(opened) / len(chosen)

    present, inside, mean = mpc.simulate(
        servers, serve, channels=channels, fraction_bits=FRACTION_BITS
    )[0]
    if (found := np.abs(mean).max(initial=0.0)) > largest:
        raise InputError(
            "a client did not clip its step",
            code="norm",
            found=f"a mean step of {found:.3g} in one coordinate",
            expected=f"at most {largest:.3g}",
        )
    left = "dropped out during secure aggregation"
    far = f"not within {2 * privacy.clip:g}, twice the clip, of most others"
    return mean, [
        *(Failure(names[k], "no-answer", left) for k in np.setdiff1d(range(len(names)), present)),
        *(Failure(names[k], "norm", far) for k in np.setdiff1d(present, inside)),
    ]


def _multi_krum(party: Any, own: Array, clip: float, f: int) -> tuple[Array, Array]:
    """Places of steps [clients, n] of which this server has shares: within the clip, and chosen.

    Exact modulo 2^64; only the distance of each pair is opened.
    """
    import torch
    from scipy.spatial.distance import squareform

    # 1. |a|^2 + |b|^2 - 2ab, in integers, which do not cancel.
    steps = mpc.SharedTensor(party, torch.from_numpy(own), 0)
    # Of clipped steps; products of others wrap around, and are told from the distances.
    products = steps.product(steps.T, "matmul", bound=(clip * 2**FRACTION_BITS) ** 2).share
    squares = products.diagonal()
    distances = squares[:, None] + squares - 2 * products
    pairs = torch.triu_indices(len(own), len(own), 1)
    opened = np.asarray(mpc.SharedTensor(party, distances[*pairs], 0).reveal())
    # 2. Clipped steps are at most twice the clip apart. Of those of liars f may be farther from anybody.
    near = (opened >= 0) & (opened <= (2 * clip * 2**FRACTION_BITS) ** 2)
    table = squareform(np.where(near, opened, np.inf))
    inside = np.flatnonzero(np.isinf(table).sum(axis=1) <= f)
    # 3. Multi-Krum.
    check_enough("multi-krum", len(inside), f)
    best = nearest_first(table[np.ix_(inside, inside)], f)[: len(inside) - f]
    return inside, inside[sorted(best)]


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
