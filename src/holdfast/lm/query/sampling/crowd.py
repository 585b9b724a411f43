"""All samples of a query, advancing together: each distinct beginning is asked of the model once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from holdfast.lm.models.protocol import F64, LanguageModel, NextToken, Prefix
from holdfast.lm.query.sampling.walking import I64, Node, Options, Status, Walk, choose


@dataclass(eq=False)
class Crowd:
    """Samples (particles) and the beginnings at which they stand.

    The weight of a sample multiplies, step by step, the probability that the automaton leaves of the
    model's; it is unbiased for the mass whatever the steps drawn: E[weight * 1(ended)] = mass.
    """

    nodes: list[Node]
    at: I64
    """[n] the node of each sample."""
    log_weight: F64
    """[n] -inf for samples that died or were cut."""
    unlisted: bool = False
    """Whether the model did not list some token that could have followed."""

    @staticmethod
    def at_prompts(walk: Walk, prompts: I64, log_condition: F64) -> Crowd:
        """Samples in front of their first token.

        Args:
            walk: the query's steps.
            prompts: [n] the prompt of each sample.
            log_condition: [prompts] log probability of what is given, which weights are conditional on.
        """
        crowd = Crowd(
            [walk.start(prompt) for prompt in range(len(walk.prompts))],
            prompts,
            -log_condition[prompts],
        )
        crowd.settle()
        return crowd

    def settle(self) -> None:
        """Drop the nodes without samples, and set the weight of dead and cut samples to zero."""
        used, at = np.unique(self.at, return_inverse=True)
        nodes = [self.nodes[place] for place in used]
        lost = np.array([node.status in (Status.DEAD, Status.CUT) for node in nodes], bool)
        log_weight = np.where(lost[at], -math.inf, self.log_weight)
        self.nodes, self.at, self.log_weight = nodes, at, log_weight

    def is_open(self) -> npt.NDArray[np.bool_]:
        """[n] whether each sample is still open."""
        return np.array([node.status == Status.OPEN for node in self.nodes], bool)[self.at]

    def status(self) -> npt.NDArray[np.int64]:
        """[n] the `Status` of each sample."""
        return np.array([node.status for node in self.nodes], np.int64)[self.at]


def advance(
    model: LanguageModel, walk: Walk, crowd: Crowd, rng: np.random.Generator, batch: int
) -> None:
    """Draw one more token (or the end) for every open sample.

    Uses one random number per sample, so that the result does not depend on the batch size.

    Raises:
        ModelStopped: if the model cannot continue; the samples are then unchanged.
    """
    uniforms = rng.random(len(crowd.at))
    turn = np.argsort(crowd.at, kind="stable")
    bounds = np.searchsorted(crowd.at[turn], np.arange(len(crowd.nodes) + 1))
    nodes, at = list(crowd.nodes), crowd.at.copy()
    log_weight, unlisted = crowd.log_weight.copy(), crowd.unlisted
    for place, answer in _answers(model, walk, crowd.nodes, batch):
        members = turn[bounds[place] : bounds[place + 1]]
        node = crowd.nodes[place]
        options = walk.options(node, answer)
        unlisted |= options.unlisted
        log_kept = options.log_allowed
        log_weight[members] += log_kept
        if log_kept == -math.inf:
            nodes[place] = walk.lost(node)
            continue
        at[members] = _moved(walk, node, options, uniforms[members], nodes)
    crowd.nodes, crowd.at, crowd.log_weight, crowd.unlisted = nodes, at, log_weight, unlisted
    crowd.settle()


def _moved(walk: Walk, node: Node, options: Options, uniforms: F64, nodes: list[Node]) -> I64:
    """[members] places of the children drawn, which are added to `nodes`."""
    chosen, which = np.unique(choose(options.logprobs, uniforms), return_inverse=True)
    first = len(nodes)
    nodes += [walk.child(node, options, int(place)) for place in chosen]
    return which + first


def _answers(
    model: LanguageModel, walk: Walk, nodes: list[Node], batch: int
) -> Iterator[tuple[int, NextToken]]:
    """(place of an open node, the distribution after it); prefixes that nodes share are asked once."""
    asking: dict[Prefix, list[int]] = {}
    for place, node in enumerate(nodes):
        if node.status == Status.OPEN:
            asking.setdefault(walk.prefix(node), []).append(place)
    distinct = list(asking)
    for low in range(0, len(distinct), batch):
        prefixes = distinct[low : low + batch]
        for prefix, answer in zip(prefixes, model.logprobs(prefixes), strict=True):
            for place in asking[prefix]:
                yield place, answer
