"""`holdfast data records verify` and `repair`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.console import JsonOption, QuietOption, emit, table
from holdfast.data.records.commands.options import (
    DatasetArgument,
    ThreadsOption,
    reporting,
)
from holdfast.numbers import counted, size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType
    from rich.table import Table

    from holdfast.data.records.checking.inspecting import Finding
    from holdfast.data.records.checking.repairing import Repaired
    from holdfast.data.records.checking.verifying import Verified

NOT_OK = 1


def verify(
    dataset: DatasetArgument,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="SOURCE",
            help="Source to compare the DCT coefficients of every image with.",
        ),
    ] = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Check every byte; report damage by record, image and group. Exit code 1 if anything is damaged."""
    from holdfast.data.records.checking import verifying

    with reporting("verifying") as report:
        found = verifying.verify(dataset, against=against, threads=threads, on_progress=report)
    emit(found, as_json, _verified)
    if not found.ok:
        raise typer.Exit(NOT_OK)


def _verified(found: Verified) -> RenderableType:
    from rich.console import Group as Lines

    checked = f"{counted(found.images, 'image')} in {counted(found.records, 'record')}, {size(found.bytes)}"
    lines = [f"{'OK' if found.ok else 'damaged'}: {checked}"]
    if found.compared:
        lines.append(
            f"{counted(found.compared, 'image')} compared with the source, by coefficients"
        )
    lines += found.remarks
    if found.ok:
        return Lines(*lines)
    more = found.error_count - len(found.errors)
    caption = f"and {more:,} more" if more else ""
    return Lines(*lines, _findings(found.errors, caption))


def repair(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="Dataset folder.")],
    source: Annotated[
        str | None,
        typer.Option(
            "--source", metavar="SOURCE", help="Source that the dataset was written from."
        ),
    ] = None,
    replica: Annotated[
        str | None,
        typer.Option(
            "--replica", metavar="URL", help="URL of another copy; only damaged bytes are fetched."
        ),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Restore damaged bytes from the source or a copy. Exit code 1 if damage remains."""
    from holdfast.data.records.checking import repairing

    with reporting("repairing") as report:
        found = repairing.repair(dataset, source=source, replica=replica, on_progress=report)
    emit(found, as_json, _repaired)
    if not found.ok:
        raise typer.Exit(NOT_OK)


def _repaired(found: Repaired) -> RenderableType:
    from rich.console import Group as Lines

    lines: list[RenderableType] = [
        f"{one.file}: {size(one.bytes)} restored from the {one.by}" for one in found.repaired
    ]
    lines += found.remarks
    if found.remaining:
        lines.append(_findings(found.remaining, "", "still damaged"))
    elif not found.repaired:
        lines.append("nothing to repair")
    return Lines(*lines)


def _findings(findings: Iterable[Finding], caption: str, title: str = "") -> Table:
    return table(
        {"record": "left", "image": "left", "group": "right", "reason": "left"},
        [
            (
                one.record or "the dataset",
                one.image or "–",
                "–" if one.group is None else one.group,
                one.reason,
            )
            for one in findings
        ],
        title=title,
        caption=caption,
    )
