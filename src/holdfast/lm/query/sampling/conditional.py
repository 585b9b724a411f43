"""Samples from the language itself: token sequences by their probability under an n-gram model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.lm.models.protocol import F64
from holdfast.lm.query.decoding import log_sum
from holdfast.lm.query.exact import ExactDistances
from holdfast.lm.query.sampling.walking import choose


@dataclass(frozen=True)
class Path:
    """A token sequence that was drawn."""

    prompt: int
    tokens: tuple[int, ...]
    logprob: float
    """Under the model, the end of the text included where the event has one, given the prefix."""


def total_log_mass(distances: Sequence[ExactDistances]) -> float:
    """Log of the mass of all prompts together."""
    return log_sum(_log_masses(distances))


def draw_paths(
    distances: Sequence[ExactDistances], samples: int, rng: np.random.Generator
) -> list[Path]:
    """Independent paths from the conditional distribution of the event.

    From a state, an arc is taken in proportion to its probability times that of the event from its end
    on, and the path ends in proportion to the state's final weight: no path meets a dead end.

    Args:
        distances: the prompts; their mass together is above 0.
        samples: n.
        rng: source of random numbers.
    """
    logs = _log_masses(distances)
    prompts = rng.choice(len(logs), samples, p=np.exp(logs - log_sum(logs)))
    drawn: list[Path | None] = [None] * samples
    for prompt in np.unique(prompts).tolist():
        places = np.flatnonzero(prompts == prompt)
        part = distances[prompt]
        for place, path in zip(places, _of_one(prompt, part, len(places), rng), strict=True):
            drawn[place] = path
    return [path for path in drawn if path is not None]


def _log_masses(distances: Sequence[ExactDistances]) -> F64:
    return np.array([math.log(part.share) + part.log_mass for part in distances])


def _of_one(
    prompt: int, part: ExactDistances, samples: int, rng: np.random.Generator
) -> list[Path]:
    """Paths of one prompt, all advancing together."""
    lattice = part.lattice
    state = np.full(samples, lattice.start)
    logprob = np.full(samples, -part.log_condition)
    tokens: list[list[int]] = [[] for _ in range(samples)]
    going = np.arange(samples)
    while len(going):
        uniforms = rng.random(len(going))
        kept = np.ones(len(going), bool)
        here = state[going]
        for one in np.unique(here).tolist():
            members = np.flatnonzero(here == one)
            arcs = slice(int(lattice.offsets[one]), int(lattice.offsets[one + 1]))
            targets = lattice.nextstate[arcs]
            steps = np.append(-lattice.weight[arcs], -lattice.final[one])
            onward = steps + np.append(part.log_onward[targets], 0.0)
            chosen = choose(onward, uniforms[members])
            logprob[going[members]] += steps[chosen]
            ends = chosen == len(targets)
            kept[members[ends]] = False
            for member, place in zip(members[~ends], chosen[~ends], strict=True):
                sample = going[member]
                tokens[sample].append(int(lattice.ilabel[arcs][place]) - 1)
                state[sample] = targets[place]
        going = going[kept]
    return [
        Path(prompt, tuple(path), float(log)) for path, log in zip(tokens, logprob, strict=True)
    ]
