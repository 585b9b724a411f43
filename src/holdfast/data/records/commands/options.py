"""What the commands share: the dataset, a fidelity, and progress from a count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from holdfast.errors import InputError
from holdfast.numbers import percent, size
from holdfast.progress import Tracker, track

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from holdfast.data.records.describing import Group

DatasetArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATASET", help="Dataset folder or URL (s3://, gs://, az://, https://)."
    ),
]
FidelityOption = Annotated[
    str,
    typer.Option(
        "--fidelity", metavar="G", help="Number of groups to read: 1, 2, ... or full (all)."
    ),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads", metavar="N", min=1, help="Number of threads (default: one per core)."
    ),
]


def _in_a_folder(page: Path | None) -> Path | None:
    """Check that the folder of a page exists, before the work."""
    if page is not None and not page.absolute().parent.is_dir():
        raise typer.BadParameter(f"folder not found: {page.parent}")
    return page


HtmlOption = Annotated[
    Path | None,
    typer.Option(
        "--html",
        metavar="FILE",
        help="Write the report as an HTML page.",
        callback=_in_a_folder,
    ),
]


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


def numbers_of(text: str, option: str) -> tuple[int, ...]:
    """Whole numbers, separated by commas.

    Raises:
        InputError: if it is something else.
    """
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(
            "invalid list of whole numbers",
            code="invalid-value",
            place=option,
            found=text,
            expected="1,2,5,6,10",
        ) from None


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
    from holdfast.console import table

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
