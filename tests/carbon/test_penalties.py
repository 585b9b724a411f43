"""Penalties: their terms by hand, and the files that state them."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import ConvexHull

from holdfast.carbon.workloads import (
    FEATURES,
    Workload,
    WorkloadSpec,
    batch_penalty,
    lost_throughput,
    read_load,
    read_penalties,
    segments,
)
from holdfast.errors import InputError


def test_terms_of_batch_work_by_hand() -> None:
    d = np.array([2.0, -1.0, -1.0])
    # J d / U: 1, -1/2, -1/2; running sums 1, 1/2, 0; of d: 2, 1, 0; of J d^2 / U: 2, 5/2, 3.
    for name, value in zip(FEATURES, (1.5, 3.0, 7.5, 1.0, 1.0), strict=True):
        assert batch_penalty({name: 1.0}, 0.5, 3, 2).value(d) == pytest.approx(value)


@pytest.mark.parametrize(
    ("content", "code", "place"),
    [
        ({"gone": {}}, "no-match", "workloads.gone"),
        ({"a": {"weights": {"waiting": 1.0}}}, "unknown-name", "workloads.a"),
        ({"a": {"weights": {"backlog_jobs": -1.0}}}, "not-convex", "workloads.a"),
        ({"a": {"kind": "online"}}, "missing-key", "workloads.a.curve"),
        ({"a": {"flexibility": 1}}, "unknown-key", "workloads.a.flexibility"),
        ({"a": {"flex": "much"}}, "invalid-value", "workloads.a.flex"),
        ({"a": {"weights": {"squared": "x"}}}, "invalid-value", "workloads.a.weights.squared"),
    ],
)
def test_bad_penalties(content: object, code: str, place: str, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"workloads": content}))
    with pytest.raises(InputError) as caught:
        read_penalties(path, ["a"])
    assert (caught.value.code, caught.value.place) == (code, place)


slopes = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 50)), min_size=1, max_size=5)


@given(slopes, st.randoms(use_true_random=False))
def test_segments_of_a_curve_add_up_to_it(steps: list[tuple[int, int]], random: object) -> None:
    """A convex curve from its widths and slopes, its points in any order: NumPy's interpolation."""
    points, x, y = [(0.0, 0.0)], 0.0, 0.0
    for (width, _), slope in zip(steps, sorted(slope for _, slope in steps), strict=True):
        x, y = x + width / 16, y + slope * width / 16
        points.append((x, y))
    shuffled = sorted(points, key=lambda _: random.random())  # type: ignore[attr-defined]
    found = segments(shuffled)
    at = np.linspace(0, x, 97)
    value = sum(rise * np.maximum(at - knot, 0) for knot, rise in found)
    assert value == pytest.approx(np.interp(at, *zip(*points, strict=True)), abs=1e-9)
    assert all(rise > 0 for _, rise in found)
    # A slope that falls is refused, with the point at which it does.
    falls = [*points, (x + 1, y - 1)]
    with pytest.raises(InputError) as caught:
        segments(falls)
    assert (caught.value.code, caught.value.place) == ("not-convex", f"curve at {x:g}")


measured = st.lists(
    st.tuples(st.integers(50, 300), st.integers(1, 99)),
    min_size=2,
    max_size=8,
    unique_by=lambda p: p[0],
)


@given(measured)
def test_losses_of_throughput_are_qhulls_lower_hull(points: list[tuple[int, int]]) -> None:
    hull = lost_throughput(points)
    most, full = max(points)
    losses = np.array([(1 - watts / most, 1 - rate / full) for watts, rate in points])
    assert hull[0] == (0.0, 0.0)
    for (x0, y0), (x1, y1) in pairwise(hull):  # no measured point is below
        line = y0 + (y1 - y0) * (losses[:, 0] - x0) / (x1 - x0)
        within = (losses[:, 0] >= x0) & (losses[:, 0] <= x1)
        assert (losses[within, 1] >= line[within] - 1e-12).all()
    high = losses[:, 1].max() + 10
    corners = np.r_[losses, [[0, high], [losses[:, 0].max(), high]]]
    expected = {tuple(np.round(corners[n], 9)) for n in ConvexHull(corners).vertices}
    corner = {tuple(np.round(point, 9)) for point in hull}
    assert expected - corner <= {
        (0.0, round(high, 9)),
        (round(losses[:, 0].max(), 9), round(high, 9)),
    }


@given(
    st.lists(st.integers(-20, 20), min_size=3, max_size=3), st.sampled_from(["online", "training"])
)
def test_penalties_of_other_work_by_interpolation(tenths: list[int], kind: str) -> None:
    power = np.array([10.0, 0.0, 40.0])
    curve = [(0.0, 0.0), (0.1, 0.0), (0.3, 4.0), (0.5, 20.0)]
    if kind == "training":
        curve = [(50.0, 0.4), (80.0, 0.9), (100.0, 1.0)]
    spec = WorkloadSpec(kind, jobs=8.0, scale=2.5, curve=curve)  # type: ignore[arg-type]
    d = np.array(tenths) / 50 * power  # up to 0.4 of the power either way
    points = curve if kind == "online" else [(0.0, 0.0), (0.2, 0.1), (0.5, 0.6)]
    share = np.divide(d, power, out=np.zeros(3), where=power > 0)
    lost = np.interp(share, *zip(*points, strict=True))  # more power costs nothing
    penalty = Workload("w", power, spec).penalty(slice(None))
    assert penalty.value(d) == pytest.approx(2.5 * (8 if kind == "training" else 1) * lost.sum())
    owed = lost * power.mean() if kind == "training" else 0 * lost
    assert penalty.owed(d) == pytest.approx(owed)


@given(st.integers(1, 30), st.integers(1, 4), st.sampled_from(["UTC", "Asia/Kolkata", "-03:30"]))
def test_a_load_is_what_pandas_wrote(
    tmp_path_factory: pytest.TempPathFactory, hours: int, count: int, zone: str
) -> None:
    rng = np.random.default_rng(hours)
    times = pd.date_range("2024-03-30T22:30Z", periods=hours, freq="1h").tz_convert(zone)
    frame = pd.DataFrame(rng.uniform(0, 1e4, (hours, count)), times)
    frame.columns = [f"work {n}, MW" for n in range(count)]
    path = tmp_path_factory.mktemp("load") / "load.csv.gz"
    frame.to_csv(path, index_label="time")
    found = read_load(path)
    assert found.start_s == times[0].timestamp()
    assert [each.name for each in found.workloads] == list(frame.columns)
    np.testing.assert_array_equal([each.power for each in found.workloads], frame.to_numpy().T)
