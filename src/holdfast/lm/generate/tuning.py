"""Plans from measurements: what a round costs, what it yields, and when drafting stops.

The rounds themselves are the measurements: nothing is computed that yields no token, but for the heads of
the exits in a few plain rounds. In units of a plain round, d drafts at exit E cost

    (d + 1) (1 - h) E / L + d h + ((1 - h) (L - E) / L + h) growth(d + 1)

where h is the head's share of the weights and growth(M) is the cost of M rows relative to one, measured in
earlier rounds. With acceptance a the round yields (1 - a^(d+1)) / (1 - a) tokens. A plan is tried only
where the time that it loses if every draft is rejected is within an allowance: a share of the time that
plain decoding of the whole request would take. What is learned outlives the request.

Rows of texts that have ended leave a batch. A part of the cost of a plain round is proportional to the
number of texts, the rest is paid per round: a token of any text saves of the first, and only one of the
text that is furthest from its limit saves of the second.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.lm.generate.speculation import LONGEST_MATCH, Matches, Plan, Round

LENGTHS = (1, 2, 3, 4, 6, 8)
"""Draft lengths that are considered."""
GAIN, BATCH_GAIN = 1.1, 0.2
"""Predicted speed, relative to plain decoding, that a plan needs to be used, and what the first of a batch
needs more: once the texts differ in length, all later rounds cost more."""
ALLOWANCE = 0.03
"""Share of the time of plain decoding that drafts may lose in a request."""
_CREDIT = 2.0
"""Plain rounds of the allowance that may be lost at once: a text may end long before its limit."""
_MEMORY = 0.98
"""Weight of the past for each new draft: the estimate of acceptance follows the text."""
_PRIOR = 8.0
"""Drafts that the estimate of earlier texts counts for."""
_JUDGED = 6
"""Plain rounds in which the exits are judged before any is used."""
_REVISIT = 32
"""Rounds between two plain ones that measure the cost at the present length, and the exits."""
_REVIEW = 8
"""Rounds between two choices among the exits: a choice takes longer than it changes."""
_GROWTH = 0.15
"""Cost of a further row, relative to the first, before any is measured."""


def tokens_per_round(acceptance: float, length: int) -> float:
    """Expected tokens of a round: (1 - a^(d+1)) / (1 - a)."""
    if acceptance >= 1:
        return length + 1.0
    return (1 - acceptance ** (length + 1)) / (1 - acceptance)


def candidate_exits(layers: int) -> list[int]:
    """Exit layers that are considered: at most eight, spread over the lower three quarters."""
    step = max(1, round(0.75 * layers / 8))
    return sorted({*range(1, max(2, int(0.75 * layers) + 1), step)} & set(range(1, layers)))


@dataclass
class Costs:
    """What rounds cost at one batch size, learned from rounds.

    Args:
        layers: of the model.
        head_share: share of the head in the weights that a token reads.
    """

    layers: int
    head_share: float
    growth: dict[tuple[str, int], deque[float]] = field(default_factory=dict)
    """(Drafter, further rows per text of a verification) -> latest costs of one, relative to the first."""
    plain: float = 0.0
    """Seconds of a plain round; 0 before any was measured."""
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=9))

    def of_batch(self, plain: float) -> Costs:
        """Expected costs at another batch size, where a plain round takes `plain` seconds."""
        growth = {key: deque(latest, maxlen=5) for key, latest in self.growth.items()}
        return Costs(self.layers, self.head_share, growth, plain)

    def relative(self, plan: Plan, unknown: float = _GROWTH) -> float:
        """Cost of a round in plain rounds; `unknown` is that of a further row before any is measured."""
        drafting, verifying = self._parts(plan)
        return drafting + verifying * self._growth(plan, unknown)

    @property
    def measured(self) -> bool:
        """Whether `plain` is more than an expectation."""
        return bool(self._recent)

    def add_plain(self, seconds: float) -> None:
        """Learn from a plain round: the median of the latest counts."""
        self._recent.append(seconds)
        self.plain = statistics.median(self._recent)

    def add(self, plan: Plan, relative: float) -> None:
        """Learn from a round with drafts."""
        drafting, verifying = self._parts(plan)
        latest = self.growth.setdefault((plan.drafter, math.ceil(plan.further)), deque(maxlen=5))
        latest.append(max(0.0, (relative - drafting) / verifying - 1) / plan.further)

    def relax(self) -> None:
        """Expect a little less than was measured: what a busy moment made slow is tried again."""
        for latest in self.growth.values():
            latest.append(0.8 * statistics.median(latest))

    def _parts(self, plan: Plan) -> tuple[float, float]:
        """Drafting, and verifying with one row, in plain rounds."""
        early = plan.exit_layer / self.layers * (1 - self.head_share)
        drafting = (plan.length + 1) * early + (plan.length * self.head_share if early else 0.0)
        return drafting, 1 - early

    def _growth(self, plan: Plan, unknown: float) -> float:
        """Cost of the rows of a verification, in that of the first, by the nearest number measured."""
        if not (further := plan.further):
            return 1.0
        rows = [rows for drafter, rows in self.growth if drafter == plan.drafter]
        if not rows:
            return 1 + unknown * further
        nearest = min(rows, key=lambda count: abs(count - further))
        return 1 + statistics.median(self.growth[plan.drafter, nearest]) * further


@dataclass
class Acceptance:
    """Share of drafts that were accepted, of those judged (a draft behind a rejected one is not)."""

    accepted: float = 0.0
    judged: float = 0.0

    def add(self, accepted: float, judged: float, memory: float = _MEMORY) -> None:
        """Count drafts, and forget a little of the past."""
        keep = memory**judged
        self.accepted = self.accepted * keep + accepted
        self.judged = self.judged * keep + judged

    def limit(self) -> None:
        """Weigh the past like `_PRIOR` drafts: those of a new text soon count for more."""
        share = min(1.0, _PRIOR / self.judged) if self.judged else 1.0
        self.accepted, self.judged = self.accepted * share, self.judged * share

    @property
    def rate(self) -> float:
        """Estimate with half a success and one and a half failures more: a drafter has to prove itself."""
        return (self.accepted + 0.5) / (self.judged + 2)


@dataclass
class Profile:
    """What a generator has learned of its model on this machine."""

    layers: int
    head_share: float
    lengths: Sequence[int] = LENGTHS
    exits: dict[int, Acceptance] = field(default_factory=dict)
    """Acceptance of drafts by exit layer."""
    copies: dict[int, Acceptance] = field(default_factory=dict)
    """Acceptance of copied drafts by the number of tokens that matched."""
    costs: dict[int, Costs] = field(default_factory=dict)
    """By batch size."""
    allowance: float = 0.0
    """Plain rounds that the present request may still lose; what its drafts gained is added."""
    earning: float = 0.0
    """Allowance that each plain round's worth of progress adds."""

    def __post_init__(self) -> None:
        self.exits = {layer: Acceptance() for layer in candidate_exits(self.layers)}
        self.copies = {size: Acceptance() for size in range(1, LONGEST_MATCH + 1)}

    def start(self, rounds: int) -> None:
        """Begin a request that takes plain decoding at most `rounds` rounds, over all its batches."""
        self.allowance = min(_CREDIT, ALLOWANCE * rounds)
        self.earning = ALLOWANCE - self.allowance / rounds
        for estimate in (*self.exits.values(), *self.copies.values()):
            estimate.limit()
        for costs in self.costs.values():
            costs.relax()


class Controller:
    """Chooses the plan of every round of one batch.

    Args:
        profile: learned before, and further here.
        batch: number of texts.
        fixed: passes cost the same whatever some texts need: rows stay, and have equally many drafts.
    """

    def __init__(self, profile: Profile, batch: int, fixed: bool = False) -> None:
        self.profile, self.batch, self._fixed = profile, batch, fixed
        self.costs = profile.costs.setdefault(batch, Costs(profile.layers, profile.head_share))
        self._rounds = 0
        self._aligned = True
        self._early = Plan()

    def shrink(self, batch: int) -> None:
        """Go on with fewer texts."""
        costs = self.profile.costs
        if self.costs.plain and batch not in costs:
            rows = 1 - self._row_share * (1 - batch / self.batch)
            costs[batch] = self.costs.of_batch(self.costs.plain * rows)
        self.batch = batch
        self.costs = costs.setdefault(batch, Costs(self.profile.layers, self.profile.head_share))
        self._aligned = True

    @property
    def _gain(self) -> float:
        return GAIN + BATCH_GAIN * (self.batch > 1 and self._aligned)

    @property
    def _row_share(self) -> float:
        """Share of a plain round that falls with the number of texts."""
        if self._fixed:
            return 0.0
        own, others = self.costs.plain, self.profile.costs.items()
        measured = {batch: costs.plain for batch, costs in others if costs.measured}
        measured.pop(self.batch, None)
        if not (measured and own):
            return _GROWTH * self.batch / (1 + _GROWTH * (self.batch - 1))
        other = min(measured)
        share = (1 - measured[other] / own) / (1 - other / self.batch)
        return min(0.9, max(0.0, share))

    def plan(self, matches: Sequence[Matches], left: int) -> Plan:
        """The fastest plan by prediction that is affordable; plain decoding where none gains enough.

        Args:
            matches: of the texts that still grow.
            left: tokens of the one that is furthest from its limit.
        """
        self._rounds += 1
        if self._rounds % _REVISIT == 1 or not self.costs.plain or self.profile.allowance <= 0:
            return Plan()
        if self._rounds % _REVIEW == 2 or self._rounds < _REVIEW:
            self._early = self._best_exit(left)
        best, speed = Plan(), self._gain
        if self._early.length and self._affordable(self._early):
            best, speed = self._early, self._exit_speed(self._early)
        sizes = [match.size for match in matches]
        if any(sizes):
            rates = [self.profile.copies[size].rate if size else 0.0 for size in sizes]
            # The slowest texts decide when a batch is done: the lowest quarter of them.
            slowest, row_share = (len(rates) + 3) // 4, self._row_share
            for length in self._lengths(left):
                plan = self._lookup(rates, length)
                if not self._affordable(plan):
                    continue
                counts = plan.counts or [length] * len(rates)
                tokens = sorted(map(tokens_per_round, rates, counts))
                worth = (1 - row_share) * sum(tokens[:slowest]) / slowest
                worth = (worth + row_share * sum(tokens) / len(tokens)) / self.costs.relative(plan)
                if worth > speed:
                    best, speed = plan, worth
        return best

    def _lookup(self, rates: Sequence[float], length: int) -> Plan:
        """`length` drafts for the most repetitive text; for others, those that are as likely accepted."""
        if self._fixed or len(rates) == 1:
            return Plan("lookup", 0, length)
        least = length * math.log(max(rates))
        counts = tuple(int(least / math.log(rate) + 1e-9) if rate else 0 for rate in rates)
        return Plan("lookup", 0, length, counts)

    def judged_exits(self, plan: Plan) -> Sequence[int]:
        """Exits whose guesses a plain round compares with the model's: none where it cannot pay."""
        judged = min((estimate.judged for estimate in self.profile.exits.values()), default=_JUDGED)
        due = self._rounds % _REVISIT == 1 or judged < _JUDGED
        if plan.length or not due or not self.costs.plain or self.profile.allowance < 0.5:
            return ()
        return tuple(self.profile.exits)

    def observe(
        self,
        done: Round,
        seconds: float,
        matches: Sequence[Matches | None],
        lengths: Sequence[int],
        reach: int,
    ) -> None:
        """Learn from a round.

        Args:
            done: the round.
            seconds: that it took.
            matches: of each text before the round; None for a text that had ended.
            lengths: tokens that each text has grown by.
            reach: tokens by which the text that is furthest from its limit came closer.
        """
        profile, costs, row_share = self.profile, self.costs, self._row_share
        progress = (1 - row_share) * reach + row_share * sum(lengths) / self.batch
        seconds -= done.judging_s
        if done.plan.length:
            self._aligned = self.batch == 1
            costs.add(done.plan, seconds / costs.plain)
            profile.allowance += progress - seconds / costs.plain
        elif self._aligned:
            costs.add_plain(seconds)
        profile.allowance += profile.earning * progress - done.judging_s / costs.plain
        for place, match in enumerate(matches):
            if match is not None:
                self._count(done, place, match)

    def _count(self, done: Round, place: int, match: Matches) -> None:
        """Count the drafts of one text, and the first token that lookup would have copied."""
        profile = self.profile
        for layer, shares in done.agreement.items():
            profile.exits[layer].add(shares[place], 1)
        row, drafted = done.verdict.tokens[place], done.drafted[place]
        accepted = len(row) - 1
        judged = accepted + (accepted < drafted)
        if done.plan.drafter == "lookup":
            if drafted:
                profile.copies[match.size].add(accepted, judged)
        else:
            if drafted:
                profile.exits[done.plan.exit_layer].add(accepted, judged)
            if match.size:
                profile.copies[match.size].add(row[0] == match.copy(1)[0], 1)

    def _lengths(self, left: int) -> list[int]:
        """Draft lengths that do not reach beyond the limit."""
        return [length for length in self.profile.lengths if length < left]

    def _best_exit(self, left: int) -> Plan:
        """The fastest affordable plan of early exit, or plain decoding."""
        best, speed = Plan(), self._gain
        for layer, estimate in self.profile.exits.items():
            if estimate.judged < _JUDGED:
                continue
            for length in self._lengths(left):
                plan = Plan("early-exit", layer, length)
                if self._exit_speed(plan) > speed and self._affordable(plan):
                    best, speed = plan, self._exit_speed(plan)
        return best

    def _exit_speed(self, plan: Plan) -> float:
        """Predicted speed of a plan of early exit, relative to plain decoding."""
        rate = self.profile.exits[plan.exit_layer].rate
        return tokens_per_round(rate, plan.length) / self.costs.relative(plan)

    def _affordable(self, plan: Plan) -> bool:
        """Whether the allowance covers a round whose drafts are all rejected."""
        # Before any is measured, a further row may cost as much as the first.
        return self.costs.relative(plan, unknown=1.0) - 1 <= self.profile.allowance
