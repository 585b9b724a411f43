"""The schedules against the published equations, stated once more step by step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from holdfast.errors import InputError
from holdfast.sparse import Cubic, Narang, percentiles, plan


def zero(layer: nn.Linear) -> None:
    layer.weight.zero_()


def published(weights: np.ndarray, q: float, start: int, ramp: int, end: int, freq: int) -> list:
    """Algorithm 1 of the paper over frozen weights: the mask after each iteration."""
    theta = 2 * q * freq / (2 * (ramp - start) + 3 * (end - ramp))
    phi = 1.5 * theta
    mask, masks = np.ones(weights.shape, bool), []
    for itr in range(1, end + freq):
        if start < itr < end and itr % freq == 0:
            if itr < ramp:
                eps = theta * (itr - start + 1) / freq
            else:
                eps = (theta * (ramp - start + 1) + phi * (itr - ramp + 1)) / freq
            mask = np.abs(weights) > eps
        masks.append(mask)
    return masks


@given(
    st.integers(0, 40),
    st.integers(1, 60),
    st.integers(2, 60),
    st.integers(1, 9),
    st.floats(0.05, 2),
)
def test_the_published_masks_at_every_step(
    start: int, to_ramp: int, to_end: int, freq: int, q: float
) -> None:
    ramp, end = start + to_ramp, start + to_ramp + to_end
    if not any(itr % freq == 0 for itr in range(start + 1, end)):
        return
    weights = np.random.default_rng(0).standard_normal((5, 7))
    schedule = Narang(q, start, ramp, end, freq)
    mask = torch.ones(5, 7, dtype=torch.bool)
    for itr, expected in enumerate(published(weights, q, start, ramp, end, freq), 1):
        if itr in schedule.updates:
            mask = schedule.keep(torch.from_numpy(np.abs(weights)), itr)
        assert (mask.numpy() == expected).all(), itr


def test_the_threshold_ends_at_q() -> None:
    schedule = Narang.of_epochs(0.37, epochs=20, steps_per_epoch=500)
    assert (schedule.start, schedule.ramp, schedule.end) == (500, 2500, 5000)
    # theta (ramp - start) + phi (end - ramp) = q freq: the closed form of the first equation.
    rise = schedule.theta * (2500 - 500) + schedule.phi * (5000 - 2500)
    assert rise / schedule.freq == pytest.approx(0.37, rel=1e-12)
    assert schedule.threshold(4900) == pytest.approx(0.37, rel=0.03)
    blocks = Narang.of_epochs(0.37, epochs=20, steps_per_epoch=500, block=16)
    assert blocks.theta == pytest.approx(2 * schedule.theta)  # 16^(1/4)


def test_cubic_removes_the_smallest_up_to_the_share() -> None:
    schedule = Cubic(0.8, start=10, end=50, freq=15)
    assert list(schedule.updates) == [15, 30, 45, 50]
    magnitudes = torch.rand(20, 25, generator=torch.Generator().manual_seed(0))
    for step in schedule.updates:
        share = 0.8 + (0 - 0.8) * (1 - (step - 10) / 40) ** 3
        kept = schedule.keep(magnitudes, step)
        assert int((~kept).sum()) == round(500 * share)
        assert magnitudes[~kept].max() <= magnitudes[kept].min()


def test_q_is_a_weight_of_the_dense_run_per_layer_type() -> None:
    state = {
        "rnn.weight_ih_l0": np.arange(1, 51, dtype=np.float32).reshape(5, 10),
        "rnn.weight_hh_l0": -np.arange(51, 101, dtype=np.float32).reshape(5, 10),
        "rnn.bias_ih_l0": np.full(10, 1e6, np.float32),
        "fc.weight": np.array([[3.0, -1.0], [2.0, 4.0]], np.float32),
        "fc.bias": np.full(2, 1e6, np.float32),
        "embedding.weight": np.full((9, 9), 1e6, np.float32),
        "transformer.wte.weight": np.full((9, 9), 1e6, np.float32),
        "norm.weight": np.full(9, 1e6, np.float32),
    }
    assert percentiles(state) == {"recurrent": 90.0, "linear": 4.0}
    assert percentiles({k: torch.from_numpy(v) for k, v in state.items()}, 0.5)["recurrent"] == 50.0


def test_the_plan_counts_the_dense_weights_below_each_threshold() -> None:
    weight = np.random.default_rng(1).standard_normal((40, 30)).astype(np.float32)
    options = {"epochs": 8, "steps_per_epoch": 100, "freq": 50, "include": ["fc.*"]}
    answer = plan({"fc.weight": weight}, **options)
    schedule = answer.schedules["linear"]
    assert [row["step"] for row in answer.rows] == [150, 200, 250, 300, 350]
    for row in answer.rows:
        assert row["threshold"] == schedule.threshold(row["step"])
        assert row["sparsity"] == np.mean(np.abs(weight) <= row["threshold"])
    blocks = plan({"fc.weight": weight}, **options, block=16).rows[-1]
    whole = [np.abs(weight[r : r + 16]).max(0) for r in range(0, 40, 16)]  # the last one has 8 rows
    assert blocks["sparsity"] == np.mean(np.concatenate(whole) <= blocks["threshold"])


@pytest.mark.parametrize(
    ("make", "code", "place"),
    [
        (lambda: Narang(0.0, 1, 2, 3, 1), "out-of-range", "q"),
        (lambda: Narang(float("nan"), 1, 2, 3, 1), "out-of-range", "q"),
        (lambda: Narang(1.0, 1, 1, 3, 1), "out-of-range", "ramp"),
        (lambda: Narang(1.0, 1, 5, 5, 1), "out-of-range", "end"),
        (lambda: Narang(1.0, -1, 2, 3, 1), "out-of-range", "start"),
        (lambda: Narang(1.0, 1, 2, 9, 0), "out-of-range", "freq"),
        (lambda: Narang(1.0, 1, 2, 9, 100), "out-of-range", "freq"),
        (lambda: Narang.of_epochs(1.0, 4, 100), "out-of-range", "ramp"),
        (lambda: Cubic(1.0, 1, 2), "out-of-range", "final"),
        (lambda: Cubic(0.5, 2, 2), "out-of-range", "end"),
        (lambda: percentiles({}), "no-data", "state dict"),
        (lambda: percentiles({"conv.weight": np.ones((2, 2, 3))}), "no-data", "state dict"),
        (lambda: plan({"a.weight": np.zeros((9, 9))}, 9, 100), "ambiguous", "a.weight"),
        (
            lambda: plan(nn.Linear(9, 9).requires_grad_(False).apply(zero), 9, 100),
            "out-of-range",
            "q",
        ),
    ],
)
def test_impossible_schedules_are_refused(
    make: Callable[[], object], code: str, place: str
) -> None:
    with pytest.raises(InputError) as refused:
        make()
    assert (refused.value.code, refused.value.place) == (code, place)
