"""The attention emulator: block = N is the baseline, torch's casts, published ratios, faults."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from holdfast.errors import InputError
from holdfast.plain import plain
from holdfast.profile.numerics import attention, rounded
from holdfast.profile.numerics import emulator as emu
from holdfast.report import render

RATIOS = {
    # (keys, keys per block) -> flash / baseline, measured for the specification with another program
    (1024, 16): 8.3,
    (1024, 64): 3.4,
    (1024, 128): 2.4,
    (4096, 16): 21.2,
    (4096, 64): 8.1,
    (4096, 128): 5.3,
    (8192, 16): 68,
    (8192, 64): 10.2,
    (8192, 128): 7.6,
}


def inputs(n: int, d: int = 16, dtype: str = "bf16", seed: int = 0) -> tuple[np.ndarray, ...]:
    generator = np.random.default_rng(seed)
    return tuple(rounded(generator.standard_normal((n, d)), dtype) for _ in range(3))


@pytest.mark.parametrize("dtype", ["fp32", "tf32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2"])
@pytest.mark.parametrize("kind", ["all_rounded", "kernel"])
def test_one_block_of_all_keys_is_the_baseline_bit_for_bit(dtype: str, kind: str) -> None:
    q, k, v = inputs(48, dtype=dtype)
    given = getattr(emu, kind)(dtype)
    scores = emu.exact_scores(q, k)
    base = emu.baseline(scores, v, given)
    flash = emu.flash(scores, v, given, 48)
    for x, y in zip(base, flash, strict=True):
        assert np.array_equal(x.view(np.int64), y.view(np.int64))


def test_golden_and_unrounded_flash_are_torchs_attention_in_float64() -> None:
    q, k, v = inputs(60)
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(torch.from_numpy(x)[None, None] for x in (q, k, v))
    )[0, 0].numpy()
    scores = emu.exact_scores(q, k)
    assert np.allclose(emu.golden(scores, v), expected, rtol=0, atol=1e-14)
    output, _ = emu.flash(scores, v, emu.Arithmetic(), 7)
    assert np.allclose(output, expected, rtol=0, atol=1e-14)


def test_each_step_is_torchs_cast_to_bfloat16() -> None:
    """A second program: the recurrence in torch, every result cast; sums in float64 as the emulator's."""
    q, k, v = (torch.from_numpy(x) for x in inputs(96, seed=3))

    def cast(x: torch.Tensor) -> torch.Tensor:
        return x.float().bfloat16().double()

    s_all = cast(q @ k.T / 4)
    m = torch.full((96, 1), -torch.inf, dtype=torch.float64)
    row_sum, o = torch.zeros_like(m), torch.zeros_like(q)
    for first in range(0, 96, 16):
        s = s_all[:, first : first + 16]
        m_new = torch.maximum(m, s.amax(1, keepdim=True))
        p, a = cast(torch.exp(s - m_new)), cast(torch.exp(m - m_new))
        row_sum = cast(cast(a * row_sum) + cast(p.sum(1, keepdim=True)))
        o = cast(cast(a * o) + cast(p @ v[first : first + 16]))
        m = m_new
    scores = emu.exact_scores(*(x.numpy() for x in (q, k)))
    made = emu.flash(scores, v.numpy(), emu.all_rounded("bf16"), 16)
    assert np.array_equal(made[1], cast(o / row_sum).numpy())


def test_a_published_ratio_of_short_rows() -> None:
    found = attention([1024], [64], seeds=2)
    (row,) = found.grid
    assert row["ratio"] == pytest.approx(RATIOS[1024, 64], rel=0.15)
    assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
    assert found.compared == "before-last-rounding"


@pytest.mark.full
def test_the_published_ratios_of_all_rows() -> None:
    for row in attention([1024, 4096, 8192], [16, 64, 128]).grid:
        assert row["ratio"] == pytest.approx(RATIOS[row["length"], row["block"]], rel=0.15)


@pytest.mark.full
def test_a_kernels_arithmetic_is_better_than_separate_operators() -> None:
    found = attention(4096, 64, inputs="gaussian", mode="kernel")
    assert found.flash["max_abs"] == pytest.approx(3.6e-4, rel=0.15)
    assert found.baseline["max_abs"] == pytest.approx(1.3e-3, rel=0.15)


def test_the_budget_names_each_step_and_its_share() -> None:
    found = attention(256, 16, seeds=2, rows=64)
    alone = {row["step"]: row["max_abs_alone"] for row in found.steps}
    assert list(alone) == list(emu.STEPS)
    assert max(alone, key=alone.__getitem__) in ("row_sum", "accumulator")
    assert alone["row_max"] < 1e-12  # any maximum gives the same quotient
    exact = attention(64, 16, dtype="fp64", seeds=1)
    assert exact.ratio is None or exact.flash["max_abs"] < 1e-13


def test_the_contract_of_the_json() -> None:
    made = json.loads(json.dumps(plain(attention(64, 64, seeds=2, rows=8).to_dict())))
    assert made["ratio"] == 1.0
    assert made["ratio_range"] == [1.0, 1.0]
    assert made["baseline"] == made["flash"]
    assert set(made["steps"][0]) >= {"step", "max_abs_alone"}
    assert made["rows"] == 8


def test_overflow_is_counted_and_placed_and_gives_no_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = emu.exact_scores
    monkeypatch.setattr(emu, "exact_scores", lambda q, k: 1e5 * scores(q, k))
    found = attention(64, 16, dtype="fp16", inputs="gaussian", seeds=1)
    assert found.ratio is None
    assert found.flash["non_finite"] > 0
    assert len(found.flash["first_non_finite"]) == 2
    assert found.unknowns()
    assert "no ratio" in render(found.page())


def test_unknown_inputs_are_refused() -> None:
    for name in ("inputs", "mode"):
        with pytest.raises(InputError) as caught:
            attention(4, 2, **{name: "normal"})
        assert (caught.value.code, caught.value.place) == ("unknown-name", name)


@pytest.mark.parametrize(("length", "block"), [(0, 16), (16, 0), ([], 16)])
def test_lengths_and_blocks_are_at_least_one(length: int, block: int) -> None:
    with pytest.raises(InputError) as caught:
        attention(length, block)
    assert caught.value.code == "out-of-range"
