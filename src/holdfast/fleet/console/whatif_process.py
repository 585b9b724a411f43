"""The process of one what-if run: what it does, what it tells the console, and how it is ended.

It is the leader of a group, so that ending it ends the simulations that it started; it ends itself when
the console is gone.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.fleet.assumptions import Assumptions
from holdfast.fleet.console.whatif_request import Request
from holdfast.report import Page, parts

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
