"""Simulating into a store: what it says of itself, and that log and truth tell one story."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import holdfast.fleet as fleet
from holdfast import cli
from holdfast.errors import InputError, StoreError
from holdfast.fleet import FleetLog, Store
from holdfast.fleet.preemption import preemptions
from holdfast.fleet.simulation import engine, log_writing
from holdfast.fleet.simulation.scenario import parse, scenario
from holdfast.fleet.simulation.simulated_log import Simulated, simulate

DAYS = 30.0
SEED = 7


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    return simulate("small", tmp_path_factory.mktemp("small") / "store", days=DAYS, seed=SEED)


@pytest.fixture(scope="module")
def log(made: Simulated) -> FleetLog:
    return fleet.open(made.store)


@pytest.fixture(scope="module")
def truth(made: Simulated) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(made.store) / "truth.json").read_text())
    return found


@pytest.fixture(scope="module")
def attempts(log: FleetLog) -> dict[tuple[str, int], dict[str, Any]]:
    rows = log.rows(log.table("attempts"))
    return {(row["job_id"], row["attempt"]): row for row in rows}


@pytest.fixture(scope="module")
def true_attempts(made: Simulated) -> dict[tuple[str, int], dict[str, Any]]:
    rows = pq.read_table(Path(made.store) / "truth" / "attempts.parquet").to_pylist()
    return {(row["job_id"], row["attempt"]): row for row in rows}


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_it_says_what_it_did(made: Simulated, log: FleetLog) -> None:
    rows = log.rows(log.table("attempts"))
    assert made.jobs == len({row["job_id"] for row in rows})
    assert made.attempts == sum(row["start_s"] is not None for row in rows)
    assert 0.3 < made.utilisation < 1
    assert made.events > made.attempts
    told = made.to_dict()
    assert set(told) == {
        *("jobs", "attempts", "events", "seconds", "events_per_second", "utilisation", "store"),
    }
    assert told["events_per_second"] == made.events / made.seconds


def test_every_mechanism_of_small_happens(
    attempts: dict[tuple[str, int], dict[str, Any]], truth: dict[str, Any]
) -> None:
    states = {row["state"] for row in attempts.values()}
    assert {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL"} <= states
    assert {each["severity"] for each in truth["failures"]} == {"HIGH", "LOW", ""}


def test_the_truth_and_the_log_name_the_same_failures(
    attempts: dict[tuple[str, int], dict[str, Any]],
    true_attempts: dict[tuple[str, int], dict[str, Any]],
    truth: dict[str, Any],
) -> None:
    assert attempts.keys() == true_attempts.keys()
    ended = {
        (each["job_id"], each["attempt"]): place
        for place, failure in enumerate(truth["failures"])
        for each in failure["ended_attempts"]
    }
    said = {key: r["failure"] for key, r in true_attempts.items() if r["failure"] is not None}
    assert ended == said
    assert len(ended) == truth["totals"]["attempts_ended_by_failures"]
    for key, place in ended.items():
        row, failure = attempts[key], truth["failures"][place]
        assert failure["node"] in row["nodes"]
        assert row["start_s"] <= seconds(failure["time"])
        crashed = row["state"] == "FAILED"
        assert crashed or row["state"] == "NODE_FAIL"
        end = failure["time"] if crashed else failure["detected"]
        assert row["end_s"] == int(seconds(end))
        assert failure["severity"] in (("HIGH",) if crashed else ("HIGH", ""))
    lost = {key for key, row in attempts.items() if row["state"] == "NODE_FAIL"}
    assert lost <= ended.keys()


def test_failures_come_back_as_checks_and_outages(log: FleetLog, truth: dict[str, Any]) -> None:
    seen = [each for each in truth["failures"] if seconds(each["detected"]) <= log.end_s]
    checks = {
        (row["node"], row["check"], row["severity"], round(row["time_s"], 3))
        for row in log.rows(log.table("health"))
        if row["check"] != "ticket"
    }
    assert checks >= {
        (each["node"], each["check"], each["severity"], round(seconds(each["detected"]), 3))
        for each in seen
        if each["severity"]
    }
    outages = {(row["node"], row["start_s"]) for row in log.rows(log.table("node_outages"))}
    assert outages >= {
        (each["node"], int(seconds(each["detected"])))
        for each in seen
        if each["severity"] != "HIGH"
    }


def test_time_is_kept_lost_or_overhead(
    attempts: dict[tuple[str, int], dict[str, Any]],
    true_attempts: dict[tuple[str, int], dict[str, Any]],
) -> None:
    for key, true in true_attempts.items():
        parts = sum(true[name] for name in ("productive_s", "lost_s", "init_s", "write_s"))
        ran = attempts[key]["runtime_s"] or 0
        assert parts == pytest.approx(ran, abs=1.0), key


def test_totals_add_up(
    attempts: dict[tuple[str, int], dict[str, Any]],
    true_attempts: dict[tuple[str, int], dict[str, Any]],
    truth: dict[str, Any],
    made: Simulated,
) -> None:
    for name in ("productive", "lost", "init", "write"):
        hours = sum(
            true[f"{name}_s"] * attempts[key]["gpus"] / 3600 for key, true in true_attempts.items()
        )
        assert truth["totals"][f"{name}_gpu_hours"] == pytest.approx(hours)
    assert truth["totals"]["utilisation"] == made.utilisation
    node_days = sum(
        (row["runtime_s"] or 0) * row["node_count"] / 86_400 for row in attempts.values()
    )
    expected = sum(true["expected_failures"] for true in true_attempts.values())
    assert truth["rate_of_all_per_node_day"] == pytest.approx(expected / node_days, rel=1e-3)
    assert truth["nominal_rate_per_node_day"] == 0.05
    assert parse(truth["scenario"]) == scenario("small")


def test_analyses_count_what_was_injected(log: FleetLog, truth: dict[str, Any]) -> None:
    found, totals = fleet.goodput(log), truth["totals"]
    # A user's own failure minutes before a check on its node looks like the infrastructure's.
    assert 0 <= found.failures - totals["attempts_ended_by_failures"] <= 2
    assert found.preemptions == totals["preemptions"]
    # The log does not name the preemptor: it is inferred.
    second = totals["preemptions_second_order"]
    assert abs(found.preemptions_second_order - second) <= 1 + 0.1 * second


def test_preemptors_are_found(
    log: FleetLog, true_attempts: dict[tuple[str, int], dict[str, Any]]
) -> None:
    found = {
        (row["job_id"], row["attempt"]): row["preemptor"] for row in log.rows(preemptions(log))
    }
    true = {key: row["preemptor"] for key, row in true_attempts.items() if row["preemptor"]}
    right = sum(true.get(key) == preemptor for key, preemptor in found.items())
    assert right >= 0.9 * len(found)


def test_lemons_are_named(made: Simulated, truth: dict[str, Any]) -> None:
    (lemon,) = truth["lemons"]
    log = fleet.open(made.store)
    assert lemon in {row["node"] for row in log.rows(log.table("nodes"))}
    blamed = [each["node"] for each in truth["failures"]]
    assert max(set(blamed), key=blamed.count) == lemon


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        simulate("small", tmp_path / name, days=2, seed=3)
    simulate("small", tmp_path / "c", days=2, seed=4)
    a, b, c = (
        {
            f.relative_to(tmp_path / n): f.read_bytes()
            for f in (tmp_path / n).rglob("*")
            if f.is_file()
        }
        for n in ("a", "b", "c")
    )
    assert a == b
    assert a != c


def test_progress_ends_at_the_simulated_days(tmp_path: Path) -> None:
    seen: list[float] = []
    simulate("small", tmp_path / "store", days=2.5, seed=1, on_progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 2.5


def test_an_interrupted_simulation_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(done: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate("small", tmp_path / "store", days=2, on_progress=interrupt)
    assert not list(tmp_path.iterdir())


def test_a_place_in_use_is_refused_before_anything_is_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "run", lambda *_, **__: pytest.fail("it ran"))
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(StoreError, match="other things"):
        simulate("small", tmp_path, days=2)


@pytest.mark.parametrize(("days", "seed"), [(0.0, 1), (-1.0, 1), (float("nan"), 1), (1.0, -1)])
def test_impossible_times_and_seeds_are_refused(days: float, seed: int, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        simulate("small", tmp_path / "store", days=days, seed=seed)
    assert not list(tmp_path.iterdir())


# --- The command ---------------------------------------------------------------------------------

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str | Path) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main(["fleet", "simulate", *map(str, arguments)])
        captured = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, captured.out, captured.err

    return call


def test_the_command_writes_a_store(run: Run, tmp_path: Path) -> None:
    store = tmp_path / "store"
    code, out, err = run("--preset", "small", "--days", "12h", "-o", store, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["store"] == str(store)
    assert Store.open(store).facts["sources"][0]["path"] == "small, 0.5 days, seed 1"
    code, out, err = run("--preset", "small", "--days", "0.5", "-o", store, "--seed", "2")
    assert (code, err) == (0, f"store: {store}\n")
    assert "of the GPU time" in out


def test_an_interrupt_at_the_keyboard_leaves_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(log_writing, "write_truth", interrupt)
    code, out, err = run("--preset", "small", "--days", "1", "-o", tmp_path / "store")
    assert (code, out) == (130, "")
    assert "interrupted" in err
    assert not list(tmp_path.iterdir())


def test_a_printed_scenario_is_simulated_as_the_preset(run: Run, tmp_path: Path) -> None:
    code, out, err = run("--preset", "small", "--print-scenario")
    assert (code, err) == (0, "")
    assert parse(out) == scenario("small")
    (tmp_path / "mine.toml").write_text(out)
    assert (
        run("--scenario", tmp_path / "mine.toml", "--days", 1, "-o", tmp_path / "a", "-q")[0] == 0
    )
    assert run("--preset", "small", "--days", 1, "-o", tmp_path / "b", "-q")[0] == 0
    a, b = ((tmp_path / n / "attempts" / "0001-000.parquet").read_bytes() for n in "ab")
    assert a == b


def test_changes_are_made_before_it_is_printed(run: Run) -> None:
    code, out, _ = run(
        *("--preset", "small", "--set", "cluster.nodes=24", "--set", "failure_rate*2"),
        "--print-scenario",
    )
    assert code == 0
    made = parse(out)
    assert made.cluster.nodes == 24
    # Healthy nodes join and keep the rate of healthy ones, so the mean is lower before it doubles.
    assert 0.05 < made.failures.rate_per_node_day < 0.1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "x"], "needs one scenario"),
        (["--preset", "small", "--scenario", "s.toml", "-o", "x"], "needs one scenario"),
        (["--preset", "large", "-o", "x"], "preset not found: 'large'"),
        (["--preset", "small"], "needs a place"),
        (["--scenario", "nothing.toml", "-o", "x"], "cannot be read"),
        (["--scenario", "wrong.toml", "-o", "x"], "wrong.toml, workload.sizes[4].gpus"),
        (["--preset", "small", "--set", "colour=red", "-o", "x"], "unknown key"),
        (["--preset", "small", "--days", "soon", "-o", "x"], "soon"),
        (["--preset", "small", "--days", "0", "-o", "x"], "0"),
    ],
)
def test_mistakes_are_named(
    run: Run, arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wrong.toml").write_text(scenario("small").to_toml().replace("gpus = 64", "gpus = 6400"))
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert not Path("x").exists()
