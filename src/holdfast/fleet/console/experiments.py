"""What-if runs in the background: one at a time, in a process of its own, with progress and a way out.

The process is the leader of a group, so that ending it ends the replicas that it started; it ends
itself when the console is gone.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Condition, Thread
from time import monotonic
from typing import Any, Literal

from holdfast.errors import HoldfastError, InputError
from holdfast.fleet.assumptions import Assumptions
from holdfast.report import Page, parts

MOST_CHANGES = 20
LONGEST_CHANGE = 200
MOST_REPLICAS = 200
MOST_DAYS = 3660.0
MOST_WAITING = 10
MOST_KEPT = 50
POLL_S = 0.5
GRACE_S = 5.0
"""Time from the request to end an experiment to its end by force."""

State = Literal["waiting", "running", "done", "failed", "cancelled"]
FINISHED = ("done", "failed", "cancelled")

WhatIf = Callable[..., Page]
"""`simulate_changes`, or what stands in for it in a test."""


def simulate_changes(
    store: Path,
    changes: list[str],
    *,
    assumptions: Assumptions,
    given: list[str],
    replicas: int,
    days: float | None,
    seed: int,
    processes: int,
    on_progress: Callable[[int, int], None],
) -> Page:
    """The page of `holdfast.fleet.whatif`; the simulator is imported when a run begins.

    Raises:
        InputError: as `whatif`.
    """
    from holdfast.fleet.log import open_log
    from holdfast.fleet.simulation.comparison import whatif
    from holdfast.fleet.simulation.whatif_page import page

    found = whatif(
        open_log(store, assumptions=assumptions),
        changes,
        given=given,
        replicas=replicas,
        days=days,
        seed=seed,
        processes=processes,
        on_progress=on_progress,
    )
    return page(found)


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
            raise InputError(
                "there is no change to try",
                place="changes",
                expected="one a line, such as lemons=off",
            )
        return cls(
            changes,
            _lines(form, "given"),
            int(_number(form, "replicas", 2, MOST_REPLICAS)),
            _number(form, "days", 0.01, MOST_DAYS) if form.get("days", "").strip() else None,
            int(_number(form, "seed", 0, 2**31 - 1)),
        )


def _lines(form: Mapping[str, str], name: str) -> tuple[str, ...]:
    """The changes in a field of several lines, each once."""
    lines = [line.strip() for line in form.get(name, "").splitlines()]
    changes = tuple(dict.fromkeys(line for line in lines if line))
    if len(changes) > MOST_CHANGES:
        raise InputError(
            "these are too many changes at once",
            place=name,
            found=str(len(changes)),
            expected=f"at most {MOST_CHANGES}",
        )
    for change in changes:
        _check(change, name)
    return changes


def _check(change: str, place: str) -> None:
    if len(change) > LONGEST_CHANGE or not change.isprintable():
        raise InputError(
            "a change is no short line of text",
            place=place,
            found=ascii(change[:LONGEST_CHANGE]),
            expected=f"at most {LONGEST_CHANGE} characters",
        )
    from holdfast.fleet.simulation.changes import known, parse

    for edit in parse(change).edits:
        # The console reads its own store only; the command line may replay any.
        if any(leaf.steps[0] == "workload" and leaf.steps[1] in OWN for leaf in known(edit.key)):
            raise InputError(
                "the console does not read another log",
                place=place,
                found=change,
                remedy="use `holdfast fleet whatif` on the command line",
            )


OWN = ("kind", "log")
"""Keys of the workload that say where its jobs come from."""


def _number(form: Mapping[str, str], name: str, least: float, most: float) -> float:
    text = form.get(name, "").strip()
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most or (name != "days" and not value.is_integer()):
        kind = "a number" if name == "days" else "a whole number"
        raise InputError(
            f"{name} makes no sense",
            place=name,
            found=text[:40],
            expected=f"{kind} from {least:g} to {most:,.0f}",
        )
    return value


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
                    "too many experiments wait already",
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


def run(
    pipe: Connection,
    whatif: WhatIf,
    source: tuple[Path, Assumptions],
    request: Request,
    processes: int,
) -> None:
    """Try the changes and tell the console; the target of the process."""
    with suppress(OSError, AttributeError):
        os.setsid()  # type: ignore[attr-defined,unused-ignore]
    Thread(target=_end_with_the_console, args=(pipe,), daemon=True).start()
    try:
        page = whatif(
            source[0],
            list(request.changes),
            assumptions=source[1],
            replicas=request.replicas,
            days=request.days,
            seed=request.seed,
            given=list(request.given),
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
    """The console sends nothing: what arrives is the end of its side of the pipe."""
    with suppress(EOFError, OSError):
        pipe.recv()
    if sys.platform == "win32":
        os._exit(1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def end(process: Any) -> None:
    """Ask a process and those that it started to end."""
    _signal(process, "SIGTERM")


def kill(process: Any) -> None:
    """End a process and those that it started."""
    _signal(process, "SIGKILL")


def _signal(process: Any, name: str) -> None:
    if process is None or process.pid is None:
        return
    try:
        # Its own group, once it has one; never the console's.
        if os.getpgid(process.pid) != os.getpgid(0):
            os.killpg(process.pid, getattr(signal, name))
            return
    except (AttributeError, OSError):
        pass
    with suppress(OSError, ValueError):
        process.terminate() if name == "SIGTERM" else process.kill()
