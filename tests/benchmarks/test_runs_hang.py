"""The benchmark's records are what PyTorch writes, and hang as they say."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

import runs_hang
from flight_records import Pickler, write_job
from holdfast.runs.flight.verdict import hang

REAL = Path(__file__).parents[1] / "runs" / "flight" / "dumps"


@pytest.mark.parametrize(
    "file", sorted(REAL.glob("nccl/*/pickle/*_0")) + sorted(REAL.glob("gloo/*/pickle/*_0")), ids=str
)
def test_the_pickler_writes_what_pytorch_wrote(file: Path) -> None:
    content = file.read_bytes()
    assert Pickler().dumps(pickle.loads(content)) == content


@pytest.mark.parametrize("as_json", [False, True])
def test_the_rank_that_stopped_is_found(tmp_path: Path, as_json: bool) -> None:
    culprit = write_job(tmp_path, world=32, entries=100, as_json=as_json)
    found = hang(tmp_path)
    assert found.missing_ranks == (culprit,)
    assert found.group == "tp"
    assert len(found.evidence.operations) == 9
    assert found.evidence.lost["ranks"] == 32


@pytest.mark.full
def test_the_benchmark_runs(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    result = tmp_path / "result.json"
    sizes = ["--world", "32", "--small", "16", "--entries", "100", "--repeats", "1"]
    runs_hang.main([*sizes, "--work", str(tmp_path), "--result", str(result)])
    told = json.loads(result.read_text())
    assert {row["peer"] for row in told["comparisons"]} == {"torchfrtrace"}
    assert told["figures"]["large"]["runs"] == 1
