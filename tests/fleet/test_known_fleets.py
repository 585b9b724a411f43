"""Intervals and lemons against fleets whose failures are known: see `tools/known_fleets.py`."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast import fleet
from incident_figures import FLEETS, LOGS, STRENGTHS, WITH_LEMONS, coverage, recall, verdict_of
from known_fleets import PERIOD_S, SWITCH, Known, draw

QUICK = 1  # Logs of each fleet in the quick run


@pytest.mark.full
def test_intervals_and_lemons_of_a_few_logs() -> None:
    found = {name: coverage(known, QUICK) for name, known in (FLEETS | WITH_LEMONS).items()}
    verdicts = {name: verdict_of(each, name in FLEETS) for name, each in found.items()}
    assert "**no**" not in verdicts.values(), verdicts
    together = {name: sum(each[name] for each in found.values()) for name in ("logs", "held")}
    assert verdict_of(together, alike=False) != "**no**"


@pytest.mark.full
@pytest.mark.parametrize("name", [*FLEETS, *WITH_LEMONS])
def test_intervals_and_lemons_of_all_logs(name: str) -> None:
    assert verdict_of(coverage((FLEETS | WITH_LEMONS)[name], LOGS), name in FLEETS) != "**no**"


@pytest.mark.full
def test_lemons_by_strength() -> None:
    """Weak lemons are not found in one log; strong ones are, and few others with them."""
    found = [recall(factor, 12, 25) for factor in STRENGTHS]
    shares = [each["found"] / each["lemons"] for each in found]
    assert shares == sorted(shares)
    assert shares[0] < 0.2
    assert shares[-1] > 0.8
    assert all(each["wrong"] <= 0.15 * max(each["found"], each["logs"]) for each in found)


# --- The logs themselves ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "rate"),
    [
        (Known(), 20.0),
        (FLEETS["jobs over 1, 4 and 8 nodes"], 20.0),
        (replace(FLEETS["failed jobs come back to their nodes"], rate=0.1), 100.0),
        # Of six switches, fifteen failures: each node has 2.5 more in 48 days, in use or not.
        (
            FLEETS["a switch takes 16 nodes"],
            5 + 1000 * 15 / (96 // SWITCH) / (16 * PERIOD_S / 86_400),
        ),
    ],
)
def test_nodes_fail_as_often_as_they_should(known: Known, rate: float) -> None:
    logs = [draw(known, seed) for seed in range(100)]
    incidents, days = sum(log.incidents for log in logs), sum(log.node_days for log in logs)
    slack = 4 * math.sqrt(SWITCH if known.bursts else 1) / math.sqrt(incidents)
    assert 1000 * incidents / days == pytest.approx(rate, rel=slack)


def test_a_node_runs_no_more_jobs_than_it_has_gpus_and_none_while_it_is_down() -> None:
    known = FLEETS["all of these"]
    changes: dict[str, list[tuple[int, int]]] = {}
    for row in draw(known, 7).tables()["attempts"].to_pylist():
        for node in row["nodes"]:
            gpus = row["gpus"] // len(row["nodes"])
            changes.setdefault(node, []).extend([(row["start_s"], gpus), (row["end_s"], -gpus)])
    assert len(changes) == known.nodes
    for each in changes.values():
        taken = 0
        for _, change in sorted(each):
            taken += change
            assert 0 <= taken <= 8


def test_a_store_written_directly_is_what_ingest_makes_of_the_text(tmp_path: Path) -> None:
    drawn = draw(FLEETS["all of these"], 3)
    (tmp_path / "sacct.psv").write_text(drawn.sacct())
    fleet.ingest([tmp_path / "sacct.psv"], tmp_path / "read", timezone="UTC")
    direct = fleet.open(drawn.store(tmp_path / "direct"))
    read = fleet.open(tmp_path / "read")
    one, other = (fleet.mttf(log).to_dict() for log in (read, direct))
    assert one["failures"] == other["failures"]
    for name in ("node_days", "ci95"):
        assert one[name] == pytest.approx(other[name])
    nodes = [fleet.lemons(log).nodes.to_pydict() for log in (read, direct)]
    assert nodes[0]["node"] == nodes[1]["node"]
    assert nodes[0]["failures"] == pytest.approx(nodes[1]["failures"])
