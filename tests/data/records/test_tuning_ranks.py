"""Two ranks under DDP: they agree on scores and choices, whatever each measured."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch.distributed")
pytestmark = pytest.mark.full  # two processes that train

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What each rank printed."""
    meeting = tmp_path_factory.mktemp("ranks") / "meeting"
    done = subprocess.run(
        [sys.executable, "-W", "error", HERE / "tuning_rank.py", meeting],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = sorted(map(json.loads, done.stdout.splitlines()), key=lambda one: one["rank"])
    assert [one["rank"] for one in told] == [0, 1]
    return told


def test_the_scores_agreed_on_are_the_mean_over_ranks(told):
    ours, theirs = (one["own"] for one in told)
    assert ours != theirs
    for epoch, choice in enumerate(told[0]["history"]):
        mean = [(a + b) / 2 for a, b in zip(ours[epoch], theirs[epoch], strict=True)]
        assert [one["score"] for one in choice["scores"]] == pytest.approx(mean, abs=1e-12)
        assert choice["scores"][0]["freedom"] == 6  # four batches less one, on two ranks


def test_all_ranks_choose_the_same_and_know_what_binds(told):
    assert told[0]["history"] == told[1]["history"]
    assert {one["storage_bound"] for one in told[0]["history"]} == {True}
    assert told[0]["loss"] == told[1]["loss"]
    assert told[0]["loss"][-1] == pytest.approx(1.5)


def test_probes_leave_the_ranks_and_their_gradients_alone(told):
    assert told[0]["untouched"] == told[1]["untouched"] == [True, True, True]
    assert told[0]["weights"] == told[1]["weights"]


def test_a_probe_that_fails_on_one_rank_ends_them_all(told):
    assert [one["failed"] for one in told] == ["OSError", "OtherRankFailed"]
