"""Hours of a signal: pandas' clocks, means and interpolation; the same signal in every other form."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.carbon.formats import LARGEST, read_signal
from holdfast.carbon.signals import LIFECYCLE_FACTORS, Signal, mix_intensity
from holdfast.errors import InputError

HEAD = "timestamp,value,unit,kind"


def table(times: Any, values: Any, unit: str = "g/kWh", kind: str = "average") -> str:
    rows = [f"{time},{value},{unit},{kind}" for time, value in zip(times, values, strict=True)]
    return "\n".join([HEAD, *rows]) + "\n"


def read(text: str | bytes, folder: Path, name: str = "s.csv", **options: str) -> Signal:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_signal(path, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hours")


# --- Means of hours ---------------------------------------------------------------------------------


@given(
    st.sampled_from([5, 10, 15, 20, 30, 60]),
    st.integers(0, 59),
    st.integers(4, 30),
    st.integers(0, 8),
    st.integers(2, 30),
    st.integers(0, 2**16),
)
def test_means_are_those_of_pandas_minute_by_minute(
    folder: Path, step: int, offset: int, before: int, hole: int, after: int, seed: int
) -> None:
    """A value holds for its step; an hour of which less than half is known has none."""
    start = pd.Timestamp("2024-02-28T22:00Z")
    values = np.random.default_rng(seed).uniform(0, 900, before + hole + after)
    values[before : before + hole] = np.nan
    minutes = np.r_[np.full(offset, np.nan), np.repeat(values, step)]
    index = pd.date_range(start, periods=len(minutes), freq="1min")
    hourly = pd.Series(minutes, index).resample("1h").agg(["mean", "count"])
    expected = hourly["mean"].where(hourly["count"] >= 30)
    times = pd.date_range(index[offset], periods=len(values), freq=f"{step}min")
    known = ~np.isnan(values)  # rows that are missing, and rows without a number
    for rows in (known, np.full(len(values), True)):
        cells = pd.Series(values[rows]).map(repr).replace("nan", "")
        found = read(table(times[rows], cells, unit="kg/MWh"), folder)
        assert found.start_s == start.timestamp()
        np.testing.assert_allclose(found.values, expected)


CLOCKS = (
    "America/Los_Angeles",
    "Europe/Berlin",
    "Australia/Lord_Howe",  # half an hour of summer time
    "America/St_Johns",
    "Asia/Kolkata",
    "Pacific/Chatham",
)


@pytest.mark.parametrize("zone", CLOCKS)
def test_local_hours_over_all_changes_of_the_clock_are_those_of_pandas(
    zone: str, folder: Path
) -> None:
    for first, last in (("2023-10-27", "2023-11-07"), ("2024-03-09", "2024-04-08")):
        utc = pd.date_range(first, last, freq="30min", tz="UTC", inclusive="left")
        local = utc.tz_convert(zone).tz_localize(None)
        values = np.arange(len(utc)) % 97
        expected = pd.Series(values, utc).resample("1h").mean()
        for order in (slice(None), slice(None, None, -1)):
            text = table(local.strftime("%Y-%m-%dT%H:%M")[order], values[order])
            found = read(text, folder, timezone=zone)
            assert found.start_s == utc[0].timestamp()
            np.testing.assert_allclose(found.values, expected)


@given(
    st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), min_size=1, max_size=40),
    st.integers(0, 10**9),
)
def test_gaps_are_filled_as_pandas_fills_them(values: list[float | None], start_s: int) -> None:
    series = pd.Series(values, dtype=float)
    runs = series.isna().groupby(series.notna().cumsum()).sum()
    signal = Signal(series.to_numpy(), start_s, "average")
    if runs.max() > 24 or series.isna().all():
        with pytest.raises(InputError) as caught:
            signal.interpolated()
        assert caught.value.code == "no-data"
        return
    filled = signal.interpolated()
    expected = series.interpolate(limit_direction="both")
    np.testing.assert_allclose(filled.values, expected, rtol=1e-9, atol=1e-9)
    assert len(filled.notes) == bool(series.isna().any())


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=30), st.integers(-(10**6), 10**6))
def test_means_from_another_minute_on_are_those_of_pandas(values: list[float], minute: int) -> None:
    signal = Signal(np.array(values), 0, "average")
    moved = signal.at_minute_of(60 * minute)
    shift = minute % 60
    minutes = pd.Series(np.repeat(values, 60)).iloc[shift:]
    hours = [
        part.mean() for _, part in minutes.groupby(np.arange(len(minutes)) // 60) if len(part) == 60
    ]
    assert moved.start_s == 60 * shift
    np.testing.assert_allclose(moved.values, hours, rtol=1e-9, atol=1e-6)


# --- Mixes ------------------------------------------------------------------------------------------

megawatts = st.one_of(st.just(np.nan), st.floats(-1e5, 1e5), st.sampled_from([0.0, 5e-324, 1e90]))


@given(st.dictionaries(st.sampled_from(sorted(LIFECYCLE_FACTORS)), megawatts, min_size=1))
def test_an_intensity_is_a_weighted_mean(mix: dict[str, float]) -> None:
    values, negative = mix_intensity({fuel: [mw] for fuel, mw in mix.items()})
    frame = pd.DataFrame({"mw": mix, "factor": pd.Series(LIFECYCLE_FACTORS)}).loc[list(mix)]
    assert negative == (frame["mw"] < 0).sum()
    positive = frame["mw"].clip(lower=0)
    if positive.isna().any() or positive.sum() == 0:
        assert np.isnan(values[0])
        return
    share = positive / positive.max()  # no sum leaves the range of a float
    assert values[0] == pytest.approx((share * frame["factor"]).sum() / share.sum())
    assert frame["factor"].min() * (1 - 1e-12) <= values[0] <= frame["factor"].max() * (1 + 1e-12)
    twice = mix_intensity({fuel: [2 * mw] for fuel, mw in mix.items()})[0]
    assert twice[0] == pytest.approx(values[0])  # the unit of power does not matter


# --- The same signal in other forms -----------------------------------------------------------------

TIMES = pd.date_range("2024-01-01T00:00Z", periods=5, freq="1h")
VALUES = [300.0, 310.5, 0.0, 1234.0, 299.0]
PLAIN = table(TIMES, VALUES)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ends.csv", PLAIN.replace("\n", "\r\n")),
        ("mark.csv", "\ufeff" + PLAIN),
        ("last.csv", PLAIN.rstrip()),
        ("empty.csv", PLAIN.replace("\n", "\n\n") + ",,,\n"),
        ("bars.csv", PLAIN.replace(",", "|")),
        ("quoted.csv", PLAIN.replace("1234.0", '"1,234.0"').replace("300.0", '" 300.0 "')),
        ("spaces.csv", PLAIN.replace("unit,kind", " unit , kind")),
        ("reversed.csv", "\n".join([HEAD, *PLAIN.split("\n")[:0:-1]])),
        ("zone.csv", table(TIMES.tz_convert("Asia/Kathmandu"), VALUES)),
        ("letters.csv", PLAIN.replace(" ", "T").replace("+00:00", "Z")),
        ("pounds.csv", table(TIMES, [v / 0.45359237 for v in VALUES], unit="lb/MWh")),
        ("tonnes.csv", table(TIMES, [v / 1e6 for v in VALUES], unit="tCO2eq/kWh")),
        ("grams.csv", PLAIN.replace("g/kWh", "gCO\u2082eq/kWh")),
        ("s.csv.gz", gzip.compress(PLAIN.encode())),
        ("s.csv.bz2", bz2.compress(PLAIN.encode())),
        ("s.csv.xz", lzma.compress(PLAIN.encode())),
        ("without", gzip.compress(PLAIN.encode())),
        (
            "w.json",
            json.dumps(
                {
                    "data": [
                        {"point_time": f"{t}", "value": v}
                        for t, v in zip(TIMES, VALUES, strict=True)
                    ],
                    "meta": {"signal_type": "co2_aoer", "units": "kg_co2_per_mwh"},
                }
            ),
        ),
    ],
)
def test_files_of_every_form_hold_the_same_hours(
    name: str, text: str | bytes, tmp_path: Path
) -> None:
    found = read(text, tmp_path, name)
    assert (found.kind, found.unit, found.start_s) == ("average", "gCO2/kWh", 1704067200)
    np.testing.assert_allclose(found.values, VALUES, rtol=1e-12)


@pytest.mark.parametrize(
    ("cell", "value"),
    [("-12.5", -12.5), ("1e3", 1000.0), ("", None), ("N/A", None), ("n/e", None), ("5e-324", 0.0)]
    + [(f"{LARGEST:g}", LARGEST)]
    + [
        (c, "refused")
        for c in ("inf", "-inf", "1e999", "1e101", "0x10", "12 MW", "1.2.3", "\u22125")
    ],
)
def test_cells_that_are_numbers(cell: str, value: float | str | None, tmp_path: Path) -> None:
    text = PLAIN.replace("310.5", cell)
    if value == "refused":
        with pytest.raises(InputError) as caught:
            read(text, tmp_path)
        assert (caught.value.code, caught.value.place) == ("invalid-value", "line 3")
        return
    found = read(text, tmp_path).values[1]
    assert np.isnan(found) if value is None else found == pytest.approx(value)
