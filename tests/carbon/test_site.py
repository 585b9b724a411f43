"""What a site can follow: peak, ramps, events and prices against an independent program; scripts."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from holdfast import carbon
from holdfast.carbon.planning import Plan, plan
from holdfast.carbon.problems import Event
from holdfast.carbon.signals import FloatArray, Signal
from holdfast.carbon.workloads import Load, Workload, WorkloadSpec
from holdfast.errors import InputError

HOURS = 48
RNG = np.random.default_rng(11)
GRAMS = RNG.uniform(100, 500, HOURS)
PRICES = RNG.uniform(-20, 90, HOURS)
POWERS = np.array([40 + 8 * np.sin(np.arange(HOURS) / 4), RNG.uniform(15, 25, HOURS)])
LOAD = Load(tuple(Workload(f"batch {n}", power) for n, power in enumerate(POWERS)))
YEAR_2100 = 4_102_444_800


def signal_of(values: FloatArray, kind: Any = "marginal", start_s: int = 0) -> Signal:
    return Signal(values, start_s, kind)


def least(
    weights: FloatArray, flex: float, most: FloatArray, ramp: float | None, window: int = 24
) -> float:
    """The least sum of weights x power: every workload's energy conserved in each window (HiGHS)."""
    count = len(POWERS)
    equal = np.zeros((count * HOURS // window, count * HOURS))
    for row in range(len(equal)):
        equal[row, row * window : (row + 1) * window] = 1
    site = np.tile(np.eye(HOURS), count)
    rows, right = [site], [most]
    if ramp is not None:
        change = site[1:] - site[:-1]
        rows += [change, -change]
        right += [np.full(HOURS - 1, ramp)] * 2
    bounds = [((1 - flex) * power, None) for power in POWERS.ravel()]
    sums = POWERS.reshape(-1, window).sum(axis=1)
    found = linprog(
        np.tile(weights, count), np.vstack(rows), np.concatenate(right), equal, sums, bounds
    )
    assert found.success, found.message
    return float(found.fun)


EVENT = Event(17 * 3600, 21 * 3600, 9.0)


@pytest.mark.parametrize("ramp", [None, 12.0, 3.0])
@pytest.mark.parametrize("event", [None, EVENT])
@pytest.mark.parametrize("cap", [None, 80.0])
def test_equal_to_an_independent_linear_program(
    ramp: float | None, event: Event | None, cap: float | None
) -> None:
    made = plan(LOAD, signal_of(GRAMS), flex=0.5, cap=cap, ramp=ramp, event=event)
    total = POWERS.sum(axis=0)
    most = np.full(HOURS, total.max() if cap is None else cap)
    if event is not None:
        most[17:21] = np.minimum(most[17:21], total[17:21] - event.shed)
    assert made.kg_after == pytest.approx(least(GRAMS, 0.5, most, ramp), rel=1e-7)
    assert made.bound <= made.objective
    assert made.gap <= 1e-6
    power = made.after.sum(axis=0)
    assert (power <= most + 1e-5).all()
    assert ramp is None or np.abs(np.diff(power)).max() <= ramp + 1e-5
    assert made.peaks == (pytest.approx(total.max()), pytest.approx(power.max()))


@pytest.mark.parametrize(
    ("powers", "shed", "cap"),
    [
        (
            POWERS / 30,
            0.35,
            3,
        ),  # a small site: its power less 0.35 MW is below the next whole number
        (np.round(POWERS).astype(int), 6.5, None),
        (np.round(POWERS).astype(np.uint8), 6.5, 90),
    ],
)
def test_whole_numbers_plan_as_the_same_floats(powers: Any, shed: float, cap: int | None) -> None:
    plans = []
    for kind in (None, float):
        load = Load(tuple(Workload(f"{n}", np.asarray(mw, kind)) for n, mw in enumerate(powers)))
        grams = Signal(np.asarray(np.round(GRAMS), kind or np.uint16), 0, "marginal")
        limits = {"cap": cap if kind is None else cap and float(cap), "ramp": 30 if cap else None}
        event = Event(17 * 3600, 21 * 3600, shed)
        plans.append(plan(load, grams, flex=0.5, event=event, **limits))  # type: ignore[arg-type]
    np.testing.assert_allclose(plans[0].after, plans[1].after, atol=1e-9)
    assert plans[0].objective == pytest.approx(plans[1].objective, rel=1e-12)
    total, power = np.sum(powers, axis=0, dtype=float), plans[0].after.sum(axis=0)
    # In its dirtiest hours the site sheds what was asked for, and no more by whole numbers.
    assert (power[17:21] <= total[17:21] - shed + 1e-6).all()


@pytest.mark.parametrize("carbon_price", [30.0, 3000.0])
def test_prices_and_co2_together(carbon_price: float) -> None:
    price = signal_of(PRICES, "price")
    made = plan(LOAD, signal_of(GRAMS), flex=0.5, cap=90, price=price, carbon_price=carbon_price)
    weights = GRAMS + 1000 * PRICES / carbon_price
    worth = made.kg_after + 1000 * made.extra["cost_after"] / carbon_price
    assert worth == pytest.approx(least(weights, 0.5, np.full(HOURS, 90.0), None), rel=1e-7)
    assert made.objective == pytest.approx(worth, rel=1e-9)
    assert made.gap <= 1e-6
    clean = plan(LOAD, signal_of(GRAMS), flex=0.5, cap=90)
    assert clean.kg_after <= made.kg_after + 1e-6


def test_a_plan_for_money_that_emits_more_curtails_nothing_in_every_hour() -> None:
    """Energy is cheap where it is dirty: the plan saves money, and costs CO2."""
    price = signal_of(500 - GRAMS, "price")
    made = plan(LOAD, signal_of(GRAMS), flex=0.5, cap=90, price=price, carbon_price=3.0)
    assert made.saved_share < 0
    assert made.always_share == 0
    assert "every hour alike" not in made.headline


@pytest.mark.parametrize(
    ("options", "code", "place"),
    [
        ({"ramp": 0.0, "flex": 0.01}, "infeasible", None),
        ({"event": Event(17 * 3600, 21 * 3600, 50.0), "flex": 0.5}, "infeasible", "1970-01-01T"),
        ({"event": Event(17 * 3600 + 60, 21 * 3600, 5.0)}, "no-match", "--event"),
        ({"event": Event(17 * 3600, 90 * 3600, 5.0)}, "no-match", "--event"),
        ({"event": Event(21 * 3600, 17 * 3600, 5.0)}, "no-match", "--event"),
        ({"event": Event(30 * 3600, 33 * 3600, 5.0), "window_s": 30 * 3600}, "no-match", "--event"),
        ({"price": signal_of(GRAMS), "carbon_price": 80.0}, "conflict", "kind"),
        ({"price": signal_of(PRICES, "price")}, "missing-key", "--carbon-price"),
        (
            {"price": signal_of(PRICES, "price"), "carbon_price": 0.0},
            "missing-key",
            "--carbon-price",
        ),
        ({"price": signal_of(PRICES[:40], "price"), "carbon_price": 8.0}, "no-match", None),
        ({"signal": signal_of(PRICES, "price")}, "conflict", "kind"),
        ({"carbon_price": 80.0}, "missing-key", "--price"),
    ],
)
def test_refused(options: dict[str, Any], code: str, place: str | None) -> None:
    with pytest.raises(InputError) as caught:
        plan(LOAD, options.pop("signal", signal_of(GRAMS)), **options)
    assert caught.value.code == code
    assert (caught.value.place or "").startswith(place or "")


@pytest.mark.parametrize("minutes", [15, 30, 45])
def test_a_load_whose_hours_start_at_another_minute(minutes: int) -> None:
    start_s = 3600 + 60 * minutes
    load = replace(LOAD, start_s=start_s)
    price = signal_of(PRICES, "price")
    event = Event(start_s + 17 * 3600, start_s + 21 * 3600, 9.0)
    options: dict[str, Any] = {"price": price, "carbon_price": 80.0, "event": event, "cap": 90}
    made = plan(load, signal_of(GRAMS), **options)
    # By the minute, what the grid emits while the load draws what it draws.
    quarters = np.repeat(GRAMS, 4)[start_s // 900 :]
    power = np.repeat(POWERS.sum(axis=0)[:24], 4) / 4
    assert made.start_s == start_s
    assert made.kg_before == pytest.approx(power @ quarters[: len(power)])
    costs = np.repeat(PRICES, 4)[start_s // 900 :]
    assert made.extra["cost_before"] == pytest.approx(power @ costs[: len(power)])
    assert made.extra["mwh_shed"] >= 36 - 1e-4
    with pytest.raises(InputError) as caught:  # one hour of signal, of which the load has half
        plan(load, signal_of(GRAMS[:1], start_s=3600))
    assert caught.value.code == "no-match"


def test_hours_of_the_load_without_a_signal_are_told() -> None:
    load = replace(LOAD, start_s=0)
    made = plan(load, signal_of(GRAMS[:30]), cap=90)
    assert made.hours_left_out == HOURS - 24
    assert any(part.doubt for part in made.unknowns())
    idle = Load((Workload("idle", np.zeros(HOURS)),))
    assert plan(idle, signal_of(GRAMS)).gap <= 1e-6


@pytest.mark.parametrize("text", ["1970-01-01T17:00", "1970-01-01T17:00Z..soon", "a..b..c"])
def test_events_that_are_none(text: str) -> None:
    with pytest.raises(InputError) as caught:
        Event.read(text, 5.0)
    assert caught.value.code in ("invalid-value", "naive-time")


def test_an_event_of_the_command_line() -> None:
    assert Event.read("1970-01-01T17:00Z..1970-01-01T21:00Z", 9.0) == EVENT
    assert Event.read("1970-01-01T18:00..1970-01-01T22:00", 9.0, "Europe/Berlin") == EVENT
    for shed in (None, 0.0, np.nan):
        with pytest.raises(InputError) as caught:
            Event.read("1970-01-01T17:00Z..1970-01-01T21:00Z", shed)
        assert caught.value.place == "--shed"


def site(curve: Any, start_s: int = YEAR_2100) -> Plan:
    """A plan of work that moves, and of work that is curtailed only."""
    specs = (WorkloadSpec(), WorkloadSpec("online", flex=0.6, curve=curve))
    pairs = zip(("batch job", "batch-job"), POWERS, specs, strict=True)
    load = Load(tuple(Workload(*each) for each in pairs))
    return plan(load, signal_of(GRAMS, start_s=start_s), strength=100.0, cap=90)


CURVE = [(0.0, 0.0), (0.1, 0.0), (0.6, 1e4)]


def test_what_needs_no_signal_by_hand() -> None:
    made = site(CURVE)
    # A tenth of the second workload is free in every hour; more costs more than CO2 is worth.
    free = 0.1 * POWERS[1]
    assert made.before[1] - made.after[1] == pytest.approx(free, abs=1e-5)
    assert made.kg_always == pytest.approx(GRAMS @ free)
    assert made.saved_share > made.always_share
    dear = site([(0.0, 0.0), (0.6, 0.1)])  # cheap: all of it pays, whatever the hour
    assert dear.kg_always == pytest.approx(GRAMS @ (0.6 * POWERS[1]), rel=1e-6)


def reservations(script: Path, tmp_path: Path) -> tuple[list[dict[str, str]], str]:
    """What a script asks of scontrol, and what it says."""
    tools, asked = tmp_path / "tools", tmp_path / "asked"
    tools.mkdir(exist_ok=True)
    asked.write_text("")
    (tools / "scontrol").write_text(f'#!/bin/sh\necho "$@" >> {shlex.quote(str(asked))}\n')
    (tools / "scontrol").chmod(0o755)
    environment = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "TZ": "UTC"}
    ran = subprocess.run(
        ["sh", script], env=environment, check=True, capture_output=True, text=True
    )
    found = [line.split()[2:] for line in asked.read_text().splitlines()]
    return [dict(word.split("=", 1) for word in line) for line in found], ran.stderr


def test_reservations_do_what_was_planned(tmp_path: Path) -> None:
    made = site(CURVE)
    script = carbon.write_schedule(
        made, tmp_path / "r.sh", "slurm", watts_per_node=1e4, idle_watts_per_node=4e3
    )
    asked, _ = reservations(script, tmp_path)
    names = [each["ReservationName"] for each in asked]
    assert len(set(names)) == len(names)  # "batch job" and "batch-job"
    saved = 0.0
    for each in asked:
        span = np.datetime64(each["EndTime"]) - np.datetime64(each["StartTime"])
        saved += int(each["NodeCnt"]) * (span / np.timedelta64(1, "h")) * 6e3 / 1e6
    curtailed = np.maximum(made.before - made.after, 0)
    assert saved <= curtailed.sum() + 1e-6
    assert (
        saved >= curtailed.sum() - 6e-3 * (curtailed > 0).sum()
    )  # whole nodes, idle ones draw 4 kW
    assert f"{saved:.0f} of" in script.read_text().replace(",", "")


def test_no_more_nodes_are_reserved_than_are_busy(tmp_path: Path) -> None:
    made = site(CURVE)
    made = replace(made, after=0.1 * made.before)
    script = carbon.write_schedule(made, tmp_path / "r.sh", "slurm", watts_per_node=1e4)
    for each in reservations(script, tmp_path)[0]:
        assert int(each["NodeCnt"]) <= POWERS.max() * 1e6 / 1e4


def test_hours_that_have_passed_are_skipped(tmp_path: Path) -> None:
    script = carbon.write_schedule(site(CURVE, 0), tmp_path / "r.sh", "slurm")
    asked, said = reservations(script, tmp_path)
    assert asked == []
    assert said.count("has passed") > 1


def test_limits_cannot_order_more_power(tmp_path: Path) -> None:
    made = site(CURVE)
    script = carbon.write_schedule(
        made, tmp_path / "n.sh", "nvidia-smi", watts_per_gpu=400, least_watts_per_gpu=370
    )
    text = script.read_text()
    assert "'batch job')" not in text  # it draws more in other hours
    watts = {int(line.split()[3]) for line in text.splitlines() if line.startswith("  at ")}
    assert watts == {370, 400}  # 360 W is less than the GPU takes; the end restores 400
    done = (1 - 370 / 400) * made.before[1]
    planned = np.maximum(made.before - made.after, 0).sum()
    assert f"{done.sum():.1f} of {planned:.0f}" in text
    subprocess.run(["sh", "-n", script], check=True)
    only = plan(LOAD, signal_of(GRAMS), cap=90)
    with pytest.raises(InputError) as caught:
        carbon.write_schedule(only, tmp_path / "m.sh", "nvidia-smi")
    assert caught.value.code == "unsupported"
    assert not (tmp_path / "m.sh").exists()


@pytest.mark.parametrize(
    "powers",
    [
        {"watts_per_node": 0.0},
        {"watts_per_node": 5e3, "idle_watts_per_node": 5e3},
        {"idle_watts_per_node": -1.0},
        {"watts_per_gpu": 150.0},
        {"watts_per_gpu": np.nan},
    ],
)
def test_powers_that_save_nothing(powers: dict[str, float], tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        carbon.write_schedule(site(CURVE), tmp_path / "p", "slurm", **powers)
    assert caught.value.code == "out-of-range"


TESTBED = Path(__file__).resolve().parents[3] / "shared" / "testbed" / "slurm_testbed.sh"


@pytest.mark.full
def test_a_real_slurmctld_takes_the_reservations(tmp_path: Path) -> None:
    path = os.environ["PATH"].partition(os.pathsep)[2]  # without what keeps Slurm from other tests
    if not TESTBED.is_file() or os.geteuid() or shutil.which("slurmctld", path=path) is None:
        pytest.skip("needs Slurm, its testbed and root")
    folder = Path(
        tempfile.mkdtemp(prefix="holdfast-carbon-", dir="/var/tmp")
    )  # sockets: short paths
    settings = {
        "TB_DIR": str(folder / "tb"),
        "TB_PORT": "18300",
        "TB_PREFIX": "carb",
        "TB_NODES": "16",
    }
    environment = os.environ | settings | {"PATH": path, "TZ": "UTC"}
    environment["SLURM_CONF"] = str(folder / "tb" / "etc" / "slurm.conf")

    def run(*command: str) -> str:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, (command, done.stderr)
        return done.stdout

    try:
        run(str(TESTBED), "start")
        made = site(CURVE, 3600 * (int(time.time()) // 3600 - 5))  # five hours have passed
        made = replace(made, before=made.before / 1e3, after=made.after / 1e3)  # of 16 nodes
        script = carbon.write_schedule(made, tmp_path / "r.sh", "slurm", watts_per_node=5e3)
        run("sh", str(script))
        shown = run("scontrol", "-o", "show", "reservation")
        asked = [line.split() for line in script.read_text().splitlines() if "reserve " in line]
        coming = [words for words in asked if int(words[2]) > time.time() + 60]
        assert shown.count("ReservationName=carbon_") == len(coming) > 0
        assert len(coming) < len(asked)
    finally:
        subprocess.run([TESTBED, "clean"], env=environment, capture_output=True, check=False)
        shutil.rmtree(folder, ignore_errors=True)
