"""Rules replayed and actions judged: no look ahead, no gain by chance, what the simulator then plays."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from logs import COLUMNS, Attempt, Check, Log, Outage, names

import holdfast.fleet as fleet
from holdfast.errors import InputError
from holdfast.fleet.live.following import Amount, follow
from holdfast.fleet.live.judge import action_of, judge
from holdfast.fleet.live.rules import Rule, RuleFile, history, pulls, read_rules
from holdfast.fleet.losses import losses
from holdfast.fleet.simulation.changes import apply
from holdfast.fleet.simulation.engine import run
from holdfast.fleet.simulation.injected_truth import TRUTH
from holdfast.fleet.simulation.records import Detected
from holdfast.stats import poisson_interval

HOUR, DAY = 3600, 86_400
RULES = (
    Rule("frequent", failures=3, within=7 * DAY),
    Rule("lemons", lemon_fdr=0.05),
    Rule("check", check="gpu_*"),
    Rule("class", check="ib_link"),
    Rule("removed", check="HIGH"),
)
LEMONS = "lemons=0; failures.lemons.nodes={node03=12.0, node17=12.0}"
FLEET = f"cluster.nodes=32; workload.jobs_per_day=380; {LEMONS}"
LONG = "workload.sizes.hours*4; workload.jobs_per_day*0.25"
SOUND = "cluster.nodes=32; workload.jobs_per_day=380; lemons=off"


def simulated(folder: Path, change: str, *, days: float, seed: int) -> fleet.FleetLog:
    scenario = fleet.scenario("small")
    scenario = apply(scenario, change) if change else scenario
    fleet.simulate(scenario, folder, days=days, seed=seed)
    return fleet.open(folder)


def daily(node: str, job: int, days: range, failing: set[int]) -> list[Attempt]:
    """A job a day on a node, from midnight for 20 hours; on some days the node fails under it."""
    return [
        Attempt(
            job + day,
            (node,),
            day * DAY,
            day * DAY + (10 if day in failing else 20) * 3600,
            "NODE_FAIL" if day in failing else "COMPLETED",
        )
        for day in days
    ]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> fleet.FleetLog:
    return simulated(tmp_path_factory.mktemp("small") / "store", "", days=60, seed=1)


def test_no_rule_looks_ahead(small: fleet.FleetLog, tmp_path: Path) -> None:
    # The same seed simulates the same first 30 days; a rule must fire in them alike.
    half = simulated(tmp_path / "half", "", days=30, seed=1)
    cut_s = half.begin_s + 29 * DAY
    for rule in RULES:
        found = []
        for log in (half, small):
            nodes = history(log).nodes["node"].to_pylist()
            pairs = pulls(history(log), rule, 7 * DAY)
            found.append([(nodes[place], at) for place, at in pairs if at < cut_s])
        assert found[0] == found[1], rule.name
        assert found[0], rule.name


def test_counted_by_hand(tmp_path: Path) -> None:
    """One node fails on days 10, 12, 14 and 20, four others never; a rule of two failures in five days."""
    log = Log(nodes=dict.fromkeys(names(5), 8))
    for k, node in enumerate(names(5)):
        failing = {10, 12, 14, 20} if k == 0 else set()
        log.attempts += daily(node, 1000 * (k + 1), range(60), failing)
    log.outages = [Outage("n000", day * DAY + 10 * 3600, day * DAY + 12 * 3600) for day in (10, 12)]
    rules = RuleFile((Rule("two", failures=2, within=5 * DAY, repair=3 * 3600),), horizon=10 * DAY)
    found = judge(log.open(tmp_path), rules)
    [rule] = found.rules
    # It fires on day 12, is not asked on day 14, and on day 20 it is alone within five days
    base = found.log.begin_s
    assert [(row["node"], row["time_s"] - base) for row in rule["pulled"]] == [
        ("n000", 12.0 * DAY + 36_000)
    ]
    # Followed until day 22: the failures of days 14 and 20; the matched nodes had none
    assert (rule["followed"], rule["again"], rule["matched_again"]) == (1, 1, 0)
    assert rule["avoided"] == 2
    # Each loses half an hour (of a checkpoint interval) on 8 GPUs, and 4 h of outages in 4 failures
    assert rule["saved"] == pytest.approx(2 * 8 * (0.5 + 1))
    # The repair of 3 h: for 2 of them it was out anyway
    assert (rule["cost"], rule["net"]) == (8, pytest.approx(16))
    assert rule["false_alarms_per_month"] == 0
    high = poisson_interval(0, (found.days - 10) / 30)[1]
    assert rule["false_alarms_per_month_high"] == pytest.approx(high, rel=1e-6)
    assert (found.failures, found.lost_hours, found.out_hours) == (4, 16, pytest.approx(32))


def test_pulls_are_those_of_the_injected_failures(small: fleet.FleetLog) -> None:
    """Worked out from the simulator's own record of what it broke, not from the log."""
    import json

    rule = Rule("two", failures=2, within=7 * DAY)
    [found] = judge(small, RuleFile((rule,), horizon=14 * DAY)).rules
    truth = json.loads((small.store.path / TRUTH).read_text())
    seen: dict[str, list[float]] = {}
    asked: dict[str, float] = {}
    expected = []
    for failure in truth["failures"]:
        at = np.datetime64(failure["detected"][:-1], "ms").astype(int) / 1000
        node = failure["node"]
        counts = failure["ended_attempts"] and failure["severity"] != "LOW"
        if not counts or at < asked.get(node, 0):  # Nothing counts within the horizon of a pull
            continue
        mine = seen.setdefault(node, [])
        mine.append(at)
        if sum(at - 7 * DAY <= each for each in mine) >= 2:
            expected.append(node)
            asked[node] = at + 14 * DAY
            mine.clear()
    assert len(expected) >= 5
    assert [row["node"] for row in found["pulled"]] == expected


@pytest.mark.parametrize(("times", "within"), [(1, 7), (2, 3), (3, 7), (4, 20)])
def test_a_check_that_fails_so_often_in_so_long_a_time(
    times: int, within: int, tmp_path: Path
) -> None:
    """Tried at every event anew; an event may stand there twice, seconds apart, as Kubernetes writes it."""
    rng = random.Random(times)
    log = Log(
        [a for k, n in enumerate(names(6)) for a in daily(n, 1000 * (k + 1), range(90), set())]
    )
    events = sorted(
        (rng.randrange(HOUR, 89 * DAY), node) for node in names(5) for _ in range(rng.randrange(40))
    )
    apart = [(at, n) for at, n in events if not any(0 < at - b <= 200 for b, m in events if m == n)]
    for at, node in apart:
        beside = (0, rng.randrange(1, 30)) if rng.random() < 0.5 else (0,)
        log.checks += [Check(at + late, node, "NodeNotReady", "HIGH") for late in beside]
    opened = log.open(tmp_path)
    expected, asked = [], dict.fromkeys(names(6), (-1.0, -1.0))
    for at, node in apart:
        since, until = asked[node]
        known = [each for each, of in apart if of == node and until <= each <= at and each > since]
        if at >= until and sum(each >= at - within * DAY for each in known) >= times:
            expected.append((node, at))
            asked[node] = (at, at + 14 * DAY)
    past = history(opened)
    rule = Rule("often", check="NodeNot*", times=times, within=within * DAY)
    found = pulls(past, rule, 14 * DAY)
    base = opened.begin_s
    assert [(past.nodes["node"][place].as_py(), at - base) for place, at in found] == expected
    assert len(expected) > 3


def test_a_fleet_without_lemons_shows_no_gain(tmp_path: Path) -> None:
    log = simulated(tmp_path / "store", SOUND, days=60, seed=5)
    # Repairs that cost nothing, so that no cost hides a false gain
    found = judge(
        log, RuleFile(tuple(replace(each, repair=0.001) for each in RULES), horizon=14 * DAY)
    )
    assert sum(each["pulls"] for each in found.rules) > 20
    assert {each["verdict"] for each in found.rules} <= {"unclear", "no pull", "loss"}
    for each in found.rules:
        assert each["saved_low"] <= 0 <= each["saved_high"], each["rule"]


@pytest.mark.full
def test_gains_by_chance_are_rare(tmp_path: Path) -> None:
    gains = 0
    for seed in range(20):
        log = simulated(tmp_path / str(seed), SOUND, days=60, seed=seed)
        free = {"repair": 0.001}
        rules = (Rule("two", failures=2, within=14 * DAY, **free), Rule("check", check="*", **free))
        found = judge(log, RuleFile(rules, horizon=14 * DAY))
        gains += sum(each["verdict"] == "gain" for each in found.rules)
    assert gains <= 4  # of 40; two-sided 95 % intervals allow one on this side


def played(folder: Path, seed: int, days: int) -> tuple[float, float, float]:
    """Hours lost in the second half: without pulls, predicted with them, and as then simulated."""
    log = simulated(folder / "as_is", FLEET, days=days, seed=seed)
    past = history(log)
    middle = log.begin_s + days * DAY / 2
    fired = pulls(past, Rule("lemons", lemon_fdr=0.05), 14 * DAY)
    pulled = sorted({place for place, at_s in fired if at_s <= middle})
    found = follow(past, [(place, middle, middle) for place in pulled], days * DAY / 2)
    nodes = ",".join(past.nodes["node"][place].as_py() for place in pulled)
    after = simulated(folder / "pulled", f"{FLEET}; replace={nodes}", days=days, seed=seed)
    without, then = (
        each.value(f"SELECT sum(lost) FROM {losses(each)[0]} WHERE stop_s > {middle}")
        for each in (log, after)
    )
    return without, without - (found.hours - found.matched_hours).value, then


@pytest.mark.full
def test_predicted_losses_are_those_that_the_simulator_plays(tmp_path: Path) -> None:
    sums = np.sum([played(tmp_path / str(seed), seed, 120) for seed in range(1, 7)], axis=0)
    without, predicted, then = sums
    assert predicted == pytest.approx(then, rel=0.1)
    assert predicted < 0.8 * without  # the agreement is not that of a change of nothing


def foreseen(folder: Path, change: str, *, horizon: int, days: int, seed: int) -> list[float]:
    """Pulls and hours lost with a rule: as judged from the log without it, then as the simulator plays it.

    What was played is counted in the simulator's own record.
    """
    log = simulated(folder, change, days=days, seed=seed)
    rule = Rule("two", failures=2, within=7 * DAY, repair=4 * 3600)
    found = judge(log, RuleFile((rule,), horizon=horizon * DAY))
    [row] = found.rules
    keys = f"failures=2; pulls.within=7d; pulls.repair=4h; pulls.horizon={horizon}d"
    after = run(apply(fleet.scenario("small"), f"{change}; pulls.{keys}"), days=days, seed=seed)
    ended = after.attempts[after.attempts.failure >= 0]
    out = after.failures[(after.failures.kind != Detected.LOW) & (after.failures.out_ms >= 0)]
    back_ms = np.where(out.repaired_ms >= 0, out.repaired_ms, after.end_ms)
    hours = (ended.lost_ms * ended.gpus.astype(float)).sum() + 8 * (back_ms - out.out_ms).sum()
    before = found.lost_hours + found.out_hours
    return [row["pulls"], after.failures.pulled.sum(), before - row["net"], hours / 3.6e6, before]


def test_a_rule_wins_what_the_simulator_then_plays(tmp_path: Path) -> None:
    lemons = "lemons=0; failures.lemons.nodes={node03=30.0, node08=30.0, node11=30.0}"
    change = f"{LONG}; failures.rate_per_node_day=0.2; repair.slow_max=30h; {lemons}"
    found = foreseen(tmp_path / "store", change, horizon=7, days=90, seed=1)
    pulled, played, predicted, then, before = found
    assert played > 25
    assert pulled == pytest.approx(played, rel=0.15)
    assert predicted == pytest.approx(then, rel=0.15)
    assert then < 0.7 * before


@pytest.mark.full
@pytest.mark.parametrize("lemons", [{3: 12.0, 17: 12.0}, {3: 4.0, 17: 4.0, 20: 4.0}, {}])
def test_rules_win_what_the_simulator_then_plays(tmp_path: Path, lemons: dict[int, float]) -> None:
    """Fleets with lemons, with mild ones, without: the sums of eight seeds agree within 10 %."""
    nodes = ", ".join(f"node{number:02}={factor}" for number, factor in lemons.items())
    change = f"cluster.nodes=32; {LONG}; workload.jobs_per_day*2; lemons=0"
    change += f"; failures.lemons.nodes={{{nodes}}}"
    found = [
        foreseen(tmp_path / str(seed), change, horizon=14, days=360, seed=seed)
        for seed in range(1, 9)
    ]
    print(np.round(found).tolist())
    pulled, played, predicted, then, _ = np.sum(found, axis=0)
    assert played > 100
    assert pulled == pytest.approx(played, rel=0.1)
    assert predicted == pytest.approx(then, rel=0.1)


def test_too_short_a_log_cannot_tell(small: fleet.FleetLog) -> None:
    [found] = judge(small, RuleFile(RULES[:1], horizon=59 * DAY)).rules
    assert (found["verdict"], found["followed"], found["wasted"]) == ("short", 0, None)
    assert found["false_alarms_per_month_high"] > 50


def test_without_outages_the_cost_is_not_known(tmp_path: Path) -> None:
    log = Log(
        attempts=[
            e for k, n in enumerate(names(3)) for e in daily(n, 99 * k + 1, range(30), {3 + k})
        ]
    )
    opened = log.open(tmp_path)
    [found] = judge(opened, RuleFile((Rule("one", failures=1),), horizon=2 * DAY)).rules
    assert (found["verdict"], found["cost"], found["net"]) == ("no cost", None, None)
    [stated] = judge(opened, RuleFile((Rule("one", failures=1, repair=3600),), 2 * DAY)).rules
    assert (stated["cost_low"], stated["cost"], stated["cost_high"]) == (
        24.0,
        24.0,
        24.0,
    )  # three pulls of eight GPUs for an hour
    assert (stated["again"], stated["followed"]) == (0, 3)


def acted(tmp_path: Path, *, works: bool) -> str:
    """Sixty nodes that fail alike; half of those that fail twice in ten days are rebooted. Does it help?"""
    rng = random.Random(3)
    log = Log(nodes=dict.fromkeys(names(60), 8))
    for k, node in enumerate(names(60)):
        failing = set(rng.sample(range(60), 6))
        often = [day for day in sorted(failing) if len(failing & set(range(day - 9, day))) >= 1]
        if k % 2 and often and 10 < often[0] < 45:
            [start, *_] = often
            failing = {day for day in failing if day <= start or not works}
            log.outages.append(
                Outage(node, start * DAY + 36_100, start * DAY + 40_000, "DRAIN", "reboot, by ops")
            )
        log.attempts += daily(node, 1000 * (k + 1), range(60), failing)
    [found] = judge(log.open(tmp_path), RuleFile(RULES[:1], horizon=14 * DAY)).actions
    assert (found["action"], found["times"]) == ("reboot", len(log.outages))
    assert (found["still_out"], found["hours_out"]) == (0, 3900 / 3600)
    # Chosen because they failed: the rate falls by itself
    assert found["rate_after"] < 0.9 * found["rate_before"]
    return found["verdict"]


def test_regression_to_the_mean_is_no_effect(tmp_path: Path) -> None:
    assert acted(tmp_path, works=False) in ("same", "early")


def test_a_drain_without_a_match_is_in_no_rate(tmp_path: Path) -> None:
    """n1 fails every third day for ever, like no other; n2 to n6 once before and once after: no effect."""
    nodes = names(20)
    log = Log(nodes=dict.fromkeys(nodes, 8))
    for k, node in enumerate(nodes):
        failing = set(range(0, 100, 3)) if k == 0 else {20 + k, 60 + k} if k < 12 else set()
        log.attempts += daily(node, 1000 * (k + 1), range(100), failing)
        if k < 6:
            log.outages.append(Outage(node, 40 * DAY + 100, 40 * DAY + 200, "DRAIN", "drain"))
    [found] = judge(log.open(tmp_path), RuleFile(RULES[:1], horizon=28 * DAY)).actions
    assert (found["times"], found["unmatched"]) == (6, 1)
    assert found["rate_before"] == pytest.approx(found["rate_after"], rel=0.1)


def test_a_repair_that_works_is_seen(tmp_path: Path) -> None:
    assert acted(tmp_path, works=True) == "lower"


def test_an_action_on_a_failing_node_that_none_resembles_cannot_be_told(tmp_path: Path) -> None:
    log = Log(outages=[Outage("n000", 20 * DAY, 21 * DAY, "DRAIN", "repair of GPU 3")])
    for k, node in enumerate(names(4)):
        failing = set(range(8, 20)) if k == 0 else set()
        log.attempts += daily(node, 1000 * (k + 1), range(60), failing)
    [found] = judge(log.open(tmp_path), RuleFile(RULES[:1], horizon=14 * DAY)).actions
    assert (found["action"], found["verdict"], found["rate_after"]) == ("repair", "unmatched", None)


@pytest.mark.parametrize(
    ("state", "reason", "action"),
    [
        ("DRAIN", "gpu_ecc", "drain"),
        ("DRAINED*", "RMA 4711: replaced board", "repair"),
        ("REBOOT^", "", "reboot"),
        ("DOWN*", "Not responding", ""),
        ("DOWN", "Node unexpectedly rebooted", ""),
        ("DOWN", "cordoned by k8s", "cordon"),
        ("MAINT", "", "drain"),
        ("FAILURE", "", ""),
    ],
)
def test_what_was_done_to_a_node(state: str, reason: str, action: str) -> None:
    assert action_of(state, reason) == action


def test_a_check_beside_the_failure_is_no_forecast_of_it(tmp_path: Path) -> None:
    log = Log(nodes=dict.fromkeys(names(4), 8))
    for k, node in enumerate(names(4)):
        log.attempts += daily(node, 1000 * (k + 1), range(40), {10} if k == 0 else set())
    log.checks = [Check(10 * DAY + 36_000 - 120, "n000", "check nvlink", "HIGH")]
    rules = RuleFile((Rule("link", check="check nv*", repair=3600),), horizon=7 * DAY)
    [found] = judge(log.open(tmp_path), rules).rules
    assert (found["pulls"], found["again"], found["avoided"]) == (1, 0, 0)
    assert found["false_alarms_per_month"] > 0


def test_differences_hold_their_level() -> None:
    rng = np.random.default_rng(5)
    hits = 0
    for a, b in zip(rng.poisson(9, 1000), rng.poisson(6, 1000), strict=True):
        found = Amount(a, *poisson_interval(a)) - Amount(b, *poisson_interval(b))
        hits += found.low <= 3 <= found.high
    assert hits >= 940


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("", "missing-key", "rule"),
        ('[[rule]]\nname = "a"', "invalid-value", "rule[0]"),
        ('[[rule]]\nname = "a"\nfailures = 2\ncheck = "x"', "invalid-value", "rule[0]"),
        ('[[rule]]\nname = "a"\nfailures = 2\nwithin = "0s"', "invalid-value", "rule"),
        ('[[rule]]\nname = "a"\nfailures = 2\ntimes = 1', "invalid-value", "rule[0].times"),
        ('[[rule]]\nname = "a"\nlemon_fdr = 0.1\ntimes = 2', "invalid-value", "rule[0].times"),
        ('[[rule]]\nname = "a"\ncheck = "x"\ntimes = 0', "invalid-value", "rule[0].times"),
        ('[[rule]]\nname = "a"\nfalures = 2', "unknown-key", "rule[0].falures"),
        ('[[rule]]\nname = "a"\nlemon_fdr = 1.5', "invalid-value", "rule[0].lemon_fdr"),
        ('horizon = "0s"\n[[rule]]\nname = "a"\nfailures = 2', "invalid-value", "rule"),
        ("rule = []", "invalid-value", "rule"),
        (2 * '[[rule]]\nname = "a"\nfailures = 2\n', "invalid-value", "rule"),
    ],
)
def test_wrong_rules_are_refused(tmp_path: Path, text: str, code: str, place: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_rules(path)
    assert (error.value.code, error.value.place) == (code, place)


def test_a_log_without_nodes_is_refused(tmp_path: Path) -> None:
    log = Log(attempts=daily("n0", 1, range(9), {3}))
    columns = [name for name in Attempt(1, ("n",), 0, 1).fields() if name != "NodeList"]
    store = log.store(tmp_path, columns)
    with pytest.raises(InputError) as error:
        judge(store, RuleFile(RULES[:1]))
    assert error.value.code == "no-data"


def test_a_log_in_which_nothing_ran_is_refused(tmp_path: Path) -> None:
    pending = [Attempt(k, (), None, None, "PENDING", gpus=8, submit=k) for k in range(1, 4)]
    log = Log(pending).open(tmp_path)
    with pytest.raises(InputError) as error:
        judge(log, RuleFile(RULES[:1]))
    assert error.value.code == "no-data"


def test_rules_in_force_stand_beside_the_others(small: fleet.FleetLog) -> None:
    rules = RuleFile((replace(RULES[0], in_force=True), RULES[1]), horizon=14 * DAY)
    found = judge(small, rules)
    assert [each["in_force"] for each in found.rules] == [True, False]
    assert {"rules", "actions"} == {section.id for section in found.sections()}
    assert found.to_dict()["failures"] == found.failures


def test_a_node_is_followed_to_the_end_of_the_log_of_its_own_cluster(tmp_path: Path) -> None:
    """Beside another cluster, whose log is two months longer, the nodes are judged as without it."""
    ends = {"short": (30, 0), "long": (90, 500_000)}
    for name, (days, first) in ends.items():
        rows = []
        for k, node in enumerate(names(6)):
            failing = {29} if name == "short" else set()
            failing |= {5 + k, 15 + k} if name == "short" and k % 2 else set()
            own = daily(node, first + 1000 * (k + 1), range(days), failing)
            rows += [{**each.fields(), "Cluster": name} for each in own]
        text = "\n".join("|".join(row[column] for column in COLUMNS) for row in rows)
        (tmp_path / f"{name}.psv").write_text("|".join(COLUMNS) + f"\n{text}\n")
    rules = RuleFile((Rule("one", failures=1, repair=4 * HOUR),), horizon=10 * DAY)
    found = []
    for own in (["short"], ["short", "long"]):
        store = tmp_path / "-".join(own)
        fleet.ingest([tmp_path / f"{name}.psv" for name in own], store)
        row = judge(store, rules).rules[-1]  # the first is of "long", if any
        pulled = [each["node"].removeprefix("short:") for each in row.pop("pulled")]
        found.append((pulled, {k: v for k, v in row.items() if k != "cluster"}))
    assert found[0] == found[1]
    # n001, n003 and n005 twice, and all on day 29 but n005, which was pulled on day 20; that, and those of
    # day 29, are less than ten days before the end
    assert (found[0][1]["pulls"], found[0][1]["followed"]) == (6 + 5, 5)
