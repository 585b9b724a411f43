"""What-if runs in the background: one at a time, in a process of its own, with progress and a way out."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Condition, Thread
from time import monotonic
from typing import Any, Literal

from holdfast.errors import InputError
from holdfast.fleet.assumptions import Assumptions
from holdfast.fleet.console.whatif_process import WhatIf, end, kill, run
from holdfast.fleet.console.whatif_request import Request
from holdfast.report import Page

MOST_WAITING = 10
MOST_KEPT = 50
POLL_S = 0.5
GRACE_S = 5.0
"""Time from the request to end an experiment to its end by force."""

State = Literal["waiting", "running", "done", "failed", "cancelled"]
FINISHED = ("done", "failed", "cancelled")


@dataclass
class Experiment:
    """One run; the queue's lock guards its fields."""

    number: int
    request: Request
    state: State = "waiting"
    done: int = 0
    """Steps done ..."""
    total: int = 0
    """... of so many; 0 before the first is known."""
    page: Page | None = None
    """What came out, without the sections ..."""
    sections: list[dict[str, Any]] = field(default_factory=list)
    """... which are laid out already (`holdfast.report.parts.lay_out`)."""
    error: str = ""
    """Why it failed."""
    started_s: float = 0.0
    seconds: float = 0.0
    """How long it ran."""

    def to_dict(self) -> dict[str, Any]:
        """What the page polls."""
        share = self.done / self.total if self.total else 0.0
        now = self.seconds or (monotonic() - self.started_s if self.started_s else 0.0)
        left = now * (1 - share) / share if self.state == "running" and share else None
        return {
            "number": self.number,
            "state": self.state,
            "done": self.done,
            "total": self.total,
            "seconds": now,
            "seconds_left": left,
        }


class Experiments:
    """The queue of a console.

    Args:
        store: whose log the changes are tried on ...
        assumptions: ... with what is assumed where it is silent.
        whatif: the function that tries them; a process of its own calls it, so it must be importable.
        processes: how many replicas may run at once.
    """

    def __init__(
        self,
        store: Path,
        assumptions: Assumptions,
        whatif: WhatIf,
        *,
        processes: int | None = None,
    ) -> None:
        self._source = (store, assumptions)
        self._whatif = whatif
        self._processes = processes or max(1, (os.cpu_count() or 2) - 1)
        self._numbers = count(1)
        self._all: dict[int, Experiment] = {}
        self._change = Condition()
        self._process: Any = None
        self._closed = False
        self._thread: Thread | None = None

    def submit(self, request: Request) -> Experiment:
        """Put an experiment into the queue.

        Raises:
            InputError: if too many wait already.
        """
        with self._change:
            if sum(each.state == "waiting" for each in self._all.values()) >= MOST_WAITING:
                raise InputError(
                    "too many experiments are waiting",
                    code="busy",
                    found=str(MOST_WAITING),
                    remedy="cancel one, or come back when one is done",
                )
            made = Experiment(next(self._numbers), request)
            self._all[made.number] = made
            finished = [each for each in self._all.values() if each.state in FINISHED]
            for old in finished[: max(0, len(self._all) - MOST_KEPT)]:
                del self._all[old.number]
            if self._thread is None:
                # Before multiprocessing's own, which would wait for the process to end by itself.
                atexit.register(self.close)
                self._thread = Thread(target=self._work, daemon=True)
                self._thread.start()
            self._change.notify_all()
        return made

    def get(self, number: int) -> Experiment | None:
        """An experiment by its number; None if there is none (any more)."""
        with self._change:
            return self._all.get(number)

    def latest(self) -> list[Experiment]:
        """All that are remembered, the latest first."""
        with self._change:
            return sorted(self._all.values(), key=lambda each: -each.number)

    def cancel(self, number: int) -> None:
        """End an experiment that waits or runs."""
        with self._change:
            found = self._all.get(number)
            if found is None or found.state in FINISHED:
                return
            running = found.state == "running"
            found.state = "cancelled"
            if running:
                end(self._process)
            self._change.notify_all()

    def close(self) -> None:
        """End what runs and take nothing more."""
        atexit.unregister(self.close)
        with self._change:
            self._closed = True
            for each in self._all.values():
                if each.state not in FINISHED:
                    each.state = "cancelled"
            end(self._process)
            self._change.notify_all()
        if self._thread is not None:
            self._thread.join(GRACE_S + 1)

    def _work(self) -> None:
        while True:
            with self._change:
                waiting: Experiment | None = None
                while waiting is None and not self._closed:
                    queue = (each for each in self._all.values() if each.state == "waiting")
                    waiting = next(queue, None)
                    if waiting is None:
                        self._change.wait()
                if self._closed or waiting is None:
                    return
                waiting.state = "running"
                waiting.started_s = monotonic()
                ours, theirs = get_context("spawn").Pipe()
                self._process = get_context("spawn").Process(
                    target=run,
                    args=(theirs, self._whatif, self._source, waiting.request, self._processes),
                    name=f"what-if {waiting.number}",
                )
                self._process.start()
            theirs.close()
            self._follow(waiting, ours)

    def _follow(self, experiment: Experiment, pipe: Connection) -> None:
        """Take in what the process says until it is gone."""
        with pipe:
            for kind, said in self._messages(experiment, pipe):
                with self._change:
                    self._note(experiment, kind, said)
                if kind in ("done", "failed"):
                    break
            self._process.join(GRACE_S)
            if self._process.is_alive():
                kill(self._process)
                self._process.join()
        with self._change:
            if experiment.state in ("running", "cancelled"):
                experiment.seconds = monotonic() - experiment.started_s
            if experiment.state == "running":
                experiment.state = "failed"
                experiment.error = (
                    f"the process of the experiment ended early (exit code {self._process.exitcode})\n"
                    "  remedy: try fewer replicas or days; it may have run out of memory"
                )
            self._process.close()
            self._process = None

    def _messages(self, experiment: Experiment, pipe: Connection) -> Iterator[tuple[str, Any]]:
        """What the process says, until it is gone; one that does not heed a cancel is killed."""
        cancelled_s: float | None = None
        with suppress(EOFError, OSError):
            while True:
                if pipe.poll(POLL_S):
                    yield pipe.recv()
                elif not self._process.is_alive():
                    return
                if experiment.state == "cancelled":
                    cancelled_s = cancelled_s or monotonic()
                    if monotonic() - cancelled_s > GRACE_S:
                        kill(self._process)

    def _note(self, experiment: Experiment, kind: str, said: Any) -> None:
        if experiment.state != "running":
            return
        if kind != "progress":
            experiment.seconds = monotonic() - experiment.started_s
        if kind == "progress":
            experiment.done, experiment.total = said
        elif kind == "done":
            experiment.page, experiment.sections = said
            experiment.state = "done"
        else:
            experiment.error = said
            experiment.state = "failed"
