"""What changed since the last look, and forecasts that are kept and scored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from logs import BASE, Attempt, Check, Log, names
from scipy import stats

import holdfast.fleet as fleet
from holdfast.errors import InputError
from holdfast.fleet.live import forecast
from holdfast.fleet.live.morning import LOOKS, looks, morning, seen
from holdfast.fleet.moments import iso_time
from holdfast.fleet.simulation.changes import apply

DAY = 86_400


def fleet_log(
    failing: dict[int, dict[int, int]], *, days: int = 60, nodes: int = 12, folder: Path
) -> fleet.FleetLog:
    """A job a day on each node, which fails at an hour of some days: node -> day -> hour."""
    log = Log(nodes=dict.fromkeys(names(nodes), 8))
    for k, node in enumerate(names(nodes)):
        hours = failing.get(k, {})
        log.attempts += [
            Attempt(
                1000 * (k + 1) + day,
                (node,),
                day * DAY,
                day * DAY + 3600 * hours.get(day, 20),
                "NODE_FAIL" if day in hours else "COMPLETED",
            )
            for day in range(days)
        ]
    return log.open(folder)


def spread(every: int, days: Sequence[int] = range(2, 60)) -> dict[int, dict[int, int]]:
    """One failure each so many days, on one node after the other."""
    found: dict[int, dict[int, int]] = {}
    for count, day in enumerate(days[::every]):
        found.setdefault(count % 12, {})[day] = 3 + count % 11
    return found


def test_a_forecast_is_the_negative_binomial_of_its_prior(tmp_path: Path) -> None:
    log = fleet_log(spread(3), folder=tmp_path)
    failures = int(forecast.losses_between(log, -np.inf, np.inf)["failures"])
    assert failures == 20
    found = forecast.predict(log, log.end_s, 7 * DAY)
    time = (log.end_s - log.begin_s) / (7 * DAY)
    expected = stats.nbinom(failures + 0.5, time / (time + 1))
    assert found["failures"].value == pytest.approx(expected.mean(), rel=0.05)
    assert found["failures"][1:] == (expected.ppf(0.025), expected.ppf(0.975))
    # Each failure loses half a checkpoint interval of an hour on eight GPUs
    assert found["hours"].value == pytest.approx(4 * found["failures"].value)


def test_days_that_come_in_heaps_widen_a_forecast(tmp_path: Path) -> None:
    heaps = {k: dict.fromkeys((10, 25, 40), 2 + k) for k in range(10)}
    wide = forecast.predict(fleet_log(heaps, folder=tmp_path / "heaps"), BASE + 60 * DAY, DAY)
    even = forecast.predict(fleet_log(spread(2), folder=tmp_path / "even"), BASE + 60 * DAY, DAY)
    assert wide["failures"].value == pytest.approx(even["failures"].value, rel=0.15)
    assert wide["failures"].high >= 2 * even["failures"].high


def test_too_short_a_log_forecasts_nothing(tmp_path: Path) -> None:
    log = fleet_log(spread(2), days=10, folder=tmp_path)
    assert forecast.predict(log, log.end_s, 7 * DAY) is None
    assert forecast.predict(log, log.end_s, DAY) is not None


@pytest.mark.parametrize("seeds", [range(1, 3), pytest.param(range(3, 13), marks=pytest.mark.full)])
def test_coverage_on_simulated_fleets(tmp_path: Path, seeds: range) -> None:
    change = "cluster.nodes=32; workload.jobs_per_day=380; failure_rate*4"
    inside = {kind: [] for kind in forecast.KINDS}
    for seed in seeds:
        scenario = apply(fleet.scenario("small"), change)
        fleet.simulate(scenario, tmp_path / str(seed), days=60, seed=seed)
        log = fleet.open(tmp_path / str(seed))
        for at_s in log.begin_s + DAY * np.arange(20, 59):
            found = forecast.predict(log, at_s, DAY)
            came = forecast.losses_between(log, at_s, at_s + DAY)
            for kind in forecast.KINDS:
                inside[kind].append(found[kind].low <= came[kind] <= found[kind].high)
    for kind in forecast.KINDS:  # 95 % +- three standard errors, and what whole numbers add
        error = 3 * (0.95 * 0.05 / len(inside[kind])) ** 0.5
        assert 0.95 - error <= np.mean(inside[kind]) <= 0.995, kind


def test_forecasts_are_kept_once_and_scored(tmp_path: Path) -> None:
    log = fleet_log(spread(3), folder=tmp_path)
    morning(log)
    morning(log)
    path = log.store.path / forecast.FILE
    lines = path.read_text().splitlines()
    assert [json.loads(line)["span"] for line in lines] == ["day", "week"]
    # Two of days that are over, made by hand: on day 5 one failure came; the half line counts for nothing
    past = [  # c is the cluster
        {"clusters": "c", "span": "day", "from_s": BASE + 5 * DAY, "until_s": BASE + 6 * DAY}
        | {"expected": {"failures": [2, 1, 3], "hours": [3, 0, 8]}},
        {"clusters": "c", "span": "day", "from_s": BASE + 6 * DAY, "until_s": BASE + 7 * DAY}
        | {"expected": {"failures": [2, 1, 3], "hours": [5, 0, 8]}},
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in past) + '{"span": "day", "fr')
    found = morning(log, since=str(60 * DAY) + "s")
    assert found.scores["failures"] == {"n": 2, "coverage": 0.5, "bias": 0.25}
    assert found.scores["hours"] == {"n": 2, "coverage": 1.0, "bias": 0.5}
    assert [each.span for each in found.forecasts if not each.came] == ["day", "week"]
    assert sum("2026-01-12" in finding.text for finding in found.findings()) == 1  # day 6 failed


def test_losses_stand_beside_what_is_usual(tmp_path: Path) -> None:
    bad = spread(3, range(2, 58))
    for k in range(8):
        bad.setdefault(k, {})[58] = 5 + k
    log = fleet_log(bad, folder=tmp_path / "bad")
    found = morning(log, since="2026-03-04")
    assert (found.verdict, found.lost) == ("more", {"failures": 8, "hours": 32})
    calm = morning(fleet_log(spread(3), folder=tmp_path / "calm"), since="7d")
    assert calm.verdict == "usual"
    assert calm.usual["failures"].low <= calm.lost["failures"] <= calm.usual["failures"].high
    short = morning(log, since="40d")
    assert (short.verdict, short.usual) == ("unknown", None)
    busy = fleet_log(
        {k: dict.fromkeys(range(k % 2, 50, 2), 5) for k in range(12)}, folder=tmp_path / "b"
    )
    assert morning(busy, since="8d").verdict == "less"


def test_new_and_gone_lemons(tmp_path: Path) -> None:
    failing = {k: dict.fromkeys(range(12 + k, 60, 12), 5 + k) for k in range(12)}
    failing[3] = dict.fromkeys(range(20, 58), 7)
    failing[5] = {2: 3, 3: 9, 4: 4, 5: 6, 6: 11, 7: 12}
    for k in range(12):  # since then node 5 is like all others
        failing[k] |= dict.fromkeys(range(20, 40, 4), 6 + k) if k not in (3, 5) else {}
    log = fleet_log(failing, folder=tmp_path)
    found = morning(log, since="2026-01-17")
    assert (found.new_lemons, found.gone_lemons) == (["n003"], ["n005"])
    again = morning(log, since="1d")
    assert (again.new_lemons, again.gone_lemons) == ([], [])


def test_loops_and_silent_sources(tmp_path: Path) -> None:
    log = Log(nodes=dict.fromkeys(names(4), 8))
    for k, node in enumerate(names(4)):
        log.attempts += [
            Attempt(99 * k + d + 1, (node,), d * DAY, (d + 1) * DAY) for d in range(12)
        ]
    for job, day in ((7001, 3), (7002, 11)):  # two jobs loop; one of them since the last look
        log.attempts += [
            Attempt(job, (names(4)[k % 4],), day * DAY + 3600 * k, day * DAY + 3600 * k + 60, state)
            for k, state in enumerate(["NODE_FAIL"] * 5 + ["COMPLETED"])
        ]
    every = [3600 * hour for hour in range(12 * 24)]
    log.checks = [Check(at, "n000", "check mount", result="ok") for at in every]
    log.checks += [Check(at, "n001", "check nvlink", result="ok") for at in every if at < 9 * DAY]
    log.checks += [
        Check(at, "n002", "xid 79") for at in (DAY, 4 * DAY, 6 * DAY)
    ]  # rare, so not silent
    found = morning(log.open(tmp_path), since="1d")
    assert found.new_loops == ["7002"]
    assert [row["source"] for row in found.silent] == ["check check nvlink"]
    assert found.silent[0]["last_s"] == BASE + 9 * DAY - 3600


def test_looks_are_kept_by_reader(tmp_path: Path) -> None:
    log = fleet_log(spread(3), folder=tmp_path)
    first = morning(log)
    assert first.since_s == log.end_s - DAY
    assert looks(log) == {}  # looking alone changes nothing
    seen(first, "alice")
    assert morning(log, reader="alice").since_s == log.end_s
    assert morning(log, reader="bob").since_s == log.end_s - DAY
    (log.store.path / LOOKS).write_text(json.dumps({"alice": BASE + 30 * DAY}))
    found = morning(log, reader="alice")
    assert (
        found.lost["failures"]
        == forecast.losses_between(log, BASE + 30 * DAY, log.end_s)["failures"]
    )
    assert [section.id for section in found.sections()] == ["changes"]


def test_a_look_after_the_end_is_refused(tmp_path: Path) -> None:
    log = fleet_log(spread(3), days=9, folder=tmp_path)
    with pytest.raises(InputError) as error:
        morning(log, since="2030-01-01")
    assert error.value.code == "conflict"


def test_a_node_failure_log_has_a_morning_too(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    rows = [
        f"n{k % 7},2026-01-{1 + k:02d}T03:00:00,2026-01-{1 + k:02d}T05:00:00,gpu" for k in range(28)
    ]
    path.write_text("node,start,end,cause\n" + "\n".join(rows) + "\n")
    found = morning(path, since="5d")
    assert found.lost["failures"] == 5
    assert found.verdict == "usual"


@pytest.fixture(scope="module")
def two_clusters(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Log]]:
    """alpha fails more since day 58; beta came on day 20, has a bad node n004, and ends on day 57."""
    folder, logs = tmp_path_factory.mktemp("clusters"), {}
    for cluster, days, late, bad in (
        ("alpha", range(60), 0, ()),
        ("beta", range(20, 57), 1800, (4,)),
    ):
        log = logs[cluster] = Log()
        for k, day in ((k, day) for k in range(12) for day in days):
            fails = (day + 7 * k) % 23 == 0 or k in bad or day == 58
            begin = day * DAY + late + 60 * k
            end = begin + (3600 * (2 + k) if fails else 70_000)
            state = "NODE_FAIL" if fails else "COMPLETED"
            log.attempts.append(Attempt(100 * (k + 1) + day, (names(12)[k],), begin, end, state))
        [path] = log.write(folder / cluster)
        path.write_text(path.read_text().replace("|c|", f"|{cluster}|"))
        for store in (cluster, "both"):
            fleet.ingest([path], folder / f"store-{store}")
        morning(folder / "store-both")  # so that there is a forecast of alpha alone
    return folder, logs


@pytest.mark.parametrize("day", [48, 57])
def test_each_cluster_has_a_morning_of_its_own(
    two_clusters: tuple[Path, dict[str, Log]], day: int
) -> None:
    """That of a store with this cluster alone, though both have nodes and jobs of the same names."""
    folder, logs = two_clusters
    since_s = BASE + day * DAY
    whole = morning(folder / "store-both", since=iso_time(since_s))
    assert [*whole.clusters] == [*logs]
    for name, log in logs.items():
        own = whole.clusters[name]
        ends = [BASE + each.stop for each in log.attempts if each.state == "NODE_FAIL"]
        is_over = own.until_s < since_s
        assert own.lost.get("failures") == (None if is_over else sum(end > since_s for end in ends))
        assert own.until_s == BASE + max(each.stop for each in log.attempts)
        if not is_over:
            alone = morning(folder / f"store-{name}", since=iso_time(since_s))
            assert (own.lost, own.usual, own.verdict) == (alone.lost, alone.usual, alone.verdict)
            assert own.forecasts == alone.forecasts
    alpha, beta = whole.clusters.values()
    for own, of in ((whole, "alpha,beta"), (alpha, "alpha"), (beta, "beta")):
        kept = [(each.span, each.clusters) for each in own.forecasts]
        assert kept == [("day", of), ("week", of)]
    assert alpha.verdict == "more"
    assert beta.verdict == ("usual" if day == 48 else "unknown")  # it ends before day 57
    assert (alpha.silent, [row["source"] for row in beta.silent]) == ([], ["beta:attempts"])
    assert (alpha.proposed, beta.proposed) == ([], ["beta:n004"])
    [section] = whole.sections()
    rows = section.tables[0].data.to_pylist()
    counts = [(row["cluster"], row["loss"], row["silent"], row["proposed"]) for row in rows]
    assert counts == [("alpha", "more", 0, 0), ("beta", beta.verdict, 1, 1)]
