"""The live table of a search: what is proven so far, the bounds, evaluations a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.console import table
from holdfast.numbers import counted, number, probability

if TYPE_CHECKING:
    from rich.table import Table

    from holdfast.lm.query.results import Progress

ROWS = 12


@contextmanager
def watching(silent: bool) -> Iterator[Callable[[Progress], None] | None]:
    """A function that shows progress on stderr while the block runs; None without a terminal."""
    if silent or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.live import Live

    began = time.monotonic()
    with Live(console=Console(stderr=True), transient=True, refresh_per_second=4) as live:
        yield lambda progress: live.update(live_table(progress, time.monotonic() - began))


def live_table(progress: Progress, seconds: float) -> Table:
    """The latest texts found, and under them the bounds and the rate."""
    rate = progress.evaluations / seconds if seconds > 0 else 0.0
    numbered = list(enumerate(progress.found, 1))
    return table(
        {"": "right", "text": "left", "log probability": "right", "encodings": "right"},
        [
            (place, match.text, number(match.logprob, 4), number(match.encodings))
            for place, match in numbered[-ROWS:]
        ],
        caption=f"mass [{probability(progress.lower)}, {probability(progress.upper)}], "
        f"{counted(progress.evaluations, 'evaluation')}, {number(rate, 0)} a second",
    )
