"""Progress bars for long work: on stderr, with rate and time left, silent when not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Tracker(Protocol):
    """What long work calls while it runs."""

    def advance(self, amount: float) -> None:
        """Report `amount` more of the total as done."""

    def describe(self, text: str) -> None:
        """Replace the text before the bar."""


class _Silent:
    def advance(self, amount: float) -> None:
        pass

    def describe(self, text: str) -> None:
        pass


_quiet = False


def set_quiet(quiet: bool) -> None:
    """Silence every later bar (the command line's ``--quiet``)."""
    global _quiet
    _quiet = quiet


def remark(text: str) -> None:
    """Print a line for people on stderr, such as where a command wrote its file; nothing when quiet."""
    if not _quiet:
        print(text, file=sys.stderr)


@contextmanager
def track(description: str, total: float | None, unit: str = "bytes") -> Iterator[Tracker]:
    """Show a bar while the block runs.

    Args:
        description: text before the bar.
        total: the amount of work, in `unit`; None where it is not known before.
        unit: ``"bytes"`` for transfer columns, anything else for a plain count.

    Yields:
        A tracker; without a terminal, or when quiet, one that does nothing.
    """
    if _quiet or not sys.stderr.isatty():
        yield _Silent()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    amount: list[ProgressColumn] = (
        [DownloadColumn(), TransferSpeedColumn()] if unit == "bytes" else [MofNCompleteColumn()]
    )
    columns = [TextColumn("{task.description}"), BarColumn(), *amount, TimeRemainingColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(description, total=total)

        class _Bar:
            def advance(self, amount: float) -> None:
                bars.advance(task, amount)

            def describe(self, text: str) -> None:
                bars.update(task, description=text)

        yield _Bar()
