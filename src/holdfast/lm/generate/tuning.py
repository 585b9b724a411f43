"""Plans from measurements: what a round costs, what it yields, and when drafting stops.

The rounds themselves are the measurements. d drafts at exit E take

    plain ((d + 1) (1 - h) E / L + d h + 1 - e) + rows (1 - e) further,    e = (1 - h) E / L

seconds: plain is the time of a round without drafts, h the head's share of the weights, rows the number
of drafts that are verified, and further the time of one of them, measured in earlier rounds. With
acceptance a, a text grows by (1 - a^(d+1)) / (1 - a) tokens (Leviathan et al. 2023, equation 1); a batch is
done when the text that is furthest from its limit is.

What this costs is bounded by an account in seconds: whatever plain decoding would not have spent is a
loss, what drafts save is a gain. Nothing beyond plain rounds is done while losses exceed `ALLOWANCE` of the
time that plain decoding would have taken so far, and no draft that could lose more than a plain round
beyond it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from holdfast.lm.generate.speculation import LONGEST_MATCH, Matches, Plan, Round

LENGTHS = (1, 2, 3, 4, 6, 8)
"""Draft lengths that are considered."""
GAIN = 1.1
"""Predicted speed, relative to plain decoding, that a plan needs to be used."""
ALLOWANCE = 0.03
"""Share of the time of plain decoding that measuring and drafting may lose."""
_MEMORY = 0.98
"""Weight of the past for each new draft: the estimate of acceptance follows the text."""
_REVISIT = 32
"""Rounds between two plain ones that measure their time at the present length."""
_RECENT = 9
"""Measurements of a time whose median counts."""


def tokens_per_round(acceptance: float, length: int) -> float:
    """Expected tokens of a round: (1 - a^(d+1)) / (1 - a)."""
    if acceptance >= 1:
        return length + 1.0
    return (1 - acceptance ** (length + 1)) / (1 - acceptance)


def candidate_exits(layers: int) -> list[int]:
    """Exit layers that are considered: at most eight, spread over the lower three quarters."""
    return list(range(1, layers * 3 // 4 + 1, max(1, round(layers * 3 / 32))))


@dataclass
class Acceptance:
    """Share of drafts that were accepted, of those judged (a draft behind a rejected one is not)."""

    accepted: float = 0.0
    judged: float = 0.0

    def add(self, accepted: float, judged: float) -> None:
        """Count drafts, and forget a little of the past."""
        keep = _MEMORY**judged
        self.accepted = self.accepted * keep + accepted
        self.judged = self.judged * keep + judged

    @property
    def rate(self) -> float:
        """Estimate with half a success and one and a half failures more: a drafter has to prove itself."""
        return (self.accepted + 0.5) / (self.judged + 2)


class Time:
    """Seconds of one thing, measured again and again: the median of the latest counts."""

    def __init__(self) -> None:
        self.latest: deque[float] = deque(maxlen=_RECENT)
        self.seconds = 0.0
        """0 before any measurement."""

    def add(self, seconds: float) -> None:
        """Count a measurement."""
        self.latest.append(seconds)
        self.seconds = sorted(self.latest)[len(self.latest) // 2]


@dataclass
class Profile:
    """What a generator has learned of its model on this machine, and the account of a request."""

    layers: int
    head_share: float
    lengths: Sequence[int] = LENGTHS
    exits: dict[int, Acceptance] = field(default_factory=dict)
    """Acceptance of drafts by exit layer."""
    copies: dict[int, Acceptance] = field(default_factory=dict)
    """Acceptance of copied drafts by the number of tokens that matched."""
    plain: dict[int, Time] = field(default_factory=dict)
    """Batch size -> time of a plain round."""
    further: dict[str, dict[int, Time]] = field(default_factory=dict)
    """Drafter -> number of verified drafts -> time of one."""
    rounds: int = 0
    """Plain rounds so far."""
    spent: float = 0.0
    """Seconds that plain decoding takes for what the present request has done so far."""
    choosing: float = 0.0
    """Seconds that choosing plans has taken in it."""
    lost: float = 0.0
    """Seconds that the present request has spent beyond that; negative where drafts saved more."""

    def __post_init__(self) -> None:
        exits = candidate_exits(self.layers)
        self.exits = {layer: Acceptance() for layer in exits[1::2] or exits}
        self.copies = {size: Acceptance() for size in range(1, LONGEST_MATCH + 1)}

    def start(self) -> None:
        """Begin a request. What was measured once may be of a busy moment: it is measured again."""
        self.spent = self.choosing = self.lost = 0.0
        for drafter, times in self.further.items():
            often = {rows: time for rows, time in times.items() if len(time.latest) > 1}
            self.further[drafter] = often

    @property
    def budget(self) -> float:
        """Seconds that may be lost now."""
        return ALLOWANCE * self.spent - self.lost


class Controller:
    """Chooses the plan of every round of one batch.

    Args:
        profile: learned before, and further here.
        batch: number of texts.
    """

    def __init__(self, profile: Profile, batch: int) -> None:
        self.profile = profile
        self._rounds = 0
        self._early: list[tuple[Plan, float]] = []
        self._looked = False
        self.shrink(batch)

    def shrink(self, batch: int) -> None:
        """Go on with fewer texts."""
        self.batch = batch
        self._plain = self.profile.plain.setdefault(batch, Time())

    @property
    def plain(self) -> float:
        """Seconds of a plain round; 0 before any was measured."""
        return self._plain.seconds

    def begin(self) -> bool:
        """Begin a round; whether the account allows more than plain decoding."""
        self._rounds += 1
        profile = self.profile
        # At most half of the account goes to choosing: else nothing would be left to try a choice.
        self._looked = profile.budget > profile.choosing
        return self._looked

    def plan(self, matches: Sequence[Matches], left: Sequence[int]) -> Plan:
        """The fastest plan by prediction that is affordable; plain decoding where none gains enough.

        Args:
            matches: of the texts that still grow.
            left: tokens by which each may still grow.
        """
        for match in matches:
            match.find()
        if self._rounds % _REVISIT == 0 or not self.plain:
            return Plan()
        if self._rounds % (_REVISIT // 4) == 1:  # a choice among exits takes longer than it changes
            found = Plan(), GAIN
            for layer in self.profile.exits:
                found = self._better(self._by_exit(layer, max(left)), *found)
            self._early = [(found[0], self._exit_tokens(found[0]))] if found[0].length else []
        best, speed = self._better(self._early, Plan(), GAIN)
        rates = [self.profile.copies[match.size].rate if match.size else 0.0 for match in matches]
        if any(rates):
            best, _ = self._better(self._by_lookup(rates, left), best, speed)
        return best if best.length or not self.profile.exits else self._trial(max(left))

    def _better(
        self, plans: Iterable[tuple[Plan, float]], best: Plan, speed: float
    ) -> tuple[Plan, float]:
        """The fastest affordable one of plans of growing length, and its speed relative to plain decoding.

        Args:
            plans: with the tokens that they are expected to yield.
            best: used where none is faster than `speed`.
            speed: of `best`.
        """
        last = 1.0
        for plan, tokens in plans:
            worth = tokens * self.plain / self.seconds(plan)
            if worth <= last:  # a further draft gains less than the one before
                break
            last = worth
            if worth > speed and self._affordable(plan, tokens):
                best, speed = plan, worth
        return best, speed

    def _by_exit(self, layer: int, left: int) -> Iterator[tuple[Plan, float]]:
        """Plans of early exit, with their expected tokens."""
        for length in self.profile.lengths:
            if length < left:
                plan = Plan("early-exit", layer, length)
                yield plan, self._exit_tokens(plan)

    def _by_lookup(
        self, rates: Sequence[float], left: Sequence[int]
    ) -> Iterator[tuple[Plan, float]]:
        """Plans of lookup, with the tokens by which the text that ends last is expected to grow."""
        gaps = [max(left) - rest for rest in left]
        for length in self.profile.lengths:
            if length < max(left):
                # Drafts are for the texts that may be the last ones to end.
                behind = [
                    rate if gap < length else 0.0 for rate, gap in zip(rates, gaps, strict=True)
                ]
                counts = tuple(length if rate else 0 for rate in behind)
                pairs = zip(behind, gaps, strict=True)
                tokens = min(tokens_per_round(rate, length) + gap for rate, gap in pairs)
                yield Plan("lookup", 0, length, counts), tokens

    def _trial(self, left: int) -> Plan:
        """One draft by the exit that is known least, ever more rarely; or none."""
        exits, often = self.profile.exits, self.profile.rounds.bit_length()
        layer = min(exits, key=lambda layer: exits[layer].judged)
        if exits[layer].judged >= often or left == 1:
            return Plan()
        plan = Plan("early-exit", layer, 1)
        return plan if self._affordable(plan, self._exit_tokens(plan)) else Plan()

    def observe(
        self,
        done: Round,
        overhead: float,
        seconds: float,
        matches: Sequence[Matches | None],
        reach: int,
    ) -> None:
        """Learn from a round.

        Args:
            done: the round.
            overhead: seconds that its choice took.
            seconds: that the round took.
            matches: of each text before the round; None for a text that had ended.
            reach: tokens by which the text that is furthest from its limit came closer.
        """
        profile, plan = self.profile, done.plan
        profile.lost += overhead
        profile.choosing += overhead
        if plan.length:
            rows = sum(done.drafted)
            verified = seconds - self._base(plan)
            times = profile.further.setdefault(plan.drafter, {})
            each = max(0.0, verified) / rows / (1 - self._early_share(plan))
            times.setdefault(rows, Time()).add(each)
            profile.lost += seconds - self.plain * reach
            profile.spent += self.plain * reach
        else:
            profile.rounds += 1
            profile.spent += seconds
            self._plain.add(seconds)
        for place, match in enumerate(matches if self._looked else ()):
            if match is not None:
                self._count(done, place, match)

    def _count(self, done: Round, place: int, match: Matches) -> None:
        """Count the drafts of one text, and the first token that lookup would have copied."""
        profile = self.profile
        row, drafted = done.verdict.tokens[place], done.drafted[place]
        accepted = len(row) - 1
        judged = accepted + (accepted < drafted)
        if drafted and done.plan.drafter == "lookup":
            profile.copies[match.size].add(accepted, judged)
        elif drafted:
            profile.exits[done.plan.exit_layer].add(accepted, judged)
        elif match.size:
            profile.copies[match.size].add(row[0] == match.copy(1)[0], 1)

    def seconds(self, plan: Plan, unknown: float = 0.0) -> float:
        """Predicted time of a round; a verified draft takes `unknown` before any is measured."""
        rows = plan.rows(self.batch)
        times = self.profile.further.get(plan.drafter)
        if times and rows:
            near = times.get(rows) or times[min(times, key=lambda count: abs(count - rows))]
            unknown = near.seconds
        return self._base(plan) + rows * (1 - self._early_share(plan)) * unknown

    def _base(self, plan: Plan) -> float:
        """Seconds of drafting, and of verifying no draft."""
        early = self._early_share(plan)
        drafting = (plan.length + 1) * early + (
            plan.length * self.profile.head_share if early else 0
        )
        return self.plain * (drafting + 1 - early)

    def _early_share(self, plan: Plan) -> float:
        """Share of the layers below the exit in a plain round."""
        return plan.exit_layer / self.profile.layers * (1 - self.profile.head_share)

    def _exit_tokens(self, plan: Plan) -> float:
        """Expected tokens of a plan of early exit."""
        return tokens_per_round(self.profile.exits[plan.exit_layer].rate, plan.length)

    def _affordable(self, plan: Plan, tokens: float) -> bool:
        """Whether the account covers the expected loss of a round, and all of its worst but a plain round.

        Args:
            plan: of the round.
            tokens: that it is expected to yield; at worst, all drafts are rejected.
        """
        # Before any is measured, a verified draft may take as long as a text of the batch.
        dear, budget = self.seconds(plan, self.plain / self.batch), self.profile.budget
        return dear - tokens * self.plain <= budget and dear - 2 * self.plain <= budget
