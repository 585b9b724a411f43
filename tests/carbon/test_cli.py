"""The commands: their JSON, their files, what they refuse, and that they start without the solver."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from command_line import answer
from holdfast import carbon
from holdfast.why import why

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "carbon"
SIGNAL, LOAD, PENALTIES = (
    EXAMPLES / name for name in ("CISO_2022-05.csv", "load.csv", "penalties.toml")
)
PLAN = ("carbon", "plan", "--load", LOAD, "--signal", SIGNAL)


def test_plan(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, *PLAN, "--flex", "0.1", "--cap", "125")
    assert {"saved_share", "gap", "kg_co2_before", "kg_co2_after", "schedule"} <= set(found)
    assert found["gap"] <= 1e-6
    assert found["signal"]["kind"] == "average"
    assert len(found["schedule"]) == 3 * 336
    after = sum(row["planned_mw"] * row["g_per_kwh"] for row in found["schedule"])
    assert after == pytest.approx(found["kg_co2_after"])
    assert found["saved_share"] == pytest.approx(1 - after / found["kg_co2_before"])


@pytest.mark.parametrize("policy", ["efficient", "fair"])
def test_without_penalties_all_policies_agree(
    policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    one = answer(capsys, *PLAN, "--policy", policy, "--window", "7d")
    other = answer(capsys, *PLAN, "--window", "7d")
    assert one["saved_share"] == pytest.approx(other["saved_share"], rel=1e-6)


def test_plan_on_a_forecast(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, *PLAN, "--penalties", PENALTIES, "--strength", "60", "--forecast")
    assert 0.8 < found["kept_share"] <= 1
    assert found["saved_share"] < found["saved_share_oracle"]


@pytest.mark.parametrize(
    ("words", "code", "place"),
    [
        (("--cap", "40"), "infeasible", None),
        (("--penalties", str(PENALTIES)), "missing-key", "--strength"),
        (("--window", "90m"), "out-of-range", "--window"),
        (("--forecast", "--policy", "fair"), "unsupported", "--forecast"),
        (("--forecast", "--window", "6h"), "unsupported", "--forecast"),
        (("--forecast", "--ramp", "0"), "unsupported", "--forecast"),
        (("--zone", "CISO", "--load", str(SIGNAL)), "invalid-value", "line 188"),
    ],
)
def test_plan_refuses(
    words: tuple[str, ...], code: str, place: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [word for word in PLAN if word not in ("--load", LOAD) or "--load" not in words]
    error = answer(capsys, *line, *words, code=2)
    assert error["code"] == code
    assert place is None or error["place"] == place


def test_loads_that_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = (
        ("time,a\n2022-05-10 00:00,1\n", "naive-time", "line 2"),
        ("time,a\n2022-05-10 00:00Z,1\n2022-05-10 02:00Z,1\n", "invalid-value", "line 3"),
        ("time,a\n2022-05-10 00:00Z,-1\n", "invalid-value", "line 2"),
        ("time,a\n2022-05-10 00:00Z,\n", "invalid-value", "line 2"),
        ("time\n2022-05-10 00:00Z\n", "missing-column", "line 1"),
        ("time,a\n2021-05-10 00:00Z,1\n", "no-match", None),
        ("time,a_kW\n2022-05-10 00:00Z,1\n", "invalid-value", "line 1"),
        ("time,site (kWh)\n2022-05-10 00:00Z,1\n", "invalid-value", "line 1"),
        # Megawatts, and a name with a W in it: in another year.
        ("time,a_MW,b_Web\n2021-05-10 00:00Z,1,1\n", "no-match", None),
    )
    for text, code, place in cases:
        (tmp_path / "load.csv").write_text(text)
        error = answer(
            capsys, "carbon", "plan", "--load", tmp_path / "load.csv", "--signal", SIGNAL, code=2
        )
        assert (error["code"], error["place"]) == (code, place)


def test_schedules(tmp_path: Path) -> None:
    signal = carbon.read_signal(SIGNAL)
    made = carbon.plan(carbon.read_load(LOAD), signal, flex=0.5, cap=125)
    with carbon.write_schedule(made, tmp_path / "plan.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["planned_mw"]) for row in rows] == pytest.approx(
        made.after.T.ravel().tolist()
    )
    json_rows = json.loads(carbon.write_schedule(made, tmp_path / "p", "json").read_text())
    assert json_rows == made.schedule.to_pylist()
    # What was planned, read as a load of its own: it draws the same, emits the same, peaks the same.
    frame = pd.read_csv(tmp_path / "plan.csv")
    wide = frame.pivot(index="time", columns="workload", values="planned_mw")
    assert wide.index.is_monotonic_increasing
    wide[list(made.names)].to_csv(tmp_path / "load.csv")
    again = carbon.plan(carbon.read_load(tmp_path / "load.csv"), signal, flex=0.0)
    assert again.kg_before == pytest.approx(made.kg_after)
    assert again.saved_share == pytest.approx(0, abs=1e-9)
    assert again.peaks[0] == pytest.approx(made.peaks[1])
    grams = frame.groupby("time")["g_per_kwh"].first()
    assert made.kg_after == pytest.approx(wide.sum(axis=1) @ grams)


def test_names_of_workloads_cannot_run_commands(tmp_path: Path) -> None:
    load = tmp_path / "load.csv"
    load.write_text(
        "time,a'; touch owned; '$(touch owned)\n"
        + "".join(f"2022-05-10T{n:02d}:00Z,5\n" for n in range(24))
    )
    made = carbon.plan(carbon.read_load(load), carbon.read_signal(SIGNAL), cap=6)
    made = replace(
        made, after=np.minimum(made.after, made.before)
    )  # curtailed only: limits can do that
    for form in ("slurm", "nvidia-smi"):
        script = carbon.write_schedule(made, tmp_path / "s.sh", form, watts_per_node=1e5)
        text = script.read_text().replace("scontrol", "true").replace("nvidia-smi -pl", "true")
        subprocess.run(
            ["sh", "-c", text, "s", "nobody"], cwd=tmp_path, check=False, capture_output=True
        )
    assert not (tmp_path / "owned").exists()


def test_why() -> None:
    (row,) = why(SIGNAL).to_dict()["found"]
    assert (row["what"], row["room"]) == ("a grid signal", "carbon")
    assert row["headline"]


def test_help_loads_no_solver() -> None:
    program = (
        "import sys\nfrom holdfast.cli import main\n"
        "try:\n main(['carbon', 'plan', '--help'])\nexcept SystemExit:\n pass\n"
        "print(sorted({'clarabel', 'sklearn', 'scipy', 'duckdb', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_missing_solver_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "clarabel", None)
    error = answer(capsys, *PLAN, code=2)
    assert (error["code"], error["extra"]) == ("missing-extra", "carbon")
