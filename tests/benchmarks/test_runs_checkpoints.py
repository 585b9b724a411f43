"""The benchmark of checkpoints runs, and is rendered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

import render
import runs_checkpoints


@pytest.mark.full
def test_every_contender_is_measured(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    given = {"megabytes": 2, "saves": 2, "repeats": 1, "work": tmp_path, "result": result}
    runs_checkpoints.main(
        [part for key, value in given.items() for part in (f"--{key}", str(value))]
    )
    facts = json.loads(result.read_text(encoding="utf-8"))
    assert len(facts["comparisons"]) == 12
    assert {row["peer"] for row in facts["comparisons"]} == {
        "torch.save",
        "DCP save",
        "DCP async_save",
    }
    assert all(row["ours_s"] > 0 and row["peer_s"] > 0 for row in facts["comparisons"])
    assert "| holdfast on 2 blocking |" in render._section(facts)
    assert not list(tmp_path.glob("checkpoints-*")), "nothing is left on the disk"
