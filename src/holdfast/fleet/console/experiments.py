"""What-if runs in the background: one at a time, in a process that can be ended, with its progress.

The process leads a group of its own, so that ending it ends the simulations that it started. Its standard
input says what to try and then stays open: it ends itself when the console's side is closed, however the
console ended. What it has to say comes as pickles on its standard output.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import Any, Literal

from holdfast.errors import HoldfastError, InputError
from holdfast.fleet.assumptions import Assumptions
from holdfast.fleet.console.whatif_request import Request
from holdfast.report import Page, parts

MOST_WAITING = 10
MOST_KEPT = 50
PROGRAM = "from holdfast.fleet.console.experiments import main; main()"

State = Literal["waiting", "running", "done", "failed", "cancelled"]
ACTIVE = ("waiting", "running")
WhatIf = Callable[..., Page]
"""`simulate_changes`, or what stands in for it in a test."""


def simulate_changes(store: Path, assumptions: Assumptions, **options: Any) -> Page:
    """The page of `holdfast.fleet.whatif`; the simulator is imported when a run begins.

    Raises:
        InputError: as `whatif`.
    """
    from holdfast.fleet.log import open_log
    from holdfast.fleet.simulation.comparison import whatif

    return whatif(open_log(store, assumptions=assumptions), **options).page()


@dataclass
class Experiment:
    """One run."""

    number: int
    request: Request
    state: State = "waiting"
    done: int = 0
    """Simulations done ..."""
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
        whatif: the function that tries them; another process calls it, so it must be importable.
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
        self._whatif = (whatif, store, assumptions)
        self._processes = processes or max(1, (os.cpu_count() or 2) - 1)
        self._numbers = count(1)
        self._all: dict[int, Experiment] = {}
        self._queue: SimpleQueue[Experiment | None] = SimpleQueue()
        self._lock = Lock()  # of the states, and of what runs
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: Thread | None = None

    def submit(self, request: Request) -> Experiment:
        """Put an experiment into the queue.

        Raises:
            InputError: if too many wait already.
        """
        with self._lock:
            if sum(each.state == "waiting" for each in self._all.values()) >= MOST_WAITING:
                raise InputError(
                    "too many experiments are waiting",
                    code="busy",
                    found=str(MOST_WAITING),
                    remedy="cancel one, or come back when one is done",
                )
            made = Experiment(next(self._numbers), request)
            self._all[made.number] = made
            over = [each.number for each in self._all.values() if each.state not in ACTIVE]
            for old in over[: max(0, len(self._all) - MOST_KEPT)]:
                del self._all[old]
            self._queue.put(made)
            if self._thread is None:
                self._thread = Thread(target=self._work, daemon=True)
                self._thread.start()
        return made

    def get(self, number: int) -> Experiment | None:
        """An experiment by its number; None if there is none (any more)."""
        with self._lock:
            return self._all.get(number)

    def latest(self) -> list[Experiment]:
        """All that are remembered, the latest first."""
        with self._lock:
            return sorted(self._all.values(), key=lambda each: -each.number)

    def cancel(self, number: int) -> None:
        """End an experiment that waits or runs."""
        with self._lock:
            self._cancel([each for each in self._all.values() if each.number == number])

    def close(self) -> None:
        """End what runs and take nothing more."""
        with self._lock:
            self._cancel(list(self._all.values()))
            self._queue.put(None)
        if self._thread is not None:
            self._thread.join()

    def _cancel(self, those: list[Experiment]) -> None:
        for each in those:
            if each.state == "running" and self._process is not None:
                _kill(self._process)
            if each.state in ACTIVE:
                each.state = "cancelled"

    def _work(self) -> None:
        while (each := self._queue.get()) is not None:
            with self._lock:
                if each.state != "waiting":
                    continue
                each.state, each.started_s = "running", monotonic()
                self._process = process = subprocess.Popen(
                    [sys.executable, "-c", PROGRAM],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    start_new_session=True,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                )
            with process:
                self._follow(each, process)

    def _follow(self, each: Experiment, process: subprocess.Popen[bytes]) -> None:
        """Say what to try, and take in what the process says until it is gone."""
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(EOFError, OSError, pickle.UnpicklingError):
            pickle.dump((*self._whatif, each.request, self._processes), process.stdin)
            process.stdin.flush()
            while each.state == "running":
                kind, said = pickle.load(process.stdout)
                with self._lock:
                    self._note(each, kind, said)
        if each.state == "running":  # the end of its output is its own end
            process.wait()
        with self._lock:
            each.seconds = monotonic() - each.started_s
            if each.state == "running":
                each.state = "failed"
                each.error = (
                    f"the process of the experiment ended early (exit code {process.returncode})\n"
                    "  remedy: try fewer replicas or days; it may have run out of memory"
                )
            _kill(process)
            self._process = None

    def _note(self, each: Experiment, kind: str, said: Any) -> None:
        if each.state != "running":
            return
        if kind == "progress":
            each.done, each.total = said
        elif kind == "done":
            each.page, each.sections = said
            each.state = "done"
        else:
            each.error = said
            each.state = "failed"


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it started; nothing that they do must be finished."""
    with suppress(OSError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)


# --- In the process ------------------------------------------------------------------------------


def main() -> None:
    """Try the changes that standard input names and tell the console."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed by mistake goes to the console's terminal

    def tell(kind: str, what: Any) -> None:
        pickle.dump((kind, what), out)
        out.flush()

    whatif, store, assumptions, request, processes = pickle.load(sys.stdin.buffer)
    Thread(target=_end_with_the_console, daemon=True).start()
    try:
        page = whatif(
            store,
            assumptions,
            changes=list(request.changes),
            given=list(request.given),
            replicas=request.replicas,
            days=request.days,
            seed=request.seed,
            processes=processes,
            on_progress=lambda done, total: tell("progress", (done, total)),
        )
        # Charts are drawn here: the console does not wait for them.
        laid = [parts.lay_out(section) for section in page.sections]
        tell("done", (replace(page, sections=()), laid))
    except HoldfastError as error:
        tell("failed", str(error))
    except Exception as error:  # the console must learn of it; the traceback goes to its terminal
        tell("failed", f"the simulation stopped: {type(error).__name__}: {error}")
        raise


def _end_with_the_console() -> None:
    """The console sends nothing more: what arrives is the end of its side."""
    sys.stdin.buffer.read()
    if sys.platform == "win32":
        os._exit(1)
    os.killpg(0, signal.SIGKILL)
