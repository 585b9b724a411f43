"""The failure rate over time: bins that lose nothing, and checks that began."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from counting import incidents_by_loops, node_use
from counting import node_days as node_days_of
from hypothesis import given
from hypothesis import strategies as st
from logs import BASE, Attempt, Check, Log, random_log
from test_attribution import infrastructure_by_loops

from conftest import RandomFleet
from holdfast.fleet import FleetLog
from holdfast.fleet.timeline import bin_edges, checks_introduced, failure_trend, rate_over_time


def bins_of(log: FleetLog, min_gpus: int = 0) -> dict[tuple[float, float], float]:
    """Each bin with its node-days; they are the same on every row of a bin."""
    frame, _ = rate_over_time(log, min_gpus)
    bins: dict[tuple[float, float], float] = {}
    for row in frame:
        place = (row["begin_s"] - BASE, row["end_s"] - BASE)
        assert bins.setdefault(place, row["node_days"]) == row["node_days"]
    return bins


@pytest.mark.parametrize("min_gpus", [0, 8])
def test_bins_by_loops(random_fleet: RandomFleet, min_gpus: int) -> None:
    log, rows = random_fleet.log, random_fleet.rows
    bins = bins_of(log, min_gpus)
    spans = [each for spans in node_use(rows, 0, min_gpus).values() for each in spans]
    for (low, high), node_days in bins.items():
        inside = sum(max(min(end, high) - max(begin, low), 0) for begin, end in spans)
        assert node_days == pytest.approx(inside / 86_400, abs=1e-9)
    assert sum(bins.values()) == pytest.approx(node_days_of(rows, 0, min_gpus).total())
    label_of = {a: label for a, label, _ in infrastructure_by_loops(rows)}
    failed: Counter[tuple[float, str]] = Counter()
    for ended in incidents_by_loops(rows):
        first = min(a.stop for a in ended)
        labels = {label_of[a] for a in ended} - {"unattributed"} or {"unattributed"}
        if max(a.gpu_count for a in ended) > min_gpus:
            (low,) = (low for low, high in bins if low <= first < high)
            failed[low, labels.pop() if len(labels) == 1 else "several"] += 1
    frame, unit = rate_over_time(log, min_gpus)
    assert unit == "hour"
    found = Counter()
    for row in frame:
        if row["cause"] is not None:
            found[row["begin_s"] - BASE, row["cause"]] += row["failures"]
    # One incident of several causes has that of its first attempt.
    several = failed.total() - sum(n for place, n in failed.items() if place[1] != "several")
    assert (failed - found).total() == several
    assert found.total() == failed.total()
    assert failed.total() > 0


def test_the_window_cuts_the_first_bin(tmp_path: Path) -> None:
    """The first bin begins before the window; what ran before the window does not count."""
    rows = random_log(6, jobs=60)
    since = 20_000
    log = rows.open(tmp_path, since="2026-01-05T05:33:20")
    bins = bins_of(log)
    assert min(bins)[0] <= since < min(bins)[1]
    assert sum(bins.values()) == pytest.approx(node_days_of(rows, since, 0).total())


def test_a_resized_job_counts_once(tmp_path: Path) -> None:
    """Its second row repeats the start of the first."""
    attempts = [
        Attempt(1, ("n1", "n2"), 0, 600, "RESIZING", submit=0),
        Attempt(1, ("n1",), 0, 4000, "COMPLETED", submit=600),
    ]
    log = Log(attempts).open(tmp_path)
    assert sum(bins_of(log).values()) == pytest.approx((2 * 600 + 3400) / 86_400)


@pytest.mark.parametrize(("goes_on", "failures"), [(False, 1), (True, 2)])
def test_a_failure_that_ends_the_log_is_no_trend(
    tmp_path: Path, goes_on: bool, failures: int
) -> None:
    """It is in the last bin whatever the rate does: the others alone can show one."""
    nodes = tuple(f"n{k}" for k in range(1, 33))
    attempts = [
        Attempt(1, nodes, 0, 100_000, "NODE_FAIL"),
        Attempt(2, nodes, 100_000, 206_000, "NODE_FAIL"),
    ]
    if goes_on:
        attempts.append(Attempt(3, nodes, 206_000, 400_000))
    log = Log(attempts).open(tmp_path)
    rows, unit = rate_over_time(log, 0)
    assert sum(row["failures"] for row in rows) == 2
    assert failure_trend(rows, unit).failures == failures


moments = st.integers(946_684_800, 2_000_000_000)


@given(moments, st.floats(1, 3e8, allow_nan=False))
def test_edges_cover_the_log(begin_s: int, span_s: float) -> None:
    edges, unit = bin_edges(begin_s, begin_s + span_s)
    assert edges[0] <= begin_s
    assert edges[-1] > begin_s + span_s
    assert edges[-2] <= begin_s + span_s
    assert edges == sorted(set(edges))
    if unit == "month":
        starts = [datetime.fromtimestamp(edge, UTC) for edge in edges]
        assert all((s.day, s.hour, s.minute) == (1, 0, 0) for s in starts)
    else:
        assert len({round(b - a) for a, b in pairwise(edges)}) == 1
    assert len(edges) < 160


def test_a_check_that_begins_late_is_marked_and_a_rare_one_is_not(tmp_path: Path) -> None:
    checks = [Check(1000 * i, "n1", "link flaps") for i in range(100)]
    checks += [Check(60_000 + 1000 * i, "n1", "check nvlink") for i in range(30)]
    checks += [Check(90_000, "n1", "check mount")]  # once: no sign that it was new
    log = Log([Attempt(1, ("n1",), 0, 100_000)], checks).open(tmp_path)
    found = checks_introduced(log)
    assert [(row["check"], row["first_s"] - BASE, row["events"]) for row in found] == [
        ("check nvlink", 60_000, 30)
    ]
    # The rule itself: (1 - silent share)^(n - 1) <= 5 %.
    assert math.isclose((1 - 0.6) ** 29, 2.88e-12, rel_tol=0.01)
