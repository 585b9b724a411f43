"""Signals: formats, units, times, gaps, mixes; what must not be mixed is refused."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from holdfast.carbon.formats import GRAMS_PER_POUND, read_signal, recognize
from holdfast.carbon.signals import Signal, mix_intensity
from holdfast.errors import InputError

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "carbon" / "CISO_2022-05.csv"
AREAS = ("CISO", "ERCO", "PJM", "MISO", "SOCO")
BALANCE = (
    "Balancing Authority,UTC Time at End of Hour,Net Generation (MW) from Coal,"
    "Net Generation (MW) from Natural Gas,Net Generation (MW) from Solar,"
    "Net Generation (MW) from Coal (Adjusted)\n"
)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def refusal(path: Path, **options: str) -> InputError:
    with pytest.raises(InputError) as caught:
        read_signal(path, **options)
    return caught.value


def typed(*rows: tuple[str, object], unit: str = "gCO2/kWh", kind: str = "average") -> str:
    lines = [f"{time},{value},{unit},{kind}" for time, value in rows]
    return "\n".join(["timestamp,value,unit,kind", *lines]) + "\n"


@pytest.mark.parametrize("area", AREAS)
def test_the_published_intensity_is_reproduced(area: str, shared_data: Path) -> None:
    path = shared_data / "carbon" / "eia930_2022" / f"{area}_2022_hourly.csv"
    with path.open() as file:
        published = [row["avg_CI"] for row in csv.DictReader(file)]
    signal = read_signal(path)
    assert (signal.kind, signal.scope, signal.zone) == ("average", "lifecycle", area)
    assert signal.missing == published.count("")
    for ours, theirs in zip(signal.values.tolist(), published, strict=True):
        assert np.isnan(ours) if not theirs else ours == pytest.approx(float(theirs), rel=1e-12)


def test_the_example_has_one_empty_hour() -> None:
    signal = read_signal(EXAMPLE)
    hour = (signal.start_s - 1652140800, signal.hours, signal.missing)
    assert hour == (0, 14 * 24, 1)
    empty = int(np.flatnonzero(np.isnan(signal.values))[0])
    assert empty == 7 * 24 + 18
    filled = signal.interpolated()
    assert filled.values[empty] == pytest.approx(signal.values[[empty - 1, empty + 1]].mean())


def test_mix_by_hand_and_negative_generation() -> None:
    mix = {"COL": [100.0, 0.0, np.nan, 50.0], "SUN": [100.0, -5.0, 1.0, -50.0]}
    values, negative = mix_intensity(mix)
    assert values[0] == pytest.approx((820 + 41) / 2)
    assert np.isnan(values[[1, 2]]).all()  # nothing generated; a fuel unknown
    assert values[3] == 820  # what a plant draws is not subtracted from the coal
    assert negative == 2


def test_pounds_per_megawatt_hour(tmp_path: Path) -> None:
    assert GRAMS_PER_POUND == 453.59237
    point = {"point_time": "2024-01-01T00:00:00+00:00", "value": 1000.0}
    meta = {"signal_type": "co2_moer", "units": "lbs_co2_per_mwh", "region": "CAISO_NORTH"}
    text = json.dumps({"data": [point], "meta": meta})
    signal = read_signal(written(tmp_path, "w.json", text))
    assert signal.values == pytest.approx([453.59237])
    assert (signal.kind, signal.zone, signal.unit) == ("marginal", "CAISO_NORTH", "gCO2/kWh")
    for unit, grams in (("lb/MWh", 0.45359237), ("kgCO2/MWh", 1.0), ("tCO2eq/MWh", 1000.0)):
        path = written(tmp_path, "u.csv", typed(("2022-01-01T00:00Z", 1), unit=unit))
        assert read_signal(path).values == pytest.approx([grams])
    path = written(tmp_path, "u.csv", typed(("2022-01-01T00:00Z", 1), unit="stone/MWh"))
    assert (refusal(path).code, refusal(path).place) == ("invalid-value", "unit")
    meta["signal_type"] = "health_damage"
    path = written(tmp_path, "w.json", json.dumps({"data": [point], "meta": meta}))
    assert refusal(path).place == "meta.signal_type"


def test_five_minutes_become_hours(tmp_path: Path) -> None:
    data = [
        {"point_time": f"2024-01-01T{n // 12:02d}:{n % 12 * 5:02d}:00+00:00", "value": float(n)}
        for n in range(28)
    ]
    data[13]["value"] = None  # type: ignore[assignment]
    meta = {"signal_type": "co2_aoer", "units": "g/kWh", "data_point_period_seconds": 300}
    text = json.dumps({"data": data, "meta": meta})
    signal = read_signal(written(tmp_path, "w.json", text))
    assert signal.kind == "average"
    # Hour 0 whole, hour 1 without one sample, hour 2 with 4 of 12: less than half.
    expected = [5.5, np.mean([n for n in range(12, 24) if n != 13])]
    assert signal.values[:2] == pytest.approx(expected)
    assert np.isnan(signal.values[2])
    # One sample of an hour is not the hour; a length of a sample that is none is refused.
    refused = {"soon": "row 0"} | dict.fromkeys((0, -300, "-1e9"), "meta.data_point_period_seconds")
    for period in (300, None, *refused):
        meta["data_point_period_seconds"] = period
        path = written(tmp_path, "w.json", json.dumps({"data": data[:1], "meta": meta}))
        if period in refused:
            assert (refusal(path).code, refusal(path).place) == ("invalid-value", refused[period])
        else:
            assert read_signal(path).missing == (period == 300)


def test_electricity_maps(tmp_path: Path) -> None:
    header = (
        "Datetime (UTC),Country,Zone name,Zone id,Carbon intensity gCO₂eq/kWh (direct),"
        "Carbon intensity gCO₂eq/kWh (Life cycle)\n"
    )
    rows = "2024-01-01 00:00:00,DE,Germany,DE,300,350\n2024-01-01 00:00:00,FR,France,FR,30,50\n"
    path = written(tmp_path, "em.csv", header + rows)
    assert refusal(path).code == "conflict"
    assert refusal(path, zone="PL").code == "no-match"
    whole = read_signal(path, zone="FR")
    assert (whole.values[0], whole.basis, whole.scope) == (50, "consumption", "lifecycle")
    header = "Datetime (UTC),Zone Id,Carbon Intensity gCO₂eq/kWh (LCA),Data Estimated\n"
    path = written(tmp_path, "em.csv", header + "2022-01-01 00:00:00,FR,60,true\n")
    old = read_signal(path)
    assert (old.values[0], len(old.notes)) == (60, 1)
    direct = written(
        tmp_path, "em.csv", header.replace("LCA", "direct") + "2022-01-01 00:00:00,FR,60,True\n"
    )
    assert refusal(direct, scope="lifecycle").code == "no-match"
    for scope in ("", "direct"):
        found = read_signal(direct, scope=scope)
        assert (found.values[0], found.scope, len(found.notes)) == (60, "direct", 1)


def test_electricity_maps_answers(tmp_path: Path) -> None:
    rows = [
        {"zone": "DE", "carbonIntensity": 300 + n, "datetime": f"2024-01-01T0{n}:00:00.000Z",
         "emissionFactorType": "direct", "isEstimated": n == 1}
        for n in range(3)
    ]  # fmt: skip
    forecast = [{name: row[name] for name in ("carbonIntensity", "datetime")} for row in rows]
    answers = (
        {"zone": "DE", "history": rows},
        {"zone": "DE", "data": rows},
        {"zone": "DE", "forecast": forecast, "updatedAt": "2024-01-01T00:00:00Z"},
        rows[0],
    )
    for answer in answers:
        path = written(tmp_path, "em.json", json.dumps(answer))
        assert recognize(path.read_bytes()) == "Electricity Maps"
        found = read_signal(path, zone="DE")
        assert found.values.tolist() == [300, 301, 302][: found.hours]
        assert (found.kind, found.zone, found.basis) == ("average", "DE", "consumption")
        assert refusal(path, zone="FR").code == "no-match"
    path = written(tmp_path, "em.json", json.dumps(answers[0]))
    assert (read_signal(path).scope, len(read_signal(path).notes)) == ("direct", 1)
    assert refusal(path, scope="lifecycle").code == "no-match"


def test_rows_over_the_life_of_a_plant_and_direct_do_not_mix(tmp_path: Path) -> None:
    rows = [
        {"datetime": f"2024-01-01T0{n}:00:00Z", "carbonIntensity": 100, "emissionFactorType": kind}
        for n, kind in enumerate(("lifecycle", "direct"))
    ]
    path = written(tmp_path, "em.json", json.dumps({"zone": "DE", "history": rows}))
    for scope in ("", "direct"):
        error = refusal(path, scope=scope)
        assert (error.code, error.place) == ("conflict", "row 1, emissionFactorType")


def test_a_scope_that_a_file_does_not_state_is_refused() -> None:
    assert refusal(EXAMPLE, scope="direct").code == "no-match"
    assert read_signal(EXAMPLE, scope="lifecycle").scope == "lifecycle"


def test_half_hours_of_great_britain(tmp_path: Path) -> None:
    intensities = [{"forecast": 266, "actual": 263}, {"forecast": 270, "actual": None}]
    data = [
        {
            "from": f"2018-01-20T12:{n * 30:02d}Z",
            "to": f"2018-01-20T12:{n * 30 + 29}Z",
            "intensity": i,
        }
        for n, i in enumerate(intensities)
    ]
    path = written(tmp_path, "uk.json", json.dumps({"data": data}))
    assert recognize(path.read_bytes()) == "carbonintensity.org.uk"
    found = read_signal(path)
    assert (found.values.tolist(), found.zone, found.scope) == ([266.5], "GB", "direct")
    assert len(found.notes) == 1
    path.write_text(json.dumps({"data": data[1:]}))  # tomorrow: nothing is measured
    assert (read_signal(path).values.tolist(), len(read_signal(path).notes)) == ([270], 1)


ENTSOE = (
    '"Area","MTU (CET/CEST)","Biomass  - Actual Aggregated [MW]","Fossil Gas  - Actual Aggregated [MW]",'
    '"Hydro Pumped Storage  - Actual Aggregated [MW]","Hydro Pumped Storage  - Actual Consumption [MW]",'
    '"Marine  - Actual Aggregated [MW]","Wind Onshore  - Actual Aggregated [MW]"\n'
)


@pytest.mark.parametrize("behind", ["", " (CET/CEST)"])
@pytest.mark.parametrize("written_as", ["{}.{}.2024 {}", "{}/{}/2024 {}:00"])
def test_entsoe(written_as: str, behind: str, tmp_path: Path) -> None:
    # The night in which clocks are put back: 2:00 is there twice, in quarters of an hour.
    times = [f"0{h}:{m:02d}" for h in (1, 2, 2, 3) for m in (0, 15, 30, 45)]
    spans = [written_as.format(27, 10, time) for time in times]
    rows = [
        f'"BZN|DE","{span} - {span}{behind}",100,{300 + n},50,20,n/e,100\n'
        for n, span in enumerate(spans)
    ]
    header = ENTSOE.replace(" (CET/CEST)", "") if behind else ENTSOE
    path = written(tmp_path, "gen.csv", header + "".join(rows))
    found = read_signal(path, zone="BZN|DE", timezone="UTC")  # the file says its own
    assert (found.start_s, found.hours, found.zone) == (1729983600, 4, "BZN|DE")
    quarters = [(100 * 230 + gas * 490 + 100 * 11) / (200 + gas) for gas in range(300, 316)]
    assert found.values == pytest.approx(np.reshape(quarters, (4, 4)).mean(axis=1))
    assert (found.basis, found.scope) == ("production", "lifecycle")
    other = written(tmp_path, "gen.csv", (ENTSOE + rows[0]).replace("Marine", "Fusion"))
    assert refusal(other).code == "unknown-name"


def test_entsoe_with_a_row_per_type_is_the_wide_file(tmp_path: Path) -> None:
    # 2:00 is there twice, for each type; the types are one after another, or of a time together.
    spans = [f"27/10/2024 0{h}:00:00 - 27/10/2024 0{h}:59:59" for h in (1, 2, 2, 3)]
    mw = {"Fossil Gas": [300, 310, "n/e", 330], "Wind Onshore": [100, 90, 80, 70]}
    wide = '"MTU (CET/CEST)","Area",' + ",".join(
        f'"{name} - Actual Aggregated [MW]"' for name in mw
    )
    wide += "".join(
        f'\n"{span}","DE",{mw["Fossil Gas"][n]},{mw["Wind Onshore"][n]}'
        for n, span in enumerate(spans)
    )
    expected = read_signal(written(tmp_path, "wide.csv", wide + "\n"))
    header = '"MTU (CET/CEST)","Area","Production Type","Generation (MW)"\n'
    rows = [
        (n, f'"{span}","DE","{name}","{mw[name][n]}"\n')
        for name in mw
        for n, span in enumerate(spans)
    ]
    by_time = sorted(rows, key=lambda row: row[0])
    for order in (rows, by_time, rows[::-1], by_time[::-1]):
        path = written(tmp_path, "long.csv", header + "".join(row for _, row in order))
        assert recognize(path.read_bytes()) == "ENTSO-E"
        found = read_signal(path)
        assert (found.start_s, found.zone, found.basis) == (expected.start_s, "DE", "production")
        np.testing.assert_array_equal(found.values, expected.values)
    assert found.hours == 4
    twice = header + rows[0][1] + rows[0][1]
    assert refusal(written(tmp_path, "twice.csv", twice)).code == "duplicate"
    other = written(tmp_path, "other.csv", header + rows[0][1].replace("Gas", "Tide"))
    assert refusal(other).code == "unknown-name"


@pytest.mark.parametrize("period", [300, 3600, 5400, 7200, 86400, None])
def test_stated_periods_count_in_every_hour_that_they_have(
    period: int | None, tmp_path: Path
) -> None:
    step = period or 3600
    start = datetime(2024, 3, 1, tzinfo=UTC)
    values = [1.0 + n for n in range(-(-7200 // step) * 2)]
    data = [
        {"point_time": (start + timedelta(seconds=n * step)).isoformat(), "value": value}
        for n, value in enumerate(values)
    ]
    meta = {"signal_type": "co2_aoer", "units": "lb_per_mwh", "data_point_period_seconds": period}
    found = read_signal(written(tmp_path, "w.json", json.dumps({"data": data, "meta": meta})))
    seconds = np.repeat(values, step)
    assert found.values / 0.45359237 == pytest.approx(seconds.reshape(-1, 3600).mean(axis=1))
    single = {"data": data[:1], "meta": meta}
    assert read_signal(written(tmp_path, "one.json", json.dumps(single))).hours == -(-step // 3600)
    for wrong in (0, -300, 0.5, 86401, 1e99):
        content = {"data": data, "meta": meta | {"data_point_period_seconds": wrong}}
        error = refusal(written(tmp_path, "wrong.json", json.dumps(content)))
        assert (error.code, error.place) == ("invalid-value", "meta.data_point_period_seconds")


def test_entsoe_prices(tmp_path: Path) -> None:
    text = "MTU (UTC),Day-ahead Price [EUR/MWh]\n"
    text += "".join(f"01.02.2024 0{h}:00 - 01.02.2024 0{h + 1}:00,{-5.5 + h}\n" for h in range(3))
    found = read_signal(written(tmp_path, "price.csv", text))
    assert (found.kind, found.unit, found.values.tolist()) == (
        "price",
        "EUR/MWh",
        [-5.5, -4.5, -3.5],
    )
    older = '"MTU (CET/CEST)","Day-ahead Price [EUR/MWh]","Currency","BZN|DE-LU"\n' + "".join(
        f'"04.03.2024 0{h}:00 - 04.03.2024 0{h + 1}:00","{50 + h}","EUR",""\n' for h in range(3)
    )
    assert read_signal(written(tmp_path, "old.csv", older)).values.tolist() == [50, 51, 52]
    table = written(
        tmp_path, "p.csv", typed(("2024-02-01T00:00Z", -5), unit="USD/MWh", kind="price")
    )
    assert read_signal(table).values.tolist() == [-5]


@pytest.mark.parametrize(
    ("unit", "factor"),
    [("EUR/MWh", 1), ("USD/kWh", 1000), ("€/kWh", 1000), ("ct/kWh", 0), ("EUR", 0), ("", 0)],
)
def test_units_of_prices(unit: str, factor: float, tmp_path: Path) -> None:
    row = ("2024-02-01T00:00Z", 0.25)
    files = [written(tmp_path, "p.csv", typed(row, unit=unit, kind="price"))]
    for form in ("[{}]", "({})"):
        text = f"MTU (UTC),Day-ahead Price {form.format(unit)}\n01.02.2024 00:00,0.25\n"
        files.append(written(tmp_path, f"{len(files)}.csv", text))
    for path in files:
        if factor:
            found = read_signal(path)
            assert (found.values.tolist(), found.unit) == ([0.25 * factor], f"{unit[:-4]}/MWh")
        else:
            assert (refusal(path).code, refusal(path).place) == ("invalid-value", "unit")


def test_eia_balance_file(tmp_path: Path) -> None:
    rows = 'CISO,01/01/2024 1:00:00 AM,100,"1,000",,50\nCISO,01/01/2024 2:00:00 AM,100,1000,,150\n'
    signal = read_signal(written(tmp_path, "EIA930_BALANCE.csv", BALANCE + rows))
    assert signal.start_s == 1704067200  # the hour that ends at 1:00
    # Adjusted values; the empty solar column is no gap.
    expected = [(coal * 820 + 1000 * 490) / (coal + 1000) for coal in (50, 150)]
    assert signal.values == pytest.approx(expected)


def test_eia_balance_file_since_the_split(tmp_path: Path) -> None:
    """Columns since July 2024, with EIA's double space and misspelling."""
    sources = {
        "Coal": (100, 80),
        "Hydropower Excluding Pumped Storage": (50, 50),
        "Pumped Storage ": (-20, ""),
        "Solar without Integrated Battery Storage": ("", 7),
        "Solar with Integrated Battery Storage": (1, ""),
        "Battery Storage": (30, 30),
        "Geothermal": (9, ""),
    }
    names = [f"Net Generation (MW) from {name}" for name in sources]
    fixed = [f"{name} (Adjusted)".replace("with I", "witho I") for name in names]
    header = ",".join(["Balancing Authority", "UTC Time at End of Hour", *names, *fixed])
    reported = [f"{first}" for first, _ in sources.values()]
    adjusted = [f"{second}" for _, second in sources.values()]
    rows = [",".join(["CISO", "07/01/2024 8:00:00 AM", *reported, *adjusted])]
    rows += [",".join(["PJM", f"07/01/2024 {n}:00:00 AM", *reported, *adjusted]) for n in (8, 9)]
    path = written(tmp_path, "balance.csv", "\n".join([header, *rows]) + "\n")
    signal = read_signal(path, zone="CISO")
    assert signal.values[0] == pytest.approx((80 * 820 + 30 * 24 + 8 * 41 + 9 * 230) / 127)
    assert len(signal.notes) == 1  # of what storage delivered
    assert refusal(path).code == "conflict"
    assert refusal(path, zone="ERCO").found == "ERCO"
    path.write_text(header.replace("Coal", "Tide") + "\n" + rows[0] + "\n")
    assert (refusal(path, zone="CISO").code, refusal(path, zone="CISO").found) == (
        "unknown-name",
        "Tide",
    )


def test_a_balance_row_with_a_fuel_and_its_split_counts_it_once(tmp_path: Path) -> None:
    sources = {
        "Wind": (40, 40, 40),
        "Wind with Integrated Battery Storage": (15, "", ""),
        "Wind without Integrated Battery Storage": (30, "", 25),
        "Hydropower and Pumped Storage": (70, 70, ""),
        "Hydropower Excluding Pumped Storage": (60, "", 60),
        "Pumped Storage": (20, "", ""),
        "Natural Gas": (100, 100, 100),
    }
    names = [f"Net Generation (MW) from {name}" for name in sources]
    lines = [",".join(["Balancing Authority", "UTC Time at End of Hour", *names])]
    for n in range(3):
        cells = [f"{row[n]}" for row in sources.values()]
        lines.append(",".join(["CISO", f"07/01/2024 {n + 1}:00:00 AM", *cells]))
    path = written(tmp_path, "balance.csv", "\n".join(lines) + "\n")
    mixes = ((45, 80), (40, 70), (25, 60))
    expected = [(w * 11 + h * 24 + 100 * 490) / (w + h + 100) for w, h in mixes]
    assert read_signal(path).values == pytest.approx(expected)


def test_what_is_no_answer_of_watttime(tmp_path: Path) -> None:
    point = {"point_time": "2021-03-01T00:00:00Z", "value": 1000, "datatype": "MOER"}  # version 2
    for content in ([], [point], {"data": [point]}, {"data": [point], "meta": {}}):
        path = written(tmp_path, "w.json", json.dumps(content))
        assert refusal(path).code == "unknown-format"


def test_kinds_and_units_never_mix(tmp_path: Path) -> None:
    average = typed(("2022-01-01T00:00Z", 1))
    mixed = average + "2022-01-01T01:00Z,2,gCO2/kWh,marginal\n"
    error = refusal(written(tmp_path, "m.csv", mixed))
    assert (error.code, error.place) == ("conflict", "line 3, kind")
    error = refusal(written(tmp_path, "m.csv", average + "2022-01-01T01:00Z,2,lb/MWh,average\n"))
    assert (error.code, error.place) == ("conflict", "line 3, unit")


def test_local_times_over_both_changes_of_the_clock(tmp_path: Path) -> None:
    zone = "America/Los_Angeles"
    autumn = [f"2024-11-03T{hour:02d}:00" for hour in (0, 1, 1, 2)]
    path = written(tmp_path, "a.csv", typed(*((t, n) for n, t in enumerate(autumn))))
    assert read_signal(path, timezone=zone).values.tolist() == [0, 1, 2, 3]
    assert refusal(path, timezone="UTC").code == "duplicate"
    assert (refusal(path).code, refusal(path).place) == ("naive-time", "line 2")
    spring = [f"2024-03-10T{hour:02d}:00" for hour in (1, 3)]
    path = written(tmp_path, "s.csv", typed(*((t, n) for n, t in enumerate(spring))))
    assert read_signal(path, timezone=zone).values.tolist() == [0, 1]
    path = written(tmp_path, "s.csv", typed(("2024-03-10T02:00", 1)))
    error = refusal(path, timezone=zone)
    assert (error.code, error.place) == ("invalid-value", "line 2")
    assert refusal(path, timezone="Mars/Olympus").code == "unknown-name"


@pytest.mark.parametrize(
    ("zone", "times"),
    [
        (
            "America/New_York",
            [f"2023-11-05T0{t}" for t in ("0:30", "1:00", "1:30", "1:00", "1:30")],
        ),
        ("Europe/Berlin", ["2021-10-31T02:00", "2021-10-31T02:00", "2021-10-31T03:00"]),
        ("Australia/Lord_Howe", [f"2024-04-07T{t}" for t in ("01:30", "01:30", "02:00", "02:30")]),
    ],
)
def test_doubled_hours_follow_the_order_of_the_file(
    zone: str, times: list[str], tmp_path: Path
) -> None:
    rows = [(time, n) for n, time in enumerate(times)]
    upward = read_signal(written(tmp_path, "a.csv", typed(*rows)), timezone=zone)
    path = written(tmp_path, "d.csv", typed(*reversed(rows)))
    found = read_signal(path, timezone=zone)
    np.testing.assert_array_equal(found.values, upward.values)
    assert found.start_s == upward.start_s
    assert np.diff(found.values[~np.isnan(found.values)]).min() > 0


def test_doubled_hours_of_a_file_in_no_order_are_refused(tmp_path: Path) -> None:
    times = ["2021-10-31T04:00", "2021-10-31T02:00", "2021-10-31T03:00", "2021-10-31T02:00"]
    path = written(tmp_path, "a.csv", typed(*((time, n) for n, time in enumerate(times))))
    error = refusal(path, timezone="Europe/Berlin")
    assert (error.code, error.place) == ("naive-time", "line 3")
    # Without a doubled hour, or with offsets, any order will do.
    shifted = [
        time.replace("31T", "30T").replace("02:00", f"0{n}:30") for n, time in enumerate(times)
    ]
    path = written(tmp_path, "a.csv", typed(*((time, n) for n, time in enumerate(shifted))))
    assert read_signal(path, timezone="Europe/Berlin").hours == 4
    offsets = [time + ("+02:00" if n == 1 else "+01:00") for n, time in enumerate(times)]
    path = written(tmp_path, "a.csv", typed(*((time, n) for n, time in enumerate(offsets))))
    assert read_signal(path).values.tolist() == [1, 3, 2, 0]


def test_one_hour_of_a_zone_without_a_fuel(tmp_path: Path) -> None:
    row = "CISO,5/{}/2024 1:00:00 AM,,100,{},\n"
    one, two = (BALANCE + "".join(row.format(n + 1, 100) for n in range(days)) for days in (1, 2))
    expected = (490 + 41) / 2
    for text in (one, two):
        assert read_signal(written(tmp_path, "b.csv", text)).values[0] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("a,b\n1,2\n", "unknown-format", None),
        ("timestamp,value,unit,kind\n", "empty-input", None),
        (typed(("2022-01-01T00:00Z", "high")), "invalid-value", "line 2"),
        (typed(("yesterday", 1)), "invalid-value", "line 2"),
        (typed(("2022-01-01T00:00Z", 1), kind="cheap"), "invalid-value", "kind"),
        ("timestamp,value,unit,kind\n2022-01-01T00:00Z,1\n", "damaged", "line 2"),
        (typed(("2022-01-01T00:00Z", 1), ("2022-01-01T00:00Z", 2)), "duplicate", "line 3"),
        ('{"data": []}', "unknown-format", None),
        (
            BALANCE + "PJM,07/01/2024 8:00:00 AM,,,,\nPJM,07/01/2024 9:00:00 AM,,,,\n",
            "empty-input",
            None,
        ),
        ("Area,MTU,Actual Total Load [MW]\nDE,31.03.2024 02:00,1\n", "unknown-format", None),
        (BALANCE.split(",Net")[0] + "\nPJM,07/01/2024 8:00:00 AM\n", "empty-input", None),
    ],
)
def test_bad_files(text: str, code: str, place: str | None, tmp_path: Path) -> None:
    error = refusal(written(tmp_path, "bad.csv", text))
    assert (error.code, error.place) == (code, place)


def test_gaps_longer_than_a_day_are_not_filled() -> None:
    values = np.ones(60)
    values[10:34] = np.nan
    assert Signal(values, 0, "average").interpolated().missing == 0
    values[10:35] = np.nan
    with pytest.raises(InputError) as caught:
        Signal(values, 0, "average").interpolated()
    assert (caught.value.code, caught.value.place) == ("no-data", "1970-01-01T10:00:00Z")


def test_what_is_recognized(tmp_path: Path) -> None:
    assert recognize(EXAMPLE.read_bytes()[:1000]) == "EIA-930"
    assert recognize(BALANCE.encode()) == "EIA-930"
    assert recognize(typed().encode()) == "signal table"
    assert recognize(b'{"data": [{"point_time": 1}], "meta": {"signal_type": "x"}}') == "WattTime"
    assert recognize(b"arrival_time,length,cpus\n") == ""


def test_another_zone_is_refused_in_every_format(tmp_path: Path) -> None:
    meta = {"signal_type": "co2_aoer", "units": "g/kWh", "region": "CAISO_NORTH"}
    data = [{"point_time": "2024-01-01T00:00:00Z", "value": 5.0}]
    codes = "timestamp,COL,NG\n2024-01-01T00:00:00Z,1,2\n"
    table = "timestamp,value,unit,kind,zone\n2024-01-01T00:00Z,5,g/kWh,average,DE\n"
    files = {
        "w.json": json.dumps({"data": data, "meta": meta}),
        "CISO_2024.csv": codes,
        "balance.csv": BALANCE + "CISO,01/01/2024 1:00:00 AM,100,1000,,\n",
        "table.csv": table,
    }
    for name, text in files.items():
        assert refusal(written(tmp_path, name, text), zone="PJM").code == "no-match"


def test_a_market_that_changes_from_hours_to_quarters_keeps_its_hours(tmp_path: Path) -> None:
    start = datetime(2024, 3, 1, tzinfo=UTC)
    hours, quarters = [10.0, 20, 30, 40], [1.0, 2, 3, 4, 5, 6, 7, 8] * 6
    times = [start + timedelta(hours=n) for n in range(4)]
    times += [start + timedelta(hours=4, minutes=15 * n) for n in range(len(quarters))]
    rows = [
        f"{t.isoformat()},{v},EUR/MWh,price\n" for t, v in zip(times, hours + quarters, strict=True)
    ]
    head = "timestamp,value,unit,kind\n"
    expected = hours + [2.5, 6.5] * 6
    found = read_signal(written(tmp_path, "both.csv", head + "".join(rows)))
    assert found.values.tolist() == expected
    later = read_signal(written(tmp_path, "last.csv", head + "".join(rows[::-1])))
    assert later.values.tolist() == expected
    # One quarter alone says nothing of its hour, wherever it stands.
    alone = read_signal(written(tmp_path, "hole.csv", head + "".join(rows[:9] + rows[12:])))
    np.testing.assert_array_equal(alone.values, [*expected[:5], np.nan, *expected[6:]])
