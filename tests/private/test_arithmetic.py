"""Truncation, products and openings, over their whole range and in every mode."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from holdfast.private.mpc import arithmetic
from holdfast.private.mpc.launch import simulate

MODES = [
    pytest.param(2, {}, id="2 parties"),
    pytest.param(3, {}, id="3 parties"),
    pytest.param(3, {"mode": "replicated3"}, id="replicated"),
]


def wide(count, seed=0, bits=62):
    """Integers below 2^bits in magnitude of all sizes, with the edges."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 2**bits, count) >> rng.integers(0, bits, count)
    values *= rng.choice([-1, 1], count)
    edges = [0, 1, -1, 2**bits - 1, -(2**bits), 1 - 2**bits, 65535, 65536, -65536, -65537]
    return torch.from_numpy(np.concatenate([edges, values]))


def truncated(party, values, bits):
    x = party.secret(
        torch.zeros(len(values), dtype=torch.int64) if party.rank == 0 else None, owner=0
    )
    share = x.share + values if party.lead else x.share  # 2^62 itself cannot be encoded
    out = party.run(arithmetic.truncate(party, share, bits))
    return x.like(out).reveal()


@pytest.mark.parametrize(("parties", "settings"), MODES)
@pytest.mark.parametrize("bits", [1, 16, 41])
def test_truncation_is_the_quotient_or_one_more(parties, settings, bits):
    values = wide(3000, bits)
    result = simulate(parties, lambda party: truncated(party, values, bits), **settings)[0]
    excess = result - (values >> bits)
    assert set(excess.tolist()) <= {0, 1}
    exact = values % (1 << bits) == 0
    assert not excess[exact].any()


@pytest.mark.full
def test_ten_million_truncations_without_a_fault():
    for part in range(10):
        values = wide(1_000_000, seed=part + 100)
        result = simulate(2, lambda party, values=values: truncated(party, values, 16))[0]
        excess = result - (values >> 16)
        assert int(excess.min()) >= 0
        assert int(excess.max()) <= 1


@pytest.mark.parametrize(("parties", "settings"), MODES)
def test_products_match_numpy(parties, settings):
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(4, 6)) * 100, rng.normal(size=(6, 3)) * 100

    def main(party):
        a = party.secret(x if party.rank == 0 else None, owner=0)
        b = party.secret(y if party.rank == parties - 1 else None, owner=parties - 1)
        results = [
            a @ b,
            a * a,
            a.square(),
            a * 0.001,
            (a @ b) / 3.0,
            2 - a,
            a**3,
            x @ b,
            a.mean(1),
        ]
        return [each.reveal().numpy() for each in results]

    products = simulate(parties, main, **settings)[parties - 1]
    expected = [x @ y, x * x, x * x, x * 0.001, x @ y / 3, 2 - x, x**3, x @ y, x.mean(1)]
    for got, wanted in zip(products, expected, strict=True):
        # Inputs and public factors are off by 2^-17, and that is multiplied by the other factor.
        assert np.abs(got - wanted).max() < 2.0**-16 * max(8, np.abs(wanted).max() / 2)


@pytest.mark.parametrize("bits", [8, 20, 26])
def test_every_number_of_fractional_bits(bits):
    x = torch.linspace(-10, 10, 41, dtype=torch.float64)

    def main(party):
        a = party.secret(x if party.rank == 0 else None, owner=0)
        return (a * a).reveal(), (a * a).relu().reveal(), (a > 0.5).reveal()

    product, relu, above = simulate(2, main, fraction_bits=bits)[0]
    assert (product - x * x).abs().max() < 24 * 2.0**-bits
    assert torch.equal(product, relu) or (relu - x * x).abs().max() < 24 * 2.0**-bits
    assert torch.equal(above, (x > 0.5).long())


def test_a_fixed_operand_is_opened_once():
    torch.manual_seed(0)
    w, x = torch.randn(32, 8), torch.randn(4, 32)

    def main(party):
        weight = party.secret(w if party.rank == 0 else None, owner=0, shape=(32, 8)).fix()
        sent, results = [], []
        for _ in range(3):
            data = party.secret(x if party.rank == 1 else None, owner=1, shape=(4, 32))
            before = party.channel.ledger.total().bytes_sent
            product = data @ weight
            sent.append(party.channel.ledger.total().bytes_sent - before)
            results.append(product.reveal())
        return sent, results

    sent, results = simulate(2, main)[0]
    assert sent[0] - sent[1] >= 8 * 32 * 8
    assert sent[1] == sent[2] < 8 * 4 * 32 + 64
    for product in results:
        assert (product - x @ w).abs().max() < 1e-3
