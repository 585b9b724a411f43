"""Plans are chosen from costs and acceptance, and given up when they are slow."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.lm.generate import Plan
from holdfast.lm.generate.sampling import Verdict
from holdfast.lm.generate.speculation import Round, lookup
from holdfast.lm.generate.tuning import (
    LENGTHS,
    Acceptance,
    Controller,
    Costs,
    candidate_exits,
    lookup_agreement,
    tokens_per_round,
)

ROWS = [1, *(length + 1 for length in LENGTHS)]
LAYERS = 12
FLAT = Costs(dict.fromkeys(ROWS, 1.0), dict.fromkeys(ROWS, 2.0), LAYERS)
"""A pass costs the same for any number of rows: memory-bound."""
LINEAR = Costs({rows: float(rows) for rows in ROWS}, {rows: 2.0 * rows for rows in ROWS}, LAYERS)
"""A pass costs as much as its rows one by one: nothing to gain."""


def estimates(rates: dict[int, float]) -> dict[int, Acceptance]:
    return {layer: Acceptance(1000 * rate, 1000) for layer, rate in rates.items()}


def controller(costs: Costs, rates: dict[int, float], lookups: float = 0.0) -> Controller:
    return Controller(costs, estimates(rates), Acceptance(1000 * lookups, 1000), {})


@pytest.mark.parametrize("acceptance", [0.0, 0.3, 0.9, 1.0])
def test_tokens_of_a_round_by_simulation(acceptance: float) -> None:
    accepted = np.random.default_rng(0).random((200_000, 4)) < acceptance
    mean = 1 + np.cumprod(accepted, 1).sum(1).mean()
    assert tokens_per_round(acceptance, 4) == pytest.approx(mean, abs=0.01)


def test_cost_of_a_round() -> None:
    # Three drafts by two layers and the head, a fourth row for verification, ten layers on four rows, head.
    assert FLAT.round(Plan("early-exit", 2, 3)) == 4 * 2 + 3 * 2 + 10 + 2
    assert LINEAR.round(Plan("lookup", 0, 3)) == 4 * (LAYERS + 2)
    assert FLAT.round(Plan()) == LAYERS + 2


def test_the_fastest_plan_is_chosen() -> None:
    rates = {2: 0.5, 4: 0.9, 8: 0.95}
    plan = controller(FLAT, rates).plan([[1, 2, 3]])
    best = max(
        (Plan("early-exit", layer, length) for layer in rates for length in LENGTHS),
        key=lambda one: tokens_per_round(rates[one.exit_layer], one.length) / FLAT.round(one),
    )
    assert plan == best


def test_plain_decoding_where_drafts_gain_nothing() -> None:
    assert controller(LINEAR, {2: 0.6, 4: 0.9}, 0.9).plan([[1, 2, 1]]) == Plan()
    assert controller(FLAT, {2: 0.01}).plan([[1, 2, 1]]) == Plan()


def test_lookup_only_where_the_text_has_a_match() -> None:
    control = controller(FLAT, {}, 0.9)
    assert control.plan([[1, 2, 3]]) == Plan()
    assert control.plan([[1, 2, 1]]).drafter == "lookup"


def test_a_drafter_slower_than_plain_decoding_is_given_up() -> None:
    control = controller(FLAT, {4: 0.9})
    plan = control.plan([[1]])
    assert plan.drafter == "early-exit"
    everything = Verdict([[0] * (plan.length + 1)], [[False] * (plan.length + 1)])
    for _ in range(4):  # every draft is accepted, but a round takes far longer than predicted
        control.observe(Round(plan, everything, [plan.length]), 100 * FLAT.round(plan))
    assert control.plan([[1]]) == Plan()


def test_acceptance_counts_judged_drafts() -> None:
    control = controller(FLAT, {})
    control.exits[4] = Acceptance()
    # Two of four drafts accepted: the third was judged and rejected, the fourth not judged.
    control.observe(Round(Plan("early-exit", 4, 4), Verdict([[5, 6, 7]], [[False] * 3]), [4]), 1.0)
    assert (control.exits[4].accepted, control.exits[4].judged) == (2, 3)


@pytest.mark.parametrize(
    ("text", "length", "expected"),
    [
        ([1, 2, 3, 9, 1, 2, 3], 2, [9, 1]),
        ([1, 2, 5, 3, 2, 6, 1, 2], 1, [5]),  # a longer match wins over a later one
        ([4, 7, 4, 8, 4], 1, [8]),  # the last occurrence
        ([6, 6], 3, [6]),
        ([1, 2, 3], 4, []),
        ([1], 4, []),
    ],
)
def test_lookup(text: list[int], length: int, expected: list[int]) -> None:
    assert lookup(text, length) == expected


def test_lookup_agreement_inside_a_prompt() -> None:
    accepted, judged = lookup_agreement([[1, 2, 3] * 10])
    assert accepted / judged > 0.9
    assert lookup_agreement([list(range(30))]) == (0, 0)


def test_candidate_exits_are_inside_the_model() -> None:
    for layers in (2, 3, 6, 12, 32, 80):
        exits = candidate_exits(layers)
        assert exits[0] == 1
        assert exits[-1] < layers
        assert len(exits) <= 9
