"""Plans are chosen from costs and acceptance, and given up when they are slow."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pytest
from tiny_models import tiny

from holdfast.lm.generate import Generator, Plan
from holdfast.lm.generate.sampling import Verdict
from holdfast.lm.generate.speculation import Matches, Round
from holdfast.lm.generate.tuning import (
    ALLOWANCE,
    LENGTHS,
    Acceptance,
    Controller,
    Profile,
    candidate_exits,
    tokens_per_round,
)

LAYERS = 12
HEAD = 0.25


@dataclass
class World:
    """A model whose rounds take a stated time, and whose drafts are accepted at stated rates.

    Args:
        row: cost of a further row in a pass, relative to the first: 0 memory-bound, 1 nothing to gain.
        exits: acceptance of a draft after the first layer and after the last.
        copies: acceptance of a copied draft.
        matches: share of the rounds in which the text has a match.
        noise: standard deviation of the logarithm of every time.
    """

    row: float
    exits: tuple[float, float] = (0.0, 0.0)
    copies: float = 0.0
    matches: float = 0.0
    noise: float = 0.0
    overhead: float = 0.0001
    seed: int = 0
    profile: Profile = field(default_factory=lambda: Profile(LAYERS, HEAD))

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def rate(self, plan: Plan) -> float:
        if plan.drafter == "lookup":
            return self.copies
        return float(np.interp(plan.exit_layer, (1, LAYERS), self.exits))

    def seconds(self, plan: Plan) -> float:
        """0.01 s per plain round; each draft step costs 2 % more than its share."""
        early = plan.exit_layer / LAYERS * (1 - HEAD)
        drafting = (plan.length + 1) * early + (plan.length * (HEAD + 0.02) if early else 0.0)
        verifying = (1 - early) * (1 + self.row * plan.length)
        return 0.01 * (drafting + verifying) * float(np.exp(self.random.normal(0, self.noise)))

    def decode(self, new: int) -> tuple[float, float]:
        """Speed of a request relative to plain decoding, and the share of its rounds that draft."""
        self.profile.start()
        control = Controller(self.profile, 1)
        spent, done, drafting, rounds = 0.0, 0, 0, 0
        while done < new:
            match: Any = Matches([7])
            match.find = lambda match=match: match
            match.size = 2 if self.random.random() < self.matches else 0
            plan = Plan()
            if control.begin():
                plan = control.plan([match], [new - done])
            hits = self.random.random(plan.length) < self.rate(plan)
            accepted = int(np.cumprod(hits).sum())
            first = 7 if self.random.random() < self.copies else 8
            tokens = [first, *[0] * accepted][: new - done]
            result = Round(plan, Verdict([tokens], [[]]), [plan.length])
            seconds = self.seconds(plan)
            control.observe(result, self.overhead, seconds, [match], len(tokens))
            spent, done = spent + seconds + self.overhead, done + len(tokens)
            drafting, rounds = drafting + bool(plan.length), rounds + 1
        return new * 0.01 / spent, drafting / rounds


@pytest.mark.parametrize("acceptance", [0.0, 0.3, 0.9, 1.0])
def test_tokens_of_a_round_by_simulation(acceptance: float) -> None:
    accepted = np.random.default_rng(0).random((200_000, 4)) < acceptance
    mean = 1 + np.cumprod(accepted, 1).sum(1).mean()
    assert tokens_per_round(acceptance, 4) == pytest.approx(mean, abs=0.01)


def test_cost_of_a_round() -> None:
    profile = Profile(LAYERS, HEAD)
    profile.start()
    control = Controller(profile, 1)
    control.observe(Round(Plan(), Verdict([[5]], [[]]), [0]), 0.0, 2.0, [None], 1)
    # Three drafts by two layers and the head, verification by ten layers and the head.
    early = 2 / LAYERS * 0.75
    plan = Plan("early-exit", 2, 3)
    assert control.seconds(Plan()) == 2
    assert control.seconds(plan) == pytest.approx(2 * (4 * early + 3 * HEAD + 1 - early))
    assert control.seconds(plan, 0.1) == pytest.approx(control.seconds(plan) + 0.3 * (1 - early))
    for drafts, seconds in ((3, 5.0), (8, 0.1)):  # a timer that jumped: never less than one row
        copied = Round(Plan("lookup", 0, drafts), Verdict([[5]], [[]]), [drafts])
        control.observe(copied, 0.0, seconds, [None], 1)
    assert control.seconds(Plan("lookup", 0, 3)) == pytest.approx(5)
    assert control.seconds(Plan("lookup", 0, 1)) == pytest.approx(3)  # by the nearest number
    assert control.seconds(Plan("lookup", 0, 8)) == 2
    profile.start()  # the dearest measurements are forgotten
    assert control.seconds(Plan("lookup", 0, 3)) == 2


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_loses_at_most_the_allowance_and_one_round(noise: float) -> None:
    worlds = product(
        (0.0, 0.3, 1.0), ((0.0, 0.0), (0.1, 0.6), (0.6, 0.99)), (0.0, 0.3), (16, 48, 256)
    )
    for row, exits, copies, new in worlds:
        world = World(row, exits, copies, 0.5, noise)
        for _ in range(2):  # the second knows what the first learned
            slowest = 1 / (1 + ALLOWANCE + 1.01 / new)
            assert world.decode(new)[0] > slowest - noise, (row, exits, copies, new)


@pytest.mark.parametrize("known", [0.95, 0.0])
def test_a_text_that_is_unlike_the_one_before_loses_no_more(known: float) -> None:
    for new, row in product((24, 64, 128), (0.0, 0.5, 1.0)):
        world = World(row, (known, 1.0), copies=known, matches=1.0)
        world.decode(256)
        world.copies, world.exits = 0.0, (0.0, 0.0)
        assert world.decode(new)[0] > 1 / (1 + ALLOWANCE + 1.01 / new)


def test_gains_are_taken() -> None:
    exits = World(0.05, (0.8, 1.0))
    exits.decode(256)
    assert exits.decode(256)[0] > 1.2
    copies = World(0.05, copies=0.9, matches=0.9)
    assert copies.decode(128)[0] > 2
    assert copies.decode(48)[0] > 1.5


def test_nothing_is_measured_where_it_cannot_pay() -> None:
    world = World(0.05, (0.9, 1.0))
    assert world.decode(12)[1] == 0
    assert all(estimate.judged == 0 for estimate in world.profile.exits.values())


def test_drafts_stop_when_they_fail_and_return_when_they_pay() -> None:
    world = World(0.1, copies=0.95, matches=1.0)
    assert world.decode(256)[1] > 0.7
    world.copies = 0.05
    speed, drafting = world.decode(256)
    assert speed > 0.95
    assert drafting < 0.1
    world.copies = 0.95
    assert world.decode(256)[0] > 1.5


def test_drafts_of_a_batch_are_for_the_text_that_ends_last() -> None:
    profile = Profile(LAYERS, HEAD)
    profile.start()
    control = Controller(profile, 3)
    control.observe(Round(Plan(), Verdict([[5]], [[]]), [0]), 0.0, 0.01, [None], 1)
    profile.spent = 10.0
    profile.copies[3].add(90, 90)
    matches = [Matches([1, 2, 3, 4, 1, 2, 3]) for _ in range(3)]
    assert control.begin()
    drafts = control.plan(matches, [40, 20, 39]).counts
    assert drafts[0] > 0 == drafts[1]
    # Where the last text has nothing to copy, drafts of the others do not end the batch sooner.
    profile.exits.clear()
    assert control.plan([Matches([1, 2]), *matches[1:]], [40, 20, 30]) == Plan()


def test_texts_of_equal_length_stay_so() -> None:
    """Drafts would make all later rounds dearer: such a batch is decoded plainly."""
    generator = Generator(tiny("llama"))
    generator.generate([[3, 4, 3, 4] * 8], max_new=64, ignore_end=True)
    result = generator.generate([[3, 4, 3, 4] * 8] * 4, max_new=32, batch=4, ignore_end=True)
    assert result.drafted == 0
    assert result.unknowns()


def test_acceptance_counts_judged_drafts() -> None:
    profile = Profile(LAYERS, HEAD)
    profile.start()
    control = Controller(profile, 2)
    profile.spent = 1.0
    assert control.begin()
    # Two of four drafts accepted: the third was judged and rejected, the fourth not judged. One text ended.
    verdict = Verdict([[5, 6, 7], [5, 5, 5, 5, 5]], [[], []])
    control.observe(
        Round(Plan("early-exit", 4, 4), verdict, [4, 4]), 0.0, 1.0, [Matches([1]), None], 3
    )
    assert (profile.exits[4].accepted, profile.exits[4].judged) == (2, 3)
    assert profile.exits[6] == Acceptance()


@pytest.mark.parametrize(
    ("text", "length", "expected"),
    [
        ([1, 2, 3, 9, 1, 2, 3], 2, [9, 1]),
        ([1, 2, 5, 3, 2, 6, 1, 2], 1, [5]),  # a longer match wins over a later one
        ([4, 7, 4, 8, 4], 1, [8]),  # the last occurrence
        ([6, 6], 3, [6, 6, 6]),
        ([5, 8, 9, 5], 5, [8, 9, 5, 8, 9]),  # periodic behind the end of the text
        ([1, 2, 3], 4, []),
        ([1], 4, []),
    ],
)
def test_lookup(text: list[int], length: int, expected: list[int]) -> None:
    match = Matches(text)
    match.find()
    assert match.copy(length) == expected


def test_lookup_in_a_growing_text_equals_a_search() -> None:
    random = np.random.default_rng(0)
    text: list[int] = [0]
    match = Matches(text)
    for _ in range(200):
        text += random.integers(0, 6, random.integers(1, 4)).tolist()
        match.find()
        expected = (0, 0)
        for size, end in product((3, 2, 1), range(len(text) - 1, 0, -1)):
            if size <= end and text[end - size : end] == text[-size:]:
                expected = (size, text[end])
                break
        assert (match.size, *(match.copy(1) or [0])) == expected


def test_candidate_exits_are_inside_the_model() -> None:
    for layers in (2, 3, 6, 12, 32, 80):
        exits = candidate_exits(layers)
        assert exits[0] == 1
        assert exits[-1] < layers
        assert len(exits) <= 9


def test_lengths_that_exact_passes_cannot_hold_are_left_out() -> None:
    profile = Profile(LAYERS, HEAD, [length for length in LENGTHS if length < 4])
    world = World(0.0, copies=0.99, matches=1.0, profile=profile)
    assert 2.5 < world.decode(256)[0] < 4
