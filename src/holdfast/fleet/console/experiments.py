"""What-if runs in the background: one at a time, in a process that can be ended, with its progress.

The process leads a group of its own, so that ending it ends the simulations that it started. It ends
itself when the console's side of its pipe is closed, however the console ended.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from threading import Lock, Thread
from time import monotonic
from typing import Any, Literal

from holdfast.errors import HoldfastError, InputError
from holdfast.fleet.assumptions import Assumptions
from holdfast.report import Page, parts

MOST_KEPT = 50
MOST_CHANGES = 20
LONGEST_CHANGE = 200
MOST_REPLICAS = 200
MOST_DAYS = 3660.0
OWN = ("kind", "log")
"""Keys of the workload that say where its jobs come from."""

State = Literal["running", "done", "failed", "cancelled"]
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


@dataclass(frozen=True)
class Request:
    """What is asked."""

    changes: tuple[str, ...]
    given: tuple[str, ...]
    """Changes that hold before and after: what is true of the fleet and not in its log."""
    replicas: int
    days: float | None
    """Simulated time; None: as long as the log, and long enough for large runs."""
    seed: int

    @classmethod
    def from_form(cls, form: Mapping[str, str]) -> Request:
        """The request of a form: changes and given (one a line), replicas, days, seed.

        Raises:
            InputError: naming the field that makes no sense.
        """
        changes = _lines(form, "changes")
        if not changes:
            raise _refused("no-data", "changes", "", "one change a line, such as lemons=off")
        return cls(
            changes,
            _lines(form, "given"),
            int(_number(form, "replicas", 2, MOST_REPLICAS)),
            _number(form, "days", 0.01, MOST_DAYS) if form.get("days", "").strip() else None,
            int(_number(form, "seed", 0, 2**31 - 1)),
        )


def _refused(code: str, place: str, found: str, expected: str) -> InputError:
    return InputError(
        f"invalid {place}", code=code, place=place, found=found[:LONGEST_CHANGE], expected=expected
    )


def _lines(form: Mapping[str, str], name: str) -> tuple[str, ...]:
    """The changes in a field of several lines, each once."""
    from holdfast.fleet.simulation.changes import known, parse

    lines = [line.strip() for line in form.get(name, "").splitlines()]
    changes = tuple(dict.fromkeys(line for line in lines if line))
    if len(changes) > MOST_CHANGES:
        raise _refused("too-many-changes", name, str(len(changes)), f"at most {MOST_CHANGES}")
    for change in changes:
        if len(change) > LONGEST_CHANGE or not change.isprintable():
            limit = f"one short line, at most {LONGEST_CHANGE} characters"
            raise _refused("invalid-syntax", name, ascii(change), limit)
        leaves = [leaf.steps for edit in parse(change).edits for leaf in known(edit.key)]
        if any(steps[0] == "workload" and steps[1] in OWN for steps in leaves):
            # The console reads its own store only; the command line may replay any.
            raise _refused("conflict", name, change, "the console's own log")
    return changes


def _number(form: Mapping[str, str], name: str, least: float, most: float) -> float:
    text = form.get(name, "").strip()
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most or (name != "days" and not value.is_integer()):
        kind = "a number" if name == "days" else "a whole number"
        raise _refused("invalid-value", name, text, f"{kind} from {least:g} to {most:,.0f}")
    return value


@dataclass
class Experiment:
    """One run."""

    number: int
    request: Request
    process: SpawnProcess
    pipe: Connection
    """What the process says: (kind, what)."""
    state: State = "running"
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
    started_s: float = field(default_factory=monotonic)
    seconds: float = 0.0
    """How long it ran."""

    def to_dict(self) -> dict[str, Any]:
        """What the page polls."""
        share = self.done / self.total if self.total else 0.0
        now = self.seconds or monotonic() - self.started_s
        left = now * (1 - share) / share if self.state == "running" and share else None
        names = ("number", "state", "done", "total")
        told = {name: getattr(self, name) for name in names}
        return {**told, "seconds": now, "seconds_left": left}

    def update(self) -> None:
        """Take in what the process has said since."""
        kind: str
        said: Any
        with suppress(OSError):
            while self.state == "running" and self.pipe.poll():
                try:
                    kind, said = self.pipe.recv()
                except EOFError:
                    self.process.join()
                    kind, said = (
                        "failed",
                        (
                            f"the process of the run ended early (exit code {self.process.exitcode})\n"
                            "  remedy: try fewer replicas or days; it may have run out of memory"
                        ),
                    )
                if kind == "progress":
                    self.done, self.total = said
                elif kind == "done":
                    self.page, self.sections = said
                    self.end("done")
                else:
                    self.error = said
                    self.end("failed")

    def end(self, state: State) -> None:
        """End the process and those that it started; nothing that they do must be finished."""
        self.state, self.seconds = state, monotonic() - self.started_s
        with suppress(OSError):
            if sys.platform != "win32":
                os.killpg(self.process.pid or 0, signal.SIGKILL)
        self.process.kill()
        self.process.join()
        self.pipe.close()


class Experiments:
    """The runs of a console.

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
        self._all: list[Experiment] = []
        self._count = 0
        self._lock = Lock()

    def submit(self, request: Request) -> Experiment:
        """Begin a run.

        Raises:
            InputError: if another is running.
        """
        if any(each.state == "running" for each in self.latest()):
            raise InputError(
                "another run is going on", code="busy", remedy="wait for it, or cancel it"
            )
        ours, theirs = get_context("spawn").Pipe()
        process = get_context("spawn").Process(
            target=_try, args=(theirs, *self._whatif, request, self._processes)
        )
        with self._lock:
            process.start()
            theirs.close()
            self._count += 1
            made = Experiment(self._count, request, process, ours)
            self._all = [*self._all, made][-MOST_KEPT:]
        return made

    def get(self, number: int) -> Experiment | None:
        """A run by its number; None if there is none (any more)."""
        return next((each for each in self.latest() if each.number == number), None)

    def latest(self) -> list[Experiment]:
        """All that are remembered, the latest first."""
        with self._lock:
            for each in self._all:
                each.update()
            return self._all[::-1]

    def cancel(self, number: int) -> None:
        """End a run."""
        for each in self.latest():
            if each.state == "running" and each.number == number:
                each.end("cancelled")

    def close(self) -> None:
        """End what runs."""
        for each in self.latest():
            self.cancel(each.number)


# --- In the process ------------------------------------------------------------------------------


def _try(
    pipe: Connection,
    whatif: WhatIf,
    store: Path,
    assumptions: Assumptions,
    request: Request,
    processes: int,
) -> None:
    """Try the changes and tell the console."""
    if sys.platform != "win32":
        os.setsid()
    Thread(target=_end_with_the_console, args=(pipe,), daemon=True).start()
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
            on_progress=lambda done, total: pipe.send(("progress", (done, total))),
        )
        # Charts are drawn here: the console does not wait for them.
        laid = [parts.lay_out(section) for section in page.sections]
        pipe.send(("done", (replace(page, sections=()), laid)))
    except HoldfastError as error:
        pipe.send(("failed", str(error)))
    except Exception as error:  # the console must learn of it; the traceback goes to its terminal
        pipe.send(("failed", f"the simulation stopped: {type(error).__name__}: {error}"))
        raise


def _end_with_the_console(pipe: Connection) -> None:
    """The console sends nothing: what arrives is the end of its side."""
    with suppress(EOFError, OSError):
        pipe.recv()
    if sys.platform != "win32":
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
