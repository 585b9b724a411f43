r"""The chances behind a test's outcome: a small model of nodes, of what lies between them, and of luck.

A node is *good*, *faulty* (every test with it fails) or *intermittent* (it fails a test with probability
`PairModel.failing_share`). The same three states hold for what lies between the nodes of one test (cable,
switch, route). A test passes if nothing in it fails, and then still fails by chance with a small
probability. With $I$ the number of intermittent nodes and links in a test, $q$ the failing share and
$\epsilon$ the chance of a failure without a cause,

$$P(pass) = 0 \text{ if anything is faulty, else } (1-\epsilon)(1-q)^I.$$

The states of nodes are independent beforehand, with the probabilities below. They are assumptions for want
of a survey; they order suspects and weigh contradictions, and no node is called faulty because of them.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from holdfast.errors import InputError

GOOD, FAULTY, INTERMITTENT = 0, 1, 2
STATES = 3


@dataclass(frozen=True)
class PairModel:
    """What is assumed of nodes, links and luck before any test."""

    faulty: float = 0.01
    """Probability that a node is faulty."""
    intermittent: float = 0.002
    """Probability that a node is intermittent."""
    failing_share: float = 0.5
    """Share of tests that an intermittent node or link fails."""
    link_faulty: float = 0.0005
    """Probability that what lies between the nodes of one test is faulty."""
    link_intermittent: float = 0.0005
    """Probability that it is intermittent."""
    chance: float = 0.0005
    """Probability that a test fails although nothing in it is bad."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 < value < 1:
                raise InputError(
                    f"invalid {name}: not a probability",
                    code="out-of-range",
                    found=str(value),
                    expected="more than 0 and less than 1",
                )
        if self.faulty + self.intermittent >= 1 or self.link_faulty + self.link_intermittent >= 1:
            raise InputError(
                "no room is left for good nodes",
                code="out-of-range",
                expected="faulty and intermittent add up to less than 1",
            )

    @property
    def node_prior(self) -> npt.NDArray[np.float64]:
        """Probabilities of a node's states, [3]."""
        return np.array(
            [1 - self.faulty - self.intermittent, self.faulty, self.intermittent], np.float64
        )

    @property
    def link_prior(self) -> npt.NDArray[np.float64]:
        """Probabilities of a link's states, [3]."""
        good = 1 - self.link_faulty - self.link_intermittent
        return np.array([good, self.link_faulty, self.link_intermittent], np.float64)


@lru_cache(maxsize=4096)
def likelihood(model: PairModel, nodes: int, passed: int, failed: int) -> npt.NDArray[np.float64]:
    """Probability of a set's outcomes jointly with its link's state, given the states of its nodes.

    Args:
        model: the assumptions.
        nodes: how many nodes the set has.
        passed: tests on this set that passed.
        failed: tests on this set that failed.

    Returns:
        [3] * nodes + [3]: axes of the nodes, then of the link. Scaled by a constant.
    """
    logs = np.full((STATES,) * (nodes + 1), -np.inf)
    for states in itertools.product(range(STATES), repeat=nodes + 1):
        flapping = states.count(INTERMITTENT)
        passes = (1 - model.chance) * (1 - model.failing_share) ** flapping
        if FAULTY not in states:
            seen = passed * math.log(passes) + failed * math.log1p(-passes)
        elif passed:
            continue  # what is faulty never passes
        else:
            seen = 0.0
        logs[states] = math.log(model.link_prior[states[-1]]) + seen
    table: npt.NDArray[np.float64] = np.exp(logs - logs.max())
    table.flags.writeable = False
    return table
