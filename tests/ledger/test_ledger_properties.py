"""What holds of every ledger: beside plain pandas, over damaged logs, less a source, month beside month."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from logs import Attempt, Check, Log, Outage, names, random_log

import ledger_pandas
from holdfast import fleet
from holdfast.compare import compare
from holdfast.fleet import Assumptions
from holdfast.ledger import ledger
from holdfast.ledger.parts import ESTIMATED, IDLE, OUT, RECORDED, UNRECORDED, USED, WAITING


def small_log(seed: int) -> Log:
    """Whole nodes, one job after another, which end in one of five ways; outages and waits between."""
    rng = random.Random(seed)
    log = Log(nodes=dict.fromkeys(names(5), 8), checks=[Check(50, "n001", "link flaps")])
    states = ["COMPLETED", "CANCELLED", "FAILED", "NODE_FAIL", "TIMEOUT"]
    for place, node in enumerate(names(5)):
        at = 0
        for k in range(8):
            start, length = at + rng.randrange(400), rng.randrange(100, 9000)
            job, submit = 100 * place + k, max(start - rng.randrange(900), 0)
            ended = (start, start + length, rng.choice(states))
            log.attempts.append(Attempt(job, (node,), *ended, submit=submit))
            at = start + length
        log.outages.append(Outage(node, 3000 * place, 3000 * place + rng.randrange(5000)))
    return log


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_part_is_that_of_plain_pandas(seed: int, tmp_path: Path) -> None:
    store = small_log(seed).store(tmp_path)
    found = ledger(store)
    parts = {**found.hours, "capacity": found.capacity, "allocated": found.allocated}
    expected = ledger_pandas.parts(store)
    assert len(expected) == 11
    for part, hours in expected.items():
        assert parts[part] == pytest.approx(hours, abs=1e-6), part
    assert min(expected[part] for part in (OUT, IDLE, WAITING, "lost_first_order", "users")) > 0


@pytest.mark.quick(2)
@pytest.mark.parametrize("seed", range(4))
def test_parts_add_up_whatever_is_damaged(seed: int, tmp_path: Path) -> None:
    """Cut lines, lost and swapped fields, lines twice: what is left still adds up."""
    rng = random.Random(seed)
    files = random_log(30 + seed, jobs=30, node_count=6, span_s=9000).write(tmp_path / "logs")
    [file] = [each for each in files if each.name == "sacct.psv"]
    first, *lines = file.read_text().splitlines()
    for place, line in enumerate(lines):
        fields = line.split("|")
        k = rng.randrange(3, len(fields))  # a cluster of its own is another finding
        damage = rng.randrange(12)
        if damage == 0:
            lines[place] = line[: rng.randrange(20, len(line))]
        elif damage == 1:
            fields[k] = rng.choice(["", "Unknown", "-1", "9" * 30, "node=0,gres/gpu=x"])
            lines[place] = "|".join(fields)
        elif damage == 2:
            fields[k], fields[-1] = fields[-1], fields[k]
            lines[place] = "|".join(fields)
        elif damage == 3:
            lines[place] = f"{line}\n{line}"
    file.write_text("\n".join([first, *lines]) + "\n")
    fleet.ingest(files, tmp_path / "store", max_reject_share=1.0)
    found = ledger(tmp_path / "store", by="user")
    assert sum(hours or 0 for hours in found.hours.values()) == pytest.approx(found.total)
    assert all(hours is None or hours >= 0 for hours in found.hours.values())
    assert found.by is not None
    assert sum(found.by["hours"].to_pylist()) == pytest.approx(found.allocated)
    for part, (low, high) in found.ci95.items():
        assert 0 <= low <= (found.hours[part] or 0) + 1e-9 <= high + 1e-6, part


def test_less_a_source_only_more_is_unknown(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "ledger"
    assumed = Assumptions(checkpoint_interval_s=60, init_s=1)
    fleet.ingest([example], tmp_path / "whole")
    log = fleet.open(tmp_path / "whole", assumptions=assumed)
    whole, less = ledger(log, [example / "runs"]), ledger(log)
    assert less.capacity == whole.capacity
    assert all(less.hours[part] is None for part in RECORDED)
    for part in USED:  # but for what a log alone estimates, whose interval says so
        if part not in (*ESTIMATED, *RECORDED, UNRECORDED):
            assert less.hours[part] == whole.hours[part]
    assert (less.hours[UNRECORDED] or 0) > (whole.hours[UNRECORDED] or 0)
    fleet.ingest([example / "sacct.psv"], tmp_path / "less")
    bare = ledger(fleet.open(tmp_path / "less", assumptions=assumed), [example / "runs"])
    for part in (OUT, IDLE, WAITING):
        assert bare.hours[part] is None
    for part in USED:
        assert bare.hours[part] == pytest.approx(whole.hours[part])


def test_two_months_beside_each_other(tmp_path: Path) -> None:
    """The second has no failure: a gate lets it pass, and not the reverse."""
    ran = [Attempt(1, ("n001",), 0, 36_000), Attempt(2, ("n002",), 0, 36_000)]
    failed = [Attempt(k, ("n002",), 3600 * k, 3600 * k + 3600, "NODE_FAIL") for k in range(3, 13)]
    nodes = dict.fromkeys(names(2), 8)
    bad = ledger(Log([ran[0], *failed], nodes=nodes).store(tmp_path / "bad")).document()
    good = ledger(Log(ran, nodes=nodes).store(tmp_path / "good")).document()
    better = compare(bad, good, gate=True)
    verdicts = {row["name"]: row["verdict"] for row in better.rows}
    assert verdicts["lost_first_order_share"] == "better"
    assert (better.exit_code, compare(good, bad, gate=True).exit_code) == (0, 1)
