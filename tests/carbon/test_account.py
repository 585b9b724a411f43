"""CO2 of past jobs: by hand on a small log, and against a loop over the real one."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from command_line import answer
from holdfast import fleet
from holdfast.carbon.accounting import Account, account
from holdfast.carbon.energies import matched
from holdfast.carbon.signals import Signal
from holdfast.errors import InputError

HEADER = (
    "JobID|JobName|User|Partition|QOS|State|ExitCode|Submit|Start|End|"
    "NNodes|NodeList|AllocTRES|Elapsed"
)


def epoch(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def job(number: int, user: str, state: str, start: str, end: str, nodes: str, gpus: int) -> str:
    seconds = epoch(end) - epoch(start)
    elapsed = f"{seconds // 86400}-{seconds // 3600 % 24:02d}:{seconds // 60 % 60:02d}:00"
    count = 2 if "[" in nodes else 1
    tres = f"billing=1,gres/gpu={gpus},node={count}" if gpus else f"billing=1,node={count}"
    return (
        f"{number}|j|{user}|p|q|{state}|0:0|{start}|{start}|{end}|{count}|{nodes}|{tres}|{elapsed}"
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("carbon")
    rows = [
        job(1, "ana", "COMPLETED", "2026-01-31T22:30:00", "2026-02-01T01:30:00", "n[1-2]", 16),
        job(2, "bo", "NODE_FAIL", "2026-02-01T00:00:00", "2026-02-01T02:00:00", "n3", 8),
        job(3, "bo", "COMPLETED", "2026-02-01T00:00:00", "2026-02-01T03:00:00", "n4", 0),
    ]
    (folder / "sacct.psv").write_text("\n".join([HEADER, *rows]) + "\n")
    fleet.ingest([folder / "sacct.psv"], folder / "store")
    return folder / "store"


def signal_of(values: Any, start: str = "2026-01-31T22:00:00", **typed: str) -> Signal:
    return Signal(np.asarray(values, float), epoch(start), **({"kind": "average"} | typed))  # type: ignore[arg-type]


def rows_of(made: Account, key: str) -> dict[str, dict[str, Any]]:
    return {row[key]: row for row in made.tables[key].to_pylist()}


def test_by_hand(store: Path) -> None:
    made = account(store, signal_of([100, 200, 300, 400, 500]), pue=1.5, watts_per_gpu=1000)
    # Job 1: 16 kW x 1.5 for half of 22:00, 23:00, 0:00 and half of 1:00. Job 2: 8 kW, 0:00 to 2:00.
    ana = 24 * (50 + 200 + 300 + 200) / 1000
    bo = 12 * (300 + 400) / 1000
    assert made.totals["kg_co2"] == pytest.approx(ana + bo)
    assert made.totals["energy_kwh"] == pytest.approx(24 * 3 + 12 * 2)
    assert made.totals["energy_kwh_without_intensity"] == 0
    # A failure loses the last half checkpoint interval: from 1:30 to 2:00.
    assert made.gpu_hours_lost == pytest.approx(4.0)
    assert made.totals["kg_co2_failed"] == pytest.approx(12 * 0.5 * 400 / 1000)
    months = rows_of(made, "month")
    assert months["2026-01"]["kg_co2"] == pytest.approx(24 * 250 / 1000)
    assert months["2026-02"]["kg_co2"] == pytest.approx(24 * 500 / 1000 + bo)
    nodes = rows_of(made, "node")
    assert nodes["n1"]["kg_co2"] == pytest.approx(ana / 2)
    assert rows_of(made, "user")["bo"]["kg_co2_failed"] == made.totals["kg_co2_failed"]
    assert rows_of(made, "job")["2"]["energy_kwh"] == pytest.approx(24)
    assert (made.attempts, made.attempts_without_gpus) == (3, 1)


def test_co2_by_end_state_and_an_interval_of_checkpoints(store: Path) -> None:
    signal = signal_of([100, 200, 300, 400, 500])
    made = account(store, signal, pue=1.5, watts_per_gpu=1000, checkpoint_s=7200.0)
    states = rows_of(made, "state")
    assert states["NODE_FAIL"]["kg_co2"] == pytest.approx(12 * (300 + 400) / 1000)
    assert sum(row["kg_co2"] for row in states.values()) == pytest.approx(made.totals["kg_co2"])
    # Half of two hours are lost, not half of one.
    assert made.totals["kg_co2_failed"] == pytest.approx(12 * 400 / 1000)
    assert made.checkpoint_s == 7200.0


def test_a_constant_intensity(store: Path) -> None:
    made, flat = account(store, 385.0), account(store, signal_of(np.full(9, 385.0)))
    assert made.totals == pytest.approx(flat.totals)
    assert made.totals["kg_co2"] == pytest.approx(made.totals["energy_kwh"] * 0.385)
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(InputError) as caught:
            account(store, wrong)
        assert caught.value.place == "--intensity"


@pytest.mark.parametrize(
    "text",
    [
        "JobIDRaw|ConsumedEnergyRaw\n1|0\n1.batch|3600000\n1.extern|18000000\n2|18446744073709551614\n"
        "3|7200000\n",
        "job,energy_kwh\n1,5\n3,2\n2,0\n9,77\n",
        "experiment_id,energy_consumed,duration\n3,2,60\n1,5,60\n",
    ],
)
def test_measured_energy_goes_before_watts(text: str, store: Path, tmp_path: Path) -> None:
    (tmp_path / "energy").write_text(text)
    made = account(store, 100.0, pue=1.5, watts_per_gpu=1000, energy=tmp_path / "energy")
    jobs = {name: row["energy_kwh"] for name, row in rows_of(made, "job").items()}
    # 1 and 3 (no GPUs) are measured, 2 is not: 8 GPUs x 1 kW x 2 h.
    assert jobs == pytest.approx({"1": 7.5, "2": 24.0, "3": 3.0})
    assert made.attempts_without_gpus == 0
    assert made.measured_share == pytest.approx(10.5 / 34.5)
    assert made.jobs_unmatched == ("9,77" in text)
    assert any(part.doubt for part in made.unknowns()) == ("9,77" in text)


def test_no_value_of_slurm_is_no_energy(store: Path, tmp_path: Path) -> None:
    rows = "JobIDRaw|ConsumedEnergyRaw\n1|4294967294\n2|18446744073709551614\n3|nan\n"
    (tmp_path / "energy").write_text(rows)
    made = account(store, 100.0, energy=tmp_path / "energy")
    assert made.measured_share == 0
    assert any(part.doubt for part in made.unknowns())


def test_tasks_of_an_array_are_not_the_array(tmp_path: Path) -> None:
    lines = [HEADER.replace("JobID", "JobID|JobIDRaw")]
    for task, raw in ((1, 102), (2, 103), (3, 101)):
        line = job(task, "ana", "COMPLETED", "2026-02-01T00:00:00", "2026-02-01T01:00:00", "n1", 1)
        lines.append(line.replace(f"{task}|", f"101_{task}|{raw}|", 1))
    (tmp_path / "sacct.psv").write_text("\n".join(lines) + "\n")
    fleet.ingest([tmp_path / "sacct.psv"], tmp_path / "store")
    files = {
        "job,energy_kwh\n101,6\n": (0.0, 1),  # of all tasks, or of which?
        "job,energy_kwh\n101_3,6\n": (6 / 6.8, 0),
        "JobIDRaw|ConsumedEnergyRaw\n101|21600000\n": (6 / 6.8, 0),
        "JobID|ConsumedEnergyRaw\n101_3|21600000\n": (6 / 6.8, 0),
    }
    for text, expected in files.items():
        (tmp_path / "energy").write_text(text)
        made = account(tmp_path / "store", 100.0, energy=tmp_path / "energy")
        assert (made.measured_share, made.jobs_unmatched) == (
            pytest.approx(expected[0]),
            expected[1],
        )


def test_attempts_of_a_job_take_their_energies_in_order() -> None:
    start = np.array([300.0, 100.0, 200.0, 50.0])
    stop, jobs = start + 10.0, ["7", "7", "8", "8"]
    found = matched({"7": [1.0, 2.0], "8": [5.0]}, jobs, start, stop)
    assert found == pytest.approx([2.0, 1.0, 5.0, np.nan], nan_ok=True)


def test_the_energy_of_a_whole_job_is_that_of_all_its_attempts(tmp_path: Path) -> None:
    ends = (("NODE_FAIL", 0, 3), ("COMPLETED", 4, 5))
    rows = [
        job(1, "ana", state, f"2026-02-01T0{a}:00:00", f"2026-02-01T0{b}:00:00", "n1", 1)
        for state, a, b in ends
    ]
    (tmp_path / "sacct.psv").write_text("\n".join([HEADER, *rows]) + "\n")
    fleet.ingest([tmp_path / "sacct.psv"], tmp_path / "store")
    whole, last = "job,energy_kwh\n1,8\n", "JobID|ConsumedEnergyRaw\n1|28800000\n"
    for text, by_state, share in (
        (whole, {"NODE_FAIL": 6.0, "COMPLETED": 2.0}, 1.0),
        (last, {"NODE_FAIL": 3.0, "COMPLETED": 8.0}, 8 / 11),
        ("job,energy_kwh\n1,5\n1,3\n", {"NODE_FAIL": 5.0, "COMPLETED": 3.0}, 1.0),
    ):
        (tmp_path / "energy").write_text(text)
        options = {"pue": 1.0, "watts_per_gpu": 1000.0, "energy": tmp_path / "energy"}
        made = account(tmp_path / "store", 100.0, **options)
        found = {name: row["energy_kwh"] for name, row in rows_of(made, "state").items()}
        assert found == pytest.approx(by_state)
        assert made.measured_share == pytest.approx(share)


RUNS = "run_id,project_name,energy_consumed\n"


@pytest.mark.parametrize(
    ("text", "kwh"),
    [
        ("job,energy_kwh\n1,2\n1,3\n1,4\n", 9.0),  # a row per node
        (RUNS + "a,1,1.5\nb,1,2.5\nc,1,1\n", 5.0),  # a run per rank
        (RUNS + "a,1,1\na,1,4\na,1,4\n", 4.0),  # one run, written again and again
        (RUNS + "a,1,1\nb,1,2\na,1,3\nb,1,2.5\n", 5.5),
        ("job,run_id,energy_kwh\n1,a,2\n1,b,3\n1,b,6\n", 8.0),
        ("JobIDRaw|ConsumedEnergyRaw\n1|3600000\n1|7200000\n", 2.0),  # an attempt before the store
    ],
)
def test_rows_of_one_job_add_up(text: str, kwh: float, store: Path, tmp_path: Path) -> None:
    (tmp_path / "energy").write_text(text)
    made = account(store, 100.0, pue=1.0, energy=tmp_path / "energy")
    assert rows_of(made, "job")["1"]["energy_kwh"] == pytest.approx(kwh)
    assert made.jobs_unmatched == 0


@pytest.mark.parametrize("ids", ["job,energy_kwh\n1,{}\n", RUNS + "{1},1,{0}\n"])
def test_parts_of_a_job_are_shared_by_its_attempts(ids: str, tmp_path: Path) -> None:
    ends = (("NODE_FAIL", 0, 3), ("COMPLETED", 4, 5))
    rows = [
        job(1, "ana", state, f"2026-02-01T0{a}:00:00", f"2026-02-01T0{b}:00:00", "n1", 1)
        for state, a, b in ends
    ]
    (tmp_path / "sacct.psv").write_text("\n".join([HEADER, *rows]) + "\n")
    fleet.ingest([tmp_path / "sacct.psv"], tmp_path / "store")
    head, row = ids.splitlines()
    lines = [head, *(row.format(kwh, f"run{kwh}") for kwh in (2, 4, 6))]
    (tmp_path / "energy").write_text("\n".join(lines) + "\n")
    made = account(tmp_path / "store", 100.0, pue=1.0, energy=tmp_path / "energy")
    found = {name: row["energy_kwh"] for name, row in rows_of(made, "state").items()}
    assert found == pytest.approx({"NODE_FAIL": 9.0, "COMPLETED": 3.0})
    assert made.measured_share == 1


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("job,joules\n1,2\n", "missing-column"),
        ("job,energy_kwh\n1,-2\n", "invalid-value"),
        ("job,energy_kwh\n1,much\n", "invalid-value"),
        ("job,energy_kwh\n", "empty-input"),
    ],
)
def test_energies_that_are_none(text: str, code: str, store: Path, tmp_path: Path) -> None:
    (tmp_path / "energy.csv").write_text(text)
    with pytest.raises(InputError) as caught:
        account(store, 100.0, energy=tmp_path / "energy.csv")
    assert caught.value.code == code


def test_hours_without_an_intensity_are_never_zero(store: Path) -> None:
    signal = signal_of([100, 200, np.nan, 400])
    made = account(store, signal, pue=1.0, watts_per_gpu=1000)
    assert made.totals["energy_kwh_without_intensity"] == pytest.approx(16 + 8)
    assert made.totals["kg_co2"] == pytest.approx((16 * (50 + 200 + 200) + 8 * 400) / 1000)
    assert any("38 %" in part.text for part in made.unknowns())
    other_year = account(store, signal_of([100], "2022-01-01T00:00:00"))
    assert other_year.totals["kg_co2"] is None
    assert other_year.totals["kg_co2_failed"] is None
    assert len(other_year.findings()) == 1  # the job without GPUs is not that with the most CO2
    assert all(
        row["kg_co2"] is None for row in other_year.tables["user"].to_pylist() if row["energy_kwh"]
    )


@pytest.mark.parametrize(
    ("typed", "options", "code", "place"),
    [
        ({"kind": "marginal"}, {}, "conflict", "kind"),
        ({}, {"pue": 0.9}, "out-of-range", "--pue"),
        ({}, {"watts_per_gpu": float("nan")}, "out-of-range", "--watts-per-gpu"),
    ],
)
def test_refused(
    typed: dict[str, str], options: dict[str, float], code: str, place: str, store: Path
) -> None:
    with pytest.raises(InputError) as caught:
        account(store, signal_of([1.0], **typed), **options)  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.place) == (code, place)


def test_a_real_log_against_a_loop(testbed: Path, tmp_path: Path) -> None:
    fleet.ingest([testbed], tmp_path / "store")
    log = fleet.open(tmp_path / "store")
    lost = dict(zip(*fleet.goodput(log).by_attempt.to_pydict().values(), strict=True))
    random = np.random.default_rng(7)
    signal = signal_of(random.uniform(50, 600, 48), "2026-11-20T00:00:00")
    total = failed = 0.0
    for row in log.rows(f"SELECT * FROM {log.executions} WHERE stop_s IS NOT NULL"):
        lost_s = 3600 * lost.get(row["key"], 0.0) / max(row["gpus"] or 0, 1)
        for second in range(int(row["stop_s"] - row["exposed_s"]), int(row["stop_s"])):
            grams = signal.values[(second - signal.start_s) // 3600]
            kilograms = (row["gpus"] or 0) * 0.4 * 1.1 / 3600 * grams / 1000
            total += kilograms
            failed += kilograms * min(max(second + 1 - (row["stop_s"] - lost_s), 0), 1)
    made = account(log, signal)
    assert made.totals["kg_co2"] == pytest.approx(total, rel=1e-9)
    assert made.totals["kg_co2_failed"] == pytest.approx(failed, rel=1e-9)
    assert made.gpu_hours_lost == pytest.approx(sum(lost.values()))
    for key in ("user", "month", "job", "node"):
        assert sum(row["kg_co2"] for row in made.tables[key].to_pylist()) == pytest.approx(total)


def test_an_empty_store(tmp_path: Path) -> None:
    waiting = job(1, "a", "PENDING", "2026-01-01T00:00:00", "2026-01-01T00:00:00", "n1", 8)
    waiting = waiting.replace(
        "|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T00:00:00|",
        "|2026-01-01T00:00:00|Unknown|Unknown|",
    )
    (tmp_path / "sacct.psv").write_text(f"{HEADER}\n{waiting}\n")
    fleet.ingest([tmp_path / "sacct.psv"], tmp_path / "store")
    made = account(tmp_path / "store", signal_of([1.0]))
    assert (made.totals["energy_kwh"], made.attempts) == (0, 0)


# --- Random logs, minute by minute, by pandas -----------------------------------------------------


@pytest.fixture(scope="module")
def random_log(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame]:
    """60 jobs over the end of a year, and what they drew in each of their minutes."""
    rng, folder = np.random.default_rng(8), tmp_path_factory.mktemp("random")
    rows, minutes = [], []
    for number in range(60):
        start = pd.Timestamp("2025-12-31T12:00") + pd.Timedelta(minutes=int(rng.integers(0, 1500)))
        end = start + pd.Timedelta(minutes=int(rng.integers(1, 400)))
        user, gpus = str(rng.choice(["ana", "bo", "chen"])), int(rng.choice([0, 1, 4, 8]))
        state = str(rng.choice(["COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"]))
        nodes = str(rng.choice(["n1", "n2", "n[1-2]"]))
        times = [f"{t:%Y-%m-%dT%H:%M:%S}" for t in (start, end)]
        rows.append(job(number, user, state, *times, nodes, gpus))
        index = pd.date_range(start, end, freq="1min", inclusive="left")
        facts = {"job": str(number), "user": user, "state": state, "nodes": nodes, "gpus": gpus}
        minutes.append(pd.DataFrame({"time": index, **facts}))
    (folder / "sacct.psv").write_text("\n".join([HEADER, *rows]) + "\n")
    fleet.ingest([folder / "sacct.psv"], folder / "store")
    return folder / "store", pd.concat(minutes, ignore_index=True)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_accounts_are_groups_of_minutes(
    random_log: tuple[Path, pd.DataFrame], missing: float
) -> None:
    store, minutes = random_log
    rng = np.random.default_rng(9)
    grams = np.where(rng.random(40) < missing, np.nan, rng.uniform(50, 600, 40))
    made = account(store, signal_of(grams, "2025-12-31T12:00:00"), pue=1.25, watts_per_gpu=640.0)
    frame = minutes.copy()
    frame["energy_kwh"] = frame["gpus"] * 0.64 * 1.25 / 60
    hour = (frame["time"] - pd.Timestamp("2025-12-31T12:00")) // pd.Timedelta("1h")
    frame["grams"] = grams[hour]
    frame["kg_co2"] = frame["energy_kwh"] * frame["grams"] / 1000
    frame["energy_kwh_without_intensity"] = frame["energy_kwh"].where(frame["grams"].isna(), 0.0)
    frame["month"] = frame["time"].dt.strftime("%Y-%m")
    columns = ["energy_kwh", "kg_co2", "energy_kwh_without_intensity"]
    for name in columns:
        assert made.totals[name] == pytest.approx(frame[name].sum())
    frame["node"] = frame["nodes"].map({"n1": ["n1"], "n2": ["n2"], "n[1-2]": ["n1", "n2"]})
    whole = frame[columns].div(frame["node"].map(len), axis=0)
    by_node = frame[["node"]].join(whole).explode("node")
    for key in ("user", "state", "month", "job", "node"):
        expected = (by_node if key == "node" else frame).groupby(key)[columns].sum()
        found = rows_of(made, key)
        assert set(found) == set(expected.index)
        for name, row in expected.iterrows():
            known = row["energy_kwh"] - row["energy_kwh_without_intensity"]
            assert found[name]["energy_kwh"] == pytest.approx(row["energy_kwh"])  # type: ignore[index]
            if row["energy_kwh"] and known < 1e-9:  # no hour is known: no figure, rather than 0
                assert found[name]["kg_co2"] is None  # type: ignore[index]
            else:
                assert found[name]["kg_co2"] == pytest.approx(row["kg_co2"])  # type: ignore[index]
    assert made.gpu_hours == pytest.approx(frame["gpus"].sum() / 60)
    idle = frame.loc[frame["gpus"] == 0, "job"].nunique()
    assert (made.attempts, made.attempts_without_gpus) == (60, idle)


def test_the_command_accounts_as_the_function_does(
    random_log: tuple[Path, pd.DataFrame], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, _ = random_log
    words = ("carbon", "account", store, "--pue", "1.3", "--watts-per-gpu", "500")
    printed = answer(capsys, *words, "--intensity", "385")
    made = account(store, 385.0, pue=1.3, watts_per_gpu=500.0)
    expected = json.loads(json.dumps(made.to_dict(), default=str))
    assert {key: printed[key] for key in expected} == expected
    (tmp_path / "signal.csv").write_text("timestamp,value,unit,kind\n2026-01-01,1,g/kWh,average\n")
    for intensity, code in ((tmp_path / "signal.csv", "naive-time"), ("-1", "out-of-range")):
        assert answer(capsys, *words, "--intensity", intensity, code=2)["code"] == code
