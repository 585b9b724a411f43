"""The verdicts of `runs exec` on trainings with a fault: right, undecided or false, over all scenarios."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from execution.exec_scenarios import QUICK, Scenario, scenarios, score, train

SEED = int(os.environ.get("HOLDFAST_PROOF_SEED", "1"))
TARGET = 0.95


def scored(each: Scenario, folder: Path, launcher: bool = True) -> tuple[float, str]:
    return score(each, folder, train(each, folder, launcher))


@pytest.mark.quick(2)
@pytest.mark.parametrize("kind", QUICK)
def test_one_scenario(kind: str, tmp_path: Path) -> None:
    drawn = next(each for each in scenarios(SEED) if each.kind == kind)
    each = replace(drawn, world=2, victims=(drawn.victims[0] % 2,))  # as cheap as can be
    got, said = scored(each, tmp_path / "run", launcher=False)
    assert got == 1, said


@pytest.mark.full
def test_all_scenarios(tmp_path: Path) -> None:
    drawn = scenarios(SEED)
    with ThreadPoolExecutor(2) as pool:
        folders = [tmp_path / f"{place:02}-{each.name}" for place, each in enumerate(drawn)]
        found = [*pool.map(scored, drawn, folders)]
    for each, (got, said) in zip(drawn, found, strict=True):
        print(f"{got:4} {each.name} {each.victims} at {each.at}: {said}")
    total = sum(got for got, _ in found) / len(found)
    print(f"{total:.1%} of {len(found)}")
    assert total >= TARGET
