"""The page of published figures: it says what was measured, and measuring again gives the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import reproduction
from holdfast import fleet
from incident_figures import FLEETS, LIMITS, WITH_LEMONS, verdict_of
from measured_figures import measure
from public_logs import PUBLIC
from published_figures import AFTER, RSC1, RSC2, Figures, misses
from reproduction import EXPERIMENTS, logs_of

KEPT: dict[str, Figures] = json.loads(reproduction.KEPT.read_text(encoding="utf-8"))
SIMULATED = {each.name: KEPT[each.name] for each in EXPERIMENTS}

HOLD = {
    *("Jobs", "GPU-hours", "Utilisation"),
    *("COMPLETED, of attempts", "FAILED", "PREEMPTED", "REQUEUED", "NODE_FAIL"),
    *("Infrastructure failures, r_f x GPU-hours / 192", "... of all attempts"),
    *("... their GPU time, of all", "Second order, of the goodput lost"),
    *("Lemons found: precision", "Lemons found: recall"),
    "Attempts of 512 and more GPUs that fail",
}
"""Rows of RSC-1 that must stay inside what is allowed."""

FROM_THE_FACTOR = (
    "Lemons found: precision",
    "Lemons found: recall",
    "Attempts of 512 and more GPUs that fail",
)


def test_the_page_is_what_the_kept_figures_say() -> None:
    assert reproduction.PAGE.read_text(encoding="utf-8") == reproduction.page(KEPT)


def test_every_experiment_is_kept_and_nothing_else() -> None:
    assert set(KEPT) == {*SIMULATED, reproduction.KNOWN_FLEETS, *PUBLIC}
    for each in EXPERIMENTS:
        assert KEPT[each.name]["days"] == each.days


def test_the_rows_that_must_hold_do() -> None:
    assert {row.what for row in RSC1} >= HOLD
    off = {row.what for row in misses(logs_of(KEPT, "rsc1"), RSC1)}
    assert not off & HOLD
    assert not misses(logs_of(KEPT, "rsc2"), RSC2)


def test_pulling_the_lemons_that_were_found_halves_the_failures_of_large_jobs() -> None:
    before = RSC1[-1].mean(logs_of(KEPT, "rsc1"))
    assert AFTER.mean(logs_of(KEPT, "rsc1", "-pulled")) < before / 2


def test_the_intervals_hold_what_was_injected() -> None:
    assert sum(map(reproduction.holds, SIMULATED.values())) >= len(SIMULATED) - 1


def test_intervals_and_lemons_of_known_fleets_are_as_wanted() -> None:
    fleets = KEPT[reproduction.KNOWN_FLEETS]["fleets"]
    assert set(fleets) == set(FLEETS | WITH_LEMONS | LIMITS)
    verdicts = {name: verdict_of(fleets[name], name in FLEETS) for name in FLEETS | WITH_LEMONS}
    assert "**no**" not in verdicts.values(), verdicts


def test_what_follows_from_the_factor_of_the_lemons_is_called_chosen() -> None:
    kinds = {row.what: row.kind for row in RSC1}
    assert {kinds[what] for what in FROM_THE_FACTOR} == {"chosen"}


def test_every_miss_is_explained() -> None:
    assert all(row.why for row in misses(logs_of(KEPT, "rsc1"), RSC1))
    assert AFTER.why


@pytest.mark.full
def test_measuring_again_gives_the_kept_figures(tmp_path: Path) -> None:
    """A year of RSC-1, before and after its lemons are pulled, from nothing."""
    for name in ("rsc1-1", "rsc1-1-pulled"):
        each = next(one for one in EXPERIMENTS if one.name == name)
        store = tmp_path / name
        made = reproduction.scenario_of(each, KEPT)
        fleet.simulate(made, store, days=each.days, seed=each.seed)
        _same(measure(store), KEPT[name], name)


def _same(found: Any, kept: Any, where: str) -> None:
    """Equal but for the order in which sums were taken."""
    if isinstance(kept, dict):
        assert found.keys() == kept.keys(), where
        for key in kept:
            _same(found[key], kept[key], f"{where}, {key}")
    elif isinstance(kept, list):
        assert len(found) == len(kept), where
        for number, (one, other) in enumerate(zip(found, kept, strict=True)):
            _same(one, other, f"{where}, {number}")
    elif isinstance(kept, float):
        assert found == pytest.approx(kept, rel=1e-6), where
    else:
        assert found == kept, where
