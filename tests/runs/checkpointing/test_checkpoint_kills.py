"""kill -9 at any moment leaves a checkpoint that loads, is undamaged, and holds the right values."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

pytest.importorskip("torch")

import checkpoint_ranks as ranks

from holdfast.runs.checkpointing.folder import look, verify_all

STEPS, FEW = 400, 40
"""More than any killed training reaches, and more than one that is killed twice."""


class Survivor:
    """A training of two ranks that is killed again and again, and must always go on rightly."""

    def __init__(self, scratch: Path, steps: int = STEPS) -> None:
        self.scratch = scratch
        self.steps = steps
        self.folder = scratch / "checkpoints"
        self.note = scratch / "note"
        self.expected = ranks.together(ranks.straight, scratch, steps=steps)[0]
        self.reached = 0

    def arguments(self, **more: int) -> dict[str, object]:
        return {"checkpoints": str(self.folder), "note": str(self.note), **more}

    def killed_before_call(self, call: int, rank: int) -> int:
        """Die before a call that reaches the disk; gives the step of the latest checkpoint."""
        arguments = self.arguments(steps=self.steps, killed_at=call, killed_rank=rank)
        with ranks.running(ranks.train, self.scratch, **arguments) as pair:
            assert pair.first_end()
            pair.kill()
            codes = [process.exitcode for process in pair.processes]
            assert codes[rank] == -9, (codes, pair.said())
        return self.check()

    def killed_after(self, seconds: float, saves: int) -> int:
        """Die at a moment that nobody chose, when so many further checkpoints are there."""
        with ranks.running(ranks.train, self.scratch, **self.arguments(steps=self.steps)) as pair:
            while self.newest() < self.reached + saves:
                assert not pair.first_end(0.01), pair.said()
            assert not pair.first_end(seconds), pair.said()
            pair.kill()
        return self.check()

    def newest(self) -> int:
        """The highest step whose checkpoint has its name, while a training goes on."""
        names = [path.name for path in self.folder.glob("step-*")]
        return max((int(name.removeprefix("step-")) for name in names), default=0)

    def check(self) -> int:
        """What the kill left, by its checksums; and what the training before it had loaded."""
        if self.note.exists():
            loaded = json.loads(self.note.read_text())
            assert loaded["digest"] == self.expected[loaded["step"]]
            assert loaded["step"] == self.reached, "it went on from the latest checkpoint"
            self.note.unlink()  # the next training may die before it has loaded
        if not self.folder.exists():
            return 0
        found = verify_all(look(self.folder))
        assert not found.damaged
        assert not found.foreign
        latest = found.complete[-1].step if found.complete else 0
        assert latest >= self.reached, "a published checkpoint is never lost"
        self.reached = latest
        return latest

    def end(self) -> None:
        """Train on undisturbed for a few steps: bit for bit what was expected."""
        last = self.reached + 3
        answers = ranks.together(ranks.train, self.scratch, **self.arguments(steps=last))
        assert [answer["digest"] for answer in answers] == [self.expected[last]] * 2
        self.check()
        assert self.reached == last
        left = look(self.folder)
        assert not left.unfinished, "what the dead left is gone"
        assert len(left.complete) == 2, "and what they would have removed"


def calls_of_saves(survivor: Survivor, saves: int) -> list[int]:
    """How many calls each rank makes that reach the disk."""
    last = survivor.reached + saves
    answers = ranks.together(ranks.train, survivor.scratch, **survivor.arguments(steps=last))
    survivor.check()
    return [answer["calls"] for answer in answers]


@pytest.mark.full
def test_killed_at_chosen_calls(tmp_path: Path) -> None:
    survivor = Survivor(tmp_path, FEW)
    calls = calls_of_saves(survivor, 3)
    chance = random.Random(1)
    for trial in range(2):
        rank = trial % 2
        survivor.killed_before_call(chance.randrange(calls[rank]), rank)
    survivor.end()


@pytest.mark.full
@pytest.mark.parametrize("rank", [0, 1])
def test_killed_before_every_call(tmp_path: Path, rank: int) -> None:
    """Every call by which the second and third save of a process reach the disk, one after the other."""
    survivor = Survivor(tmp_path)
    calls = calls_of_saves(survivor, 3)[rank]
    assert calls > 20
    for call in range(calls):
        survivor.killed_before_call(call, rank)
    survivor.end()


@pytest.mark.full
def test_killed_at_random_moments(tmp_path: Path) -> None:
    survivor = Survivor(tmp_path)
    chance = random.Random(2)
    progress = set()
    for trial in range(40):
        # While it starts, or soon after a save: how far it comes in a second is the machine's affair.
        saves = trial % 2
        seconds = chance.uniform(0.0, 0.2) if saves else chance.uniform(0.3, 1.5)
        progress.add(survivor.killed_after(seconds, saves))
        if survivor.reached > STEPS - 150:
            break
    assert len(progress) > 5, "kills at different places"
    survivor.end()
