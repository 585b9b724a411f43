"""The command `holdfast runs watch`."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.console import JsonOption, QuietOption, duration, remark
from holdfast.errors import InputError
from holdfast.plain import plain

if TYPE_CHECKING:
    from holdfast.runs.watching.told import Told, Watched
    from holdfast.runs.watching.watcher import SystemClock


def watch(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Folder that was passed to RunRecorder; waits until it exists."
        ),
    ],
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="ID", help="Run id, if the folder contains several runs."),
    ] = None,
    on_alarm: Annotated[
        str | None,
        typer.Option(
            "--on-alarm",
            metavar="CMD",
            help="Shell command per alarm (only printed without --act). The alarm is in "
            "HOLDFAST_ALARM, HOLDFAST_RANKS, ... and as JSON on standard input.",
        ),
    ] = None,
    act: Annotated[
        bool, typer.Option("--act", help="Run the --on-alarm command, once per alarm.")
    ] = False,
    act_timeout: Annotated[
        float,
        typer.Option(
            "--act-timeout",
            parser=duration,
            metavar="DURATION",
            help="Time limit for the command.",
        ),
    ] = 300.0,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics",
            metavar="HOST:PORT",
            help="Serve Prometheus metrics; PORT alone binds to localhost; 0 picks a free port.",
        ),
    ] = None,
    poll: Annotated[
        float,
        typer.Option("--poll", parser=duration, metavar="DURATION", help="Polling interval."),
    ] = 5.0,
    once: Annotated[
        bool,
        typer.Option("--once", help="Check once and exit with 1 if an alarm is open."),
    ] = False,
    replay: Annotated[
        bool,
        typer.Option(
            "--replay",
            help="Print the alarms that the recorded history would have raised.",
        ),
    ] = False,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep",
            help="Keep watching when the run has finished, for a run that is resumed later.",
        ),
    ] = False,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Set a threshold, such as hang_s=5m or slow_factor=2. Repeatable.",
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            metavar="FILE",
            help="File that stores open alarms (default: watch.json in the run's folder).",
        ),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Watch a run as it trains: raise alarms, run a command for each, serve Prometheus metrics.

    Exits when all ranks have finished cleanly. With --json, one object per line: alarms that open and
    close, and the status at the end.
    """
    _refuse_what_cannot_be(act, on_alarm, replay, once, metrics, poll)
    from holdfast.runs.watching import watcher
    from holdfast.runs.watching.plain_text import printable
    from holdfast.runs.watching.thresholds import DEFAULTS

    limits = DEFAULTS.changed(changes or [])

    new: set[str] = set()

    def tell(told: Told) -> None:
        new.add(told.change.alarm.id)
        text = json.dumps(plain(told.to_dict()), allow_nan=False) if as_json else told.line()
        print(text, flush=True)

    if replay:
        _end(watcher.replay(folder, run, limits=limits, poll_s=poll, on_told=tell), as_json, False)
        return
    clock = watcher.SystemClock()
    with _ended_by_sigterm(clock):
        result = watcher.watch(
            folder,
            run,
            limits=limits,
            poll_s=poll,
            once=once,
            keep=keep,
            command=on_alarm,
            act=act,
            timeout_s=act_timeout,
            metrics=metrics,
            state=state,
            on_told=tell,
            remark=lambda text: remark(text, quiet),
            clock=clock,
        )
    if once and not as_json:
        for alarm in result.open:
            if alarm.id not in new:  # told by an earlier look
                print(printable(f"{alarm.id} still open, {alarm.severity}: {alarm.sentence}"))
    _end(result, as_json, once)


def _end(result: Watched, as_json: bool, once: bool) -> None:
    print(json.dumps(plain(result.to_dict()), allow_nan=False) if as_json else result.line())
    if once and result.open:
        raise typer.Exit(1)


def _refuse_what_cannot_be(
    act: bool, on_alarm: str | None, replay: bool, once: bool, metrics: str | None, poll: float
) -> None:
    if act and on_alarm is None:
        raise InputError(
            "--act has nothing to run", code="missing-key", remedy="name a command with --on-alarm"
        )
    if replay and (act or once or metrics is not None):
        raise InputError(
            "a replay looks at what is over: it acts on nothing and serves nothing",
            code="conflict",
            remedy="leave out --act, --once and --metrics, or --replay",
        )
    if poll <= 0:
        raise InputError(
            "the time between two looks must be above zero",
            code="out-of-range",
            found=f"--poll {poll:g}",
        )


@contextmanager
def _ended_by_sigterm(clock: SystemClock) -> Iterator[None]:
    """A request to end is told to the clock, so that the watching ends in order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        clock.ended = True

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
