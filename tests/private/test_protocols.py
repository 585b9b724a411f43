"""Every protocol of one round or more against plain integers, with masks at all edges of the ring.

The parties run in lock step, their items come from `plain_dealer`: neither the dealer nor the transport of
the package is in it. What a mask does to a result is predicted to the last bit.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
import torch
from plain_dealer import MODULUS, Player, Table, combined, integers, ring, signed
from scipy import stats

from holdfast.private.mpc import arithmetic, comparison, tables
from holdfast.private.mpc.rounds import Rounds, parallel

EDGES = [
    0,
    1,
    2**61,
    2**62 - 1,
    2**62,
    2**62 + 1,
    2**63 - 1,
    2**63,
    2**63 + 1,
    3 * 2**62,
    MODULUS - 1,
]
"""Masks at which a sum wraps, loses its sign, or gains a bit."""


def near(*places: int) -> list[int]:
    """Values within two of some places."""
    return [place + step for place in places for step in (-2, -1, 0, 1, 2)]


def below(bits: int, values: list[int]) -> list[int]:
    return sorted({each for each in values if -(2**bits) <= each < 2**bits})


VALUES = below(62, [*near(0, 2**16, -(2**16), 2**61, 2**62, -(2**62)), 12345678901234567, -(3**38)])
GRID = list(itertools.product(VALUES, EDGES))
"""Every value under every mask."""
rng = random.Random(4)
UNIFORM = [
    (rng.randrange(-(2**62), 2**62) >> rng.randrange(62), rng.randrange(MODULUS))
    for _ in range(300)
]
X, R = ([pair[side] for pair in GRID + UNIFORM] for side in (0, 1))


def tensor(share: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(share))


def opened(results: list[Any]) -> list[int]:
    """The numbers between -2^63 and 2^63 that shares stand for."""
    return [signed(each) for each in integers(combined([np.asarray(r) for r in results])).ravel()]


@pytest.mark.parametrize("parties", [1, 2, 3])
@pytest.mark.parametrize("bits", [1, 2, 16, 26, 46, 61])
def test_truncation_rounds_as_its_mask_says(parties: int, bits: int) -> None:
    table = Table(parties, {"truncation": {"r": ring(R)}})
    results = table.run(
        lambda party, x: arithmetic.truncate(party, tensor(x), bits), table.shared(X)
    )
    carry = [(x % 2**bits) + (r % 2**bits) >= 2**bits for x, r in zip(X, R, strict=True)]
    assert opened(results) == [(x >> bits) + c for x, c in zip(X, carry, strict=True)]
    opening = integers(combined(table.views[0]))
    assert opening.tolist() == [(x + 2**62 + r) % MODULUS for x, r in zip(X, R, strict=True)]


@pytest.mark.parametrize("parties", [1, 2, 4])
def test_products_and_squares_hold_in_all_of_the_ring(parties: int) -> None:
    x = [signed(each) for each in (*EDGES, *R[-20:])]
    y = x[::-1]
    table = Table(parties, {"product": {"a": ring(x), "b": ring(y[1:] + y[:1])}})

    def protocol(party: Player, x: np.ndarray, y: np.ndarray) -> Rounds[Any]:
        return (
            yield from parallel(
                arithmetic.product(party, "mul", tensor(x), tensor(y)),
                arithmetic.square(party, tensor(x)),
            )
        )

    results = table.run(protocol, table.shared(x), table.shared(y))
    products, squares = (opened([each[n] for each in results]) for n in (0, 1))
    assert products == [signed(a * b) for a, b in zip(x, y, strict=True)]
    assert squares == [signed(a * a) for a in x]
    assert len(table.views) == 1  # both in one round


THRESHOLDS = (0, 1, -17, 65536)


@pytest.mark.parametrize("parties", [1, 2, 3])
def test_comparisons_are_exact_under_every_mask(parties: int) -> None:
    table = Table(parties, {"comparison": {"r": ring(R)}})
    results = table.run(
        lambda party, x: comparison.at_least(party, tensor(x), THRESHOLDS), table.shared(X)
    )
    bits = combined(results)
    for n, threshold in enumerate(THRESHOLDS):
        for x, r, bit in zip(X, R, bits[:, n].tolist(), strict=True):
            if -(2**62) <= x - threshold < 2**62:
                assert bit == (x >= threshold), (x, r, threshold)
    assert len(table.views) == 3
    # 8 bytes of the value, then 4 and 1 of each threshold.
    sizes = [each[0].nbytes / len(X) for each in table.views]
    assert sizes == [8, 4 * len(THRESHOLDS), len(THRESHOLDS)]


@pytest.mark.parametrize("m3", [0, 63, 255])
@pytest.mark.parametrize("m2", [0, 0x55, 255])
def test_no_mask_of_a_truth_table_changes_a_comparison(m2: int, m3: int) -> None:
    masks = {
        "r": ring(R),
        "m2": np.full((len(X), 1, 4), m2, np.uint8),
        "m3": np.full((len(X), 1), m3, np.uint8),
    }
    table = Table(2, {"comparison": masks})
    results = table.run(lambda party, x: comparison.at_least(party, tensor(x)), table.shared(X))
    assert combined(results)[:, 0].tolist() == [int(x >= 0) for x in X]


@pytest.mark.parametrize("rho", [0, 1, 254, 255])
@pytest.mark.parametrize("bits", [0, 16, 40])
def test_a_relu_truncates_as_its_mask_says(bits: int, rho: int) -> None:
    masks = {"r": ring(R), "rho": np.full(len(X), rho, np.uint8)}
    table = Table(2, {"comparison": masks})
    results = table.run(lambda party, x: comparison.relu(party, tensor(x), bits), table.shared(X))
    values, signs = (
        opened([each[0] for each in results]), combined([each[1] for each in results]).tolist(),
    )  # fmt: skip
    for x, r, value, sign in zip(X, R, values, signs, strict=True):
        if x == -(2**62):  # outside: 2^62 in magnitude
            continue
        carry = (x % 2**bits) + (r % 2**bits) >= 2**bits
        assert sign == (x > 0)  # so is the gradient at 0, as torch's
        assert value == ((x >> bits) + carry if x >= 0 else 0), (x, r)
    assert len(table.views) == 4
    assert sum(each[0].nbytes for each in table.views) == 14 * len(X)


def test_bits_become_numbers_and_choose_values() -> None:
    x = [signed(each) for each in R]
    bits = np.array([n % 3 == 0 for n in range(len(x))], np.uint8)
    for rho in (0, 1):
        chosen = {"rho": np.full(len(x), rho, np.uint8)}
        table = Table(3, {"bit": chosen, "selection": chosen})

        def protocol(party: Player, bits: np.ndarray, x: np.ndarray) -> Rounds[Any]:
            number = yield from comparison.to_arithmetic(party, bits)
            both = yield from comparison.select_with_bits(party, bits, tensor(x))
            return number, *both

        results = table.run(protocol, table.shared(bits), table.shared(x))
        numbers, values, again = (opened([each[n] for each in results]) for n in range(3))
        assert numbers == again == bits.tolist()
        assert values == [a if bit else 0 for a, bit in zip(x, bits, strict=True)]
        # A byte of a bit; a byte and 8 of a value.
        assert [each[0].nbytes / len(x) for each in table.views] == [1, 9]


@pytest.mark.parametrize("m", [0, 21, 63])
def test_every_order_of_four_values_has_its_winner(m: int) -> None:
    rows = list(itertools.product((-5, 0, 2**61), repeat=4))
    pairs = [[(key, 10 * n + place) for place, key in enumerate(row)] for n, row in enumerate(rows)]
    table = Table(2, {"winner": {"m": np.full((len(rows), 1), m, np.uint8)}})
    results = table.run(lambda party, x: comparison.maximum(party, tensor(x)), table.shared(pairs))
    wanted = [max(row, key=lambda pair: (pair[0], -pair[1])) for row in pairs]
    assert opened(results) == [each for pair in wanted for each in pair]
    assert len(table.views) == 4


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 7, 16, 17, 21])
def test_a_maximum_takes_four_rounds_for_each_factor_of_four(count: int) -> None:
    rng = np.random.default_rng(count)
    values = rng.integers(-3, 3, (4, count, 1))
    table = Table(2)
    results = table.run(lambda party, x: comparison.maximum(party, tensor(x)), table.shared(values))
    assert opened(results) == values.max(1).ravel().tolist()
    steps, left = 0, count
    while left > 1:  # one value that is left over needs no comparison
        left, steps = left // 4 + (left % 4 > 0), steps + 1
    assert len(table.views) == 4 * steps


PUBLIC = torch.arange(100, 116)[:, None] * torch.tensor([1, -(2**40)])


@pytest.mark.parametrize("shift", [0, 3, 20, 58])
def test_a_table_is_read_at_the_place_that_the_mask_gives(shift: int) -> None:
    table = Table(3, {"unit": {"r": ring(R)}})
    results = table.run(
        lambda party, x: tables.look_up(party, tensor(x), PUBLIC, shift, 4), table.shared(X)
    )
    carry = [(x % 2**shift) + (r % 2**shift) >= 2**shift for x, r in zip(X, R, strict=True)]
    places = [((x >> shift) + c) % 16 for x, c in zip(X, carry, strict=True)]
    assert opened(results) == [each for place in places for each in PUBLIC[place].tolist()]
    # Only the bytes that hold the place are opened.
    width = next(size for size in (1, 2, 4, 8) if 8 * size >= shift + 4)
    assert table.views[0][0].nbytes == width * len(X)


def test_a_look_up_in_parts_is_a_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_CHUNK", 64)  # four places at a time
    values = np.arange(-9, 9).reshape(3, 6)
    table = Table(2)
    results = table.run(
        lambda party, x: tables.look_up(party, tensor(x), PUBLIC[:, :1], 0, 4), table.shared(values)
    )
    assert results[0].shape == (3, 6, 1)
    assert opened(results) == [100 + each % 16 for each in values.ravel().tolist()]


NUMBERS = sorted({max(1, (1 << n) + step) for n in range(4, 30) for step in (-1, 0, 1)})


@pytest.mark.parametrize("signed_values", [False, True])
def test_a_number_is_its_mantissa_times_a_power_of_two(signed_values: bool) -> None:
    first, last = 4, 28
    values = NUMBERS + ([-each for each in NUMBERS] if signed_values else [0, -1, -5])
    table = Table(2)
    results = table.run(
        lambda party, x: tables.normalize(party, tensor(x), first, last, signed_values, (0,)),
        table.shared(values),
    )
    mantissas = opened([each.mantissa for each in results])
    exponents = np.array(opened([each.exponent for each in results])).reshape(len(values), -1)
    inside = combined([each.nonzero for each in results]).tolist()
    ends = combined([each.ends for each in results])[:, 0].tolist()
    for value, mantissa, exponent, bit, end in zip(
        values, mantissas, exponents.tolist(), inside, ends, strict=True
    ):
        size = abs(value) if signed_values else value
        assert bit == (size >= 1 << first)
        assert end == (value >= 0)
        if size >= 1 << last + 1:
            continue  # above the range it is undefined
        e = size.bit_length() - 1 - first if size >= 1 << first else None
        unit = 1 if value > 0 else -1
        assert exponent == [unit * (n == e) for n in range(last - first + 1)]
        exact = 0 if e is None else size * 2**tables.MANTISSA_BITS / 2 ** (e + first)
        assert 0 <= mantissa - exact <= 1 or exact - 1 < mantissa <= exact


@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize(
    ("protocol", "kind"),
    [
        (lambda party, x: arithmetic.truncate(party, x, 16), "truncation"),
        (lambda party, x: comparison.at_least(party, x), "comparison"),
        (lambda party, x: comparison.relu(party, x, 16), "relu"),
        (lambda party, x: tables.look_up(party, x, PUBLIC, 4, 4), "look-up"),
        (lambda party, x: arithmetic.square(party, x), "square"),
    ],
)
def test_no_bit_of_a_view_goes_with_the_secret(protocol: Any, kind: str, parties: int) -> None:
    """Each bit of each message, and of what it opens, against a secret bit: once in a billion."""
    secret = np.random.default_rng(len(kind)).integers(0, 2, 4096)
    for low, high in ((-3, 5), (2**60, -(2**60)), (0, 1)):
        table = Table(parties, seed=abs(low) + len(kind))
        values = np.where(secret == 1, high, low)
        table.run(lambda party, x: protocol(party, tensor(x)), table.shared(values))
        for sent in table.views:
            for view in (*sent, combined(sent)):
                rows = np.ascontiguousarray(view).view(np.uint8).reshape(len(secret), -1)
                bits = np.unpackbits(rows, axis=1).astype(float)
                varying = bits.std(0) > 0  # bits of packed tables that nobody uses are zeros
                ones = bits[secret == 1].mean(0) - bits[secret == 0].mean(0)
                score = np.abs(ones[varying]) * np.sqrt(len(secret))
                assert score.max(initial=0) < stats.norm.isf(1e-9 / 1000)
