"""Comparisons at the edges of their range, and maxima, against torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from holdfast.private.mpc import comparison, function_sharing
from holdfast.private.mpc.launch import simulate

MODES = [
    pytest.param(2, {}, id="tree"),
    pytest.param(3, {}, id="tree of 3"),
    pytest.param(2, {"comparison": "dcf"}, id="dcf"),
    pytest.param(3, {"mode": "replicated3"}, id="replicated"),
    pytest.param(3, {"mode": "replicated3", "comparison": "dcf"}, id="replicated dcf"),
]


def _shared(party, values):
    x = party.secret(
        torch.zeros(values.shape, dtype=torch.int64) if party.rank == 1 else None, owner=1
    )
    return x.like(x.share + values if party.lead else x.share)


@pytest.mark.parametrize(("parties", "settings"), MODES)
def test_comparison_is_exact_up_to_2_62(parties, settings):
    rng = np.random.default_rng(2)
    values = torch.from_numpy(rng.integers(0, 2**62, 500) >> rng.integers(0, 62, 500))
    edges = torch.tensor([0, 1, 2, 3, 2**61, 2**62 - 1, -(2**62) + 5, -1, -2, -(2**61)])
    values = torch.cat([values, -values, edges])
    thresholds = (0, 3, -17)

    def main(party):
        x = _shared(party, values)
        bits = party.run(comparison.at_least(party, x.share, thresholds))
        sums = party.run(comparison.to_arithmetic(party, bits))
        return x.like(sums, 0).reveal(), x.relu().reveal()

    bits, relu = simulate(parties, main, **settings)[0]
    safe = values.abs() < 2**62 - 20
    for number, threshold in enumerate(thresholds):
        assert torch.equal(bits[safe, number], (values >= threshold).long()[safe])
    assert torch.equal(relu, values.clamp(min=0))


@pytest.mark.parametrize("lengths", [(3, 6), pytest.param((2, 5, 9), marks=pytest.mark.full)])
@pytest.mark.parametrize(("parties", "settings"), MODES)
def test_operators_and_maxima_match_torch(parties, settings, lengths):
    torch.manual_seed(3)
    for n in lengths:
        x = torch.randint(-6, 6, (7, n)).double() / 2  # with ties
        y = torch.randint(-6, 6, (7, n)).double() / 2

        def main(party, x=x, y=y):
            a = party.secret(x if party.rank == 0 else None, owner=0)
            b = party.secret(y if party.rank == 1 else None, owner=1)
            answers = [a > b, a >= b, a < b, a <= b, a == b, a != b] if len(x[0]) < 4 else []
            return [each.reveal() for each in (*answers, *a.max(1), a.amax(0))]

        got = simulate(parties, main, **settings)[0]
        expected = [x > y, x >= y, x < y, x <= y, x == y, x != y] if n < 4 else []
        expected += [x.max(1)[0], torch.from_numpy(x.numpy().argmax(1)), x.max(0)[0]]
        for one, other in zip(got, expected, strict=True):
            assert torch.equal(one.double(), other.double())


@pytest.mark.parametrize(
    ("call", "comparison_kind", "rounds", "payload"),
    [
        (lambda x: x > 0, "tree", 4, 14),
        (lambda x: x > 0, "dcf", 2, 9),
        (lambda x: x.relu(), "tree", 4, 14),
        (lambda x: x.relu(), "dcf", 2, 9),
        (lambda x: (x * x).relu(), "tree", 5, 30),
    ],
)
def test_cost_of_a_comparison(call, comparison_kind, rounds, payload):
    count = 4096

    def main(party):
        x = party.secret(torch.ones(count) if party.rank == 0 else None, owner=0, shape=(count,))
        party.channel.exchange(b"x")  # both parties reach the same round
        before = party.channel.round, party.channel.ledger.total().bytes_sent
        call(x)
        after = party.channel.round, party.channel.ledger.total().bytes_sent
        return after[0] - before[0], (after[1] - before[1]) / count

    spent = simulate(2, main, comparison=comparison_kind)[0]
    assert spent[0] == rounds
    assert payload <= spent[1] < payload + 0.1


def test_keys_compare_every_place():
    rng = np.random.default_rng(4)
    r = rng.integers(0, 2**62, 60, dtype=np.uint64)
    r[:3] = 0, 2**62 - 1, 127
    roots = [rng.integers(0, 2**64, (60, 2), dtype=np.uint64) for _ in range(2)]
    key = function_sharing.generate(r, roots)
    flips = r[:, None] ^ (np.uint64(1) << np.arange(62, dtype=np.uint64))
    near = np.stack([r, r - (r > 0), np.minimum(r + 1, 2**62 - 1)], axis=1)
    places = np.concatenate([flips, near], axis=1)
    bits = [function_sharing.evaluate(key | {"root": roots[n]}, n, places) for n in (0, 1)]
    assert np.array_equal(bits[0] ^ bits[1], (places < r[:, None]).astype(np.uint8))
