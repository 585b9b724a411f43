"""Events of a run, written by hand: what the lookout is given in the tests of the watcher."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.runs.recording.events import Process
from holdfast.runs.recording.lines import Event
from holdfast.runs.watching.alarms import Change
from holdfast.runs.watching.lookout import Lookout
from holdfast.runs.watching.replaying import Known, replayed
from holdfast.runs.watching.thresholds import DEFAULTS, Thresholds
from simulated_training import START_S, line, process


@dataclass
class Story:
    """A run that is told step by step; every method moves the time on."""

    ranks: int = 2
    attempt: int = 0
    now: float = 0.0
    opened: float = 0.0
    events: list[Known] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)
    """Ranks that write no more."""

    def begin(self, *, only: set[int] | None = None, ready: bool = True) -> Story:
        """Start an attempt, of some ranks."""
        self.opened = self.now
        self.lost = set(range(self.ranks)) - (only if only is not None else set(range(self.ranks)))
        self.say("start")
        if ready:
            self.say("ready")
        return self

    def again(self, *, after: float = 30.0, **begin: Any) -> Story:
        """A further attempt."""
        self.now += after
        self.attempt += 1
        return self.begin(**begin)

    def say(self, kind: str, *, rank: int | None = None, **fields: Any) -> Story:
        """One event of a rank, or of all that still write."""
        for one in range(self.ranks) if rank is None else [rank]:
            if one in self.lost:
                continue
            who = process(one, self.ranks, self.attempt, START_S + self.opened)
            event = Event(kind, self.now - self.opened, **fields)
            self.events.append((self.now, who, event, self.opened))
        return self

    def steps(self, first: int, last: int, seconds: float = 1.0, **fields: Any) -> Story:
        """Steps of all ranks, both numbers included."""
        for step in range(first, last + 1):
            self.now += seconds
            self.say("step", step=step, seconds=seconds, **fields)
        return self

    def alive(self, seconds: float, every: float = 1.0) -> Story:
        """Nothing but heartbeats."""
        end = self.now + seconds
        while self.now + every <= end:
            self.now += every
            self.say("alive")
        self.now = end
        return self

    def within(self, kind: str, seconds: float) -> Story:
        """A span with its begin, and heartbeats inside."""
        self.say("begin", what=kind).alive(seconds)
        return self.say(kind, seconds=seconds, step=1)

    def told(self, limits: Thresholds = DEFAULTS, until: float | None = None) -> list[Change]:
        """The alarms of a lookout that looked every five seconds."""
        lookout = Lookout(limits)
        changes = [change for _, change in replayed(lookout, self.events, 5.0)]
        at = self.now
        while until is not None and at < until:
            at += 5.0
            changes += lookout.look(at)
        return changes

    def kinds(self, limits: Thresholds = DEFAULTS, until: float | None = None) -> list[str]:
        """Of the alarms, as ``"+hang"`` and ``"-hang"``."""
        return [
            ("+" if change.event == "opened" else "-") + change.alarm.kind
            for change in self.told(limits, until)
        ]


@dataclass
class Files:
    """The files of a run, into which events of a story are written as they come."""

    folder: Path
    run_id: str = "toy"
    written: int = 0

    @property
    def own(self) -> Path:
        return self.folder / self.run_id

    def path(self, who: Process) -> Path:
        return self.own / f"rank-{who.rank:05d}-{int(who.opened_s * 1000)}-{who.pid}.jsonl"

    def write(self, story: Story, until: float = float("inf")) -> None:
        """All events of the story that were not written yet, up to a time of it."""
        self.own.mkdir(parents=True, exist_ok=True)
        while self.written < len(story.events) and story.events[self.written][0] <= until:
            _, who, event, _ = story.events[self.written]
            self.written += 1
            told = line(who, event)
            told |= {"run_id": self.run_id} if event.event == "start" else {}
            with self.path(who).open("a", encoding="utf-8") as file:
                file.write(json.dumps(told) + "\n")
