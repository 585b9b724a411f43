"""Exit layer and draft length from measurements: what a round costs, and what it yields.

A round with d drafts at exit E costs (d + 1) c_E(1) + d h(1) + c_E..L(d + 1) + h(d + 1) seconds, where
c is the time of a range of layers over M rows and h that of the head; with acceptance a it yields (1 -
a^(d+1)) / (1 - a) tokens. Costs are measured on the model once per batch size; acceptance is estimated
from the prompts and then from the rounds themselves. Drafting stops where plain decoding is faster.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from holdfast.lm.generate.arena import Cache
from holdfast.lm.generate.decoder import Decoder
from holdfast.lm.generate.speculation import Plan, Round, lookup

LENGTHS = (1, 2, 3, 4, 6, 8)
"""Draft lengths that are considered."""
GAIN = 1.1
"""Predicted speed, relative to plain decoding, that a drafter needs to be used."""
_PROBE = 24
"""Positions of a prompt at which the guesses of the exits are compared with the last layer's."""
_MEMORY = 0.98
"""Weight of the past for each new draft: the estimate of acceptance follows the text."""
_PRIOR = 8.0
"""Drafts that the estimate from the prompts counts for."""
_REVIEW = 4
"""Rounds between two choices of plans: a choice takes longer than it changes."""
_TRIAL = 4
"""Rounds before the measured speed of a plan can switch it off."""


@dataclass(frozen=True)
class Costs:
    """Seconds of a pass over a batch, by number of rows per sequence."""

    layer: dict[int, float]
    head: dict[int, float]
    layers: int

    def round(self, plan: Plan) -> float:
        """Seconds of one round; without drafts, of one token."""
        rows = plan.length + 1
        late = (self.layers - plan.exit_layer) * self.layer[rows] + self.head[rows]
        return (
            late
            + rows * plan.exit_layer * self.layer[1]
            + (plan.length * self.head[1] if plan.exit_layer else 0.0)
        )


def tokens_per_round(acceptance: float, length: int) -> float:
    """Expected tokens of a round: (1 - a^(d+1)) / (1 - a)."""
    if acceptance >= 1:
        return length + 1.0
    return (1 - acceptance ** (length + 1)) / (1 - acceptance)


def measure_costs(
    decoder: Decoder, cache: Cache, starts: Sequence[int], lengths: Sequence[int]
) -> Costs:
    """Time layers and head on rows behind the texts; the next pass overwrites what this wrote."""
    batch = len(starts)
    rows_before = list(decoder.rows)
    layer: dict[int, float] = {}
    head: dict[int, float] = {}
    layers = len(decoder.blocks)
    for rows in sorted({1, *(length + 1 for length in lengths)}):
        x = decoder.embed(torch.zeros(batch, rows, dtype=torch.long, device=decoder.device), starts)
        layer[rows] = _fastest(decoder, lambda x=x: decoder.run(x, cache, starts)) / layers
        head[rows] = _fastest(decoder, lambda x=x: decoder.logits(x).argmax(-1))
    decoder.rows[:] = rows_before
    return Costs(layer, head, layers)


def _fastest(decoder: Decoder, work: Callable[[], Any], times: int = 2) -> float:
    seconds = math.inf
    for _ in range(times):
        begin = time.perf_counter()
        work()
        if decoder.device.type == "cuda":
            torch.cuda.synchronize(decoder.device)
        seconds = min(seconds, time.perf_counter() - begin)
    return seconds


@dataclass
class Acceptance:
    """Share of drafts that were accepted, of those judged (a draft behind a rejected one is not)."""

    accepted: float = 0.0
    judged: float = 0.0

    def add(self, accepted: float, judged: float, memory: float = _MEMORY) -> None:
        """Count a round, and forget a little of the past."""
        keep = memory**judged
        self.accepted = self.accepted * keep + accepted
        self.judged = self.judged * keep + judged

    def limited(self) -> Acceptance:
        """The same rate with the weight of at most `_PRIOR` drafts: rounds soon count for more."""
        share = min(1.0, _PRIOR / self.judged) if self.judged else 1.0
        return Acceptance(self.accepted * share, self.judged * share)

    @property
    def rate(self) -> float:
        """Estimate with half a success and one and a half failures more: a drafter has to prove itself."""
        return (self.accepted + 0.5) / (self.judged + 2)


@dataclass
class Profile:
    """What a generator has learned of its model; it outlives a request."""

    costs: dict[tuple[int, bool], Costs] = field(default_factory=dict)
    exits: dict[int, Acceptance] = field(default_factory=dict)
    overheads: dict[str, float] = field(default_factory=dict)
    """Drafter -> seconds of a round in the loop, relative to what its costs predict."""


def candidate_exits(layers: int) -> list[int]:
    """Exit layers that are considered: at most eight, spread over the lower three quarters."""
    step = max(1, round(0.75 * layers / 8))
    return sorted({*range(1, max(2, int(0.75 * layers) + 1), step)} & set(range(1, layers)))


def agreement(
    decoder: Decoder, cache: Cache, texts: Sequence[Sequence[int]], exits: Sequence[int]
) -> dict[int, tuple[int, int]]:
    """Per exit: at how many of the last positions of the prompts its guess is that of the last layer.

    The pass writes keys and values that the prefill has written already, with equal values.
    """
    rows_before = list(decoder.rows)
    same = dict.fromkeys(exits, 0)
    count = min(_PROBE, *(len(text) - 1 for text in texts))
    if count < 1:
        return {}
    starts = [len(text) - 1 - count for text in texts]
    tokens = [list(text[start : start + count]) for text, start in zip(texts, starts, strict=True)]
    x = decoder.embed(torch.tensor(tokens, device=decoder.device), starts)
    guesses, first = {}, 0
    for exit_layer in exits:
        x = decoder.run(x, cache, starts, first, exit_layer)
        guesses[exit_layer], first = decoder.logits(x).argmax(-1), exit_layer
    final = decoder.logits(decoder.run(x, cache, starts, first)).argmax(-1)
    for exit_layer, guess in guesses.items():
        same[exit_layer] = int((guess == final).sum())
    decoder.rows[:] = rows_before
    return {exit_layer: (hits, count * len(texts)) for exit_layer, hits in same.items()}


def lookup_agreement(texts: Sequence[Sequence[int]], length: int = 4) -> tuple[int, int]:
    """How many drafts by lookup would have been right inside the prompts."""
    accepted = judged = 0
    for text in texts:
        for end in range(max(2, len(text) - _PROBE), len(text)):
            for place, token in enumerate(lookup(text[:end], length)):
                if end + place >= len(text):
                    break
                judged += 1
                if token != text[end + place]:
                    break
                accepted += 1
    return accepted, judged


class Controller:
    """Chooses the plan of every round from costs and acceptance; one per request.

    Args:
        costs: of the model at this batch size.
        exits: acceptance by exit layer, shared between requests.
        lookups: acceptance of lookup at the prompts.
        overheads: of the profile: corrects the costs, which were measured outside the loop.
        lengths: draft lengths to choose among.
    """

    def __init__(
        self,
        costs: Costs,
        exits: dict[int, Acceptance],
        lookups: Acceptance,
        overheads: dict[str, float],
        lengths: Sequence[int] = LENGTHS,
    ) -> None:
        self.costs, self.exits, self.lookups, self.lengths = costs, exits, lookups, lengths
        self._overheads = overheads
        self._trials: dict[str, list[tuple[float, float]]] = {}
        self._barred: set[str] = set()
        self._ranking: list[Plan] = []
        self._rounds = 0

    def plan(self, texts: Sequence[Sequence[int]]) -> Plan:
        """The fastest plan by prediction; plain decoding where none gains `GAIN`."""
        if self._rounds % _REVIEW == 0:
            self._ranking = self._ranked()
        self._rounds += 1
        for plan in self._ranking:
            if plan.drafter in self._barred:
                continue
            if plan.drafter != "lookup" or any(lookup(text, 1) for text in texts):
                return plan
        return Plan()

    def _ranked(self) -> list[Plan]:
        """The best plan of each drafter, the fastest first, and without those that do not gain `GAIN`."""
        least = GAIN / self._seconds(Plan())
        best: dict[str, tuple[float, Plan]] = {}
        rates = {("early-exit", layer): estimate.rate for layer, estimate in self.exits.items()}
        for (drafter, layer), rate in (rates | {("lookup", 0): self.lookups.rate}).items():
            for length in self.lengths:
                plan = Plan(drafter, layer, length)
                speed = self._predicted(plan, rate)
                if speed > best.get(drafter, (least, plan))[0]:
                    best[drafter] = (speed, plan)
        return [plan for _, plan in sorted(best.values(), key=lambda pair: -pair[0])]

    def _predicted(self, plan: Plan, rate: float) -> float:
        return tokens_per_round(rate, plan.length) / self._seconds(plan)

    def _seconds(self, plan: Plan) -> float:
        return self.costs.round(plan) * self._overheads.get(plan.drafter, 1.0)

    def observe(self, done: Round, seconds: float) -> None:
        """Learn from a round: acceptance, and whether its drafter is slower than plain decoding."""
        plan = done.plan
        tokens = sum(map(len, done.verdict.tokens)) / len(done.verdict.tokens)
        overhead = self._overheads.setdefault(plan.drafter, 1.0)
        self._overheads[plan.drafter] += 0.1 * (seconds / self.costs.round(plan) - overhead)
        if plan.drafter == "none":
            return
        estimate = self.exits[plan.exit_layer] if plan.exit_layer else self.lookups
        for row, drafted in zip(done.verdict.tokens, done.drafted, strict=True):
            accepted = len(row) - 1
            estimate.add(accepted, accepted + (accepted < drafted))
        trial = self._trials.setdefault(plan.drafter, [])
        trial.append((tokens, seconds))
        if len(trial) >= _TRIAL:
            yielded, spent = sum(part[0] for part in trial), sum(part[1] for part in trial)
            if yielded * self._seconds(Plan()) < spent:
                self._barred.add(plan.drafter)
            trial.clear()
