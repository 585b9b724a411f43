"""A history through a lookout, by the events' own time: the same looks, without the waiting."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from typing import TYPE_CHECKING

from holdfast.runs.watching.alarms import Change
from holdfast.runs.watching.lookout import Lookout
from holdfast.runs.watching.run_clock import RunClock

if TYPE_CHECKING:
    from holdfast.runs.recording.events import Process
    from holdfast.runs.recording.lines import Event
    from holdfast.runs.recording.tailing import Happening

Known = tuple[float, "Process", "Event", float]
"""(run time at which it became known, who wrote it, the event, run time of its process's ``t`` 0)."""


def in_order(streams: Iterable[Iterable[Happening]], clock: RunClock) -> Iterator[Known]:
    """Events by the run time at which they happened; those of one process stay as written.

    Args:
        streams: the events of one process each; read as they are needed.
        clock: places the processes.
    """
    begun = []
    for stream in streams:
        events = iter(stream)
        first = next(events, None)
        if first is not None:
            begun.append((first, events))
    begun.sort(key=lambda one: one[0][0].opened_s)
    placed = [_placed(chain([first], rest), clock.opened_at(first[0])) for first, rest in begun]
    return heapq.merge(*placed, key=lambda known: known[0])


def by_process(events: Iterable[Happening]) -> Iterator[Iterable[Happening]]:
    """The streams in a list of events that stand process by process."""
    for _, stream in groupby(events, lambda happening: happening[0].file):
        yield list(stream)


def replayed(
    lookout: Lookout, history: Iterable[Known], every_s: float
) -> Iterator[tuple[float, Change]]:
    """What a watcher that looked every `every_s` seconds would have told.

    Args:
        lookout: takes the events.
        history: in order of time.
        every_s: time between two looks.

    Yields:
        The run time of the look, and what it told.
    """
    look_at = None
    at_s = 0.0
    for at_s, process, event, opened_at in history:
        if look_at is None:
            look_at = at_s + every_s
        while at_s >= look_at:
            for change in lookout.look(look_at):
                yield look_at, change
            look_at += every_s
        lookout.take(process, event, at_s, opened_at)
    if look_at is not None:
        for change in lookout.look(at_s):
            yield at_s, change


def _placed(events: Iterable[Happening], opened_at: float) -> Iterator[Known]:
    latest = opened_at
    for process, event in events:
        latest = max(latest, opened_at + event.t)
        yield latest, process, event, opened_at
