"""The live table of a search: what is proven so far, the bounds, evaluations a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.command import common
from holdfast.numbers import bounds, counted, number
from holdfast.progress import remark

if TYPE_CHECKING:
    from rich.table import Table

    from holdfast.lm.query.results import Progress

ROWS = 12


class Notes:
    """Prints the notes of a search on stderr, each once."""

    def __init__(self) -> None:
        self.printed: set[str] = set()

    def show(self, notes: Iterable[str]) -> None:
        """Print those that were not printed."""
        for note in notes:
            if note not in self.printed:
                self.printed.add(note)
                remark(f"note: {note}")


@contextmanager
def watching(notes: Notes) -> Iterator[Callable[[Progress], None]]:
    """A function that shows notes, and on a terminal the progress, while the block runs."""
    if common().quiet or common().as_json or not sys.stderr.isatty():
        yield lambda progress: notes.show(progress.notes)
        return
    from rich.console import Console
    from rich.live import Live

    began = time.monotonic()
    with Live(console=Console(stderr=True), transient=True, refresh_per_second=4) as live:

        def show(progress: Progress) -> None:
            notes.show(progress.notes)
            live.update(live_table(progress, time.monotonic() - began))

        yield show


def live_table(progress: Progress, seconds: float) -> Table:
    """The latest texts found, and under them the bounds and the rate."""
    rate = progress.evaluations / seconds if seconds > 0 else 0.0
    from holdfast.report.terminal import table

    rows = [
        (place, one.text, number(one.logprob, 4), number(one.encodings_seen))
        for place, one in enumerate(progress.found, 1)
    ]
    return table(
        {"": "right", "text": "left", "log probability": "right", "encodings seen": "right"},
        rows[-ROWS:],
        caption=f"mass {bounds(progress.lower, progress.upper)}, "
        f"{counted(progress.evaluations, 'evaluation')}, {number(rate, 0)} per second",
    )
