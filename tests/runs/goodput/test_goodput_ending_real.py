"""How real trainings end: gloo ranks, a fault drawn at random, and what the report says of it."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.runs import replay
from holdfast.runs.goodput.accounting import breakdown

PROGRAM = Path(__file__).with_name("ending_training.py")
TOLD = {
    "clean": ("clean", False),
    "kill": ("killed", False),
    "exit": ("killed", False),
    "raise": ("exception", False),
    "stop": ("killed", True),
    "freeze": ("signal", True),
    "terminate": ("signal", False),
}
"""Fault -> how the attempt ends, and whether it hung."""
SCENARIOS = [(fault, seed) for fault in TOLD for seed in range(2)]


def train(folder: Path, fault: str, world: int, victim: int, at: int) -> None:
    """Run all ranks to their ends."""
    arguments = [str(each) for each in (world, fault, victim, at)]
    ranks = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder), str(rank), *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for rank in range(world)
    ]
    others = [each for rank, each in enumerate(ranks) if rank != victim or fault != "stop"]
    try:
        if fault in ("freeze", "terminate"):
            while ranks[victim].poll() is None and not (folder / "struck").exists():
                time.sleep(0.05)
            if fault == "freeze":
                time.sleep(2.5)  # longer than ten steps, shorter than the timeout of the group
            for each in ranks:
                each.send_signal(signal.SIGTERM)
        for each in others:
            each.wait(120)
    finally:
        for each in ranks:
            each.kill()
            each.wait()


@pytest.mark.full
@pytest.mark.parametrize(("fault", "seed"), SCENARIOS)
def test_the_end_of_a_real_training(fault: str, seed: int, tmp_path: Path) -> None:
    drawn = random.Random(f"{fault} {seed}")
    world = drawn.choice([2, 3])
    victim = drawn.randrange(world)
    # A rank that stops before the first step keeps the others waiting: nothing says how long is usual.
    first = 0 if fault in ("kill", "exit", "raise") and seed else 3
    at = first and drawn.randint(first, 25)
    train(tmp_path, fault, world, victim, at if fault != "clean" else 1_000)
    (attempt,) = breakdown(tmp_path / "events", now_s=time.time() + 3600).attempts
    assert (attempt.ended, attempt.hung) == TOLD[fault]
    named = fault in ("kill", "exit", "raise", "stop")
    assert attempt.first_rank_gone == (victim if named else None)
    status = replay(tmp_path / "events").to_dict()["ending"]
    assert (status["sentence"], status["first_rank"]) == (attempt.sentence, attempt.first_rank_gone)
    assert attempt.cause == ("ValueError: the shard has no samples" if fault == "raise" else "")
