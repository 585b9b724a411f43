"""What the commands share: the dataset, a fidelity, and progress from a count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

from holdfast.command import Positive, option
from holdfast.errors import InputError
from holdfast.numbers import percent, size
from holdfast.progress import Tracker, track
from holdfast.report.terminal import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from holdfast.data.records.describing import Group

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


def groups_table(groups: Sequence[Group], images: int) -> Table:
    """What each fidelity costs and shows."""
    return table(
        {
            "fidelity": "right",
            "to scan": "right",
            "bytes": "right",
            "per image": "right",
            "of full": "right",
            "of stripped source": "right",
            "MS-SSIM": "right",
        },
        [
            (
                group.group,
                group.scans_end,
                size(group.bytes),
                size(group.bytes / images) if images else "–",
                percent(group.cumulative_fraction),
                percent(group.of_stripped),
                "–" if group.msssim is None else f"{group.msssim:.3f}",
            )
            for group in groups
        ],
    )
