"""Rounding against torch's casts, against a search in all numbers of a format, and at every edge."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.profile.numerics import rounded
from holdfast.profile.numerics.formats import FORMATS, Format, spacing

CASTS = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
}
SMALL = ["bf16", "fp16", "fp8_e4m3", "fp8_e5m2"]


def values(form: Format) -> np.ndarray:
    """Every finite number of a format, from its definition."""
    one = 2**form.fraction_bits
    found = [m * 2.0 ** (form.min_exponent - form.fraction_bits) for m in range(one)]
    exponent = form.min_exponent
    while 2.0**exponent <= form.largest:
        found += [(one + m) * 2.0 ** (exponent - form.fraction_bits) for m in range(one)]
        exponent += 1
    positive = np.array([x for x in found if x <= form.largest])
    return np.concatenate([-positive[:0:-1], positive])


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bits; one NaN is as good as another."""
    nan = np.isnan(a) & np.isnan(b)
    return bool(np.all(nan | ((a == b) & (np.signbit(a) == np.signbit(b)))))


def nearest(x: np.ndarray, form: Format) -> np.ndarray:
    """The oracle: the nearest of all numbers, of two the one with the even fraction."""
    known = values(form)
    high = np.clip(np.searchsorted(known, x), 1, len(known) - 1)
    below, above = known[high - 1], known[high]
    # Both differences are exact in float64: the numbers have few bits.
    to_below, to_above = x - below, above - x
    even = (np.abs(below) / spacing(below, form)) % 2 == 0
    return np.where((to_below < to_above) | ((to_below == to_above) & even), below, above)


@pytest.mark.parametrize("name", SMALL)
def test_every_number_and_every_tie_is_rounded_as_the_oracle_says(name: str) -> None:
    form = FORMATS[name]
    known = values(form)
    assert np.array_equal(rounded(known, name), known)
    middles = (known[:-1] + known[1:]) / 2
    for x in (middles, np.nextafter(middles, np.inf), np.nextafter(middles, -np.inf)):
        assert np.array_equal(rounded(x, name), nearest(x, form))


@pytest.mark.parametrize("name", CASTS)
def test_casts_of_torch_from_float32_have_the_same_bits(name: str) -> None:
    bits = np.random.default_rng(0).integers(0, 2**32, 200_000, dtype=np.uint32)
    edges = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        448,
        464,
        464.001,
        480,
        57344,
        61440,
        65504,
        65519.99,
        65520,
    ]
    x = np.concatenate([bits.view(np.float32), np.array(edges, np.float32)])
    cast = torch.from_numpy(x).to(CASTS[name]).double().numpy()
    with np.errstate(invalid="ignore"):  # signalling NaN
        assert same(rounded(x.astype(np.float64), name), cast)


def test_float32_and_tf32_are_rounded_once() -> None:
    x = np.random.default_rng(1).standard_normal(50_000) * 2.0 ** np.arange(-150, 50).repeat(250)
    assert same(rounded(x, "fp32"), x.astype(np.float32).astype(np.float64))
    # tf32: float32 with 13 bits fewer; scaling by 2^k is exact, so rounding to a multiple is the oracle.
    y = np.abs(x[np.abs(x) > 2.0**-126])
    quantum = 2.0 ** (np.floor(np.log2(y)) - 10)
    assert np.array_equal(rounded(y, "tf32"), np.round(y / quantum) * quantum)


def test_a_double_is_not_rounded_through_float32() -> None:
    x = 1 + 2.0**-8 + 2.0**-40  # just above a tie of bf16, on it in float32
    assert rounded(x, "bf16") == 1 + 2.0**-7
    assert torch.tensor(x, dtype=torch.float64).bfloat16().item() == 1


@given(st.floats(width=64), st.sampled_from(sorted(FORMATS)))
def test_rounding_is_idempotent_odd_and_within_half_an_ulp(x: float, name: str) -> None:
    form = FORMATS[name]
    y = rounded(x, name)
    assert same(rounded(y, name), y)
    assert same(rounded(-x, name), -y)
    if not abs(x) <= form.largest:
        assert np.isnan(y) if np.isnan(x) else abs(y) in (form.largest, np.inf)
    else:
        assert abs(float(y) - x) <= spacing(x, form) / 2


def test_an_unknown_format_is_named() -> None:
    with pytest.raises(InputError) as caught:
        rounded(1.0, "bf17")
    assert (caught.value.code, caught.value.found) == ("unknown-name", "bf17")
