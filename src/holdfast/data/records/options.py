"""What the commands share: the dataset, a fidelity, and progress from a count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated, Literal

from holdfast.command import Positive, option
from holdfast.errors import InputError
from holdfast.progress import Tracker, track

Dataset = Annotated[str, option(help="Dataset folder or URL (s3://, gs://, az://, https://).")]
Fidelity = Annotated[
    str, option(metavar="G", help="Number of groups to read: 1, 2, ... or full (all).")
]
Threads = Annotated[Positive | None, option(help="Number of threads (default: one per core).")]


def fidelity_of(text: str) -> int | Literal["full"]:
    """A fidelity as a reader takes it.

    Raises:
        InputError: if it is neither a number nor `full`.
    """
    if text == "full":
        return "full"
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise InputError(
        "invalid fidelity",
        code="invalid-value",
        place="--fidelity",
        found=text,
        expected="1, 2, ... or full",
    )


@contextmanager
def reporting(text: str, unit: str = "bytes") -> Iterator[Callable[[int, int], None]]:
    """A callback `(done, in all)` that moves a bar, made when the amount is first known."""
    bar: Tracker | None = None
    seen = 0

    def report(done: int, total: int) -> None:
        nonlocal bar, seen
        if bar is None:
            bar = stack.enter_context(track(text, total, unit))
        bar.advance(done - seen)
        seen = done

    with ExitStack() as stack:
        yield report
